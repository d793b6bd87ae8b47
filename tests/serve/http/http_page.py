"""GET, without a network."""

from __future__ import annotations

import msgspec

from linkspan import Server
from linkspan.core.http_checks import Arrival, HttpPolicy
from linkspan.core.http_exchange import HttpData, HttpStart, ServerExchange
from linkspan.revisions.neutral import NO_FACTS
from linkspan.serve.http import make_endpoint

WITH_PAGE = HttpPolicy(page=True)
HERE = Arrival("127.0.0.1", "127.0.0.1", "/mcp")


class Got(msgspec.Struct):
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, exchange: ServerExchange) -> Got:
        """Read what an exchange sends."""
        events = exchange.events()
        (start,) = (each for each in events if isinstance(each, HttpStart))
        body = b"".join(each.data for each in events if isinstance(each, HttpData))
        return cls(start.status, dict(start.headers), body)


def get(server: Server, accept: str | None, policy: HttpPolicy = WITH_PAGE, **headers: str) -> Got:
    """Ask a server for what is at its endpoint."""
    sent = {"host": "127.0.0.1:8000"} | ({"accept": accept} if accept is not None else {}) | headers
    endpoint = make_endpoint(server, policy)
    exchange = endpoint.admit("GET", sent, HERE)
    return Got.of(exchange or endpoint.open("GET", "http://127.0.0.1:8000/mcp", sent, b"", NO_FACTS).exchange)
