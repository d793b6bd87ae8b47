"""Many connections of `run("http")` in the same turns of a loop: each gets its own responses, whole and in order. No sockets.

What is kept to be written together must not overtake, or be overtaken by, a stream, a refusal, a large body or the end.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from math import inf
from typing import Any

import pytest
import uvicorn
from http_talk import body, mirror
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from linkspan import Context, Server
from linkspan.core.http_checks import HttpPolicy
from linkspan.serve.http import make_endpoint
from linkspan.serve.http_protocol import DirectApp, EndpointProtocol
from linkspan.serve.write_batch import WriteBatch

FULL = 100_000
"""Bytes that a client who does not read lets us write before we are told."""


@cache
def server() -> Server:
    server = Server("batches", "1.0.0")

    @server.tool(inline=True)
    def inline(size: int) -> str:
        return "x" * size

    @server.tool
    async def soon(size: int) -> str:
        return "x" * size

    @server.tool
    async def later(size: int) -> str:
        await asyncio.sleep(0)
        return "x" * size

    @server.tool
    def thread(size: int) -> str:
        return "x" * size

    @server.tool(inline=True)
    def steps(size: int, ctx: Context) -> str:
        ctx.progress(1, total=2)
        return "x" * size

    @server.tool
    async def slow_steps(size: int, ctx: Context) -> str:
        ctx.progress(1, total=2)
        await asyncio.sleep(0.001)
        ctx.progress(2, total=2)
        return "x" * size

    return server


class Wire(asyncio.Transport):
    """What is below a connection: notes what is written to it, and is full while its client does not read."""

    def __init__(self, turns: list[Wire]) -> None:
        super().__init__()
        self.protocol: Any = None
        self.received = b""
        self.writes = 0
        self.reads = True
        self.closed = False
        self._unread = 0
        self._arriving = b""
        self._paused = False
        self._turns = turns

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, data
        self.received += data
        self.writes += 1
        self._turns.append(self)
        if not self.reads:
            self._unread += len(data)
            if self._unread > FULL:
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        asyncio.get_running_loop().call_soon(self.arrive, b"")

    def arrive(self, data: bytes) -> None:
        """Bring bytes of the client."""
        self._arriving += data
        if self._arriving and not self._paused and not self.closed:
            data, self._arriving = self._arriving, b""
            self.protocol.data_received(data)

    def read_on(self) -> None:
        """Let the client read what it was sent."""
        self.reads, self._unread = True, 0
        self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


async def no_application(_scope: object, _receive: object, _send: object) -> None:
    """Stand in for the application: requests do not come so far."""


class World:
    """An application and its connections, on the loop that runs."""

    def __init__(self) -> None:
        self.app = DirectApp(make_endpoint(server(), HttpPolicy()), health="/health")
        self.app.batch = WriteBatch(asyncio.get_running_loop().call_soon, lambda: 0.0)  # no time passes in a turn
        self.config = uvicorn.Config(no_application, ws="none", log_config=None, access_log=False)
        self.config.load()
        self.state = ServerState()
        self.writes: list[Wire] = []

    def connect(self) -> Wire:
        wire = Wire(self.writes)
        wire.protocol = EndpointProtocol(self.app, self.config, self.state, {}, asyncio.get_running_loop())
        wire.protocol.connection_made(wire)
        return wire


def call(name: str, number: int, size: int = 1, **headers: str) -> bytes:
    """Return the bytes of a call of a tool."""
    meta = {"token": number} if "steps" in name else {}
    message = body("tools/call", {"name": name, "arguments": {"size": size}}, number, **meta)
    content = json.dumps(message).encode()
    given = {"host": "localhost", "content-type": "application/json", **mirror(message), **headers}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode() + content


REQUESTS: dict[str, Callable[[int], bytes]] = {
    **{name: partial(call, name) for name in ("inline", "soon", "later", "thread", "steps", "slow_steps")},
    "large": lambda n: call("inline", n, 70_000),
    "large steps": lambda n: call("steps", n, 70_000),
    "head": lambda _: b"HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "last": lambda n: call("inline", n, connection="close"),
    "broken": lambda _: b"nonsense\r\n\r\n",
}
ENDS = ("last", "broken")
"""After these the connection is closed."""


def responses(data: bytes, asked: list[str]) -> list[tuple[int, Any]]:
    """Return the status and the id of each response, as the client understands them that has asked this."""
    found: list[tuple[int, Any]] = []
    for kind in asked:
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            break
        if b"transfer-encoding: chunked" in head:
            content, separator, data = rest.partition(b"\r\n0\r\n\r\n")
            if not separator:
                break
        else:
            length = re.search(rb"content-length: (\d+)", head)
            size = 0 if kind == "head" or length is None else int(length[1])
            if len(rest) < size:
                break
            content, data = rest[:size], rest[size:]
        number = re.search(rb'"id":(\d+)', content)
        found.append((int(head.split()[1]), int(number[1]) if number else None))
    else:
        assert data == b""
    return found


async def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0)


async def received(wire: Wire, asked: list[str]) -> None:
    """Wait until each request of this client has its response."""
    await until(lambda: len(responses(wire.received, asked)) == len(asked))


KINDS = st.sampled_from(["inline"] * len(REQUESTS) + list(REQUESTS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), KINDS, st.integers(0, 400)),
        st.tuples(st.integers(0, 2), st.sampled_from(["stop reading", "read on"]), st.just(0)),
        st.tuples(st.just(0), st.just("turn"), st.just(0)),
    ),
    max_size=25,
)


async def play(steps: list[tuple[int, str, int]]) -> None:
    world = World()
    wires = [world.connect() for _ in range(3)]
    asked: list[list[str]] = [[], [], []]
    expected: list[list[tuple[int, Any]]] = [[], [], []]
    rest = [b"", b"", b""]  # what a client still has to send of a request
    for number, (which, kind, cut) in enumerate(steps):
        wire = wires[which]
        if kind == "turn":
            await asyncio.sleep(0)
        elif kind == "stop reading":
            wire.reads = False
        elif kind == "read on":
            wire.read_on()
        elif not asked[which] or asked[which][-1] not in ENDS:
            asked[which].append(kind)
            status = 400 if kind == "broken" else 200
            expected[which].append((status, None if kind in ("head", "broken") else number))
            data = rest[which] + REQUESTS[kind](number)
            wire.arrive(data[: len(data) - cut])
            rest[which] = data[len(data) - cut :] if cut else b""
    for wire, left in zip(wires, rest, strict=True):
        wire.read_on()
        if left and not wire.closed:
            wire.arrive(left)
    for wire, kinds, wanted in zip(wires, asked, expected, strict=True):
        await received(wire, kinds)
        assert responses(wire.received, kinds) == wanted
        if kinds and kinds[-1] == "last":
            await until(partial(getattr, wire, "closed"))
        wire.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await world.app.leave()
    world.app.calls.end_threads()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_each_connection_gets_its_responses_in_order_whatever_the_others_do(steps: list[tuple[int, str, int]]) -> None:
    asyncio.run(play(steps))


async def served(count: int) -> tuple[World, list[Wire]]:
    """Return connections of which each has had a response."""
    world = World()
    wires = [world.connect() for _ in range(count)]
    for wire in wires:
        wire.arrive(call("inline", 0))
    await asyncio.sleep(0)
    world.writes.clear()
    for wire in wires:
        assert [status for status, _ in responses(wire.received, ["inline"])] == [200]
        wire.received, wire.writes = b"", 0
    return world, wires


@pytest.mark.parametrize("kind", ["inline", "steps", "head"])
def test_what_is_complete_in_a_turn_is_written_behind_the_last_read(kind: str) -> None:
    async def main() -> None:
        world, wires = await served(3)
        for number, wire in enumerate(wires):
            wire.arrive(REQUESTS[kind](number))
        assert world.writes == []
        await asyncio.sleep(0)
        assert world.writes == wires  # one write each
        for number, wire in enumerate(wires):
            assert responses(wire.received, [kind]) == [(200, None if kind == "head" else number)]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["large", "large steps", "slow_steps", "last", "broken"])
def test_what_cannot_be_kept_does_not_overtake_what_is(kind: str) -> None:
    async def main() -> None:
        _, wires = await served(2)
        for wire in wires:
            wire.arrive(call("inline", 1) + REQUESTS[kind](2))
        for wire in wires:
            await received(wire, ["inline", kind])
            wanted = [(200, 1), (400, None) if kind == "broken" else (200, 2)]
            assert responses(wire.received, ["inline", kind]) == wanted

    asyncio.run(main())


def test_a_connection_that_is_alone_gets_its_response_at_once() -> None:
    async def main() -> None:
        _, (wire,) = await served(1)
        for number in range(3):
            wire.arrive(call("inline", number))
            assert wire.writes == number + 1

    asyncio.run(main())


@pytest.mark.parametrize("end", ["shutdown", "abandon"])
def test_a_connection_that_the_server_ends_gets_its_response_before(end: str) -> None:
    async def main() -> None:
        _, wires = await served(2)
        for number, wire in enumerate(wires):
            wire.arrive(call("inline", number))
        for number, wire in enumerate(wires):
            getattr(wire.protocol, end)()
            assert wire.closed
            assert responses(wire.received, ["inline"]) == [(200, number)]

    asyncio.run(main())


def test_a_connection_that_is_idle_for_too_long_gets_its_response_before_it_is_closed() -> None:
    async def main() -> None:
        _, wires = await served(2)
        for number, wire in enumerate(wires):
            wire.arrive(call("inline", number))
        wires[0].protocol.handle_timeouts(time.monotonic() + 1000)
        assert wires[0].closed
        assert responses(wires[0].received, ["inline"]) == [(200, 0)]

    asyncio.run(main())


def test_a_client_that_has_gone_is_sent_nothing() -> None:
    async def main() -> None:
        world, wires = await served(2)
        for number, wire in enumerate(wires):
            wire.arrive(call("inline", number))
        wires[0].closed = True
        wires[0].protocol.connection_lost(ConnectionResetError())
        await asyncio.sleep(0)
        assert world.writes == [wires[1]]

    asyncio.run(main())


# As an application of ASGI, where the server below writes.


@pytest.fixture
def no_step_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine not change what is tested."""
    monkeypatch.setattr("linkspan.serve.write_batch.LONG", inf)


class Asgi:
    """An application, and what happens in it: `run` when a function runs, `sent` when its response is complete."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        asked = Server("asgi", "1.0.0")

        @asked.tool(inline=True)
        def note(size: int) -> int:
            self.events.append(("run", size))
            return size

        self.app = asked.asgi()

    async def post(self, number: int, port: int) -> None:
        """Send a call as a client with this port."""
        message = body("tools/call", {"name": "note", "arguments": {"size": number}}, number)
        headers = {**mirror(message), "host": "localhost", "content-type": "application/json"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", port),
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(message).encode()}

        async def send(part: Any) -> None:
            if part["type"] == "http.response.body":
                self.events.append(("sent", number))

        await self.app(scope, receive, send)


@pytest.mark.usefixtures("no_step_is_slow")
def test_responses_of_an_asgi_application_leave_once_those_of_the_turn_are_made() -> None:
    async def main() -> None:
        asgi = Asgi()
        for _ in range(2):
            await asyncio.gather(*(asgi.post(number, port=number) for number in range(3)))
            assert asgi.events == [(what, number) for what in ("run", "sent") for number in range(3)]
            asgi.events.clear()

    asyncio.run(main())


def test_a_client_of_an_asgi_application_that_is_alone_does_not_wait() -> None:
    async def main() -> None:
        asgi = Asgi()
        await asgi.post(0, port=7)
        await asyncio.gather(*(asgi.post(number, port=7) for number in (1, 2)))
        assert asgi.events == [(what, number) for number in range(3) for what in ("run", "sent")]

    asyncio.run(main())


@pytest.mark.usefixtures("no_step_is_slow")
def test_a_request_of_an_asgi_application_that_is_cancelled_as_it_waits_leaves_the_others_alone() -> None:
    async def main() -> None:
        asgi = Asgi()
        tasks = [asyncio.create_task(asgi.post(number, port=number)) for number in range(3)]
        await asyncio.sleep(0)
        assert [what for what, _ in asgi.events] == ["run"] * 3
        tasks[1].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [type(None), asyncio.CancelledError, type(None)]
        assert asgi.events[3:] == [("sent", 0), ("sent", 2)]

    asyncio.run(main())
