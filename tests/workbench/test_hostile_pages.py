"""What a page of another origin, or a program without the key, can make the workbench do: nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping

import pytest

from benches import Desk, desk
from linkspan import Server

CALL = json.dumps({"kind": "tool", "name": "ping"}).encode()
EVIL = "http://evil.example"


def shop() -> Server:
    server = Server("shop", version="1.0.0")
    server.define_tool(name="ping", handler=lambda: "pong")
    return server


@pytest.fixture(scope="module")
def bench() -> Iterator[Desk]:
    with desk(shop()) as found:
        yield found


REFUSED: list[tuple[str, int, str, str, bytes | None, Mapping[str, str | None]]] = [
    ("a rebound name", 403, "POST", "/api/call", CALL, {"Host": "evil.example"}),
    ("a rebound name with our port", 403, "GET", "/api/state", None, {"Host": "evil.example:PORT"}),
    ("a name that begins like ours", 403, "GET", "/api/state", None, {"Host": "127.0.0.1.evil.example:PORT"}),
    ("another port", 403, "GET", "/api/state", None, {"Host": "127.0.0.1:1"}),
    ("no host", 403, "GET", "/api/state", None, {"Host": None}),
    ("a foreign origin", 403, "POST", "/api/call", CALL, {"Origin": EVIL}),
    ("an opaque origin", 403, "POST", "/api/call", CALL, {"Origin": "null"}),
    ("the origin of another port", 403, "POST", "/api/call", CALL, {"Origin": "http://127.0.0.1:1"}),
    ("our origin over https", 403, "POST", "/api/call", CALL, {"Origin": "https://127.0.0.1:PORT"}),
    ("a page of the same site", 403, "POST", "/api/call", CALL, {"Sec-Fetch-Site": "same-site"}),
    ("a page of another site", 403, "GET", "/api/state", None, {"Sec-Fetch-Site": "cross-site"}),
    ("a frame of another site", 403, "GET", "/", None, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
    ("a script of another site", 403, "GET", "/state.js", None, {"Sec-Fetch-Site": "cross-site"}),
    ("no key", 403, "POST", "/api/call", CALL, {"Linkspan-Bench": None}),
    ("an empty key", 403, "GET", "/api/events", None, {"Linkspan-Bench": ""}),
    ("a wrong key", 403, "GET", "/api/state", None, {"Linkspan-Bench": "x" * 43}),
    ("a key in the query", 403, "GET", "/api/state?t=KEY", None, {"Linkspan-Bench": None}),
    ("a form", 415, "POST", "/api/call", b"kind=tool&name=ping", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("a text that is JSON", 415, "POST", "/api/call", CALL, {"Content-Type": "text/plain"}),
    ("a body without an end", 413, "POST", "/api/call", CALL, {"Content-Length": "99999999999"}),
    ("another file of the package", 403, "GET", "/../bench.py", None, {"Linkspan-Bench": None}),
    ("another file with the key", 404, "GET", "/assets/../bench.py", None, {}),
    ("a method that is not ours", 501, "OPTIONS", "/api/call", None, {"Origin": EVIL}),
]


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "headers"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_what_is_not_our_page_gets_nothing(
    bench: Desk, status: int, method: str, path: str, body: bytes | None, headers: Mapping[str, str | None]
) -> None:
    port, key = str(bench.server.port), bench.server.token
    given = {name: value.replace("PORT", port) if value is not None else None for name, value in headers.items()}
    got, sent, data = bench.send(method, path.replace("KEY", key), body, given)
    assert got == status
    assert b"shop" not in data
    assert status != 403 or data == b""
    assert not [name for name in sent if name.startswith("access-control-")]
    assert bench.bench.exchanges.shown() == []


COMMANDS = [
    {"target": "rm -rf /"},
    {"command": ["sh", "-c", "true"]},
    {"kind": "tool", "name": "ping", "command": "sh"},
    {"kind": "tool", "name": "ping", "url": "http://evil.example/mcp"},
    {"kind": "tool", "name": "ping", "env": {"PATH": "/tmp"}},
    {"kind": "tool", "name": "ping", "cwd": "/"},
    {"kind": "exec", "name": "ping"},
    {"kind": "tool", "name": ["ping"]},
    {"kind": "tool", "name": "ping", "headers": {"Host": "x"}},
    ["ping"],
    "ping",
]


@pytest.mark.parametrize("path", ["call", "restart", "declare", "answer", "complete", "subscribe", "start", "open"])
@pytest.mark.parametrize("body", COMMANDS, ids=lambda each: json.dumps(each)[:40])
def test_no_request_can_name_a_command_a_file_or_a_url(bench: Desk, path: str, body: object) -> None:
    status, _, _ = bench.send("POST", f"/api/{path}", json.dumps(body).encode())
    assert status in (400, 404)
    assert bench.bench.exchanges.shown() == []
    assert bench.bench.state()["generation"] == 1


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"kind":"tool","name":"\\ud800"'])
def test_a_damaged_body_is_refused(bench: Desk, body: bytes) -> None:
    assert bench.send("POST", "/api/call", body)[0] == 400


def test_our_own_page_is_served_under_a_strict_policy(bench: Desk) -> None:
    for origin in (f"http://127.0.0.1:{bench.server.port}", None):
        status, sent, data = bench.send("GET", "/", None, {"Origin": origin, "Linkspan-Bench": None})
        assert status == 200
        assert bench.server.token.encode() not in data
    policy = sent["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "trusted-types 'none'" in policy
    assert (sent["cross-origin-opener-policy"], sent["cache-control"]) == ("same-origin", "no-store")


def test_a_link_of_another_site_opens_the_empty_page_only(bench: Desk) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Linkspan-Bench": None}
    assert bench.send("GET", "/", None, link)[0] == 200
    assert bench.send("GET", "/api/state", None, link)[0] == 403


def test_it_listens_on_this_machine_only_and_holds_few_connections(bench: Desk) -> None:
    assert bench.server._server.server_address[0] == "127.0.0.1"  # pyright: ignore[reportPrivateUsage]
    idle = [socket.create_connection(("127.0.0.1", bench.server.port)) for _ in range(60)]
    try:
        bench.until(lambda: sum(_is_closed(each) for each in idle) >= 60 - 32)
    finally:
        for each in idle:
            each.close()
    bench.until(lambda: _answers(bench))


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def _answers(bench: Desk) -> bool:
    try:
        return bench.send("GET", "/api/state")[0] == 200
    except OSError:
        return False


def test_the_assets_are_small() -> None:
    import gzip

    with desk(shop()) as found:
        from linkspan.workbench.serving import _ASSETS

        bodies = [found.send("GET", path)[2] for path in _ASSETS]
    assert sum(map(len, bodies)) < 130_000
    assert sum(len(gzip.compress(each)) for each in bodies) < 40_000
