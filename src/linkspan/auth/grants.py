"""How each identity gets its first tokens: with a browser, another device, credentials, or an assertion.

Nothing is tried again after a refusal, and no other grant is tried instead (WIF-3). Spec: RFC 6749, section 4.4; RFC 7523,
section 2.1; RFC 8693; RFC 8628; ext-auth, the drafts and the stable text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import msgspec

from linkspan.auth.client_authentication import choose_method
from linkspan.auth.client_registration import (
    DEVICE_GRANT,
    Registered,
    RegistrationRequest,
    forget_registration,
    given_client,
    keep_registration,
    register,
    said_by,
)
from linkspan.auth.code import LoginTimedOut, ask_for_code, refusal_of_page
from linkspan.auth.discovery import Discovered, find_server
from linkspan.auth.dpop import ProofKey, sign_assertion
from linkspan.auth.identities import ClientCredentials, Enterprise, Identity, OAuth, WorkloadIdentity
from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata, check_endpoints, decode_document
from linkspan.auth.network import check_url
from linkspan.auth.tokens import Nonces, TokenClient, Tokens, scope_text
from linkspan.core.auth_flow import AuthFlow, LoginNote, ShowCode, Supply
from linkspan.core.flow import Sleep

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPE: Final = "urn:ietf:params:oauth:token-type:"
_INTERVAL: Final = 5.0
_SLOWER: Final = 5.0
_LONGEST_CODE: Final = 1800.0


class LoginContext(msgspec.Struct, frozen=True):
    """What every grant needs of its surroundings."""

    url: str
    """The MCP server."""
    now: Callable[[], float]
    token_bytes: Callable[[int], bytes]
    nonces: Nonces
    seconds: float
    """How long a person may take."""
    recognized: set[str] = msgspec.field(default_factory=set[str])
    """The clients that logins here have succeeded with: the authorization server is not asked again whether it knows them."""

    def client(
        self,
        server: ServerMetadata,
        client: Registered | None,
        key: ProofKey | None = None,
        assertion: Callable[[], str] | None = None,
    ) -> TokenClient:
        """Return a client at the token endpoint of a server."""
        return TokenClient(
            server, client, now=self.now, token_bytes=self.token_bytes, nonces=self.nonces, key=key, assertion=assertion
        )


class Obtained(NamedTuple):
    """The first tokens of an identity, and the client to which they belong where that has registered itself or was given."""

    tokens: Tokens
    client: Registered | None


def obtain_tokens(
    auth: Identity,
    found: Discovered,
    scopes: Collection[str],
    key: ProofKey | None,
    context: LoginContext,
    needed: Collection[str] = (),
) -> AuthFlow[Obtained]:
    """Get the first tokens of an identity for what was found; with `key` they are bound to it.

    `needed` are the scopes that the server has just demanded. Raises: AuthorizationFailure, LoginTimedOut.
    """
    server = found.server
    client: Registered | None = None
    assertion: Callable[[], str] | None = None
    match auth:
        case OAuth():
            return (yield from _log_in(auth, found, scopes, key, context, needed))
        case ClientCredentials():
            client, assertion = yield from _credentials(auth, server, context)
            form = {"grant_type": "client_credentials"}
        case WorkloadIdentity():
            supplied = yield from _supply(auth.assertion, server.issuer, server.token_endpoint or "")
            form = {"grant_type": _JWT_BEARER, "assertion": supplied}
        case Enterprise():
            client = Registered(auth.client_metadata_url or "")
            if auth.client_id is not None:
                client = yield from given_client(auth.client_id, auth.client_secret, server, auth.issuer)
            form = yield from _enterprise_form(auth, found, scopes, context)
    form |= {**_target(found.resource), **scope_text(scopes)}
    at_server = context.client(server, client, key, assertion)
    return Obtained((yield from at_server.obtain(form, resource=found.resource, requested=scopes)), client)


def refresh_form(refresh_token: str, resource: str | None) -> dict[str, str]:
    """Return the form that renews tokens (OAuth 2.1, section 4.3)."""
    return {"grant_type": "refresh_token", "refresh_token": refresh_token, **_target(resource)}


def _log_in(
    auth: OAuth,
    found: Discovered,
    scopes: Collection[str],
    key: ProofKey | None,
    context: LoginContext,
    needed: Collection[str],
) -> AuthFlow[Obtained]:
    """Let a person log in."""
    server = found.server
    parameters = {**_target(found.resource), **scope_text(scopes)}
    if "offline_access" in scopes:
        parameters["prompt"] = "consent"  # OpenID Connect Core, section 11: without it the scope is ignored
    if key is not None:
        parameters["dpop_jkt"] = key.thumbprint  # binds the code, too: RFC 9449, section 10

    def refusal(client: Registered) -> AuthFlow[str | None]:
        if client.client_id in context.recognized:
            return None
        return (yield from refusal_of_page(server, client, parameters, context.token_bytes))

    def is_recognized(client: Registered) -> AuthFlow[bool]:
        return (yield from refusal(client)) is None

    wanted = RegistrationRequest(tuple(scopes), tuple(needed), is_recognized)
    client = yield from register(auth, server, wanted, context.now())
    yield LoginNote(_choice(found, client, scopes))
    at_server = context.client(server, client, key)
    try:
        if auth.device:
            tokens = yield from _log_in_elsewhere(at_server, found, scopes, context)
        else:
            said = None if client.dynamic else (yield from refusal(client))
            doubt = _doubt(server, client, said) if said is not None else ""
            assume = auth.assume_pkce
            form = yield from ask_for_code(
                server, client, parameters, context.token_bytes, context.seconds, assume_pkce=assume, doubt=doubt
            )
            tokens = yield from at_server.obtain(form, resource=found.resource, requested=scopes)
    except LoginTimedOut:  # perhaps the person saw that the server does not know the client
        context.recognized.discard(client.client_id)
        raise
    except AuthorizationFailure as failure:
        if failure.error == "invalid_client" and client.dynamic:
            context.recognized.discard(client.client_id)
            yield from forget_registration(server.issuer, client.client_id)
        raise
    context.recognized.add(client.client_id)
    yield from keep_registration(server.issuer, client)
    return Obtained(tokens, client)


def _doubt(server: ServerMetadata, client: Registered, said: str) -> str:
    """Return what to correct where the login page of a client that we have not registered is refused."""
    return (
        f"{server.issuer} refuses the login page ({said}). It may not know the client {client.client_id!r}, or not with the "
        f"redirect URI {client.redirect_uri}: correct that, and log in again"
    )


def _choice(found: Discovered, client: Registered, scopes: Collection[str]) -> str:
    """Return what a login uses, in one line for people."""
    how = "described by its document" if client.client_id.startswith("https:") else "registered by hand"
    how = "registered dynamically" if client.dynamic else how
    wanted = f"{found.resource or 'no resource'}, {' '.join(scopes) or 'no scopes'}"
    return f"login at {found.server.issuer} for {wanted}: client {client.client_id} ({how}), authentication {client.method}"


def _credentials(
    auth: ClientCredentials, server: ServerMetadata, context: LoginContext
) -> AuthFlow[tuple[Registered | None, Callable[[], str] | None]]:
    client = yield from given_client(auth.client_id, auth.secret, server, auth.issuer, signs=auth.key is not None)
    if auth.key is None:
        return client, None
    key, supported = auth.key, server.token_endpoint_auth_signing_alg_values_supported

    def assertion() -> str:
        jti = context.token_bytes(16).hex()
        return sign_assertion(auth.client_id, key, auth.alg, supported, server.issuer, now=context.now(), jti=jti)

    return client, assertion


def _target(resource: str | None) -> dict[str, str]:
    """Return the parameter that names what a token is for (RFC 8707); none in the revision that did not have it."""
    return {"resource": resource} if resource is not None else {}


def _enterprise_form(
    auth: Enterprise, found: Discovered, scopes: Collection[str], context: LoginContext
) -> AuthFlow[dict[str, str]]:
    """Return the form with what the identity provider of a company allows its user."""
    if auth.idp_token_endpoint is not None:
        idp = ServerMetadata(auth.idp, token_endpoint=auth.idp_token_endpoint)
        check_endpoints(idp, context.url)
    else:
        idp = yield from find_server(auth.idp, context.url)
    client = None
    if auth.idp_client_id is not None:
        method = choose_method(idp, secret=auth.idp_client_secret)
        client = Registered(auth.idp_client_id, auth.idp_client_secret, method)
    exchange = context.client(idp, client).exchange
    subject, kind = (yield from _supply(auth.subject)), auth.subject_type
    if kind == "saml2":
        wanted = f"{_TYPE}refresh_token"
        subject = yield from exchange(_exchange_form(subject, kind, wanted), wanted)
        kind = "refresh_token"
    wanted = f"{_TYPE}id-jag"
    form = {
        **_exchange_form(subject, kind, wanted),
        "audience": found.server.issuer,
        **_target(found.resource),
        **scope_text(scopes),
    }
    return {"grant_type": _JWT_BEARER, "assertion": (yield from exchange(form, wanted))}


def _exchange_form(subject: str, kind: str, wanted: str) -> dict[str, str]:
    return {
        "grant_type": _EXCHANGE,
        "requested_token_type": wanted,
        "subject_token": subject,
        "subject_token_type": _TYPE + kind,
    }


class _DeviceCode(msgspec.Struct):
    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float | None = None


def _log_in_elsewhere(
    client: TokenClient, found: Discovered, scopes: Collection[str], context: LoginContext
) -> AuthFlow[Tokens]:
    """Let a person log in on another device (RFC 8628)."""
    server, asked = found.server, {**_target(found.resource), **scope_text(scopes)}
    endpoint = server.device_authorization_endpoint
    if endpoint is None:
        raise AuthorizationFailure(f"{server.issuer} does not support logins on another device", "leave out device")
    result = yield from client.post(endpoint, asked)
    if result.status != 200:
        error, reason = said_by(result.body, result.status)
        raise AuthorizationFailure(f"{server.issuer} gave no device code: {reason}", error=error)
    code = decode_document(result.body, _DeviceCode, endpoint)
    for shown in (code.verification_uri, code.verification_uri_complete):
        if shown is not None and (wrong := check_url(shown, context.url)) is not None:
            raise AuthorizationFailure(f"the URL at which {server.issuer} takes the code is not safe: {wrong}")
    seconds = min(max(code.expires_in, 1.0), _LONGEST_CODE, context.seconds)
    yield ShowCode(code.verification_uri, code.user_code, code.verification_uri_complete, seconds)
    form = {"grant_type": DEVICE_GRANT, "device_code": code.device_code, **_target(found.resource)}
    pause, until = max(code.interval or _INTERVAL, 1.0), context.now() + seconds
    while (left := until - context.now()) > 0:
        yield Sleep(min(pause, left))
        try:
            return (yield from client.obtain(form, resource=found.resource, requested=scopes))
        except AuthorizationFailure as failure:
            if failure.error == "expired_token":
                break
            if failure.error == "slow_down" or not failure.reached:
                pause += _SLOWER
            elif failure.error != "authorization_pending":
                raise
    raise LoginTimedOut(code.verification_uri, seconds)


def _supply(source: Any, *arguments: str) -> AuthFlow[str]:
    """Return a credential of the application. Raises: AuthorizationFailure, which does not show it."""
    try:
        found: object = yield Supply(source, arguments)
    except Exception as problem:  # the application's own function
        raise AuthorizationFailure(f"the assertion could not be read: it raised {type(problem).__name__}") from problem
    if not isinstance(found, str) or not found.strip():
        raise AuthorizationFailure("the assertion is empty or not a string")
    return found.strip()
