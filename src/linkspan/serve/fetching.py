"""Requests of a server to its authorization servers: over our own client, in a few threads, one for all that ask for the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from linkspan.auth.network import origin_of, was_named
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.errors import install_hint
from linkspan.runtime.forks import renew
from linkspan.runtime.workers import Workers

if TYPE_CHECKING:
    from linkspan.client.transports.http_guarded import GuardedHttp

__all__ = ["Fetcher"]

_THREADS: Final = 8
_Key: TypeAlias = tuple[str, str, bytes]


class Fetcher:
    """Fetches for one server, with the rules of a client: the author's URLs stand for what a user has named."""

    def __init__(self, named: Sequence[str]) -> None:
        """Take the URLs that the author has written."""
        self._named = named
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without threads and connections."""
        self._lock = threading.Lock()
        self._running: dict[_Key, tuple[Http, Future[HttpResult]]] = {}
        self._workers: Workers[_Key] = Workers(self._work, _THREADS)
        self._http: GuardedHttp | None = None

    def submit(self, effect: Http) -> Future[HttpResult]:
        """Return what will have the response, or raise HttpUnavailable; another request for the same gets the same."""
        key = effect.method, effect.url, effect.body
        with self._lock:
            if key in self._running:
                return self._running[key][1]
            future: Future[HttpResult] = Future()
            future.set_running_or_notify_cancel()  # one that gives up must not end it for the others
            self._running[key] = effect, future
        self._workers.submit(key)
        return future

    def _work(self, key: _Key) -> None:
        effect, future = self._running[key]
        problem: HttpUnavailable | None = None
        result: HttpResult | None = None
        try:
            result = self.fetch(effect)
        except HttpUnavailable as failure:
            problem = failure
        except Exception as failure:
            problem = HttpUnavailable(type(failure).__name__)
        with self._lock:
            del self._running[key]
        if result is not None:
            future.set_result(result)
        else:
            future.set_exception(problem)

    def fetch(self, effect: Http) -> HttpResult:
        """Send a request in this thread. Raises: HttpUnavailable."""
        if self._http is None:
            try:
                from linkspan.client.transports.http_guarded import GuardedHttp
            except ImportError:
                raise HttpUnavailable(
                    f"asking an authorization server needs httptools: {install_hint('http')}"
                ) from None
            self._http = GuardedHttp(self._named[0], lambda host: was_named(host, self._named, ()), self._addresses)
        return self._http.fetch(effect)

    def _addresses(self) -> set[str]:
        """Return the addresses of what the author has named: what an issuer names beside that may be of the same kind."""
        found: set[str] = set()
        for origin in filter(None, map(origin_of, self._named)):
            with suppress(OSError, UnicodeError):
                found |= {str(each[4][0]) for each in socket.getaddrinfo(origin[1], None)}
        return found
