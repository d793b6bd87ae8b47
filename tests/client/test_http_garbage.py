"""Servers and proxies that answer with garbage, in each layer from TCP to the ids: one clear error for the call, and no harm.

Each case: the error says who, where, what came and what can be done; its `delivery` is right; the next call works.
"""

from __future__ import annotations

import json
import re
import resource
import time
from typing import Any

import pytest
from faces import FACES, outcome

from linkspan import (
    CallTimeout,
    ClientError,
    ConnectError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    Limits,
    ServerError,
    SyncClient,
    Timeouts,
)
from raw_http import CUT, END, HI, RawServer, Request, bomb, endless, event, http, message, sse

pytestmark = pytest.mark.timeout(60)
NOT_ONE = "invalid response to tools/call: "
PATH = "often ends with /mcp"
JSON, SSE, HTML = "application/json", "text/event-stream", "text/html"
LOST = "the connection was lost before the answer came|the server closed the connection before it responded"


def failure(face: str, plan: Any, *, era: str = "modern", user: str = "ada:hunter22@", **options: Any) -> ClientError:
    """Have `tools/call hi` answered as planned; return the error, after the next call has worked."""
    found: list[ClientError] = []

    with RawServer(plan, era=era) as server:
        url = server.url.replace("//", f"//{user}") + "?api_key=sesame99"
        options.setdefault("timeouts", Timeouts(close=0.2))

        if face == "sync":
            with SyncClient(url, **options) as client:
                with pytest.raises(ClientError) as caught:
                    client.call_tool("hi")
                found.append(caught.value)
                assert client.call_tool("again", timeout=20).text == "hi"
        else:

            async def step(client: Any) -> None:
                with pytest.raises(ClientError) as caught:
                    await client.call_tool("hi")
                found.append(caught.value)
                assert (await client.call_tool("again", timeout=20)).text == "hi"

            outcome(face, url, step, **options)
        (error,) = found
        text = str(error)
        assert text.startswith(f"127.0.0.1:{server.port}: ")
        shown = user.replace("hunter22", "[redacted]")
        assert f"  url: http://{shown}127.0.0.1:{server.port}/mcp?api_key=[redacted]" in text
        assert "hunter22" not in text
        assert "sesame99" not in text
        assert error.phase == "call"
    return error


# Statuses.

STATUSES: dict[int, tuple[str, str]] = {
    400: ("answered", ""),
    401: ("answered", "refused the token or password"),
    403: ("answered", "Host or Origin"),
    404: ("answered", PATH),
    405: ("answered", PATH),
    406: ("answered", PATH),
    409: ("answered", ""),
    413: ("answered", "send less"),
    418: ("answered", ""),
    421: ("answered", "allowed_hosts"),
    429: ("not_sent", "send fewer"),
    431: ("answered", "fewer, or shorter"),
    500: ("maybe_sent", "see its log"),
    502: ("maybe_sent", "cannot reach it"),
    503: ("not_sent", "try again in a moment"),
    504: ("maybe_sent", "timed out"),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_that_is_an_error_says_what_came_and_what_to_do(status: int, face: str) -> None:
    delivery, hint = STATUSES[status]
    page = "<html><head><title>Nothing\nhere</title></head><body>" + "x" * 5000
    error = failure(face, {"tools/call hi": [http(status, page, HTML)]}, retry="never")
    assert isinstance(error, HttpError)
    assert error.problem == f"tools/call was answered with status {status}: Nothing here"
    assert (error.status, error.delivery) == (status, delivery)
    assert hint in (error.hint or "")


REFUSED = (
    "it refused the token or password that was sent, which may have expired, or be for another server; the log of the"
)
CHALLENGE = 'Bearer error="insufficient_scope", scope="ferries:book ferries:pay"'


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("who", "status", "challenge", "hint"),
    [
        ({}, 401, "", "it requires credentials, and none were sent: pass headers="),
        ({"headers": {"x-tenant": "1"}}, 401, "", "it requires credentials, and none were sent: pass headers="),
        ({"headers": {"Authorization": "Bearer abc"}}, 401, 'Bearer error="invalid_token"', REFUSED),
        ({"headers": {"Authorization": "Bearer abc"}}, 401, "", REFUSED),
        ({"auth": "abc"}, 401, "", REFUSED),
        ({"auth": lambda: "abc"}, 401, "Bearer", REFUSED),
        ({"auth": "abc"}, 403, CHALLENGE, "is valid, but not for all of ferries:book ferries:pay: get one with more"),
        (
            {"auth": "abc"},
            403,
            'Bearer error="insufficient_scope"',
            "is valid, but not for all that this needs: get",
        ),
        ({"auth": "abc"}, 403, "", "or the server does not allow this Host or Origin"),
    ],
)
def test_a_refusal_that_is_about_who_asks_is_told_by_what_was_sent(
    face: str, who: dict[str, Any], status: int, challenge: str, hint: str
) -> None:
    headers = [f"www-authenticate: {challenge}"] if challenge else []
    error = failure(face, {"tools/call hi": [http(status, "no", HTML, headers)]}, user="", retry="never", **who)
    assert isinstance(error, HttpError)
    assert hint in (error.hint or "")
    assert "abc" not in str(error)


def test_the_body_of_an_error_is_shown_in_one_line_without_secrets() -> None:
    body = 'no\n\x1b[31m{"authorization": "Bearer abcdefgh12345678"}' + "x" * 100_000
    error = failure("sync", {"tools/call hi": [http(400, body, "text/plain")]})
    assert error.problem.startswith("tools/call was answered with status 400: no [31m{")
    assert "abcdefgh" not in str(error)
    assert "\x1b" not in str(error)
    assert len(error.problem) < 200
    assert len(error.message or "") <= 600


@pytest.mark.parametrize("status", [401, 403, 429, 502, 503])
def test_a_status_of_a_gate_counts_whatever_message_comes_with_it(status: int) -> None:
    body = message(error={"code": -32001, "message": "not you", "data": 7})
    error = failure("sync", {"tools/call hi": [http(status, body)]}, retry="never")
    assert isinstance(error, HttpError)
    assert error.problem == f"tools/call was answered with status {status}: not you (-32001)"
    assert (error.code, error.message, error.data) == (-32001, "not you", 7)


@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_an_error_of_the_protocol_counts_more_than_its_status(status: int) -> None:
    error = failure("sync", {"tools/call hi": [http(status, message(error={"code": -32601, "message": "gone"}))]})
    assert isinstance(error, ServerError)
    assert error.problem == "tools/call was refused: gone (-32601)"
    assert error.delivery == "answered"


@pytest.mark.parametrize("status", [400, 404, 500, 599])
def test_a_result_with_an_error_status_is_no_success(status: int) -> None:
    error = failure("sync", {"tools/call hi": [http(status, message())]})
    assert isinstance(error, HttpError)
    assert error.status == status
    assert error.delivery == ("answered" if status < 500 else "maybe_sent")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (http(202, kind=None), "it came with status 202, which is for notifications"),
        (http(204, kind=None), "it came with status 204, which is for notifications"),
        (http(206, message()), "it came with status 206 and 'application/json'"),
        (http(304, kind=None), "it came with status 304 and no content type"),
        (http(200, "<title>Sign in</title>", HTML), "it came with status 200 and 'text/html': Sign in"),
        (http(200, "hello", "text/plain"), "it came with status 200 and 'text/plain': hello"),
        (http(200, message(), None), "it came with status 200 and no content type: {"),
        (http(200, message(), "application/octet-stream"), "it came with status 200 and 'application/octet-stream'"),
    ],
)
def test_a_success_that_is_no_answer_says_what_came(answer: bytes, problem: str) -> None:
    error = failure("sync", {"tools/call hi": [answer]})
    assert isinstance(error, InvalidResponse)
    assert error.problem.startswith(NOT_ONE + problem)
    assert error.delivery == "answered"


def test_provisional_statuses_are_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20
    with RawServer({"tools/call": [early, http(200, message())]}) as server, SyncClient(server.url) as client:
        assert client.call_tool("hi").text == "hi"


def test_provisional_statuses_without_end_are_an_error() -> None:
    error = failure("sync", {"tools/call hi": [endless(b"HTTP/1.1 103 Early Hints\r\n\r\n")]})
    assert isinstance(error, InvalidResponse)
    assert error.problem == f"{NOT_ONE}the response is not valid HTTP: its headers are too large"


def test_trailers_without_end_are_an_error() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    error = failure("sync", {"tools/call hi": [head, endless(b"x: y\r\n" * 1000)]})
    assert isinstance(error, InvalidResponse)
    assert error.problem == f"{NOT_ONE}the response is not valid HTTP: its trailers are too large"


# Redirects (H5-24).


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_origin_is_followed(status: int) -> None:
    def answer(request: Any) -> list[bytes]:
        if request.path == "/mcp/":
            return [http(200, message())]
        return [http(status, b"", None, ["Location: /mcp/"])]

    with RawServer({"tools/call": answer}) as server:
        with SyncClient(server.url, headers={"x-secret": "s"}) as client:
            assert client.call_tool("hi").text == "hi"
        assert server.requests[-1].headers["x-secret"] == "s"


@pytest.mark.parametrize(
    ("status", "location", "hint"),
    [
        (307, "http://127.0.0.1:9/mcp?token=abcdefgh", "to http://127.0.0.1:9/mcp: if that is the server, use that URL"),
        (308, "https://127.0.0.1/mcp", "it redirects to https://127.0.0.1/mcp: if that"),
        (301, "https://ada:hunter22@example.com/", "it redirects to https://example.com/: if that"),
        (302, "/login", "/login: if that is the server, use that URL [LS-210]"),
        (303, "//example.com/mcp", "it redirects to http://example.com/mcp: if that"),
        (307, "http://[bad", "it redirects without"),
        (307, "/mcp?again", "too many times"),
        (307, "", "it redirects without naming a URL [LS-210]"),
        (307, "http://eve:hunter22@127.0.0.1:$PORT/mcp", "/mcp with a user name or password, which only the caller may set"),
        (308, "http://eve@127.0.0.1:$PORT/mcp", "/mcp with a user name or password, which only the caller may set"),
    ],
)  # fmt: skip
def test_any_other_redirect_is_an_error_that_names_the_place(status: int, location: str, hint: str) -> None:
    def redirect(request: Any) -> Any:
        port = request.headers["host"].rpartition(":")[2]
        return [http(status, b"", None, [f"Location: {location.replace('$PORT', port)}"])]

    error = failure("sync", {"tools/call hi": redirect})
    assert isinstance(error, HttpError)
    assert error.problem == f"tools/call was answered with status {status}"
    assert hint in (error.hint or "")
    assert error.delivery == "answered"


# Bodies.


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("", "it is empty"),
        (" \r\n ", "it is empty"),
        ("{", "it is no JSON"),
        (message()[:-2], "Parse error: "),
        ("what?", "it is no JSON"),
        (b'{"jsonrpc":"2.0","id":$ID,"result":{"x":"\xff"}}', "it is no JSON|Parse error"),
        ("7", "it is not a message of the protocol"),
        ("null", "it is not a message of the protocol"),
        ('"text"', "it is not a message of the protocol"),
        ("[]", "it is not a message of the protocol"),
        ("[1]", "it is a batch without a response to this request"),
        ("{}", 'it is not a message of the protocol .*"jsonrpc" must be "2.0"'),
        ('{"id":$ID,"result":{}}', "it is not a message of the protocol|jsonrpc"),
        ('{"jsonrpc":"2.0","id":$ID}', "no method"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"x"}}', "both a result and an error"),
        ('{"jsonrpc":"2.0","id":$ID,"error":"no"}', "error must have an integer code and a message"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{}}', "error must have an integer code and a message|"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":"1","message":"x"}}', "error must have an integer code"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"message":{}}}', "error must have an integer code"),
        (message(id=777), "it has the id '777' instead of '[0-9]+'"),
        ('{"jsonrpc":"2.0","id":"$ID","result":{}}', "it has the id '[0-9]+' instead of '[0-9]+'"),
        (message(id=None), "a response needs the id of its request"),
        (message(id=777, error={"code": 1, "message": "x"}), "it has the id '777'"),
        (message(method="notifications/message", params={}), "it is a message, but not a response"),
        (message(id=9, method="roots/list"), "it is a message, but not a response"),
        ("[" * 5000 + "]" * 5000, "it is no JSON .nested deeper than|nested deeper"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_answer_says_why(body: Any, problem: str, face: str) -> None:
    error = failure(face, {"tools/call hi": [http(200, body)]})
    assert isinstance(error, InvalidResponse | ServerError)
    if isinstance(error, InvalidResponse):
        assert error.problem.startswith(NOT_ONE)
    assert re.search(problem, error.problem), error.problem
    assert error.delivery == "answered"
    assert len(error.problem) < 400


@pytest.mark.parametrize("error_id", ["$ID", None])
@pytest.mark.parametrize("data", [None, {"a": [1]}, "text"])
def test_an_error_with_or_without_an_id_is_the_servers(error_id: Any, data: Any) -> None:
    body = message(id=error_id, error={"code": 7, "message": "no\nway", "data": data})
    error = failure("sync", {"tools/call hi": [http(200, body)]})
    assert isinstance(error, ServerError)
    assert (error.code, error.message, error.data) == (7, "no\nway", data)


def test_an_answer_to_somebody_else_does_not_reach_them() -> None:
    other = message({**HI, "content": [{"type": "text", "text": "stolen"}]}, id=9)

    def answer(request: Any) -> list[Any]:
        mine = request.json["id"]
        return [0.3, http(200, message())] if mine % 2 else [http(200, other.replace("9", str(mine + 1)))]

    from concurrent.futures import ThreadPoolExecutor

    with (
        RawServer({"tools/call": answer}) as server,
        SyncClient(server.url, retry="never") as client,
        ThreadPoolExecutor(8) as pool,
    ):
        calls = [pool.submit(client.call_tool, "hi", timeout=60) for _ in range(8)]
        found = [call.exception() or call.result().text for call in calls]
    assert [each for each in found if each == "hi"] == ["hi"] * 4
    assert [type(each) for each in found if each != "hi"] == [InvalidResponse] * 4


def test_a_batch_with_the_answer_in_it_is_an_answer() -> None:
    batch = f"[{message(id=99)},{message(method='notifications/x', id=3)},{message()},{message()}]"
    with RawServer({"tools/call": [http(200, batch)]}) as server, SyncClient(server.url) as client:
        assert client.call_tool("hi").text == "hi"


SMALL = Limits(max_line_bytes=100_000)


@pytest.mark.parametrize(
    "steps",
    [
        [http(200, "x" * 200_000)],
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", endless(b"x" * 65536)],
        [http(200, bomb(256), headers=["Content-Encoding: gzip"])],
    ],
    ids=["large", "endless", "bomb"],
)
def test_an_answer_that_is_too_large_is_not_read_to_its_end(steps: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = failure("sync", {"tools/call hi": steps}, limits=SMALL)
    assert isinstance(error, InvalidResponse)
    assert error.problem == "a response larger than 100000 bytes (max_line_bytes)"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize(("more", "problem"), [(0, None), (1, "a response larger than 100000 bytes (max_line_bytes)")])
def test_an_answer_of_exactly_the_bound_is_read(more: int, problem: str | None) -> None:
    def answer(request: Request) -> list[Any]:
        text = message().replace("$ID", json.dumps(request.json["id"]))
        return [http(200, text.ljust(SMALL.max_line_bytes + more))]

    with RawServer({"tools/call": answer}) as server, SyncClient(server.url, limits=SMALL) as client:
        if problem is None:
            assert client.call_tool("hi").text == "hi"
            return
        with pytest.raises(InvalidResponse) as caught:
            client.call_tool("hi")
        assert caught.value.problem == problem


def test_the_body_of_an_error_without_end_is_cut() -> None:
    head = b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\n\r\n"
    error = failure("sync", {"tools/call hi": [head, endless(b"no " * 1000)]})
    assert error.problem.startswith("tools/call was answered with status 500: no no no")


# Connections.


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([CUT], LOST),
        ([b"HTTP/1.1 2", CUT], LOST),
        ([b"HTTP/1.1 200 OK\r\nContent-Ty", CUT], LOST),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{", CUT], "was closed in the middle"),
        ([http(200, message(), length=900), CUT], "was closed in the middle"),
        ([http(500, "x", length=900), CUT], "was answered with status 500"),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", CUT], "closed in"),
        ([*sse(), CUT], "was closed in the middle"),
        ([*sse(event(message(method="notifications/x"))), CUT], "was closed in the middle"),
        ([*sse(f"data: {message()}"), CUT], "was closed in the middle"),
        ([*sse(f"data: {message()}\n"), CUT], "was closed in the middle"),
        ([*sse(event(message(id=777))), CUT], "was closed in the middle"),
        ([*sse(event(message(), "event: other\n")), CUT], "was closed in the middle"),
        ([*sse(event("{nothing")), CUT], "was closed in the middle"),
        ([*sse(event('{"jsonrpc":"2.0","id":$ID,"result":[], }')), CUT], "invalid response|was closed in the middle"),
        ([*sse(), END], "the stream ended before the response arrived"),
        ([*sse(event(message(id=777))), END], "the stream ended before the response arrived"),
    ],
)  # fmt: skip
def test_a_connection_that_is_cut_is_lost_for_this_call_only(steps: Any, problem: str, face: str) -> None:
    error = failure(face, {"tools/call hi": steps})
    assert re.search(problem, error.problem), error.problem
    assert isinstance(error, ConnectionLost | HttpError | InvalidResponse)
    assert error.delivery == ("answered" if isinstance(error, InvalidResponse) else "maybe_sent")


@pytest.mark.parametrize(
    "steps",
    [
        [b"SSH-2.0-OpenSSH_9.6\r\n", CUT],
        [b"\x15\x03\x01\x00\x02\x02P", b"\r\n\r\n", CUT],
        [b"HTTP/1.1 abc OK\r\n\r\n", CUT],
        [b"HTTP/9 200\r\n\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\n", endless(b"X: " + b"y" * 1000 + b"\r\n")],
        [b"HTTP/1.1 200 ", endless(b"y" * 1000)],
    ],
)
def test_what_is_no_http_is_said_to_be_none(steps: Any) -> None:
    error = failure("sync", {"tools/call hi": steps})
    assert isinstance(error, InvalidResponse)
    assert error.problem.startswith(NOT_ONE + "the response is not valid HTTP: ")
    assert error.hint == "check that the port serves HTTP, and whether it needs https [LS-205]"
    assert error.delivery == "maybe_sent"
    assert len(error.problem) < 200


@pytest.mark.parametrize(
    "steps",
    [
        [http(200, b"no gzip at all", headers=["Content-Encoding: gzip"])],
        [http(200, b"\x1f\x8b\x08\xffbroken", headers=["Content-Encoding: gzip"])],
    ],
)
def test_a_body_that_cannot_be_unpacked_is_no_answer(steps: Any) -> None:
    error = failure("sync", {"tools/call hi": steps})
    assert isinstance(error, InvalidResponse)
    assert error.problem == NOT_ONE + "its compressed body cannot be decoded"


@pytest.mark.parametrize(
    "steps",
    [
        [60.0],
        [b"HTTP/1.1 200 OK\r\n", 60.0],
        [http(200, b"{", length=100), 60.0],
        [*sse(), 60.0],
        [*sse("data: {"), 60.0],
        [*sse(), endless(b": still here\n")],
        [*sse(), endless(b"\n\n\n")],
        [*sse(), endless(event(message(method="notifications/message", params={"level": "info", "data": "x" * 5000})))],
    ],
    ids=["silence", "head", "body", "sse", "half an event", "comments", "blank lines", "notifications"],
)
@pytest.mark.parametrize("face", FACES)
def test_an_answer_that_does_not_come_runs_into_the_deadline(steps: Any, face: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    error = failure(face, {"tools/call hi": steps}, timeouts=Timeouts(call=0.4, close=0.2))
    assert time.monotonic() - began < 20
    assert isinstance(error, CallTimeout)
    assert (error.seconds, error.delivery) == (0.4, "maybe_sent")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


# Event streams (H5-21).

ANSWER = event(message())
NOTE = message(method="notifications/message", params={"level": "info", "data": "hi"})


@pytest.mark.parametrize(
    "parts",
    [
        [b"\xef\xbb\xbf", ANSWER],
        [ANSWER.replace(b"\n", b"\r")],
        [ANSWER.replace(b"\n", b"\r\n")],
        [b": a comment\n:\n\n", ANSWER],
        [b"retry: soon\nid: a\nunknown: 1\nnothing\n\n", ANSWER],
        [event(NOTE), event("{"), event(""), event(b"\xff"), event("[]"), ANSWER],
        [b"event: message\n", ANSWER],
        [b"data:" + message()[:17].encode() + b"\ndata:" + message()[17:].encode() + b"\n\n"],
        [ANSWER, ANSWER, event(message(error={"code": 1, "message": "late"}))],
        [bytes([each]) for each in ANSWER.replace(b"$ID", b"2")],
    ],
)
def test_a_stream_is_read_as_the_standard_says(parts: list[bytes]) -> None:
    with RawServer({"tools/call": [*sse(*parts), CUT]}) as server, SyncClient(server.url) as client:
        assert client.call_tool("hi", timeout=60).text == "hi"


@pytest.mark.parametrize(
    "part", [b"data: " + b"x" * 1000 + b"\n", b"x" * 1000, b"data:\n" * 100], ids=["data", "line", "empty data"]
)
def test_an_event_without_end_is_cut(part: bytes) -> None:
    error = failure("sync", {"tools/call hi": [*sse(), endless(part)]}, limits=SMALL)
    assert isinstance(error, InvalidResponse)
    assert error.problem == NOT_ONE + "an event is larger than 100000 bytes"


def test_a_large_event_takes_time_that_grows_with_its_size() -> None:
    text = "x" * 16_000_000
    large = event(message({"resultType": "complete", "content": [{"type": "text", "text": text}]}))
    with RawServer({"tools/call": [*sse(large), CUT]}) as server, SyncClient(server.url) as client:
        assert len(client.call_tool("hi", timeout=20).text) == len(text)


# Lists.


def test_pages_without_end_come_to_an_end() -> None:
    number = iter(range(10_000_000))

    def page(_: Any) -> list[Any]:
        tools = [{"name": f"t{next(number)}", "inputSchema": {"type": "object"}}]
        return [http(200, message({"resultType": "complete", "tools": tools, "nextCursor": str(next(number))}))]

    with RawServer({"tools/list": page}) as server, SyncClient(server.url) as client:
        with pytest.raises(InvalidResponse, match="1000 pages"):
            client.list_tools()
        assert client.call_tool("hi").text == "hi"


# Before anything is agreed.


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("steps", "kind", "problem"),
    [
        ([http(401, "who?", "text/plain")], HttpError, "server/discover was answered with status 401: who?"),
        ([http(403, message(id=None, error={"code": -32000, "message": "Origin"}))], HttpError, "status 403: Origin"),
        ([http(500, "", HTML)], HttpError, "server/discover was answered with status 500"),
        ([http(502, "", HTML)], HttpError, "server/discover was answered with status 502"),
        ([http(200, "<title>Welcome</title>", HTML)], ConnectError, "invalid response to initialize: .* Welcome"),
        (
            [http(404, "<title>Not Found</title>", HTML)],
            HttpError,
            "initialize was answered with status 404: Not Found",
        ),
        ([http(405)], HttpError, "initialize was answered with status 405"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n", CUT], ConnectError, "the response is not valid HTTP"),
        ([CUT], ConnectError, "the server closed the connection before it responded"),
        ([http(308, b"", None, ["Location: https://example.com/"])], HttpError, "was answered with status 308"),
    ],
)
def test_what_is_no_server_of_the_protocol_is_said_to_be_none(
    steps: Any, kind: type[ClientError], problem: str, face: str
) -> None:
    plan = dict.fromkeys(("server/discover", "initialize", "GET"), steps)
    with RawServer(plan) as server, pytest.raises(ClientError) as caught:
        outcome(face, server.url, lambda client: client.ping(), timeouts=Timeouts(connect=30, probe=15))
    assert type(caught.value) is kind
    assert re.search(problem, caught.value.problem), caught.value.problem
    assert caught.value.phase == "negotiate"


def test_where_nobody_listens_is_said_at_once() -> None:
    with pytest.raises(ConnectError) as caught:
        outcome("sync", "http://127.0.0.1:9/mcp", lambda client: client.ping())
    assert caught.value.problem.startswith("it cannot be reached: the connection was refused or failed")
    assert caught.value.hint == "check that the server is running, and the host and port of the URL [LS-203]"
    assert caught.value.delivery == "not_sent"


@pytest.mark.parametrize("bad", ["a\r\nX: y", "a\x00b"])
def test_a_header_that_cannot_be_sent_is_never_shown(bad: str) -> None:
    with RawServer() as server, SyncClient(server.url) as client:
        with pytest.raises(ClientError) as caught:
            client.call_tool("hi", headers={"X-Key": f"sesame99{bad}"})
        assert "headers=" in (caught.value.hint or "")
        assert "sesame99" not in str(caught.value)
        assert (caught.value.problem, caught.value.delivery) == ("the request cannot be sent", "not_sent")
        assert client.call_tool("again", timeout=20).text == "hi"
