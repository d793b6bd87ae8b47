"""Who the client is for an authorization server: given credentials, a metadata document, or a dynamic registration.

What one authorization server gave is never sent to another. Spec: basic/authorization, Client Registration (AU-C10 to AU-C14);
RFC 7591; OAuth Client ID Metadata Documents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import ClassVar, Final

import msgspec

from linkspan.auth.client_authentication import BASIC, POST, choose_method
from linkspan.auth.identities import Discreet, OAuth
from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata, decode_document, decode_or_none, fetch
from linkspan.auth.network import origin_of
from linkspan.core.auth_flow import AuthFlow, AwaitRedirect, Http, HttpUnavailable, LoadLogin, SaveLogin
from linkspan.types.base import JSONObject
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import one_line, redact

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_METHODS: Final = ("none", BASIC, POST)
"""How a client without keys can authenticate at a token endpoint."""
_PORT_BY_HAND: Final = 17423
"""The port to register a client with where none was chosen: below those that systems give out, and of no known service."""
_ABOUT_SCOPES: Final = ("invalid_scope", "insufficient_scope", "invalid_client_metadata")
"""What refuses a registration that names scopes, and may take one with fewer."""


class Registered(Discreet, frozen=True):
    """A client as one authorization server knows it."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """How it authenticates at the token endpoint."""
    redirect_uri: str = ""
    expires: float = 0
    """When the secret becomes invalid, in seconds since 1970; 0: never."""
    dynamic: bool = False
    scopes: tuple[str, ...] = ()
    """What its registration was to allow: some servers grant no others."""
    secret_fields: ClassVar[frozenset[str]] = frozenset({"client_secret"})


class RegistrationRequest(msgspec.Struct, frozen=True):
    """What a login wants of the client that is registered for it."""

    scopes: tuple[str, ...]
    """What it will ask for."""
    least: tuple[str, ...]
    """What of these is needed, where a server does not let a client register for all."""
    is_recognized: Callable[[Registered], AuthFlow[bool]]
    """Returns whether the authorization server still knows a client."""

    def attempts(self) -> list[tuple[str, ...]]:
        """Return the scopes to register for: all, else those that are needed, else none."""
        return list(dict.fromkeys((self.scopes, self.least, ())))


class _RegistrationResponse(msgspec.Struct):
    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


class _RegistrationRefused(msgspec.Struct):
    error: str | None = None
    error_description: str | None = None


def register(auth: OAuth, server: ServerMetadata, wanted: RegistrationRequest, now: float) -> AuthFlow[Registered]:
    """Return who the client is for `server`, and open its redirect URI. Raises: AuthorizationFailure.

    In this order: the credentials of the user, the metadata document, a stored registration, a new one. A new one that takes the
    place of another is not stored before `keep_registration`.
    """
    if auth.client_id is not None:
        given = yield from given_client(auth.client_id, auth.client_secret, server, auth.issuer)
        return msgspec.structs.replace(given, redirect_uri=(yield from _listen(auth, None)))
    if auth.client_metadata_url is not None and server.client_id_metadata_document_supported is True:
        return Registered(auth.client_metadata_url, redirect_uri=(yield from _listen(auth, None)))
    stored = yield from _stored(server.issuer, now)
    redirect_uri = yield from _listen(auth, stored)
    fits = stored is not None and stored.redirect_uri == redirect_uri and set(wanted.scopes) <= set(stored.scopes)
    if stored is not None and fits and (yield from wanted.is_recognized(stored)):
        return stored
    if server.registration_endpoint is None:
        raise AuthorizationFailure(f"{server.issuer} does not support registration of clients", _by_hand(auth))
    registered = yield from _register_dynamically(auth, server, server.registration_endpoint, redirect_uri, wanted)
    if stored is None:
        yield from keep_registration(server.issuer, registered)
    return registered


def keep_registration(issuer: str, client: Registered) -> AuthFlow[None]:
    """Store a registration, for the next login at this authorization server."""
    if client.dynamic:
        yield SaveLogin(("registration", issuer), encode(client))


def known_client(
    auth: OAuth, server: ServerMetadata, client_id: str, now: float, kept: Registered | None
) -> AuthFlow[Registered | None]:
    """Return the client to which `client_id` belongs, if we still are that client; `kept` is stored with its login."""
    if auth.client_id is not None:
        method = choose_method(server, secret=auth.client_secret)
        return Registered(auth.client_id, auth.client_secret, method) if auth.client_id == client_id else None
    if kept is not None:
        return kept
    stored = yield from _stored(server.issuer, now)
    if stored is not None and stored.client_id == client_id:
        return stored
    return Registered(client_id) if client_id.startswith("https:") else None


def given_client(
    client_id: str, secret: str | None, server: ServerMetadata, issuer: str | None, *, signs: bool = False
) -> AuthFlow[Registered]:
    """Return the client that the user's credentials are for. Raises: AuthorizationFailure.

    They are sent to one authorization server only: to `issuer`, or to the first that is met. `signs`: it needs no secret.
    """
    key = ("client", client_id)
    bound: bytes | None = yield LoadLogin(key)
    if bound is None:
        yield SaveLogin(key, server.issuer.encode())
    elif issuer is None and bound.decode() != server.issuer:
        raise AuthorizationFailure(
            f"the credentials of client {client_id!r} belong to {bound.decode()}, but this server uses {server.issuer}",
            f"if {server.issuer} issued them too, pass issuer={server.issuer!r} [LS-405]",
        )
    return Registered(client_id, secret, "none" if signs else choose_method(server, secret=secret))


def client_metadata(
    name: str, redirect_uri: str, method: str = "none", *, device: bool = False, scopes: Collection[str] = ()
) -> JSONObject:
    """Return how a client describes itself when it registers, or in the document at its `client_metadata_url`."""
    return {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token", *([DEVICE_GRANT] if device else [])],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
        **({"scope": " ".join(scopes)} if scopes else {}),
    }


def forget_registration(issuer: str, client_id: str | None = None) -> AuthFlow[None]:
    """Forget a dynamic registration; with `client_id` only the one of that client."""
    key = ("registration", issuer)
    stored = decode_or_none((yield LoadLogin(key)), Registered)
    if stored is not None and client_id in (None, stored.client_id):
        yield SaveLogin(key, None)


def said_by(body: bytes, status: int, secrets: Collection[str] = ()) -> tuple[str | None, str]:
    """Return the error code of an OAuth error response, and its reason in one line that is safe to show."""
    refused = decode_or_none(body, _RegistrationRefused)
    if refused is None:
        return None, f"status {status}"
    words = ": ".join(each for each in (refused.error, refused.error_description) if each)
    return refused.error, one_line(redact(words, secrets), 300) or f"status {status}"


def _register_dynamically(
    auth: OAuth, server: ServerMetadata, endpoint: str, redirect_uri: str, request: RegistrationRequest
) -> AuthFlow[Registered]:
    """Register a client: for fewer scopes, or none, where the authorization server refuses those that are wanted."""
    offered = server.token_endpoint_auth_methods_supported or ("none",)
    method = "none" if "none" in offered else next((each for each in offered if each in _METHODS), "none")
    headers = {"content-type": "application/json", "accept": "application/json"}
    device = server.device_authorization_endpoint is not None
    attempts = request.attempts()
    while True:
        scopes = attempts.pop(0)
        body = encode(client_metadata(auth.client_name, redirect_uri, method, device=device, scopes=scopes))
        result = yield from fetch(Http("POST", endpoint, headers, body))
        if result.status in (200, 201):
            break
        error, reason = said_by(result.body, result.status)
        if not attempts or error not in _ABOUT_SCOPES:
            raise _not_registered(server, auth, result.status, error, reason)
    response = decode_document(result.body, _RegistrationResponse, endpoint)
    method = response.token_endpoint_auth_method or method
    if method not in _METHODS or (method != "none" and not response.client_secret):
        raise AuthorizationFailure(
            f"{server.issuer} registered this client for {method!r}, which the client does not support"
        )
    return Registered(
        response.client_id,
        response.client_secret if method != "none" else None,
        method,
        redirect_uri,
        response.client_secret_expires_at or 0,
        dynamic=True,
        scopes=request.scopes,
    )


def _not_registered(
    server: ServerMetadata, auth: OAuth, status: int, error: str | None, reason: str
) -> AuthorizationFailure:
    hint = _by_hand(auth)
    if status == 404:  # perhaps a server with keys of its own, which has nothing to log in at
        hint = f"if you were given a token or key, pass it as auth=; else {hint}"
    return AuthorizationFailure(f"{server.issuer} refused to register this client: {reason}", hint, error=error)


def _by_hand(auth: OAuth) -> str:
    """Return what to do where no client can register itself. The port is one that the next login has, too."""
    port = auth.redirect_port or _PORT_BY_HAND
    return (
        f"register one there by hand with the redirect URI http://127.0.0.1:{port}/callback, and "
        f"pass OAuth(client_id=..., redirect_port={port}), with client_secret=... if it has a secret [LS-404]"
    )


def _stored(issuer: str, now: float) -> AuthFlow[Registered | None]:
    found = decode_or_none((yield LoadLogin(("registration", issuer))), Registered)
    return None if found is not None and 0 < found.expires <= now else found


def _listen(auth: OAuth, stored: Registered | None) -> AuthFlow[str]:
    """Return the redirect URI, and listen there: where a registration has it, if possible, since some compare the port."""
    if auth.redirect_uri is not None:
        return auth.redirect_uri
    if auth.device:
        return stored.redirect_uri if stored is not None else "http://127.0.0.1/callback"
    before = origin_of(stored.redirect_uri) if stored is not None else None
    try:
        if auth.redirect_port is None and before is not None:
            with suppress(HttpUnavailable):
                again: str = yield AwaitRedirect(before[2])
                return again
        redirect_uri: str = yield AwaitRedirect(auth.redirect_port)
    except HttpUnavailable as problem:
        hint = "pass another redirect_port= [LS-406]" if auth.redirect_port is not None else None
        raise AuthorizationFailure(f"the login has no redirect URI: {problem}", hint) from problem
    return redirect_uri
