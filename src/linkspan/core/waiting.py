"""What waits in a connection: requests for room, responses for the rest of their batch, listen requests for changes.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions, and MSG-32 for batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from msgspec import Raw

from linkspan.core.call import Delivery
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.revisions.neutral import Outcome, Request, ServerFacts
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.messages import ListenParams, SubscriptionFilter, added_members
from linkspan.types.methods import LISTED
from linkspan.wire.jsonrpc import RequestId, encode, encode_batch, encode_notification

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class ServerChange(msgspec.Struct, frozen=True):
    """What clients are notified of: a change of the list `kind` ("tools", "prompts", "resources"), or of the resource `uri`.

    Of an extension: what concerns those who listen for `value` in `member` of the filter, with params of its own.
    """

    method: str
    kind: str | None = None
    uri: str | None = None
    member: str | None = None
    value: str | bool | None = None
    params: Raw = Raw(b"{}")
    """An encoded object without `_meta`."""

    @classmethod
    def of_list(cls, kind: str) -> ServerChange:
        """Return the change of a list: of the protocol, or of an extension."""
        method = f"notifications/{kind}/list_changed"
        return cls(method, kind) if kind in LISTED else cls(method, kind, member=list_changed_member(kind), value=True)

    @classmethod
    def of_resource(cls, uri: str) -> ServerChange:
        """Return the change of a resource."""
        return cls("notifications/resources/updated", uri=uri)


def list_changed_member(kind: str) -> str:
    """Return the member of the filter of `subscriptions/listen` that asks for changes of a list."""
    return f"{kind}ListChanged"


class _OpenSubscription(msgspec.Struct, frozen=True):
    request: Request
    kinds: tuple[str, ...]
    uris: frozenset[str]
    extended: frozenset[tuple[str | None, JSON]]
    """Members of extensions, each with one of the values that were asked for."""


class Subscriptions(msgspec.Struct):
    """A table of up to `limit` subscriptions, with as many resources each.

    Its key is the request id, which doubles as the subscription id (MSG-14).
    """

    limit: int
    _open: dict[RequestId, _OpenSubscription] = msgspec.field(default_factory=dict[RequestId, _OpenSubscription])

    def add(
        self, request: Request, params: ListenParams, server: ServerFacts
    ) -> tuple[RemoteProtocolError | None, bytes]:
        """Open a subscription: return why not, or the acknowledgement that comes before all else (SUB-2)."""
        offered = _offered(server)
        wanted = params.notifications
        added = added_members(wanted)
        if not offered and type(wanted) is SubscriptionFilter:
            return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.method), b""
        uris = wanted.resource_subscriptions or []
        if len(self._open) >= self.limit or len(uris) > self.limit:
            return RemoteProtocolError(INVALID_PARAMS, f"More than {self.limit} subscriptions"), b""
        kinds = [kind for kind in LISTED if kind in offered and getattr(wanted, f"{kind}_list_changed")]
        honoured = [
            uri for uri in dict.fromkeys(uris) if "uris" in offered and server.knows_resource(uri, request.shown)
        ]
        values = {name: value for name, (_, value) in added.items()}
        extended = frozenset(
            (name, each) for name, value in values.items() for each in (value if is_array(value) else (value,))
        )
        self._open[request.id] = _OpenSubscription(request, tuple(kinds), frozenset(honoured), extended)
        accepted: JSONObject = {list_changed_member(kind): True for kind in kinds} | values
        if honoured:
            accepted["resourceSubscriptions"] = honoured
        return None, _tagged(_ACKNOWLEDGED, request.id, {"notifications": accepted})

    def remove(self, request_id: RequestId) -> None:
        """Close a subscription, if there is one under this id."""
        self._open.pop(request_id, None)

    def __len__(self) -> int:
        return len(self._open)

    def requests(self) -> Iterator[Request]:
        """Return the requests that are open."""
        return (subscription.request for subscription in self._open.values())

    def uris(self) -> Iterator[str]:
        """Return the resources that are subscribed to."""
        return (uri for each in self._open.values() for uri in each.uris)

    def values(self, member: str) -> Iterator[JSON]:
        """Return what is listened for under a member that an extension has added."""
        return (value for each in self._open.values() for name, value in each.extended if name == member)

    def listeners(self, change: ServerChange) -> dict[RequestId | None, Request]:
        """Return the requests that asked for notifications of a change, by id."""
        return {
            request_id: each.request
            for request_id, each in self._open.items()
            if change.kind in each.kinds or change.uri in each.uris or (change.member, change.value) in each.extended
        }

    def tagged(self, change: ServerChange, to: Collection[RequestId | None] | None = None) -> list[Delivery]:
        """Encode a notification once for each subscription that asked for it, and is in `to`, with its id (SUB-4)."""
        params: JSONObject = {} if change.uri is None else {"uri": change.uri}
        if change.member is not None:
            params = msgspec.json.decode(change.params)
        found: list[Delivery] = []
        for request_id, each in self._open.items():
            concerned = (
                change.kind in each.kinds or change.uri in each.uris or (change.member, change.value) in each.extended
            )
            if concerned and (to is None or request_id in to):
                found.append(Delivery(_tagged(change.method, request_id, params), request_id))
        return found


def goodbye(request: Request) -> Outcome:
    """Return the result that ends a subscription gracefully (SUB-8)."""
    return Raw(encode({"_meta": {SUBSCRIPTION_ID: request.id}}))


def untagged(change: ServerChange) -> bytes:
    """Encode a notification of a change as a handshake client gets it."""
    return encode_notification(change.method, None if change.uri is None else encode({"uri": change.uri}))


def _tagged(method: str, request_id: RequestId, params: dict[str, JSON]) -> bytes:
    return encode_notification(method, encode(params | {"_meta": {SUBSCRIPTION_ID: request_id}}))


def _offered(server: ServerFacts) -> set[str]:
    capabilities = server.capabilities()
    offered = {
        kind for kind in LISTED if (capability := getattr(capabilities, kind)) is not None and capability.list_changed
    }
    if capabilities.resources is not None and capabilities.resources.subscribe:
        offered.add("uris")
    return offered


_HELD_OVERHEAD = 1024
"""Bytes that a held request counts besides its line, which it keeps alive."""


class HeldRequests:
    """A queue of requests and notifications that is bounded in bytes."""

    def __init__(self, max_bytes: int) -> None:
        """Hold nothing. The bound may be passed by the last request that is held."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sizes: dict[Request, int] = {}

    def add(self, request: Request, line_bytes: int) -> bool:
        """Hold a request whose line has this size; False if too much is held already."""
        if self._bytes >= self._max_bytes:
            return False
        size = self._sizes[request] = line_bytes + _HELD_OVERHEAD
        self._bytes += size
        return True

    def take(self) -> Request | None:
        """Return the oldest request and hold it no longer; None if there is none."""
        request = next(iter(self._sizes), None)
        if request is not None:
            self.discard(request)
        return request

    def discard(self, request: Request) -> None:
        """Forget a request, if it is held."""
        self._bytes -= self._sizes.pop(request, 0)


class _OpenBatch(msgspec.Struct, eq=False):
    waiting: set[RequestId] = msgspec.field(default_factory=set[RequestId])
    responses: list[bytes] = msgspec.field(default_factory=list[bytes])
    error: int | None = None
    dispatched: bool = False

    def add(self, response: Delivery) -> None:
        """Collect a response. What concerns the whole batch: its last error, and whether any request was dispatched."""
        if response.data is not None:
            self.responses.append(response.data)
            self.error = response.error or self.error
            self.dispatched = self.dispatched or response.dispatched

    def whole(self, about: RequestId | None) -> Delivery:
        """Return all responses, if none is waited for."""
        data = encode_batch(self.responses) if self.responses and not self.waiting else None
        return Delivery(data, about, True, self.error, self.dispatched)


class Batches:
    """The batches of one connection that are being received, or wait for responses."""

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[RequestId, _OpenBatch] = {}
        self._open: _OpenBatch | None = None

    @property
    def receiving(self) -> bool:
        """Whether the message at hand is part of a batch."""
        return self._open is not None

    def begin(self) -> None:
        """Take what is received and answered from now on as one batch."""
        self._open = _OpenBatch()

    def end(self) -> Delivery:
        """Note that all of the batch has been received; return its responses if they are complete."""
        batch, self._open = self._open or _OpenBatch(), None
        return batch.whole(None)

    def expect(self, request_id: RequestId) -> None:
        """Let the batch that is being received, if any, wait for the response to this request."""
        if self._open is not None:
            self._of[request_id] = self._open
            self._open.waiting.add(request_id)

    def collect(self, response: Delivery) -> Delivery:
        """Take a response, or the end without one; return what can be sent now: itself if it is not part of a batch."""
        about = response.about
        if about is None:  # an error about a message that was not a request
            if self._open is None:
                return response
            self._open.add(response)
            return Delivery(None, final=True)
        batch = self._of.pop(about, None)
        if batch is None:
            return response
        batch.waiting.discard(about)
        batch.add(response)
        return Delivery(None, about, True) if batch is self._open else batch.whole(about)
