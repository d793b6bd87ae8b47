"""Who reads what a server process writes has the pipe for itself, and lets go of it when it reads no more."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable

import pytest

from linkspan.client.transports.base import ThreadWaiter
from linkspan.client.transports.stdio import LeaderFollowers, LoopReader
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


def test_nobody_reads_from_a_connection_that_has_ended() -> None:
    fd, writer = os.pipe()
    read, found = list[str](), list[object]()

    def take() -> bool:
        read.append("read")
        return True

    followers, waiter = LeaderFollowers(fd, take), ThreadWaiter()
    followers.close()
    os.write(writer, b"x")
    waiting = threading.Thread(target=lambda: found.append(followers.wait(waiter)))
    waiting.start()
    waiting.join(0.05)
    waiter.put("item")
    waiting.join(60)
    assert found == ["item"]
    assert read == []
    os.close(fd)
    os.close(writer)


def test_one_thread_reads_for_all_until_it_has_its_own() -> None:
    fd, writer = os.pipe()
    waiters = {number: ThreadWaiter() for number in range(4)}
    readers, found = set[int](), dict[int, object]()

    def take() -> bool:
        readers.add(threading.get_ident())
        for each in os.read(fd, 100):
            waiters[each].put(each)
        return True

    followers = LeaderFollowers(fd, take)

    def wait(number: int) -> None:
        found[number] = followers.wait(waiters[number])

    threads = {number: threading.Thread(target=wait, args=(number,)) for number in waiters}
    for each in threads.values():
        each.start()
    for number in (2, 0, 3, 1):
        os.write(writer, bytes([number]))
        threads[number].join(60)
        assert not threads[number].is_alive()
    assert found == {number: number for number in waiters}
    assert readers <= {each.ident for each in threads.values()}
    assert followers._leader is None
    assert followers._followers == {}
    followers.close()
    os.close(fd)
    os.close(writer)
