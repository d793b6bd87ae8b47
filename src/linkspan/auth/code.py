"""The authorization code flow: what a person is shown, and what comes back.

PKCE with S256 only; the expected issuer is recorded with the state and the verifier, and compared before anything else of a
response is believed or shown. Spec: OAuth 2.1, section 4.1; RFC 7636; RFC 9207 (AU-C20 to AU-C30).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import ClassVar, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from linkspan.auth.client_registration import Registered, said_by
from linkspan.auth.identities import Discreet
from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata, fetch
from linkspan.auth.presets import preset_for
from linkspan.core.auth_flow import AuthFlow, Http, OpenUrl
from linkspan.wire.redaction import one_line
from linkspan.wire.values import encode_base64url, sha256_base64url

_CURES: Final = {
    "invalid_scope": "the authorization server has no such scope, or does not grant it to this client: compare the scopes that "
    "the server names, and those that were added to this login [LS-420]",
    "invalid_target": "the authorization server does not know the URL of the server as a resource: register it there, or "
    "pass OAuth(resource=False) [LS-421]",
}
"""What to do about an error of the login page, by its code."""


class LoginTimedOut(Exception):
    """The person did not come back within `seconds`; `url` is where they were sent."""

    def __init__(self, url: str, seconds: float) -> None:
        super().__init__("the login was not finished")
        self.url = url
        self.seconds = seconds


class PendingLogin(Discreet, frozen=True):
    """One login on its way: what its response has to fit."""

    issuer: str
    requires_issuer: bool
    """Whether the response must name the issuer (RFC 9207)."""
    state: str
    verifier: str
    redirect_uri: str
    secret_fields: ClassVar[frozenset[str]] = frozenset({"state", "verifier"})


def ask_for_code(
    server: ServerMetadata,
    client: Registered,
    parameters: Mapping[str, str],
    token_bytes: Callable[[int], bytes],
    seconds: float,
    *,
    assume_pkce: bool,
    doubt: str = "",
) -> AuthFlow[dict[str, str]]:
    """Let a person log in; return the form with which the token endpoint gives tokens for it.

    `parameters` go into both requests' URL and form where they belong: `resource`, `scope`. With `assume_pkce` the user knows
    that the server supports PKCE with S256. `doubt` is that of `OpenUrl`. Raises: AuthorizationFailure, LoginTimedOut.
    """
    _check_pkce(server, assumed=assume_pkce)
    pending = _pending(server, client, token_bytes)
    url = _authorization_url(server, client.client_id, pending, parameters)
    redirect: str | None = yield OpenUrl(url, pending.redirect_uri, pending.state, seconds, doubt)
    if redirect is None:
        raise LoginTimedOut(url, seconds)
    return {
        "grant_type": "authorization_code",
        "code": read_redirect(redirect, pending),
        "redirect_uri": pending.redirect_uri,
        "code_verifier": pending.verifier,
        **({"resource": parameters["resource"]} if "resource" in parameters else {}),
    }


def _check_pkce(server: ServerMetadata, *, assumed: bool) -> None:
    """Raise AuthorizationFailure for a server of which it is not known that it supports PKCE with S256 (AU-C20)."""
    listed = server.code_challenge_methods_supported
    if listed is None and (assumed or preset_for(server.issuer).unlisted_pkce):
        return
    if "S256" in (listed or ()):
        return
    hint = "its metadata must list S256 in code_challenge_methods_supported"
    if listed is None:
        hint += "; if you know that it supports it, pass OAuth(assume_pkce=True)"
    raise AuthorizationFailure(
        f"{server.issuer} does not support PKCE with S256, so a login there is not safe", f"{hint} [LS-407]"
    )


def refusal_of_page(
    server: ServerMetadata, client: Registered, parameters: Mapping[str, str], token_bytes: Callable[[int], bytes]
) -> AuthFlow[str | None]:
    """Return how an authorization server refuses the login page to a client, by the status of a login that is not followed.

    A person would see its error page and could not come back. None: it does not, or it cannot be asked.
    """
    url = _authorization_url(server, client.client_id, _pending(server, client, token_bytes), parameters)
    try:
        result = yield from fetch(Http("GET", url, {"accept": "text/html"}))
    except AuthorizationFailure:
        return None
    return said_by(result.body, result.status)[1] if result.status in (400, 401) else None


def _pending(server: ServerMetadata, client: Registered, token_bytes: Callable[[int], bytes]) -> PendingLogin:
    state, verifier = encode_base64url(token_bytes(32)), encode_base64url(token_bytes(32))
    names_issuer = server.authorization_response_iss_parameter_supported is True
    return PendingLogin(server.issuer, names_issuer, state, verifier, client.redirect_uri)


def _authorization_url(
    server: ServerMetadata, client_id: str, pending: PendingLogin, parameters: Mapping[str, str]
) -> str:
    """Return where the person logs in. Raises: AuthorizationFailure."""
    if server.authorization_endpoint is None:
        raise AuthorizationFailure(f"{server.issuer} has no authorization_endpoint")
    fields = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": pending.redirect_uri,
        "state": pending.state,
        "code_challenge": sha256_base64url(pending.verifier),
        "code_challenge_method": "S256",
        **parameters,
    }
    parts = urlsplit(server.authorization_endpoint)
    theirs = dict(parse_qsl(parts.query, keep_blank_values=True))
    if taken := theirs.keys() & fields.keys():
        raise AuthorizationFailure(
            f"the authorization_endpoint of {server.issuer} already has the parameter {min(taken)}"
        )
    return urlunsplit(parts._replace(query=urlencode({**theirs, **fields})))


def read_redirect(redirect: str, pending: PendingLogin) -> str:
    """Return the code of a redirect: its query, or its whole URL. Raises: AuthorizationFailure.

    Nothing of a redirect with a wrong state or a wrong issuer is shown, its error neither (RFC 9207, section 2.4).
    """
    text = redirect.strip()
    query = urlsplit(text).query if text.startswith(("http://", "https://")) else text.removeprefix("?")
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise AuthorizationFailure("the redirect cannot be read") from None
    if any(len(values) > 1 for values in found.values()):
        raise AuthorizationFailure("the redirect has a parameter twice")
    fields = {name: values[0] for name, values in found.items()}
    if not compare_digest(fields.get("state", "").encode(), pending.state.encode()):
        raise AuthorizationFailure(
            "the redirect belongs to another login", "log in again, and paste the newest URL [LS-408]"
        )
    issuer = fields.get("iss")
    if issuer is None and pending.requires_issuer:
        raise AuthorizationFailure(f"the redirect does not name its issuer, as those of {pending.issuer} must")
    if issuer is not None and issuer != pending.issuer:
        raise AuthorizationFailure(f"the redirect does not come from {pending.issuer}, where the login began")
    if "error" in fields:
        words = ": ".join(each for each in (fields["error"], fields.get("error_description")) if each)
        raise AuthorizationFailure(
            f"the login failed: {one_line(words, 300)}", _CURES.get(fields["error"]), error=fields["error"]
        )
    if not fields.get("code"):
        raise AuthorizationFailure("the redirect has no code")
    return fields["code"]
