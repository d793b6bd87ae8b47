"""Who is let in: Host, Origin, CORS, methods, media types, and the bounds on a request. SEC-1, H5-2, H5-4, H5-11."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Asgi, Face
from http_talk import body, call, mirror, modern
from http_world import World

from linkspan.core.gate import Gate
from linkspan.core.http_policy import LOOPBACK, HttpPolicy

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
    "127.0.0.1:8000, evil.example.com": 421,
    "127.0.0.1@evil.com": 421,
    "": 421,
    None: 421,
}


@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_only_listed_hosts_are_served(host: str | None, serve: Serve) -> None:
    answer = serve(World().server, **LISTED).ask("POST", {**mirror(PING), "host": host}, PING)
    assert answer.status == HOSTS[host], answer.body


def test_any_host_is_served_where_none_is_listed(serve: Serve) -> None:
    assert serve(World().server).ask("POST", mirror(PING) | {"host": "what.ever"}, PING).status == 200


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
    answer = serve(World().server, allowed_origins=allowed, allowed_hosts=LOOPBACK).ask(
        "POST", {**mirror(PING), "origin": origin}, PING
    )
    assert answer.status == ORIGINS[origin], answer.body


@pytest.mark.parametrize(("origin", "status"), [("http://localhost:6274", 200), ("https://evil.com", 403)])
def test_on_loopback_the_pages_of_loopback_are_allowed(origin: str, status: int, serve: Serve) -> None:
    face = serve(World().server, allowed_hosts=LOOPBACK)
    assert face.ask("POST", mirror(PING) | {"origin": origin}, PING).status == status


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
def test_host_and_origin_count_for_every_method(method: str, serve: Serve) -> None:
    face = serve(World().server, allowed_hosts=LOOPBACK)
    assert face.ask(method, {"host": "evil.com", "origin": "https://evil.com"}).status == 421
    assert face.ask(method, {"origin": "https://evil.com"}).status == 403


REFUSALS = {
    "host": ({"host": "mcp.acme.io"}, "Host 'mcp.acme.io' is not served here: add it to allowed_hosts if it is yours"),
    "origin": (
        {"origin": "https://acme.io"},
        "Origin 'https://acme.io' is not allowed: add it to allowed_origins (or cors, if its pages read answers)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_body_and_log_name_the_setting_to_change(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    from http_faces import FACES

    headers, problem = REFUSALS[name]
    face = FACES[kind](World().server, allowed_hosts=LOOPBACK)
    try:
        with caplog.at_level(logging.WARNING, "linkspan.http"):
            answers = [face.ask("POST", mirror(PING) | headers, PING) for _ in range(3)]
        assert [each.json()["error"]["message"] for each in answers] == [problem] * 3
        assert caplog.messages == [f"a request was refused: {problem}"]  # once, not with each request
    finally:
        face.stop()


def test_the_log_cannot_be_filled_by_strangers(asgi: Callable[..., Asgi], caplog: pytest.LogCaptureFixture) -> None:
    face = asgi(World().server, allowed_hosts=LOOPBACK)
    for n in range(150):
        face.ask("POST", mirror(PING) | {"host": f"{n}.evil.com"}, PING)
    assert len(caplog.messages) == 100


@pytest.mark.parametrize("name", ["host", "origin"])
def test_two_of_either_is_a_bad_request(name: str, asgi: Callable[..., Asgi]) -> None:
    face = asgi(World().server)
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
    answer = serve(World().server, cors=cors, allowed_hosts=LOOPBACK).ask("OPTIONS", headers)
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
    face = serve(World().server, cors=["https://app.example.com"], allowed_hosts=LOOPBACK)
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
    face = serve(World().server)
    for method in ("POST", "OPTIONS"):
        answer = face.ask(method, mirror(PING) | {"origin": "https://app.example.com"}, PING)
        assert not [each for each in answer.headers if each.startswith("access-control")]


# Method, media types, sizes.

REFUSED: dict[str, tuple[str, dict[str, str | None], int]] = {
    "PUT": ("PUT", {}, 405),
    "HEAD": ("HEAD", {}, 405),
    "text": ("POST", {"content-type": "text/plain"}, 415),
    "a form": ("POST", {"content-type": "application/x-www-form-urlencoded"}, 415),
    "only html": ("POST", {"accept": "text/html"}, 406),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str, serve: Serve) -> None:
    method, headers, status = REFUSED[name]
    answer = serve(World().server).ask(method, {**mirror(PING), **headers}, PING)
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
    answer = serve(World().server).ask("POST", {**mirror(PING), **headers}, PING)
    assert answer.status == 200
    streamed = headers.get("accept") == "text/event-stream"
    assert answer.kind == ("text/event-stream" if streamed else "application/json")


def padded(size: int) -> str:
    text = json.dumps(PING)
    return text + " " * (size - len(text))


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
def test_max_body_bytes(size: int, status: int, serve: Serve) -> None:
    answer = serve(World().server, max_body_bytes=1000).ask("POST", mirror(PING), padded(size))
    assert answer.status == status
    if status == 413:
        assert answer.json()["error"]["message"] == "Larger than 1000 bytes (max_body_bytes)"


def test_max_body_bytes_counts_what_arrives_too(asgi: Callable[..., Asgi]) -> None:
    face = asgi(World().server, max_body_bytes=1000)
    face.chunk = 100
    assert face.ask("POST", mirror(PING) | {"content-length": None}, padded(1000)).status == 200
    assert face.ask("POST", mirror(PING) | {"content-length": None}, padded(1001)).status == 413


def test_max_headers(serve: Serve) -> None:
    face = serve(World().server, max_headers=20)
    assert face.ask("POST", mirror(PING) | {f"x-{n}": "1" for n in range(10)}, PING).status == 200
    answer = face.ask("POST", mirror(PING) | {f"x-{n}": "1" for n in range(30)}, PING)
    assert (answer.status, answer.json()["error"]["message"]) == (431, "More than 20 headers (max_headers)")


def test_max_header_bytes(serve: Serve) -> None:
    face = serve(World().server, max_header_bytes=1000)
    assert face.ask("POST", mirror(PING) | {"x": "1" * 500}, PING).status == 200
    answer = face.ask("POST", mirror(PING) | {"x": "1" * 1000}, PING)
    assert (answer.status, answer.json()["error"]["message"]) == (
        431,
        "Headers of more than 1000 bytes (max_header_bytes)",
    )


@pytest.mark.parametrize("depth", [257, 100_000])
def test_max_depth(depth: int, serve: Serve) -> None:
    nested = '{"jsonrpc":"2.0","id":1,"method":"ping","params":' + "[" * depth + "]" * depth + "}"
    answer = serve(World().server).ask("POST", {"content-type": "application/json"}, nested)
    assert (answer.status, answer.json()["error"]["message"]) == (
        400,
        "Parse error: nested deeper than 256 levels (max_depth)",
    )


@pytest.mark.parametrize("after", [0, 1, 3])
def test_body_timeout_is_for_the_whole_body(after: int, asgi: Callable[..., Asgi]) -> None:
    face = asgi(World().server, body_timeout=0.05)
    face.chunk, face.stall_after = 10, after
    answer = face.ask("POST", mirror(PING), PING)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert answer.json()["error"]["message"] == "The body did not arrive within 0.05 seconds (body_timeout)"


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_client_that_goes_in_the_middle_of_its_body_is_no_exception(after: int, asgi: Callable[..., Asgi]) -> None:
    face = asgi(World().server)
    face.chunk, face.go_after = 10, after
    assert face.vanish("POST", mirror(PING), PING) is None
    face.go_after = None
    assert call(face, "add", {"a": 1, "b": 2}).whole().status == 200


def test_no_bound_can_be_switched_off_by_accident() -> None:
    bounds: list[str] = [
        name for name in HttpPolicy.__struct_fields__ if type(getattr(HttpPolicy(), name)) in (int, float)
    ]
    assert len(bounds) == 16
    for name in [*bounds, "max_workers_per_client"]:
        for value in (0, -1):
            with pytest.raises(ValueError, match=f"{name} must be above 0"):
                HttpPolicy(**{name: value})  # type: ignore[arg-type]


def test_a_setting_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError):
        World().server.asgi(allowed_host=["x"])


def test_a_path_that_is_not_the_endpoint_says_where_it_is(serve: Serve) -> None:
    face = serve(World().server)
    if face.app is not None:
        face.app._path = "/mcp"
        assert face.ask("POST", mirror(PING), PING, path="/mcp/").status == 200
        answer = face.ask("POST", mirror(PING), PING, path="/")
        assert (answer.status, answer.body) == (404, b"Nothing is here. The MCP endpoint is at /mcp")
    else:
        assert modern(face, "tools/list").whole().status == 200


@pytest.mark.parametrize("setting", ["cors", "allowed_origins"])
@pytest.mark.parametrize("named", ["*", "app.example.com", "https://app.example.com/app", "https://["])
def test_an_origin_in_a_setting_that_is_none_is_an_error_and_lets_nobody_in(setting: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must list origins such as https://app.example.com"):
        World().server.asgi(**{setting: [named]})


@pytest.mark.parametrize("setting", ["cors", "allowed_origins", "allowed_hosts"])
def test_a_text_is_no_list(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be a list"):
        World().server.asgi(**{setting: "https://app.example.com"})


def test_pages_without_an_origin_are_let_in_where_they_are_listed(serve: Serve) -> None:
    face = serve(World().server, cors=["null"], allowed_hosts=LOOPBACK)
    answer = face.ask("POST", mirror(PING) | {"origin": "null"}, PING)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "null")
    for other in ("", "http://[", "https://evil.com"):
        assert face.ask("POST", mirror(PING) | {"origin": other}, PING).status == 403


@pytest.mark.parametrize(("length", "too_long"), [("9" * 5000, True), ("\xb2", False), ("", False), ("4194304", False)])
def test_a_length_of_whatever_digits_is_understood(length: str, too_long: bool) -> None:
    assert Gate(HttpPolicy()).is_too_long(length) is too_long
