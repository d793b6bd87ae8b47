"""Presets of `Protected`: what verifies the tokens of one identity provider, made of what its console shows.

No I/O. Loaded when a preset is used. What tokens of a provider look like is in `auth/presets.py`; here is which settings of it
can work with MCP at all. Sources are named at each function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from linkspan.auth.jwks import TokenRefused, VerifyFlow
from linkspan.auth.network import check_issuer_url, check_url
from linkspan.auth.opaque_tokens import GitHubTokens, GoogleTokens
from linkspan.auth.verifying import Jwt, Verified, Verifier

_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_OKTA: Final = re.compile(r"https?://[^/]+(?<!-admin\.okta\.com)/oauth2/[^/?#]+")
_HOST: Final = re.compile(r"([A-Za-z0-9-]+\.)+[A-Za-z0-9-]+")
_OF_GOOGLE: Final = ".apps.googleusercontent.com"
_ORIGIN: Final = re.compile(r"https?://[^/?#@]+/")
_POOL: Final = re.compile(r"(?P<region>[a-z]{2,}(-[a-z]+)+-[0-9]+)_[A-Za-z0-9]+")
_REALM: Final = re.compile(r"https?://.+/realms/[^/?#]+")


def keycloak(realm_url: str, *, insecure_issuer: bool) -> Jwt:
    """Return what verifies access tokens of a realm (Keycloak, Securing applications with OpenID Connect). Raises: ValueError."""
    issuer = realm_url.rstrip("/")
    if _REALM.fullmatch(issuer) is None:
        raise ValueError(
            f"realm_url must be the URL of a realm, such as https://id.example.com/realms/staff; got {realm_url!r} [LS-616]"
        )
    check_issuer_url("Protected.keycloak", "realm_url", issuer, insecure=insecure_issuer)
    return Jwt(issuer, preset="keycloak", insecure_issuer=insecure_issuer)


def entra(tenant: str, app_id: str, app_id_uri: str | None, authority: str) -> Sequence[Verifier]:
    """Return what verifies access tokens of version 2.0, and what refuses those of 1.0 with the cure. Raises: ValueError.

    Source: Microsoft identity platform, Access token claims reference.
    """
    tenant, app_id = tenant.lower(), app_id.lower()
    if _GUID.fullmatch(tenant) is None:
        raise ValueError(
            f"tenant must be the Directory (tenant) ID, a GUID, as tokens have it; got {tenant!r} [LS-616]"
        )
    if _GUID.fullmatch(app_id) is None:
        raise ValueError(f"app_id must be the Application (client) ID of the server, a GUID; got {app_id!r} [LS-616]")
    if app_id_uri is None or not app_id_uri.startswith(("https://", "api://")):
        raise ValueError(
            "Protected.entra needs an https resource=, which is the Application ID URI too, or app_id_uri='api://APP-ID' "
            f"for clients that leave the resource out; got {app_id_uri!r} [LS-616]"
        )
    issuer = f"{authority.rstrip('/')}/{tenant}/v2.0"
    prefix = app_id_uri.rstrip("/") + "/"
    old = _Unwanted(
        f"https://sts.windows.net/{tenant}/",
        "the token has version 1.0: set requestedAccessTokenVersion to 2 in the manifest of the app [LS-618]",
    )
    return Jwt(issuer, audience=app_id, scope_prefix=prefix, preset="entra"), old


def okta(issuer: str, audience: str | None) -> Jwt:
    """Return what verifies access tokens of a custom authorization server. Raises: ValueError.

    Source: Okta, Validate access tokens; Authorization servers.
    """
    issuer = issuer.rstrip("/")
    if _OKTA.fullmatch(issuer) is None:
        raise ValueError(
            "issuer must be that of a custom authorization server, such as https://ORG.okta.com/oauth2/SERVER, since tokens of "
            f"the org server can be verified by Okta alone; got {issuer!r} [LS-616]"
        )
    return Jwt(issuer, audience=audience, preset="okta")


def auth0(domain: str) -> Jwt:
    """Return what verifies access tokens of a tenant, whose issuer is its domain with a slash at the end. Raises: ValueError.

    Source: Auth0, Validate access tokens.
    """
    issuer = (domain if "://" in domain else f"https://{domain}").rstrip("/") + "/"
    if _ORIGIN.fullmatch(issuer) is None:
        raise ValueError(f"domain must be that of a tenant, such as TENANT.eu.auth0.com; got {domain!r} [LS-616]")
    return Jwt(issuer, preset="auth0")


def cognito(pool: str, client_ids: Sequence[str], identifier: str | None) -> Jwt:
    """Return what verifies access tokens of a user pool, given by its ID or its issuer, for these clients. Raises: ValueError.

    Source: Amazon Cognito, Understanding the access token; Scopes, M2M, and resource servers.
    """
    found = _POOL.fullmatch(pool)
    if found is not None:
        end = "com.cn" if pool.startswith("cn-") else "com"
        issuer = f"https://cognito-idp.{found['region']}.amazonaws.{end}/{pool}"
    else:
        issuer = pool.rstrip("/")
    if _POOL.fullmatch(issuer.rpartition("/")[2]) is None:
        raise ValueError(f"pool must be the User pool ID, such as eu-west-1_AbCdEfGhI; got {pool!r} [LS-616]")
    if isinstance(client_ids, str) or not client_ids:
        raise ValueError(
            "client_ids must list the app clients that may call, since access tokens of Amazon Cognito name their client "
            f"instead of an audience; got {client_ids!r} [LS-616]"
        )
    prefix = identifier.rstrip("/") + "/" if identifier is not None else ""
    return Jwt(issuer, audience=client_ids, scope_prefix=prefix, preset="cognito")


def github(client_id: str, secret: str, server: str) -> GitHubTokens:
    """Return what asks GitHub about tokens of an app. Raises: ValueError.

    Source: GitHub REST API, REST API endpoints for OAuth authorizations.
    """
    if not client_id or not secret or client_id == secret:
        raise ValueError(
            "Protected.github needs the client ID of an app and its client secret, with which GitHub is asked about "
            f"tokens; got the client ID {client_id!r} [LS-616]"
        )
    if (wrong := check_url(server, server)) is not None:
        raise ValueError(
            f"server must be the URL of GitHub, or of a server of your own; got {server!r}: {wrong} [LS-616]"
        )
    return GitHubTokens(client_id, secret, server.rstrip("/"))


def google(client_id: str | Sequence[str], domain: str | Sequence[str]) -> GoogleTokens:
    """Return what asks Google about tokens of these clients, and of accounts of these domains. Raises: ValueError.

    Source: Google Identity, OpenID Connect.
    """
    clients = [client_id] if isinstance(client_id, str) else [*client_id]
    if not clients or not all(each.endswith(_OF_GOOGLE) for each in clients):
        raise ValueError(f"client_id must be that of a client at Google, ID{_OF_GOOGLE}; got {client_id!r} [LS-616]")
    domains = [domain] if isinstance(domain, str) else [*domain]
    if not all(_HOST.fullmatch(each) for each in domains):
        raise ValueError(f"domain must be a domain of Google Workspace, such as example.com; got {domain!r} [LS-616]")
    return GoogleTokens(clients, domains)


class _Unwanted:
    """Refuses the tokens of an issuer, with a reason that names the cure."""

    issuer = None

    def __init__(self, issuer: str, reason: str) -> None:
        self._issuer = issuer
        self._reason = reason

    def __repr__(self) -> str:
        return f"not {self._issuer!r}"

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token claims this issuer."""
        return issuer == self._issuer

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Raise TokenRefused."""
        yield from ()
        raise TokenRefused(self._reason)
