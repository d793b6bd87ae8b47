"""Code of the author runs neither under a connection's lock nor on an event loop: a slow one delays only its own request.

Each hook here waits for the same hook of another request: where one had to end before the next began, both would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from linkspan import Configuration, Context, Server, ToolError
from linkspan.serve.event_loop import AsyncMemoryTransport
from linkspan.serve.memory import MemoryTransport
from linkspan.server.ports import InstrumentationData

pydantic = pytest.importorskip("pydantic")
PATIENCE = 30.0


class Meeting:
    """Two threads that must be in the same hook at the same time."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)
        self.threads: set[int] = set()

    def __call__(self, *_: object) -> Any:
        """Wait for the other one. Raises: BrokenBarrierError, where the other one waits for us to end."""
        self.threads.add(threading.get_ident())
        self._barrier.wait(PATIENCE)
        return {}


@contextmanager
def _entering(meet: Meeting) -> Iterator[None]:
    meet()
    yield


@contextmanager
def _leaving(meet: Meeting) -> Iterator[None]:
    yield
    meet()


def _reporting(meet: Meeting) -> Callable[..., object]:
    return lambda error, context: meet()


HOOKS: Mapping[str, Callable[[Meeting], dict[str, Any]]] = {
    "server_context": lambda meet: {"server_context": meet},
    "instrumentation": lambda meet: {"instrumentation_callback": meet},
    "entering": lambda meet: {"configuration": Configuration(around_request=lambda _: _entering(meet))},
    "leaving": lambda meet: {"configuration": Configuration(around_request=lambda _: _leaving(meet))},
    "reporter": lambda meet: {"exception_reporter": _reporting(meet)},
    "validator": lambda meet: {},
}


def serve(hook: str, meet: Meeting) -> Server:
    """Return a server with one hook, and tools of each kind."""

    def check(value: int) -> int:
        if hook == "validator":
            meet()
        return value

    number = pydantic.AfterValidator(check)
    server = Server("hooked", **HOOKS[hook](meet))

    def plain(ctx: Context, number: Any) -> int:
        if hook == "reporter":
            raise ValueError("reported")
        return int(number)

    async def coroutine(ctx: Context, number: Any) -> int:
        await asyncio.sleep(0)
        return plain(ctx, number)

    for each in (plain, coroutine):
        each.__annotations__["number"] = Annotated[int, number]
    server.tool(plain)
    server.tool(coroutine)
    server.tool(name="inline", inline=True)(plain)
    return server


def request(number: int, method: str, params: object = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}).encode() + b"\n"


def tool_call(number: int, tool: str) -> bytes:
    return request(number, "tools/call", {"name": tool, "arguments": {"number": 1}})


def answers(pipe: MemoryTransport, count: int) -> list[Any]:
    """Wait for so many answers, which may come together."""
    data = b""
    while data.count(b"\n") < count:
        part = pipe.receive(PATIENCE)
        assert part
        data += part
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("tool", ["plain", "coroutine", "inline"])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_of_two_calls_can_wait_for_each_other(hook: str, tool: str) -> None:
    if tool == "inline" and hook == "reporter":
        pytest.skip("an inline function that fails is reported in place, as it ran in place")
    with MemoryTransport(serve(hook, Meeting())) as pipe:
        pipe.send(tool_call(1, tool) + tool_call(2, tool))
        found = answers(pipe, 2)
    assert {each["id"] for each in found} == {1, 2}
    assert all(each["result"].get("isError", False) is (hook == "reporter") for each in found)


@pytest.mark.parametrize("tool", ["plain", "coroutine"])
@pytest.mark.parametrize("hook", HOOKS)
def test_no_hook_holds_the_event_loop(hook: str, tool: str) -> None:
    meet = Meeting()

    async def serve_on_loop() -> None:
        async with AsyncMemoryTransport(serve(hook, meet)) as pipe:
            await pipe.send(tool_call(1, tool) + tool_call(2, tool))
            received = b""
            while received.count(b"\n") < 2:
                received += await asyncio.wait_for(pipe.receive(), PATIENCE)
        for _ in range(1000):  # nobody waits for a reporter
            if len(meet.threads) == 2:
                break
            await asyncio.sleep(0.01)

    asyncio.run(serve_on_loop())
    assert len(meet.threads) == 2
    assert threading.get_ident() not in meet.threads


@pytest.mark.parametrize("method", ["ping", "tools/list", "no/such", "server/discover"])
def test_instrumentation_of_what_needs_no_function_holds_nobody(method: str) -> None:
    meet = Meeting()
    with MemoryTransport(serve("instrumentation", meet)) as pipe:
        pipe.send(request(1, method) + request(2, method))
        assert {each["id"] for each in answers(pipe, 2)} == {1, 2}


def test_around_request_takes_back_what_it_set_in_the_context_of_a_coroutine() -> None:
    tenant = contextvars.ContextVar("tenant", default="nobody")
    problems: list[BaseException] = []

    @contextmanager
    def around(_: object) -> Iterator[None]:
        token = tenant.set("acme")
        try:
            yield
        finally:
            try:
                tenant.reset(token)
            except ValueError as problem:
                problems.append(problem)

    server = Server(configuration=Configuration(around_request=around))

    @server.tool
    async def whose() -> str:
        await asyncio.sleep(0)
        inner = asyncio.create_task(_tenant(tenant))
        return f"{tenant.get()} {await inner}"

    with MemoryTransport(server) as pipe:
        pipe.send(request(1, "tools/call", {"name": "whose"}))
        assert answers(pipe, 1)[0]["result"]["content"][0]["text"] == "acme acme"
    assert problems == []


async def _tenant(variable: contextvars.ContextVar[str]) -> str:
    return variable.get()


def test_a_coroutine_inside_around_request_is_cancelled_as_any_other() -> None:
    seen: list[str] = []
    begun = threading.Event()

    @contextmanager
    def around(_: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    server = Server(configuration=Configuration(around_request=around))

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "x"

    with MemoryTransport(server) as pipe:
        pipe.send(request(1, "tools/call", {"name": "wait"}))
        assert begun.wait(PATIENCE)
        pipe.send(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n' + request(2, "ping")
        )
        assert [each["id"] for each in answers(pipe, 1)] == [2]
        for _ in range(500):
            if len(seen) == 2:
                break
            threading.Event().wait(0.01)
    assert seen == ["cancelled", "CancelledError"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("tool", ["plain", "coroutine"])
def test_around_request_that_raises_ends_the_request_as_the_handler_would(when: str, tool: str) -> None:
    reported: list[BaseException] = []
    ran: list[str] = []

    @contextmanager
    def around(_: object) -> Iterator[None]:
        if when == "before":
            raise RuntimeError("around")
        yield
        raise RuntimeError("around")

    server = Server(
        configuration=Configuration(around_request=around, exception_reporter=lambda error, _: reported.append(error))
    )

    @server.tool
    def plain() -> str:
        ran.append("plain")
        return "x"

    @server.tool
    async def coroutine() -> str:
        return plain()

    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}})
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"].startswith("Internal error occurred (incident ")
    assert [str(each) for each in reported] == ["around"]
    assert ran == ([] if when == "before" else ["plain"])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("surrounded", [False, True])
def test_around_request_does_not_hide_the_error_of_the_handler(
    is_async: bool, surrounded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def around(_: InstrumentationData) -> Iterator[None]:
        try:
            yield
        finally:
            raise OSError("cannot write the log")

    server = Server(configuration=Configuration(around_request=around))

    @server.tool
    def plain() -> None:
        raise ToolError("No flight on that day")

    @server.tool
    async def later() -> None:
        raise ToolError("No flight on that day")

    if surrounded:
        server.middleware(lambda call: None)
    reply = server.handle(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "later" if is_async else "plain"}}
    )
    assert reply["result"]["content"][0]["text"] == "No flight on that day"
    assert [each.getMessage().partition(" failed")[0] for each in caplog.records] == ["around_request"]
