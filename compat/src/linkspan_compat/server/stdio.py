"""`stdio_server()`: a pair of streams that stand for standard input and output."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from linkspan_compat.server.streams import StdioStream

__all__ = ["stdio_server"]


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two streams. `server.run` serves the descriptors themselves if the program leaves the streams alone."""
    stream = StdioStream(stdin, stdout)
    try:
        yield stream.reader, stream.writer
    finally:
        await stream.aclose()
