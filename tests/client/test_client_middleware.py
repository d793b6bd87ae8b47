"""`Client(middleware=[...])`: functions around operations look, change, repeat, fail and answer, in both clients alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from linkspan import (
    CallToolResult,
    Client,
    ClientCall,
    ClientError,
    ConnectionLost,
    Context,
    Server,
    ServerError,
    Sleep,
    Stopper,
    SyncClient,
    TextContent,
)
from linkspan.flows.client_errors import ServerOrigin

HERE = ServerOrigin("test")


@pytest.fixture
def server() -> Server:
    server = Server("shop", page_size=1)

    @server.tool
    def echo(text: str, ctx: Context) -> str:
        return f"{text} {ctx.meta.get('acme/who', '')}".strip()

    @server.tool
    def fail() -> str:
        raise ValueError("broken")

    server.resource("shop://name")(lambda: "the shop")
    server.prompt(name="greet")(lambda who="you": f"Greet {who}")
    server.define_custom_method("acme/add", lambda a, b: a + b)
    return server


def in_both(server: Server, use: Callable[[Any], Any], *middleware: Callable[..., object]) -> Any:
    """Do the same with both clients, which must give the same: awaitables of `use` are awaited."""

    async def on_a_loop() -> Any:
        async with Client(server, middleware=middleware) as client:
            return await use(client)

    with SyncClient(server, middleware=middleware) as client:
        found = use(client)
    assert str(asyncio.run(on_a_loop())) == str(found)
    return found


def test_a_generator_sees_a_call_and_its_result(server: Server) -> None:
    seen: list[Any] = []

    def watch(call: ClientCall) -> Iterator[Any]:
        result = yield
        seen.append((call.method, call.name, dict(call.arguments), result.text))

    in_both(server, lambda client: client.call_tool("echo", {"text": "hi"}), watch)
    assert seen == [("tools/call", "echo", {"text": "hi"}, "hi")] * 2


OPERATIONS: dict[str, tuple[Callable[[Any], Any], list[tuple[str, str | None]]]] = {
    "a tool": (lambda client: client.call_tool("echo", {"text": "a"}), [("tools/call", "echo")]),
    "a list": (lambda client: client.list_tools(), [("tools/list", None)] * 2),
    "a page": (lambda client: client.list_prompts_page(), [("prompts/list", None)]),
    "a resource": (lambda client: client.read_resource("shop://name"), [("resources/read", "shop://name")]),
    "a prompt": (lambda client: client.get_prompt("greet", {"who": "me"}), [("prompts/get", "greet")]),
    "a ping": (lambda client: client.ping(), [("server/discover", None)]),
    "a method": (lambda client: client.request("acme/add", {"a": 1, "b": 2}), [("acme/add", None)]),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_every_operation_passes_through(server: Server, what: str) -> None:
    use, calls = OPERATIONS[what]
    seen: list[tuple[str, str | None]] = []

    def watch(call: ClientCall) -> None:
        seen.append((call.method, call.name))

    in_both(server, use, watch)
    assert seen == calls * 2


def test_arguments_and_meta_are_replaced(server: Server) -> None:
    def change(call: ClientCall) -> Iterator[Any]:
        yield call.replace(arguments={"text": "changed"}, meta={**call.meta, "acme/who": "me"})

    def change_prompt(call: ClientCall) -> Iterator[Any]:
        yield call.replace(arguments={"who": "everyone"})

    assert in_both(server, lambda client: client.call_tool("echo", {"text": "hi"}), change).text == "changed me"
    found = in_both(server, lambda client: client.get_prompt("greet"), change_prompt)
    assert found.messages[0].content.text == "Greet everyone"
    with pytest.raises(TypeError, match="has no arguments to replace"):
        in_both(server, lambda client: client.list_tools(), change)


def test_the_first_is_the_outermost(server: Server) -> None:
    order: list[str] = []

    def named(name: str) -> Callable[[ClientCall], Iterator[Any]]:
        def middleware(call: ClientCall) -> Iterator[Any]:
            order.append(f"{name} begins")
            yield
            order.append(f"{name} ends")

        return middleware

    in_both(server, lambda client: client.call_tool("echo", {"text": "hi"}), named("a"), named("b"))
    assert order == ["a begins", "b begins", "b ends", "a ends"] * 2


def test_a_call_is_repeated_after_a_pause(server: Server) -> None:
    faults = {"left": 0}

    def retry(call: ClientCall) -> Iterator[Any]:
        for _ in range(2):
            try:
                return (yield)
            except ConnectionLost:
                yield Sleep(0.001)
        return (yield)

    def fault(call: ClientCall) -> None:
        faults["left"] = (faults["left"] + 1) % 3
        if faults["left"]:
            raise ConnectionLost("cut", HERE)

    assert in_both(server, lambda client: client.call_tool("echo", {"text": "hi"}), retry, fault).text == "hi"


def test_a_fault_reaches_the_caller(server: Server) -> None:
    def fault(call: ClientCall) -> None:
        raise ConnectionLost("cut", HERE, delivery="maybe_sent")

    with pytest.raises(ConnectionLost, match="cut"):
        in_both(server, lambda client: client.call_tool("echo", {"text": "hi"}), fault)


def test_an_answer_needs_no_server() -> None:
    def answer(call: ClientCall) -> Iterator[Any]:
        if call.method == "tools/call":
            return CallToolResult(content=[TextContent("cached")], structured_content={"a": 1})
        return (yield)

    client = SyncClient("no-such-command", middleware=[answer])
    result = client.call_tool("anything")
    assert (result.text, result.structured, result.is_error) == ("cached", {"a": 1}, False)
    with pytest.raises(ClientError):
        client.list_tools()


def test_an_answer_replaces_a_page(server: Server) -> None:
    def hide(call: ClientCall) -> Iterator[Any]:
        page = yield
        return type(page)([tool for tool in page.tools if tool.name != "fail"], page.next_cursor)

    assert [each.name for each in in_both(server, lambda client: client.list_tools(), hide)] == ["echo"]


def test_errors_of_the_server_can_be_caught(server: Server) -> None:
    def soften(call: ClientCall) -> Iterator[Any]:
        try:
            return (yield)
        except ServerError as error:
            return CallToolResult(content=[TextContent(f"sorry: {error.code}")], is_error=True)

    assert in_both(server, lambda client: client.call_tool("gone"), soften).text == "sorry: -32602"


def test_a_coroutine_function_awaits_and_repeats(server: Server) -> None:
    async def twice(call: ClientCall, call_next: Callable[..., Any]) -> Any:
        await asyncio.sleep(0)
        first = await call_next()
        second = await call_next(call.replace(arguments={"text": "again"}))
        assert (first.text, second.text) == ("hi", "again")
        return second

    async def main() -> None:
        async with Client(server, middleware=[twice]) as client:
            assert (await client.call_tool("echo", {"text": "hi"})).text == "again"

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_cancelled_call_leaves_its_middleware_once(is_async: bool) -> None:
    left: list[str] = []
    slow = Server()
    begun = asyncio.Event()

    @slow.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    def generator(call: ClientCall) -> Iterator[Any]:
        begun.set()
        try:
            return (yield)
        finally:
            left.append("left")

    async def coroutine(call: ClientCall, call_next: Callable[..., Any]) -> Any:
        begun.set()
        try:
            return await call_next()
        finally:
            left.append("left")

    async def main() -> None:
        async with Client(slow, middleware=[coroutine if is_async else generator]) as client:
            task = asyncio.create_task(client.call_tool("wait"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert left == ["left"]


def test_options_of_a_call_are_kept_and_headers_can_be_seen(server: Server) -> None:
    seen: list[Any] = []

    def watch(call: ClientCall) -> None:
        seen.append((dict(call.headers), dict(call.meta), call.options.timeout))

    stopper = Stopper()
    use = lambda client: client.call_tool(  # noqa: E731
        "echo", {"text": "hi"}, headers={"X-Tenant": "a"}, meta={"b": 1}, timeout=5.0, stopper=stopper
    )
    in_both(server, use, watch)
    assert seen == [({"X-Tenant": "a"}, {"b": 1}, 5.0)] * 2


def returns_without_yield(call: ClientCall) -> Any:
    return "an answer"


def answers_nothing(call: ClientCall) -> Iterator[Any]:
    return
    yield


def yields_something_else(call: ClientCall) -> Iterator[Any]:
    yield 5


@pytest.mark.parametrize(
    ("middleware", "problem"),
    [
        (returns_without_yield, "returned something but has no yield"),
        (answers_nothing, "answered nothing"),
        (yields_something_else, "yielded a int"),
    ],
)
def test_a_mistake_is_explained(server: Server, middleware: Callable[..., object], problem: str) -> None:
    with SyncClient(server, middleware=[middleware]) as client, pytest.raises(TypeError, match=problem):
        client.call_tool("echo", {"text": "hi"})


async def awaits(call: ClientCall, call_next: Callable[..., Any]) -> Any:
    return await call_next()


async def yields_and_awaits(call: ClientCall) -> Any:
    yield


@pytest.mark.parametrize(
    ("kind", "middleware", "problem"),
    [
        (SyncClient, awaits, "is async, which needs a Client"),
        (Client, yields_and_awaits, "is an async generator"),
        (Client, "text", "is a list of functions"),
    ],
)
def test_what_cannot_be_middleware_is_refused_at_once(kind: Any, middleware: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        kind("no-such-command", middleware=[middleware])
