"""Dependencies: made once for each run, cleaned up after it in reverse order, over every way to serve."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan import Ask, Client, Context, Depends, RegistrationError, Server, SyncClient, Tool, ToolError
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Peer, Request
from linkspan.runtime.system import SYSTEM
from linkspan.server.dependencies import compile_needs
from linkspan.server.handlers import is_context
from linkspan.server.steps import Steps, run_steps
from linkspan.types.messages import PromptReference

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


class Pool:
    def __init__(self, name: str = "pool") -> None:
        self.name = name


def plain() -> Pool:
    events.append("plain")
    return Pool()


async def coroutine() -> Pool:
    await asyncio.sleep(0)
    events.append("coroutine")
    return Pool()


def generator() -> Iterator[Pool]:
    events.append("enter")
    try:
        yield Pool()
    except BaseException as error:
        events.append(type(error).__name__)
        raise
    finally:
        events.append("leave")


async def async_generator() -> AsyncIterator[Pool]:
    await asyncio.sleep(0)
    events.append("enter")
    try:
        yield Pool()
    except BaseException as error:
        events.append(type(error).__name__)
        raise
    finally:
        await asyncio.sleep(0)
        events.append("leave")


KINDS: list[Callable[..., Any]] = [plain, coroutine, generator, async_generator]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def by_json(server: Server, name: str, arguments: dict[str, Any]) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return server.handle(request)["result"]["content"][0]["text"]


def by_threads(server: Server, name: str, arguments: dict[str, Any]) -> Any:
    with SyncClient(server) as client:
        return client.call_tool(name, arguments).text


def by_loop(server: Server, name: str, arguments: dict[str, Any]) -> Any:
    async def call() -> Any:
        async with Client(server) as client:
            return (await client.call_tool(name, arguments)).text

    return asyncio.run(call())


ways = pytest.mark.parametrize("call", [by_json, by_threads, by_loop])


def served(kind: Callable[..., Any], **options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    def tool(a: int, pool: Annotated[Pool, Depends(kind)]) -> str:
        events.append("run")
        return f"{pool.name} {a}"

    @server.tool(inline=True)
    def inline(a: int, pool: Annotated[Pool, Depends(kind)]) -> str:
        events.append("run")
        return f"{pool.name} {a}"

    @server.tool
    async def coroutine_tool(a: int, pool: Pool = Depends(kind)) -> str:
        await asyncio.sleep(0)
        events.append("run")
        return f"{pool.name} {a}"

    @server.tool
    def failing(pool: Annotated[Pool, Depends(kind)]) -> str:
        raise ToolError(f"no {pool.name}")

    return server


@kinds
@ways
@pytest.mark.parametrize("tool", ["tool", "inline", "coroutine_tool"])
def test_a_tool_gets_what_its_dependency_makes(kind: Callable[..., Any], call: Any, tool: str) -> None:
    assert call(served(kind), tool, {"a": 3}) == "pool 3"
    expected = ["enter", "run", "leave"] if "generator" in kind.__name__ else [kind.__name__, "run"]
    assert events == expected


@ways
@pytest.mark.parametrize("inline", [False, True])
def test_a_plain_dependency_may_return_an_awaitable_between_others(call: Any, inline: bool) -> None:
    server = Server("shop")

    def first() -> str:
        events.append("first")
        return "first"

    def later(first: Annotated[str, Depends(first)]) -> Any:
        events.append("later")

        async def value() -> str:
            await asyncio.sleep(0)
            return f"{first}, later"

        return value()

    def last(later: Annotated[str, Depends(later)]) -> str:
        events.append("last")
        return f"{later}, last"

    @server.tool(inline=inline)
    def tool(a: str, last: Annotated[str, Depends(last)], first: Annotated[str, Depends(first)]) -> str:
        return f"{a}: {last}; {first}"

    assert call(server, "tool", {"a": "made"}) == "made: first, later, last; first"
    assert events == ["first", "later", "last"]


@pytest.mark.parametrize("kind", [generator, async_generator])
@ways
def test_a_generator_sees_the_failure_and_goes_on(kind: Callable[..., Any], call: Any) -> None:
    assert call(served(kind), "failing", {}) == "no pool"
    assert events == ["enter", "ToolError", "leave"]


def test_a_dependency_is_not_in_the_schema() -> None:
    with SyncClient(served(plain)) as client:
        for tool in client.list_tools():
            assert "pool" not in tool.input_schema.get("properties", {})


def test_what_several_parameters_need_is_made_once() -> None:
    server = Server("shop")

    def account(pool: Annotated[Pool, Depends(generator)]) -> tuple[str, Pool]:
        events.append("account")
        return "account", pool

    @server.tool
    def tool(
        one: Annotated[Any, Depends(account)],
        two: Annotated[Any, Depends(account)],
        pool: Annotated[Pool, Depends(generator)],
    ) -> str:
        assert one is two
        assert one[1] is pool
        return "same"

    assert by_json(server, "tool", {}) == "same"
    assert events == ["enter", "account", "leave"]


def test_generators_go_on_in_reverse_order() -> None:
    server = Server("shop")

    def first() -> Iterator[int]:
        events.append("first")
        yield 1
        events.append("first again")

    def second(one: Annotated[int, Depends(first)]) -> Iterator[int]:
        events.append("second")
        yield one + 1
        events.append("second again")

    @server.tool
    def tool(two: Annotated[int, Depends(second)]) -> int:
        return two

    assert by_json(server, "tool", {}) == "2"
    assert events == ["first", "second", "second again", "first again"]


def test_a_dependency_has_the_context_and_may_refuse() -> None:
    server = Server("shop", server_context={"allowed": False})

    def guard(ctx: Context) -> None:
        if not ctx["allowed"]:
            raise ToolError("not allowed")

    @server.tool
    def tool(_guard: Annotated[None, Depends(guard)]) -> str:
        return "done"

    assert by_json(server, "tool", {}) == "not allowed"
    server.server_context = {"allowed": True}
    assert by_json(server, "tool", {}) == "done"


def test_a_dependency_of_a_plain_tool_runs_in_its_thread() -> None:
    server = Server("shop")

    @server.tool
    def tool(thread: Annotated[int, Depends(threading.get_ident)]) -> bool:
        return thread == threading.get_ident() != main

    main = threading.get_ident()
    assert by_loop(server, "tool", {}) == "true"


def test_a_plain_dependency_of_an_async_tool_does_not_block_the_loop() -> None:
    server = Server("shop")
    gate = threading.Event()

    def slow() -> int:
        assert gate.wait(30)
        return 1

    @server.tool
    async def waits(one: Annotated[int, Depends(slow)]) -> int:
        return one

    @server.tool
    async def opens() -> str:
        gate.set()
        return "open"

    async def both() -> list[str]:
        async with Client(server) as client:
            found = await asyncio.gather(client.call_tool("waits"), client.call_tool("opens"))
            return [each.text for each in found]

    assert asyncio.run(both()) == ["1", "open"]


def test_an_inline_dependency_of_an_async_tool_runs_on_the_event_loop() -> None:
    server = Server("shop")
    threads: list[int] = []

    def opened() -> Iterator[int]:
        threads.append(threading.get_ident())
        try:
            yield 1
        finally:
            threads.append(threading.get_ident())

    @server.tool
    async def tool(
        one: Annotated[int, Depends(opened, inline=True)],
        here: Annotated[int, Depends(threading.get_ident, inline=True)],
        elsewhere: Annotated[int, Depends(lambda: threading.get_ident())],
    ) -> bool:
        threads.append(here)
        return elsewhere not in (here, threading.get_ident()) and here == threading.get_ident()

    assert by_loop(server, "tool", {}) == "true"
    assert len(threads) == 3
    assert len(set(threads)) == 1


def test_plain_dependencies_that_follow_one_another_are_one_hand_over() -> None:
    ran: list[bool] = []
    needs = compile_needs(
        {
            "first": Depends(generator),
            "second": Depends(plain),
            "here": Depends(lambda: Pool("here"), inline=True),
            "later": Depends(async_generator),
            "third": Depends(generator),  # made once
            "fourth": Depends(lambda: Pool("fourth")),
        },
        is_context,
        is_async=True,
        blocking=False,
    )
    request = Request(1, "tools/call", None, Peer(LATEST))

    def noting(steps: Steps) -> Steps:
        value: Any = None
        while True:
            try:
                step = steps.send(value)
            except StopIteration as end:
                return end.value
            ran.append(step.blocking)
            value = yield step

    def run(**pools: Pool) -> str:
        return " ".join(each.name for each in pools.values())

    steps = needs.provide(run, request, None, {}, lambda error, what: None)
    assert asyncio.run(run_steps(noting(steps), SYSTEM)) == "pool pool here pool pool fourth"  # type: ignore[arg-type]
    assert ran == [True, False, True, False, False, True]
    assert events == ["enter", "plain", "enter", "leave", "leave"]


def test_a_dependency_is_not_made_once_its_call_is_cancelled() -> None:
    server = Server("shop")
    entered, gate = threading.Event(), threading.Event()

    def first() -> Iterator[None]:
        entered.set()
        assert gate.wait(30)
        try:
            yield
        finally:
            events.append("first again")

    def second(ctx: Context) -> None:
        events.append("second")

    @server.tool
    async def tool(_: Annotated[None, Depends(first)], __: Annotated[None, Depends(second)]) -> None: ...

    async def cancel() -> None:
        async with Client(server) as client:
            call = asyncio.ensure_future(client.call_tool("tool"))
            await asyncio.to_thread(entered.wait, 30)
            call.cancel()
            await asyncio.wait([call])
            await client.list_tools()  # the cancellation has arrived
            gate.set()
            while not events:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancel(), 30))
    assert events == ["first again"]


def test_a_cancelled_call_cleans_up() -> None:
    server = Server("shop")
    entered = threading.Event()

    @server.tool
    async def endless(pool: Annotated[Pool, Depends(async_generator)]) -> str:
        entered.set()
        await asyncio.sleep(3600)
        return pool.name

    async def cancel() -> None:
        async with Client(server) as client:
            call = asyncio.ensure_future(client.call_tool("endless"))
            await asyncio.to_thread(entered.wait, 30)
            call.cancel()
            await asyncio.wait([call])
            while "leave" not in events:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancel(), 30))
    assert events == ["enter", "CancelledError", "leave"]


def test_each_round_of_questions_is_a_run() -> None:
    server = Server("shop")

    @server.tool
    def tool(pool: Annotated[Pool, Depends(generator)], ctx: Context) -> str:
        return f"{ctx.ask('seats', int, 'How many seats?')} {pool.name}"

    with SyncClient(server, elicitation=lambda _: {"seats": 2}) as client:
        assert client.call_tool("tool").text == "2 pool"
    assert events == ["enter", "InputNeeded", "leave", "enter", "leave"]


def test_asked_parameters_come_before_dependencies() -> None:
    server = Server("shop")

    @server.tool
    def tool(seats: Annotated[int, Ask("How many?")], pool: Annotated[Pool, Depends(plain)]) -> str:
        return f"{seats} {pool.name}"

    with SyncClient(server, elicitation=lambda _: {"seats": 2}) as client:
        assert client.call_tool("tool").text == "2 pool"
    assert events == ["plain"]


def test_prompts_resources_completions_and_custom_methods_have_dependencies() -> None:
    server = Server("shop")

    @server.prompt
    def greet(name: str, pool: Annotated[Pool, Depends(plain)]) -> str:
        return f"{name} {pool.name}"

    @server.resource("shop://pool")
    def whole(pool: Annotated[Pool, Depends(plain)]) -> str:
        return pool.name

    @server.resource("shop://items/{item}")
    def one(item: str, pool: Annotated[Pool, Depends(plain)]) -> str:
        return f"{item} {pool.name}"

    @server.completion("greet", "name")
    def names(value: str, pool: Annotated[Pool, Depends(plain)]) -> list[str]:
        return [pool.name + "!"]

    @server.custom_method("acme/pool")
    def custom(a: int, pool: Annotated[Pool, Depends(plain)]) -> Any:
        return {"pool": pool.name, "a": a}

    with SyncClient(server) as client:
        assert client.get_prompt("greet", {"name": "Ann"}).messages[0].content.text == "Ann pool"
        assert client.read_resource("shop://pool").contents[0].text == "pool"
        assert client.read_resource("shop://items/a").contents[0].text == "a pool"
        assert client.complete(PromptReference(name="greet"), "name", "po").values == ["pool!"]
        assert client.request("acme/pool", {"a": 1})["a"] == 1
    assert events == ["plain"] * 5


def test_tools_with_a_schema_written_by_hand_have_dependencies() -> None:
    server = Server("shop")

    class Add(Tool):
        """Add."""

        input_schema = {"properties": {"a": {"type": "integer"}}}

        @staticmethod
        def call(a: int, pool: Annotated[Pool, Depends(plain)]) -> str:
            return f"{a} {pool.name}"

    def whole(args: dict[str, Any], pool: Pool = Depends(plain)) -> str:
        return f"{args['a']} {pool.name}"

    server = Server("shop", tools=[Add])
    server.define_tool("whole", handler=whole, input_schema={"properties": {"a": {"type": "integer"}}})
    assert by_json(server, "add", {"a": 1}) == "1 pool"
    assert by_json(server, "whole", {"a": 1}) == "1 pool"


class TestOverride:
    def test_it_replaces_a_dependency_until_the_block_ends(self) -> None:
        server = served(async_generator)
        with server.override(async_generator, lambda: Pool("fake")):
            assert by_threads(server, "tool", {"a": 1}) == "fake 1"
            with server.override(async_generator, coroutine):
                assert by_threads(server, "coroutine_tool", {"a": 1}) == "pool 1"
            assert by_threads(server, "tool", {"a": 1}) == "fake 1"
        assert by_threads(server, "tool", {"a": 1}) == "pool 1"

    def test_an_async_one_stands_in_for_a_plain_one(self) -> None:
        server = served(plain)
        with server.override(plain, async_generator):
            for way in (by_json, by_threads, by_loop):
                assert way(server, "tool", {"a": 1}) == "pool 1"
        assert events == ["enter", "run", "leave"] * 3

    def test_it_ends_with_an_exception(self) -> None:
        server = served(plain)
        with pytest.raises(KeyError), server.override(plain, lambda: Pool("fake")):
            raise KeyError
        assert by_json(server, "tool", {"a": 1}) == "pool 1"


class TestRefused:
    def test_a_cycle(self) -> None:
        def one(two: Any = None) -> None: ...
        def two(one: Annotated[Any, Depends(one)]) -> None: ...

        one.__defaults__ = (Depends(two),)
        server = Server("shop")
        with pytest.raises(RegistrationError, match="dependencies form a cycle: one -> two -> one"):

            @server.tool
            def tool(one: Annotated[Any, Depends(one)]) -> None: ...

    def test_a_parameter_that_nothing_fills_in(self) -> None:
        def get(url: str) -> None: ...

        server = Server("shop")
        with pytest.raises(RegistrationError, match="nothing fills in the parameter 'url' of the dependency get"):

            @server.tool
            def tool(pool: Annotated[Any, Depends(get)]) -> None: ...

    def test_a_value_in_place_of_a_function(self) -> None:
        with pytest.raises(TypeError, match="leave out the parentheses"):
            Depends(Pool())  # type: ignore[arg-type]

    @pytest.mark.parametrize("tool", ["tool", "coroutine_tool"])
    def test_a_generator_without_a_value_and_one_with_two(self, tool: str) -> None:
        def none() -> Iterator[Pool]:
            yield from ()

        def twice() -> Iterator[Pool]:
            yield Pool()
            yield Pool()

        async def none_later() -> AsyncIterator[Pool]:
            for _ in ():
                yield Pool()

        async def twice_later() -> AsyncIterator[Pool]:
            yield Pool()
            yield Pool()

        for kind in (none, twice, none_later, twice_later):
            problems: list[BaseException] = []
            server = served(kind, exception_reporter=lambda error, _, into=problems: into.append(error))
            assert "Internal error" in by_json(server, tool, {"a": 1})
            assert "yield its value once" in str(problems[0])


@ways
@pytest.mark.parametrize("is_async", [False, True])
def test_a_cleanup_that_fails_does_not_hide_the_error_of_the_handler(
    call: Any, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def closing() -> Iterator[Pool]:
        try:
            yield Pool()
        finally:
            raise OSError("the connection is gone")

    async def closing_later() -> AsyncIterator[Pool]:
        try:
            yield Pool()
        finally:
            raise OSError("the connection is gone")

    server = served(closing_later if is_async else closing)
    assert call(server, "failing", {}) == "no pool"
    [record] = caplog.records
    assert record.getMessage().startswith(f"the cleanup of dependency closing{'_later' if is_async else ''} failed")
    assert "Internal error" in call(server, "tool", {"a": 1})


class Trouble(Exception):
    pass


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_generator_that_was_entered_goes_on_once_in_reverse_order(data: st.DataObject) -> None:
    """Any mix of kinds, failures before and after the yield, and a failing tool: one answer, and nothing stays open."""
    history: list[tuple[str, int]] = []
    length = data.draw(st.integers(1, 5))
    faults = data.draw(st.lists(st.sampled_from(["", "", "", "before", "after"]), min_size=length, max_size=length))
    asyncs = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    inlines = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))

    def make(number: int, below: Callable[..., Any] | None) -> Callable[..., Any]:
        def body(value: int) -> Iterator[int]:
            if faults[number] == "before":
                raise Trouble(number)
            history.append(("enter", number))
            try:
                yield value + 1
            finally:
                history.append(("leave", number))
                if faults[number] == "after":
                    raise Trouble(number)

        async def later(value: Any = Depends(below, inline=inlines[number]) if below else 0) -> AsyncIterator[int]:
            steps = body(value)
            yield_value = next(steps)
            await asyncio.sleep(0)
            try:
                yield yield_value
            except BaseException as error:
                steps.throw(error)
            else:
                next(steps, None)

        def now(value: Any = Depends(below, inline=inlines[number]) if below else 0) -> Iterator[int]:
            yield from body(value)

        return later if asyncs[number] else now

    top: Callable[..., Any] | None = None
    for number in range(length):
        top = make(number, top)
    assert top is not None
    server = Server("any")
    fails = data.draw(st.booleans())

    @server.tool
    def plain_tool(value: Annotated[int, Depends(top)]) -> int:
        if fails:
            raise ToolError("failed")
        return value

    @server.tool
    async def async_tool(value: Annotated[int, Depends(top)]) -> int:
        if fails:
            raise ToolError("failed")
        return value

    answer = by_json(server, data.draw(st.sampled_from(["plain_tool", "async_tool"])), {})
    entered = [number for what, number in history if what == "enter"]
    left = [number for what, number in history if what == "leave"]
    assert left == entered[::-1]
    if not any(faults):
        assert answer == ("failed" if fails else str(length))
    else:
        assert "Internal error" in answer or answer == "failed"
