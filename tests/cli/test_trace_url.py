"""`linkspan trace URL`: what passes through is not changed, and all of it is shown."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from linkspan import Context, Server, SyncClient
from linkspan.cli.trace_http import TracedUrl
from over_http import serving
from ports import reserve_port

WAIT = 60.0

server = Server("dice")


@server.tool
def roll(sides: int) -> int:
    """Roll."""
    return sides


@server.tool
def slow(ctx: Context) -> str:
    """Report progress, then finish."""
    ctx.progress(1, 2)
    return "done"


@server.tool
def key(ctx: Context) -> str:
    """Return a header of the request."""
    return ctx.headers.get("x-team", "")


@server.tool
def change() -> str:
    """Announce other tools."""
    server.notify_tools_list_changed()
    return "announced"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(server.asgi(path="/mcp")) as found:
        yield found


class Seen:
    """What was shown."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[str] = []
        self.hops: list[Any] = []

    def receive(self, side: str, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        self.messages.append((side, json.loads(data)))

    def note(self, text: str, **members: Any) -> None:
        self.notes.append(text)
        self.hops += [members["http"]] if "http" in members else []


@pytest.fixture
def seen() -> Seen:
    return Seen()


def traced(url: str, seen: Seen, **options: Any) -> closing[TracedUrl]:
    return closing(TracedUrl(url, seen, **options))


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_calls_pass_and_their_messages_are_shown(url: str, seen: Seen, era: Any) -> None:
    with traced(url, seen) as trace, SyncClient(trace.url, era=era) as client:
        assert client.call_tool("roll", {"sides": 20}).text == "20"
        steps: list[float] = []
        assert client.call_tool("slow", {}, on_progress=lambda each: steps.append(each.progress)).text == "done"
        assert steps == [1]
    methods = [message["method"] for side, message in seen.messages if side == "client" and "method" in message]
    assert methods.count("tools/call") == 2
    answers = [message for side, message in seen.messages if side == "server"]
    assert any(message.get("method") == "notifications/progress" for message in answers)
    assert any(message.get("result", {}).get("structuredContent") == {"result": 20} for message in answers)
    assert seen.notes == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_stream_that_a_client_listens_to_passes_as_it_comes(url: str, seen: Seen, era: Any) -> None:
    told = threading.Event()
    with traced(url, seen) as trace, SyncClient(trace.url, era=era, on_change=lambda _: told.set()) as client:
        client.list_tools()
        give_up = time.monotonic() + WAIT
        while not told.is_set() and time.monotonic() < give_up:  # the stream may not be open yet
            client.call_tool("change", {})
            told.wait(0.1)
        assert told.is_set()
    assert any(message.get("method") == "notifications/tools/list_changed" for _, message in seen.messages)


def test_headers_are_added_and_shown_without_secrets(url: str, seen: Seen) -> None:
    headers = {"X-Team": "blue", "Authorization": "Bearer s3cret-key"}
    with traced(url, seen, headers=headers, show_headers=True) as trace, SyncClient(trace.url) as client:
        assert client.call_tool("key", {}).text == "blue"
    assert "s3cret-key" not in json.dumps([seen.hops, seen.notes])
    assert any(each.startswith("  > mcp-protocol-version: ") for each in seen.notes)
    assert {each["status"] for each in seen.hops} == {200}


def post(trace: TracedUrl, path: str = "/mcp", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(trace.url).port, timeout=WAIT)
    with closing(connection):
        connection.request("POST", path, b"{}", {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/mcp", {"Host": "evil.example"}, 403),
        ("/mcp", {"Origin": "https://evil.example"}, 403),
        ("/mcp", {"Origin": "null"}, 403),
        ("/other", {}, 404),
        ("/mcp", {"Content-Length": "x"}, 411),
        ("/mcp", {"Content-Length": str(2**40)}, 411),
        ("/mcp", {"Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_what_is_not_for_this_address_reaches_no_server(
    url: str, seen: Seen, path: str, headers: dict[str, str], status: int
) -> None:
    with traced(url, seen) as trace:
        assert post(trace, path, **headers)[0] == status
    assert seen.messages == []


def test_refusals_pass_and_are_noted(url: str, seen: Seen) -> None:
    with traced(url, seen) as trace:
        assert post(trace)[0] == 400
    assert seen.notes == [f"POST {url} 400"]
    with traced(f"http://127.0.0.1:{reserve_port()}/mcp", seen) as trace:
        assert post(trace) == (502, b"The server cannot be reached.")
    assert "refused" in seen.notes[-1]


def test_the_first_line_of_the_command_is_the_address(url: str) -> None:
    command = [sys.executable, "-m", "linkspan", "trace", url, "--only", "tools/*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().strip()
        with SyncClient(address) as client:
            client.call_tool("roll", {"sides": 3})
        found = ""
        while "result of tools/call" not in found:
            found = process.stderr.readline()
            assert found
        process.kill()
