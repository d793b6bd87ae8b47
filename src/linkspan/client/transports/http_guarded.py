"""HTTP requests to URLs that a server has named, for flows of authorization: they lead into no private network unasked.

Law: what is checked is the address that is connected to, so a change of the address of a name meanwhile has no effect; each hop
of a redirect is checked, too, and stays on its origin. Through a proxy only what the URL itself says can be checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from linkspan.auth.network import Origin, check_url, is_public, may_connect
from linkspan.client.transports.http_connections import CheckedRoutes
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, Open, ReadBody, Reply, may_send_to
from linkspan.client.transports.http_threads import ThreadPool, ThreadRun
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable

if TYPE_CHECKING:
    from ssl import SSLContext

_PATIENCE: Final = 30.0
"""Seconds for one request, its redirects included."""
_HOPS: Final = 4
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = {"accept": "application/json"}


class GuardedHttp:
    """Sends requests, one at a time, in the thread that asks."""

    def __init__(
        self,
        server_url: str,
        was_named: Callable[[str], bool],
        server_addresses: Callable[[], Collection[str]],
        ssl: SSLContext | None = None,
        plain: Collection[Origin] = (),
    ) -> None:
        """`server_url` is that of the MCP server. `was_named` returns whether the user named a host, in lower case.

        `server_addresses` returns the addresses of the MCP server: what else has addresses of their kind may be contacted.
        `plain` are origins that are asked over http, if they are on loopback or in a private network.
        """
        self._server_url = server_url
        self._plain = plain
        hosts = frozenset(host for _, host, _ in plain)
        self._pool = ThreadPool(_GuardedRoutes(ssl, was_named, server_addresses, hosts))

    def fetch(self, effect: Http) -> HttpResult:
        """Return the response to a request. Raises: HttpUnavailable."""
        results: list[HttpResult] = []
        try:
            ThreadRun(self._requests(effect, results), self._pool, time.monotonic() + _PATIENCE).run()
        except HttpFailure as failure:
            raise HttpUnavailable(f"{failure} ({failure.hint})" if failure.hint else str(failure)) from None
        return results[0]

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def _requests(self, effect: Http, results: list[HttpResult]) -> HttpFlow[None]:
        url = effect.url
        for _ in range(_HOPS + 1):
            if (problem := check_url(url, self._server_url, self._plain)) is not None:
                raise HttpFailure(problem, sent=False, ours=True)
            reply = yield Open(effect.method, url, {**_HEADERS, **effect.headers}, effect.body)
            try:
                onward = _onward(url, reply) if effect.redirects and effect.method == "GET" else None
                body = b"" if onward is not None else (yield from read_bounded(reply, effect.limit))
            finally:
                reply.give_back()
            if len(body) > effect.limit:
                raise HttpFailure(f"its response is larger than {effect.limit} bytes", sent=True)
            if onward is None:
                results.append(HttpResult(reply.status, reply.headers, body))
                return
            url = onward
        raise HttpFailure("it redirects too many times", sent=True)


def read_bounded(reply: Reply, bound: int) -> HttpFlow[bytes]:
    """Read a body; of one that is larger than `bound`, a little more than that."""
    body = bytearray()
    while len(body) <= bound:
        chunk = reply.take()
        if chunk is None:
            chunk = yield ReadBody(reply)
        if not chunk:
            break
        body += chunk
    return bytes(body)


def _onward(url: str, reply: Reply) -> str | None:
    """Return where a reply redirects to, on the same origin; None if it does not."""
    if reply.status not in _REDIRECTS:
        return None
    try:
        target = urljoin(url, reply.headers.get("location", ""))
    except ValueError:
        return None
    return target if target and may_send_to(target, url) else None


class _GuardedRoutes(CheckedRoutes):
    """Routes that end at addresses which may be connected to."""

    def __init__(
        self,
        ssl: SSLContext | None,
        was_named: Callable[[str], bool],
        server_addresses: Callable[[], Collection[str]],
        private: Collection[str],
    ) -> None:
        super().__init__(ssl, _PATIENCE)
        self._private = private  # hosts that are asked over http, so never in public
        self._was_named = was_named
        self._server_addresses = server_addresses

    def check(self, host: str, address: str) -> None:
        """Refuse private networks that only the server named. Raises: HttpFailure."""
        if host.lower() in self._private and is_public(address):
            problem = f"{host} has the public address {address}, and http is for private networks only"
            raise HttpFailure(problem, sent=False, ours=True)
        if may_connect(address, self._server_addresses, named=self._was_named(host.lower())):
            return
        problem = f"{host} is in a private network, and only the server named that host"
        raise HttpFailure(problem, sent=False, ours=True, hint=f"to allow it, pass hosts=[{host!r}] [LS-209]")
