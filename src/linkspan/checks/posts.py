"""Requirements on servers at a URL: methods, media types, headers, sessions and origins."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from linkspan.checks.findings import expect, not_applicable
from linkspan.checks.peer import CheckedPeer, PeerAnswer, WebPeer
from linkspan.checks.requirement import requirement
from linkspan.revisions import LEGACY
from linkspan.wire.headers import is_loopback

_HTTP: Final = "basic/transports#streamable-http"
_EVIL: Final = "https://attacker.example"
_MISMATCH: Final = -32020


def _web(peer: CheckedPeer) -> WebPeer:
    assert isinstance(peer, WebPeer)
    return peer


def _post(peer: CheckedPeer, headers: Mapping[str, str]) -> PeerAnswer:
    """Post a request that each server serves, with other headers."""
    return peer.exchange(peer.message("server/discover" if peer.modern else "ping"), headers=headers)


@requirement("H5-1", "GET is answered with 405, or with a stream of events", _HTTP, transports=("http",))
def _get(peer: CheckedPeer) -> None:
    web = _web(peer)
    headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": peer.revision.date}
    if web.session is not None:
        headers["Mcp-Session-Id"] = web.session
    found = web.web.get(web.web.url, headers, head_only=True)
    streams = found.kind == "text/event-stream" and found.status == 200
    expect(found.status == 405 or streams, f"GET with Accept: text/event-stream: {found.words}")


@requirement("H5-2", "a request with the Origin of another site is refused with 403", _HTTP, transports=("http",))
def _origin(peer: CheckedPeer) -> None:
    answer = _post(peer, {"Origin": _EVIL})
    allowed = answer.web.headers.get("access-control-allow-origin")
    if answer.web.status == 200 and allowed in ("*", _EVIL) and not _is_local(peer):
        not_applicable("it allows pages of every site")
    expect(answer.web.status == 403, f"POST with Origin: {_EVIL}: {answer.web.words}; must be 403")


@requirement(
    "H5-12", "a server of this machine refuses the Host of another one", _HTTP, transports=("http",), strength="should"
)
def _host(peer: CheckedPeer) -> None:
    if not _is_local(peer):
        not_applicable("it is not on this machine")
    answer = _post(peer, {"Host": "attacker.example"})
    expect(400 <= answer.web.status < 500, f"POST with Host: attacker.example: {answer.web.words}")


@requirement("H5-3", "a request is answered with JSON or with a stream of events", _HTTP, transports=("http",))
def _kinds(peer: CheckedPeer) -> None:
    found = _post(peer, {}).web
    expect(found.kind in ("application/json", "text/event-stream"), f"POST: {found.words}")


@requirement("H5-13", "a notification is answered with 202 and no body", _HTTP, transports=("http",))
def _accepted(peer: CheckedPeer) -> None:
    found = peer.notify("notifications/cancelled", {"requestId": "no-such-request"}).web
    expect(found.status == 202 and not found.body, f"POST of a notification: {found.words}, {len(found.body)} bytes")


@requirement("H5-4", "a body that is not valid JSON is answered with 400", _HTTP, transports=("http",))
def _no_json(peer: CheckedPeer) -> None:
    found = peer.exchange(b"{", headers={"MCP-Protocol-Version": peer.revision.date}).web
    expect(found.status == 400, f"POST of half a message: {found.words}")


@requirement("H5-14", "another Content-Type is refused with 415", _HTTP, transports=("http",), strength="should")
def _content_type(peer: CheckedPeer) -> None:
    found = _post(peer, {"Content-Type": "text/plain"}).web
    expect(400 <= found.status < 500, f"POST with Content-Type: text/plain: {found.words}")


@requirement(
    "H5-15",
    "a client that takes neither JSON nor streams is refused with 406",
    _HTTP,
    transports=("http",),
    strength="should",
)
def _accept(peer: CheckedPeer) -> None:
    found = _post(peer, {"Accept": "text/html"}).web
    expect(400 <= found.status < 500, f"POST with Accept: text/html: {found.words}")


@requirement("H5-16", "the names of headers are taken in any case", _HTTP, transports=("http",))
def _cases(peer: CheckedPeer) -> None:
    web = _web(peer)
    message = peer.message("server/discover" if peer.modern else "ping")
    upper = {name.upper(): value for name, value in web.usual(message).items()}
    answer = peer.exchange(message, headers={**dict.fromkeys(web.usual(message), ""), **upper})
    expect(not answer.failed and answer.message is not None, f"headers in capitals: {answer.words}")


@requirement("MSG-13", "two clients with one id get their own responses", _HTTP, eras=("modern",), transports=("http",))
def _same_id_twice(peer: CheckedPeer) -> None:
    method = "server/discover" if peer.modern else "ping"
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(peer.exchange, peer.message(method, id="same")) for _ in range(2)]
        found = [each.result() for each in waiting]
    for each in found:
        expect(each.message is not None and each.message.get("id") == "same", f"{each.asked}: {each.words}")


@requirement(
    "H5-8",
    "a request without MCP-Protocol-Version, or with another than its body, is refused with 400",
    _HTTP,
    eras=("modern",),
    transports=("http",),
)
def _version_header(peer: CheckedPeer) -> None:
    _is_missed(peer, "MCP-Protocol-Version")
    _post(peer, {"MCP-Protocol-Version": LEGACY[-2]}).expect_refused(_MISMATCH, status=400)


@requirement(
    "H5-17",
    "a request without Mcp-Method, or with another than its body, is refused with 400",
    _HTTP,
    eras=("modern",),
    transports=("http",),
)
def _method_header(peer: CheckedPeer) -> None:
    _is_missed(peer, "Mcp-Method")
    _post(peer, {"Mcp-Method": "tools/LIST"}).expect_refused(_MISMATCH, status=400)


@requirement(
    "H5-18",
    "a call with another Mcp-Name than its body is refused with -32020",
    _HTTP,
    eras=("modern",),
    transports=("http",),
)
def _name_header(peer: CheckedPeer) -> None:
    peer.offers("tools")
    message = peer.message("tools/call", {"name": "linkspan-check", "arguments": {}})
    peer.exchange(message, headers={"Mcp-Name": "another"}).expect_refused(_MISMATCH, status=400)
    peer.exchange(message, headers={"Mcp-Name": ""}).expect_refused(_MISMATCH, status=400)
    wrong = {"Mcp-Name": "=?base64?SGVs!!!bG8=?="}
    peer.exchange(message, headers=wrong).expect_refused(_MISMATCH, status=400)


@requirement("H5-9", "no session begins", _HTTP, eras=("modern",), transports=("http",))
def _no_session(peer: CheckedPeer) -> None:
    found = _post(peer, {"Mcp-Session-Id": "linkspan-check"}).web
    expect(found.status == 200, f"POST with a session that does not exist: {found.words}")
    expect("mcp-session-id" not in found.headers, "the answer has an Mcp-Session-Id")


@requirement(
    "HL-15", "an unknown MCP-Protocol-Version is refused with 400", _HTTP, eras=("legacy",), transports=("http",)
)
def _odd_version(peer: CheckedPeer) -> None:
    if not peer.revision.version_header:
        not_applicable("this revision has no such header")
    found = _post(peer, {"MCP-Protocol-Version": "1900-01-01"}).web
    expect(found.status == 400, f"POST with MCP-Protocol-Version: 1900-01-01: {found.words}")


@requirement(
    "HL-16", "the id of a session is of visible ASCII characters", _HTTP, eras=("legacy",), transports=("http",)
)
def _session_id(peer: CheckedPeer) -> None:
    session = _session(peer)
    expect(all("!" <= each <= "~" for each in session), f"it is {session[:80]!r}")


@requirement(
    "HL-7", "a session that does not exist is answered with 404", _HTTP, eras=("legacy",), transports=("http",)
)
def _unknown_session(peer: CheckedPeer) -> None:
    _session(peer)
    found = _post(peer, {"Mcp-Session-Id": "00000000-no-such-session"}).web
    expect(found.status == 404, f"POST in a session that does not exist: {found.words}")


@requirement(
    "HL-17",
    "a request without its session is refused with 400",
    _HTTP,
    eras=("legacy",),
    transports=("http",),
    strength="should",
)
def _no_session_header(peer: CheckedPeer) -> None:
    _session(peer)
    found = _post(peer, {"Mcp-Session-Id": ""}).web
    expect(found.status == 400, f"POST without Mcp-Session-Id answers {found.words}")


@requirement("HL-18", "a session that was ended with DELETE is gone", _HTTP, eras=("legacy",), transports=("http",))
def _ended_session(peer: CheckedPeer) -> None:
    web = _web(peer)
    _session(peer)
    again = peer.initialize(peer.revision.date, {"Mcp-Session-Id": ""})
    session = again.web.headers.get("mcp-session-id", "")
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": peer.revision.date}
    ended = web.web.ask("DELETE", web.web.url, headers)
    if ended.status == 405:
        not_applicable("it lets no client end a session")
    expect(200 <= ended.status < 300, f"DELETE: {ended.words}")
    found = _post(peer, {"Mcp-Session-Id": session}).web
    expect(found.status == 404, f"POST in a session that was ended: {found.words}")


def _is_missed(peer: CheckedPeer, name: str) -> None:
    """Look whether a request without a header is refused. Raises: Unmet."""
    found = _post(peer, {name: ""}).web
    expect(found.status == 400, f"POST without {name} answers {found.words}; must be 400")


def _session(peer: CheckedPeer) -> str:
    session = _web(peer).session
    if session is None:
        not_applicable("it has no sessions")
    return session


def _is_local(peer: CheckedPeer) -> bool:
    host = urlsplit(_web(peer).web.url).hostname or ""
    return host == "localhost" or is_loopback(host) is True
