"""The one thing that a client wants of an HTTP library: send a request, and read the answer as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

__all__ = ["HttpFailure", "HttpPort", "HttpReply"]


class HttpFailure(Exception):
    """There is no answer. `sent` tells whether the server may have got the request; the text is for people.

    `garbled`: something came, but it was no HTTP. `ours`: the request cannot be sent at all, so trying again is in vain.
    `hint` is what a person can do.
    """

    def __init__(
        self, message: str, *, sent: bool, garbled: bool = False, ours: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.garbled = garbled
        self.ours = ours
        self.hint = hint


class HttpReply(msgspec.Struct):
    """An answer whose body is still to come. `chunks` may raise HttpFailure."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case. A header that came more than once has its values joined by commas."""
    chunks: AsyncIterator[bytes]


class HttpPort(Protocol):
    """A pool of connections on one event loop."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[HttpReply]:
        """Send a request. Entering raises HttpFailure; leaving gives the connection back, or closes it if unread."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
