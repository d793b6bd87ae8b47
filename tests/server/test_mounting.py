"""Servers inside servers: what they show, who serves it, and what is heard of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan import (
    Ask,
    Audit,
    Client,
    Configuration,
    Context,
    Depends,
    RegistrationError,
    Server,
    SyncClient,
    ToolError,
)
from linkspan.core.call import CallReady, Ports
from linkspan.core.connection import ServerConnection
from linkspan.errors import DuplicateNameError
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Grant, InputRequired, TransportInfo
from linkspan.types.base import TextContent
from linkspan.types.messages import CallToolResult
from linkspan.wire.jsonrpc import decode
from linkspan.wire.values import DEFAULT_LIMITS
from mounts import through_mounts

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def weather(**options: Any) -> Server:
    server = Server("weather", **options)

    @server.tool(annotations={"readOnlyHint": True})
    def forecast(days: int) -> str:
        """Say how it will be."""
        if days > 9:
            raise ValueError("a secret of the weather")
        if days < 0:
            raise ToolError("there is no forecast of the past")
        return f"{days} days of rain"

    @server.tool(tags={"admin"}, annotations={"destructiveHint": True})
    def delete_station(station: str) -> str:
        return f"deleted {station}"

    @server.prompt
    def report(city: str) -> str:
        return f"report on {city}"

    @server.resource("weather://stations")
    def stations() -> str:
        return "north, south"

    @server.resource("weather://{city}/now")
    def now(city: str) -> str:
        return f"rain in {city}"

    return server


def run(connection: ServerConnection, events: list[Any]) -> None:
    """Run the calls that a connection hands out, and what their ends bring."""
    for event in events:
        if isinstance(event, CallReady):
            try:
                value = event.call.run()
            except BaseException as error:
                run(connection, connection.fail(event.call, error))
            else:
                run(connection, connection.finish(event.call, value))


def ask(
    server: Server, method: str, facts: TransportInfo | None = None, envelope: Any = ENVELOPE, **params: Any
) -> Any:
    """Return the result of a modern request, or its error."""
    connection = server.connect(ports=Ports(nullcontext()), notified=False)
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": envelope}}
    run(connection, connection.receive(decode(json.dumps(message).encode(), DEFAULT_LIMITS), facts or TransportInfo()))
    answers = [json.loads(each) for each in connection.messages_to_send()]
    answer = next(each for each in answers if each.get("id") == 1)
    return answer["result"] if "result" in answer else answer["error"]


def listening(server: Server, facts: TransportInfo) -> ServerConnection:
    """Return the connection of a client that did a handshake and is told of changes."""
    connection = server.connect(ports=Ports(nullcontext()))
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ):
        run(connection, connection.receive(decode(json.dumps(message).encode(), DEFAULT_LIMITS), facts))
    connection.messages_to_send()
    return connection


def call(server: Server, name: str, facts: TransportInfo | None = None, **arguments: Any) -> str:
    """Return the text of a call of a tool."""
    answer = ask(server, "tools/call", facts, name=name, arguments=arguments)
    return answer["message"] if "message" in answer else answer["content"][0]["text"]


def names(server: Server, kind: str = "tools", facts: TransportInfo | None = None) -> list[str]:
    """Return what a list shows."""
    method, key = (
        ("resources/templates/list", "uriTemplate") if kind == "resourceTemplates" else (f"{kind}/list", "name")
    )
    key = "uri" if kind == "resources" else key
    return [each[key] for each in ask(server, method, facts).get(kind, ())]


# Names.


def test_what_a_server_offers_is_offered_through_a_mount() -> None:
    shop = Server("shop")
    shop.mount(weather())
    assert names(shop) == ["forecast", "delete_station"]
    assert names(shop, "prompts") == ["report"]
    assert names(shop, "resources") == ["weather://stations"]
    assert names(shop, "resourceTemplates") == ["weather://{city}/now"]
    assert call(shop, "forecast", days=3) == "3 days of rain"
    assert ask(shop, "prompts/get", name="report", arguments={"city": "Rome"})["messages"][0]["content"]["text"]
    assert ask(shop, "resources/read", uri="weather://stations")["contents"][0]["text"] == "north, south"
    assert ask(shop, "resources/read", uri="weather://oslo/now")["contents"][0]["text"] == "rain in oslo"


def test_a_prefix_is_for_names_and_not_for_uris() -> None:
    shop = Server("shop")
    shop.mount(weather(), "w", rename={"delete_station": "remove"})
    assert names(shop) == ["w_forecast", "remove"]
    assert names(shop, "prompts") == ["w_report"]
    assert names(shop, "resources") == ["weather://stations"]
    assert (call(shop, "w_forecast", days=1), call(shop, "remove", station="n")) == ("1 days of rain", "deleted n")
    assert ask(shop, "prompts/get", name="w_report", arguments={"city": "Rome"})["messages"]
    assert "Unknown tool: forecast; did you mean 'w_forecast'?" in call(shop, "forecast", days=1)


def test_texts_logs_and_incidents_speak_the_outer_names_and_name_the_server(caplog: Any) -> None:
    shop, mall = Server("shop"), Server("mall")
    shop.mount(weather(), "w")
    mall.mount(shop, "s")
    for server, name in ((shop, "w_forecast"), (mall, "s_w_forecast")):
        caplog.clear()
        assert call(server, name, days="x") == f'{name}: days must be an integer, got the string "x"'
        assert call(server, name, days=-1) == "there is no forecast of the past"
        text = call(server, name, days=10)
        (record,) = caplog.records
        assert f"incident {record.incident}" in text
        assert "secret" not in text
        assert (record.tool, record.server, record.method) == (name, "weather", "tools/call")
        assert record.getMessage().startswith(f"tool '{name}' failed")
        error = ask(server, "prompts/get", name=name.replace("forecast", "report"), arguments={})
        assert error["message"] == "Missing required arguments: city"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"only": ["fore*"]}, ["forecast"]),
        ({"hide": ["delete_*"]}, ["forecast"]),
        ({"hide": ["tag:admin"]}, ["forecast"]),
        ({"only": ["readOnly"]}, ["forecast"]),
        ({"hide": ["destructive"]}, ["forecast"]),
        ({"only": ["*"], "hide": ["forecast"]}, ["delete_station"]),
    ],
)
def test_patterns_say_what_is_shown(options: Any, shown: list[str]) -> None:
    shop, inner = Server("shop"), weather()
    shop.mount(inner, **options)
    assert names(shop) == shown
    hidden = ({"forecast", "delete_station"} - set(shown)).pop()
    assert "Unknown tool" in call(shop, hidden, days=1)
    inner.define_tool("fort", handler=lambda: "new")
    assert ("fort" in names(shop)) is (options not in ({"only": ["fore*"]}, {"only": ["readOnly"]}))


def test_a_hidden_resource_keeps_its_uri_and_a_hidden_template_answers_nothing() -> None:
    inner, shop, mall = weather(), Server("shop"), Server("mall")
    inner.define_resource("weather://oslo/now", text="a secret")
    shop.mount(inner, hide=["weather://oslo/now"])
    assert "not found" in ask(shop, "resources/read", uri="weather://oslo/now")["message"]
    assert ask(shop, "resources/read", uri="weather://rome/now")["contents"][0]["text"] == "rain in rome"
    mall.mount(inner, hide=["weather://{city}/now"])
    assert "not found" in ask(mall, "resources/read", uri="weather://rome/now")["message"]


def test_a_pattern_that_means_nothing_is_warned_of(caplog: Any) -> None:
    Server("shop").mount(weather(), hide=["delet_*"], rename={"forcast": "f"})
    assert [each.getMessage() for each in caplog.records] == [
        "mount('weather'): nothing that the server has so far is meant by 'delet_*'",
        "mount('weather'): nothing that the server has so far is meant by 'forcast'",
    ]


def test_a_long_name_is_cut_and_warned_of(caplog: Any) -> None:
    inner, shop = Server("inner"), Server("shop")
    inner.define_tool("x" * 60, handler=lambda: "long")
    inner.define_tool("x" * 60 + "y", handler=lambda: "longer")
    shop.mount(inner, "prefix")
    first, second = names(shop)
    assert len(first) == len(second) == 64
    assert first != second
    assert (call(shop, first), call(shop, second)) == ("long", "longer")
    assert all("because names have up to 64 characters" in each.getMessage() for each in caplog.records)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda shop: shop.mount(7), "mount(7): a client cannot connect to a int"),
        (lambda shop: shop.mount(weather(), "-w"), "a prefix has up to 32 letters"),
        (lambda shop: shop.mount(weather(), "w" * 33), "a prefix has up to 32 letters"),
        (lambda shop: shop.mount(weather(), only="forecast"), "mount() takes a list for only="),
        (lambda shop: shop.mount(weather(), scopes="a b"), "mount() takes a list for scopes="),
        (lambda shop: shop.mount(weather(), tags="beta"), "tags= takes a set of strings"),
        (lambda shop: shop.mount(weather(), when=True), "when= takes a function"),
        (lambda shop: shop.mount(shop), "the server would be inside itself"),
    ],
)
def test_a_mistake_is_refused_with_what_to_write(mistake: Callable[[Server], object], words: str) -> None:
    shop = Server("shop")
    with pytest.raises((RegistrationError, TypeError), match=words.replace("(", r"\(").replace(")", r"\)")):
        mistake(shop)
    assert names(shop) == []


def test_servers_are_eight_levels_deep_at_most_and_never_in_a_circle() -> None:
    chain = [weather()]
    for level in range(8):
        chain.append(Server(f"level {level}"))
        chain[-1].mount(chain[-2], "l")
    assert call(chain[-1], "l_" * 8 + "forecast", days=2) == "2 days of rain"
    with pytest.raises(RegistrationError, match="8 levels"):
        Server("one more").mount(chain[-1])
    with pytest.raises(RegistrationError, match="inside itself"):
        chain[0].mount(chain[-1])
    with pytest.raises(RegistrationError, match="8 levels"):
        chain[0].mount(Server("below"))


# Collisions.


def test_a_name_of_two_servers_is_refused_with_both_owners() -> None:
    shop = Server("shop")
    shop.define_tool("forecast", handler=lambda: "own")
    with pytest.raises(RegistrationError, match=r"'forecast' of 'weather'.*'shop' has one of that name.*prefix="):
        shop.mount(weather())
    assert names(shop, "prompts") == []  # nothing was mounted
    shop.mount(weather(), "a", name="first", hide=["weather:*"])
    with pytest.raises(RegistrationError, match=r"the mounted server 'first' has one of that name"):
        shop.mount(weather(), "a", name="second")
    with pytest.raises(DuplicateNameError, match="The mounted server 'first' has a tool 'a_forecast' already"):
        shop.define_tool("a_forecast", handler=lambda: "own")


def test_a_later_name_that_is_taken_around_is_refused_inside() -> None:
    shop, mall, inner = Server("shop"), Server("mall"), weather()
    shop.mount(inner, "w")
    mall.mount(shop, "s")
    shop.define_tool("w_new", handler=lambda: "own")
    with pytest.raises(RegistrationError, match="'new' of 'weather' would be 'w_new' in 'shop'"):
        inner.define_tool("new", handler=lambda: "inner")
    mall.define_tool("s_w_newer", handler=lambda: "own")
    with pytest.raises(RegistrationError, match="would be 's_w_newer' in 'mall'"):
        inner.define_tool("newer", handler=lambda: "inner")
    assert "new" not in names(inner)
    assert "newer" not in names(inner)


def test_a_server_may_be_mounted_under_two_prefixes_and_in_two_servers() -> None:
    shop, mall, inner = Server("shop"), Server("mall"), weather()
    first = shop.mount(inner, "a")
    shop.mount(inner, "b")
    mall.mount(inner)
    assert names(shop) == ["a_forecast", "a_delete_station", "b_forecast", "b_delete_station"]
    assert names(shop, "resources") == ["weather://stations"]
    assert {call(shop, "a_forecast", days=1), call(shop, "b_forecast", days=1), call(mall, "forecast", days=1)} == {
        "1 days of rain"
    }
    first.remove()
    assert names(shop) == ["b_forecast", "b_delete_station"]


# Later changes.


def test_changes_of_the_mounted_server_show_at_once() -> None:
    shop, inner = Server("shop", page_size=1), weather()
    mounted = shop.mount(inner, "w")
    page = ask(shop, "tools/list")
    inner.define_tool("late", handler=lambda: "late")
    inner.remove_tool("forecast")
    assert [each["name"] for each in ask(shop, "tools/list", cursor=page["nextCursor"])["tools"]] == [
        "w_delete_station"
    ]
    assert call(shop, "w_late") == "late"
    assert "Unknown tool" in call(shop, "w_forecast", days=1)
    inner.disable("late")
    assert "Unknown tool" in call(shop, "w_late")
    shop.enable("w_late")
    assert "Unknown tool" in call(shop, "w_late")
    inner.enable("late")
    assert call(shop, "w_late") == "late"
    shop.disable("w_late")
    assert ("Unknown tool" in call(shop, "w_late"), call(inner, "late")) == (True, "late")
    mounted.remove()
    mounted.remove()
    inner.define_tool("later", handler=lambda: "later")
    assert names(shop) == []
    assert repr(mounted) == "<Mounted weather>"


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_a_change_is_announced_once_where_one_of_the_servers_announces_all(outer: bool, inner: bool) -> None:
    announced: list[Any] = []
    server, shop = weather(auto_notify=inner), Server("shop", auto_notify=outer)
    shop.mount(server, "w", hide=["hidden"])
    shop._announcer.list_changed = lambda kind, changed=None, **_: (
        announced.append(  # type: ignore[method-assign]
            (kind, [each.spec.name for each in changed or ()])
        )
        or 0
    )
    server.define_tool("late", handler=lambda: "late")
    server.define_tool("hidden", handler=lambda: "hidden")
    server.remove_tool("late")
    assert announced == ([("tools", ["w_late"])] * 2 if outer or inner else [])
    announced.clear()
    server.notify_tools_list_changed()
    server.disable("forecast")
    assert announced == [("tools", []), ("tools", ["w_forecast"])]


def test_what_is_switched_off_when_its_server_is_mounted_keeps_its_place() -> None:
    inner, shop = weather(), Server("shop")
    inner.disable("forecast")
    shop.mount(inner)
    assert names(shop) == ["delete_station"]
    inner.enable("forecast")
    assert names(shop) == names(inner) == ["forecast", "delete_station"]


# Around a call.


def test_middleware_of_both_servers_is_passed_in_order_each_with_its_own_names() -> None:
    passed: list[str] = []
    shop, inner = Server("shop"), weather()
    shop.mount(inner, "w")

    def passing(where: str) -> Callable[[Any], Iterator[None]]:
        def layer(call: Any) -> Iterator[None]:
            passed.append(f"{where} {call.name} {call.tool.name if call.tool else None}")
            yield
            passed.append(f"{where} ends")

        return layer

    shop.middleware(passing("outer"))
    inner.middleware(passing("inner"))
    assert call(shop, "w_forecast", days=1) == "1 days of rain"
    assert passed == ["outer w_forecast w_forecast", "inner forecast forecast", "inner ends", "outer ends"]


def test_middleware_changes_arguments_answers_and_failures_on_both_levels() -> None:
    shop, inner = Server("shop"), weather()
    shop.mount(inner, "w")

    @inner.middleware(only=["tools/call"])
    def inner_layer(call: Any) -> Any:
        outcome = yield call.replace(arguments={"days": call.arguments["days"] + 1})
        return CallToolResult(content=[*outcome.content, *outcome.content])

    @shop.middleware(only=["tools/call"])
    def outer_layer(call: Any) -> Any:
        outcome = yield call.replace(arguments={"days": call.arguments["days"] * 2})
        return CallToolResult(content=[*outcome.content, *outcome.content[:1]])

    answer = ask(shop, "tools/call", name="w_forecast", arguments={"days": 2})
    assert [each["text"] for each in answer["content"]] == ["5 days of rain"] * 3


def test_an_async_middleware_of_the_mounted_server_is_awaited() -> None:
    shop, inner = Server("shop"), weather()
    shop.mount(inner, "w")
    passed: list[str] = []

    @inner.middleware
    async def layer(call: Any, call_next: Any) -> Any:
        await asyncio.sleep(0)
        passed.append(call.name)
        return await call_next()

    async def main() -> None:
        async with Client(shop) as client:
            assert (await client.call_tool("w_forecast", {"days": 1})).text == "1 days of rain"
            assert (await client.read_resource("weather://stations")).contents[0].text == "north, south"

    asyncio.run(main())
    assert passed == ["forecast", "weather://stations"]


def test_context_dependencies_and_own_requests_are_those_of_the_mounted_server() -> None:
    inner, shop = Server("inner", server_context={"who": "inner"}), Server("shop", server_context={"who": "shop"})

    def double(ctx: Context) -> str:
        return ctx["who"] * 2

    @inner.tool
    def who(ctx: Context, twice: str = Depends(double)) -> str:
        return f"{ctx['who']} {twice} {ctx.read_resource('inner://facts').contents[0].text}"

    inner.define_resource("inner://facts", text="facts")
    shop.mount(inner, "i", hide=["inner:*"])
    assert call(shop, "i_who") == "inner innerinner facts"


def test_the_mounted_server_reports_its_failures_and_observes_its_calls() -> None:
    reported: list[Any] = []
    seen: dict[str, list[Any]] = {"inner": [], "outer": []}

    def observed(where: str, **options: Any) -> Configuration:
        def note(data: Any) -> None:
            seen[where].append((data.get("tool_name"), data.get("error")))

        return Configuration(instrumentation_callback=note, **options)

    inner = weather(
        configuration=observed("inner", exception_reporter=lambda error, context: reported.append(context["tool_name"]))
    )
    shop = Server(
        "shop",
        configuration=observed("outer", exception_reporter=lambda error, context: reported.append("wrong")),
    )
    shop.mount(inner, "w")
    call(shop, "w_forecast", days=1)
    call(shop, "w_forecast", days=10)
    call(shop, "w_forecast", days="x")
    assert reported == ["w_forecast"]
    assert seen == {
        "inner": [("forecast", None), ("forecast", "internal_error"), ("forecast", "invalid_arguments")],
        "outer": [("w_forecast", None), ("w_forecast", "internal_error"), ("w_forecast", "invalid_arguments")],
    }


def test_the_outer_server_alone_observes_what_went_wrong_inside() -> None:
    seen: list[Any] = []
    shop = Server("shop", instrumentation_callback=lambda data: seen.append((data.get("tool_name"), data.get("error"))))
    shop.mount(weather(), "w")
    call(shop, "w_forecast", days=10)
    assert seen == [("w_forecast", "internal_error")]


def test_settings_of_the_mounted_server_hold_for_its_tools() -> None:
    inner = weather(configuration=Configuration(tool_error_mode="message"))
    shop = Server("shop")
    shop.mount(inner)
    assert call(shop, "forecast", days=10) == "a secret of the weather"


# Lifespans.


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize("inner_async", [False, True])
@pytest.mark.parametrize("outer_async", [None, False, True])
@pytest.mark.parametrize("later", [False, True])
def test_lifespans_are_entered_and_left_together(inner_async: bool, outer_async: bool | None, later: bool) -> None:
    events: list[str] = []

    def plain(name: str) -> Callable[[], Iterator[Pool]]:
        def lifespan() -> Iterator[Pool]:
            events.append(f"{name} opens")
            yield Pool(name)
            events.append(f"{name} closes")

        return lifespan

    def awaited(name: str) -> Callable[[], AsyncIterator[Pool]]:
        async def lifespan() -> AsyncIterator[Pool]:
            events.append(f"{name} opens")
            yield Pool(name)
            events.append(f"{name} closes")

        return lifespan

    inner, shop = Server("inner"), Server("shop")
    if outer_async is not None:
        shop.lifespan((awaited if outer_async else plain)("outer"))
    if later:
        shop.mount(inner)
    inner.lifespan((awaited if inner_async else plain)("inner"))

    @inner.tool
    def inner_pool(pool: Pool, ctx: Context[Any]) -> str:
        assert ctx.lifespan is pool
        return pool.name

    if outer_async is not None:

        @shop.tool
        def outer_pool(pool: Pool, ctx: Context[Any]) -> str:
            assert ctx.lifespan is pool
            return pool.name

    if not later:
        shop.mount(inner)

    async def main() -> None:
        async with Client(shop) as client:
            assert (await client.call_tool("inner_pool")).text == "inner"
            if outer_async is not None:
                assert (await client.call_tool("outer_pool")).text == "outer"

    asyncio.run(main())
    if outer_async is None:
        assert events == ["inner opens", "inner closes"]
    else:
        assert events == ["outer opens", "inner opens", "inner closes", "outer closes"]


def test_a_lifespan_inside_that_fails_refuses_the_calls_of_both() -> None:
    inner, shop = Server("inner"), Server("shop")

    @inner.lifespan
    def broken() -> Iterator[None]:
        raise ToolError("no database")
        yield

    shop.mount(inner)
    shop.define_tool("own", handler=lambda: "own")
    with SyncClient(shop) as client, pytest.raises(Exception, match="The server could not start: inner: no database"):
        client.call_tool("own")


def test_a_server_that_was_removed_before_the_first_call_opens_nothing() -> None:
    opened: list[str] = []
    inner, shop = Server("inner"), Server("shop")

    @inner.lifespan
    def opens() -> Iterator[None]:
        opened.append("inner")
        yield

    shop.define_tool("own", handler=lambda: "own")
    shop.mount(inner).remove()
    with SyncClient(shop) as client:
        assert client.call_tool("own").text == "own"
    assert opened == []


def test_a_server_without_a_lifespan_has_none_besides_that_of_a_mounted_one() -> None:
    inner, shop = Server("inner"), Server("shop")

    @inner.lifespan
    def opens() -> Iterator[int]:
        yield 1

    @shop.tool
    def own(ctx: Context[Any]) -> str:
        try:
            return str(ctx.lifespan)
        except RuntimeError as error:
            return str(error)

    shop.mount(inner)
    with SyncClient(shop) as client:
        assert "this server has no lifespan" in client.call_tool("own").text


# Who sees what.


def test_conditions_are_asked_each_with_the_context_of_its_server() -> None:
    inner, shop = Server("inner", server_context={"who": "inner"}), Server("shop", server_context={"who": "shop"})
    asked: list[str] = []

    def note(ctx: Context) -> bool:
        asked.append(ctx["who"])
        return True

    inner.define_tool("tool", handler=lambda: "ok", when=note)
    shop.mount(inner, when=note)
    assert call(shop, "tool") == "ok"
    assert asked == ["shop", "inner"]


def test_one_condition_of_several_items_is_asked_once_for_a_request() -> None:
    asked: list[str | None] = []

    def note(ctx: Context) -> bool:
        asked.append(ctx.principal)
        return True

    inner = Server("inner")
    for name in ("a", "b", "c"):
        inner.define_tool(name, handler=lambda: "ok", when=note)
    assert names(through_mounts(inner, 3)) == ["a", "b", "c"]
    assert asked == [None]


def test_a_condition_that_raises_is_reported_by_its_own_server() -> None:
    reported: list[str] = []

    def broken() -> bool:
        raise KeyError("broken")

    def reporter(where: str) -> Any:
        return lambda error, _: reported.append(where)

    inner = Server("inner", exception_reporter=reporter("inner"))
    shop = Server("shop", exception_reporter=reporter("shop"))
    inner.define_tool("tool", handler=lambda: "ok", when=broken)
    shop.mount(inner)
    assert names(shop) == []
    assert reported == ["inner"]


def test_the_condition_of_a_mount_is_asked_once_for_a_request() -> None:
    inner, shop, mall = Server("inner"), Server("shop"), Server("mall")
    asked: list[str] = []

    def noted(name: str) -> Callable[[Context], bool]:
        def note(ctx: Context) -> bool:
            asked.append(name)
            return True

        return note

    for name in ("a", "b", "c"):
        inner.define_tool(name, handler=lambda: "ok", when=noted(name))
    inner.define_tool("d", handler=lambda: "ok")
    shop.mount(inner, when=noted("shop"))
    assert names(shop) == ["a", "b", "c", "d"]
    assert sorted(asked) == ["a", "b", "c", "shop"]
    asked.clear()
    mall.mount(shop, when=noted("mall"))
    assert names(mall) == ["a", "b", "c", "d"]
    assert (asked.count("mall"), asked.count("a"), asked[0]) == (1, 1, "mall")


CONDITIONS: dict[str, Any] = {
    "none": None,
    "member": lambda ctx: ctx.principal in ("ann", "bob"),
    "ann": lambda ctx: ctx.principal == "ann",
    "nobody": lambda: False,
    "raises": lambda: 1 // 0,
}


def _holds(name: str, principal: str | None) -> bool:
    return {
        "none": True,
        "member": principal in ("ann", "bob"),
        "ann": principal == "ann",
        "nobody": False,
        "raises": False,
    }[name]


@settings(max_examples=1000, deadline=None)
@given(
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from([None, "ann", "bob", "eve"]),
    st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    st.sampled_from([(), ("a",)]),
    st.sampled_from([(), ("b",)]),
)
def test_what_one_may_not_see_is_nowhere(
    own: str,
    mount: str,
    above: str,
    principal: str | None,
    has: tuple[str, ...],
    needs: tuple[str, ...],
    mount_needs: tuple[str, ...],
) -> None:
    logging.disable(logging.CRITICAL)
    try:
        inner, shop, mall = Server("inner", auto_notify=True), Server("shop"), Server("mall")
        inner.define_tool("secret", handler=lambda: "ok", when=CONDITIONS[own], scopes=needs)
        inner.define_resource("inner://secret", text="ok", when=CONDITIONS[own], scopes=needs)
        shop.mount(inner, "i", when=CONDITIONS[mount], scopes=mount_needs)
        mall.mount(shop, "s", when=CONDITIONS[above])
        grant = Grant("issuer", principal, scopes=frozenset(has))
        facts = TransportInfo(principal=principal, grant=grant)
        sees = _holds(own, principal) and _holds(mount, principal) and _holds(above, principal)
        may = sees and set(has) >= {*needs, *mount_needs}
        assert names(mall, "tools", facts) == (["s_i_secret"] if sees else [])
        assert names(mall, "resources", facts) == (["inner://secret"] if sees else [])
        answer = ask(mall, "tools/call", facts, name="s_i_secret", arguments={})
        read = ask(mall, "resources/read", facts, uri="inner://secret")
        assert ("content" in answer, "contents" in read) == (may, may)
        listener = listening(mall, facts)
        inner.remove_tool("secret")
        heard = [json.loads(each)["method"] for each in listener.messages_to_send()]
        assert heard == (["notifications/tools/list_changed"] if sees else [])
        inner.define_tool("secret", handler=lambda: "ok", when=CONDITIONS[own], scopes=needs)
        unknown = ask(mall, "tools/call", facts, name="s_i_secre", arguments={})
        assert ("s_i_secret" in unknown["message"]) is sees
        if not sees:
            assert answer == {"code": -32602, "message": "Unknown tool: s_i_secret"}
    finally:
        logging.disable(logging.NOTSET)


# What else belongs to a server.


def test_instructions_follow_each_other_below_the_names() -> None:
    shop, inner = Server("shop", instructions="Sell."), weather(instructions="Ask for a city.")
    assert ask(shop, "server/discover")["instructions"] == "Sell."
    mounted = shop.mount(inner, "w")
    assert ask(shop, "server/discover")["instructions"] == "Sell.\n\n## weather\n\nAsk for a city."
    assert shop.instructions == "Sell."
    inner.instructions = "x" * 5000
    assert len(ask(shop, "server/discover")["instructions"]) == len("Sell.\n\n## weather\n\n") + 4000
    mounted.remove()
    assert ask(shop, "server/discover")["instructions"] == "Sell."


def test_completions_are_those_of_the_mounted_server() -> None:
    shop, inner = Server("shop"), weather()

    @inner.completion("report", "city")
    def cities(value: str) -> list[str]:
        return ["Rome", "Oslo"]

    @inner.completion("weather://{city}/now", "city")
    def towns(value: str) -> list[str]:
        return ["Rimini"]

    assert "completions" not in ask(shop, "server/discover")["capabilities"]
    shop.mount(inner, "w")
    assert "completions" in ask(shop, "server/discover")["capabilities"]
    for ref, values in (
        ({"type": "ref/prompt", "name": "w_report"}, ["Rome"]),
        ({"type": "ref/resource", "uri": "weather://{city}/now"}, ["Rimini"]),
    ):
        answer = ask(shop, "completion/complete", ref=ref, argument={"name": "city", "value": "R"})
        assert answer["completion"]["values"] == values

    @shop.completion("w_report", "city")
    def own(value: str) -> list[str]:
        return ["Rotterdam"]

    ref = {"type": "ref/prompt", "name": "w_report"}
    answer = ask(shop, "completion/complete", ref=ref, argument={"name": "city", "value": "R"})
    assert answer["completion"]["values"] == ["Rotterdam"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("surrounded", ["", "inner", "outer", "both"])
@pytest.mark.parametrize("levels", [1, 3])
def test_a_question_goes_to_the_caller_and_its_answer_to_the_tool(era: str, surrounded: str, levels: int) -> None:
    inner, shop = Server("inner"), Server("shop")

    @inner.tool
    def order(ctx: Context, pizza: str) -> str:
        return f"{ctx.ask('size', int, 'Which size?')} cm {pizza} {ctx.ask('name', str, 'Your name?')}"

    @inner.prompt
    def menu(ctx: Context) -> str:
        return f"menu for {ctx.ask('guests', int, 'How many?')}"

    def layer(call: Any) -> Iterator[None]:
        yield

    if surrounded in ("inner", "both"):
        inner.middleware(layer)
    shop.mount(inner, "i")
    if surrounded in ("outer", "both"):
        shop.middleware(layer)
    for _ in range(levels - 1):
        around = Server("around")
        around.mount(shop)
        shop = around
    answers = {"size": 30, "name": "Ann", "guests": 4}
    with SyncClient(
        shop, era=era, elicitation=lambda form: {name: answers[name] for name in form.requested_schema["properties"]}
    ) as client:
        assert client.call_tool("i_order", {"pizza": "Margherita"}).text == "30 cm Margherita Ann"
        assert client.get_prompt("i_menu").messages[0].content.text == "menu for 4"


@pytest.mark.parametrize("outer_layer", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_middleware_may_answer_in_place_of_a_tool_that_asks(levels: int, outer_layer: bool) -> None:
    shop = inner = Server("inner")

    @inner.tool
    def order(ctx: Context) -> str:
        return f"{ctx.ask('size', int, 'Which size?')} cm"

    @inner.middleware(only=["tools/call"])
    def usual_size(call: Any) -> Any:
        outcome = yield
        return CallToolResult([TextContent("28 cm")]) if isinstance(outcome, InputRequired) else outcome

    for _ in range(levels):
        around = Server("around")
        around.mount(shop)
        shop = around

    if outer_layer:

        @shop.middleware
        def passes(call: Any) -> Any:
            yield

    with SyncClient(shop, elicitation=lambda form: pytest.fail("it was asked")) as client:
        assert client.call_tool("order").text == "28 cm"


@pytest.mark.parametrize("levels", [1, 3])
def test_what_ran_once_in_a_mounted_server_does_not_run_in_the_process_that_gets_the_answer(
    levels: int, tmp_path: Path
) -> None:
    made: list[int] = []

    def process() -> Server:
        inner = Server("inner")

        @inner.tool
        def order(ctx: Context) -> str:
            number = ctx.once("order", lambda: made.append(1) or len(made))
            ctx.ask("sure", bool, f"Order {number}?")
            return f"order {number}"

        served = Server("shop", store=f"sqlite://{tmp_path / 'store.db'}")
        served.mount(through_mounts(inner, levels - 1))
        return served

    one, other = process(), process()
    capable = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    asked = ask(one, "tools/call", envelope=capable, name="order", arguments={})
    more = {"inputResponses": {"sure": {"action": "accept", "content": {"sure": True}}}}
    more["requestState"] = asked["requestState"]
    for each in (other, one):
        answer = ask(each, "tools/call", envelope=capable, name="order", arguments={}, **more)
        assert answer["content"][0]["text"] == "order 1"
    assert made == [1]


@pytest.mark.parametrize("surrounded", [False, True])
@pytest.mark.parametrize("levels", [1, 3])
def test_an_answer_for_a_parameter_is_good_where_it_was_asked_for(surrounded: bool, levels: int) -> None:
    inner = Server("inner")

    @inner.tool
    def order(ctx: Context, pizza: str, size: Annotated[int, Ask("Which size?")]) -> str:
        return f"{size} cm {pizza}, state {ctx.request_state}"

    if surrounded:

        @inner.middleware
        def layer(call: Any) -> Iterator[None]:
            yield

    served = through_mounts(inner, levels)
    order_a_pizza = {"name": "order", "arguments": {"pizza": "Margherita"}}
    capable = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    asked = ask(served, "tools/call", envelope=capable, **order_a_pizza)
    assert list(asked["inputRequests"]) == ["size"]
    answers = {"size": {"action": "accept", "content": {"size": 30}}}
    more = {"inputResponses": answers, "requestState": asked["requestState"]}
    answer = ask(served, "tools/call", envelope=capable, **order_a_pizza, **more)
    assert answer["content"][0]["text"] == "30 cm Margherita, state None"


def test_a_tool_of_a_mounted_server_runs_as_a_task() -> None:
    from linkspan import Tasks

    inner, shop = Server("inner"), Server("shop")

    @inner.tool(task=True)
    def slow(ctx: Context, value: str) -> str:
        ctx.progress(1, 2)
        return f"slow {value}"

    shop.mount(inner, "i")

    async def main() -> None:
        async with Client(shop, extensions=[Tasks()]) as client:
            assert (await client.call_tool("i_slow", {"value": "x"})).text == "slow x"

    asyncio.run(main())
    with SyncClient(shop) as client:
        assert client.call_tool("i_slow", {"value": "y"}).text == "slow y"


def test_an_updated_resource_of_a_mounted_server_is_heard_of() -> None:
    shop, inner = Server("shop"), weather()
    shop.mount(inner)
    sent: list[Any] = []
    shop._announcer.send = lambda change, audience, *_, **__: sent.append((change.uri, audience)) or 0  # type: ignore[method-assign]
    inner.notify_resource_updated("weather://stations")
    inner.notify_resource_updated("weather://rome/now")
    inner.notify_resource_updated("elsewhere://x")
    assert sent == [("weather://stations", [None]), ("weather://rome/now", [None])]


def test_results_that_are_too_large_are_kept_by_the_server_that_made_them() -> None:
    inner, shop = Server("Inner Server", max_result=1000), Server("shop", max_result=3000)
    inner.define_tool("large", handler=lambda: "x" * 2000)
    shop.define_tool("larger", handler=lambda: "y" * 4000)
    shop.mount(inner, "i")
    with SyncClient(shop) as client:
        for name, text, server in (("i_large", "x" * 2000, "inner-server"), ("larger", "y" * 4000, "shop")):
            link = next(each for each in client.call_tool(name).content if each.type == "resource_link")
            assert link.uri.startswith(f"result://{server}/")
            assert client.read_resource(link.uri).contents[0].text == text


def test_middleware_around_and_its_audit_name_the_mounted_server(caplog: Any) -> None:
    shop = Server("shop")
    shop.mount(weather(), "w")
    shop.define_tool("own", handler=lambda: "own")
    shop.middleware(Audit())
    with caplog.at_level(logging.INFO, "linkspan.audit"):
        call(shop, "w_forecast", days=1)
        call(shop, "own")
    assert [(each.tool, each.server) for each in caplog.records] == [("w_forecast", "weather"), ("own", None)]
