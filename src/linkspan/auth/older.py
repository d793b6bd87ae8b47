"""Authorization as the revisions before protected resource metadata have it: the MCP server's origin is the issuer.

When servers of these revisions are gone, this file and its call in `discovery.py` can be deleted. Spec:
https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization, sections 2.3.2 and 2.3.3.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from linkspan.auth.metadata import (
    AuthorizationFailure,
    ServerMetadata,
    check_endpoints,
    get_document,
    server_metadata_urls,
)
from linkspan.auth.network import origin_of
from linkspan.core.auth_flow import AuthFlow
from linkspan.revisions.v2025_03_26 import REVISION


def discover_without_resource(url: str) -> AuthFlow[ServerMetadata]:
    """Return the authorization server of a server that has no resource metadata: its origin, with the usual endpoints.

    The issuer in its metadata only has to be on that origin: those revisions do not compare it. Raises: AuthorizationFailure.
    """
    parts = urlsplit(url)
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    place = server_metadata_urls(origin)[0]
    found = yield from get_document(place, ServerMetadata, {"mcp-protocol-version": REVISION.date})
    if found is None:
        return ServerMetadata(
            origin,
            token_endpoint=f"{origin}/token",
            authorization_endpoint=f"{origin}/authorize",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods_supported=("S256",),
        )
    if origin_of(found.issuer) != origin_of(origin):
        raise AuthorizationFailure(f"{place} has the metadata of an issuer elsewhere: {found.issuer!r}")
    check_endpoints(found, url)
    return found
