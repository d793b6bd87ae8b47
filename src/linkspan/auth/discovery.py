"""Which authorization server gives tokens for an MCP server, and what it can do.

Nothing is believed that a party writes about another one: a resource document counts for its own origin, the metadata of an
authorization server for the issuer that was asked. Spec: basic/authorization, Authorization Server Discovery (AU-C1 to AU-C5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from linkspan.auth.metadata import (
    AuthorizationFailure,
    ResourceMetadata,
    ServerMetadata,
    check_endpoints,
    covers,
    get_document,
    resource_metadata_urls,
    same_issuer,
    server_metadata_urls,
)
from linkspan.auth.network import check_url, shown
from linkspan.auth.older import discover_without_resource
from linkspan.core.auth_flow import AuthFlow

_MOST_ISSUERS: Final = 5
"""How many authorization servers of one MCP server are tried."""


class Discovered(msgspec.Struct, frozen=True):
    """What was found out about a server that wants a token."""

    server: ServerMetadata
    resource: str | None
    """What tokens are for, as the server wrote it (RFC 8707); None in the revision that did not have it."""
    scopes: tuple[str, ...] | None = None
    """The scopes that the resource lists."""
    requires_dpop: bool = False


def discover(url: str, announced: str | None, issuer: str | None, preferred: str | None = None) -> AuthFlow[Discovered]:
    """Find the authorization server of the MCP server at `url`; `announced` is where a challenge has its metadata.

    `issuer` is the only one that the user allows; `preferred` comes first, if it is one of several. Raises:
    AuthorizationFailure.
    """
    if (wrong := check_url(url, url)) is not None:
        raise AuthorizationFailure(f"no token is sent to {shown(url)}: {wrong}", "use https")
    found = yield from _resource(url, announced)
    if found is None:
        older = yield from discover_without_resource(url)
        if issuer is not None and not same_issuer(issuer, older.issuer):
            raise AuthorizationFailure(f"the server uses the issuer {older.issuer}, but issuer={issuer!r} was given")
        return Discovered(older, None)
    candidates = list(found.authorization_servers or ())
    if issuer is not None:
        theirs = ", ".join(candidates) or "no authorization server"
        candidates = [each for each in candidates if same_issuer(each, issuer)]
        if not candidates:
            raise AuthorizationFailure(f"{shown(url)} takes tokens from {theirs}, but issuer={issuer!r} was given")
    candidates.sort(key=lambda each: preferred is None or not same_issuer(each, preferred))
    server = yield from _first_that_works(candidates[:_MOST_ISSUERS], url)
    return Discovered(
        server, found.resource, found.scopes_supported, requires_dpop=found.dpop_bound_access_tokens_required is True
    )


def find_server(issuer: str, url: str) -> AuthFlow[ServerMetadata]:
    """Read the metadata of an authorization server for the MCP server at `url`. Raises: AuthorizationFailure."""
    if (wrong := check_url(issuer, url) or ("it has a query" if "?" in issuer else None)) is not None:
        raise AuthorizationFailure(f"invalid issuer {issuer!r}: {wrong}")
    for place in server_metadata_urls(issuer):
        found = yield from get_document(place, ServerMetadata)
        if found is None:
            continue
        if not same_issuer(found.issuer, issuer):  # from here on it is called as it calls itself
            raise AuthorizationFailure(f"{place} has the metadata of another issuer: {found.issuer!r}, not {issuer!r}")
        check_endpoints(found, url)
        return found
    raise AuthorizationFailure(
        f"the authorization server {issuer} publishes no metadata",
        "check the issuer that the MCP server names: a realm or tenant in its path may be misspelt [LS-419]",
    )


def _resource(url: str, announced: str | None) -> AuthFlow[ResourceMetadata | None]:
    """Read the metadata of the resource; None if it has none, which only those of the older revisions do."""
    if announced is not None and (wrong := check_url(announced, url)) is not None:
        raise AuthorizationFailure(f"the server announces its metadata at {announced!r}: {wrong}")
    for place in [announced] if announced is not None else resource_metadata_urls(url):
        found = yield from get_document(place, ResourceMetadata)
        if found is None:
            continue
        if not covers(found.resource, url):
            raise AuthorizationFailure(
                f"{shown(place)} describes another resource: {found.resource!r}, not {shown(url)}",
                "use that URL if it is the server's; else the server must set `resource` to its own URL, or its tokens are "
                "valid elsewhere [LS-410]",
            )
        return found
    if announced is not None:
        raise AuthorizationFailure(f"the server announces its metadata at {announced}, which does not exist")
    return None


def _first_that_works(issuers: Sequence[str], url: str) -> AuthFlow[ServerMetadata]:
    failures: list[AuthorizationFailure] = []
    for issuer in issuers:
        try:
            return (yield from find_server(issuer, url))
        except AuthorizationFailure as failure:
            failures.append(failure)
    if len(failures) == 1:
        raise failures[0]
    reasons = "; ".join(each.problem for each in failures) or "the metadata list none"
    raise AuthorizationFailure(
        f"no usable authorization server: {reasons}", reached=all(each.reached for each in failures)
    )
