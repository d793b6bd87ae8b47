"""A server may speak some of the revisions only: `Server(revisions=...)`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from linkspan import Client, Configuration, HttpPolicy, Server, SyncClient, UnsupportedProtocolVersion
from linkspan.errors import INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION
from linkspan.flows.client_errors import ClientError
from linkspan.revisions import ALL, LATEST, LEGACY, MODERN, REVISIONS, served_revisions
from linkspan.revisions.neutral import NO_FACTS, TransportInfo
from linkspan.serve.http import make_endpoint
from talk import say

PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {f"{PREFIX}protocolVersion": LATEST.date, f"{PREFIX}clientCapabilities": {}}
DATES = list(REVISIONS)
HANDSHAKES = f"<{MODERN[0]}"


def adder(revisions: Any, **options: Any) -> Server:
    server = Server("adder", revisions=revisions, **options)

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest.mark.parametrize(
    ("choice", "dates"),
    [
        (None, DATES),
        (DATES[2], DATES[2:3]),
        (f">={DATES[2]}", DATES[2:]),
        (f"> {DATES[2]}", DATES[3:]),
        (f"<={DATES[2]}", DATES[:3]),
        (f">={DATES[1]}, <{DATES[3]}", DATES[1:3]),
        ([DATES[4], DATES[0]], [DATES[0], DATES[4]]),
        ({DATES[1]}, [DATES[1]]),
    ],
)
def test_revisions_are_chosen_by_a_list_or_by_conditions(choice: Any, dates: list[str]) -> None:
    assert served_revisions(choice).versions == dates[::-1]


@pytest.mark.parametrize(
    "choice",
    [
        "2025",
        ">=2025-06-17",
        "~=2025-06-18",
        "",
        [],
        ["2025"],
        [3],
        f">{DATES[-1]}",
        f"<{DATES[1]},>{DATES[2]}",
        "modern",
    ],
)
def test_a_choice_of_no_revision_is_refused_with_the_list(choice: Any) -> None:
    with pytest.raises(UnsupportedProtocolVersion, match=f"{DATES[4]}, {DATES[3]}.*{DATES[0]}"):
        Server(revisions=choice)


def test_the_proposed_revision_must_be_among_them() -> None:
    with pytest.raises(UnsupportedProtocolVersion, match="change one of them"):
        Server(revisions=f">={DATES[2]}", configuration=Configuration(protocol_version=DATES[0]))


def initialize(server: Server, version: str) -> Any:
    info = {"name": "c", "version": "1"}
    (answer,) = say(server.connect(), "initialize", 1, protocolVersion=version, capabilities={}, clientInfo=info)
    return answer


def test_a_handshake_agrees_on_one_that_is_served() -> None:
    server = adder(f">={DATES[1]}, <={DATES[2]}")
    agreed = {wanted: initialize(server, wanted)["result"]["protocolVersion"] for wanted in (*DATES, "other")}
    assert agreed == {
        DATES[0]: DATES[2],
        DATES[1]: DATES[1],
        DATES[2]: DATES[2],
        DATES[3]: DATES[2],
        DATES[4]: DATES[2],
        "other": DATES[2],
    }


def test_an_envelope_of_another_revision_is_answered_with_those_that_are_served() -> None:
    (answer,) = say(adder(HANDSHAKES).connect(), "tools/list", 1, _meta=ENVELOPE)
    assert answer["error"]["code"] == UNSUPPORTED_PROTOCOL_VERSION
    assert answer["error"]["data"] == {"supported": list(LEGACY[::-1]), "requested": LATEST.date}
    (answer,) = say(adder(None).connect(), "tools/list", 1, _meta=ENVELOPE)
    assert "result" in answer


def test_a_server_without_handshakes_names_its_revisions() -> None:
    server = adder(list(MODERN))
    error = initialize(server, LEGACY[-1])["error"]
    assert (error["code"], error["data"]) == (INVALID_PARAMS, {"supported": list(MODERN), "requested": LEGACY[-1]})
    (answer,) = say(server.connect(), "tools/list", 1)
    assert answer["error"]["data"] == {"supported": list(MODERN)}
    assert "initialize" not in answer["error"]["message"]
    lone: Any = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert lone["error"]["data"] == {"supported": list(MODERN)}
    (answer,) = say(server.connect(), "tools/call", 1, name="add", arguments={"a": 1, "b": 2}, _meta=ENVELOPE)
    assert answer["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize("revisions", [None, [DATES[0], *MODERN], list(MODERN)])
def test_discover_and_the_page_list_what_is_served(revisions: Any) -> None:
    server = adder(revisions)
    expected = (DATES if revisions is None else revisions)[::-1]
    (answer,) = say(server.connect(), "server/discover", 1, _meta=ENVELOPE)
    assert answer["result"]["supportedVersions"] == expected
    assert f"speaks MCP {', '.join(expected)}" in server.page("http://localhost").body.decode()


@pytest.mark.parametrize("revisions", [None, HANDSHAKES, list(MODERN), f"<={DATES[1]}", DATES[0]])
def test_our_clients_find_a_revision(revisions: Any) -> None:
    server = adder(revisions)
    with SyncClient(server) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"

    async def main() -> None:
        async with Client(server) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"

    asyncio.run(main())


def test_a_client_that_insists_on_another_revision_fails_in_words() -> None:
    with pytest.raises(ClientError), SyncClient(adder(HANDSHAKES), protocol_version=LATEST.date) as client:
        client.list_tools()


# Over HTTP.


def post(server: Server, body: dict[str, Any], headers: dict[str, str], **policy: Any) -> tuple[int, Any]:
    endpoint = make_endpoint(server, HttpPolicy(**policy))
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", **headers}
    opened = endpoint.open("POST", "/mcp", headers, json.dumps(body).encode(), TransportInfo(headers))
    response = opened.exchange.response
    assert response is not None
    return response.status, json.loads(response.body)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MODERN_LIST = request("server/discover", _meta=ENVELOPE)
MODERN_HEADERS = {"mcp-protocol-version": LATEST.date, "mcp-method": "server/discover"}
HELLO = request("initialize", protocolVersion=LEGACY[-1], capabilities={}, clientInfo={"name": "c", "version": "1"})


def test_a_modern_request_over_http_gets_400_and_the_handshake_revisions() -> None:
    server = adder(HANDSHAKES)
    for body, headers in ((MODERN_LIST, MODERN_HEADERS), (request("tools/list"), MODERN_HEADERS)):
        status, answer = post(server, body, headers)
        assert (status, answer["error"]["code"]) == (400, UNSUPPORTED_PROTOCOL_VERSION)
        assert answer["error"]["data"] == {"supported": list(LEGACY[::-1]), "requested": LATEST.date}
    assert post(server, HELLO, {})[1]["result"]["protocolVersion"] == LEGACY[-1]


def test_without_handshakes_every_request_over_http_needs_the_envelope() -> None:
    server = adder(list(MODERN))
    assert post(server, MODERN_LIST, MODERN_HEADERS)[1]["result"]["supportedVersions"] == list(MODERN)
    for body in (HELLO, request("tools/list")):
        status, answer = post(server, body, {})
        assert (status, answer["error"]["code"]) == (400, INVALID_PARAMS)
        assert answer["error"]["data"] == {"supported": list(MODERN)}
    status, answer = post(server, request("tools/list"), {"mcp-protocol-version": LEGACY[-1]})
    assert (status, answer["error"]["data"]["supported"]) == (400, list(MODERN))
    endpoint = make_endpoint(server, HttpPolicy(http_sse="/sse"))
    for method, headers in (("GET", {"accept": "text/event-stream"}), ("DELETE", {"mcp-session-id": "x"})):
        response = endpoint.open(method, "/sse", headers, b"", NO_FACTS).exchange.response
        assert response is not None
        assert response.status == 405


def test_a_request_without_a_version_is_refused_where_its_revision_is_not_served() -> None:
    server = adder(f">={DATES[2]}")
    status, answer = post(server, request("tools/list"), {}, sessions=False)
    assert (status, answer["error"]["data"]["requested"]) == (400, DATES[1])
    assert post(server, request("tools/list"), {"mcp-protocol-version": DATES[2]}, sessions=False)[0] == 200
    assert post(server, HELLO, {}, sessions=False)[0] == 200


def test_the_http_sse_pair_agrees_on_what_is_served() -> None:
    server = adder(DATES[0])
    endpoint = make_endpoint(server, HttpPolicy(http_sse="/sse"))
    opened = endpoint.open("GET", "/sse", {"accept": "text/event-stream"}, b"", NO_FACTS)
    first = b"".join(getattr(each, "data", b"") for each in opened.exchange.events())
    query = first.split(b"data: ?")[1].split()[0].decode()
    endpoint.open("POST", "/sse", {}, json.dumps(HELLO).encode(), NO_FACTS, query=query)
    events = b"".join(getattr(each, "data", b"") for each in opened.exchange.events())
    assert f'"protocolVersion":"{DATES[0]}"'.encode() in events


def test_a_server_that_is_not_restricted_shares_one_choice() -> None:
    assert Server("plain").connect().served is ALL
