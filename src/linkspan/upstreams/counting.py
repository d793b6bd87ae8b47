"""The numbers of one upstream: requests that went there, and how they ended. Nothing in them tells one caller from another."""

from __future__ import annotations

import threading
from typing import Protocol

from linkspan.flows.client_errors import ClientError, ServerError


class UpstreamWatcher(Protocol):
    """Receives each request that an upstream has answered, or that has failed."""

    def ended(self, upstream: str, method: str, seconds: float, failure: str) -> None:
        """Receive the end of a request; `failure` is empty, a JSON-RPC code, or the phase of a client error."""
        ...


class UpstreamCounts:
    """Counts the requests of all callers of one upstream. Any thread may use it."""

    def __init__(self, name: str) -> None:
        """Begin with nothing; `name` is what watchers call the upstream."""
        self._name = name
        self._lock = threading.Lock()
        self.requests = 0
        """Requests that have ended."""
        self.failed = 0
        """Those of them to which no response came."""
        self.watcher: UpstreamWatcher | None = None

    def ended(self, method: str, seconds: float, error: object) -> None:
        """Count a request that took so many seconds; `error` is an exception, or what else came."""
        failure = _failure(error) if isinstance(error, Exception) else ""
        with self._lock:
            self.requests += 1
            self.failed += bool(failure) and not (isinstance(error, ServerError) and error.code is not None)
        if self.watcher is not None:
            self.watcher.ended(self._name, method, seconds, failure)


def _failure(error: Exception) -> str:
    if isinstance(error, ServerError) and error.code is not None:
        return str(error.code)
    return error.phase if isinstance(error, ClientError) else type(error).__name__
