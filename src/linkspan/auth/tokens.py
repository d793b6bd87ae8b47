"""Tokens: how a token endpoint is asked for them, and what is kept of its answer.

Spec: OAuth 2.1, sections 3.2 and 4.3; RFC 9449, section 5; RFC 6749, section 2.3.1 (client authentication).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, Final
from urllib.parse import urlencode

import msgspec

from linkspan.auth.client_authentication import (
    FORM,
    client_authentication,
    is_refused,
    repeated_in_form,
    ways_to_authenticate,
)
from linkspan.auth.client_registration import Registered, said_by
from linkspan.auth.dpop import ProofKey, is_nonce_request
from linkspan.auth.identities import Discreet
from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata, decode_or_none, fetch
from linkspan.auth.network import origin_of
from linkspan.core.auth_flow import AuthFlow, Http, HttpResult, LoadLogin, SaveLogin
from linkspan.wire.challenges import read_scopes

_EARLY: Final = 60.0
"""Seconds before its expiry at which a token is renewed; one that lives less than twice as long, after half of that."""
_SECRET_MEMBERS: Final = frozenset(
    {"assertion", "code", "code_verifier", "device_code", "refresh_token", "subject_token"}
)
"""What no text may repeat of a form, if an authorization server quotes it."""
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")
_LONGEST: Final = 10 * 365 * 86400.0
_REMEMBERED_ORIGINS: Final = 16


class Tokens(Discreet, frozen=True, omit_defaults=True):
    """What an authorization server gave us for one resource. Stored as it is; secrets are in no repr."""

    access_token: str
    issuer: str
    client_id: str
    resource: str | None
    scopes: tuple[str, ...] = ()
    """What was granted, as far as is known."""
    requested: tuple[str, ...] = ()
    """What of that was asked for: a step-up asks for it again, so that none is lost, and not for what was refused."""
    expires: float | None = None
    """Seconds since 1970."""
    due: float | None = None
    """When they are renewed: some time before."""
    refresh_token: str | None = None
    key: str | None = None
    """The key to which they are bound (DPoP), if there is one."""
    secret_fields: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token", "key"})

    def is_due(self, now: float) -> bool:
        """Return whether to renew the token now."""
        return self.due is not None and now >= self.due

    def has_expired(self, now: float) -> bool:
        """Return whether a server will refuse the token."""
        return self.expires is not None and now >= self.expires


class _TokenResponse(msgspec.Struct):
    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def lifetime(self) -> float | None:
        """Return for how many seconds the token is valid; servers write them as text, too."""
        try:
            return None if self.expires_in is None else min(max(float(self.expires_in), 0.0), _LONGEST)
        except ValueError:
            return None


class Nonces:
    """The nonces for proofs that servers gave us, by origin (RFC 9449, section 8)."""

    def __init__(self) -> None:
        self._by_origin: dict[object, str] = {}

    def get(self, url: str) -> str | None:
        """Return the newest nonce of the server of a URL."""
        return self._by_origin.get(origin_of(url))

    def learn(self, url: str, headers: Mapping[str, str]) -> str | None:
        """Keep and return the nonce of a response, if it has one."""
        nonce = headers.get("dpop-nonce")
        if nonce is not None:
            if len(self._by_origin) >= _REMEMBERED_ORIGINS:
                self._by_origin.clear()
            self._by_origin[origin_of(url)] = nonce
        return nonce


class TokenClient:
    """One client at one token endpoint."""

    def __init__(
        self,
        server: ServerMetadata,
        client: Registered | None,
        *,
        now: Callable[[], float],
        token_bytes: Callable[[int], bytes],
        nonces: Nonces,
        key: ProofKey | None = None,
        assertion: Callable[[], str] | None = None,
    ) -> None:
        """`client` is None where the grant itself names the client; `assertion` authenticates it with a signature instead."""
        self._server = server
        self._client = client
        self._now = now
        self._token_bytes = token_bytes
        self._nonces = nonces
        self._key = key
        self._assertion = assertion

    def obtain(
        self, form: Mapping[str, str], *, resource: str | None, requested: Collection[str], before: Tokens | None = None
    ) -> AuthFlow[Tokens]:
        """Ask for tokens with a grant. `before` are those that are renewed. Raises: AuthorizationFailure."""
        response = yield from self._ask(form)
        wanted = "dpop" if self._key is not None else "bearer"
        if response.token_type.lower() != wanted:
            raise AuthorizationFailure(
                f"{self._server.issuer} issued a token of type {response.token_type[:20]!r} instead of {wanted!r}",
                "it does not support DPoP: pass dpop=False if the MCP server accepts bearer tokens [LS-409]"
                if self._key
                else None,
            )
        assumed = tuple(requested) if before is None else before.scopes
        granted = tuple(read_scopes(response.scope)) if response.scope is not None else assumed
        asked = tuple(each for each in requested if before is not None or each in granted)
        now, lifetime = self._now(), response.lifetime()
        return Tokens(
            response.access_token,
            self._server.issuer,
            self._client.client_id if self._client is not None else "",
            resource,
            granted,
            asked,
            None if lifetime is None else now + lifetime,
            None if lifetime is None else now + max(lifetime - _EARLY, lifetime / 2),
            response.refresh_token or (before.refresh_token if before is not None else None),
            self._key.save() if self._key is not None else None,
        )

    def exchange(self, form: Mapping[str, str], issued: str) -> AuthFlow[str]:
        """Exchange one token for another one of the type `issued` (RFC 8693). Raises: AuthorizationFailure."""
        response = yield from self._ask(form)
        if response.issued_token_type not in (issued, None):
            raise AuthorizationFailure(f"{self._server.issuer} issued a token of another type than {issued}")
        return response.access_token

    def _ask(self, form: Mapping[str, str]) -> AuthFlow[_TokenResponse]:
        result = yield from self.post(self._server.token_endpoint, form)
        if result.status not in (200, 201):
            ours = [value for name, value in form.items() if name in _SECRET_MEMBERS]
            if self._client is not None and self._client.client_secret is not None:
                ours.append(self._client.client_secret)
            error, reason = said_by(result.body, result.status, ours)
            raise AuthorizationFailure(
                f"{self._server.issuer} issued no token: {reason}",
                self._cure(error),
                error=error,
                reached=result.status < 500,
            )
        response = decode_or_none(result.body, _TokenResponse)
        if response is None:
            raise AuthorizationFailure(f"invalid token response from {self._server.issuer}")
        if not _SENDABLE.fullmatch(response.access_token):
            raise AuthorizationFailure(f"{self._server.issuer} issued a token that no header can carry")
        return response

    def _cure(self, error: str | None) -> str | None:
        """Return what to do where a client that was registered by hand is refused."""
        client = self._client
        if client is None or client.dynamic or error not in ("invalid_client", "unauthorized_client"):
            return None
        if client.client_secret is not None or self._assertion is not None:
            return "compare the client ID and what proves it with the registration at the authorization server [LS-422]"
        return f"if the client has a secret, pass OAuth(client_id={client.client_id!r}, client_secret=...) [LS-422]"

    def post(self, endpoint: str | None, form: Mapping[str, str]) -> AuthFlow[HttpResult]:
        """Send a form as this client, once in each way to authenticate until one is not refused.

        The way that worked is remembered for the authorization server. Raises: AuthorizationFailure.
        """
        if endpoint is None:
            raise AuthorizationFailure(f"{self._server.issuer} has no endpoint for this")
        client = self._client
        if client is None or self._assertion is not None:
            return (yield from self._send(endpoint, form, ""))
        key, usual = ("authentication", self._server.issuer), ways_to_authenticate(self._server, client.method)
        ways, first = usual, usual[0]
        if len(usual) > 1 and (known := ((yield LoadLogin(key)) or b"").decode()) in usual:
            ways, first = sorted(usual, key=lambda way: way != known), known
        refusal: HttpResult | None = None
        for way in ways:
            result = yield from self._send(endpoint, form, way)
            if result.status >= 400 and is_refused(way, said_by(result.body, result.status)[0]):
                refusal = refusal or result
                continue
            if way != first:
                yield SaveLogin(key, way.encode())
            return result
        assert refusal is not None
        return refusal

    def _send(self, endpoint: str, form: Mapping[str, str], way: str) -> AuthFlow[HttpResult]:
        """Send a form; once more if the server wants its nonce in the proof."""
        result = yield from self._attempt(endpoint, form, way, sent := self._nonces.get(endpoint))
        nonce = self._nonces.learn(endpoint, result.headers)
        if self._key is not None and is_nonce_request(said_by(result.body, result.status)[0], nonce, sent):
            result = yield from self._attempt(endpoint, form, way, nonce)
            self._nonces.learn(endpoint, result.headers)
        return result

    def _attempt(self, endpoint: str, form: Mapping[str, str], way: str, nonce: str | None) -> AuthFlow[HttpResult]:
        headers, fields = self._authenticated(way)
        if self._key is not None:
            jti = self._token_bytes(16).hex()
            headers["dpop"] = self._key.proof("POST", endpoint, now=self._now(), jti=jti, token=None, nonce=nonce)
        return (yield from fetch(Http("POST", endpoint, headers, urlencode({**form, **fields}).encode())))

    def _authenticated(self, way: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and fields with which the client shows who it is."""
        client = self._client
        if self._assertion is not None:
            kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            return dict(FORM), {"client_assertion_type": kind, "client_assertion": self._assertion()}
        if client is None:
            return dict(FORM), {}
        headers, fields = client_authentication(client.client_id, client.client_secret, way)
        return headers, {**fields, **repeated_in_form(client.client_id, way)}


def scope_text(scopes: Collection[str]) -> dict[str, str]:
    """Return the parameter of a request for scopes; nothing for no scopes."""
    return {"scope": " ".join(scopes)} if scopes else {}
