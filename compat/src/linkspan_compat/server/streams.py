"""Streams of `SessionMessage`, as the transports of the SDKs have them, over channels of Linkspan.

A program may only pass them on, and then nothing of this costs anything; or it may iterate over them itself.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from linkspan_compat.protocol.current import TYPES

if TYPE_CHECKING:
    from linkspan_compat.server.serving import Served

__all__ = ["SessionMessage", "StdioStream", "serve_streams"]


class SessionMessage:
    """A message on its way, with what the transport knows of it."""

    def __init__(self, message: Any, metadata: Any = None) -> None:
        self.message = message
        self.metadata = metadata

    def __repr__(self) -> str:
        return f"SessionMessage(message={self.message!r}, metadata={self.metadata!r})"


def parsed(line: str | bytes) -> SessionMessage:
    """Read a message. Raises: pydantic.ValidationError."""
    kind = TYPES["JSONRPCMessage"]
    if hasattr(kind, "model_validate_json"):
        return SessionMessage(kind.model_validate_json(line))
    return SessionMessage(TYPES["jsonrpc_message_adapter"].validate_json(line))


def written(message: Any) -> str:
    """Return a message as a line without its end."""
    found = getattr(message, "message", message)
    text: str = found.model_dump_json(by_alias=True, exclude_unset=True)
    return text


class Reader:
    """The end of a stream that gives messages; also an iterator and a context manager."""

    def __init__(self, stream: StdioStream) -> None:
        self.stream = stream

    async def receive(self) -> Any:
        """Return the next message. Raises: EndOfStream of anyio at the end."""
        found = await self.stream.next_line()
        if found is None:
            import anyio

            raise anyio.EndOfStream
        try:
            return parsed(found)
        except Exception as error:
            return error

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while (line := await self.stream.next_line()) is not None:
            try:
                message: Any = parsed(line)
            except Exception as error:
                message = error
            yield message

    async def aclose(self) -> None:
        """Hang up."""

    def close(self) -> None:
        """Hang up."""

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Writer:
    """The end of a stream that takes messages."""

    def __init__(self, stream: StdioStream) -> None:
        self.stream = stream

    async def send(self, message: Any) -> None:
        """Send a message."""
        await self.stream.write_line(written(message))

    async def aclose(self) -> None:
        """Hang up."""

    def close(self) -> None:
        """Hang up."""

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class StdioStream:
    """Standard input and output as a pair of streams. Nothing is read before somebody asks for a message."""

    def __init__(self, stdin: Any = None, stdout: Any = None) -> None:
        self.reader = Reader(self)
        self.writer = Writer(self)
        self.is_own = stdin is not None or stdout is not None
        self._stdin, self._stdout = stdin, stdout
        self._lines: asyncio.Queue[str | None] | None = None
        self._lock = threading.Lock()

    async def next_line(self) -> str | None:
        """Return the next line, None at the end."""
        if self._stdin is not None:
            async for line in self._stdin:
                return str(line)
            return None
        if self._lines is None:
            self._lines = asyncio.Queue()
            threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()
        return await self._lines.get()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        lines = self._lines
        assert lines is not None
        try:
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(lines.put_nowait, line.decode("utf-8", "replace"))
            loop.call_soon_threadsafe(lines.put_nowait, None)
        except RuntimeError:  # the loop is closed
            return

    async def write_line(self, line: str) -> None:
        """Write a line."""
        if self._stdout is not None:
            await self._stdout.write(line + "\n")
            await self._stdout.flush()
            return
        with self._lock:
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()

    async def aclose(self) -> None:
        """Let go."""


async def serve_streams(served: Served, reader: Any, writer: Any) -> None:
    """Serve the client at the other end of two streams, until it hangs up."""
    if hasattr(reader, "serve"):  # a stream of the transport of 2024
        await reader.serve(served)
        return
    if isinstance(reader, Reader) and isinstance(writer, Writer) and reader.stream is writer.stream:
        stream = reader.stream
        if not stream.is_own:
            await served.stdio()
            return
    async with served.opened():
        await served.under.attach(StreamChannel(reader, writer))


class StreamChannel:
    """A channel of Linkspan over streams of messages."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: str) -> None:
        """Send one message."""
        await self._writer.send(parsed(message))

    async def _messages(self) -> AsyncIterator[str]:
        async for each in self._reader:
            if not isinstance(each, Exception):
                yield written(each)

    def __aiter__(self) -> AsyncIterator[str]:
        return self._messages()

    async def close(self) -> None:
        """Hang up."""
        await self._writer.aclose()
