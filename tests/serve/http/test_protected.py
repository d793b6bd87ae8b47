"""A protected server through ASGI, WSGI and `run("http")`, in both eras; and what attackers try, each by its name."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, quote

import pytest
from http_faces import Asgi, Face, Http, Wsgi
from http_talk import Session, body, mirror

from linkspan import Context, Extension, ListSpec, RateLimit, Server, Wire
from linkspan.auth.exchanging import TokenExchange
from linkspan.auth.protection import Protected
from linkspan.auth.verifying import ApiKeys, Introspection, Jwt
from linkspan.core.auth_flow import Http as HttpEffect
from linkspan.core.auth_flow import HttpResult, HttpUnavailable
from linkspan.core.http_checks import Gate, HttpPolicy
from linkspan.core.http_exchange import HttpResponse
from linkspan.errors import Forbidden, LinkspanError, RegistrationError
from linkspan.revisions.neutral import Grant, TransportInfo
from linkspan.serve.fetching import Fetcher
from linkspan.serve.guarding import Verification, guard_of
from linkspan.types.task_messages import TASKS
from linkspan.wire.challenges import read_challenges
from tokens import ISSUER, JWKS, KEY, OTHER, RESOURCE, bound, jwt, proof, token

META = "https://api.example.com/.well-known/oauth-protected-resource/mcp"
Protect = Callable[..., Face]


@pytest.fixture(params=[Asgi, Wsgi, Http])
def protect(request: pytest.FixtureRequest) -> Iterator[Protect]:
    """Serve a protected server through each face in turn."""
    faces: list[Face] = []

    def start(server: Server | None = None, **options: Any) -> Face:
        made = server or Server("files", auth=Protected(RESOURCE, **{"verify": jwt(), **options}))
        if server is None:
            made.define_tool(name="who", handler=who)
            made.define_tool(name="headers", handler=headers_seen)
        faces.append(request.param(made))
        return faces[-1]

    yield start
    for face in faces:
        face.stop()


def who(ctx: Context) -> dict[str, Any]:
    grant = ctx.grant
    assert grant is not None
    return {"principal": ctx.principal, "client": grant.client_id, "scopes": sorted(grant.scopes)}


def headers_seen(ctx: Context) -> list[str]:
    return [*ctx.headers, *(name for name in ("authorization", "dpop") if ctx.headers.get(name))]


def ask(face: Face, given: str | None = None, tool: str = "who", scheme: str = "Bearer", **more: Any) -> Any:
    """Call a tool in the newest revision, with a token."""
    request = body("tools/call", {"name": tool, "arguments": {}})
    own = {"authorization": f"{scheme} {given}"} if given is not None else {}
    options = {name: more.pop(name) for name in ("query", "path") if name in more}
    return face.ask("POST", {**mirror(request), **own, **more}, request, **options)


def challenge(response: Any) -> dict[str, str]:
    """Return the parameters of the one challenge."""
    (found,) = read_challenges(response.headers["www-authenticate"])
    return {"scheme": found.scheme, **found.parameters}


def fetch(face: Face, answer: Callable[[HttpEffect], HttpResult]) -> list[HttpEffect]:
    """Let the authorization server answer; return what it is asked."""
    asked: list[HttpEffect] = []
    lock = threading.Lock()

    def respond(effect: HttpEffect) -> HttpResult:
        with lock:
            asked.append(effect)
        return answer(effect)

    face.app.guard.fetcher.fetch = respond
    return asked


def test_a_good_token_is_let_in_and_known_from_then_on(protect: Protect) -> None:
    face, good = protect(), token()
    for _ in range(3):
        response = ask(face, good)
        assert response.status == 200, response.body
        found = response.json()["result"]["structuredContent"]
        assert found == {"principal": f"{ISSUER} sub ann", "client": "editor", "scopes": ["files:read"]}


def test_a_request_without_a_token_is_told_where_to_get_one(protect: Protect) -> None:
    """AU-S2: no error, since nothing was wrong with a token."""
    response = ask(protect(scopes=["files:read"]))
    assert response.status == 401
    assert challenge(response) == {"scheme": "bearer", "resource_metadata": META, "scope": "files:read"}


def test_no_body_is_read_before_the_token_is_good(protect: Protect) -> None:
    response = protect().ask("POST", {"accept": "application/json", "content-length": "5000000"}, b"x" * 10)
    assert response.status in (401, 413)
    response = protect().ask("POST", {"accept": "application/json"}, b"{ no json")
    assert response.status == 401


@pytest.mark.parametrize("path", ["", "/mcp"])
def test_the_metadata_are_at_both_well_known_places_for_every_origin(protect: Protect, path: str) -> None:
    """AU-S1; no Origin is refused, and no Host."""
    headers = {"origin": "https://evil.example.com", "host": "anything.example.com"}
    response = protect().ask("GET", headers, path=f"/.well-known/oauth-protected-resource{path}")
    assert response.status == 200
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.json()["resource"] == RESOURCE


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_metadata_are_read_and_nothing_else(protect: Protect, method: str) -> None:
    face, path = protect(), "/.well-known/oauth-protected-resource/mcp"
    refused = face.ask(method, {}, path=path)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert b"resource" not in refused.body
    preflight = face.ask("OPTIONS", {"origin": "https://app.example.com"}, path=path)
    assert (preflight.status, preflight.headers["allow"], preflight.body) == (204, "GET, HEAD, OPTIONS", b"")
    assert preflight.headers["access-control-allow-origin"] == "*"
    read, head = (face.ask(each, {}, path=path) for each in ("GET", "HEAD"))
    assert (read.status, read.json()["resource"]) == (200, RESOURCE)
    assert (head.status, head.body, head.headers) == (200, b"", read.headers)


def test_a_handshake_client_is_let_in_by_its_token_too(protect: Protect) -> None:
    face, good = protect(), token()
    plain = face.open

    def open_with(method: str, headers: Any, *arguments: Any, **options: Any) -> Any:
        return plain(method, {**headers, "authorization": f"Bearer {good}"}, *arguments, **options)

    face.open = open_with  # type: ignore[method-assign]
    session = Session(face)
    found = session.call("who").messages() or [session.call("who").json()]
    assert f"{ISSUER} sub ann" in str(found)
    assert session.delete().whole().status == 204


# Attacks.


def refused(face: Face, given: str, scheme: str = "Bearer", **more: Any) -> Any:
    response = ask(face, given, scheme=scheme, **more)
    assert response.status == 401, response.body
    assert given not in str(response.body) + str(response.headers)
    return response


def test_attack_wrong_audience(protect: Protect, caplog: pytest.LogCaptureFixture) -> None:
    """The client learns only that the token is not valid; the log has the reason."""
    caplog.set_level(logging.WARNING)
    response = refused(protect(), token(aud="https://other.example.com/mcp"))
    assert challenge(response)["error"] == "invalid_token"
    assert "other.example.com" not in str(response.headers) + str(response.body)
    assert "the token is for 'https://other.example.com/mcp'" in caplog.text


def test_attack_token_of_another_server(protect: Protect) -> None:
    assert challenge(refused(protect(), token(iss="https://evil.example.com")))["error"] == "invalid_token"
    refused(protect(), token(key=OTHER))


def test_attack_alg_none(protect: Protect) -> None:
    refused(protect(), token({"alg": "none"}))


def test_attack_hs256_with_the_public_key(protect: Protect) -> None:
    refused(protect(), token({"alg": "HS256"}, KEY.as_pem(private=False)))


def test_attack_unknown_kid_flood(protect: Protect) -> None:
    face = protect(verify=Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys"))
    asked = fetch(face, lambda _: HttpResult(200, {}, json.dumps(JWKS).encode()))
    assert ask(face, token()).status == 200
    before = time.time() - 60  # before the last look at the keys: no key of then is missing here
    for number in range(20):
        refused(face, token({"kid": f"x{number}"}, now=before))
        later = ask(face, token({"kid": f"y{number}"}, now=time.time() + 5))
        assert (later.status, "retry-after" in later.headers) == (503, True)
    assert len(asked) == 1


def test_attack_session_hijack_by_a_second_principal(protect: Protect) -> None:
    """A session id is worth nothing with another user's token, nor with the token of another issuer for a user of that name."""
    second = Jwt("https://second.example.com", keys={"keys": [OTHER.as_dict(private=False)]})
    face = protect(verify=[jwt(), second])
    session = _session(face, token())
    for stranger in (token(sub="bob"), token(key=OTHER, iss="https://second.example.com")):
        for method, headers in (("POST", {}), ("GET", {"accept": "text/event-stream"}), ("DELETE", {})):
            given = {**session.headers, **headers, "authorization": f"Bearer {stranger}"}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if method == "POST" else b""
            assert face.ask(method, given, message).status == 404
    assert session.call("who").whole().status == 200


def _session(face: Face, given: str) -> Session:
    plain = face.open

    def open_with(method: str, headers: Any, *arguments: Any, **options: Any) -> Any:
        return plain(method, {"authorization": f"Bearer {given}", **headers}, *arguments, **options)

    face.open = open_with  # type: ignore[method-assign]
    return Session(face)


def test_attack_request_state_of_another_principal(protect: Protect) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))

    @server.tool
    def delete(ctx: Context) -> str:
        return f"deleted {ctx.ask('sure', bool, 'Sure?')}"

    face = protect(server)

    def send(given: str, **params: Any) -> Any:
        request = body(
            "tools/call", {"name": "delete", "arguments": {}, **params}, clientCapabilities={"elicitation": {}}
        )
        return face.ask("POST", {**mirror(request), "authorization": f"Bearer {given}"}, request).json()

    asked = send(token())["result"]
    answers = {"sure": {"action": "accept", "content": {"sure": True}}}
    state = {"requestState": asked["requestState"], "inputResponses": answers}
    assert "requestState is not valid" in str(send(token(sub="bob"), **state))
    assert "deleted True" in str(send(token(), **state))


def named_by_user_name(ask_for: HttpEffect) -> HttpResult:
    """Answer an introspection as django-oauth-toolkit does: no `sub`, the same client for all, and a user name for people."""
    (given,) = parse_qs((ask_for.body or b"").decode())["token"]
    answer: dict[str, Any] = {"active": True, "client_id": "editor", "aud": RESOURCE, "exp": time.time() + 600}
    person = given.partition("-")[0]
    return HttpResult(200, {}, json.dumps(answer | ({"username": person} if person != "job" else {})).encode())


STRANGERS = [("ann-1", "bob-1"), ("ann-1", "job-1"), ("job-1", "job-2"), ("job-1", "job-of-ann")]


@pytest.mark.parametrize(("owner", "stranger"), STRANGERS)
def test_tokens_without_a_subject_do_not_share_what_belongs_to_a_principal(
    protect: Protect, owner: str, stranger: str
) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=Introspection(ISSUER, "a", "b", endpoint=f"{ISSUER}/i")))
    server.middleware(only=["tools/call"])(RateLimit(1))

    @server.tool
    def delete(ctx: Context) -> str:
        return f"deleted {ctx.ask('sure', bool, 'Sure?')}"

    @server.tool(task=True)
    def work() -> str:
        return "done"

    @server.tool
    def look() -> str:
        return "seen"

    face = protect(server)
    fetch(face, named_by_user_name)

    def send(given: str, method: str, params: dict[str, Any], extensions: dict[str, Any] | None = None) -> Any:
        able = {"elicitation": {}} | ({"extensions": extensions} if extensions is not None else {})
        request = body(method, params, clientCapabilities=able)
        return face.ask("POST", {**mirror(request), "authorization": f"Bearer {given}"}, request).json()

    asked = send(owner, "tools/call", {"name": "delete", "arguments": {}})["result"]
    answers = {"sure": {"action": "accept", "content": {"sure": True}}}
    again = {
        "name": "delete",
        "arguments": {},
        "requestState": asked["requestState"],
        "inputResponses": answers,
    }
    assert "requestState is not valid" in str(send(stranger, "tools/call", again))
    assert "deleted True" in str(send(owner, "tools/call", again))

    begun = send(owner, "tools/call", {"name": "work", "arguments": {}}, {TASKS: {}})["result"]["taskId"]
    assert "error" in send(stranger, "tasks/get", {"taskId": begun}, {TASKS: {}})
    assert "result" in send(owner, "tasks/get", {"taskId": begun}, {TASKS: {}})

    looked = [str(send(given, "tools/call", {"name": "look", "arguments": {}})) for given in (owner, stranger, owner)]
    assert ["Too many calls" in each for each in looked] == [False, False, True]

    session = _session(face, owner)
    given = {**session.headers, "authorization": f"Bearer {stranger}"}
    assert face.ask("POST", given, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status == 404


def test_two_tokens_of_one_user_name_share_their_session(protect: Protect) -> None:
    face = protect(verify=Introspection(ISSUER, "a", "b", endpoint=f"{ISSUER}/i"))
    fetch(face, named_by_user_name)
    session = _session(face, "ann-1")
    given = {**session.headers, "authorization": "Bearer ann-2"}
    assert face.ask("POST", given, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status == 200


def test_attack_token_in_query(protect: Protect) -> None:
    face = protect()
    response = ask(face, query=f"access_token={token()}")
    assert (response.status, challenge(response)["error"]) == (400, "invalid_request")
    assert ask(face, token(), query=f"access_token={token()}").status == 400


def test_attack_two_authorization_headers() -> None:
    for kind in (Asgi, Http):
        face: Any = kind(Server("files", auth=Protected(RESOURCE, verify=jwt())))
        face.doubled = "authorization"
        response = ask(face, token())
        assert (response.status, challenge(response)["error"]) == (400, "invalid_request")
        face.stop()


def test_attack_two_tokens_in_one_header(protect: Protect) -> None:
    assert ask(protect(), f"{token()}, Bearer {token()}").status == 400


def test_attack_host_header_audience(protect: Protect) -> None:
    """What a request calls the host neither changes the audience, nor where a client is sent for a token."""
    face = protect()
    face.own, face.peer = "10.0.0.1", "10.0.0.2"
    refused(face, token(aud="https://evil.example.com/mcp"), host="evil.example.com")
    response = ask(face, host="evil.example.com")
    assert challenge(response)["resource_metadata"] == META


def test_attack_dpop_replay(protect: Protect) -> None:
    face, given = protect(), bound()
    text = proof(given)
    assert ask(face, given, scheme="DPoP", dpop=text).status == 200
    response = refused(face, given, scheme="DPoP", dpop=text)
    assert challenge(response)["error"] == "invalid_dpop_proof"
    assert challenge(response)["scheme"] == "dpop"
    assert "The DPoP proof is not valid" in response.json()["error"]["message"]
    response = refused(face, "nobody")
    assert "The token is not valid" in response.json()["error"]["message"]
    assert ask(face, given, scheme="DPoP", dpop=proof(given)).status == 200


def test_attack_replay_on_one_connection() -> None:
    """A head that repeats is remembered, but not one with a proof."""
    face = Http(Server("files", auth=Protected(RESOURCE, verify=jwt())))
    given, sent = bound(), bytearray()
    request = json.dumps(body("tools/list", {}))
    headers = {**mirror(json.loads(request)), "authorization": f"DPoP {given}", "dpop": proof(given)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    one = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{head}"
    one += f"content-length: {len(request)}\r\n\r\n{request}"
    face.loop.loop.call_soon_threadsafe(lambda: face.connect(sent.extend)[0].data_received(one.encode() * 3))
    face.until(lambda: sent.count(b"HTTP/1.1 ") == 3)
    assert re.findall(rb"HTTP/1.1 (\d+)", sent) == [b"200", b"401", b"401"]
    face.stop()


def test_requests_on_one_connection_wait_for_the_first_token_in_their_order() -> None:
    """Also those whose bodies come later than their heads; the second does not overtake the first."""
    started, go_on, seen = threading.Event(), threading.Event(), list[str]()

    def check(given: str) -> Grant | None:
        seen.append(given)
        started.set()
        go_on.wait(60)
        return Grant("https://own.example.com", subject=given)

    face, sent = Http(Server("files", auth=Protected(RESOURCE, verify=check))), bytearray()
    request = json.dumps(body("tools/list", {}))

    def message(given: str) -> bytes:
        headers = {
            **mirror(json.loads(request)),
            "authorization": f"Bearer {given}",
            "content-length": str(len(request)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{head}\r\n{request}".encode()
        )

    connections: list[Any] = []
    data = message("one") + message("two")
    call = face.loop.loop.call_soon_threadsafe
    call(lambda: connections.append(face.connect(sent.extend)))
    call(lambda: connections[0][0].data_received(data[:200]))
    call(lambda: connections[0][0].data_received(data[200:-20]))
    started.wait(60)
    call(lambda: connections[0][0].data_received(data[-20:]))
    assert not sent
    go_on.set()
    face.until(lambda: sent.count(b"HTTP/1.1 200") == 2)
    assert seen == ["one", "two"]
    face.stop()


def test_a_client_that_goes_while_its_token_is_verified_leaves_nothing_behind() -> None:
    started, go_on = threading.Event(), threading.Event()

    def check(_: str) -> Grant | None:
        started.set()
        go_on.wait(60)
        return None

    face, sent = Http(Server("files", auth=Protected(RESOURCE, verify=check))), bytearray()
    connections: list[Any] = []
    call = face.loop.loop.call_soon_threadsafe
    call(lambda: connections.append(face.connect(sent.extend)))
    head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json\r\n"
    call(lambda: connections[0][0].data_received(head + b"authorization: Bearer x\r\ncontent-length: 2\r\n\r\n{}"))
    started.wait(60)
    call(lambda: connections[0][0].connection_lost(None))
    go_on.set()
    face.until(lambda: face.app.guard._waiting == 0)
    assert not sent
    face.stop()


def test_attack_a_bound_token_as_a_bearer_token(protect: Protect) -> None:
    refused(protect(), bound())
    refused(protect(), token(), scheme="DPoP", dpop=proof(token()))


def test_attack_a_refused_token_under_the_other_scheme_again(protect: Protect) -> None:
    face, given = protect(), token()
    for _ in range(2):
        refused(face, given, scheme="DPoP", dpop=proof(given))


# Rules.


def test_two_tokens_that_differ_in_scheme_are_not_mixed_up_in_what_is_known(protect: Protect) -> None:
    face, given = protect(), bound()
    assert ask(face, given, scheme="DPoP", dpop=proof(given)).status == 200
    refused(face, given)


def test_where_keys_are_required_a_nonce_is_given_and_must_come_back(protect: Protect) -> None:
    face, given = protect(dpop="required"), bound()
    refused(face, token())
    response = refused(face, given, scheme="DPoP", dpop=proof(given))
    assert challenge(response)["error"] == "use_dpop_nonce"
    nonce = response.headers["dpop-nonce"]
    assert ask(face, given, scheme="DPoP", dpop=proof(given, nonce=nonce)).status == 200
    refused(face, given, scheme="DPoP", dpop=proof(given, nonce=nonce + "x"))


def test_a_token_without_the_scopes_of_the_server_is_forbidden(protect: Protect) -> None:
    face = protect(scopes=["files:read", "files:list"], implies={"files:all": ["files:read", "files:list"]})
    response = ask(face, token())
    assert response.status == 403
    found = challenge(response)
    assert (found["error"], found["scope"]) == ("insufficient_scope", "files:read files:list")
    assert ask(face, token(scope="files:all")).status == 200


def test_no_header_setting_gives_the_token_back(protect: Protect) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()), secret_headers=[])
    server.define_tool(name="headers", handler=headers_seen)
    found = ask(protect(server), token(), "headers").json()["result"]["structuredContent"]["result"]
    assert "accept" in found
    assert not {"authorization", "dpop"} & set(found)


def test_an_api_key_may_be_in_a_header_of_its_own(protect: Protect) -> None:
    grant = Grant("keys", subject="robot", scopes=frozenset({"files:read"}))
    face = protect(verify=[jwt(), ApiKeys({sha256(b"hunter2").hexdigest(): grant}, header="X-Api-Key")])
    found = ask(face, **{"x-api-key": "hunter2"}).json()["result"]["structuredContent"]
    assert found["principal"] == "keys sub robot"
    assert ask(face, **{"x-api-key": "hunter3"}).status == 401
    assert ask(face, "hunter2").status == 401
    assert ask(face, token(), **{"x-api-key": "hunter2"}).status == 400


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_may_verify_tokens(protect: Protect, kind: str) -> None:
    calls: list[str] = []
    on_loop: set[bool] = set()

    def check(given: str) -> Grant | None:
        calls.append(given)
        on_loop.add(asyncio._get_running_loop() is not None)
        return Grant("https://own.example.com", subject="ann") if given == "good" else None

    async def check_later(given: str) -> Grant | None:
        return check(given)

    face = protect(verify=check if kind == "def" else check_later)
    assert [ask(face, given).status for given in ("good", "bad", "good")] == [200, 401, 200]
    assert calls == ["good", "bad"]
    assert on_loop == {kind != "def"}, "a plain function may block"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_while_a_function_raises_a_token_is_neither_good_nor_bad(
    protect: Protect, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a provider cannot be reached: the client keeps its login and comes again."""

    def check(_: str) -> Grant | None:
        raise RuntimeError("the password is hunter2")

    async def check_later(given: str) -> Grant | None:
        return check(given)

    response = ask(protect(verify=check if kind == "def" else check_later), "x")
    assert (response.status, response.headers["retry-after"]) == (503, "5")
    assert "www-authenticate" not in response.headers
    assert "hunter2" not in str(response.body) + str(response.headers)
    (record,) = [each for each in caplog.records if each.name == "linkspan.http"]
    assert "raised RuntimeError" in record.message
    assert record.message.endswith("return None for a token that is not valid [LS-612]")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


def test_a_token_in_the_error_of_a_function_is_not_in_the_log(
    protect: Protect, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients of HTTP have the URL in their errors, and Google wants the token in it."""

    def check(given: str) -> Grant | None:
        raise OSError(f"no route to https://tokens.example.com/?access_token={quote(given, safe='')} ({given})")

    assert ask(protect(verify=check), "a/very+secret=").status == 503
    assert "no route to https://tokens.example.com/?access_token=[redacted] ([redacted])" in caplog.text
    assert "secret" not in caplog.text
    assert "in check" in caplog.text


def test_a_function_that_returns_no_grant_is_an_internal_error(
    protect: Protect, caplog: pytest.LogCaptureFixture
) -> None:
    response = ask(protect(verify=lambda _: True), "x")
    assert response.status == 500
    assert "returns a Grant or None, not bool" in caplog.text


def test_while_the_issuer_is_down_a_new_token_is_neither_good_nor_bad(protect: Protect) -> None:
    face = protect(verify=Introspection(ISSUER, "me", "secret", endpoint=f"{ISSUER}/introspect"))

    def down(_: HttpEffect) -> HttpResult:
        raise HttpUnavailable("no route")

    fetch(face, down)
    response = ask(face, "opaque")
    assert (response.status, response.headers["retry-after"]) == (503, "5")
    assert "www-authenticate" not in response.headers


def test_a_token_with_a_key_of_a_moment_ago_is_to_be_sent_again(protect: Protect) -> None:
    """The keys rotate twice within half a minute, for which they are not read again."""
    face = protect(verify=Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys"))
    asked = fetch(face, lambda _: HttpResult(200, {}, json.dumps(JWKS).encode()))
    assert ask(face, token()).status == 200
    response = ask(face, token({"kid": "k2"}, OTHER, iat=time.time() + 5))
    assert response.status == 503
    assert 20 <= int(response.headers["retry-after"]) <= 30
    assert "www-authenticate" not in response.headers
    assert ask(face, token({"kid": "k2"}, OTHER, iat=time.time() - 60)).status == 401
    assert len(asked) == 1


def test_an_introspected_token_is_asked_about_once_a_minute(protect: Protect, monkeypatch: pytest.MonkeyPatch) -> None:
    face = protect(verify=Introspection(ISSUER, "me", "secret", endpoint=f"{ISSUER}/introspect"))
    found = {"active": True, "sub": "ann", "aud": RESOURCE, "exp": time.time() + 3600}
    asked = fetch(face, lambda _: HttpResult(200, {}, json.dumps(found).encode()))
    assert [ask(face, "opaque").status for _ in range(3)] == [200, 200, 200]
    assert len(asked) == 1
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert ask(face, "opaque").status == 200
    assert len(asked) == 2


@pytest.mark.parametrize(("left", "again"), [(3600, [1, 1, 2]), (20, [1, 2, 3])])
def test_an_active_answer_is_remembered_as_long_as_the_author_says_but_not_beyond_its_end(
    protect: Protect, monkeypatch: pytest.MonkeyPatch, left: float, again: list[int]
) -> None:
    """Asked about at once, after 29 and 31 seconds. What has ended is still good for the leeway of the clocks, if asked about."""
    face = protect(verify=Introspection(ISSUER, "me", "secret", endpoint=f"{ISSUER}/introspect", remember=30))
    begin = time.time()
    found = {"active": True, "sub": "ann", "aud": RESOURCE, "exp": begin + left}
    asked = fetch(face, lambda _: HttpResult(200, {"cache-control": "no-cache"}, json.dumps(found).encode()))
    counts: list[int] = []
    for seconds in (0, 29, 31):
        monkeypatch.setattr(time, "time", lambda now=begin + seconds: now)
        assert ask(face, "opaque").status == 200
        counts.append(len(asked))
    assert counts == again


def test_an_inactive_answer_is_not_remembered(protect: Protect) -> None:
    face = protect(verify=Introspection(ISSUER, "me", "secret", endpoint=f"{ISSUER}/introspect", remember=30))
    asked = fetch(face, lambda _: HttpResult(200, {}, b'{"active": false}'))
    assert [ask(face, "opaque").status for _ in range(2)] == [401, 401]
    assert len(asked) == 2


def test_a_middleware_that_identifies_and_auth_exclude_each_other(caplog: pytest.LogCaptureFixture) -> None:
    for kind in (Asgi, Wsgi):
        face: Any = kind(Server("files", auth=Protected(RESOURCE, verify=jwt())))
        request = body("tools/list", {})
        response = face.ask("POST", {**mirror(request), "authorization": f"Bearer {token()}"}, request, principal="ann")
        assert response.status == 500
        face.stop()
    assert "remove one of them" in caplog.text


def test_a_page_may_read_a_refusal_where_it_may_read_answers() -> None:
    for kind in (Asgi, Wsgi, Http):
        server = Server("files", auth=Protected(RESOURCE, verify=jwt()))
        face = kind(server, cors=["https://app.example.com"])
        response = ask(face, origin="https://app.example.com")
        assert response.status == 401
        assert response.headers["access-control-allow-origin"] == "https://app.example.com"
        assert "www-authenticate" in response.headers["access-control-expose-headers"]
        preflight = face.ask("OPTIONS", {"origin": "https://app.example.com", "access-control-request-method": "POST"})
        assert preflight.status == 204
        face.stop()


# Scopes of single items, of which clients are not told.


class Note(Wire):
    name: str


class Notes(Wire):
    notes: list[Note]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None


def add_item(server: Server, kind: str) -> None:
    """Add an item that needs a scope."""
    if kind == "tool":
        server.define_tool(name="it", handler=lambda: "", scopes=["files:write"])
    elif kind == "prompt":
        server.prompt("it", scopes=["files:write"])(lambda: "")
    elif kind == "resource":
        server.define_resource("docs://it", text="", scopes=["files:write"])
    elif kind == "resource template":
        server.define_resource_template("docs://{it}", read=lambda it: it, scopes=["files:write"])
    else:
        server.items("notes/list").add(Note("it"), scopes=["files:write"])


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "resource template", "note"])
def test_a_start_warns_once_of_scopes_that_clients_do_not_know(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    spec = ListSpec(method="notes/list", noun="note", key="name", capability="notes", item=Note, result=Notes)
    notes = Extension(id="com.example/notes", server={}, lists=(spec,))
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()), extensions=[notes])
    add_item(server, kind)
    apps = [server.asgi(), server.wsgi(), server.asgi()]
    (line,) = [each.message for each in caplog.records if each.name == "linkspan.http"]
    assert line.startswith(f"the {kind} '")
    assert "scopes=['files:write']" in line
    assert line.endswith("[LS-614]")
    assert len(apps) == 3


def test_the_metadata_name_the_scopes_of_every_request_and_no_others(
    protect: Protect, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt(), scopes=["files:read"]))
    add_item(server, "tool")
    found = protect(server).ask("GET", {}, path="/.well-known/oauth-protected-resource").json()
    assert found["scopes_supported"] == ["files:read"]
    assert "LS-614" not in caplog.text


# Where it is.


def test_the_url_of_the_server_must_be_given_except_on_loopback() -> None:
    server = Server("files", auth=Protected(verify=jwt()))
    for serve in (server.asgi, server.wsgi, server.well_known):
        with pytest.raises(LinkspanError, match="https://"):
            serve()


def test_below_another_app_the_metadata_are_below_our_own_path_too() -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))
    face = Asgi(server)
    face.root_path = "/mcp"
    below = "/mcp/.well-known/oauth-protected-resource"
    assert challenge(ask(face))["resource_metadata"] == f"https://api.example.com{below}"
    assert face.ask("GET", path=below).json()["resource"] == RESOURCE
    face.stop()


@pytest.mark.parametrize("interface", ["asgi", "wsgi"])
def test_an_app_may_have_the_metadata_at_its_root(interface: Any) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))
    face = (Asgi if interface == "asgi" else Wsgi)(None, server.well_known(interface))
    for path in ("", "/mcp", "/mcp/"):
        assert face.ask("GET", path=f"/.well-known/oauth-protected-resource{path}").json()["resource"] == RESOURCE
    assert face.ask("GET", path="/.well-known/oauth-protected-resource/other").status == 404
    refused = face.ask("POST", path="/.well-known/oauth-protected-resource/mcp")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert face.ask("HEAD", path="/.well-known/oauth-protected-resource/mcp").body == b""
    face.stop()


# The authorization server over the network.


class Answers(BaseHTTPRequestHandler):
    """An issuer on loopback, whose keys are slow, so that all who need them ask at once."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        issuer = f"http://{self.headers['host']}"
        document: Any = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        if self.path == "/keys":
            time.sleep(0.05)
            document = JWKS
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[tuple[str, list[str]]]:
    """Serve metadata and keys on loopback."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Noted", (Answers,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def test_keys_are_fetched_once_for_all_requests_that_need_them(protect: Protect, issuer: tuple[str, list[str]]) -> None:
    url, asked = issuer
    face, given = protect(verify=(), issuer=url), token(iss=url)
    request = body("tools/call", {"name": "who", "arguments": {}})
    headers = {**mirror(request), "authorization": f"Bearer {given}"}
    responses = [face.open("POST", headers, request) for _ in range(8)]
    assert [each.whole().status for each in responses] == [200] * 8
    assert set(asked) == {"/.well-known/oauth-authorization-server", "/keys"}
    assert len(asked) <= 3  # one that comes as the others go on may ask once more


def test_a_request_that_is_cancelled_does_not_take_the_keys_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher, effect, go = Fetcher([ISSUER]), HttpEffect("GET", f"{ISSUER}/keys", {}), threading.Event()
    keys = HttpResult(200, {}, b"keys")

    def fetch(_: HttpEffect) -> HttpResult:
        assert go.wait(60)
        return keys

    monkeypatch.setattr(fetcher, "fetch", fetch)

    async def wait_for_both() -> None:
        cancelled, other = (asyncio.wrap_future(fetcher.submit(effect)) for _ in range(2))
        cancelled.cancel()
        await asyncio.sleep(0)  # so that what they wait for hears of it
        go.set()
        assert await asyncio.wait_for(other, 60) is keys

    asyncio.run(wait_for_both())


def test_requests_with_other_credentials_do_not_share_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens that a provider is asked about at the same moment, in the Authorization header."""
    fetcher, both = Fetcher([ISSUER]), threading.Barrier(2)

    def fetch(effect: HttpEffect) -> HttpResult:
        both.wait(60)
        return HttpResult(200, {}, effect.headers["authorization"].encode())

    monkeypatch.setattr(fetcher, "fetch", fetch)
    asked = [fetcher.submit(HttpEffect("POST", f"{ISSUER}/info", {"authorization": each})) for each in ("ann", "bob")]
    assert [each.result(60).body for each in asked] == [b"ann", b"bob"]


def test_keys_at_an_address_that_only_the_metadata_name_are_not_fetched() -> None:
    """Metadata of a public issuer that lead to an address of this machine, or of a cloud, are a trap."""
    for url in ("https://127.0.0.1:1/keys", "https://169.254.169.254/keys", "http://example.com/keys"):
        fetcher = Fetcher(["https://login.example.com"])
        fetcher._addresses = lambda: {"93.184.216.34"}  # type: ignore[method-assign]
        with pytest.raises(HttpUnavailable, match=r"private network|not https"):
            fetcher.fetch(HttpEffect("GET", url, {}))


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, address: str) -> None:
    """Let a name have an address."""
    system = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        return system(address if host in (name, name.encode()) else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_an_issuer_in_a_private_network_may_be_asked_over_http(
    protect: Protect, issuer: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of several issuers is public, and each has rules of its own."""
    resolve(monkeypatch, "keycloak", "127.0.0.1")
    url = f"http://keycloak:{issuer[0].rpartition(':')[2]}"
    face = protect(verify=[jwt(), Jwt(url, insecure_issuer=True)])
    assert ask(face, token(iss=url)).status == 200
    assert issuer[1] == ["/.well-known/oauth-authorization-server", "/keys"]


@pytest.mark.parametrize(
    ("address", "url", "reason"),
    [
        (
            "93.184.216.34",
            "http://keycloak/keys",
            "public address 93.184.216.34, and http is for private networks only",
        ),
        ("169.254.169.254", "http://keycloak/keys", "private network"),
        ("127.0.0.1", "http://keycloak:81/keys", "not https"),
        ("127.0.0.1", "http://another/keys", "not https"),
    ],
)
def test_http_is_for_the_origin_that_was_allowed_and_its_private_address(
    address: str, url: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(monkeypatch, "keycloak", address)
    fetcher = Fetcher(Jwt("http://keycloak/realms/x", insecure_issuer=True).named_urls)
    with pytest.raises(HttpUnavailable, match=reason):
        fetcher.fetch(HttpEffect("GET", url, {}))


# Tokens for other services.


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_gets_a_token_for_another_service_and_never_its_own(protect: Protect, kind: str) -> None:
    exchange = TokenExchange(ISSUER, "files", "secret", token_endpoint=f"{ISSUER}/token")
    server = Server("files", auth=Protected(RESOURCE, verify=jwt(), exchange=exchange))
    if kind == "def":

        @server.tool
        def upstream(ctx: Context) -> str:
            found = ctx.token_for("https://store.example.com", ["store:read"])
            assert "other" not in repr(found)
            return str(found)
    else:

        @server.tool(name="upstream")
        async def upstream_later(ctx: Context) -> str:
            return await ctx.token_for("https://store.example.com", ["store:read"])

    face, given = protect(server), token()
    answer = {"access_token": "other-token", "token_type": "Bearer", "expires_in": 300}
    asked = fetch(face, lambda _: HttpResult(200, {}, json.dumps(answer).encode()))
    for _ in range(2):
        assert ask(face, given, "upstream").json()["result"]["structuredContent"] == {"result": "other-token"}
    (effect,) = asked
    assert f"subject_token={given}" in effect.body.decode()
    assert re.search(r"audience=https%3A%2F%2Fstore.example.com", effect.body.decode())


def test_without_an_exchange_there_is_no_token_for_others(protect: Protect) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))

    @server.tool
    def upstream(ctx: Context) -> str:
        try:
            return str(ctx.token_for("x"))
        except LinkspanError as problem:
            return str(problem)

    assert "exchange=TokenExchange" in str(ask(protect(server), token(), "upstream").json())
    reply = server.handle_json(
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"upstream","arguments":{}}}'
    )
    assert "there is no token to exchange" in str(reply)


# Scopes of tools, prompts and resources.


def scoped(**options: Any) -> Server:
    server = Server("files", cache_scope="public", auth=Protected(RESOURCE, **{"verify": jwt(), **options}))

    @server.tool(scopes=["files:write", "files:read"])
    def write(path: str) -> str:
        return f"wrote {path}"

    @server.tool(scopes=["files:admin"], when=lambda ctx: ctx.grant is not None and ctx.grant.subject == "root")
    def format_disk() -> str:
        return "formatted"

    @server.tool
    def read() -> str:
        return "free"

    @server.prompt(scopes=["files:write"])
    def compose(style: Literal["short", "long"] = "short") -> str:
        return f"Compose {style}"

    @server.resource("files://secret", scopes=["files:write"])
    def secret() -> str:
        return "secret"

    @server.resource("files://{name}/private", scopes=["files:write"])
    def private(name: str) -> str:
        return f"private {name}"

    return server


OPERATIONS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "write", "arguments": {"path": "x"}}),
    ("prompts/get", {"name": "compose", "arguments": {}}),
    ("resources/read", {"uri": "files://secret"}),
    ("resources/read", {"uri": "files://a/private"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "compose"}, "argument": {"name": "style", "value": ""}},
    ),
]


@pytest.mark.parametrize(("method", "params"), OPERATIONS)
def test_without_its_scopes_an_operation_is_forbidden_and_all_of_them_are_named(
    protect: Protect, method: str, params: dict[str, Any]
) -> None:
    """AU-S4."""
    face, request = protect(scoped()), body(method, params)

    def send(given: str) -> Any:
        return face.ask("POST", {**mirror(request), "authorization": f"Bearer {given}"}, request)

    response = send(token())
    assert response.status == 403, response.body
    found = challenge(response)
    assert (found["error"], found["resource_metadata"]) == ("insufficient_scope", META)
    assert "files:write" in found["scope"].split()
    assert (response.json()["id"], response.code) == (1, -32600)
    assert send(token(scope="files:read files:write")).status == 200


def test_a_handshake_client_is_forbidden_by_its_status_too(protect: Protect) -> None:
    face = protect(scoped())
    session = _session(face, token())
    response = session.call("write", {"path": "x"}).whole()
    assert response.status == 403
    assert challenge(response)["scope"] == "files:write files:read"
    assert session.call("read").whole().status == 200
    stepped_up = face.ask(
        "POST",
        {**session.headers, "authorization": f"Bearer {token(scope='files:read files:write')}"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "write", "arguments": {"path": "x"}}},
    )
    assert stepped_up.status == 200
    assert b"wrote x" in stepped_up.body


def test_in_a_batch_what_is_forbidden_is_an_error_of_its_own(protect: Protect) -> None:
    session = _session(protect(scoped()), token())
    session = Session(session.face, revision="2025-03-26")
    call = {"jsonrpc": "2.0", "method": "tools/call"}
    batch = [
        {**call, "id": 1, "params": {"name": "write", "arguments": {"path": "x"}}},
        {**call, "id": 2, "params": {"name": "read", "arguments": {}}},
    ]
    response = session.post(batch).whole()
    assert response.status == 200
    answers = response.messages() or response.json()
    found = {each["id"]: each for each in (answers[0] if isinstance(answers[0], list) else answers)}
    assert found[1]["error"]["data"] == {"scopes": ["files:write", "files:read"]}
    assert found[2]["result"]


@pytest.fixture(params=["plain", "async"])
def peeking(request: pytest.FixtureRequest) -> Server:
    """A server with tools for everybody, which read what not everybody may."""
    server = scoped()
    server.define_resource("files://hidden", text="hidden", when=lambda ctx: False)

    def peek(uri: str, ctx: Context, as_server: bool = False) -> str:
        return str(ctx.read_resource(uri, as_server=as_server).contents[0])

    def quote(ctx: Context, as_server: bool = False) -> str:
        try:
            return str(ctx.get_prompt("compose", as_server=as_server).messages[0].content)
        except Forbidden as problem:
            return f"forbidden: {problem.scopes}"

    async def peek_async(uri: str, ctx: Context, as_server: bool = False) -> str:
        return str((await ctx.read_resource(uri, as_server=as_server)).contents[0])

    async def quote_async(ctx: Context, as_server: bool = False) -> str:
        try:
            return str((await ctx.get_prompt("compose", as_server=as_server)).messages[0].content)
        except Forbidden as problem:
            return f"forbidden: {problem.scopes}"

    plain = request.param == "plain"
    server.define_tool(name="peek", handler=peek if plain else peek_async)
    server.define_tool(name="quote", handler=quote if plain else quote_async)
    return server


def use(face: Face, scope: str, name: str, **arguments: Any) -> Any:
    """Call a tool with a token that has a scope."""
    request = body("tools/call", {"name": name, "arguments": arguments})
    return face.ask("POST", {**mirror(request), "authorization": f"Bearer {token(scope=scope)}"}, request)


@pytest.mark.parametrize("uri", ["files://secret", "files://a/private"])
def test_a_handler_reads_only_what_its_caller_may(protect: Protect, peeking: Server, uri: str) -> None:
    face = protect(peeking)
    refused = use(face, "files:read", "peek", uri=uri)
    assert refused.status == 403
    assert challenge(refused)["scope"] == "files:write"
    assert "forbidden: ('files:write',)" in str(use(face, "files:read", "quote").json())
    assert uri in str(use(face, "files:write", "peek", uri=uri).json())
    assert "Compose short" in str(use(face, "files:write", "quote").json())


def test_a_handler_reads_as_the_server_what_its_caller_may_not(protect: Protect, peeking: Server) -> None:
    face = protect(peeking)
    for uri in ("files://secret", "files://hidden"):
        assert uri in str(use(face, "files:read", "peek", uri=uri, as_server=True).json()["result"])
    assert "Compose short" in str(use(face, "files:read", "quote", as_server=True).json())
    assert "not found" in str(use(face, "files:write", "peek", uri="files://hidden").json()["error"])


def test_scopes_that_are_implied_are_granted(protect: Protect) -> None:
    face = protect(scoped(implies={"files:write": ["files:read"]}))
    request = body(*OPERATIONS[0])
    headers = {**mirror(request), "authorization": f"Bearer {token(scope='files:write')}"}
    assert face.ask("POST", headers, request).status == 200


def test_what_needs_scopes_is_listed_and_the_list_is_private(protect: Protect) -> None:
    request = body("tools/list", {})
    result = (
        protect(scoped())
        .ask("POST", {**mirror(request), "authorization": f"Bearer {token()}"}, request)
        .json()["result"]
    )
    assert [each["name"] for each in result["tools"]] == ["write", "read"]
    assert result["cacheScope"] == "private"


def test_what_a_caller_does_not_see_is_unknown_and_not_forbidden(protect: Protect) -> None:
    face, request = protect(scoped()), body("tools/call", {"name": "format_disk", "arguments": {}})
    response = face.ask("POST", {**mirror(request), "authorization": f"Bearer {token()}"}, request)
    assert (response.status, response.code) == (200, -32602)
    root = {**mirror(request), "authorization": f"Bearer {token(sub='root')}"}
    assert face.ask("POST", root, request).status == 403


def test_a_handler_may_find_out_itself_that_scopes_are_missing(protect: Protect) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))

    @server.tool
    def write(path: str, ctx: Context) -> str:
        if path.startswith("/etc") and ctx.grant is not None and "files:admin" not in ctx.grant.scopes:
            raise Forbidden(["files:admin"])
        return "wrote"

    request = body("tools/call", {"name": "write", "arguments": {"path": "/etc/x"}})
    response = protect(server).ask("POST", {**mirror(request), "authorization": f"Bearer {token()}"}, request)
    assert (response.status, challenge(response)["scope"]) == (403, "files:admin")


def test_where_there_are_no_tokens_all_scopes_are_granted() -> None:
    reply = scoped().handle_json(
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"path":"x"}}}'
    )
    assert "wrote x" in str(reply)


@pytest.mark.parametrize("kind", [Asgi, Wsgi, Http])
def test_over_http_without_auth_no_scope_is_granted(kind: Callable[..., Face]) -> None:
    server = Server("files")

    @server.tool(scopes=["files:write"])
    def write() -> str:
        return "wrote"

    request = body("tools/call", {"name": "write", "arguments": {}})
    face = kind(server)
    response = face.ask("POST", mirror(request), request)
    assert response.status == 403
    assert b"auth=Protected(...)" in response.body
    face.stop()


@pytest.mark.parametrize("scopes", ["files:write", ["a b"], [7], ["a,", 'b"']])
def test_scopes_that_are_no_list_of_names_are_refused_at_registration(scopes: Any) -> None:
    with pytest.raises(RegistrationError, match="scopes= takes a list of names"):
        Server().define_tool(name="x", handler=lambda: None, scopes=scopes)


# The page for people.


@pytest.mark.parametrize(
    ("method", "headers", "shown", "is_page"),
    [
        ("GET", {"accept": "text/html,*/*;q=0.8"}, True, True),
        ("GET", {"accept": "text/html"}, False, False),
        ("GET", {"accept": "*/*"}, True, False),
        ("GET", {"accept": "text/html", "mcp-session-id": "x"}, True, False),
        ("GET", {"accept": "text/html", "authorization": "Bearer x"}, True, False),
        ("POST", {"accept": "text/html"}, True, False),
    ],
)
def test_a_browser_without_a_token_gets_a_page_with_the_challenge(
    method: str, headers: dict[str, str], shown: bool, is_page: bool
) -> None:
    server = Server("files", "7.7.7", instructions="Be careful", auth=Protected(RESOURCE, verify=jwt()))
    guard = guard_of(server, Gate(HttpPolicy(page=shown)))
    found = guard.admit(TransportInfo(headers), method, "", below=False)
    refusal = found.run() if isinstance(found, Verification) else found
    assert isinstance(refusal, HttpResponse)
    got = dict(refusal.headers)
    assert refusal.status == 401
    assert "resource_metadata=" in got["www-authenticate"]
    assert got["content-type"].startswith("text/html") is is_page
    assert b"7.7.7" not in refusal.body
    assert b"Be careful" not in refusal.body
    if is_page:
        assert got["content-security-policy"].endswith(f"connect-src 'self' {ISSUER}")
        assert got["cache-control"] == "no-store"
