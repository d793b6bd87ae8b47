"""A loop that reads what a server process writes has the pipe for itself, and lets go of it when it reads no more."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable

import pytest

from linkspan.client.transports.stdio import LoopReader
from linkspan.runtime.descriptors import Readable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the loops of Windows do not wait for pipes")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


def has_reader(writer: int) -> bool:
    """Return whether anybody can still read what is written."""
    try:
        return os.write(writer, b"x") == 1
    except BrokenPipeError:
        return False


@pytest.mark.parametrize("how", ["on the loop", "from another thread", "with its loop"])
def test_a_pipe_that_is_read_no_more_is_closed(how: str) -> None:
    fd, writer = os.pipe()
    source, seen = Readable(fd, owned=True), list[bytes]()

    async def main() -> LoopReader:
        reader = LoopReader(asyncio.get_running_loop(), source, lambda found: seen.append(found.source.read(100)))
        source.close()
        assert has_reader(writer), "its copy is its own"
        await until(lambda: bool(seen))
        if how == "on the loop":
            reader.remove()
            reader.remove()
            assert not has_reader(writer)
        elif how == "from another thread":
            await asyncio.to_thread(reader.end)
            await until(lambda: not has_reader(writer))
        return reader

    try:
        reader = asyncio.run(main())
        assert set(b"".join(seen)) == {ord("x")}
        if how == "with its loop":
            assert has_reader(writer)
            reader.end()  # the loop has ended, so that nothing happens there any more
            del reader
            gc.collect()
        assert not has_reader(writer)
    finally:
        os.close(writer)
