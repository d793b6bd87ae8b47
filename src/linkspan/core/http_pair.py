"""HTTP+SSE, the transport of the first revision: one GET stream for all that a server says, and POSTs for what it hears.

Law: nothing but a status ever goes back on a POST (SSE-7), and the session lives as long as its stream (SSE-4).
Spec: https://modelcontextprotocol.io/specification/2024-11-05/basic/transports (checklist 5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from linkspan.core.call import Delivery, HeaderPlan
from linkspan.core.connection import ServerConnection
from linkspan.core.exchange import ServerExchange
from linkspan.core.params import HasMeta
from linkspan.errors import INVALID_REQUEST, RemoteProtocolError
from linkspan.revisions.neutral import Peer
from linkspan.wire.messages import RpcRequest
from linkspan.wire.sse import encode_event

__all__ = ["SESSION_PARAMETER", "Pair", "Pairs"]

SESSION_PARAMETER = "session"


class Pair(msgspec.Struct, frozen=True, eq=False):
    """One client: its stream, and the connection that its POSTs feed."""

    id: str
    principal: str | None
    connection: ServerConnection
    exchange: ServerExchange


class Pairs:
    """The clients of an endpoint that use this transport."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        """Begin without any; `random(n)` gives n unguessable bytes."""
        self._random = random
        self._pairs: dict[str, Pair] = {}
        self._of_exchange: dict[ServerExchange, Pair] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(list(self._pairs.values()))

    def open(self, exchange: ServerExchange, connect: Callable[..., ServerConnection], principal: str | None) -> Pair:
        """Begin a stream, and say on it where to send messages (SSE-1)."""
        connection = connect(send=partial(_send, exchange), check=_only_handshakes)
        pair = Pair(self._random(16).hex(), principal, connection, exchange)
        exchange.connection, exchange.lock = connection, connection.lock
        exchange.takes_json, exchange.event_name = False, "message"
        # Relative to the URL that the client asked for, which a proxy may have changed on its way to us.
        exchange.send_event(encode_event(f"?{SESSION_PARAMETER}={pair.id}".encode(), event="endpoint"))
        self._pairs[pair.id] = self._of_exchange[exchange] = pair
        return pair

    def find(self, pair_id: str, principal: str | None) -> Pair | None:
        """Return a client of `principal`; a stranger's does not exist."""
        pair = self._pairs.get(pair_id)
        return pair if pair is not None and pair.principal == principal else None

    def leave(self, exchange: ServerExchange) -> None:
        """Forget the client of a stream that has ended; any other response may end too, which happens with every request."""
        pair = self._of_exchange.pop(exchange, None)
        if pair is not None:
            del self._pairs[pair.id]


def _send(exchange: ServerExchange, delivery: Delivery) -> None:
    if delivery.data is not None:
        exchange.message(delivery.data, final=False)


def _only_handshakes(
    _: RpcRequest, __: HasMeta | None, peer: Peer | None, ___: RemoteProtocolError | None, ____: HeaderPlan
) -> RemoteProtocolError | None:
    """Refuse requests that need headers to agree with: on this transport nobody can hold them to any (SEC-2)."""
    if peer is None:
        return None
    problem = f"Invalid Request: revision {peer.revision.date} has no HTTP+SSE; POST to the endpoint without a session"
    return RemoteProtocolError(INVALID_REQUEST, problem)
