"""Who is let in: Host, Origin, CORS, methods, media types, and the bounds on a request. SEC-1, H5-2, H5-4, H5-11."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from http_faces import FACES, Asgi, Face, OnALoop, Wsgi
from http_talk import BOTH, body, call, mirror, modern
from http_world import same_server

from linkspan.core.http_checks import LOOPBACK, Gate, HttpPolicy, is_over_loopback

Serve = Callable[..., Face]
LISTED = {"allowed_hosts": [*LOOPBACK, "mcp.example.com", "only.example.com:8443"]}
PING = body("tools/list")

HOSTS: dict[str | None, int] = {
    "127.0.0.1:8000": 200,
    "localhost": 200,
    "LOCALHOST:9": 200,
    "[::1]:8000": 200,
    "[::1]": 200,
    "mcp.example.com": 200,
    "mcp.example.com:443": 200,
    "only.example.com:8443": 200,
    "only.example.com": 421,
    "evil.example.com": 421,
    "mcp.example.com.evil.com": 421,
    "evil-mcp.example.com": 421,
    "localhost.evil.com:8000": 421,
    "127.0.0.1:8000, evil.example.com": 400,
    "127.0.0.1@evil.com": 400,
    "127.0.0.1:80@evil.com": 400,
    "localhost:evil.example": 400,
    "localhost:8000:evil.example": 400,
    "mcp.example.com:x": 400,
    "mcp.example.com:65536": 400,
    "only.example.com:8443@evil.com": 400,
    "[::1]:x": 400,
    "[::1]evil.example": 400,
    "[::1]:80@evil.example": 400,
    "[::1": 400,
    "[": 400,
    "[localhost]": 400,
    "::1": 400,
    "http://localhost": 400,
    "localhost/evil": 400,
    "localhost evil": 400,
    "localhost%": 400,
    "": 400,
    None: 400,
}


@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_only_listed_hosts_are_served(host: str | None, serve: Serve) -> None:
    answer = serve(same_server(), **LISTED).ask("POST", {**mirror(PING), "host": host}, PING)
    assert answer.status == HOSTS[host], answer.body


LOOPBACK_ONLY: dict[str, int] = {
    "127.0.0.1:8000": 200,
    "localhost": 200,
    "localhost:": 200,
    "127.8.9.10:8000": 200,
    "[::1]:65535": 200,
    "[0:0:0:0:0:0:0:1]": 200,
    "[::ffff:127.0.0.1]:8000": 200,
    "evil.example:8000": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "0.0.0.0:8000": 421,
    "128.0.0.1:8000": 421,
    "10.0.0.5": 421,
    "[::2]": 421,
    "localhost:evil.example": 400,
    "": 400,
}


@pytest.mark.parametrize("host", LOOPBACK_ONLY, ids=str)
def test_over_loopback_only_its_names_are_served_unless_others_are_listed(host: str, serve: Serve) -> None:
    """SEC-1: a page whose name leads to 127.0.0.1 sends its own name."""
    answer = serve(same_server()).ask("POST", mirror(PING) | {"host": host}, PING)
    assert answer.status == LOOPBACK_ONLY[host], answer.body


def test_over_loopback_its_names_are_served_besides_those_that_are_listed(serve: Serve) -> None:
    face = serve(same_server(), allowed_hosts=["mcp.example.com"])
    wanted = {"mcp.example.com": 200, "mcp.example.com:443": 200, "localhost:8000": 200, "evil.example": 421}
    assert {host: face.ask("POST", mirror(PING) | {"host": host}, PING).status for host in wanted} == wanted


ARRIVALS: dict[tuple[str | None, str | None], bool] = {
    ("127.0.0.1", "127.0.0.1"): True,
    ("127.0.0.1", "203.0.113.7"): True,  # the peer that a proxy names
    ("127.1.2.3", None): True,
    ("::1", "::1"): True,
    ("::ffff:127.0.0.1", "::ffff:127.0.0.1"): True,
    ("0.0.0.0", "127.0.0.1"): True,
    ("::", "::1"): True,
    ("::", "::ffff:127.0.0.1"): True,
    ("localhost", "127.0.0.1"): True,
    ("waitress.invalid", "127.0.0.1"): True,
    (None, "127.0.0.1"): True,
    ("10.0.0.5", "127.0.0.1"): False,
    ("10.0.0.5", "10.0.0.6"): False,
    ("128.0.0.1", "127.0.0.1"): False,
    ("fe80::1%eth0", "::1"): False,
    ("0.0.0.0", "10.0.0.6"): False,
    ("::", "2001:db8::1"): False,
    ("testserver", "testclient"): False,
    ("waitress.invalid", "localhost"): False,  # waitress on a Unix socket
    ("/run/mcp.sock", "127.0.0.1"): False,
    ("/run/mcp.sock", None): False,
    (None, None): False,
}


@pytest.mark.parametrize("addresses", ARRIVALS, ids=str)
def test_what_came_over_loopback(addresses: tuple[str | None, str | None], serve: Serve) -> None:
    face = serve(same_server())
    face.own, face.peer = addresses
    status = 421 if ARRIVALS[addresses] else 200
    assert face.ask("POST", mirror(PING) | {"host": "mcp.example.com"}, PING).status == status
    assert is_over_loopback(*addresses) is ARRIVALS[addresses]


SOCKETS: dict[str, tuple[dict[str, Any], int]] = {
    "gunicorn": ({"gunicorn.socket": ("127.0.0.1", 8000), "SERVER_NAME": "0.0.0.0"}, 421),
    "gunicorn on a Unix socket": ({"gunicorn.socket": "/run/mcp.sock", "SERVER_NAME": "127.0.0.1"}, 200),
    "gunicorn elsewhere": ({"gunicorn.socket": ("10.0.0.5", 8000), "SERVER_NAME": "127.0.0.1"}, 200),
    "CGI": ({"SERVER_ADDR": "127.0.0.1", "SERVER_NAME": "mcp.example.com"}, 421),
    "CGI elsewhere": ({"SERVER_ADDR": "10.0.0.5", "SERVER_NAME": "127.0.0.1"}, 200),
}


@pytest.mark.parametrize("server", SOCKETS)
def test_a_wsgi_server_names_its_address_in_one_of_these_ways(server: str) -> None:
    environ, status = SOCKETS[server]
    if address := environ.get("gunicorn.socket"):
        environ = environ | {"gunicorn.socket": SimpleNamespace(getsockname=lambda: address)}
    request = {"REQUEST_METHOD": "POST", "HTTP_HOST": "mcp.example.com", "REMOTE_ADDR": "127.0.0.1"}
    told: list[str] = []
    data = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    body = {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(data)), "wsgi.input": io.BytesIO(data)}
    app = same_server().wsgi(sessions=False)
    b"".join(app(request | body | environ, lambda status, _: told.append(status)))
    assert told[0].startswith("202" if status == 200 else "421")


@pytest.mark.parametrize("version", ["1.0", "1.1", "2"])
def test_a_request_names_its_host_since_http_1_1(version: str, serve: Serve) -> None:
    """RFC 9112 section 3.2."""
    face = serve(same_server())
    face.version = version
    assert face.ask("POST", {**mirror(PING), "host": None}, PING).status == (421 if version == "1.0" else 400)
    face.own = "10.0.0.5"
    assert face.ask("POST", {**mirror(PING), "host": None}, PING).status == (200 if version == "1.0" else 400)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("host", ["[", "[::1", "a b", "user@host", "host:x", "host:99999", "a.example,b.example", ""])
def test_a_host_that_is_invalid_is_a_bad_request_where_any_is_served(host: str, path: str, serve: Serve) -> None:
    face = serve(same_server(), http_sse="/sse")
    face.own = "10.0.0.5"
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert face.ask(method, {"host": host, "accept": BOTH}, path=path, query="session=x").status == 400
    assert face.ask("POST", mirror(PING) | {"host": "what.ever"}, PING).status == 200


ORIGINS: dict[str | None, int] = {
    None: 200,
    "http://127.0.0.1:8000": 200,
    "http://localhost:6274": 200,
    "http://[::1]:3000": 200,
    "https://app.example.com": 200,
    "https://app.example.com:443": 200,
    "https://app.example.com:444": 403,
    "http://app.example.com": 403,
    "https://app.example.com.evil.com": 403,
    "https://evil.com": 403,
    "https://evil.com/https://app.example.com": 403,
    "https://app.example.com@evil.com": 403,
    "null": 403,
    "http://localhost.evil.com": 403,
    "http://[": 403,
    "": 403,
}


@pytest.mark.parametrize("origin", ORIGINS, ids=str)
def test_only_listed_origins_and_our_own_are_served(origin: str | None, serve: Serve) -> None:
    allowed = ["https://app.example.com", "http://127.0.0.1:8000", "http://localhost:6274", "http://[::1]:3000"]
    answer = serve(same_server(), allowed_origins=allowed, allowed_hosts=LOOPBACK).ask(
        "POST", {**mirror(PING), "origin": origin}, PING
    )
    assert answer.status == ORIGINS[origin], answer.body


ON_LOOPBACK: dict[str, int] = {
    "http://localhost:6274": 200,
    "https://localhost": 200,
    "http://127.0.0.2:3000": 200,
    "http://[::1]:3000": 200,
    "https://evil.com": 403,
    "http://evil.example:8000": 403,
    "http://localhost.evil.com": 403,
    "null": 403,
    "chrome-extension://localhost": 403,
    "chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb": 403,
    "capacitor://localhost": 403,
    "file://": 403,
    "http://localhost:x": 403,
    "localhost": 403,
}


@pytest.mark.parametrize("origin", ON_LOOPBACK)
def test_on_loopback_the_pages_of_loopback_are_allowed(origin: str, serve: Serve) -> None:
    for policy in ({}, {"allowed_hosts": LOOPBACK}):
        face = serve(same_server(), **policy)
        assert face.ask("POST", mirror(PING) | {"origin": origin}, PING).status == ON_LOOPBACK[origin]


ELSEWHERE: dict[tuple[str, str], int] = {
    ("mcp.example.com", "https://mcp.example.com"): 200,
    ("mcp.example.com", "http://mcp.example.com"): 200,  # TLS may end in front of us
    ("mcp.example.com", "https://mcp.example.com:443"): 200,
    ("mcp.example.com:443", "https://mcp.example.com"): 200,
    ("MCP.example.com:8443", "https://mcp.example.com:8443"): 200,
    ("[2001:db8::1]:8000", "http://[2001:DB8:0::1]:8000"): 200,
    ("mcp.example.com:443", "http://mcp.example.com"): 403,
    ("mcp.example.com", "https://mcp.example.com:8443"): 403,
    ("mcp.example.com:8443", "https://mcp.example.com"): 403,
    ("mcp.example.com", "https://evil.example"): 403,
    ("mcp.example.com", "https://mcp.example.com.evil.example"): 403,
    ("mcp.example.com", "https://x.mcp.example.com"): 403,
    ("mcp.example.com", "http://localhost:6274"): 403,
    ("localhost", "http://localhost:6274"): 403,  # the page's localhost is another machine
    ("mcp.example.com", "null"): 403,
    ("mcp.example.com", "chrome-extension://mcp.example.com"): 403,
}


@pytest.mark.parametrize(("host", "origin"), ELSEWHERE, ids=str)
def test_elsewhere_only_the_pages_of_the_same_host_and_port_are_allowed(host: str, origin: str, serve: Serve) -> None:
    """H5-2."""
    face = serve(same_server())
    face.own = "10.0.0.5"
    answer = face.ask("POST", mirror(PING) | {"host": host, "origin": origin}, PING)
    assert answer.status == ELSEWHERE[host, origin], answer.body


@pytest.mark.parametrize("origin", ["null", "chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb", "https://a.example"])
@pytest.mark.parametrize("setting", ["cors", "allowed_origins", "cors=True"])
def test_any_origin_is_allowed_where_it_is_listed(setting: str, origin: str, serve: Serve) -> None:
    policy: dict[str, Any] = {"cors": True} if setting == "cors=True" else {setting: [origin]}
    for own in ("127.0.0.1", "10.0.0.5"):
        face = serve(same_server(), **policy)
        face.own = own
        assert face.ask("POST", mirror(PING) | {"origin": origin}, PING).status == 200


def test_a_list_of_origins_replaces_the_pages_of_loopback_but_not_our_own(serve: Serve) -> None:
    face = serve(same_server(), allowed_origins=["https://app.example.com"])
    wanted = {"https://app.example.com": 200, "http://127.0.0.1:8000": 200, "http://localhost:6274": 403}
    assert {each: face.ask("POST", mirror(PING) | {"origin": each}, PING).status for each in wanted} == wanted


def test_with_a_list_of_origins_a_name_that_nobody_checks_makes_no_page_our_own(serve: Serve) -> None:
    """SEC-1: the page of an attacker whose name leads to our address has that name as Host and as Origin."""
    taken = {"host": "evil.example", "origin": "https://evil.example"}
    face = serve(same_server(), allowed_origins=["https://app.example.com"])
    face.own = "10.0.0.5"
    assert face.ask("POST", mirror(PING) | taken, PING).status == 403
    checked = serve(same_server(), allowed_origins=["https://app.example.com"], allowed_hosts=["evil.example"])
    checked.own = "10.0.0.5"
    assert checked.ask("POST", mirror(PING) | taken, PING).status == 200


NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "accept": "text/html"}
SITES: dict[str, tuple[str, str, dict[str, str], int]] = {
    "an image": ("GET", "/mcp", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    "a stream": ("GET", "/mcp", {"sec-fetch-site": "cross-site", "accept": "text/event-stream"}, 403),
    "a call": ("POST", "/mcp", {"sec-fetch-site": "cross-site"}, 403),
    "a form": ("POST", "/mcp", {**NAVIGATION}, 403),
    "a link to the page": ("GET", "/mcp", NAVIGATION, 200),
    "metadata": ("GET", "/.well-known/x", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, 405),
    "not metadata": ("GET", "/mcp/.well-known/x", {"sec-fetch-site": "cross-site"}, 403),
    "a write to metadata": ("POST", "/.well-known/x", {"sec-fetch-site": "cross-site"}, 403),
    "our own page": ("POST", "/mcp", {"sec-fetch-site": "same-origin"}, 200),
    "typed by a person": ("GET", "/mcp", {"sec-fetch-site": "none", "accept": "text/html"}, 200),
    "listed": ("POST", "/mcp", {"sec-fetch-site": "cross-site", "origin": "http://localhost:6274"}, 200),
}


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("own", ["127.0.0.1", "10.0.0.5"])
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_what_pages_of_other_sites_load_is_refused(name: str, own: str, kind: str) -> None:
    method, path, headers, status = SITES[name]
    face = FACES[kind](same_server(), page=True, cors=["http://localhost:6274"])
    face.own = own
    try:
        sent, data = (mirror(PING) | headers, PING) if method == "POST" else (headers, b"")
        answer = face.ask(method, sent, data, path=path)
        assert answer.status == status, answer.body
    finally:
        face.stop()


def test_a_link_leads_nowhere_where_there_is_no_page(serve: Serve) -> None:
    assert serve(same_server()).ask("GET", NAVIGATION).status == 403


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
def test_host_and_origin_count_for_every_method(method: str, serve: Serve) -> None:
    face = serve(same_server(), allowed_hosts=LOOPBACK)
    assert face.ask(method, {"host": "evil.com", "origin": "https://evil.com"}).status == 421
    assert face.ask(method, {"origin": "https://evil.com"}).status == 403


REFUSALS = {
    "host": (
        {"host": "mcp.acme.io:8443"},
        "Host 'mcp.acme.io:8443' is not served here: add it to allowed_hosts if it is yours; behind a reverse proxy write "
        "allowed_hosts=['mcp.acme.io'] (linkspan run: --allow-host mcp.acme.io) [LS-501]",
    ),
    "origin": (
        {"origin": "https://acme.io"},
        "Origin 'https://acme.io' is not allowed: add it to allowed_origins (or cors, if its pages read responses) [LS-502]",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_body_and_log_name_the_setting_to_change(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    headers, problem = REFUSALS[name]
    face = FACES[kind](same_server())
    try:
        with caplog.at_level(logging.WARNING, "linkspan.http"):
            answers = [face.ask("POST", mirror(PING) | headers, PING) for _ in range(3)]
        assert [each.json()["error"]["message"] for each in answers] == [problem] * 3
        assert caplog.messages == [f"a request was refused: {problem}"]  # once, not with each request
    finally:
        face.stop()


def test_the_log_cannot_be_filled_by_strangers(on_a_loop: OnALoop, caplog: pytest.LogCaptureFixture) -> None:
    face = on_a_loop(same_server(), allowed_hosts=LOOPBACK)
    for n in range(150):
        face.ask("POST", mirror(PING) | {"host": f"{n}.evil.com"}, PING)
    assert len(caplog.messages) == 100


@pytest.mark.parametrize("name", ["host", "origin"])
def test_two_of_either_is_a_bad_request(name: str, on_a_loop: OnALoop) -> None:
    face = on_a_loop(same_server())
    face.doubled = name
    assert face.ask("POST", mirror(PING) | {"origin": "http://localhost"}, PING).status == 400


# CORS.


@pytest.mark.parametrize("cors", [True, ["https://app.example.com"]], ids=str)
def test_a_preflight_says_what_a_page_may_send(cors: Any, serve: Serve) -> None:
    headers = {
        "origin": "https://app.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, mcp-param-region, x-other",
    }
    answer = serve(same_server(), cors=cors, allowed_hosts=LOOPBACK).ask("OPTIONS", headers)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    assert answer.headers["access-control-allow-methods"] == "POST, GET, DELETE, OPTIONS"
    assert answer.headers["access-control-allow-headers"].split(", ") == [
        "content-type",
        "accept",
        "authorization",
        "dpop",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "mcp-param-region",
    ]


def test_a_page_that_is_allowed_may_read_every_answer(serve: Serve) -> None:
    face = serve(same_server(), cors=["https://app.example.com"], allowed_hosts=LOOPBACK)
    origin = {"origin": "https://app.example.com"}
    for answer in (
        face.ask("POST", mirror(PING) | origin, PING),
        face.ask("POST", origin, "{"),
        face.ask("POST", origin | {"content-type": "text/plain"}, "x"),
        face.ask("GET", origin),
    ):
        assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
        assert answer.headers["access-control-expose-headers"] == "www-authenticate, dpop-nonce, mcp-session-id"
        assert answer.headers["vary"] == "origin"


def test_without_cors_no_page_may_read_anything(serve: Serve) -> None:
    face = serve(same_server())
    for method in ("POST", "OPTIONS"):
        answer = face.ask(method, mirror(PING) | {"origin": "https://app.example.com"}, PING)
        assert not [each for each in answer.headers if each.startswith("access-control")]


@pytest.mark.parametrize("problem", ["slow", "large", "large and chunked", "many headers"])
def test_a_page_that_is_allowed_may_read_what_is_wrong_with_its_body(problem: str, on_a_loop: OnALoop) -> None:
    face = on_a_loop(
        same_server(),
        cors=["https://app.example.com"],
        body_timeout=0.05 if problem == "slow" else 30.0,
        max_body_bytes=1000,
    )
    headers: dict[str, str | None] = {**mirror(PING), "origin": "https://app.example.com"}
    if problem == "slow":
        face.chunk, face.stall_after = 10, 1
    elif problem == "large and chunked":
        headers["content-length"], face.chunk = None, 100
    elif problem == "many headers":
        headers |= {f"x-{n}": "1" for n in range(150)}
    answer = face.ask("POST", headers, padded(1001) if "large" in problem else PING)
    assert answer.status == {"slow": 408, "many headers": 431}.get(problem, 413)
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"


# Method, media types, sizes.

REFUSED: dict[str, tuple[str, dict[str, str | None], int]] = {
    "PUT": ("PUT", {}, 405),
    "HEAD": ("HEAD", {}, 405),
    "text": ("POST", {"content-type": "text/plain"}, 415),
    "no type": ("POST", {"content-type": None}, 415),
    "an empty type": ("POST", {"content-type": ""}, 415),
    "two types": ("POST", {"content-type": "application/json, text/plain"}, 415),
    "a form": ("POST", {"content-type": "application/x-www-form-urlencoded"}, 415),
    "only html": ("POST", {"accept": "text/html"}, 406),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str, serve: Serve) -> None:
    method, headers, status = REFUSED[name]
    answer = serve(same_server()).ask(method, {**mirror(PING), **headers}, PING)
    assert answer.status == status
    assert status != 405 or answer.headers["allow"] == "POST, GET, DELETE"


ACCEPTED = [
    {"content-type": "application/json; charset=utf-8"},
    {"content-type": "Application/JSON"},
    {"accept": None},
    {"accept": "*/*"},
    {"accept": "application/*;q=0.5"},
    {"accept": "text/event-stream"},
    {"accept": "application/json"},
]


@pytest.mark.parametrize("headers", ACCEPTED, ids=str)
def test_what_can_be_meant_is_served(headers: dict[str, str | None], serve: Serve) -> None:
    answer = serve(same_server()).ask("POST", {**mirror(PING), **headers}, PING)
    assert answer.status == 200
    streamed = headers.get("accept") == "text/event-stream"
    assert answer.kind == ("text/event-stream" if streamed else "application/json")


def padded(size: int) -> str:
    text = json.dumps(PING)
    return text + " " * (size - len(text))


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
def test_max_body_bytes(size: int, status: int, serve: Serve) -> None:
    answer = serve(same_server(), max_body_bytes=1000).ask("POST", mirror(PING), padded(size))
    assert answer.status == status
    if status == 413:
        assert answer.json()["error"]["message"] == "The body is larger than 1000 bytes (max_body_bytes) [LS-504]"


def test_max_body_bytes_counts_what_arrives_too(on_a_loop: OnALoop) -> None:
    face = on_a_loop(same_server(), max_body_bytes=1000)
    face.chunk = 100
    assert face.ask("POST", mirror(PING) | {"content-length": None}, padded(1000)).status == 200
    assert face.ask("POST", mirror(PING) | {"content-length": None}, padded(1001)).status == 413


def test_max_headers(serve: Serve) -> None:
    face = serve(same_server(), max_headers=20)
    assert face.ask("POST", mirror(PING) | {f"x-{n}": "1" for n in range(10)}, PING).status == 200
    answer = face.ask("POST", mirror(PING) | {f"x-{n}": "1" for n in range(30)}, PING)
    assert (answer.status, answer.json()["error"]["message"]) == (431, "More than 20 headers (max_headers) [LS-504]")


def test_max_header_bytes(serve: Serve) -> None:
    face = serve(same_server(), max_header_bytes=1000)
    assert face.ask("POST", mirror(PING) | {"x": "1" * 500}, PING).status == 200
    answer = face.ask("POST", mirror(PING) | {"x": "1" * 1000}, PING)
    assert (answer.status, answer.json()["error"]["message"]) == (
        431,
        "The headers are larger than 1000 bytes (max_header_bytes) [LS-504]",
    )


@pytest.mark.parametrize("depth", [257, 100_000])
def test_max_depth(depth: int, serve: Serve) -> None:
    nested = '{"jsonrpc":"2.0","id":1,"method":"ping","params":' + "[" * depth + "]" * depth + "}"
    answer = serve(same_server()).ask("POST", {"content-type": "application/json"}, nested)
    assert (answer.status, answer.json()["error"]["message"]) == (
        400,
        "Parse error: nested deeper than 256 levels (max_depth)",
    )
    assert answer.json()["id"] == 1  # MSG-5


@pytest.mark.parametrize("after", [0, 1, 3])
def test_body_timeout_is_for_the_whole_body(after: int, on_a_loop: OnALoop) -> None:
    face = on_a_loop(same_server(), body_timeout=0.05)
    face.chunk, face.stall_after = 10, after
    answer = face.ask("POST", mirror(PING), PING)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert answer.json()["error"]["message"] == "The body did not arrive within 0.05 seconds (body_timeout)"


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_client_that_goes_in_the_middle_of_its_body_is_no_exception(after: int, on_a_loop: OnALoop) -> None:
    face = on_a_loop(same_server())
    face.chunk, face.go_after = 10, after
    assert face.vanish("POST", mirror(PING), PING) is None
    face.go_after = None
    assert call(face, "add", {"a": 1, "b": 2}).whole().status == 200


@pytest.mark.parametrize(("coding", "status"), [("chunked", 200), ("gzip, chunked", 501)])
@pytest.mark.parametrize("kind", [Asgi, Wsgi])
def test_a_coding_that_the_server_in_front_of_us_let_pass_is_refused(
    kind: type[Face], coding: str, status: int
) -> None:
    face = kind(same_server())
    assert (
        face.ask(
            "POST", mirror(PING) | {"transfer-encoding": coding, "content-length": str(len(json.dumps(PING)))}, PING
        ).status
        == status
    )
    face.stop()


def test_no_bound_can_be_switched_off_by_accident() -> None:
    bounds: list[str] = [
        name for name in HttpPolicy.__struct_fields__ if type(getattr(HttpPolicy(), name)) in (int, float)
    ]
    assert len(bounds) == 17
    for name in [*bounds, "max_workers_per_client"]:
        for value in (0, -1):
            with pytest.raises(ValueError, match=f"{name} must be above 0"):
                HttpPolicy(**{name: value})  # type: ignore[arg-type]


def test_a_setting_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError):
        same_server().asgi(allowed_host=["x"])


def test_a_path_that_is_not_the_endpoint_says_where_it_is(serve: Serve) -> None:
    face = serve(same_server())
    if face.app is not None:
        face.app = type(face.app)(face.app.endpoint, path="/mcp")
        assert face.ask("POST", mirror(PING), PING, path="/mcp/").status == 200
        answer = face.ask("POST", mirror(PING), PING, path="/")
        assert (answer.status, answer.body) == (404, b"Nothing is here. The MCP endpoint is at /mcp")
    else:
        assert modern(face, "tools/list").whole().status == 200


@pytest.mark.parametrize("setting", ["cors", "allowed_origins"])
@pytest.mark.parametrize("named", ["*", "app.example.com", "https://app.example.com/app", "https://["])
def test_an_origin_in_a_setting_that_is_none_is_an_error_and_lets_nobody_in(setting: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must list origins such as https://app.example.com"):
        same_server().asgi(**{setting: [named]})


@pytest.mark.parametrize("named", ["*", "*.example.com", "https://mcp.example.com", "::1", "a:b", "a.example/mcp", ""])
def test_a_host_in_a_setting_that_would_match_nothing_is_an_error(named: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts must list hosts such as mcp"):
        same_server().asgi(allowed_hosts=[named])


@pytest.mark.parametrize("setting", ["cors", "allowed_origins", "allowed_hosts"])
def test_a_text_is_no_list(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be a list"):
        same_server().asgi(**{setting: "https://app.example.com"})


def test_pages_without_an_origin_are_let_in_where_they_are_listed(serve: Serve) -> None:
    face = serve(same_server(), cors=["null"], allowed_hosts=LOOPBACK)
    answer = face.ask("POST", mirror(PING) | {"origin": "null"}, PING)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "null")
    for other in ("", "http://[", "https://evil.com"):
        assert face.ask("POST", mirror(PING) | {"origin": other}, PING).status == 403


@pytest.mark.parametrize(("length", "too_long"), [("9" * 5000, True), ("\xb2", False), ("", False), ("4194304", False)])
def test_a_length_of_whatever_digits_is_understood(length: str, too_long: bool) -> None:
    assert Gate(HttpPolicy()).is_too_long(length) is too_long
