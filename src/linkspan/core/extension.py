"""An extension of the protocol as one record: what it adds to a server, to a client, or to both.

An extension is on where `extensions=` lists it, and nowhere else (EXT-3). It adds methods, members of the listen filter,
types of results and a hook around `tools/call`; the tables of the core take these when the server or the client is made.
Spec: https://modelcontextprotocol.io/extensions/overview.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.core.call import Call
from linkspan.errors import MISSING_CLIENT_CAPABILITY, RegistrationError, RemoteProtocolError
from linkspan.revisions.neutral import NOTHING, Outcome, Peer, Request
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import Params
from linkspan.types.methods import ListSpec

if TYPE_CHECKING:
    from linkspan.core.flow import ResultFlow

Begin: TypeAlias = Callable[[Request], Outcome | Call]
"""Serves a request, or returns the function that must run for it."""

AroundCall: TypeAlias = Callable[[Request, Callable[[], Outcome | Call]], Outcome | Call]
"""Gets a `tools/call` and what begins it; answers in its place, or returns what that returned, or a call of its own."""

PassResult: TypeAlias = Callable[[Request, str, Raw], Raw]
"""Gets a request, the name of the server elsewhere, and its result; returns the result for the caller."""


class ExtensionMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A method that clients may call."""

    params: type[Params] = Params
    """The shape of the params. Its `named_by` is the member that `Mcp-Name` repeats."""
    begin: Begin | None = None
    """Serves it, on the side of the server. May raise RemoteProtocolError; blocks only in the call that it returns."""
    about: ListSpec[Any, Any] | None = None
    """The list, of this extension, with the item that the params name.

    An item that is unknown or hidden is refused before `begin`, and so is a caller whose token lacks its scopes.
    """
    among: ListSpec[Any, Any] | None = None
    """The list, of this extension, whose items the answer is made of: `server.items(method).usable(request)` in `begin`."""
    cached: bool = False
    """Clients may keep its result: the members `ttl_ms` and `cache_scope`, if `begin` leaves them out, are those of lists."""


class ListenMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the filter of `subscriptions/listen`: an array of what to listen for, or `true`."""

    honoured: Callable[[Request, JSON], JSON]
    """Returns what is acknowledged of the value that a client sent; nothing is acknowledged if that is false or empty.

    It may block, and raise RemoteProtocolError.
    """


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """What an extension does on one server besides its methods."""

    sources: Mapping[str, Callable[[], object]] = {}
    """What brings items up to date before a method is served, by the method. It may block, and is asked in a thread."""
    watch: Callable[[], object] | None = None
    """Called for each new connection, to look for changes as long as there are any; `Place.is_listened_to` tells."""


class Extension(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one extension is. Raises: RegistrationError for an invalid id."""

    id: str
    """Prefix and name, such as "com.example/echo" (EXT-2)."""
    server: JSONObject | None = None
    """The settings that a server announces; None for an extension that servers do not offer."""
    client: JSONObject | None = None
    """The settings that a client declares; None for an extension that clients do not have."""
    methods: Mapping[str, ExtensionMethod] = msgspec.field(default_factory=dict[str, ExtensionMethod])
    lists: tuple[ListSpec[Any, Any], ...] = ()
    """Lists in pages, whose items a server keeps: `server.items(method)`. Their changes are announced."""
    listen: Mapping[str, ListenMember] = msgspec.field(default_factory=dict[str, ListenMember])
    attach: Callable[[Any], Attached | None] | None = None
    """Called with a `Place` in each server that it is on, once its methods and lists are there."""
    around_call: AroundCall | None = None
    """Surrounds `tools/call` and its middleware, for each client: those that declared the extension, and the others."""
    results: Mapping[str, ResultFlow] = NOTHING
    """What a client makes of results of `tools/call` whose `resultType` the extension defines."""
    passed_results: Mapping[str, PassResult] = NOTHING
    """What a server makes of results of `tools/call` of these types that a mounted server elsewhere has returned."""
    needs_declaration: bool = True
    """Its methods, lists and subscriptions are for clients that declare it with their request."""
    in_handshakes: bool = False
    """Its methods and lists exist for clients with a handshake, too."""
    passes_on: bool = False
    """It is that of mounted servers elsewhere: announced, and there, as far as one of these announces it, with its settings."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise RegistrationError(
                f"{self.id!r} is not the id of an extension: write a prefix and a name, such as 'com.example/echo'"
            )

    @property
    def needs_envelope(self) -> bool:
        """Whether it adds messages, which exist only where each request declares its extensions.

        One that has settings only is negotiated in a handshake, too.
        """
        return bool(self.methods or self.lists or self.listen or self.results) and not self.in_handshakes

    def declared_by(self, peer: Peer) -> bool:
        """Return whether a peer declared it: with this request, or in its handshake."""
        return peer.supports("extensions", self.id) and (peer.revision.extends_by_request or not self.needs_envelope)


class MakesExtension(Protocol):
    """A value that `extensions=` takes as it takes a record."""

    @property
    def extension(self) -> Extension:
        """The record."""
        ...


def extension_of(given: object) -> Extension:
    """Return the record that a value of `extensions=` is, or has. Raises: RegistrationError."""
    found = getattr(given, "extension", given)
    if not isinstance(found, Extension):
        raise RegistrationError(f"extensions= takes values such as Extension('com.example/notes', ...), not {given!r}")
    return found


_LABEL = "[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
_ID: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""The grammar of the keys of `_meta`, with a prefix."""


def missing_extension(extension_id: str) -> RemoteProtocolError:
    """Return the error for a request that needs an extension which it does not declare (EXT-4).

    It exists in revisions whose requests declare extensions.
    """
    return RemoteProtocolError(
        MISSING_CLIENT_CAPABILITY,
        f"This needs the extension {extension_id}: declare it in the capabilities of the request",
        {"requiredCapabilities": {"extensions": {extension_id: {}}}},
    )
