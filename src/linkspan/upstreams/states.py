"""What a server elsewhere wants back in the next round: a large one stays in the store, and a handle travels in its place."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.stores.port import Store, StoreError

LARGEST_SEALED: Final = 24 * 1024
"""Characters of a state that travel in ours, which has 64 KiB with the answers and the seal."""
MAX_BYTES: Final = 1024 * 1024
"""The largest state that is kept."""
MAX_KEPT: Final = 64
"""States of one caller in each process; the oldest goes."""


class LargeStates:
    """The large states of one caller. They are found in every process that shares the store."""

    def __init__(self, store: Callable[[], Store], ttl: Callable[[], float]) -> None:
        """Keep states in what `store` opens, for `ttl()` seconds."""
        self._store = store
        self._ttl = ttl
        self._lock = threading.Lock()
        self._handles: deque[str] = deque()

    def keep(self, state: str) -> str:
        """Keep a state; return its handle, which cannot be guessed. Blocks. Raises: RemoteProtocolError."""
        data = state.encode()
        if len(data) > MAX_BYTES:
            raise RemoteProtocolError(INTERNAL_ERROR, f"its requestState is over {MAX_BYTES} bytes")
        handle = secrets.token_hex(16)
        try:
            self._store().put(_key(handle), data, ttl=self._ttl())
            with self._lock:
                self._handles.append(handle)
                oldest = self._handles.popleft() if len(self._handles) > MAX_KEPT else None
            if oldest is not None:
                self._store().delete(_key(oldest))
        except StoreError as error:
            raise RemoteProtocolError(INTERNAL_ERROR, f"its requestState cannot be kept: {error}") from None
        return handle

    def find(self, handle: str) -> str | None:
        """Return a state, as often as the round is sent; None where it has gone. Blocks. Raises: RemoteProtocolError."""
        try:
            found = self._store().get(_key(handle))
        except StoreError as error:
            raise RemoteProtocolError(INTERNAL_ERROR, f"requestState cannot be read: {error}") from None
        return found.value.decode() if found is not None else None


def _key(handle: str) -> str:
    return f"upstream-state/{handle}"
