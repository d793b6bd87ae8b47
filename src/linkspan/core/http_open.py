"""What is open at one endpoint: responses that are not complete, and calls that go on though their client has gone."""

from __future__ import annotations

from typing import Generic, TypeVar

from linkspan.core.connection import ServerConnection
from linkspan.core.http_exchange import ServerExchange

OwnerT = TypeVar("OwnerT")


class OpenResponses(Generic[OwnerT]):
    """The responses, each with its owner, and the connections of calls that no response waits for."""

    def __init__(self, most: int) -> None:
        """Have room for `most` of both together."""
        self.most = most
        self.owners: dict[ServerExchange, OwnerT] = {}
        self.orphans: set[ServerConnection] = set()
        """Calls that go on though their client has gone, and cannot come back."""

    def __len__(self) -> int:
        return len(self.owners) + len(self.orphans)

    @property
    def is_full(self) -> bool:
        """Whether there is no room."""
        if len(self.owners) + len(self.orphans) < self.most:
            return False
        self.forget_orphans()
        return len(self) >= self.most

    def hold(self, exchange: ServerExchange, owner: OwnerT) -> None:
        """Look after a response, unless it is complete."""
        if not exchange.ended:
            self.owners[exchange] = owner

    def leave_running(self, connection: ServerConnection) -> bool:
        """Count a connection whose calls no response waits for; return whether it has some."""
        if not connection.running:
            return False
        self.orphans.add(connection)
        return True

    def forget_orphans(self) -> None:
        """Forget the calls that have ended. Other threads add to the set meanwhile, so it is changed in place."""
        for connection in list(self.orphans):
            if not connection.running:
                self.orphans.discard(connection)

    def keep_alive(self, now: float, silence: float) -> None:
        """Send comments on the streams on which nothing was sent for `silence` seconds."""
        for exchange in list(self.owners):
            exchange.keep_alive(now, silence=silence)
