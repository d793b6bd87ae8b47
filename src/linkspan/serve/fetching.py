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
from linkspan.errors import import_problem
from linkspan.runtime.forks import renew
from linkspan.runtime.workers import Workers

if TYPE_CHECKING:
    from linkspan.client.transports.http_guarded import GuardedHttp

_THREADS: Final = 8
_Key: TypeAlias = tuple[str, str, bytes, frozenset[tuple[str, str]]]


class Fetcher:
    """Fetches for one server, with the rules of a client: the author's URLs stand for what a user has named."""

    def __init__(self, named: Sequence[str]) -> None:
        """Take the URLs that the author has written: those over http only if they were allowed to be."""
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
        """Return what will have the response, or raise HttpUnavailable; another request for the same gets the same.

        Where the system has no thread for it, that is the outcome: the next request tries again.
        """
        key = effect.method, effect.url, effect.body, frozenset(effect.headers.items())
        with self._lock:
            if key in self._running:
                return self._running[key][1]
            future: Future[HttpResult] = Future()
            future.set_running_or_notify_cancel()  # one that gives up must not end it for the others
            self._running[key] = effect, future
        try:
            self._workers.submit(key)
        except RuntimeError as problem:  # others may wait for the same by now
            self._end(key, HttpUnavailable(str(problem)))
        return future

    def _work(self, key: _Key) -> None:
        outcome: HttpResult | HttpUnavailable = HttpUnavailable("the request was interrupted")
        try:
            outcome = self.fetch(self._running[key][0])
        except HttpUnavailable as failure:
            outcome = failure
        except Exception as failure:
            outcome = HttpUnavailable(type(failure).__name__)
        finally:
            self._end(key, outcome)

    def _end(self, key: _Key, outcome: HttpResult | HttpUnavailable) -> None:
        """Give all that wait for a request its outcome."""
        with self._lock:
            _, future = self._running.pop(key)
        if isinstance(outcome, HttpUnavailable):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def fetch(self, effect: Http) -> HttpResult:
        """Send a request in this thread. Raises: HttpUnavailable."""
        if self._http is None:
            try:
                from linkspan.client.transports.http_guarded import GuardedHttp
            except ImportError as error:
                raise HttpUnavailable(
                    import_problem("asking an authorization server needs httptools", "http", error)
                ) from None
            plain = {each for each in map(origin_of, self._named) if each is not None and each[0] == "http"}
            self._http = GuardedHttp(
                self._named[0], lambda host: was_named(host, self._named, ()), self._addresses, plain=plain
            )
        return self._http.fetch(effect)

    def _addresses(self) -> set[str]:
        """Return the addresses of what the author has named: what an issuer names beside that may be of the same kind."""
        found: set[str] = set()
        for origin in filter(None, map(origin_of, self._named)):
            with suppress(OSError, UnicodeError):
                found |= {str(each[4][0]) for each in socket.getaddrinfo(origin[1], None)}
        return found
