"""`linkspan worker` runs the tasks of a server: by leases, or in the engine of the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from linkspan import LinkspanError, Server
from linkspan.cli.run import load_server
from linkspan.revisions import LATEST
from linkspan.runtime.background import background_loop
from stores.store_servers import postgres_server, redis_server

FILE = Path(__file__).with_name("indexer.py")
TASKS = "io.modelcontextprotocol/tasks"


def ask(server: Server, method: str, **params: Any) -> Any:
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.date,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }
    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}})
    return answer.get("result") or answer["error"]


def start_task(server: Server, until: str = "") -> str:
    answer = ask(server, "tools/call", name="index", arguments={"until": until})
    assert answer["resultType"] == "task", answer
    return str(answer["taskId"])


def result_of(server: Server, task_id: str) -> int:
    """Wait for the end of a task; return the process that ran it."""
    give_up = time.monotonic() + 60
    while (task := ask(server, "tasks/get", taskId=task_id))["status"] == "working":
        assert time.monotonic() < give_up, task
        time.sleep(0.02)
    assert task["status"] == "completed", task
    return int(task["result"]["structuredContent"]["result"])


@contextmanager
def worker(**environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `linkspan worker` until the end of the block, where it ends by itself."""
    command = [sys.executable, "-W", "ignore", "-m", "linkspan", "worker", str(FILE)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stderr is not None
        assert "Running the tasks of indexer" in process.stderr.readline()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_worker_runs_the_tasks_that_a_server_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    monkeypatch.setenv("STORE", url)
    server = load_server(str(FILE))
    done = tmp_path / "done"
    first, second = start_task(server, str(done)), start_task(server)
    with worker(STORE=url) as process:
        assert result_of(server, second) == process.pid
    done.touch()
    assert result_of(server, first) == os.getpid()


@pytest.mark.parametrize("name", ["dramatiq", "celery", "docket"])
def test_the_worker_of_an_engine_on_redis_runs_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    with redis_server(tmp_path) as (url, _):
        monkeypatch.setenv("STORE", url)
        monkeypatch.setenv("ENGINE", name)
        server = load_server(str(FILE))
        waiting = start_task(server)
        with worker() as process:
            assert result_of(server, waiting) == process.pid
            assert result_of(server, start_task(server)) == process.pid
        server.store.close()
        if name == "docket":  # else it looks for Redis until the end of this process, and reports that there is none
            docket: Any = server._profile.tasks
            background_loop().run(lambda: docket._docket.__aexit__(None, None, None))


@contextmanager
def procrastinate_tables() -> Iterator[str]:
    """Run PostgreSQL with the tables of Procrastinate; give its URL."""
    procrastinate = pytest.importorskip("procrastinate", reason="procrastinate is not installed")
    with postgres_server() as url:
        app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
        with app.open():
            app.schema_manager.apply_schema()
        yield url


def test_a_worker_of_procrastinate_submits_tasks_of_workers_that_are_gone() -> None:
    with procrastinate_tables() as url:
        from procrastinate import App, PsycopgConnector

        from linkspan.engines import Procrastinate

        server, worker = (Procrastinate(App(connector=PsycopgConnector(conninfo=url)), retry=0) for _ in range(2))
        ran = list[str]()

        def run(task_id: str) -> None:
            ran.append(task_id)
            with ExitStack() as at_end, ThreadPoolExecutor(1) as elsewhere:
                at_end.callback(os.kill, os.getpid(), signal.SIGINT)  # stops the worker
                if task_id == "lost":  # another thread than that of a job looks for lost tasks
                    elsewhere.submit(worker.submit, "again").result(20)
                    at_end.pop_all()

        for engine in (server, worker):
            engine.bind("indexer", run)
        server.submit("lost")
        worker.work(1, 20.0)
    assert ran == ["lost", "again"]


def test_procrastinate_runs_the_tasks_on_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    with procrastinate_tables() as url:
        monkeypatch.setenv("STORE", url)
        monkeypatch.setenv("ENGINE", "procrastinate")
        server = load_server(str(FILE))
        waiting = start_task(server)
        with worker() as process:
            assert result_of(server, waiting) == process.pid
        server.store.close()


def test_an_engine_needs_a_store_that_its_workers_see() -> None:
    pytest.importorskip("dramatiq", reason="dramatiq is not installed")
    from dramatiq.brokers.stub import StubBroker

    from linkspan.engines import Dramatiq

    server = Server("indexer", tasks=Dramatiq(StubBroker()))
    with pytest.raises(LinkspanError, match=r"tasks=Dramatiq\(...\) runs tasks in other processes: pass store="):
        server.asgi()


def test_a_worker_needs_a_store(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("import linkspan\nserver = linkspan.Server()\n")
    done = subprocess.run(
        [sys.executable, "-m", "linkspan", "worker", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("linkspan worker: a worker needs the store of the processes that serve")
