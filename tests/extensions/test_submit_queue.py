"""What is on its way to an engine when the process forks: each process submits its own tasks, each once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORK = """
import os, signal, sys, threading, warnings

warnings.simplefilter("ignore")  # Python warns of forks of a process with threads
begun, goes_on = threading.Event(), threading.Event()


def submitted(task_id):
    os.write(1, f"{'parent' if os.getpid() == parent else 'child'} {task_id}\\n".encode())


def in_child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        signal.alarm(100)  # a child that hangs ends
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


parent = os.getpid()
"""


def run(code: str) -> list[str]:
    """Run code in a process that forks; return the lines that it writes."""
    done = subprocess.run(
        [sys.executable, "-c", FORK + textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_forked_child_submits_its_own_tasks_and_none_of_its_parents() -> None:
    """The thread of the parent holds the lock, or waits for the engine, when it forks: the child has neither."""
    code = """
    from linkspan.extensions.submit_queue import SubmitQueue


    class Engine:
        def submit(self, task_id):
            submitted(task_id)
            if task_id == "first":
                begun.set()
                assert goes_on.wait(60)


    queue = SubmitQueue(Engine())
    queue.put("first")
    queue.put("second")
    assert begun.wait(60)


    def work():
        goes_on.set()
        queue.put("third")
        queue.wait()
        assert not queue._is_working


    with queue._changed:  # as where another thread has it
        in_child(work)
    goes_on.set()
    queue.wait()
    """
    assert run(code) == ["parent first", "child third", "parent second"]


def test_a_forked_child_runs_its_own_tasks_and_leaves_its_parents_alone() -> None:
    code = """
    from linkspan import Server, Task
    from linkspan.revisions import LATEST

    server = Server("indexer")


    @server.tool(task=Task(restart="never"))
    def index(number: int) -> str:
        submitted(number)
        if number == 1:
            begun.set()
            assert goes_on.wait(60)
        else:
            ended.set()
        return "done"


    def call(number):
        meta = {
            "io.modelcontextprotocol/protocolVersion": LATEST.date,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        params = {"name": "index", "arguments": {"number": number}, "_meta": meta}
        answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert answer["result"]["resultType"] == "task", answer


    ended = threading.Event()
    call(1)
    assert begun.wait(60)


    def work():
        assert not server.tasks.runner.runs.by_id
        call(2)
        assert ended.wait(60)


    with server.tasks.runner._lock:
        in_child(work)
    assert list(server.tasks.runner.runs.by_id)
    goes_on.set()
    """
    assert run(code) == ["parent 1", "child 2"]


@pytest.mark.parametrize("name", ["Docket", "Procrastinate"])
def test_the_connection_of_an_engine_is_opened_anew_in_a_forked_child(name: str) -> None:
    pytest.importorskip({"Docket": "docket"}.get(name, "procrastinate"), reason=f"{name} is not installed")
    code = f"""
    from linkspan import engines


    class App:
        def task(self, function, **options):
            return self

        def open(self):
            submitted("opened")

        def defer(self, **arguments):
            submitted(arguments["task_id"])

        configure = lambda self, **options: self


    class Library:
        def __init__(self, **options):
            pass

        async def __aenter__(self):
            submitted("opened")
            return self

        def register(self, function):
            pass

        async def get_execution(self, key):
            return None

        def add(self, function, *, key):
            async def added(task_id):
                submitted(task_id)

            return added


    if {name!r} == "Docket":
        engine = engines.Docket("redis://127.0.0.1:1")
        engine._library = type("Module", (), {{"Docket": Library}})
    else:
        engine = engines.Procrastinate(App())
    engine.bind("indexer", print)
    engine.submit("first")
    with engine._lock:
        in_child(lambda: engine.submit("second"))
    engine.submit("third")
    """
    assert run(code) == ["parent opened", "parent first", "child opened", "child second", "parent third"]
