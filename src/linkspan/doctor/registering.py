"""What hosts find when they register at an authorization server: each is played with its redirect URIs and its document.

Clients named linkspan-doctor are left behind there, but for those that the server lets us delete. No user logs in.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from linkspan.auth.network import check_url
from linkspan.checks.web import Web, WebAnswer
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict, fault, skipped
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object

OF_REGISTRATION: Final = ("D17", "D18", "D19", "D21")
"""The faults that this module looks for."""

_HERE: Final = "http://127.0.0.1:8976/callback"
"""A redirect URI of programs on one's own machine."""
_PORT: Final = re.compile(r"(//(?:localhost|127\.0\.0\.1)):\d+")
"""The port of a program on one's own machine, which its document leaves out (RFC 8252, section 7.3)."""
_NO_CLIENT: Final = ("invalid_client", "unauthorized_client", "invalid_client_metadata")
_CHALLENGE: Final = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
"""The challenge of RFC 7636, appendix B: no code that was issued for it is ever used."""


def registering(web: Web, server: JSONObject, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Yield what hosts find that register; `server` are the metadata of the authorization server."""
    at = {key: _endpoint(web, server, f"{key}_endpoint") for key in ("registration", "authorization", "token")}
    way = yield from _ways(web, at["registration"])
    yield from _redirects(web, at["registration"], hosts, way)
    yield from _documents(web, server, at["authorization"], hosts)
    yield from _secrets(web, server, at["registration"], at["token"])


def _endpoint(web: Web, server: JSONObject, key: str) -> str | None:
    found: JSON = server.get(key)
    return found if isinstance(found, str) and check_url(found, web.url) is None else None


def _register(web: Web, url: str, redirects: Sequence[str], method: str) -> WebAnswer:
    body: JSON = {
        "client_name": "linkspan-doctor",
        "redirect_uris": list(redirects),
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    return web.ask("POST", url, headers, json.dumps(body).encode())


def _forget(web: Web, answer: WebAnswer) -> None:
    """Delete a client that was registered, where that is offered (RFC 7592)."""
    client: JSON = answer.json
    if not is_object(client):
        return
    url, token = client.get("registration_client_uri"), client.get("registration_access_token")
    if isinstance(url, str) and isinstance(token, str) and check_url(url, web.url) is None:
        web.ask("DELETE", url, {"Authorization": f"Bearer {token}"})


def _is_registered(answer: WebAnswer) -> bool:
    found: JSON = answer.json
    return answer.status in (200, 201) and is_object(found) and isinstance(found.get("client_id"), str)


def _ways(web: Web, url: str | None) -> Generator[Verdict, None, str]:
    """Register without a secret and with one; return the way to authenticate that is accepted.

    What a server announces says little: many serve clients without a secret, and do not list `none`.
    """
    if url is None:
        yield skipped("D17", "clients are not registered by programs")
        return "none"
    found = {each: _register(web, url, [_HERE], each) for each in ("none", "client_secret_post")}
    accepted = [each for each, answer in found.items() if _is_registered(answer)]
    for each in accepted:
        _forget(web, found[each])
    refused = {each: _words(answer) for each, answer in found.items() if each not in accepted}
    if not accepted:
        yield skipped("D17", f"no client with {_HERE} can be registered: {refused['none']}")
    elif "none" in refused:
        words = f"token_endpoint_auth_method none: {refused['none']}; client_secret_post is registered"
        cure = "register programs that cannot keep a secret, with none"
        yield fault("D17", words, cure, ("Claude Code", "Cursor"))
    elif refused:
        words = f"token_endpoint_auth_method client_secret_post: {refused['client_secret_post']}; none is registered"
        cure = "register such a client, and answer with the method that it gets (RFC 7591, section 3.2.1)"
        yield fault("D17", words, cure, ("Claude.ai",))
    else:
        yield Verdict("D17", "ok")
    return accepted[0] if accepted else "none"


def _redirects(web: Web, url: str | None, hosts: Mapping[str, DoctorProfile], way: str) -> Iterator[Verdict]:
    if url is None:
        yield skipped("D18", "clients are not registered by programs")
        return
    refused: dict[str, tuple[str, str]] = {}
    for host in hosts.values():
        if not host.redirect_uris:
            continue
        answer = _register(web, url, host.redirect_uris, way)
        if _is_registered(answer):
            _forget(web, answer)
            continue
        culprit = ""
        for each in host.redirect_uris if len(host.redirect_uris) > 1 else ():
            alone = _register(web, url, [each], way)
            if _is_registered(alone):
                _forget(web, alone)
            else:
                culprit = culprit or each
        refused[host.title] = (culprit or ", ".join(host.redirect_uris), _words(answer))
    if not refused:
        yield Verdict("D18", "ok")
        return
    uri, words = next(iter(refused.values()))
    yield fault("D18", f"redirect_uris with {uri}: {words}", f"let clients register {uri}", tuple(refused))


def _documents(web: Web, server: JSONObject, url: str | None, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Ask for a login with the documents of hosts as client_id, and look whether the server knows them."""
    if server.get("client_id_metadata_document_supported") is not True:
        yield Verdict("D19", "ok", "documents of clients are not announced")
        return
    if url is None:
        yield skipped("D19", "there is no authorization_endpoint")
        return
    refused: dict[str, str] = {}
    asked = False
    for host in hosts.values():
        if host.client_document and host.redirect_uris:
            asked = True
            if words := _refusal(web, url, host.client_document, _PORT.sub(r"\1", host.redirect_uris[0])):
                refused[host.title] = f"client_id={host.client_document}: {words}"
    if refused:
        cure = "let the authorization server fetch such documents, or do not announce client_id_metadata_document_supported"
        yield fault("D19", next(iter(refused.values())), cure, tuple(refused))
    else:
        yield Verdict("D19", "ok") if asked else skipped("D19", "none of these hosts has a document")


def _refusal(web: Web, url: str, client: str, redirect: str) -> str:
    """Return how a request for a login is refused because of its client; empty if it is not."""
    query = urlencode({
        "response_type": "code",
        "client_id": client,
        "redirect_uri": redirect,
        "state": "linkspan-doctor",
        "code_challenge": _CHALLENGE,
        "code_challenge_method": "S256",
        "resource": web.url,
    })  # fmt: skip
    answer = web.get(f"{url}{'&' if urlsplit(url).query else '?'}{query}", {"Accept": "text/html"})
    sent = parse_qs(urlsplit(answer.headers.get("location", "")).query).get("error", [""])[0]
    if answer.status in (301, 302, 303, 307, 308):
        return f"{answer.status} with error={clip(sent, 60)}" if sent in _NO_CLIENT else ""
    return _words(answer) if answer.status in (400, 401) or answer.status >= 500 else ""


def _secrets(web: Web, server: JSONObject, registration: str | None, token: str | None) -> Iterator[Verdict]:
    """Show a client's secret in the header alone, and then the client's id in the form, too: a code is wrong in both."""
    offered: JSON = server.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if not is_array(offered) or "client_secret_basic" not in offered:
        yield Verdict("D21", "ok", "client_secret_basic is not announced")
        return
    if registration is None or token is None:
        yield skipped("D21", "clients are not registered by programs")
        return
    answer = _register(web, registration, [_HERE], "client_secret_basic")
    client = answer.json
    id, secret = (client.get("client_id"), client.get("client_secret")) if is_object(client) else (None, None)
    if not _is_registered(answer) or not isinstance(id, str) or not isinstance(secret, str):
        yield skipped("D21", f"no client with a secret can be registered: {_words(answer)}")
        return
    bare = _exchange(web, token, id, secret, {})
    both = _exchange(web, token, id, secret, {"client_id": id})
    _forget(web, answer)
    if _error(both) == "invalid_grant" and _error(bare) != "invalid_grant":
        words = f"client_id in the Authorization header alone: {_words(bare)}; in the form, too: {_words(both)}"
        yield fault("D21", words, "read client_id from the Authorization header (RFC 6749, section 2.3.1)")
    else:
        yield Verdict("D21", "ok")


def _exchange(web: Web, url: str, id: str, secret: str, added: Mapping[str, str]) -> WebAnswer:
    form = {
        "grant_type": "authorization_code",
        "code": "linkspan-doctor",
        "redirect_uri": _HERE,
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        **added,
    }
    key = b64encode(f"{quote(id, safe='')}:{quote(secret, safe='')}".encode()).decode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        "Authorization": f"Basic {key}",
    }
    return web.ask("POST", url, headers, urlencode(form).encode())


def _error(answer: WebAnswer) -> str:
    found = answer.json
    error = found.get("error") if is_object(found) else None
    return error if isinstance(error, str) else ""


def _words(answer: WebAnswer) -> str:
    """Return an answer in a few words, with its code of an error, and nothing else of it: the rest may be a secret."""
    return f"{answer.words} {clip(_error(answer), 60)}".strip()
