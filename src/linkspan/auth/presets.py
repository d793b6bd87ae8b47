"""What is known of identity providers: where their tokens name audience, scopes and roles, and how MCP clients get a client id.

A provider is recognized by its issuer. The page docs/protecting-a-server.md explains each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.text import did_you_mean
from linkspan.types.base import JSON

Registration: TypeAlias = Literal["open", "switched on", "by hand"]
"""Whether clients can register at a provider: at once, after an administrator has allowed it, or only by an administrator."""


class Preset(msgspec.Struct, frozen=True):
    """One provider. Claims are paths: `("realm_access", "roles")` is a member of a member."""

    name: str = "OAuth"
    issuer: str = ""
    """A regular expression for its issuers."""
    example: str = ""
    audience: tuple[str, ...] = ("aud",)
    """Where a token names whom it is for."""
    fixed_audience: str | None = None
    """The audience of all its tokens, where it cannot be chosen."""
    scopes: tuple[tuple[str, ...], ...] = (("scope",), ("scp",))
    roles: tuple[str, ...] = ("roles",)
    client: tuple[str, ...] = ("client_id", "azp")
    """The first of these that a token has is its client."""
    required: Mapping[str, tuple[JSON, ...]] = {}
    """Claims that distinguish an access token from another kind of token, and the values that they may have."""
    one_of: tuple[tuple[str, ...], ...] = ()
    """Groups of claims. An access token has one of each."""
    of_id_tokens: tuple[str, ...] = ()
    """Claims that its ID tokens have, and its access tokens never."""
    unverifiable: str = ""
    """A regular expression for issuers of it whose tokens no other party can verify."""
    registration: Registration = "open"
    opaque: bool = False
    """Its access tokens are opaque texts and not JWTs."""
    unlisted_pkce: bool = False
    """It supports PKCE with S256, though its metadata do not list it."""


PLAIN: Final = Preset()
"""What RFC 9068 says, and most servers do."""

PRESETS: Final[Mapping[str, Preset]] = {
    "auth0": Preset(
        "Auth0",
        r"https://[^/]+\.auth0\.com/",
        "https://TENANT.eu.auth0.com/",
        scopes=(("scope",), ("permissions",)),
        client=("azp", "client_id"),
        registration="switched on",
    ),
    "okta": Preset(
        "Okta",
        r"https://[^/]+\.(okta|oktapreview|okta-emea)\.com(/oauth2/[^/]+)?",
        "https://ORG.okta.com/oauth2/SERVER",
        scopes=(("scp",),),
        roles=("groups",),
        client=("cid", "client_id"),
        one_of=(("cid", "client_id"),),
        of_id_tokens=("nonce", "at_hash"),
        unverifiable=r"https://[^/]+",
        registration="by hand",
    ),
    "entra": Preset(
        "Microsoft Entra ID",
        r"https://(login\.microsoftonline\.(com|us)|login\.partner\.microsoftonline\.cn|[^/]+\.ciamlogin\.com)/[^/]+/v2\.0",
        "https://login.microsoftonline.com/TENANT/v2.0",
        scopes=(("scp",),),
        client=("azp", "appid"),
        one_of=(("scp", "roles"), ("azp", "appid")),
        of_id_tokens=("nonce", "at_hash", "c_hash"),
        registration="by hand",
        unlisted_pkce=True,
    ),
    "google": Preset(
        "Google",
        r"https://accounts\.google\.com",
        "https://accounts.google.com",
        registration="by hand",
        opaque=True,
    ),
    "keycloak": Preset(
        "Keycloak",
        r"https?://.+/realms/[^/]+",
        "https://KEYCLOAK/realms/REALM",
        scopes=(("scope",),),
        roles=("realm_access", "roles"),
        client=("azp", "client_id"),
        required={"typ": ("Bearer", "DPoP")},
        registration="switched on",
    ),
    "cognito": Preset(
        "Amazon Cognito",
        r"https://cognito-idp\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[^/]+",
        "https://cognito-idp.REGION.amazonaws.com/POOL",
        audience=("client_id",),
        scopes=(("scope",),),
        roles=("cognito:groups",),
        client=("client_id",),
        required={"token_use": ("access",)},
        registration="by hand",
        unlisted_pkce=True,
    ),
    "authkit": Preset(
        "WorkOS AuthKit",
        r"https://[^/]+\.authkit\.app",
        "https://PROJECT.authkit.app",
        scopes=(("scope",), ("permissions",)),
        roles=("role",),
        registration="switched on",
    ),
    "descope": Preset(
        "Descope",
        r"https://api\.([a-z0-9]+\.)?descope\.com(/v1/apps)?(/agentic)?/.+",
        "https://api.descope.com/v1/apps/agentic/PROJECT/SERVER",
        scopes=(("scope",), ("permissions",)),
        registration="switched on",
    ),
    "clerk": Preset(
        "Clerk",
        r"https://[^/]+\.clerk\.accounts\.dev",
        "https://NAME.clerk.accounts.dev",
        registration="switched on",
    ),
    "supabase": Preset(
        "Supabase",
        r"https://[^/]+\.supabase\.co/auth/v1",
        "https://PROJECT.supabase.co/auth/v1",
        fixed_audience="authenticated",
        roles=("role",),
        registration="switched on",
    ),
    "github": Preset(
        "GitHub",
        r"https://github\.com(/login/oauth)?",
        "https://github.com/login/oauth",
        registration="by hand",
        opaque=True,
    ),
}
"""How known identity providers write their access tokens, by the name that `Jwt(preset=...)` takes."""


def preset_for(issuer: str, name: str | None = None) -> Preset:
    """Return what is known of an issuer, or of the provider `name` where its issuer does not show it.

    Raises: ValueError for an unknown name.
    """
    if name is not None:
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}; got {name!r}")
        return PRESETS[name]
    return next((each for each in PRESETS.values() if re.fullmatch(each.issuer, issuer)), PLAIN)


def recognized(issuer: str, name: str | None = None) -> tuple[str, Preset]:
    """Return an issuer as its provider writes it, with or without a slash at the end, and what is known of the provider.

    Raises: ValueError for an unknown name.
    """
    for each in (issuer, with_other_slash(issuer)):
        if (found := preset_for(each)) is not PLAIN and (name is None or found is PRESETS.get(name)):
            return each, found
    preset = preset_for(issuer, name)
    wants_slash = preset.example.endswith("/") and not issuer.endswith("/")
    return issuer + "/" if wants_slash else issuer, preset


def with_other_slash(issuer: str) -> str:
    """Return an issuer with a slash at the end if it has none, and else without it."""
    return issuer[:-1] if issuer.endswith("/") else issuer + "/"
