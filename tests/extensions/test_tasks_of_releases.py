"""Two releases of one server share a store, as during a rolling deploy: a task runs where its tool is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from client.faces import wait_until
from linkspan import Server, Task
from linkspan.core.call import CallReady, Ports
from linkspan.extensions.engine import run_task
from linkspan.revisions import LATEST

PATIENCE = 60.0
TASKS = "io.modelcontextprotocol/tasks"
META = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}


def ask(server: Server, method: str, **params: Any) -> dict[str, Any]:
    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}})
    result: dict[str, Any] = answer["result"]
    return result


def start(server: Server, tool: str, **arguments: Any) -> str:
    answer = ask(server, "tools/call", name=tool, arguments=arguments)
    assert answer["resultType"] == "task", answer
    return str(answer["taskId"])


def wait(server: Server, task_id: str) -> dict[str, Any]:
    give_up = time.monotonic() + PATIENCE
    while (task := ask(server, "tasks/get", taskId=task_id))["status"] == "working":
        assert time.monotonic() < give_up, task
        time.sleep(0.01)
    return task


class Release:
    """One release of the server, in one process."""

    def __init__(self, path: Path, tools: dict[str, Callable[..., str]], **options: Any) -> None:
        self.held, self.began = threading.Event(), threading.Event()
        self.server = Server("shop", store=f"sqlite://{path}/store.db", **options)
        for name, function in {"hold": self.hold, **tools}.items():
            self.server.define_tool(name, handler=function, task=Task(ttl=PATIENCE * 2))
        self.server.tasks.runner.attach(self, lambda: None)

    def hold(self) -> str:
        self.began.set()
        assert self.held.wait(PATIENCE)
        return "let go"

    def has_looked_twice(self) -> None:
        """Wait until this process has looked at all that waits, and more than once."""
        runner = self.server.tasks.runner
        for _ in range(2):
            before, give_up = runner.schedule.checked_at, time.monotonic() + PATIENCE
            while runner.schedule.checked_at in (None, before):
                assert time.monotonic() < give_up
                time.sleep(0.01)


@contextmanager
def releases(*each: Release) -> Iterator[None]:
    try:
        yield
    finally:
        for release in each:
            release.held.set()
            release.server.tasks.runner.leave(release, 0.0)
            release.server.store.close()


def order(number: int) -> str:
    return f"ordered {number}"


def order_with_a_note(number: int, note: str = "") -> str:
    return f"ordered {number} {note}"


@pytest.mark.parametrize("tools", [{}, {"order": order}], ids=["without the tool", "with other parameters"])
def test_a_process_of_the_old_release_leaves_the_tasks_of_the_new_one(
    tmp_path: Path, tools: dict[str, Callable[..., str]]
) -> None:
    new, old = Release(tmp_path, {"order": order_with_a_note}, max_tasks=1), Release(tmp_path, tools)
    with releases(new, old):
        start(new.server, "hold")
        assert new.began.wait(PATIENCE)
        tasks = [start(new.server, "order", number=number, note="today") for number in range(4)]
        old.has_looked_twice()
        new.held.set()
        texts = [wait(new.server, each)["result"]["content"][0]["text"] for each in tasks]
    assert texts == [f"ordered {number} today" for number in range(4)]


def test_what_the_old_release_left_runs_in_a_process_that_starts_later(tmp_path: Path) -> None:
    making = Release(tmp_path, {"order": order}, max_tasks=1)
    old = Release(tmp_path, {})
    with releases(making, old):
        start(making.server, "hold")
        assert making.began.wait(PATIENCE)
        task_id = start(making.server, "order", number=1)
        old.has_looked_twice()
        late = Release(tmp_path, {"order": order})
        with releases(late):
            assert wait(late.server, task_id)["result"]["content"][0]["text"] == "ordered 1"


def test_a_client_that_listens_at_one_process_receives_what_becomes_of_a_task_in_another(tmp_path: Path) -> None:
    running, other = Release(tmp_path, {}), Release(tmp_path, {})
    received = Queue[dict[str, Any]]()

    def take() -> None:
        for each in connection.messages_to_send():
            received.put(json.loads(each)["params"])

    connection = other.server.connect(ports=Ports(on_output=take))
    with releases(running, other):
        task_id = start(running.server, "hold")
        wanted = {"notifications": {"taskIds": [task_id]}, "_meta": META}
        request = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": wanted}
        for event in connection.receive_message(json.dumps(request).encode()):
            assert isinstance(event, CallReady)
            connection.finish(event.call, event.call.run())
        take()
        assert received.get(timeout=PATIENCE)["notifications"] == {"taskIds": [task_id]}
        running.held.set()
        while (state := received.get(timeout=PATIENCE))["status"] == "working":
            pass
        assert state["result"]["content"][0]["text"] == "let go"
        connection.close()


class Jobs:
    """An engine that keeps what it gets."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def submit(self, task_id: str) -> None:
        self.jobs.append(task_id)


def test_a_worker_of_the_old_release_leaves_the_tasks_of_the_new_one(tmp_path: Path) -> None:
    engine = Jobs()
    new, old = (Release(tmp_path, tools, tasks=engine) for tools in ({"order": order}, {}))
    with releases(new, old):
        task_id = start(new.server, "order", number=1)
        give_up = time.monotonic() + PATIENCE
        for times in (1, 2):  # the engine gets it again, a second later
            while len(engine.jobs) < times:
                assert time.monotonic() < give_up
                time.sleep(0.01)
            run_task(old.server, task_id)
            assert ask(old.server, "tasks/get", taskId=task_id)["status"] == "working"
        run_task(new.server, task_id)
        assert wait(old.server, task_id)["result"]["content"][0]["text"] == "ordered 1"


def test_a_worker_looks_after_what_it_runs_though_it_serves_nothing(tmp_path: Path) -> None:
    """Else its lease would run out, and another process would run the task again."""
    began, held = threading.Event(), threading.Event()
    engine = Jobs()
    server = Server("shop", store=f"sqlite://{tmp_path}/store.db", tasks=engine)

    def hold() -> str:
        began.set()
        assert held.wait(PATIENCE)
        return "let go"

    server.define_tool("hold", handler=hold, task=True)
    task_id = start(server, "hold")
    worker = Server("shop", store=f"sqlite://{tmp_path}/store.db", tasks=engine)
    worker.define_tool("hold", handler=hold, task=True)
    running = threading.Thread(target=run_task, args=(worker, task_id))
    running.start()
    assert began.wait(PATIENCE)
    try:
        wait_until(lambda: worker.tasks.runner.schedule.checked_at is not None)
    finally:
        held.set()
        running.join()
        for each in (server, worker):
            each.tasks.runner.leave(each, 0.0)
            each.store.close()
