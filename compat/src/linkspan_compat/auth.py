"""Logins and tokens of the SDKs: what verifies tokens becomes `Protected`; what issues them refuses to serve HTTP.

Nothing here is a placeholder: a server that was written to be protected is either protected, or does not start over HTTP.
"""

from __future__ import annotations

import inspect
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from linkspan_compat.errors import NotServed
from linkspan_compat.keywords import check, refusal
from linkspan_compat.names import line_instead

if TYPE_CHECKING:
    from linkspan import Grant, Protected

__all__ = [
    "AccessToken",
    "AuthProvider",
    "AuthSettings",
    "JWTVerifier",
    "Refusal",
    "RemoteAuthProvider",
    "StaticTokenVerifier",
    "TokenVerifier",
    "check_fast_auth",
    "current_token",
    "get_access_token",
    "protection",
]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class _Members:
    """A record of keywords: `model_dump` and `model_validate` as models have them."""

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """Return the members, with texts for URLs where JSON is wanted."""
        found = {name: each for name, each in vars(self).items() if not (exclude_none and each is None)}
        return msgspec.to_builtins(found, enc_hook=str) if mode == "json" else found

    def model_dump_json(self, *, exclude_none: bool = False, **_: Any) -> str:
        """Return the members as JSON."""
        return msgspec.json.encode(self.model_dump(mode="json", exclude_none=exclude_none)).decode()

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """Make one of its members."""
        return value if isinstance(value, cls) else cls(**value)

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Any:
        """Make one of JSON."""
        return cls(**msgspec.json.decode(text))

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(vars(self))})"


class AccessToken(_Members):
    """What a verifier says of a token: `token`, `client_id`, `scopes`, `expires_at`, `resource`, `subject`, `claims`."""

    token: str
    client_id: str
    scopes: list[str]
    claims: dict[str, Any]

    def __init__(self, **members: Any) -> None:
        super().__init__(**{"scopes": [], "expires_at": None, "claims": {}, **members})


FastAccessToken = AccessToken


class AuthorizationCode(_Members):
    """A code, for providers that issue tokens."""


class AuthorizationParams(_Members):
    """What a client asks of such a provider."""


class RefreshToken(_Members):
    """A refresh token of such a provider."""


class ClientRegistrationOptions(_Members):
    """How clients register at such a provider."""


class RevocationOptions(_Members):
    """Whether tokens can be revoked at such a provider."""


class OAuthClientMetadata(_Members):
    """What a client says of itself."""


class OAuthClientInformationFull(OAuthClientMetadata):
    """A client that is registered."""


class OAuthToken(_Members):
    """A token as it is issued."""


class AuthorizationCodeResult(_Members):
    """What a callback handler of version 2 returns: `code`, `state`, `iss`."""


class OAuthMetadata(_Members):
    """What an authorization server says of itself."""


class ProtectedResourceMetadata(_Members):
    """What a protected server says of itself."""


class _OAuthProblem(Exception):
    """A provider refuses."""

    def __init__(self, error: Any = None, error_description: str | None = None) -> None:
        super().__init__(error_description or str(error))
        self.error = error
        self.error_description = error_description


class AuthorizeError(_OAuthProblem):
    """A provider refuses a login."""


class TokenError(_OAuthProblem):
    """A provider refuses a token."""


class RegistrationError(_OAuthProblem):
    """A provider refuses a client."""


class TokenVerifier(Protocol):
    """Says what a token allows: `async def verify_token(token) -> AccessToken | None`."""

    async def verify_token(self, token: str) -> Any:
        """Return what it allows, None for one that is no good."""
        ...


class OAuthAuthorizationServerProvider(Generic[A, B, C]):
    """Base of providers that issue tokens: a server that has one does not start over HTTP."""


class ProviderTokenVerifier:
    """Verifies the tokens of such a provider."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider

    async def verify_token(self, token: str) -> Any:
        """Ask the provider."""
        return await self.provider.load_access_token(token)


def construct_redirect_uri(base: str, **params: str | None) -> str:
    """Return a URL with more parameters."""
    from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

    parts = urlsplit(base)
    query = [*parse_qsl(parts.query), *((name, value) for name, value in params.items() if value is not None)]
    return urlunsplit(parts._replace(query=urlencode(query)))


class AuthSettings(_Members):
    """Where clients get tokens, and for what: `issuer_url`, `resource_server_url`, `required_scopes`."""

    issuer_url: Any
    resource_server_url: Any
    required_scopes: Any


# Verifiers of FastMCP.


class AuthProvider:
    """Base of what protects a server of FastMCP."""

    def __init__(
        self, base_url: Any = None, required_scopes: list[str] | None = None, resource_base_url: Any = None
    ) -> None:
        self.base_url = resource_base_url if resource_base_url is not None else base_url
        self.required_scopes = list(required_scopes or ())

    async def verify_token(self, token: str) -> Any:
        """Return what a token allows."""
        raise NotImplementedError("Subclasses must implement verify_token()")

    def resource(self, path: str, local: str | None) -> str | None:
        """Return the URL that clients use: below `base_url`, or `local` where the program does not say it."""
        return f"{str(self.base_url).rstrip('/')}{path}" if self.base_url is not None else local

    def protection(self, path: str, local: str | None) -> Protected:
        """Return what protects the server. Raises: NotServed for a provider of one's own that issues tokens."""
        if hasattr(self, "authorize"):
            raise NotServed(_issues(type(self).__name__))
        return _protected(self.resource(path, local), self.verify_token, (), self.required_scopes)


class FastTokenVerifier(AuthProvider):
    """Base of verifiers: a subclass has `verify_token`."""


class StaticTokenVerifier(FastTokenVerifier):
    """Tokens that are listed, for tests."""

    def __init__(self, tokens: dict[str, dict[str, Any]], required_scopes: list[str] | None = None) -> None:
        super().__init__(None, required_scopes)
        self.tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        """Look it up."""
        same: Callable[[str], bool] = lambda known: secrets.compare_digest(known.encode(), token.encode())  # noqa: E731
        found = next((each for known, each in self.tokens.items() if same(known)), None)
        if found is None or (found.get("expires_at") is not None and found["expires_at"] < time.time()):
            return None
        return AccessToken(
            token=token,
            client_id=found["client_id"],
            scopes=list(found.get("scopes", ())),
            expires_at=found.get("expires_at"),
            claims=dict(found),
        )


class JWTVerifier(FastTokenVerifier):
    """JSON Web Tokens, which the server itself checks with the keys of their issuer."""

    def __init__(
        self,
        public_key: str | None = None,
        jwks_uri: str | None = None,
        issuer: str | list[str] | None = None,
        audience: str | list[str] | None = None,
        algorithm: str | None = None,
        required_scopes: list[str] | None = None,
        base_url: Any = None,
        resource_base_url: Any = None,
        **more: Any,
    ) -> None:
        check("JWTVerifier", more, "ssrf_safe http_client jwks_refresh_interval")
        if not public_key and not jwks_uri:
            raise ValueError("Either public_key or jwks_uri must be provided")
        super().__init__(base_url, required_scopes, resource_base_url)
        self.public_key, self.jwks_uri, self.issuer = public_key, jwks_uri, issuer
        self.audience, self.algorithm = audience, algorithm

    def verifiers(self) -> list[Any]:
        """Return the same for Linkspan. Raises: NotServed without an issuer, and for a shared key."""
        from linkspan.auth import Jwt

        if self.issuer is None or (self.algorithm or "").startswith("HS"):
            what = "without issuer=" if self.issuer is None else f"with algorithm={self.algorithm!r}"
            raise NotServed(
                f"JWTVerifier {what} is not served by linkspan-compat; write: {line_instead('JWTVerifier')}"
            )
        issuers = [self.issuer] if isinstance(self.issuer, str) else self.issuer
        more: dict[str, Any] = {"algorithms": [self.algorithm]} if self.algorithm else {}
        if self.public_key:
            more["keys"] = self.public_key
        else:
            more["jwks_uri"] = self.jwks_uri
        if self.audience is not None:
            more["audience"] = self.audience
        return [Jwt(issuer, **more) for issuer in issuers]

    def protection(self, path: str, local: str | None) -> Protected:
        """Return what protects the server."""
        from linkspan import Protected

        return Protected(self.resource(path, local), verify=self.verifiers(), scopes=self.required_scopes)


class IntrospectionTokenVerifier(FastTokenVerifier):
    """Opaque tokens, for which the issuer is asked."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotServed(
            f"IntrospectionTokenVerifier is not served by linkspan-compat; write: {line_instead('IntrospectionTokenVerifier')}"
        )


class RSAKeyPair:
    """Keys for tests: `public_key` as PEM for a verifier, and the tokens that `create_token` signs."""

    def __init__(self, private_key: Any, public_key: str) -> None:
        """Keep both keys, as PEM; the private one as pydantic's `SecretStr`."""
        self.private_key = private_key
        self.public_key = public_key

    @classmethod
    def generate(cls) -> RSAKeyPair:
        """Make a pair of 2048 bits. Raises: ImportError without the extra `auth` of linkspan."""
        from joserfc.jwk import RSAKey
        from pydantic import SecretStr

        key = RSAKey.generate_key(2048)
        private, public = (key.as_pem(private=each).decode() for each in (True, False))
        return cls(SecretStr(private), public)

    def create_token(
        self,
        subject: str = "fastmcp-user",
        issuer: str = "https://fastmcp.example.com",
        audience: str | list[str] | None = None,
        scopes: list[str] | None = None,
        expires_in_seconds: int = 3600,
        additional_claims: dict[str, Any] | None = None,
        kid: str | None = None,
    ) -> str:
        """Return a token that the private key signed, valid for `expires_in_seconds` from now."""
        from joserfc import jwt
        from joserfc.jwk import RSAKey

        now = int(time.time())
        claims: dict[str, Any] = {"sub": subject, "iss": issuer, "iat": now, "exp": now + expires_in_seconds}
        claims |= {"aud": audience} if audience else {}
        claims |= {"scope": " ".join(scopes)} if scopes else {}
        key = RSAKey.import_key(self.private_key.get_secret_value())
        return jwt.encode({"alg": "RS256", **({"kid": kid} if kid else {})}, claims | (additional_claims or {}), key)


class RemoteAuthProvider(AuthProvider):
    """A verifier, and the authorization servers that clients log in at."""

    def __init__(
        self,
        token_verifier: Any,
        authorization_servers: list[Any],
        base_url: Any,
        resource_name: str | None = None,
        resource_documentation: Any = None,
        resource_base_url: Any = None,
        scopes_supported: list[str] | None = None,
        **more: Any,
    ) -> None:
        check("RemoteAuthProvider", more, "challenge_scopes")
        super().__init__(base_url, getattr(token_verifier, "required_scopes", None), resource_base_url)
        if scopes_supported is not None and list(scopes_supported) != self.required_scopes:
            raise refusal("RemoteAuthProvider", "scopes_supported")
        self.token_verifier = token_verifier
        self._described: dict[str, Any] = {
            "name": resource_name,
            "documentation": str(resource_documentation) if resource_documentation is not None else None,
        }
        self.authorization_servers = [str(each) for each in authorization_servers]

    async def verify_token(self, token: str) -> Any:
        """Ask the verifier."""
        return await self.token_verifier.verify_token(token)

    def protection(self, path: str, local: str | None) -> Protected:
        """Return what protects the server."""
        if isinstance(self.token_verifier, JWTVerifier):
            from linkspan import Protected

            servers = [each.rstrip("/") for each in self.authorization_servers]
            return Protected(
                self.resource(path, local),
                verify=self.token_verifier.verifiers(),
                authorization_servers=servers,
                scopes=self.required_scopes,
                **self._described,
            )
        resource = self.resource(path, local)
        return _protected(
            resource, self.verify_token, self.authorization_servers, self.required_scopes, **self._described
        )


class Refusal:
    """Stands for what protects a server and is not served: such a server does not start over HTTP."""

    problem = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Made by the program; nothing happens before the server is served over HTTP."""

    def protection(self, path: str, local: str | None) -> Protected:
        """Refuse."""
        raise NotServed(type(self).problem)


def check_fast_auth(auth: Any) -> Any:
    """Return what protects a server of FastMCP. Raises: TypeError for what cannot."""
    if auth is None or hasattr(auth, "protection"):
        return auth
    if hasattr(auth, "verify_token"):
        return RemoteAuthProvider(auth, [], getattr(auth, "base_url", None))
    raise TypeError(f"auth= takes a verifier or a provider of FastMCP, not {type(auth).__name__}")


def _issues(name: str) -> str:
    return f"{name} issues tokens, which linkspan-compat does not serve; write: {line_instead('OAuthProvider')}"


def protection(server: Any, local: str | None = None) -> Protected | None:
    """Return what protects a server of the SDK; `local` is its URL where the program says none.

    Raises: NotServed for one that issues tokens.
    """
    if server._auth_server_provider is not None:
        raise NotServed(_issues("auth_server_provider="))
    if server._token_verifier is None:
        return None
    settings = server.settings.auth
    issuers = [settings.issuer_url] if settings.issuer_url is not None else []
    url = _url(settings.resource_server_url) or local
    return _protected(url, server._token_verifier.verify_token, issuers, settings.required_scopes)


def _url(url: Any) -> str | None:
    return str(url).rstrip("/") if url is not None else None


_HANDLE: Final = "linkspan-compat/token"
_KNOWN: Final[OrderedDict[str, Any]] = OrderedDict()
_MAX_KNOWN: Final = 10_000


def _protected(
    url: str | None, verify: Callable[[str], Awaitable[Any]], issuers: Any, scopes: Any, **described: Any
) -> Protected:
    from linkspan import Grant, Protected

    servers = [str(each).rstrip("/") for each in issuers]

    async def check(token: str) -> Grant | None:
        found = verify(token)
        found = await found if inspect.isawaitable(found) else found
        if found is None:
            return None
        handle = secrets.token_hex(16)
        _KNOWN[handle] = found
        while len(_KNOWN) > _MAX_KNOWN:
            _KNOWN.popitem(last=False)
        claims = {**(getattr(found, "claims", None) or {}), _HANDLE: handle}
        expires = getattr(found, "expires_at", None)
        return Grant(
            servers[0] if servers else "https://localhost",
            getattr(found, "subject", None),
            found.client_id,
            frozenset(found.scopes or ()),
            claims=claims,
            expires=float(expires) if expires is not None else None,
        )

    return Protected(url, verify=check, authorization_servers=servers, scopes=list(scopes or ()), **described)


def current_token(request: Any) -> Any:
    """Return what the caller's token allows, as the verifier said it; None without one."""
    grant = request.under.grant if request is not None and request.under is not None else None
    if grant is None:
        return None
    found = _KNOWN.get(str(grant.claims.get(_HANDLE, "")))
    if found is not None:
        return found
    expires = int(grant.expires) if grant.expires is not None else None
    return AccessToken(
        token="",
        client_id=grant.client_id or grant.subject or "",
        scopes=sorted(grant.scopes),
        expires_at=expires,
        subject=grant.subject,
        claims=dict(grant.claims),
    )


def get_access_token() -> Any:
    """Return what the caller's token allows; None without one."""
    from linkspan_compat.server.requests import request_ctx

    return current_token(request_ctx.get(None))
