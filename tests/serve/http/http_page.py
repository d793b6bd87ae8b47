"""GET, without a network."""

from __future__ import annotations

import msgspec

from linkspan import Server
from linkspan.core.http_checks import Arrival, HttpPolicy
from linkspan.core.http_exchange import HttpResponse
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
    def of(cls, response: object) -> Got:
        """Read a response, which must be there."""
        assert isinstance(response, HttpResponse)
        return cls(response.status, dict(response.headers), response.body)


def get(server: Server, accept: str | None, policy: HttpPolicy = WITH_PAGE, **headers: str) -> Got:
    """Ask a server for what is at its endpoint."""
    sent = {"host": "127.0.0.1:8000"} | ({"accept": accept} if accept is not None else {}) | headers
    endpoint = make_endpoint(server, policy)
    found = endpoint.gate.admit("GET", sent, HERE)
    if not isinstance(found, HttpResponse):
        found = endpoint.open("GET", "http://127.0.0.1:8000/mcp", sent, b"", NO_FACTS).exchange.response
    return Got.of(found)
