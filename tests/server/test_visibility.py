"""Who sees what: tags, disable and enable, and `when`, for every kind of item and in both eras."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mounts
from linkspan import Context, Prompt, RegistrationError, Resource, ResourceTemplate, Server, Tool
from linkspan.core.call import Ports
from linkspan.core.connection import ServerConnection
from linkspan.errors import DuplicateNameError
from linkspan.revisions import LATEST, LATEST_LEGACY
from linkspan.revisions.neutral import TransportInfo
from linkspan.wire.jsonrpc import decode
from linkspan.wire.values import DEFAULT_LIMITS
from talk import run

way = mounts.way
PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {f"{PREFIX}protocolVersion": LATEST.date, f"{PREFIX}clientCapabilities": {}}


def admin(ctx: Context) -> bool:
    return ctx.principal == "admin"


async def admin_later(ctx: Context) -> bool:
    await asyncio.sleep(0)
    return ctx.principal == "admin"


class Caller:
    """One client of a server, with a principal of its own."""

    def __init__(self, server: Server, principal: str | None, *, modern: bool = True) -> None:
        self.facts = TransportInfo(principal=principal)
        self.connection: ServerConnection = server.connect(ports=Ports(nullcontext()))
        self.meta = {"_meta": ENVELOPE} if modern else {}
        self.notified: list[str] = []
        if not modern:
            info = {"name": "c", "version": "1"}
            self.ask("initialize", protocolVersion=LATEST_LEGACY.date, capabilities={}, clientInfo=info)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> list[Any]:
        data = json.dumps(message).encode()
        run_awaiting(self.connection, self.connection.receive(decode(data, DEFAULT_LIMITS), self.facts))
        return self.heard()

    def heard(self) -> list[Any]:
        """Return the responses that came, and keep the notifications."""
        messages = [json.loads(each) for each in self.connection.messages_to_send()]
        self.notified += [each["method"] for each in messages if "method" in each]
        return [each for each in messages if "method" not in each]

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request, or its error."""
        params = {**params, **self.meta}
        answers = self.send({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        answer = answers[-1] if answers else {"result": None}
        return answer.get("result", answer.get("error"))

    def listen(self, *uris: str) -> None:
        kinds = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
        if self.meta:
            params = {"notifications": {**kinds, "resourceSubscriptions": list(uris)}, **self.meta}
            self.send({"jsonrpc": "2.0", "id": "listen", "method": "subscriptions/listen", "params": params})
            self.notified.clear()
        else:
            for uri in uris:
                self.ask("resources/subscribe", uri=uri)

    def news(self) -> list[str]:
        """Return the notifications since the last time."""
        self.heard()
        news, self.notified = self.notified, []
        return [each.removeprefix("notifications/") for each in news]

    def tools(self) -> list[str]:
        return names(self, "tools/list", "tools", "name")


def run_awaiting(connection: ServerConnection, events: Any) -> None:
    """Run what a connection hands out, and await what must be awaited."""

    class Awaiting:
        def finish(self, call: Any, value: Any) -> Any:
            if hasattr(type(value), "__await__"):

                async def wait() -> Any:
                    return await value

                try:
                    value = asyncio.run(wait())
                except Exception as error:
                    return connection.fail(call, error)
            return connection.finish(call, value)

    run(Awaiting(), events)  # type: ignore[arg-type]


def names(caller: Caller, method: str, member: str, key: str) -> list[str]:
    """Return a whole list, page after page."""
    found: list[str] = []
    page = caller.ask(method)
    while True:
        found += [each[key] for each in page[member]]
        if "nextCursor" not in page:
            return found
        page = caller.ask(method, cursor=page["nextCursor"])


def both(server: Server) -> Iterator[tuple[Caller, Caller]]:
    """Return an administrator and a user, in each era."""
    for modern in (True, False):
        yield Caller(server, "admin", modern=modern), Caller(server, "user", modern=modern)


def shop(when: Callable[..., object] = admin, **options: Any) -> Server:
    """A server with one item of each kind for administrators, and one for all."""
    server = Server("shop", request_state_keys=["a key for tests that is long enough"], **options)

    @server.tool(when=when)
    def refund(order: int) -> str:
        return f"refunded {order}"

    @server.tool(when=when)
    async def refund_all() -> str:
        return "all"

    @server.tool
    def order(item: str) -> str:
        return item

    @server.prompt(when=when)
    def audit(level: str) -> str:
        return f"Audit at {level}"

    @server.prompt
    def greet() -> str:
        return "Hello"

    @server.resource("shop://books", when=when)
    def books() -> str:
        return "the books"

    @server.resource("shop://{year}/sales", when=when)
    def sales(year: str) -> str:
        return f"sales of {year}"

    @server.resource("shop://menu")
    def menu() -> str:
        return "the menu"

    @server.completion("audit", "level")
    def levels(value: str) -> list[str]:
        return ["high", "low"]

    @server.completion("shop://{year}/sales", "year")
    def years(value: str) -> list[str]:
        return ["2025"]

    return server


LISTS = [
    ("tools/list", "tools", "name", ["refund", "refund_all"], ["order"]),
    ("prompts/list", "prompts", "name", ["audit"], ["greet"]),
    ("resources/list", "resources", "uri", ["shop://books"], ["shop://menu"]),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", ["shop://{year}/sales"], []),
]
every_when = pytest.mark.parametrize("when", [admin, admin_later, lambda ctx: admin_later(ctx)])


@every_when
def test_lists_show_what_the_caller_sees(when: Any) -> None:
    for boss, user in both(shop(when)):
        for method, member, key, hidden, shown in LISTS:
            assert names(boss, method, member, key) == hidden + shown
            assert names(user, method, member, key) == shown


HIDDEN = [
    ("tools/call", {"name": "refund", "arguments": {"order": 1}}, {"name": "refunx", "arguments": {"order": 1}}),
    ("tools/call", {"name": "refund_all"}, {"name": "refund_alx"}),
    (
        "prompts/get",
        {"name": "audit", "arguments": {"level": "high"}},
        {"name": "audix", "arguments": {"level": "high"}},
    ),
    ("resources/read", {"uri": "shop://books"}, {"uri": "shop://boox"}),
    ("resources/read", {"uri": "shop://2025/sales"}, {"uri": "shop://2025/salex"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "audit"}, "argument": {"name": "level", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "audix"}, "argument": {"name": "level", "value": ""}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "shop://{year}/sales"}, "argument": {"name": "year", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "shop://{year}/salex"}, "argument": {"name": "year", "value": ""}},
    ),
]


@every_when
@pytest.mark.parametrize(("method", "hidden", "unknown"), HIDDEN)
def test_what_is_hidden_is_answered_as_what_does_not_exist(
    when: Any, method: str, hidden: dict[str, Any], unknown: dict[str, Any]
) -> None:
    for boss, user in both(shop(when)):
        assert "code" not in boss.ask(method, **hidden)
        refused, expected = user.ask(method, **hidden), user.ask(method, **unknown)
        told = json.dumps(expected).replace("refunx", "refund").replace("refund_alx", "refund_all")
        told = told.replace("audix", "audit").replace("boox", "books").replace("salex", "sales")
        assert refused == json.loads(told)
        assert "code" in refused


def test_only_what_a_caller_sees_is_suggested() -> None:
    for boss, user in both(shop()):
        assert "did you mean 'refund'" in boss.ask("tools/call", name="refnd")["message"]
        assert "did you mean" not in user.ask("tools/call", name="refnd")["message"]


def test_pages_stay_right_while_callers_see_different_items() -> None:
    server = Server("pages", page_size=2)
    for n in range(9):
        server.tool(name=f"t{n}", when=(admin, lambda: True, None)[n % 3])(lambda: "ok")
    expected = [f"t{n}" for n in range(9)]
    for boss, user in both(server):
        assert boss.tools() == expected
        assert user.tools() == [each for n, each in enumerate(expected) if n % 3]


def test_lists_that_depend_on_the_caller_are_private_whatever_was_set() -> None:
    server = shop(cache_scope="public", ttl_ms=1000)
    user = Caller(server, "user")
    for method, *_ in LISTS:
        assert user.ask(method)["cacheScope"] == "private"
    boss = Caller(server, "admin")
    assert boss.ask("resources/read", uri="shop://books")["cacheScope"] == "private"
    assert boss.ask("resources/read", uri="shop://menu")["cacheScope"] == "public"
    assert Caller(Server("plain", cache_scope="public"), "user").ask("tools/list")["cacheScope"] == "public"


@mounts.DIRECT  # the pages are those of the server that is served
def test_callers_who_see_the_same_share_the_bytes_of_a_page() -> None:
    server = shop()
    registry = server._catalogue.tools
    for principal in ("user", "admin", "other", "admin", None):
        Caller(server, principal).ask("tools/list")
    assert len(registry._pages) == 2


def test_a_hidden_resource_keeps_its_uri() -> None:
    server = Server("docs")
    server.define_resource("docs://secret", text="secret", when=admin)
    server.resource("docs://{name}")(lambda name: f"page {name}")
    user = Caller(server, "user")
    assert user.ask("resources/read", uri="docs://other")["contents"][0]["text"] == "page other"
    assert "code" in user.ask("resources/read", uri="docs://secret")
    server.enable("docs://secret")
    server.disable("docs://secret")
    assert "code" in Caller(server, "admin").ask("resources/read", uri="docs://secret")


@mounts.DIRECT  # a handler for all that is read is that of the server that is served
def test_a_read_handler_does_not_serve_what_is_hidden() -> None:
    server = Server("docs", resources=[Resource("docs://secret", when=admin), Resource("docs://open")])
    server.define_resource_template("docs://{year}/{month}", tags={"archive"})
    server.resources_read_handler(lambda params: [{"uri": params["uri"], "text": "read"}])
    for boss, user in both(server):
        assert "contents" in boss.ask("resources/read", uri="docs://secret")
        assert "code" in user.ask("resources/read", uri="docs://secret")
        assert "contents" in user.ask("resources/read", uri="docs://open")
        assert "contents" in user.ask("resources/read", uri="docs://unlisted")
        assert "contents" in user.ask("resources/read", uri="docs://2025/05")
        server.disable("archive")
        assert "code" in user.ask("resources/read", uri="docs://2025/05")
        server.enable("archive")


@mounts.DIRECT  # the server that is served answers with the lists
def test_middleware_around_lists_and_calls_sees_what_the_caller_sees() -> None:
    server = shop()
    seen: list[Any] = []

    @server.middleware
    def watch(call: Any) -> Any:
        result = yield
        seen.append((call.method, call.tool is not None, [each.name for each in getattr(result, "tools", [])]))

    for boss, user in both(server):
        boss.ask("tools/list"), user.ask("tools/list")
        boss.ask("tools/call", name="refund", arguments={"order": 1})
        user.ask("tools/call", name="refund", arguments={"order": 1})
        assert seen == [
            ("tools/list", False, ["refund", "refund_all", "order"]),
            ("tools/list", False, ["order"]),
            ("tools/call", True, []),
            ("tools/call", False, []),
        ]
        seen.clear()


def test_a_condition_that_raises_hides_the_item_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(ctx: Context) -> bool:
        raise KeyError("secret: hunter2")

    reported: list[BaseException] = []
    server = shop(broken, exception_reporter=lambda error, _: reported.append(error))
    user = Caller(server, "admin")
    with caplog.at_level(logging.ERROR):
        assert user.tools() == ["order"]
    (record,) = caplog.records
    assert "when=test_a_condition" in record.getMessage() or "when=broken" in record.getMessage()
    assert "incident" in record.getMessage()
    assert len(reported) == 1
    assert "hunter2" not in json.dumps(user.ask("tools/call", name="refund", arguments={"order": 1}))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_condition_that_would_end_the_process_hides_the_item(error: type[BaseException]) -> None:
    def broken() -> bool:
        raise error

    server = shop(broken)
    connection = Caller(server, "admin").connection
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "refund", "_meta": ENVELOPE}}
    (ready,) = connection.receive(decode(json.dumps(request).encode(), DEFAULT_LIMITS))
    call = ready.call
    with pytest.raises(error):
        call.run()
    connection.fail(call, error())
    (answer,) = connection.messages_to_send()
    assert b"Unknown tool" in answer


def test_a_condition_cannot_ask_the_user() -> None:
    def asks(ctx: Context) -> bool:
        return bool(ctx.ask("really", bool, "Really?"))

    assert Caller(shop(asks), "admin").tools() == ["order"]


def test_one_function_is_asked_once_for_a_request() -> None:
    asked: list[str | None] = []

    def condition(ctx: Context) -> bool:
        asked.append(ctx.principal)
        return True

    server = shop(condition)
    Caller(server, "user").tools()
    assert asked == ["user"]


def test_classes_and_in_place_definitions_take_tags_and_when() -> None:
    class Secret(Tool):
        tags = ("admin",)

        def when(self, ctx: Context) -> bool:
            return ctx.principal == "admin"

        def call(self) -> str:
            return "secret"

    class Hidden(Prompt):
        when = staticmethod(admin)

        def template(self, args: Any) -> str:
            return "hidden"

    class Page(Resource):
        uri = "page://one"
        when = lambda ctx: ctx.principal == "admin"  # noqa: E731

        def contents(self) -> str:
            return "page"

    class Pages(ResourceTemplate):
        uri_template = "pages://{name}"
        when = admin

        def contents(self, name: str) -> str:
            return name

    server = Server("classes", tools=[Secret], prompts=[Hidden], resources=[Page], resource_templates=[Pages])
    server.define_tool("placed", handler=lambda: "ok", when=admin)
    for boss, user in both(server):
        assert boss.tools() == ["secret", "placed"]
        assert user.tools() == []
        assert [len(names(boss, method, member, key)) for method, member, key, *_ in LISTS[1:]] == [1, 1, 1]
        assert [len(names(user, method, member, key)) for method, member, key, *_ in LISTS[1:]] == [0, 0, 0]
    assert server.disable("admin") == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"when": True}, "takes a function"),
        ({"when": lambda one, two: True}, "nothing else that is required"),
        ({"when": lambda *, ctx: True}, "nothing else that is required"),
        ({"when": lambda: (yield)}, "yields"),
        ({"tags": "beta"}, "a set of strings"),
        ({"tags": [1]}, "a set of strings"),
    ],
)
def test_wrong_tags_and_conditions_are_refused_at_registration(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Server("shop").tool(name="t", **options)(lambda: "ok")


def test_tags_stay_off_the_wire() -> None:
    server = Server("shop")
    server.tool(name="t", tags={"beta"})(lambda: "ok")
    assert "beta" not in json.dumps(server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))


# Headers that repeat arguments.


def test_a_hidden_tool_asks_for_no_headers() -> None:
    from typing import Annotated

    from linkspan import Header
    from linkspan.core.http_checks import compare_headers

    server = Server("http")

    @server.tool(when=admin)
    def region(name: Annotated[str, Header("Region")]) -> str:
        return name

    def call(principal: str, header: str | None) -> Any:
        headers = {
            "mcp-protocol-version": LATEST.date,
            "mcp-method": "tools/call",
            "mcp-name": "region",
            **({"mcp-param-region": header} if header is not None else {}),
        }
        caller = Caller(server, principal)
        caller.facts = TransportInfo(headers, principal)
        caller.connection = server.connect(ports=Ports(nullcontext(), check=compare_headers))
        return caller.ask("tools/call", name="region", arguments={"name": "eu"})

    assert call("admin", "eu")["content"][0]["text"] == "eu"
    assert "Mcp-Param-Region" in call("admin", "us")["message"]
    assert "Unknown tool" in call("user", "us")["message"]
    assert "Unknown tool" in call("user", None)["message"]


# Switches.


def test_a_name_and_a_tag_are_switched_alike_and_items_return_to_their_places() -> None:
    server = Server("shop", page_size=2)
    for name, tags in (("a", {"beta"}), ("b", set[str]()), ("c", {"beta"}), ("d", set[str]())):
        server.tool(name=name, tags=tags)(lambda: "ok")
    user = Caller(server, None)
    first = user.ask("tools/list")
    assert server.disable("beta") == 2
    assert user.tools() == ["b", "d"]
    assert server.disable("b") == 1
    assert server.disable("b") == 0
    assert user.tools() == ["d"]
    assert "Unknown tool" in user.ask("tools/call", name="a")["message"]
    assert server.enable("beta") == 2
    assert server.enable("b") == 1
    assert user.tools() == ["a", "b", "c", "d"]
    assert [each["name"] for each in user.ask("tools/list", cursor=first["nextCursor"])["tools"]] == ["c", "d"]


def test_of_several_switches_the_last_that_matches_an_item_decides() -> None:
    server = Server("shop")
    server.tool(name="export", tags={"beta"})(lambda: "ok")
    server.tool(name="import", tags={"beta"})(lambda: "ok")
    user = Caller(server, None)
    server.disable("beta")
    server.enable("export")
    assert user.tools() == ["export"]
    server.disable("beta")
    assert user.tools() == []
    server.tool(name="later", tags={"beta"})(lambda: "ok")
    assert user.tools() == []
    server.enable("beta")
    assert user.tools() == ["export", "import", "later"]


def test_a_name_that_is_also_a_tag_means_both_and_kind_chooses() -> None:
    server = Server("shop")
    server.tool(name="report")(lambda: "ok")
    server.tool(name="other", tags={"report"})(lambda: "ok")
    server.prompt(name="report")(lambda: "ok")
    assert server.disable("report", kind="prompt") == 1
    assert server.disable("report", kind="tool") == 2
    assert server.enable("report") == 3
    with pytest.raises(RegistrationError, match="kind must be one of tool, prompt, resource, template"):
        server.disable("report", kind="tools")  # type: ignore[arg-type]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    server = Server("shop")
    server.tool(name="report", tags={"beta"})(lambda: "ok")
    with pytest.raises(RegistrationError, match="did you mean 'report'"):
        server.disable("reprot")
    with pytest.raises(RegistrationError, match="did you mean 'beta'"):
        server.enable("bta")
    with pytest.raises(RegistrationError, match="no prompt with"):
        server.disable("report", kind="prompt")
    with pytest.raises(TypeError, match="it takes name_or_tag, kind"):
        server.disable(tags={"beta"})  # type: ignore[call-arg]


def test_what_is_disabled_keeps_its_name_until_it_is_removed() -> None:
    server = Server("shop")
    server.tool(name="report")(lambda: "one")
    server.disable("report")
    with pytest.raises(DuplicateNameError):
        server.tool(name="report")(lambda: "two")
    assert server.remove_tool("report")
    server.tool(name="report")(lambda: "two")
    assert Caller(server, None).tools() == ["report"]


def test_a_server_whose_items_are_all_off_still_offers_the_list() -> None:
    server = Server("shop")
    server.tool(name="report")(lambda: "one")
    server.prompt(name="p")(lambda: "p")
    server.disable("report")
    assert "tools" in Caller(server, None).ask("server/discover")["capabilities"]
    assert Caller(server, None).tools() == []


# Notifications.


@contextmanager
def listening(server: Server, *uris: str) -> Iterator[dict[str, Caller]]:
    """Give listeners in both eras, for two principals."""
    found = {
        f"{principal} {'modern' if modern else 'legacy'}": Caller(server, principal, modern=modern)
        for principal in ("admin", "user")
        for modern in (True, False)
    }
    for each in found.values():
        each.listen(*uris)
        each.news()
    yield found


ALL = {"admin modern", "admin legacy", "user modern", "user legacy"}
ADMINS = {"admin modern", "admin legacy"}


def reached(listeners: dict[str, Caller]) -> set[str]:
    """Return who received something since the last time."""
    return {name for name, each in listeners.items() if each.news()}


def test_changes_of_lists_reach_those_who_see_an_item_that_changed() -> None:
    server = shop(auto_notify=True)
    with listening(server) as listeners:
        server.tool(name="more", when=admin)(lambda: "ok")
        assert reached(listeners) == ADMINS
        server.tool(name="open", tags={"beta"})(lambda: "ok")
        assert reached(listeners) == ALL
        server.disable("more")
        assert reached(listeners) == ADMINS
        server.disable("more")
        assert reached(listeners) == set()
        server.remove_tool("more")
        assert reached(listeners) == set()
        server.disable("beta")
        assert reached(listeners) == ALL
        server.tool(name="later", tags={"beta"})(lambda: "ok")
        assert reached(listeners) == set()
        server.enable("beta")
        assert reached(listeners) == ALL
        server.remove_tool("refund")
        assert reached(listeners) == ADMINS
        server.remove_resource("shop://{year}/sales")
        assert reached(listeners) == ADMINS
        assert server.notify_tools_list_changed() == 4
        assert reached(listeners) == ALL


def test_changes_of_a_resource_reach_those_who_see_it() -> None:
    server = shop()
    with listening(server, "shop://books", "shop://2025/sales", "shop://menu") as listeners:
        assert server.notify_resource_updated("shop://books") == 2
        assert reached(listeners) == ADMINS
        assert server.notify_resource_updated("shop://2025/sales") == 2
        assert reached(listeners) == ADMINS
        server.notify_resource_updated("shop://menu")
        assert reached(listeners) == ALL
        server.disable("shop://menu")
        reached(listeners)
        assert server.notify_resource_updated("shop://menu") == 0
        assert reached(listeners) == set()


@every_when
def test_subscribing_to_a_hidden_resource_is_answered_as_to_an_unknown_one(when: Any) -> None:
    server = shop(when)
    user, boss = Caller(server, "user", modern=False), Caller(server, "admin", modern=False)
    refused = user.ask("resources/subscribe", uri="shop://books")
    unknown = user.ask("resources/subscribe", uri="shop://boox")
    assert json.dumps(refused) == json.dumps(unknown).replace("boox", "books")
    assert boss.ask("resources/subscribe", uri="shop://books") == {}
    assert user.ask("resources/unsubscribe", uri="shop://books") == {}
    params = {"notifications": {"resourceSubscriptions": ["shop://books", "shop://menu"]}, "_meta": ENVELOPE}
    for principal, honoured in (("user", ["shop://menu"]), ("admin", ["shop://books", "shop://menu"])):
        modern = Caller(server, principal)
        request = {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}
        run_awaiting(
            modern.connection,
            modern.connection.receive(decode(json.dumps(request).encode(), DEFAULT_LIMITS), modern.facts),
        )
        (acknowledged,) = [json.loads(each) for each in modern.connection.messages_to_send()]
        assert acknowledged["params"]["notifications"]["resourceSubscriptions"] == honoured


def test_async_conditions_are_asked_in_the_background_before_clients_are_notified() -> None:
    async def main() -> None:
        server = shop(auto_notify=True)
        with listening(server) as listeners:
            server.tool(name="more", when=admin_later)(lambda: "ok")
            for _ in range(20):
                await asyncio.sleep(0)
            assert reached(listeners) == ADMINS

    asyncio.run(main())


def test_a_condition_that_raises_notifies_no_client(caplog: pytest.LogCaptureFixture) -> None:
    server = shop(auto_notify=True)
    with listening(server) as listeners:
        server.tool(name="more", when=lambda ctx: 1 / 0)(lambda: "ok")
        assert reached(listeners) == set()


def test_no_lock_is_held_while_conditions_are_asked() -> None:
    held: list[bool] = []

    class Lock:
        depth = 0

        def __enter__(self) -> None:
            Lock.depth += 1

        def __exit__(self, *_: object) -> None:
            Lock.depth -= 1

    def watching(ctx: Context) -> bool:
        held.append(Lock.depth > 0)
        return True

    server = shop(watching, auto_notify=True)
    caller = Caller(server, "user")
    caller.connection = server.connect(ports=Ports(Lock()))
    caller.listen("shop://books")
    caller.tools()
    caller.ask("tools/call", name="refund", arguments={"order": 1})
    server.tool(name="more", when=watching)(lambda: "ok")
    server.notify_resource_updated("shop://books")
    assert len(held) == 5
    assert not any(held)


# Any sequence of changes.

PRINCIPALS = ("a", "b", None)
item_names = st.sampled_from(["x", "y", "z", "beta"])
tag_sets = st.sets(st.sampled_from(["beta", "x", "old"]), max_size=2)
audiences = st.none() | st.sets(st.sampled_from(PRINCIPALS))
operations = st.lists(
    st.tuples(st.just("add"), item_names, tag_sets, audiences)
    | st.tuples(st.just("remove"), item_names)
    | st.tuples(st.sampled_from(["disable", "enable"]), st.sampled_from(["x", "y", "z", "beta", "old"]))
    | st.tuples(st.just("see"), item_names, st.sets(st.sampled_from(PRINCIPALS))),
    max_size=12,
)


class Model:
    """What a server must do, in the simplest words."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[set[str], Any]] = {}
        self.calls: list[tuple[str, bool]] = []

    def is_on(self, name: str) -> bool:
        tags, _ = self.items[name]
        meant = [on for said, on in self.calls if said == name or said in tags]
        return meant[-1] if meant else True

    def sees(self, principal: str | None, name: str) -> bool:
        _, audience = self.items[name]
        return audience is None or principal in audience

    def listed(self, principal: str | None) -> list[str]:
        return [name for name in self.items if self.is_on(name) and self.sees(principal, name)]

    def visible_to(self, changed: list[str]) -> set[str | None]:
        return {each for each in PRINCIPALS if any(self.sees(each, name) for name in changed)}

    def apply(self, server: Server, operation: tuple[Any, ...]) -> set[str | None]:
        """Do it here and there; return who must be notified."""
        match operation:
            case "add", name, tags, audience:
                if name in self.items:
                    with pytest.raises(DuplicateNameError):
                        server.tool(name=name)(lambda: "ok")
                    return set()
                self.items[name] = tags, audience
                items = self.items
                when = None if audience is None else (lambda ctx: ctx.principal in items[name][1])
                server.tool(name=name, tags=tags, when=when)(lambda: "ok")
                return self.visible_to([name] if self.is_on(name) else [])
            case "remove", name:
                told = self.visible_to([name]) if name in self.items and self.is_on(name) else set[str | None]()
                if name in self.items:
                    # the condition looks the item up, so it goes last
                    assert server.remove_tool(name)
                    del self.items[name]
                    if not any(name in tags for tags, _ in self.items.values()):
                        self.calls = [each for each in self.calls if each[0] != name]
                else:
                    assert not server.remove_tool(name)
                return told
            case "see", name, audience:
                if name not in self.items or self.items[name][1] is None:
                    return set()
                self.items[name] = self.items[name][0], audience
                server.notify_tools_list_changed()
                return set(PRINCIPALS)
            case what, said:
                known = {*self.items, *(tag for tags, _ in self.items.values() for tag in tags)}
                if said not in known:
                    with pytest.raises(RegistrationError):
                        server.disable(said)
                    return set()
                before = {name: self.is_on(name) for name in self.items}
                self.calls.append((said, what == "enable"))
                changed = [name for name in self.items if self.is_on(name) != before[name]]
                assert (server.enable if what == "enable" else server.disable)(said) == len(changed)
                return self.visible_to(changed)
        raise AssertionError(operation)


@settings(max_examples=60, deadline=None)
@given(operations, st.booleans(), st.none() | st.integers(1, 3))
def test_lists_and_notifications_are_those_of_a_simple_model(
    todo: list[tuple[Any, ...]], modern: bool, page_size: int | None
) -> None:
    server, model = Server("model", auto_notify=True, page_size=page_size), Model()
    listeners = {each: Caller(server, each, modern=modern) for each in PRINCIPALS}
    for each in listeners.values():
        each.listen()
        each.news()
    for operation in todo:
        expected = model.apply(server, operation)
        assert {each for each, listener in listeners.items() if listener.news()} == expected, operation
        for principal in PRINCIPALS:
            assert Caller(server, principal).tools() == model.listed(principal)
