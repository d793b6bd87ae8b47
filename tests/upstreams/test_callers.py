"""Each caller of a mounted server elsewhere has a client, lists and calls of their own; what is down costs its own items."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest
from elsewhere import Elsewhere, make_server

from linkspan import (
    Call,
    CallToolResult,
    ClientError,
    Context,
    RegistrationError,
    Server,
    ServerError,
    Stopper,
    SyncClient,
)
from linkspan.revisions.neutral import TransportInfo


class Personal:
    """A server elsewhere that is another one for each connection: with a secret, and a tool, of its own."""

    name = "personal"

    def __init__(self) -> None:
        self.servers: list[Server] = []

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        number = len(self.servers) + 1
        server = Server(f"personal-{number}")
        notes: list[str] = []

        @server.tool
        def remember(text: str) -> list[str]:
            notes.append(text)
            return notes

        @server.tool(name=f"only_{number}")
        def only() -> str:
            return f"secret of {number}"

        @server.resource(f"secret://{number}")
        def secret() -> str:
            return f"secret of {number}"

        self.servers.append(server)
        return server.connect(ports=ports)


class As:
    """A server as one principal reaches it, over HTTP as it were."""

    def __init__(self, server: Server, principal: str | None) -> None:
        self.name = server.name
        self._server = server
        self._facts = TransportInfo(headers={"user-agent": "test"}, principal=principal)

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        import msgspec

        return self._server.connect(ports=msgspec.structs.replace(ports, facts=self._facts, session=None))


def until(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def test_principals_share_nothing() -> None:
    personal, server = Personal(), Server("here")
    server.mount(personal)
    with SyncClient(As(server, "alice")) as alice, SyncClient(As(server, "bob")) as bob:
        assert alice.call_tool("remember", {"text": "alice's"}).structured == {"result": ["alice's"]}
        assert bob.call_tool("remember", {"text": "bob's"}).structured == {"result": ["bob's"]}
        assert [each.name for each in alice.list_tools()] == ["remember", "only_1"]
        assert [each.name for each in bob.list_tools()] == ["remember", "only_2"]
        assert alice.read_resource("secret://1").contents[0].text == "secret of 1"
        for of_alice in ("only_1", "only_3"):
            with pytest.raises(ServerError, match="Unknown tool"):
                bob.call_tool(of_alice)
        with pytest.raises(ServerError, match="not found"):
            bob.read_resource("secret://1")
    assert len(personal.servers) == 2


def test_connections_without_a_principal_are_apart_too() -> None:
    personal, server = Personal(), Server("here")
    server.mount(personal)
    with SyncClient(server) as one, SyncClient(server) as other:
        one.call_tool("remember", {"text": "one's"})
        assert other.call_tool("remember", {"text": "other's"}).structured == {"result": ["other's"]}


def test_callers_that_nothing_tells_apart_are_refused_unless_they_share() -> None:
    server = Server("here")
    mounted = server.mount(Elsewhere(make_server()))
    with SyncClient(As(server, None)) as client:
        with pytest.raises(ServerError, match="does not know its callers"):
            client.list_tools()
        mounted.remove()
        elsewhere = Elsewhere(make_server())
        server.mount(elsewhere, shared=True)
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        with SyncClient(As(server, "alice")) as alice:
            alice.call_tool("add", {"a": 1, "b": 2})
    assert elsewhere.opened == 1


class Counting:
    """Counts the requests that reach a server, by method."""

    def __init__(self, server: Server) -> None:
        self.seen: list[str] = []

        @server.middleware
        def count(call: Call) -> Generator[None, Any, Any]:
            self.seen.append(call.method)
            result: Any = yield
            return result


def test_a_call_costs_one_request_and_a_list_that_is_known_none() -> None:
    there, server = make_server(), Server("here")
    counting = Counting(there)
    server.mount(Elsewhere(there))
    with SyncClient(server, max_cached_bytes=0) as client:
        client.list_tools()
        counting.seen.clear()
        for _ in range(10):
            client.call_tool("add", {"a": 1, "b": 2})
            client.list_tools()
    assert counting.seen == ["tools/call"] * 10


def test_changes_reach_the_callers_whose_they_are() -> None:
    personal, server = Personal(), Server("here")
    server.mount(personal)
    heard: dict[str, list[Any]] = {"alice": [], "bob": []}
    with (
        SyncClient(As(server, "alice"), on_change=heard["alice"].append) as alice,
        SyncClient(As(server, "bob"), on_change=heard["bob"].append) as bob,
    ):
        alice.list_tools()
        bob.list_tools()
        alice.subscribe("secret://1")
        time.sleep(0.1)

        @personal.servers[0].tool
        def added() -> str:
            return "new"

        personal.servers[0].notify_tools_list_changed()
        until(lambda: any(each.kind == "tools" for each in heard["alice"]))
        assert "added" in [each.name for each in alice.list_tools()]
        personal.servers[0].notify_resource_updated("secret://1")
        until(lambda: any(each.uri == "secret://1" for each in heard["alice"]))
    assert heard["bob"] == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_that_is_cancelled_ends_there(era: Any) -> None:
    there, began, ended = Server("there"), threading.Event(), threading.Event()

    @there.tool
    async def hang() -> str:
        import asyncio

        began.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return "late"

    server = Server("here")
    server.mount(Elsewhere(there), era=era)
    stopper = Stopper()
    with SyncClient(server, era=era) as client:
        threading.Thread(target=lambda: began.wait(30) and stopper.stop()).start()
        with pytest.raises(ClientError, match="stopped"):
            client.call_tool("hang", stopper=stopper)
        assert ended.wait(30)


def test_a_server_that_is_down_costs_its_own_items(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("here")

    @server.tool
    def own() -> str:
        return "own"

    mounted = server.mount(["/nonexistent/command"], "gone")
    there = server.mount(Elsewhere(make_server()), "there")
    assert [each.status for each in (mounted, there)] == ["not asked yet", "not asked yet"]
    with SyncClient(server) as client:
        assert client.call_tool("own").text == "own"
        assert [each.name for each in client.list_tools()] == ["own", "there_add", "there_greet", "there_fail"]
        assert client.call_tool("there_add", {"a": 1, "b": 2}).text == "3"
    assert mounted.name == "command"
    assert mounted.status == "command: the command '/nonexistent/command' was not found"
    assert there.status == "connected"
    assert Server("around").mount(server).status == "here"
    assert {each.message for each in caplog.records if each.levelname == "WARNING"} == {
        "mount: command: the command '/nonexistent/command' was not found"
    }


def test_a_required_server_that_is_down_is_an_error_of_the_list() -> None:
    server = Server("here")
    server.mount(["/nonexistent/command"], required=True)
    with SyncClient(server) as client, pytest.raises(ServerError, match=r"command: .*nonexistent"):
        client.list_tools()


def test_a_server_that_hangs_is_waited_for_once() -> None:
    server = Server("here")

    @server.tool
    def own() -> str:
        return "own"

    server.mount(["sleep", "60"], "hung", list_timeout=4.0)
    with SyncClient(server, max_cached_bytes=0) as client:
        assert [each.name for each in client.list_tools()] == ["own"]
        began = time.monotonic()
        assert [each.name for each in client.list_tools()] == ["own"]
        assert time.monotonic() - began < 3.5


def test_the_lists_of_many_servers_come_at_the_same_time() -> None:
    at_once, many = threading.Barrier(20), Server("here")
    for number in range(20):
        server = Server(f"s{number}")
        server.tool(name="ping")(lambda: "pong")

        @server.middleware(only=["tools/list"], blocking=True)
        def wait(call: Call) -> Generator[None, Any, Any]:
            at_once.wait(60)  # breaks unless the others are asked meanwhile
            return (yield)

        many.mount(Elsewhere(server), f"s{number}", list_timeout=60)
    with SyncClient(many) as client:
        assert len(client.list_tools()) == 20
    assert not at_once.broken


class Slow(Elsewhere):
    """A server elsewhere that can be reached once it `may` be."""

    def __init__(self) -> None:
        super().__init__(make_server())
        self.may = threading.Event()

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        self.may.wait(60)
        return super().connect(ports=ports)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_lists_that_come_too_late_for_the_first_list_of_a_client_are_announced(era: Any) -> None:
    server, slow, changes = Server("here"), Slow(), list[Any]()
    server.tool(name="own")(lambda: "own")
    server.mount(slow, list_timeout=0.05)
    with SyncClient(server, era=era, on_change=changes.append) as client:
        assert [each.name for each in client.list_tools()] == ["own"]
        slow.may.set()
        until(lambda: any(each.kind == "tools" for each in changes), 60)
        assert [each.name for each in client.list_tools()] == ["own", "add", "greet", "fail"]


def test_a_function_of_the_context_gives_each_caller_their_own_token() -> None:
    server, seen = Server("here"), list[str]()

    def token(ctx: Context) -> str:
        seen.append(str(ctx.principal))
        return f"token-of-{ctx.principal}"

    server.mount(Elsewhere(make_server()), auth=token)
    with SyncClient(As(server, "alice")) as alice:
        alice.list_tools()
        assert alice.call_tool("add", {"a": 1, "b": 2}).text == "3"
    assert seen == ["alice", "alice"]


def test_what_the_mount_hides_renames_and_edits_holds() -> None:
    from linkspan import Edit

    server = Server("here")
    edits = {"add": Edit(name="plus_two", fix={"b": 2})}
    server.mount(Elsewhere(make_server()), "x", hide=["fail"], rename={"greet": "hello"}, edits=edits)
    with SyncClient(server) as client:
        assert [each.name for each in client.list_tools()] == ["plus_two", "hello"]
        assert client.call_tool("plus_two", {"a": 40}).text == "42"
        server.disable("hello")
        assert [each.name for each in client.list_tools()] == ["plus_two"]


def test_conditions_and_scopes_of_the_mount_hold() -> None:
    server = Server("here")
    server.mount(Elsewhere(make_server()), when=lambda ctx: ctx.principal == "alice")
    with SyncClient(As(server, "alice")) as alice, SyncClient(As(server, "bob")) as bob:
        assert len(alice.list_tools()) == 3
        assert bob.list_tools() == []
        with pytest.raises(ServerError, match="Unknown tool"):
            bob.call_tool("add", {"a": 1, "b": 2})
        assert alice.call_tool("add", {"a": 1, "b": 2}).text == "3"


def test_middleware_sees_the_result_of_a_server_elsewhere() -> None:
    server, seen = Server("here"), list[Any]()

    @server.middleware(only=["tools/call"])
    def look(call: Call) -> Generator[None, Any, Any]:
        result: Any = yield
        if isinstance(result, CallToolResult):
            seen.append((call.name, call.server, result.content[0].text))
        return result

    server.mount(Elsewhere(make_server()), "x")
    with SyncClient(server, elicitation=lambda _: {"age": 7}) as client:
        assert client.call_tool("x_add", {"a": 1, "b": 2}).text == "3"
        assert client.call_tool("x_greet", {"name": "Bo"}).text == "Bo is 7"
    assert seen == [("x_add", "there", "3"), ("x_greet", "there", "Bo is 7")]


def test_a_handler_reads_what_is_mounted() -> None:
    server = Server("here")
    server.mount(Elsewhere(make_server()))

    @server.tool
    def through(ctx: Context) -> str:
        return str(ctx.read_resource("fixed://a").contents[0].text)

    with SyncClient(server) as client:
        client.list_tools()
        assert client.call_tool("through").text == "A"


def test_what_is_no_target_is_refused() -> None:
    with pytest.raises(RegistrationError, match="scheme 'ftp'"):
        Server("here").mount("ftp://example.com")
