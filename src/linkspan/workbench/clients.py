"""The clients of one target, one for each revision that was asked for. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from linkspan.client.sync_client import SyncClient
from linkspan.flows.client_errors import ClientClosed


class BenchClients:
    """What is connected now. The client without a revision speaks the one that was negotiated."""

    def __init__(self, make: Callable[[str], SyncClient]) -> None:
        """Make clients when they are asked for."""
        self._make = make
        self._lock = threading.Lock()
        self._all: dict[str, SyncClient] = {}

    @property
    def first(self) -> SyncClient | None:
        """The client of the negotiated revision, connected or not; None before it is asked for."""
        return self._all.get("")

    def connected(self, revision: str = "") -> SyncClient:
        """Return the connected client for a revision. Raises: ClientError."""
        with self._lock:
            client = self._all.get(revision)
            is_new = client is None
            if client is None:
                client = self._all[revision] = self._make(revision)
        client.connect()
        if self._all.get(revision) is not client:  # it was closed for another start, and would live on
            client.close()
            raise ClientClosed("the server was started anew", phase="connect")
        offers = client.server_capabilities
        if is_new and offers is not None and offers.logging is not None:
            client.set_logging_level("debug")  # servers of the newest revision send no log that is not asked for
        return client

    def take(self) -> list[SyncClient]:
        """Return all, for an end; who asks from now on gets new ones."""
        with self._lock:
            found, self._all = [*self._all.values()], {}
        return found
