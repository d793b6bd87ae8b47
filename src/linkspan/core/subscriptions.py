"""The open `subscriptions/listen` requests of one connection: who wants to hear what.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from linkspan.core.call import Delivery
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.revisions.neutral import Outcome, Request, ServerFacts
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import ListenParams
from linkspan.wire.jsonrpc import RequestId, encode, encode_notification

__all__ = ["Subscriptions"]

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class _Subscription(msgspec.Struct, frozen=True):
    request: Request
    kinds: frozenset[str]
    uris: frozenset[str]


class Subscriptions(msgspec.Struct):
    """A table of up to `limit` subscriptions, with as many resources each.

    Its key is the request id, which doubles as the subscription id (MSG-14).
    """

    limit: int
    _open: dict[RequestId, _Subscription] = msgspec.field(default_factory=dict[RequestId, _Subscription])

    def add(
        self, request: Request, params: ListenParams, server: ServerFacts
    ) -> tuple[RemoteProtocolError | None, bytes]:
        """Open a subscription: return why not, or the acknowledgement that comes before all else (SUB-2)."""
        offered = _offered(server)
        if not offered:
            return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.method), b""
        wanted = params.notifications
        uris = wanted.resource_subscriptions or []
        if len(self._open) >= self.limit or len(uris) > self.limit:
            return RemoteProtocolError(INVALID_PARAMS, f"More than {self.limit} subscriptions"), b""
        flags = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        kinds = [kind for kind, flag in flags.items() if flag and kind in offered]
        honoured = [uri for uri in dict.fromkeys(uris) if "uris" in offered and server.knows_resource(uri)]
        self._open[request.id] = _Subscription(request, frozenset(kinds), frozenset(honoured))
        accepted: JSONObject = {f"{kind}ListChanged": True for kind in kinds}
        if honoured:
            accepted["resourceSubscriptions"] = honoured
        return None, _tagged(_ACKNOWLEDGED, request.id, {"notifications": accepted})

    def remove(self, request_id: RequestId) -> None:
        """Close a subscription, if there is one under this id."""
        self._open.pop(request_id, None)

    def requests(self) -> Iterator[Request]:
        """Return the requests that are open."""
        return (subscription.request for subscription in self._open.values())

    def goodbye(self, request: Request) -> Outcome:
        """Return the result that ends a subscription gracefully (SUB-8)."""
        return Raw(encode({"_meta": {SUBSCRIPTION_ID: request.id}}))

    def tagged(self, method: str, kind: str | None, uri: str | None) -> list[Delivery]:
        """Encode a notification once for each subscription that asked for it, with its id (SUB-4)."""
        params: JSONObject = {} if uri is None else {"uri": uri}
        found: list[Delivery] = []
        for request_id, subscription in self._open.items():
            if kind in subscription.kinds or uri in subscription.uris:
                found.append(Delivery(_tagged(method, request_id, params), request_id))
        return found

    def untagged(self, method: str, uri: str | None) -> bytes:
        """Encode a notification as a handshake client gets it."""
        return encode_notification(method, None if uri is None else encode({"uri": uri}))


def _tagged(method: str, request_id: RequestId, params: dict[str, JSON]) -> bytes:
    return encode_notification(method, encode(params | {"_meta": {SUBSCRIPTION_ID: request_id}}))


def _offered(server: ServerFacts) -> set[str]:
    capabilities = server.capabilities()
    offered = {
        kind
        for kind in ("tools", "prompts", "resources")
        if (capability := getattr(capabilities, kind)) is not None and capability.list_changed
    }
    if capabilities.resources is not None and capabilities.resources.subscribe:
        offered.add("uris")
    return offered
