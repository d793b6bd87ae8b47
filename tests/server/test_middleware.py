"""Middleware: it looks, denies, changes and answers, over every way to serve, for plain and async handlers alike."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from test_dependencies import by_json, by_threads, ways

from linkspan import (
    Ask,
    Call,
    CallToolResult,
    Client,
    Configuration,
    Context,
    Depends,
    RegistrationError,
    Server,
    SyncClient,
    TextContent,
    ToolError,
)
from linkspan.revisions.neutral import OWN_METHODS, Outcome
from linkspan.types.messages import ListToolsResult

Steps = Generator[Call | None, Any, Outcome | None]
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def shop(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    def plain(a: int = 1) -> str:
        seen.append("plain")
        return f"plain {a}"

    @server.tool(inline=True)
    def inline(a: int = 1) -> str:
        seen.append("inline")
        return f"inline {a}"

    @server.tool(name="async")
    async def later(a: int = 1) -> str:
        await asyncio.sleep(0)
        seen.append("async")
        return f"async {a}"

    @server.tool
    def failing() -> str:
        raise ValueError("secret")

    return server


tools = pytest.mark.parametrize("tool", ["plain", "inline", "async"])


def look(call: Call) -> None:
    seen.append(("look", call.method, call.name, dict(call.arguments)))


def change(call: Call) -> Steps:
    result = yield call.replace(arguments={"a": 7})
    return result


def answer(call: Call) -> Steps:
    result = yield
    return CallToolResult(content=[TextContent(f"<{result.content[0].text}>")])


def before(call: Call) -> Steps:
    if call.name is not None:
        return CallToolResult(content=[TextContent("early")])
    yield


def deny(call: Call) -> Steps:
    raise ToolError("Frozen until Monday")
    yield


async def awaits(call: Call, call_next: Callable[..., Awaitable[Any]]) -> Outcome:
    await asyncio.sleep(0)
    result = await call_next(call.replace(arguments={"a": 8}))
    await asyncio.sleep(0)
    return CallToolResult(content=[TextContent(f"[{result.content[0].text}]")])


@ways
@tools
@pytest.mark.parametrize("blocking", [False, True])
class TestOneTool:
    def test_it_looks(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(only=("tools/call",), blocking=blocking)(look)
        assert call(server, tool, {"a": 2}) == f"{tool} 2"
        assert seen == [("look", "tools/call", tool, {"a": 2}), tool]

    def test_it_changes_the_arguments(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(only=("tools/call",), blocking=blocking)(change)
        assert call(server, tool, {"a": 2}) == f"{tool} 7"

    def test_it_answers(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(only=("tools/call",), blocking=blocking)(answer)
        assert call(server, tool, {"a": 2}) == f"<{tool} 2>"

    def test_it_answers_without_running(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(blocking=blocking)(before)
        assert call(server, tool, {}) == "early"
        assert seen == []

    def test_it_denies(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(only=("tools/call",), blocking=blocking)(deny)
        assert call(server, tool, {}) == "Frozen until Monday"
        assert seen == []

    def test_the_order_is_that_of_registration(self, call: Any, tool: str, blocking: bool) -> None:
        server = shop()
        server.middleware(only=("tools/call",))(awaits)
        server.middleware(only=("tools/call",), blocking=blocking)(answer)
        server.middleware(only=("tools/call",))(answer)
        assert call(server, tool, {"a": 2}) == f"[<<{tool} 8>>]"


@ways
def test_changed_arguments_are_checked(call: Any) -> None:
    server = shop()

    @server.middleware(only=["tools/call"])
    def change(call: Call) -> Steps:
        return (yield call.replace(arguments={"a": "many"}))

    assert "a" in call(server, "plain", {})
    assert seen == []


@ways
def test_it_sees_an_exception_and_may_answer_it(call: Any) -> None:
    server = shop()

    @server.middleware(only=["tools/call"])
    def explain(call: Call) -> Steps:
        try:
            return (yield)
        except ValueError as error:
            return CallToolResult(content=[TextContent(f"explained {type(error).__name__}")], is_error=True)

    assert call(server, "failing", {}) == "explained ValueError"


@ways
def test_what_it_does_not_catch_means_what_it_means_in_a_handler(call: Any) -> None:
    server = shop()
    server.middleware(answer)
    said = call(server, "failing", {})
    assert said.startswith("Internal error")
    assert "secret" not in said


def test_it_surrounds_every_method_that_has_a_handler() -> None:
    server = shop()
    methods: list[str] = []

    @server.middleware
    def note(call: Call) -> Steps:
        methods.append(call.method)
        yield

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("shop://a")
    def a() -> str:
        return "a"

    @server.custom_method("acme/add")
    def add(a: int, b: int) -> int:
        return a + b

    with SyncClient(server) as client:
        client.list_tools()
        client.call_tool("plain")
        client.get_prompt("greet", {"name": "Ann"})
        client.read_resource("shop://a")
        client.request("acme/add", {"a": 1, "b": 2})
    assert methods == ["tools/list", "tools/call", "prompts/get", "resources/read", "acme/add"]


def test_it_filters_lists() -> None:
    server = shop()

    @server.middleware(only=["tools/list"])
    def hide(call: Call) -> Steps:
        result = yield
        assert isinstance(result, ListToolsResult)
        return structs.replace(result, tools=[tool for tool in result.tools if tool.name != "failing"])

    for era in ("modern", "legacy"):
        with SyncClient(server, era=era) as client:
            assert [tool.name for tool in client.list_tools()] == ["plain", "inline", "async"]


def test_a_call_of_an_unknown_tool_passes_through_it() -> None:
    server = shop()

    @server.middleware(only=["tools/call"])
    def note(call: Call) -> Steps:
        result = yield
        seen.append((call.name, call.tool, result.message))

    reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "plian"}})
    assert "Unknown tool" in reply["error"]["message"]
    assert seen == [("plian", None, reply["error"]["message"])]


def test_it_sees_the_tool_and_the_context() -> None:
    server = shop(server_context={"team": "blue"})

    @server.middleware(only=["tools/call"])
    def note(call: Call) -> None:
        assert call.tool is not None
        seen.append((call.tool.name, call.context["team"], call.round))

    assert by_threads(server, "plain", {}) == "plain 1"
    assert seen == [("plain", "blue", 1), "plain"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_rounds_of_questions_run_it_again(era: Any) -> None:
    server = Server("shop")

    @server.middleware(only=["tools/call"])
    def note(call: Call) -> Steps:
        result = yield call.replace(arguments={"a": 5})
        seen.append((call.round, dict(call.arguments), type(result).__name__))

    @server.tool
    def book(a: int, seats: Annotated[int, Ask("How many seats?")], ctx: Context) -> str:
        return f"{a} {seats} {ctx.ask('why', str, 'Why?')}"

    answers = iter([{"seats": 2}, {"why": "fun"}])
    with SyncClient(server, era=era, elicitation=lambda _: next(answers)) as client:
        assert client.call_tool("book", {"a": 1}).text == "5 2 fun"
    assert seen == [
        (1, {"a": 1}, "InputRequired"),
        (2, {"a": 1}, "InputRequired"),
        (3, {"a": 1}, "CallToolResult"),
    ]


@pytest.mark.parametrize("tool", ["plain", "async"])
def test_it_runs_where_the_handler_runs(tool: str) -> None:
    server = Server("shop")
    threads: dict[str, int] = {}

    @server.middleware(only=["tools/call"])
    def note(call: Call) -> Steps:
        threads["middleware"] = threading.get_ident()
        yield

    @server.tool
    def plain() -> None:
        threads["plain"] = threading.get_ident()

    @server.tool(name="async")
    async def later() -> None:
        threads["async"] = threading.get_ident()

    with SyncClient(server) as client:
        client.call_tool(tool)
    assert threads["middleware"] == threads[tool]


def test_blocking_middleware_does_not_block_the_loop() -> None:
    server = shop()
    gate = threading.Event()

    @server.middleware(only=["tools/call"], blocking=True)
    def wait(call: Call) -> None:
        if call.arguments.get("a") == 1:
            assert gate.wait(30)
        else:
            gate.set()

    async def both() -> list[str]:
        async with Client(server) as client:
            found = await asyncio.gather(client.call_tool("async", {"a": 1}), client.call_tool("async", {"a": 2}))
            return [each.text for each in found]

    assert asyncio.run(both()) == ["async 1", "async 2"]


def test_a_cancelled_call_is_left() -> None:
    server = Server("shop")
    entered = threading.Event()

    @server.middleware(only=["tools/call"])
    def note(call: Call) -> Steps:
        try:
            yield
        finally:
            seen.append("left")

    @server.tool
    async def endless() -> None:
        entered.set()
        await asyncio.sleep(3600)

    async def cancel() -> None:
        async with Client(server) as client:
            call = asyncio.ensure_future(client.call_tool("endless"))
            await asyncio.to_thread(entered.wait, 30)
            call.cancel()
            await asyncio.wait([call])
            while not seen:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancel(), 30))
    assert seen == ["left"]


def test_the_instrumentation_sees_what_was_answered() -> None:
    data: list[Any] = []
    server = shop(configuration=Configuration(instrumentation_callback=data.append))
    server.middleware(only=["tools/call"])(deny)
    assert by_threads(server, "plain", {}) == "Frozen until Monday"
    calls = [each for each in data if each["method"] == "tools/call"]
    assert len(calls) == 1


class TestMistakes:
    """Each is the author's: reported, and answered without its text."""

    def said(self, middleware: Any, *, tool: str = "plain") -> str:
        problems: list[BaseException] = []
        server = shop(exception_reporter=lambda error, _: problems.append(error))
        server.middleware(only=["tools/call"])(middleware)
        assert "Internal error" in by_json(server, tool, {})
        return str(problems[0])

    @pytest.mark.parametrize("tool", ["plain", "async"])
    def test_a_second_yield(self, tool: str) -> None:
        def twice(call: Call) -> Steps:
            yield
            yield

        assert self.said(twice, tool=tool).endswith("twice yielded twice: yield once for each call")

    def test_nothing_before_the_yield(self) -> None:
        def leaves(call: Call) -> Steps:
            if call.name:
                return None
            yield

        assert "answered nothing" in self.said(leaves)

    def test_an_answer_that_is_not_an_outcome(self) -> None:
        def text(call: Call) -> Any:
            yield
            return "text"

        assert "answered a str: return a result such as CallToolResult" in self.said(text)

    def test_a_yield_of_something_else(self) -> None:
        def arguments(call: Call) -> Any:
            yield {"a": 1}

        assert "yielded a dict: yield nothing, or call.replace(arguments=...)" in self.said(arguments)

    def test_a_plain_function_that_answers(self) -> None:
        assert "has no yield" in self.said(lambda call: CallToolResult(content=[]))

    def test_call_next_twice(self) -> None:
        async def twice(call: Call, call_next: Callable[..., Awaitable[Any]]) -> Any:
            await call_next()
            return await call_next()

        assert "awaited call_next twice" in self.said(twice)

    def test_arguments_of_a_list(self) -> None:
        server = shop()

        @server.middleware(only=["tools/list"])
        def change(call: Call) -> Steps:
            with pytest.raises(TypeError, match="tools/list has no arguments to replace"):
                call.replace(arguments={})
            yield

        server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


class TestRefused:
    def test_an_async_generator(self) -> None:
        async def mistaken(call: Call) -> Any:
            yield

        with pytest.raises(RegistrationError, match="is an async generator: write `def` with a `yield`"):
            shop().middleware(mistaken)

    @pytest.mark.parametrize("method", [*sorted(OWN_METHODS), "server/discover", "subscriptions/listen"])
    def test_a_method_without_a_handler(self, method: str) -> None:
        with pytest.raises(RegistrationError, match=f"{method} has no handler to surround"):
            shop().middleware(only=[method])(look)

    def test_a_text_in_place_of_methods(self) -> None:
        with pytest.raises(RegistrationError, match="only="):
            shop().middleware(only="tools/call")(look)

    def test_blocking_and_async(self) -> None:
        with pytest.raises(RegistrationError, match="leave out blocking=True"):
            shop().middleware(blocking=True)(awaits)


class TestBothFail:
    """A middleware that fails because its handler failed does not hide what the handler said."""

    def kinds(self) -> dict[str, Any]:
        def generator(call: Call) -> Steps:
            try:
                return (yield)
            finally:
                raise OSError("cannot write the log")

        async def coroutine(call: Call, call_next: Any) -> Any:
            try:
                return await call_next()
            finally:
                raise OSError("cannot write the log")

        def forgets(call: Call) -> Steps:
            with contextlib.suppress(Exception):
                yield
            return None

        def again(call: Call) -> Steps:
            try:
                yield
            except Exception:
                yield
            return None

        return {"generator": generator, "coroutine": coroutine, "forgets": forgets, "again": again}

    @ways
    @pytest.mark.parametrize("blocking", [False, True])
    @pytest.mark.parametrize("kind", ["generator", "coroutine", "forgets", "again"])
    def test_the_client_gets_the_error_of_the_handler_and_the_log_has_both(
        self, call: Any, kind: str, blocking: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = Server("shop")
        server.middleware(blocking=blocking and kind != "coroutine")(self.kinds()[kind])

        @server.tool
        def refused() -> None:
            raise ToolError("No flight on that day")

        @server.tool
        def broken() -> None:
            raise KeyError("timetable")

        assert call(server, "refused", {}) == "No flight on that day"
        assert [each.getMessage().partition(" failed")[0] for each in caplog.records] == [f"middleware {kind}"]
        caplog.clear()
        incident = call(server, "broken", {}).rpartition(" ")[2]
        first, second = caplog.records
        assert first.getMessage().startswith(f"middleware {kind} failed")
        assert second.getMessage().startswith("tool 'broken' failed")
        assert incident in second.getMessage()
        assert isinstance(second.exc_info[1], KeyError)  # type: ignore[index]

    @pytest.mark.parametrize("chosen", ["answer", "cause"])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_middleware_may_replace_the_error_on_purpose(self, is_async: bool, chosen: str) -> None:
        server = Server("shop", configuration=Configuration(tool_error_mode="message"))

        def replacing(error: KeyError) -> None:
            if chosen == "answer":
                raise ToolError(f"There is no {error}")
            raise LookupError(f"There is no {error}") from error

        def generator(call: Call) -> Steps:
            try:
                return (yield)
            except KeyError as error:
                return replacing(error)

        async def coroutine(call: Call, call_next: Any) -> Any:
            try:
                return await call_next()
            except KeyError as error:
                return replacing(error)

        server.middleware(coroutine if is_async else generator)

        @server.tool
        def price() -> None:
            raise KeyError("pear")

        assert by_json(server, "price", {}) == "There is no 'pear'"


class Trouble(Exception):
    pass


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_mix_is_left_once_in_reverse_order_and_answers_once(data: st.DataObject) -> None:
    """Layers and a dependency, plain and async, that deny, fail before or after, replace, and a tool that fails or asks."""
    history: list[tuple[str, int]] = []
    server = Server("any")
    count = data.draw(st.integers(1, 4))
    actions = st.sampled_from(["pass", "pass", "before", "after", "replace", "answer", "early", "catch"])
    for number in range(count):
        action = data.draw(actions)
        fault = Trouble(number)

        def generator(call: Call, number: int = number, action: str = action, fault: Trouble = fault) -> Steps:
            if action == "before":
                raise fault
            if action == "early":
                return CallToolResult(content=[TextContent("early")])
            history.append(("enter", number))
            try:
                result = yield call.replace(arguments={"a": 3}) if action == "replace" else None
            except Exception:
                if action != "catch":
                    raise
                return CallToolResult(content=[TextContent("caught")])
            finally:
                history.append(("leave", number))
            if action == "after":
                raise fault
            return CallToolResult(content=[TextContent("answer")]) if action == "answer" else result

        async def coroutine(
            call: Call, call_next: Any, number: int = number, action: str = action, fault: Trouble = fault
        ) -> Any:
            steps = generator(call, number, action, fault)
            try:
                asked = next(steps)
            except StopIteration as end:
                return end.value
            await asyncio.sleep(0)
            try:
                try:
                    result = await call_next(asked)
                except BaseException as error:
                    steps.throw(error)
                else:
                    steps.send(result)
            except StopIteration as end:
                return end.value

        is_async = data.draw(st.booleans())
        server.middleware(only=["tools/call"], blocking=not is_async and data.draw(st.booleans()))(
            coroutine if is_async else generator
        )

    def resource() -> Generator[int]:
        history.append(("enter", count))
        try:
            yield 1
        finally:
            history.append(("leave", count))

    fails = data.draw(st.booleans())

    @server.tool
    def plain(a: int, one: Annotated[int, Depends(resource)]) -> str:
        if fails:
            raise ToolError("failed")
        return f"{a}"

    @server.tool(name="async")
    async def later(a: int, one: Annotated[int, Depends(resource)]) -> str:
        return plain(a, one)

    request = {"name": data.draw(st.sampled_from(["plain", "async"])), "arguments": {"a": 1}}
    reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": request})
    assert ("result" in reply) != ("error" in reply)
    entered = [number for what, number in history if what == "enter"]
    assert [number for what, number in history if what == "leave"] == entered[::-1]
    assert entered == sorted(entered)
