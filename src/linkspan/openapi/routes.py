"""Routes to one API: they end in no private network that the author has not named."""

from __future__ import annotations

from ssl import SSLContext

from linkspan.auth.network import may_connect
from linkspan.client.transports.http_connections import CheckedRoutes
from linkspan.client.transports.http_requests import HttpFailure

__all__ = ["ApiRoutes"]


class ApiRoutes(CheckedRoutes):
    """The routes of one API."""

    def __init__(self, ssl: SSLContext | None, connect_timeout: float, *, named: bool) -> None:
        """`named`: the author has written the URL, so its host may have a private address."""
        super().__init__(ssl, connect_timeout)
        self._named = named

    def check(self, host: str, address: str) -> None:
        """Refuse private networks. Raises: HttpFailure."""
        if not may_connect(address, lambda: (), named=self._named):
            hint = "write base_url= if that is right" if not self._named else "no API is there"
            raise HttpFailure(f"{host} has the private address {address}", sent=False, ours=True, hint=hint)
