"""The documents that authorization begins with: what they are, where they are, and how one is read.

Spec: RFC 9728 (protected resources), RFC 8414 and OpenID Connect Discovery 1.0 (authorization servers).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from linkspan.auth.network import check_url, origin_of, shown
from linkspan.core.auth_flow import AuthFlow, Http, HttpResult, HttpUnavailable
from linkspan.wire.redaction import one_line

DocumentT = TypeVar("DocumentT", bound=msgspec.Struct)

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_LONGEST_PROBLEM = 600
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AuthorizationFailure(Exception):
    """Why there is no token. `hint` is what a person can do, `error` the code of an authorization server."""

    def __init__(
        self, problem: str, hint: str | None = None, *, error: str | None = None, reached: bool = True
    ) -> None:
        self.problem = one_line(problem, _LONGEST_PROBLEM)  # it quotes what servers wrote
        self.hint = one_line(hint, _LONGEST_PROBLEM) if hint is not None else None
        super().__init__(self.problem)
        self.error = error
        self.reached = reached
        """Whether there was a response: if not, later attempts may succeed."""


class ResourceMetadata(msgspec.Struct, frozen=True):
    """What a protected resource, the MCP server, publishes about itself (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] | None = None
    scopes_supported: tuple[str, ...] | None = None
    dpop_bound_access_tokens_required: bool | None = None


class ServerMetadata(msgspec.Struct, frozen=True):
    """What an authorization server publishes about itself (RFC 8414)."""

    issuer: str
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_signing_alg_values_supported: tuple[str, ...] | None = None
    dpop_signing_alg_values_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None

    def endpoints(self) -> dict[str, str]:
        """Return the endpoints that it has, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name.endswith("_endpoint")}
        return {name: url for name, url in fields.items() if url is not None}


def resource_metadata_urls(url: str) -> list[str]:
    """Return where the metadata of a resource may be if it does not announce them: for its path, then for its origin."""
    parts = urlsplit(url)
    root = urlunsplit((parts.scheme, parts.netloc, METADATA_PATH, "", ""))
    if parts.path in ("", "/") and not parts.query:
        return [root]
    return [urlunsplit((parts.scheme, parts.netloc, METADATA_PATH + parts.path, parts.query, "")), root]


def server_metadata_urls(issuer: str) -> list[str]:
    """Return where the metadata of an authorization server may be, in the order of the specification (AU-C3)."""
    parts = urlsplit(issuer)
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    path = parts.path.rstrip("/")
    if not path:
        return [origin + _SERVER, origin + _OPENID]
    return [origin + _SERVER + path, origin + _OPENID + path, origin + path + _OPENID]


def same_issuer(first: str, second: str) -> bool:
    """Return whether two issuers are the same text, or differ in a slash that is the whole path (RFC 3986, section 6.2.3).

    RFC 8414, section 3.3, wants the same text; but libraries for URLs add that slash to the issuers that a server lists.
    """
    return first == second or (
        first.removesuffix("/") == second.removesuffix("/")
        and all(urlsplit(each).path in ("", "/") for each in (first, second))
    )


def covers(resource: str, url: str) -> bool:
    """Return whether the resource that a document describes is the server at `url`, or a parent path of it (AU-C2)."""
    origin = origin_of(resource)
    if origin is None or origin != origin_of(url):
        return False
    theirs, ours = urlsplit(resource), urlsplit(url)
    if theirs.fragment or "@" in theirs.netloc or theirs.query not in ("", ours.query):
        return False
    path = theirs.path.rstrip("/")
    return ours.path.rstrip("/") == path or ours.path.startswith(path + "/")


def check_endpoints(server: ServerMetadata, url: str) -> None:
    """Raise AuthorizationFailure if an endpoint is not to be used for the MCP server at `url`."""
    for name, endpoint in server.endpoints().items():
        if (wrong := check_url(endpoint, url)) is not None:
            raise AuthorizationFailure(f"the {name} of {server.issuer} is not safe to use: {wrong}")


def fetch(effect: Http) -> AuthFlow[HttpResult]:
    """Send a request. Raises: AuthorizationFailure if there is no response."""
    try:
        result: HttpResult = yield effect
    except HttpUnavailable as problem:
        raise AuthorizationFailure(f"no response from {shown(effect.url)}: {problem}", reached=False) from problem
    return result


def get_document(
    url: str, kind: type[DocumentT], headers: Mapping[str, str] = MappingProxyType({})
) -> AuthFlow[DocumentT | None]:
    """Read a document; None if the server does not have it, or has a page for people there.

    Raises: AuthorizationFailure if it is invalid, or the server fails.
    """
    result = yield from fetch(Http("GET", url, {"accept": "application/json", **headers}, redirects=True))
    if result.status >= 500:
        raise AuthorizationFailure(f"{shown(url)} was answered with status {result.status}", reached=False)
    if result.status != 200 or result.body.lstrip()[:1] != b"{":
        return None
    return decode_document(result.body, kind, url)


def decode_document(body: bytes, kind: type[DocumentT], url: str) -> DocumentT:
    """Return a document of this kind. Raises: AuthorizationFailure."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _UNREADABLE as problem:
        reason = str(problem) if isinstance(problem, msgspec.ValidationError) else "it is not valid JSON"
        raise AuthorizationFailure(f"invalid document at {shown(url)}: {reason}") from None


def decode_or_none(data: bytes | None, kind: type[DocumentT]) -> DocumentT | None:
    """Return what was stored, or what a server answered; None if it is not there, or not of this kind."""
    try:
        return msgspec.json.decode(data, type=kind) if data is not None else None
    except _UNREADABLE:
        return None
