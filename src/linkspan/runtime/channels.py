"""What a transport of one's own is: a channel that carries whole messages, plain or async, for servers and for clients.

A channel is open when it is handed over. Three methods are enough, and connections of `websockets` have them:

    send(message)     sends one message, a text; may wait
    iteration         gives the messages of the other side, texts or bytes, until it hangs up
    close()           hangs up, and ends the iteration
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable


class Channel(Protocol):
    """A channel for threads: one reads, another sends."""

    def send(self, message: str, /) -> object:
        """Send one message. Raises: any exception where the other side is gone."""
        ...

    def __iter__(self) -> Iterator[str | bytes]:
        """Wait for messages, until the other side hangs up."""
        ...

    def close(self) -> object:
        """Hang up. Any thread."""
        ...


@runtime_checkable
class AsyncChannel(Protocol):
    """A channel for an event loop, on which all of it is used."""

    def send(self, message: str, /) -> Awaitable[object]:
        """Send one message. Raises: any exception where the other side is gone."""
        ...

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Wait for messages, until the other side hangs up."""
        ...

    def close(self) -> Awaitable[object]:
        """Hang up."""
        ...


OpenChannel: TypeAlias = Callable[[], Channel | AsyncChannel | Awaitable[Channel | AsyncChannel]]
"""Opens a channel to a server, for each connection anew; may be a coroutine function."""


def is_async(channel: Channel | AsyncChannel) -> TypeGuard[AsyncChannel]:
    """Return whether a channel is one for event loops."""
    return hasattr(type(channel), "__aiter__")


def as_line(message: str | bytes) -> bytes:
    """Return a message as a line: newlines in JSON are only blanks. What is not UTF-8 stays wrong, and is refused as such."""
    data = message.encode(errors="surrogatepass") if isinstance(message, str) else bytes(message)
    return data.replace(b"\n", b" ") + b"\n"


def messages(lines: bytes) -> list[str]:
    """Return the messages in lines that a machine has to send."""
    return [line.decode() for line in lines.split(b"\n") if line]
