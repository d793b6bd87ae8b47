"""A server at a URL: whether the protocol gets through to it, as hosts send it. It registers nothing and calls no tool."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from linkspan.auth.network import is_public
from linkspan.checks.handshake import handshake
from linkspan.checks.web import Web, WebAnswer, joined
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict, fault, skipped, warning
from linkspan.revisions import LATEST_LEGACY
from linkspan.text import clip
from linkspan.types.base import JSON, is_object

OF_URLS: Final = ("D01", "D02", "D03", "D04", "D05", "D06", "D07", "D08", "D09", "D10", "D23", "D24", "D25")
"""The faults that this module looks for."""

_HANDSHAKE: Final = handshake("linkspan-doctor")
_LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_LATER: Final = 6
"""Requests that must reach the session."""
_PAGE: Final = "https://doctor.example"
"""The origin of a page of another site."""


def speaking(web: Web, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Yield what hosts that connect to URLs make of one."""
    hosts = {name: each for name, each in hosts.items() if "url" in each.reaches}
    yield from _address(web.url, hosts)
    first = first_answer(web)
    if first.tls:
        yield fault("D03", first.problem, "serve the whole chain of certificates, for this name")
        yield from (skipped(id, "TLS does not work") for id in OF_URLS[3:])
        return
    yield Verdict("D03", "ok")
    if not first.status:
        yield fault(
            "D25", f"POST {_path(web.url)}: {first.problem}", "check that the server runs and that the URL is right"
        )
        yield from (skipped(id, "the server does not answer") for id in OF_URLS[3:] if id != "D25")
        return
    if first.status in _REDIRECTS:
        yield from _redirect(web.url, first)
        yield from (skipped(id, "the URL is redirected") for id in OF_URLS[5:] if id != "D06")
        return
    yield from (Verdict(id, "ok") for id in ("D05", "D06"))
    yield from _first(first, web)
    yield from _agents(web, first, hosts)
    if first.status in (401, 403):
        yield from (
            skipped(id, "it needs a login: pass --header, or log in with linkspan login")
            for id in ("D08", "D09", "D10", "D24")
        )
    elif _is_answer(first):
        yield from _get(web, first)
        yield from _accepts(web)
        yield from _sessions(web, first)
    yield from _pages(web, first)


def first_answer(web: Web) -> WebAnswer:
    """Return the answer to a handshake."""
    return web.post(_HANDSHAKE)


def _path(url: str) -> str:
    return urlsplit(url).path or "/"


def _is_answer(first: WebAnswer) -> bool:
    found: JSON = first.json
    return is_object(found) and found.get("jsonrpc") == "2.0"


def _address(url: str, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    refusing = [each.title for each in hosts.values() if each.ports and port not in each.ports]
    if refusing:
        cure = "serve the path on 443, for instance by nginx: listen 443 ssl; location /mcp { proxy_pass ...; }"
        yield fault("D01", f"port {port}; nothing will arrive in your log", cure, refusing)
    else:
        yield Verdict("D01", "ok")
    remote = [each.title for each in hosts.values() if each.public]
    try:
        found = {
            str(each[4][0]).partition("%")[0]
            for each in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        }
    except OSError:
        yield fault("D02", f"{parts.hostname} has no address here", "add a record to the DNS")
        return
    private = sorted(each for each in found if not _is_public(each))
    if private and remote:
        yield fault(
            "D02",
            f"{parts.hostname} is at {', '.join(private)}, as seen from this machine",
            "serve it at a public address",
            remote,
        )
    else:
        yield Verdict("D02", "ok")


def _is_public(address: str) -> bool:
    return is_public(address) and ipaddress.ip_address(address) not in ipaddress.ip_network("100.64.0.0/10")


def _redirect(url: str, first: WebAnswer) -> Iterator[Verdict]:
    target = joined(url, first.headers.get("location", ""))
    ours, theirs = urlsplit(url), urlsplit(target)
    words = f"POST {_path(url)} answers {first.status} to {clip(target, 200)}"
    if (ours.scheme == "https" and theirs.scheme != "https") or ours.netloc != theirs.netloc:
        yield fault("D06", words, "answer at the URL itself; behind a proxy, pass X-Forwarded-Proto on and trust it")
        yield Verdict("D05", "ok")
    elif theirs.path.rstrip("/") == ours.path.rstrip("/"):
        yield fault("D05", words, f"give people the URL {target}, or serve both paths without a redirect")
        yield Verdict("D06", "ok")
    else:
        yield fault("D05", words, f"give people the URL {target}")
        yield Verdict("D06", "ok")


def _first(first: WebAnswer, web: Web) -> Iterator[Verdict]:
    """Yield what the first answer says of the path and of Host."""
    text = first.body[:2000].decode("utf-8", "replace").lower()
    if first.status == 421 or (first.status in (400, 403) and "host" in text and not _is_answer(first)):
        name = urlsplit(web.url).netloc
        yield fault(
            "D07", f"POST with Host: {name} answers {first.words}", f"allow the host: allowed_hosts=[{name!r}] here"
        )
        yield Verdict("D25", "ok")
        return
    yield Verdict("D07", "ok")
    if first.status in (401, 403) or _is_answer(first):
        yield Verdict("D25", "ok")
        return
    yield fault(
        "D25", f"POST {_path(web.url)} answers {first.words}", "give people the whole URL, with its path, such as /mcp"
    )


def _agents(web: Web, first: WebAnswer, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    refused: list[str] = []
    evidence = ""
    for each in hosts.values():
        if not each.user_agent:
            continue
        answer = web.post(_HANDSHAKE, {"User-Agent": each.user_agent})
        if answer.status in (403, 406, 409, 429, 503) and answer.status != first.status:
            refused.append(each.title)
            by = " by a CDN" if "cf-mitigated" in answer.headers or "cf-ray" in answer.headers else ""
            evidence = f"User-Agent {each.user_agent}: {answer.words}{by}; for others {first.words}"
    if refused:
        yield fault("D04", evidence, "let the firewall or the CDN pass requests to this path", refused)
    else:
        yield Verdict("D04", "ok")


def _session(first: WebAnswer) -> Mapping[str, str]:
    session = first.headers.get("mcp-session-id")
    return (
        {"Mcp-Session-Id": session, "MCP-Protocol-Version": LATEST_LEGACY.date}
        if session
        else {"MCP-Protocol-Version": LATEST_LEGACY.date}
    )


def _get(web: Web, first: WebAnswer) -> Iterator[Verdict]:
    """Look at the stream that clients open with GET, and whether it is held back."""
    answer = web.get(web.url, {"Accept": "text/event-stream", **_session(first)}, head_only=True)
    streams = answer.kind == "text/event-stream"
    if answer.status in (405, 400, 404, 501) and not streams:
        level = answer.status == 405 or (answer.status == 400 and "mcp-session-id" not in first.headers)
        words = f"GET answers {answer.words}"
        yield Verdict("D08", "ok") if level else warning("D08", words, "answer 405 where there is no stream")
        yield Verdict("D09", "ok")
    elif streams:
        yield Verdict("D08", "ok")
        yield Verdict("D09", "ok")
    elif not answer.status and "no answer" in answer.problem:
        cure = "turn buffering off for this path (nginx: proxy_buffering off), or answer 405"
        yield fault("D09", "GET with Accept: text/event-stream: not even headers came within 5 s", cure)
        yield Verdict("D08", "ok")
    else:
        yield fault("D08", f"GET answers {answer.words}", "answer 405, or a stream of text/event-stream")
        yield skipped("D09", "there is no stream")


def _accepts(web: Web) -> Iterator[Verdict]:
    refused = [
        each
        for each in (
            "application/json, text/event-stream",
            "text/event-stream, application/json",
            "application/json,text/event-stream;q=0.9, */*",
        )
        if web.post(_HANDSHAKE, {"Accept": each}).status == 406
    ]
    if refused:
        yield fault("D24", f"Accept: {refused[0]} answers 406", "take each order of the two types, and parameters")
    else:
        yield Verdict("D24", "ok")


def _sessions(web: Web, first: WebAnswer) -> Iterator[Verdict]:
    """Send further requests of the session, each on a connection of its own."""
    if "mcp-session-id" not in first.headers:
        yield Verdict("D10", "ok")
        return
    headers = _session(first)
    web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    lost = [
        each.words
        for each in (web.post({**_LIST, "id": n}, headers) for n in range(_LATER))
        if each.status in (400, 404)
    ]
    web.ask("DELETE", web.url, headers)
    if lost:
        cure = "one process, sticky sessions, or a store that the processes share (here: Server(store=...))"
        yield fault("D10", f"{len(lost)} of {_LATER} requests with the session answer {lost[0]}", cure)
    else:
        yield Verdict("D10", "ok")


def _pages(web: Web, first: WebAnswer) -> Iterator[Verdict]:
    """Ask as a page of another origin does before it posts."""
    asked = {
        "Origin": _PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,mcp-protocol-version,mcp-session-id,authorization",
    }
    answer = web.ask("OPTIONS", web.url, asked)
    allowed = answer.headers.get("access-control-allow-origin")
    hurts = ("hosts in a browser",)
    if answer.status in (401, 403) and answer.headers.get("www-authenticate"):
        yield warning("D23", f"OPTIONS answers {answer.words}", "answer OPTIONS before you ask for a token", hurts)
        return
    if allowed is None:
        yield Verdict("D23", "ok", "no page of another origin may use it")
        return
    headers = {each.strip().lower() for each in answer.headers.get("access-control-allow-headers", "").split(",")}
    missing = (
        {"content-type", "mcp-protocol-version", "authorization"} - headers
        if "*" not in headers
        else {"authorization"} - headers
    )
    exposed = web.post(_HANDSHAKE, {"Origin": _PAGE}).headers.get("access-control-expose-headers", "").lower()
    if missing:
        yield warning("D23", f"Access-Control-Allow-Headers lacks {', '.join(sorted(missing))}", "add them", hurts)
    elif "mcp-session-id" in first.headers and "mcp-session-id" not in exposed and exposed != "*":
        yield warning("D23", "Access-Control-Expose-Headers lacks Mcp-Session-Id", "add it", hurts)
    else:
        yield Verdict("D23", "ok")
