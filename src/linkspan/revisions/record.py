"""What a revision is: a record of facts. Each one is written as a change of the one before it, like its changelog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from linkspan.types.base import Wire

Era = Literal["legacy", "modern"]
Fields = Mapping[type[Wire], tuple[str, ...]]


class Revision(msgspec.Struct, frozen=True, eq=False):
    """The facts of one revision that anything here depends on."""

    date: str
    era: Era
    requests: frozenset[str]
    """Methods that clients may call."""
    server_requests: frozenset[str]
    """Methods that servers may call; in the modern era they travel inside results."""
    client_notifications: frozenset[str]
    server_notifications: frozenset[str]
    content: frozenset[str]
    """Types of content blocks in results and messages."""
    sampling_content: frozenset[str]
    """Types of content blocks in sampling."""
    new_fields: Fields = msgspec.field(default_factory=dict[type[Wire], tuple[str, ...]])
    """Members that came with this revision, by shape."""
    batching: bool = False
    version_header: bool = False
    """Over HTTP, requests after the handshake name the revision in a header."""
    error_id_required: bool = True
    """An error whose request's id is unknown says `"id": null`; later revisions leave the member out."""
    resource_not_found: int = -32002
    error_codes: frozenset[int] = frozenset({-32002})
    """Codes that the protocol defines in the zone that it keeps to itself."""
    structured_content: Literal["none", "object", "any"] = "none"
    sampling_lists: bool = False
    """A sampling message may hold a list of blocks."""
    rich_forms: bool = False
    """Forms know titled and multiple choices, and defaults of every type."""
    asks_in_results: bool = False
    """A result may ask for input, and the client sends the request again; before, servers sent requests of their own."""
    listens_by_request: bool = False
    """Changes arrive on the stream of `subscriptions/listen`; before, on the session's, and `resources/subscribe` added URIs."""
    log_level_in_envelope: bool = False
    """Each request names the level of its log messages; before, `logging/setLevel` did for the session."""
    caches_results: bool = False
    """Results may say for how long, and for whom, they can be kept."""
    repeats_in_headers: bool = False
    """Over HTTP, headers repeat the method, the name and the arguments that a tool marks."""
    cancels_by_closing: bool = False
    """Over HTTP, closing its stream cancels a request; before, a notification did, and a client could resume the stream."""
    extends_by_request: bool = False
    """Each request declares the extensions of its client, which may add methods, subscriptions and types of results."""
    keeps_sessions: bool = True
    """Over HTTP, a handshake begins a session, which the server may forget."""

    def evolve(
        self,
        date: str,
        *,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        add_notifications: Iterable[str] = (),
        remove_notifications: Iterable[str] = (),
        remove_client_notifications: Iterable[str] = (),
        new_content: Iterable[str] = (),
        new_sampling_content: Iterable[str] = (),
        new_fields: Fields | None = None,
        **facts: Any,
    ) -> Revision:
        """Return the next revision: this one, with changes. Methods go to the table of the side that may send them."""
        gone, gone_notifications = frozenset(remove), frozenset(remove_notifications)
        return msgspec.structs.replace(
            self,
            date=date,
            requests=(self.requests | (frozenset(add) - _FROM_SERVER)) - gone,
            server_requests=(self.server_requests | (frozenset(add) & _FROM_SERVER)) - gone,
            client_notifications=self.client_notifications
            - gone_notifications
            - frozenset(remove_client_notifications),
            server_notifications=(self.server_notifications | frozenset(add_notifications)) - gone_notifications,
            content=self.content | frozenset(new_content),
            sampling_content=self.sampling_content | frozenset(new_sampling_content),
            new_fields=new_fields or {},
            **facts,
        )


_FROM_SERVER = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
