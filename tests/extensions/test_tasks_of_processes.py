"""Tasks of servers in processes of their own: over stdio, in several workers, and when a process is asked to stop."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linkspan.extensions.task_record import TaskRecord
from linkspan.extensions.task_store import TaskStore
from linkspan.stores import SqliteStore
from ports import reserve_port

PATIENCE = 60.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
SERVER = """
import asyncio, os, sys, time
from linkspan import Context, Server, Task

server = Server("worker", store=sys.argv[2] if len(sys.argv) > 2 else None)

@server.tool(task=Task(restart="always"))
def sleep(seconds: float) -> int:
    time.sleep(float(os.environ.get("SECONDS", seconds)))
    return os.getpid()

@server.tool(task=Task(restart="never"))
async def rest(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()

if len(sys.argv) == 1:
    server.run()
else:
    options = dict(each.split("=") for each in sys.argv[3:])
    server.run("http", port=int(sys.argv[1]), **{name: float(value) for name, value in options.items() if name != "workers"},
               workers=int(options.get("workers", 1)))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}


class Http:
    """Sends each request on a connection of its own, so that any worker may get it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            "mcp-name": params.get("taskId") or params.get("name", ""),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", "/mcp", json.dumps(message(method, **params)), headers)
            found: dict[str, Any] = json.loads(connection.getresponse().read())["result"]
            return found
        finally:
            connection.close()

    def call(self, tool: str, seconds: float) -> str:
        task = self.send("tools/call", name=tool, arguments={"seconds": seconds})
        assert task["resultType"] == "task"
        found: str = task["taskId"]
        return found

    def wait(self, task_id: str) -> dict[str, Any]:
        give_up = time.monotonic() + PATIENCE
        while (task := self.send("tasks/get", taskId=task_id))["status"] == "working":
            assert time.monotonic() < give_up
            time.sleep(0.01)
        return task


@contextmanager
def serving(file: Path, *arguments: str, **environment: str) -> Iterator[tuple[Http, subprocess.Popen[bytes]]]:
    port = reserve_port()
    with started([str(file), str(port), *arguments], port, env=os.environ | environment) as (served, process):
        yield served, process


@contextmanager
def started(command: list[str], port: int, **options: Any) -> Iterator[tuple[Http, subprocess.Popen[bytes]]]:
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL, **options)
    served, give_up = Http(port), time.monotonic() + PATIENCE
    while True:
        try:
            served.send("server/discover")
            break
        except OSError:
            assert time.monotonic() < give_up
            assert process.poll() is None
            time.sleep(0.02)
    try:
        yield served, process
    finally:
        process.kill()
        process.wait()


def test_tasks_run_over_stdio(file: Path) -> None:
    process = subprocess.Popen([sys.executable, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None

    def send(method: str, **params: Any) -> dict[str, Any]:
        process.stdin.write(json.dumps(message(method, **params)).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        found: dict[str, Any] = json.loads(process.stdout.readline())["result"]  # type: ignore[union-attr]
        return found

    for tool in ("sleep", "rest"):
        task = send("tools/call", name=tool, arguments={"seconds": 0.05})
        assert task["resultType"] == "task"
        give_up = time.monotonic() + PATIENCE
        while task["status"] == "working":
            assert time.monotonic() < give_up
            task = send("tasks/get", taskId=task["taskId"])
        assert task["result"]["structuredContent"] == {"result": process.pid}
    send("tools/call", name="rest", arguments={"seconds": PATIENCE})
    process.stdin.close()
    process.stdout.close()
    assert process.wait(60) == 0, "a task does not keep a server whose client is gone"


def test_any_worker_answers_for_any_task(file: Path) -> None:
    code = file.read_text().replace("store=sys.argv[2] if len(sys.argv) > 2 else None", "max_tasks=1")
    file.write_text(code)
    with serving(file, "-", "workers=3") as (served, _):
        pids, give_up = set[int](), time.monotonic() + PATIENCE
        while len(pids) < 2:  # one process runs one task at a time here; it may be the only one that has started yet
            assert time.monotonic() < give_up
            tasks = [served.call(("sleep", "rest")[number % 2], 0.1) for number in range(6)]
            pids |= {served.wait(each)["result"]["structuredContent"]["result"] for each in tasks}


def test_a_task_is_cancelled_in_whichever_worker_it_runs(file: Path) -> None:
    file.write_text(file.read_text().replace("store=sys.argv[2] if len(sys.argv) > 2 else None", ""))
    with serving(file, "-", "workers=3") as (served, _):
        tasks = [served.call("rest", PATIENCE) for _ in range(6)]
        for each in tasks:
            served.send("tasks/cancel", taskId=each)
        assert {served.wait(each)["status"] for each in tasks} == {"cancelled"}


def stored(path: Path, task_id: str) -> TaskRecord:
    store = SqliteStore(path)
    try:
        record = TaskStore(lambda: store, "worker").get(task_id)
        assert record is not None
        return record
    finally:
        store.close()


def test_a_server_that_stops_lets_its_tasks_end(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with serving(file, f"sqlite://{path}", "drain=60") as (served, process):
        tasks = [served.call(tool, 0.5) for tool in ("sleep", "rest")]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert [stored(path, each).status for each in tasks] == ["completed", "completed"]


def test_a_server_that_stops_gives_back_what_does_not_end(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with serving(file, f"sqlite://{path}", "drain=0.2") as (served, process):
        again, never = served.call("sleep", PATIENCE), served.call("rest", PATIENCE)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    assert (stored(path, again).status, stored(path, again).running) == ("working", False)
    assert stored(path, never).message == "the server stopped while it ran; it may have been carried out"
    with serving(file, f"sqlite://{path}", "drain=0.2", SECONDS="0") as (served, process):
        done = served.wait(again)
        assert done["result"]["structuredContent"] == {"result": process.pid}, "at once, and in the next process"


def test_a_worker_of_gunicorn_that_stops_gives_back_what_does_not_end(file: Path, tmp_path: Path) -> None:
    """A server of WSGI does not call an application when it stops."""
    pytest.importorskip("gunicorn", reason="gunicorn is not installed: pip install '.[peers]'")
    path, port = tmp_path / "tasks.db", reserve_port()
    code = file.read_text().replace("sys.argv[2] if len(sys.argv) > 2 else None", f"'sqlite://{path}'")
    (tmp_path / "served.py").write_text(code.split("\nif len(sys.argv)")[0] + "\napp = server.wsgi(path='/mcp')\n")
    application = ["served:app", "--threads", "2", "-b", f"127.0.0.1:{port}"]
    with started(["-m", "gunicorn", *application], port, cwd=tmp_path) as (served, process):
        again, never = served.call("sleep", PATIENCE), served.call("rest", PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert (stored(path, again).status, stored(path, again).running) == ("working", False)
    assert stored(path, never).message == "the server stopped while it ran; it may have been carried out"
