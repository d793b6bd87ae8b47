"""What `auth=` of a client takes: a person who logs in, or a program that has credentials. Values; nothing is checked by I/O.

Secrets are in no repr. Equal values are one identity: they share one login.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from linkspan.wire.redaction import REDACTED

Dpop: TypeAlias = bool | Literal["auto"]
"""Whether to bind tokens to a key (RFC 9449): `auto` where the server asks for it."""
Kept: TypeAlias = str | PathLike[str]
"""Where a credential is kept: the path of a file, or the name of an environment variable, in capitals."""
Key: TypeAlias = str | bytes
"""A private key: PEM, or a JWK as JSON."""

_LARGEST_PORT: Final = 65535


class Discreet(msgspec.Struct, frozen=True):
    """A value with secrets, which it does not show."""

    secret_fields: ClassVar[frozenset[str]] = frozenset()

    def secrets(self) -> list[str]:
        """Return what no text may show."""
        values = [getattr(self, name) for name in self.secret_fields]
        return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in values if each]

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = [(each.name, getattr(self, each.name), each.default) for each in msgspec.structs.fields(self)]
        return [
            (name, REDACTED if name in self.secret_fields else value)
            for name, value, default in values
            if value != default
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class _Common(Discreet, frozen=True, kw_only=True):
    """What all identities have."""

    scopes: Sequence[str] = ()
    """Ask for these, and for what the server wants besides; empty: for what the server wants."""
    issuer: str | None = None
    """The only authorization server to use, as its metadata have it; the credentials are sent to no other."""
    dpop: Dpop = "auto"
    hosts: Sequence[str] = ()
    """Host names that may have private addresses besides that of the server: an authorization server inside a company."""

    def __post_init__(self) -> None:
        for name in ("scopes", "hosts"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name}= must be a list, such as {name}=[{getattr(self, name)!r}]")
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))
        for scope in self.scopes:
            if not scope or set(scope) & set(' "\\') or not scope.isascii() or not scope.isprintable():
                raise ValueError(f"invalid scope {scope!r}: pass each scope by itself")
        if self.issuer is not None:
            _check_url("issuer", self.issuer)


class LoginKeeper(Protocol):
    """Keeps logins for a program, in any thread: values are opaque and secret, a key is a tuple of texts without secrets."""

    def load(self, key: tuple[str, ...]) -> bytes | None:
        """Return what is kept under a key, if anything is."""
        ...

    def save(self, key: tuple[str, ...], value: bytes | None) -> None:
        """Keep a value; None forgets it."""
        ...


class OAuth(_Common, frozen=True, kw_only=True):
    """A person, who logs in with a browser once; what is stored is used from then on.

    Without `client_id`, the client registers itself where the authorization server allows it: with
    `client_metadata_url`, the https URL of a document about this client, or by dynamic registration.
    """

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    redirect_port: int | None = None
    """The port of the redirect URI `http://127.0.0.1:PORT/callback`; None takes any that is free."""
    redirect_uri: str | None = None
    """The redirect URI of a program that receives the browser by itself: its `open_url` returns the URL that came, and nothing
    listens here."""
    logins: LoginKeeper | None = None
    """Keeps this login in place of the keyring and the files of the user."""
    open_url: Callable[[str], Any] | None = None
    """Shows a URL to the person instead of the browser of this machine; may return the URL that it was redirected to."""
    account: str = ""
    """A name for this login, where one person has several at one server."""
    assume_pkce: bool = False
    """Log in at an authorization server that does not list PKCE with S256: you know that it supports it."""
    resource: bool | str = True
    """Whether to name the MCP server when asking for tokens (RFC 8707), or the URI to name instead of its URL. Entra refuses it
    beside scopes of another application (AADSTS9010010); without it, the audience is what the authorization server chooses."""
    device: bool = False
    """Show a code to enter on another device instead of opening a browser here (RFC 8628)."""
    client_name: str = "Linkspan"
    """What the authorization server shows to the person."""
    secret_fields: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret= needs the client_id= that it belongs to")
        if self.client_metadata_url is not None:
            _check_url("client_metadata_url", self.client_metadata_url)
            if not self.client_metadata_url.startswith("https:") or urlsplit(self.client_metadata_url).path in (
                "",
                "/",
            ):
                raise ValueError("client_metadata_url= must be an https URL with a path")
        if self.redirect_port is not None and not 0 < self.redirect_port <= _LARGEST_PORT:
            raise ValueError(f"redirect_port= must be from 1 to {_LARGEST_PORT}, got {self.redirect_port}")
        if self.redirect_uri is not None:
            if self.open_url is None or self.redirect_port is not None or self.device:
                raise ValueError(
                    "redirect_uri= needs open_url=, which returns where the browser came, and nothing else"
                )
            _check_url("redirect_uri", self.redirect_uri)
        if isinstance(self.resource, str) and not _is_resource(self.resource):
            raise ValueError(f"resource= must be an absolute URI without fragment, got {self.resource!r}")


class ClientCredentials(_Common, frozen=True):
    """A program with credentials of its own at the authorization server (RFC 6749, section 4.4).

    Either `secret`, or `key`, with which it signs who it is (RFC 7523, needs the extra `auth`).
    """

    client_id: str
    secret: str | None = None
    key: Key | None = None
    alg: str | None = None
    """How the key signs; None takes one that fits the key and that the authorization server lists."""
    secret_fields: ClassVar[frozenset[str]] = frozenset({"secret", "key"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.secret is None) == (self.key is None):
            raise ValueError("ClientCredentials() takes either secret= or key=")


class WorkloadIdentity(_Common, frozen=True):
    """A program that its platform vouches for with a JWT, such as the token of a Kubernetes service account (RFC 7523)."""

    assertion: Kept | Callable[[str, str], str | Awaitable[str]]
    """Where the JWT is kept, or a function that returns a new one; it gets the issuer and the token endpoint of the authorization
    server, one of which is the audience that the server wants."""


class Enterprise(_Common, frozen=True, kw_only=True):
    """A person who is logged in at the identity provider of a company, which decides what they may use.

    Spec: ext-auth, enterprise-managed authorization. `client_id` and `client_secret` are for the authorization server of the
    MCP server, `idp_client_id` and `idp_client_secret` for the identity provider.
    """

    idp: str
    """The issuer of the identity provider."""
    subject: Kept | Callable[[], str | Awaitable[str]]
    """Where the identity assertion of the person is kept, or a function that returns it; see `subject_type`."""
    subject_type: Literal["id_token", "saml2", "refresh_token"] = "id_token"
    idp_client_id: str | None = None
    idp_client_secret: str | None = None
    idp_token_endpoint: str | None = None
    """None: as its metadata have it."""
    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """The client id where there is no registration."""
    secret_fields: ClassVar[frozenset[str]] = frozenset({"client_secret", "idp_client_secret"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("idp", "idp_token_endpoint", "client_metadata_url"):
            if (url := getattr(self, name)) is not None:
                _check_url(name, url)
        if self.client_id is None and self.client_metadata_url is None:
            raise ValueError(
                "Enterprise() needs the client_id= that the authorization server knows, or client_metadata_url="
            )


Identity: TypeAlias = OAuth | ClientCredentials | WorkloadIdentity | Enterprise


def _is_resource(text: str) -> bool:
    """Return whether a text is a resource indicator (RFC 8707, section 2)."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    named = parts.netloc or parts.path
    return (
        bool(parts.scheme and named) and "#" not in text and text.isascii() and text.isprintable() and " " not in text
    )


def _check_url(name: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise ValueError(f"{name}= must be an http or https URL without user name and fragment, got {url!r}")
