"""How a server protects itself: whose tokens it takes, what a request without a good one is answered, and its metadata.

`Protected` is what an author writes; the rest is what the driver in `serve/guarding.py` asks. No I/O.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization, RFC 6750, RFC 9728 (AU-S1 to AU-S8).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, Self, Unpack, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from linkspan.auth.exchanging import TokenExchange
from linkspan.auth.metadata import METADATA_PATH, resource_metadata_urls
from linkspan.auth.network import check_url
from linkspan.auth.proofs import PROOF_ALGORITHMS
from linkspan.auth.verifying import ApiKeys, Checker, FunctionVerifier, Jwt, Verifier, require_jose
from linkspan.core.http_exchange import HttpResponse
from linkspan.keywords import Keywords
from linkspan.types.base import JSON
from linkspan.wire.challenges import is_scope, write_challenge
from linkspan.wire.headers import is_loopback
from linkspan.wire.jsonrpc import encode

_BEARER: Final = re.compile(r"(?P<scheme>bearer|dpop) +(?P<token>[A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
_SECOND: Final = re.compile(r"(?:^|,)\s*(?:bearer|dpop)(?:\s|$)", re.IGNORECASE)
_OPENID: Final = ("openid", "profile", "email", "address", "phone")
"""Scopes that belong to every authorization server, and have no prefix (OpenID Connect Core, section 5.4)."""
_UNWRITABLE: Final = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_READABLE: Final = (
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET"),
    ("access-control-allow-headers", "*"),
)
_PUBLIC: Final = (
    *_READABLE,
    ("cache-control", "public, max-age=3600"),
    ("content-type", "application/json"),
)


class BadCredentials(Exception):
    """A request has credentials in a way that no server may accept; the text is for the client (RFC 6750: `invalid_request`)."""


class Credentials(msgspec.Struct, frozen=True):
    """What a request carries."""

    token: str
    scheme: Literal["bearer", "dpop", "key"] = "bearer"
    proof: str | None = None


class ProtectedOptions(Keywords, total=False):
    """What presets such as `Protected.keycloak` take besides, as `Protected` does."""

    verify: Verifier | Checker | Sequence[Verifier | Checker]
    """Further verifiers, such as `ApiKeys`."""
    scopes: Sequence[str]
    implies: Mapping[str, Sequence[str]] | None
    dpop: Literal["accepted", "required"]
    nonce_key: bytes | None
    exchange: TokenExchange | None
    name: str | None
    documentation: str | None


class Protected:
    """A server that takes tokens of an authorization server: `Server("files", auth=Protected(url, issuer=...))`.

    It is a resource server (RFC 9728): it verifies tokens, and never makes any.
    """

    def __init__(
        self,
        resource: str | None = None,
        *,
        issuer: str | None = None,
        verify: Verifier | Checker | Sequence[Verifier | Checker] = (),
        scopes: Sequence[str] = (),
        implies: Mapping[str, Sequence[str]] | None = None,
        dpop: Literal["accepted", "required"] = "accepted",
        nonce_key: bytes | None = None,
        authorization_servers: Sequence[str] = (),
        exchange: TokenExchange | None = None,
        name: str | None = None,
        documentation: str | None = None,
    ) -> None:
        """Protect the server at the URL `resource`, as its clients write it. Only on loopback it may be left out.

        - `issuer`: the authorization server whose JWTs are taken; short for `verify=Jwt(issuer)`.
        - `verify`: one or several of `Jwt`, `Introspection`, `ApiKeys`, and functions `token -> Grant | None`.
        - `scopes`: what every request needs. Those of single tools stand at the tools.
        - `implies`: scopes that contain others, such as `{"files:write": ["files:read"]}`.
        - `dpop`: "required" refuses tokens that are not bound to a key. Bound tokens are always checked.
        - `nonce_key`: 32 bytes that several processes share which require DPoP; each makes its own otherwise.
        - `authorization_servers`: where clients get tokens, where only a function knows which are good.
        - `exchange`: how `ctx.token_for` gets tokens for other services.
        - `name`, `documentation`: for people, in the metadata.

        Raises: ValueError; LinkspanError where the extra `auth` is needed and missing.
        """
        verifiers = [*_verifiers(verify), *([Jwt(issuer)] if issuer is not None else [])]
        # Those first that know by the token itself whether it is theirs, and functions last.
        self.verifiers: Sequence[Verifier] = sorted(
            verifiers, key=lambda each: (not isinstance(each, Jwt), isinstance(each, FunctionVerifier))
        )
        if not verifiers:
            raise ValueError('Protected needs issuer="https://...", or verify=, to know which tokens are valid')
        if dpop not in ("accepted", "required"):
            raise ValueError(f'dpop must be "accepted" or "required", got {dpop!r}')
        self.resource = None if resource is None else _checked_url(resource)
        if isinstance(authorization_servers, str) or any(check_url(each, each) for each in authorization_servers):
            raise ValueError(
                "authorization_servers must be a list of https URLs (or http on loopback), such as "
                f"['https://login.example.com']; got {authorization_servers!r}"
            )
        self.issuers = tuple(
            dict.fromkeys([*authorization_servers, *(each.issuer for each in verifiers if each.issuer)])
        )
        self.scopes = _checked_scopes(scopes)
        prefixes = {getattr(each, "scope_prefix", "") for each in verifiers if each.issuer}
        self._scope_prefix: str = prefixes.pop() if len(prefixes) == 1 else ""
        self._login_scopes = tuple(scope for each in verifiers for scope in getattr(each, "login_scopes", ()))
        self.implies = {name: _checked_scopes(each) for name, each in (implies or {}).items()}
        self.dpop_required = dpop == "required"
        if self.dpop_required:
            require_jose()
        self.nonce_key = nonce_key
        self.exchange = exchange
        self._about = {"resource_name": name, "resource_documentation": documentation}
        self._key_headers = tuple(
            each.header for each in verifiers if isinstance(each, ApiKeys) and each.header != "authorization"
        )

    def __repr__(self) -> str:
        return f"Protected({self.resource!r}, verify={list(self.verifiers)!r})"

    # Presets: one call for one identity provider.

    @classmethod
    def keycloak(
        cls,
        realm_url: str,
        *,
        resource: str | None = None,
        insecure_issuer: bool = False,
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens of a realm of Keycloak, such as `https://id.example.com/realms/staff`.

        `resource` is the URL of the server; it and `options` are those of `Protected`. Name at least one scope in `scopes`.
        `insecure_issuer` is that of `Jwt`: an http URL of a private network, with its risk.

        To click at Keycloak (realm settings of the admin console):

        - Client scopes: create the scope that `scopes` names, of type Optional. On it, Mappers, Configure a new mapper,
          Audience: *Included Custom Audience* is the URL of the server.
        - Clients, Client registration, Anonymous access policies, Trusted Hosts: add the hosts of your users and of the pages
          that clients name (127.0.0.1, localhost). Else register a client by hand, and give its id to your users.
        - Client scopes, offline_access: *Include in OpenID Provider Metadata* off. Else Claude Code asks for it, and is refused.

        Source: Keycloak, Server Administration Guide (audience support, client registration policies). Raises: ValueError;
        LinkspanError where the extra `auth` is missing.
        """
        from linkspan.auth import providers

        return cls._preset([providers.keycloak(realm_url, insecure_issuer=insecure_issuer)], resource, options)

    @classmethod
    def entra(
        cls,
        tenant: str,
        app_id: str,
        *,
        resource: str | None = None,
        app_id_uri: str | None = None,
        authority: str = "https://login.microsoftonline.com",
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens of an app of Microsoft Entra ID. `tenant` and `app_id` are GUIDs of its page Overview.

        `resource` is the URL of the server, https, and the Application ID URI as well: scopes have it in front. Else Entra
        answers a login with AADSTS9010010. Name scopes without it (`scopes=["files.read"]`), here and at tools. Where the URI
        cannot be the URL, such as on loopback, pass `app_id_uri="api://APP-ID"`; then each client must leave the resource out
        (`OAuth(resource=False)`). `authority` is another one for a national cloud. `options` are those of `Protected`.

        To click at Entra (App registrations):

        - New registration; Expose an API: the Application ID URI is the URL of the server, whose domain the tenant has
          verified; Add a scope for each of `scopes`.
        - Manifest: `requestedAccessTokenVersion` is 2.
        - New registration for the client: Authentication, platform "Mobile and desktop applications", its redirect URI (also
          that of Claude.ai); API permissions: the scopes. Give its Application ID to your users: clients cannot register.

        Source: Microsoft identity platform, Access token claims reference; Expose a web API. Raises: ValueError; LinkspanError
        where the extra `auth` is missing.
        """
        from linkspan.auth import providers

        resource = resource.rstrip("/") if resource is not None else None
        return cls._preset(providers.entra(tenant, app_id, app_id_uri or resource, authority), resource, options)

    @classmethod
    def okta(
        cls,
        issuer: str,
        *,
        resource: str | None = None,
        audience: str | None = None,
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens of a custom authorization server of Okta, such as `https://ORG.okta.com/oauth2/SERVER`.

        `resource` is the URL of the server, and `audience` what the authorization server has as its audience, if that is not
        this URL (that of the server "default" is `api://default`). `options` are those of `Protected`.

        To click at Okta (admin console):

        - Security, API, Add Authorization Server: its Audience is the URL of the server, its Issuer URI is `issuer`.
        - On it, Scopes: one for each of `scopes`; Access Policies: a policy, and a rule that allows them.
        - Applications, Create App Integration, OIDC, Native Application: the redirect URIs of the client. Give its client id
          to your users: clients cannot register without a token of an administrator.

        Source: Okta, Create an authorization server; Validate access tokens. Raises: ValueError; LinkspanError where the extra
        `auth` is missing.
        """
        from linkspan.auth import providers

        return cls._preset([providers.okta(issuer, audience)], resource, options)

    @classmethod
    def auth0(cls, domain: str, *, resource: str | None = None, **options: Unpack[ProtectedOptions]) -> Self:
        """Take the access tokens of a tenant of Auth0. `domain` is `TENANT.eu.auth0.com`, your own one, or the issuer.

        `resource` is the URL of the server, and the identifier of its API at Auth0: without that a token is opaque, or for
        another API. `options` are those of `Protected`. Permissions of users count as scopes.

        To click at Auth0 (dashboard):

        - Applications, APIs, Create API: the Identifier is the URL of the server, the JWT profile is Auth0 or RFC 9068;
          Permissions: one for each of `scopes`; Settings, Default Permissions for Third-Party Applications: these.
        - Settings, Advanced: Resource Parameter Compatibility Profile on, so that `resource` chooses the API, and Dynamic
          Client Registration on, or register a client by hand.
        - Authentication: promote the connections of your users to domain level, for clients that register themselves.

        Source: Auth0, Validate access tokens; Resource Parameter Compatibility Profile. Raises: ValueError; LinkspanError where
        the extra `auth` is missing.
        """
        from linkspan.auth import providers

        return cls._preset([providers.auth0(domain)], resource, options)

    @classmethod
    def cognito(
        cls,
        pool: str,
        client_ids: Sequence[str],
        *,
        resource: str | None = None,
        identifier: str | None = None,
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens of a user pool of Amazon Cognito, such as `eu-west-1_AbCdEfGhI`, from these app clients.

        Access tokens name their client instead of an audience: any token of a listed client is good here, so list clients
        that are for this server alone. `resource` is the URL of the server. `identifier` is that of the resource server at
        Cognito, the URL if left out: scopes have it in front. Name scopes without it. `options` are those of `Protected`.

        To click at Amazon Cognito (user pool):

        - Branding, Domain: without one there is no login page. Resource servers: the identifier is the URL of the server;
          custom scopes: one for each of `scopes`.
        - App clients, Create, Single-page or mobile application (without a secret); Login pages: the callback URLs of the
          client, authorization code grant, the custom scopes. Give its client ID to your users: clients cannot register.

        Source: Amazon Cognito, Understanding the access token; Scopes, M2M, and resource servers. Raises: ValueError;
        LinkspanError where the extra `auth` is missing.
        """
        from linkspan.auth import providers

        return cls._preset([providers.cognito(pool, client_ids, identifier or resource)], resource, options)

    @classmethod
    def google(
        cls,
        client_id: str | Sequence[str],
        *,
        domain: str | Sequence[str] = (),
        resource: str | None = None,
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens that Google has issued to a client of yours, or to one of several.

        Access tokens are opaque: Google is asked about each (tokeninfo), once in a minute. `domain` lets in only accounts of
        this Workspace domain (`hd`); without it, any Google account. Clients are always asked for `openid` and `email`, and
        other scopes are Google's own. `resource` is the URL of the server; `options` are those of `Protected`. A token that
        Google does not know is answered 401, and 503 while Google does not answer.

        To click at Google (Cloud console, Google Auth Platform):

        - Audience: Internal, for one Workspace, or External. Data access: the scopes openid and userinfo.email.
        - Clients, Create client: Desktop app, whose redirect URIs on 127.0.0.1 need not be listed. Give its id and its
          secret, which Google does not treat as one for desktop apps, to your users: clients cannot register.

        Source: Google Identity, OpenID Connect; OAuth 2.0 for desktop apps. Raises: ValueError.
        """
        from linkspan.auth import providers

        return cls._preset([providers.google(client_id, domain)], resource, options)

    @classmethod
    def github(
        cls,
        client_id: str,
        secret: str,
        *,
        resource: str | None = None,
        server: str = "https://github.com",
        **options: Unpack[ProtectedOptions],
    ) -> Self:
        """Take the access tokens that GitHub has issued to an app of yours, for the users who have allowed it.

        Access tokens are opaque: GitHub is asked about each, as the app, once in a minute. `scopes` are GitHub's own, such as
        `read:user`; tokens of a GitHub App have none. The subject is the number of the user: a login may change hands. Any user
        of GitHub may log in: decide by `ctx.grant`, or `when=`, who may do what. `resource` is the URL of the server, `server`
        that of a GitHub of your own; `options` are those of `Protected`. A token that GitHub does not know is answered 401,
        and 503 while GitHub does not answer.

        To click at GitHub (Settings, Developer settings):

        - OAuth Apps, New OAuth App: the Authorization callback URL is that of the client, `http://127.0.0.1/callback` for
          clients on the machine of a user, with any port.
        - Generate a new client secret. Give the client ID and a secret to your users: clients cannot register, and GitHub
          wants a secret at its token endpoint. Generate another one for this server.

        Source: GitHub, Authorizing OAuth apps; REST API endpoints for OAuth authorizations. Raises: ValueError.
        """
        from linkspan.auth import providers

        return cls._preset([providers.github(client_id, secret, server)], resource, options)

    @classmethod
    def _preset(cls, verifiers: Sequence[Verifier], resource: str | None, options: ProtectedOptions) -> Self:
        """Return what takes tokens that `verifiers` know, and those of the verifiers among the options.

        These come first, so that a provider is not shown the keys of others. Clients are sent to the provider first.
        """
        given: ProtectedOptions = {**options}
        given["verify"] = [*_verifiers(options.get("verify", ())), *verifiers]
        found = cls(resource, **given)
        found.issuers = tuple(dict.fromkeys((*(each.issuer for each in verifiers if each.issuer), *found.issuers)))
        return found

    @property
    def secret_headers(self) -> tuple[str, ...]:
        """The headers that carry credentials, which handlers never see."""
        return ("authorization", "dpop", *self._key_headers)

    @property
    def named_urls(self) -> tuple[str, ...]:
        """The URLs that the author has written: the authorization servers, and endpoints of theirs."""
        given = [url for each in (*self.verifiers, self.exchange) for url in getattr(each, "named_urls", ())]
        return tuple(dict.fromkeys((*given, *self.issuers)))

    # What a request carries.

    def credentials(self, headers: Mapping[str, str], query: str) -> Credentials | None:
        """Return what a request carries; None where it has no credentials. Raises: BadCredentials."""
        if query and "access_token" in parse_qs(query, keep_blank_values=True):
            raise BadCredentials("a token in the URL is not accepted: send it in the Authorization header")
        value = headers.get("authorization")
        keys = [headers[name] for name in self._key_headers if name in headers]
        if value is None and len(keys) == 1 and "," not in keys[0]:
            return Credentials(keys[0], "key")
        if keys:
            raise BadCredentials("the request carries more than one credential")
        if value is None:
            return None
        found = _BEARER.fullmatch(value)
        if found is None:
            if _SECOND.search(value):
                raise BadCredentials("send one Authorization header, with a single Bearer or DPoP token")
            return None  # of a scheme that we do not offer
        proof = headers.get("dpop")
        if found["scheme"].lower() == "bearer":
            return Credentials(found["token"])
        if proof is None or "," in proof:
            raise BadCredentials("a request with a DPoP token needs one DPoP header with one proof")
        return Credentials(found["token"], "dpop", proof)

    def verifiers_for(self, credentials: Credentials) -> Sequence[Verifier]:
        """Return the verifiers for credentials of this kind."""
        headers = self._key_headers if credentials.scheme == "key" else ("authorization",)
        return [each for each in self.verifiers if getattr(each, "header", "authorization") in headers]

    def implied(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return scopes with all that they contain."""
        found: set[str] = set()
        waiting = list(scopes)
        while waiting:
            if (scope := waiting.pop()) not in found:
                found.add(scope)
                waiting += self.implies.get(scope, ())
        return frozenset(found)

    def asked(self, scopes: Iterable[str]) -> list[str]:
        """Return scopes as clients ask for them: with the prefix that the authorization server wants, after those of a login."""
        prefix = self._scope_prefix
        named = [each if "://" in each or each in _OPENID else prefix + each for each in scopes]
        return list(dict.fromkeys((*self._login_scopes, *named)))

    # What it is answered.

    def challenge(
        self,
        metadata_url: str | None,
        *,
        error: str | None = None,
        description: str | None = None,
        scopes: Collection[str] = (),
        scheme: str = "bearer",
    ) -> str:
        """Return the value of WWW-Authenticate. Without an `error`, because no token was there, it has none (RFC 6750, 3.1)."""
        bound = self.dpop_required or scheme == "dpop"
        wanted = self.asked((*self.scopes, *scopes))
        return write_challenge(
            "DPoP" if bound else "Bearer",
            {
                "resource_metadata": metadata_url,
                "error": error,
                "error_description": _UNWRITABLE.sub("'", description) if description else None,
                "scope": " ".join(wanted) or None,
                "algs": " ".join(PROOF_ALGORITHMS) if bound else None,
            },
        )

    # The metadata.

    def unnamed(self, scopes: Mapping[str, Collection[str]]) -> str | None:
        """Return the line to write where items need `scopes` and the metadata name none; None where all is well.

        The metadata have the scopes of `Protected(scopes=)` alone: a client that asked for those of all items would get more
        than its user needs. Without any, some clients ask for all that the authorization server has, and are refused.
        """
        if self.scopes or not scopes or not self.issuers:
            return None
        item, needed = next(iter(scopes.items()))
        wanted = " ".join(needed) + (f" (and {len(scopes) - 1} more)" if len(scopes) > 1 else "")
        where = repr(self.resource) + ", " if self.resource is not None else ""
        line = f"Protected({where}..., scopes={self._most_common(scopes)!r})"
        return (
            f"the {item} needs the scope {wanted}, but Protected(scopes=) is empty, so that clients do not know what to ask "
            f"for at a login: write {line} with the scopes that every request needs [LS-614]"
        )

    def _most_common(self, scopes: Mapping[str, Collection[str]]) -> list[str]:
        """Return the scopes that all items need, one implying another counted, or else the one that most of them need."""
        each = [self.implied(needed) for needed in scopes.values()]
        named = dict.fromkeys(scope for needed in scopes.values() for scope in needed)
        common = [scope for scope in named if all(scope in needed for needed in each)]
        return common or [max(named, key=lambda scope: sum(scope in needed for needed in each))]

    def metadata(self, resource: str) -> HttpResponse | None:
        """Return the metadata document for any page of any origin; None where there is no server to send clients to."""
        if not self.issuers:
            return None
        document: dict[str, JSON] = {
            "resource": resource,
            "authorization_servers": list(self.issuers),
            "bearer_methods_supported": ["header"],
            "scopes_supported": self.asked(self.scopes) or None,
            "dpop_signing_alg_values_supported": list(PROOF_ALGORITHMS),
            "dpop_bound_access_tokens_required": self.dpop_required or None,
            **self._about,
        }
        return HttpResponse(
            200, _PUBLIC, encode({name: value for name, value in document.items() if value is not None})
        )


def metadata_answer(document: HttpResponse, method: str) -> HttpResponse:
    """Return the answer to a request for the metadata, which are read, and nothing else (RFC 9728, section 3.1)."""
    if method in ("GET", "HEAD"):
        return document
    allowed = (("allow", "GET, HEAD, OPTIONS"), *_READABLE)
    return HttpResponse(204 if method == "OPTIONS" else 405, allowed)


def metadata_places(resource: str) -> tuple[str, ...]:
    """Return the paths at which clients look for the metadata: with the path of the resource inserted, and without."""
    return tuple(urlsplit(each).path.rstrip("/") for each in resource_metadata_urls(resource))


def metadata_url(resource: str, *, below: bool) -> str:
    """Return where the metadata are: at the root of the origin, or `below` the resource, where the rest is another app's."""
    return resource.rstrip("/") + METADATA_PATH if below else resource_metadata_urls(resource)[0]


def _verifiers(given: Verifier | Checker | Sequence[Verifier | Checker]) -> list[Verifier]:
    """Return one or several as a list. Raises: ValueError."""
    several = cast("list[Verifier | Checker]", [*given] if isinstance(given, list | tuple) else [given])
    return [_as_verifier(each) for each in several]


def _as_verifier(given: Verifier | Checker) -> Verifier:
    """Return a verifier for one, or for a function. Raises: ValueError for anything else."""
    if isinstance(given, Verifier):
        return given
    if not callable(given):
        raise ValueError(f"verify= takes Jwt, Introspection, ApiKeys and functions, not {type(given).__name__}")
    return FunctionVerifier(given)


def _checked_url(resource: str) -> str:
    """Raise ValueError for a resource that clients could not use (RFC 9728, section 1.2)."""
    try:
        parts = urlsplit(resource)
        host, _ = parts.hostname or "", parts.port  # either may be no good
    except ValueError:
        parts, host = urlsplit(""), ""
    local = host == "localhost" or is_loopback(host) is True
    if not host or parts.scheme not in ("https", "http") or parts.fragment or parts.query or parts.username:
        raise ValueError(
            f"resource must be the URL of the server, such as https://api.example.com/mcp; got {resource!r}"
        )
    if parts.scheme == "http" and not local:
        raise ValueError(f"resource must be https, since tokens are sent there; got {resource!r}")
    return resource


def _checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Raise ValueError for what is not a list of scopes."""
    if isinstance(scopes, str) or not all(map(is_scope, scopes)):
        raise ValueError(
            f"scopes must be a list of names without spaces and quotes, such as ['files:read']; got {scopes!r}"
        )
    if "offline_access" in scopes:
        raise ValueError("offline_access is between a client and its authorization server; leave it out of scopes")
    return tuple(dict.fromkeys(scopes))
