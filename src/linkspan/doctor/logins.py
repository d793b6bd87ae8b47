"""What hosts find when they want to log in at a server: its 401, its metadata, and those of its authorization server.

Only the server and the authorization server that it names are asked, for documents that are public. Nothing is registered
unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from linkspan.auth.metadata import resource_metadata_urls, server_metadata_urls
from linkspan.auth.network import check_url
from linkspan.checks.web import Web, WebAnswer
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.registering import OF_REGISTRATION, registering
from linkspan.doctor.verdicts import Verdict, fault, skipped, warning
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.challenges import read_challenges

OF_LOGINS: Final = ("D11", "D12", "D13", "D14", "D15", "D16", "D17", "D18", "D19", "D20", "D21", "D22")
"""The faults that this module looks for."""


def logins(
    web: Web, first: WebAnswer, hosts: Mapping[str, DoctorProfile], *, register: bool = False
) -> Iterator[Verdict]:
    """Yield what hosts find that want to log in; `first` is the answer to a request without a token.

    With `register`, clients are registered at the authorization server.
    """
    if first.status != 401:
        yield from _no_login(web)
        return
    yield Verdict("D22", "ok")
    resource, answer = yield from _resource(web, first)
    if resource is None:
        yield from (skipped(id, f"there are no metadata of the resource ({answer.words})") for id in OF_LOGINS[1:-1])
        return
    yield from _named(web.url, resource)
    issuers: JSON = resource.get("authorization_servers")
    issuer = next((each for each in issuers if isinstance(each, str)), None) if is_array(issuers) else None
    if issuer is None:
        yield fault("D14", "the metadata of the resource name no authorization_servers", "name the issuer there")
        yield from (skipped(id, "no issuer is named") for id in ("D13", *OF_LOGINS[4:-1]))
        return
    if problem := check_url(issuer, web.url):
        yield fault("D14", f"the issuer {clip(issuer, 120)}: {problem}", "name an issuer at https://")
        yield from (skipped(id, "the issuer is not asked") for id in ("D13", *OF_LOGINS[4:-1]))
        return
    server = yield from _server(web, issuer)
    if server is not None:
        yield from _issuer(issuer, server)
        yield from _offers(server)
        if register:
            yield from registering(web, server, hosts)
        else:
            why = "it is looked for with --register only, which leaves a client behind"
            yield from (skipped(id, why) for id in OF_REGISTRATION)


def _no_login(web: Web) -> Iterator[Verdict]:
    """Look at what a server without a login answers for metadata: some hosts take anything for one."""
    for url in resource_metadata_urls(web.url):
        answer = web.get(url, {"Accept": "application/json"})
        if answer.status in (404, 405, 410) or (answer.status == 200 and is_object(answer.json)):
            continue
        words = f"{urlsplit(url).path} answers {answer.words}, and the server asks for no token"
        yield fault("D22", words, "answer 404 there")
        break
    else:
        yield Verdict("D22", "ok")
    yield from (Verdict(id, "ok", "it needs no login") for id in OF_LOGINS[:-1])


def _resource(web: Web, first: WebAnswer) -> Generator[Verdict, None, tuple[JSONObject | None, WebAnswer]]:
    """Yield what is found of the metadata of the resource; return them, and the last answer."""
    challenges = read_challenges(first.headers.get("www-authenticate", ""))
    announced = next(
        (each.parameters["resource_metadata"] for each in challenges if "resource_metadata" in each.parameters), None
    )
    urls = [announced] if announced else resource_metadata_urls(web.url)
    answer = WebAnswer(problem="no URL")
    for url in urls:
        if check_url(url, web.url) is not None:
            continue
        answer = web.get(url, {"Accept": "application/json"})
        if answer.status == 200 and is_object(answer.json):
            if announced:
                yield Verdict("D11", "ok")
            else:
                words = f"WWW-Authenticate names no resource_metadata; they are at {urlsplit(url).path}"
                yield warning("D11", words, f'add resource_metadata="{url}" to the 401')
            return answer.json, answer
    where = announced or " or ".join(urlsplit(each).path for each in urls)
    yield fault(
        "D11",
        f"{clip(where, 200)} answers {answer.words}",
        "serve the metadata of the resource, and name them in the 401",
    )
    return None, answer


def _named(url: str, resource: JSONObject) -> Iterator[Verdict]:
    named: JSON = resource.get("resource")
    if named == url:
        yield Verdict("D12", "ok")
    else:
        cure = f'say "resource": "{url}"; here: Protected({url!r}, ...)'
        yield fault(
            "D12", f"the metadata say {clip(repr(named), 150)}, the URL is {url}", cure, ("VS Code", "Claude.ai")
        )


def _server(web: Web, issuer: str) -> Generator[Verdict, None, JSONObject | None]:
    """Yield what is found of the metadata of an authorization server; return them."""
    urls = server_metadata_urls(issuer)
    found = [(url, web.get(url, {"Accept": "application/json"})) for url in urls]
    good = [(url, answer.json) for url, answer in found if answer.status == 200 and is_object(answer.json)]
    if not good:
        yield fault("D13", f"none of {', '.join(urlsplit(url).path for url in urls)} at {urlsplit(issuer).netloc} has metadata",
                    "serve the metadata of the authorization server (RFC 8414)")  # fmt: skip
        yield from (skipped(id, "the authorization server has no metadata") for id in OF_LOGINS[3:-1])
        return None
    url, document = good[0]
    has_path = urlsplit(issuer).path.strip("/") != ""
    if has_path and url == urls[-1] and len(urls) > 1 and url != urls[0]:
        words = f"they are at {urlsplit(url).path} only, and {urlsplit(urls[0]).path} answers {found[0][1].words}"
        yield warning("D13", words, f"serve them at {urlsplit(urls[0]).path}, too", ("Claude.ai",))
    else:
        yield Verdict("D13", "ok")
    return document


def _issuer(issuer: str, server: JSONObject) -> Iterator[Verdict]:
    named: JSON = server.get("issuer")
    if isinstance(named, str) and named.rstrip("/") == issuer.rstrip("/"):
        yield Verdict("D14", "ok")
    else:
        yield fault(
            "D14",
            f"the metadata say {clip(repr(named), 150)}, the resource says {issuer}",
            "write the same issuer in both",
        )
    base = f"{urlsplit(issuer).scheme}://{urlsplit(issuer).netloc}"
    guessed = {"authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token"}
    others = [str(server.get(key)) for key, url in guessed.items() if server.get(key) != url]
    if others and not server.get("registration_endpoint"):
        yield Verdict("D15", "ok")
    elif others:
        words = f"{clip(others[0], 150)}; versions of some hosts ask /authorize and /token"
        yield warning("D15", words, "nothing, unless users report 404 there", ("older Claude.ai",))
    else:
        yield Verdict("D15", "ok")


def _offers(server: JSONObject) -> Iterator[Verdict]:
    methods = _texts(server, "code_challenge_methods_supported")
    if "S256" in methods:
        yield Verdict("D16", "ok")
    else:
        words = f"code_challenge_methods_supported is {methods or 'missing'}"
        yield fault("D16", words, 'add "code_challenge_methods_supported": ["S256"]', ("TypeScript SDK", "VS Code"))
    scopes, grants = _texts(server, "scopes_supported"), _texts(server, "grant_types_supported")
    if "offline_access" in scopes or "refresh_token" in grants:
        yield Verdict("D20", "ok")
    else:
        cure = "add offline_access to scopes_supported, or refresh_token to grant_types_supported"
        yield warning("D20", "people log in again whenever the token ends", cure)


def _texts(document: JSONObject, key: str) -> list[str]:
    found: JSON = document.get(key)
    return [each for each in found if isinstance(each, str)] if is_array(found) else []
