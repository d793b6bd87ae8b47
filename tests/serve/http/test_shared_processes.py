"""Real processes that share handshake sessions: our workers, gunicorn with Django, and three servers with one store."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from linkspan.revisions import LATEST, LEGACY
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from linkspan.types.task_messages import TASKS
from ports import reserve_port
from stores.store_servers import store_server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
NEWEST = LEGACY[-1]
BOTH = "application/json, text/event-stream"
APP = """
import asyncio, os, sys
from typing import Annotated
from linkspan import Ask, Context, Server

server = Server("shared", store=os.environ.get("STORE"), capabilities={"resources": {"subscribe": True}})

@server.tool
def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
    return f"{seats} seats on {date} from {os.getpid()}"

@server.tool
def pid() -> int:
    return os.getpid()

@server.resource("note://today")
def today() -> str:
    return "rest"

@server.tool
def write() -> int:
    return server.notify_resource_updated("note://today")

@server.tool(task=True)
def order(ctx: Context) -> str:
    return f"{ctx.ask('what', str, 'What?')} from {os.getpid()}"

@server.tool(task=True)
async def rest() -> str:
    await asyncio.sleep(600)
    return "rested"

def django():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    settings.configure(ROOT_URLCONF="shared", SECRET_KEY="x", ALLOWED_HOSTS=["127.0.0.1"])
    django.setup()
    return server.wsgi(path="/mcp", otherwise=get_wsgi_application())

urlpatterns = []
if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), workers=int(sys.argv[2]))
"""


class Reply:
    """One response, as it comes."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.last = ""

    def messages(self) -> Iterator[Any]:
        """Give the messages of a stream, or the one of a response that is JSON."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            content = self._response.read()
            yield json.loads(content) if content else None
            return
        for line in self._response:
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name == "id":
                self.last = value
            if name == "data" and value:
                yield json.loads(value)

    def close(self) -> None:
        self._connection.close()


class Client:
    """A handshake client that opens a connection for each request, to whichever server is next."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = cycle(ports)
        self.headers = {"accept": BOTH, "content-type": "application/json"}
        hello = {
            "protocolVersion": NEWEST,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        reply = self.post({"id": 0, "method": "initialize", "params": hello})
        self.headers |= {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": NEWEST}
        assert self.post({"method": "notifications/initialized"}).status == 202
        self._number = 0

    def send(self, method: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", next(self._ports), timeout=60)
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, "/mcp", body, self.headers | {"connection": "close"} | more)
        return Reply(connection)

    def post(self, message: dict[str, Any]) -> Reply:
        return self.send("POST", json.dumps({"jsonrpc": "2.0"} | message).encode())

    def call(self, tool: str, **arguments: Any) -> Reply:
        self._number += 1
        params = {"name": tool, "arguments": arguments}
        return self.post({"id": self._number, "method": "tools/call", "params": params})

    def text(self, tool: str, **arguments: Any) -> str:
        (message,) = self.call(tool, **arguments).messages()
        text: str = message["result"]["content"][0]["text"]
        return text

    def book(self, *dates: str) -> list[tuple[str, str]]:
        """Call a tool that asks in the middle of the call, for all dates at once, and answer; return texts and processes."""
        calls = [self.call("book", date=date).messages() for date in dates]
        questions = [next(each) for each in calls]
        for question in questions:
            assert question["method"] == "elicitation/create", question
            answer = {"action": "accept", "content": {"seats": 3}}
            assert self.post({"id": question["id"], "result": answer}).status == 202
        texts = [next(each)["result"]["content"][0]["text"] for each in calls]
        return [tuple(each.split(" from ")) for each in texts]


class TaskClient:
    """A modern client with tasks, which sends each request to the next server."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = cycle(ports)

    def send(self, method: str, **params: Any) -> Any:
        can = {"elicitation": {}, "extensions": {TASKS: {}}}
        meta = {PROTOCOL_VERSION: LATEST.date, CAPABILITIES: can}
        headers = {
            "accept": BOTH,
            "content-type": "application/json",
            "mcp-protocol-version": LATEST.date,
            "mcp-method": method,
            "mcp-name": params.get("taskId") or params["name"],
        }
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}})
        connection = http.client.HTTPConnection("127.0.0.1", next(self._ports), timeout=60)
        connection.request("POST", "/mcp", body, headers)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert "result" in answer, answer
        return answer["result"]

    def wait(self, task_id: str, status: str) -> Any:
        give_up = time.monotonic() + 60
        while (task := self.send("tasks/get", taskId=task_id))["status"] != status:
            assert time.monotonic() < give_up, task
            time.sleep(0.01)
        return task


@contextmanager
def running(folder: Path, commands: dict[int, list[str]], **settings: str) -> Iterator[None]:
    """Run commands at the same time, each of which serves at a port."""
    (folder / "shared.py").write_text(APP)
    processes = [
        subprocess.Popen([sys.executable, *each], cwd=folder, env=os.environ | settings) for each in commands.values()
    ]
    try:
        for port, process in zip(commands, processes, strict=True):
            wait_until_served(port, process)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + 60
    while True:
        assert process.poll() is None
        assert time.monotonic() < give_up
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/mcp", headers={"connection": "close"})
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.02)


def workers(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    return ["shared.py", f"{port}", "4"], {}


def gunicorn(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    if find_spec("gunicorn") is None or find_spec("django") is None:
        pytest.skip("gunicorn or Django is not installed: pip install '.[peers]'")
    # A worker that has three connections leaves the next one to the others.
    options = ["--workers", "4", "--threads", "3", "--worker-connections", "3", "--log-level", "error"]
    command = ["-m", "gunicorn", "shared:django()", *options, "-b", f"127.0.0.1:{port}"]
    return command, {"STORE": f"sqlite://{folder / 'store.db'}"}


@pytest.mark.parametrize("kind", [workers, gunicorn])
def test_a_handshake_client_is_asked_in_the_middle_of_a_call_whichever_worker_it_reaches(
    kind: Any, tmp_path: Path
) -> None:
    port = reserve_port()
    command, settings = kind(tmp_path, port)
    with running(tmp_path, {port: command}, **settings):
        client = Client([port])
        dates, pids = [f"day {number}" for number in range(6)], set[str]()
        give_up = time.monotonic() + 60
        while len(pids) < 2:  # which one is next is up to the system, and one may be the only one that has started yet
            assert time.monotonic() < give_up
            found = client.book(*dates)
            assert [text for text, _ in found] == [f"3 seats on {date}" for date in dates]
            pids |= {pid for _, pid in found}


@pytest.mark.parametrize("scheme", ["sqlite", "redis", "postgresql", "nats"])
def test_three_servers_with_one_store_serve_one_client(scheme: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(store_server(scheme, tmp_path))
        ports = [reserve_port() for _ in range(3)]
        stack.enter_context(running(tmp_path, {port: ["shared.py", f"{port}", "1"] for port in ports}, STORE=url))
        client = Client(ports)
        assert len({client.text("pid") for _ in range(3)}) == 3
        assert [text for text, _ in client.book("Monday", "Friday")] == ["3 seats on Monday", "3 seats on Friday"]
        _it_is_notified_once(client)
        _it_goes_on_elsewhere(client)
        _tasks_are_answered_and_cancelled_anywhere(TaskClient(ports))
        assert client.send("DELETE").status == 204
        assert [client.post({"id": 99, "method": "ping"}).status for _ in range(3)] == [404] * 3


def _it_is_notified_once(client: Client) -> None:
    stream = client.send("GET", accept="text/event-stream")
    subscribed = client.post({"id": "s", "method": "resources/subscribe", "params": {"uri": "note://today"}})
    assert subscribed.status == 200
    for _ in range(3):
        client.text("write")
    messages = stream.messages()
    found = [next(messages)["method"] for _ in range(3)]
    client.post({"id": "u", "method": "resources/unsubscribe", "params": {"uri": "note://today"}})
    other = client.send("GET", accept="text/event-stream")  # it ends the first: whatever came on that is known now
    assert (found, list(messages)) == (["notifications/resources/updated"] * 3, [])
    other.close()


def _it_goes_on_elsewhere(client: Client) -> None:
    call = client.call("book", date="Sunday")
    question = next(call.messages())
    assert re.fullmatch(r"\w+\.\d+\.\d+-\d+", call.last)
    call.close()
    back = client.send("GET", accept="text/event-stream", last_event_id=call.last)
    answer = {"action": "accept", "content": {"seats": 5}}
    assert client.post({"id": question["id"], "result": answer}).status == 202
    (message,) = back.messages()
    assert message["result"]["content"][0]["text"].startswith("5 seats on Sunday")


def _tasks_are_answered_and_cancelled_anywhere(client: TaskClient) -> None:
    asking, resting = (client.send("tools/call", name=name, arguments={})["taskId"] for name in ("order", "rest"))
    assert [*client.wait(asking, "input_required")["inputRequests"]] == ["what"]
    answers = {"what": {"action": "accept", "content": {"what": "tea"}}}
    client.send("tasks/update", taskId=asking, inputResponses=answers)
    client.send("tasks/cancel", taskId=resting)
    assert client.wait(asking, "completed")["result"]["content"][0]["text"].startswith("tea from ")
    client.wait(resting, "cancelled")
