"""Presets of `Protected`: what verifies the tokens of one identity provider, made of what its console shows.

No I/O. Loaded when a preset is used. What tokens of a provider look like is in `auth/presets.py`; here is which settings of it
can work with MCP at all. Sources are named at each function.
"""

from __future__ import annotations

import re
from typing import Final

from linkspan.auth.verifying import Jwt

__all__ = ["keycloak"]

_REALM: Final = re.compile(r"https?://.+/realms/[^/?#]+")


def keycloak(realm_url: str) -> Jwt:
    """Return what verifies access tokens of a realm (Keycloak, Securing applications with OpenID Connect). Raises: ValueError."""
    issuer = realm_url.rstrip("/")
    if _REALM.fullmatch(issuer) is None:
        raise ValueError(
            f"realm_url must be the URL of a realm, such as https://id.example.com/realms/staff; got {realm_url!r} [LS-616]"
        )
    return Jwt(issuer, preset="keycloak")
