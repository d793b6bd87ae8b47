"""Many principals call through one client: none sees, loses or ends what is another's (SEC-19, HL-7)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from faces import ERAS, wait_until

from linkspan import Client, ClientClosed, InvalidResponse, Limits, StateLost, SyncClient, Timeouts
from linkspan.auth import ClientCredentials
from raw_http import RawServer, Request, http, message

pytestmark = pytest.mark.timeout(60)
BRIEF = Timeouts(close=0.5)
GREETED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}


class Bound:
    """The steps of a handshake server whose sessions belong to whoever began them; a stranger's do not exist."""

    def __init__(self) -> None:
        self.owners: dict[str, str | None] = {}
        self.begun: list[str | None] = []
        self.ended: list[str] = []
        self._lock = threading.Lock()

    def plan(self) -> dict[str, Callable[[Request], Sequence[Any]]]:
        return {
            "initialize": self._begin,
            "tools/call": self._answer,
            "logging/setLevel": lambda request: self._guarded(request, http(200, message({}))),
            "DELETE": self._end,
        }

    def _begin(self, request: Request) -> Sequence[Any]:
        with self._lock:
            session = f"s{len(self.begun)}"
            self.owners[session] = request.headers.get("authorization")
            self.begun.append(request.headers.get("authorization"))
        return [http(200, message(GREETED), headers=[f"Mcp-Session-Id: {session}"])]

    def _answer(self, request: Request) -> Sequence[Any]:
        said = f"{request.headers.get('authorization')} in {request.headers.get('mcp-session-id')}"
        return self._guarded(request, http(200, message({"content": [{"type": "text", "text": said}]})))

    def _guarded(self, request: Request, answer: http) -> Sequence[Any]:
        session = request.headers.get("mcp-session-id", "")
        known = session in self.owners and self.owners[session] == request.headers.get("authorization")
        return [answer if known else http(404, "Session not found", "text/plain")]

    def _end(self, request: Request) -> Sequence[Any]:
        self.ended.append(request.headers["mcp-session-id"])
        return [http(200)]


@pytest.fixture
def bound() -> Iterator[tuple[Bound, RawServer]]:
    sessions = Bound()
    with RawServer(sessions.plan(), era="legacy") as server:
        yield sessions, server


def test_each_principal_has_a_session_of_its_own(bound: tuple[Bound, RawServer]) -> None:
    sessions, server = bound
    events: list[Any] = []
    with SyncClient(server.url, auth="own", timeouts=BRIEF, on_event=events.append) as client:
        said = [client.call_tool("hi", auth=each).text for each in (None, "a", "b", "a", None, "b")]
    assert said == [
        "Bearer own in s0", "Bearer a in s1", "Bearer b in s2", "Bearer a in s1", "Bearer own in s0", "Bearer b in s2",
    ]  # fmt: skip
    assert sessions.begun == ["Bearer own", "Bearer a", "Bearer b"]
    assert sorted(sessions.ended) == ["s0", "s1", "s2"]
    assert not any(isinstance(each, StateLost) for each in events)


def test_a_session_that_is_forgotten_costs_its_principal_only(bound: tuple[Bound, RawServer]) -> None:
    sessions, server = bound
    events: list[Any] = []
    with SyncClient(server.url, timeouts=BRIEF, on_event=events.append) as client:
        for auth in (None, "a", "b"):
            client.call_tool("hi", auth=auth)
        del sessions.owners["s1"]
        said = [client.call_tool("hi", auth=each).text for each in ("a", "b", None)]
        wait_until(lambda: any(isinstance(each, StateLost) for each in events))
    assert said == ["Bearer a in s3", "Bearer b in s2", "None in s0"]
    assert sum(isinstance(each, StateLost) for each in events) == 1


def test_calls_that_wait_for_the_first_connection_go_to_the_sessions_of_their_principals(
    bound: tuple[Bound, RawServer],
) -> None:
    _, server = bound

    async def run() -> list[str]:
        client = Client(server.url, timeouts=BRIEF)
        calls = [client.call_tool("hi", auth=f"t{number % 5}") for number in range(20)]
        found = await asyncio.gather(*calls)
        await client.close()
        return [each.text for each in found]

    said = asyncio.run(run())
    assert [each.split(" in ")[0] for each in said] == [f"Bearer t{number % 5}" for number in range(20)]
    assert len(set(said)) == 5


def test_sessions_of_principals_are_bounded_and_the_idle_ones_end(bound: tuple[Bound, RawServer]) -> None:
    sessions, server = bound
    with SyncClient(server.url, timeouts=BRIEF, limits=Limits(max_principals=2)) as client:
        for auth in ("a", "b", "a", "c"):
            assert client.call_tool("hi", auth=auth).text.startswith(f"Bearer {auth}")
        wait_until(lambda: sessions.ended == ["s2"])
        client.call_tool("hi", auth="a")
        assert len(sessions.begun) == 4


def test_as_many_sessions_of_principals_as_allowed_stay_and_one_more_ends_the_one_used_least_recently(
    bound: tuple[Bound, RawServer],
) -> None:
    sessions, server = bound
    with SyncClient(server.url, timeouts=BRIEF, limits=Limits(max_principals=3)) as client:

        def call(*names: str) -> list[str]:
            return [client.call_tool("hi", auth=name).text for name in names]

        at_the_bound = ["Bearer a in s1", "Bearer b in s2", "Bearer c in s3"]
        assert call("a", "b", "c") == call("a", "b", "c") == at_the_bound
        assert sessions.ended == []
        assert call("d", "b", "c", "d") == ["Bearer d in s4", "Bearer b in s2", "Bearer c in s3", "Bearer d in s4"]
        wait_until(lambda: sessions.ended == ["s1"])
        assert client.call_tool("hi").text == "None in s0"  # the client's own session does not count
        assert call("a") == ["Bearer a in s5"]


def test_no_more_identities_are_kept_than_principals_allowed() -> None:
    with RawServer() as server, SyncClient(server.url, limits=Limits(max_principals=2)) as client:
        client.ping()
        transport: Any = client._supervisor._transport
        identities = [ClientCredentials(f"id{number}", "secret") for number in range(3)]
        for each in identities:
            transport._accesses.of(each)
        assert transport._accesses.identities == identities[1:]


def test_more_principals_than_sessions_lose_no_call(bound: tuple[Bound, RawServer]) -> None:
    _, server = bound

    async def run() -> list[str]:
        async with Client(server.url, timeouts=BRIEF, limits=Limits(max_principals=2)) as client:

            async def call(number: int) -> list[str]:
                return [(await client.call_tool("hi", auth=f"t{(number + step) % 6}")).text for step in range(6)]

            return [each for said in await asyncio.gather(*map(call, range(6))) for each in said]

    said = [each.split(" in ")[0] for each in asyncio.run(run())]
    assert said == [f"Bearer t{(number + step) % 6}" for number in range(6) for step in range(6)]


def test_what_is_asked_of_a_session_is_asked_of_all(bound: tuple[Bound, RawServer]) -> None:
    _, server = bound
    with SyncClient(server.url, timeouts=BRIEF, roots=["."]) as client:
        client.call_tool("hi", auth="a")
        client.set_logging_level("debug")
        client.notify_roots_changed()
        client.call_tool("hi", auth="b")

        def sent(method: str) -> set[str | None]:
            return {each.headers.get("authorization") for each in server.requests if each.json.get("method") == method}

        wait_until(lambda: sent("logging/setLevel") == {None, "Bearer a", "Bearer b"})
        wait_until(lambda: sent("notifications/roots/list_changed") == {None, "Bearer a"})


def test_headers_that_differ_with_each_request_name_no_principal(bound: tuple[Bound, RawServer]) -> None:
    sessions, server = bound
    with SyncClient(server.url, timeouts=BRIEF) as client:
        for number in range(3):
            client.call_tool("hi", headers={"X-Request-Id": str(number), "traceparent": f"00-{number}"})
    assert sessions.begun == [None]


def test_a_client_that_is_closed_closes_all_sessions_and_may_connect_again(bound: tuple[Bound, RawServer]) -> None:
    sessions, server = bound
    client = SyncClient(server.url, timeouts=BRIEF)
    client.call_tool("hi", auth="a")
    client.close()
    with pytest.raises(ClientClosed):
        client.call_tool("hi", auth="a")
    client.connect()
    assert client.call_tool("hi", auth="a").text == "Bearer a in s3"
    client.close()
    assert sorted(sessions.ended) == ["s0", "s1", "s2", "s3"]


def test_one_connection_serves_all_principals_in_the_modern_era() -> None:
    with RawServer() as server, SyncClient(server.url) as client:
        for number in range(10):
            client.call_tool("hi", auth=f"t{number}")
        assert server.methods().count("server/discover") == 1


# What each was shown.


def _tool(name: str, result: str, header: str | None) -> dict[str, Any]:
    number: dict[str, Any] = {"type": "integer"} | ({"x-mcp-header": header} if header else {})
    return {
        "name": name,
        "inputSchema": {"type": "object", "properties": {"n": number}},
        "outputSchema": {"type": "object", "properties": {"result": {"type": result}}},
    }


SHOWN = {
    "Bearer a": [_tool("count", "integer", "Alpha")],
    "Bearer b": [_tool("count", "string", "Beta")],
    None: [_tool("other", "string", None)],
}


def _lists(request: Request) -> Sequence[Any]:
    tools = SHOWN[request.headers.get("authorization")]
    return [http(200, json.dumps({"jsonrpc": "2.0", "id": request.json["id"], "result": {
        "resultType": "complete", "tools": tools,
    }}))]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("strict", [True, False])
def test_catalogue_and_output_checks_are_those_of_the_principal(era: Any, strict: bool) -> None:
    pytest.importorskip("jsonschema_rs")
    answer = {"resultType": "complete", "content": [], "structuredContent": {"result": 7}}
    plan = {"tools/list": _lists, "tools/call": [http(200, message(answer))]}
    options: Any = {"check_output": "strict" if strict else "lenient"}
    with RawServer(plan, era=era) as server, SyncClient(server.url, era=era, timeouts=BRIEF, **options) as client:
        if not strict:
            for auth in ("a", "b", None):
                client.list_tools(auth=auth)
        for _ in range(2):
            assert client.call_tool("count", {"n": 1}, auth="a").structured == {"result": 7}
            if strict:
                with pytest.raises(InvalidResponse, match="does not fit its schema"):
                    client.call_tool("count", {"n": 1}, auth="b")
            else:
                assert len(client.call_tool("count", {"n": 1}, auth="b").problems) == 1
                assert not client.call_tool("count", {"n": 1}, auth="a").problems
            assert not client.call_tool("count", {"n": 1}).problems  # it was never shown to the client itself


def test_header_plans_are_those_of_the_principal() -> None:
    with RawServer({"tools/list": _lists}) as server:
        with SyncClient(server.url) as client:
            for auth in ("a", "b", None):
                client.list_tools(auth=auth)
                client.call_tool("count", {"n": 1}, auth=auth)
            client.request("tools/call", {"name": "count", "arguments": {"n": 1}}, auth="b")
        sent = [
            {name: value for name, value in each.headers.items() if name.startswith("mcp-param-")}
            for each in server.requests
            if each.json.get("method") == "tools/call"
        ]
    assert sent == [{"mcp-param-alpha": "1"}, {"mcp-param-beta": "1"}, {}, {"mcp-param-beta": "1"}]


def test_the_catalogue_of_a_token_that_a_function_returns_is_its_own() -> None:
    token = "a"
    with RawServer({"tools/list": _lists}) as server, SyncClient(server.url, auth=lambda: token) as client:
        client.list_tools()
        client.call_tool("count", {"n": 1})
        token = "b"
        client.call_tool("count", {"n": 1})
        client.list_tools()
        client.call_tool("count", {"n": 1})
        sent = [
            [name for name in each.headers if name.startswith("mcp-param-")]
            for each in server.requests
            if each.json.get("method") == "tools/call"
        ]
    assert sent == [["mcp-param-alpha"], [], ["mcp-param-beta"]]


def test_catalogues_are_bounded() -> None:
    with RawServer() as server, SyncClient(server.url, limits=Limits(max_principals=3)) as client:
        for number in range(10):
            client.list_tools(auth=f"t{number}")
        assert len(client._state.others) == 3


def test_as_many_catalogues_as_allowed_stay_and_one_more_costs_the_oldest_only() -> None:
    with (
        RawServer({"tools/list": _lists}) as server,
        SyncClient(server.url, limits=Limits(max_principals=2)) as client,
    ):

        def named(*names: str) -> list[list[str]]:
            """Call the tool for each principal; return the headers that its catalogue asks for."""
            before = len(server.requests)
            for name in names:
                client.call_tool("count", {"n": 1}, auth=name)
            sent = [each for each in server.requests[before:] if each.json.get("method") == "tools/call"]
            return [[header for header in each.headers if header.startswith("mcp-param-")] for each in sent]

        for auth in ("a", "b", None):  # the client's own catalogue does not count
            client.list_tools(auth=auth)
        assert named("a", "b", "a") == [["mcp-param-alpha"], ["mcp-param-beta"], ["mcp-param-alpha"]]
        assert named("c", "b", "a") == [[], ["mcp-param-beta"], []]
