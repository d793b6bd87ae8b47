"""The one writer: everything leaves once, in order, and only those wait that may."""

from __future__ import annotations

import os
import threading
import tracemalloc

import pytest

from linkspan.runtime.descriptors import WakePipe, Writer
from linkspan.runtime.forks import point_to_devnull


class Source:
    """Numbers its lines under the lock."""

    def __init__(self, size: int = 0) -> None:
        self.lock, self.out, self.count, self.filling = threading.RLock(), [], 0, b"x" * size

    def produce(self) -> None:
        with self.lock:
            self.out.append(b"%d %s\n" % (self.count, self.filling))
            self.count += 1

    def data_to_send(self) -> bytes:
        data, self.out = b"".join(self.out), []
        return data


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def hang_up(reader: int) -> None:
    """Close the reading end, and keep its number, which the fixture closes."""
    point_to_devnull([reader])


def read_all(reader: int, lines: int) -> list[int]:
    data = b""
    while data.count(b"\n") < lines:
        data += os.read(reader, 65536)
    return [int(line.split()[0]) for line in data.splitlines()]


def test_lines_from_many_threads_leave_once_and_in_order(pipe):
    reader, fd = pipe
    source = Source(200)
    writer = Writer(source, source.lock, fd, bound=10_000, on_change=lambda: None)

    def produce() -> None:
        for _ in range(500):
            source.produce()
            writer.flush()

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        source.produce()
        writer.flush_now()
    assert read_all(reader, 2500) == list(range(2500))
    for thread in threads:
        thread.join(60)
    writer.wait_empty(30)
    assert writer.unsent == 0


def test_the_reading_thread_never_waits_and_hears_when_there_is_room(pipe):
    reader, fd = pipe
    source, room = Source(400_000), threading.Event()
    writer = Writer(source, source.lock, fd, bound=600_000, on_change=room.set)
    for _ in range(10):
        source.produce()
        writer.flush_now()
    assert writer.full
    assert read_all(reader, 10) == list(range(10))
    assert room.wait(30)
    writer.wait_empty(30)
    assert (writer.full, writer.unsent) == (False, 0)


@pytest.mark.parametrize("flush", [Writer.flush, Writer.flush_now])
def test_an_output_that_nobody_reads_is_noticed_and_forgotten(pipe, flush):
    reader, fd = pipe
    source, broken = Source(), threading.Event()
    writer = Writer(source, source.lock, fd, bound=10, on_change=broken.set)
    hang_up(reader)
    for _ in range(3):
        source.produce()
        flush(writer)
    assert broken.is_set()
    assert (writer.broken, writer.unsent, writer.full) == (True, 0, False)


def test_an_output_that_breaks_frees_those_who_wait(pipe):
    reader, fd = pipe
    source = Source(2_000_000)
    writer = Writer(source, source.lock, fd, bound=10, on_change=lambda: None)
    for _ in range(2):
        source.produce()
        writer.flush_now()
    waiting = threading.Thread(target=writer.flush)
    waiting.start()
    hang_up(reader)
    waiting.join(60)
    assert not waiting.is_alive()


def test_the_descriptor_is_given_back_only_when_nobody_writes_any_more(pipe):
    reader, fd = pipe
    source = Source(3_000_000)  # more than a pipe holds, so that the writer has to wait
    writer = Writer(source, source.lock, fd, bound=10_000_000, on_change=lambda: None)
    given_back = threading.Event()
    source.produce()
    writer.flush_now()
    writer.leave(given_back.set)
    assert not given_back.is_set()
    assert read_all(reader, 1) == [0]
    assert given_back.wait(60)
    source.produce()
    writer.flush_now()
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)


def test_the_descriptor_is_given_back_at_once_if_nobody_writes(pipe):
    source = Source()
    writer = Writer(source, source.lock, pipe[1], bound=100, on_change=lambda: None)
    given_back: list[bool] = []
    writer.leave(lambda: given_back.append(True))
    assert given_back == [True]


def test_large_messages_leave_in_order_and_without_a_copy(pipe):
    reader, fd = pipe
    source = Source(1_000_000)
    writer = Writer(source, source.lock, fd, bound=100_000_000, on_change=lambda: None)
    for size in (1_000_000, 0, 0, 3_000_000, 0):
        source.filling = b"x" * size
        source.produce()
        writer.flush_now()
    tracemalloc.start()
    found = b""
    numbers = []
    while len(numbers) < 5:
        *lines, found = (found[:20] + os.read(reader, 65536)).split(b"\n")
        numbers += [int(line.split()[0]) for line in lines]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    writer.wait_empty(5)
    assert numbers == [0, 1, 2, 3, 4]
    assert peak < 1_000_000, "a write of what is left copies it"


def test_what_is_not_written_when_the_writer_leaves_counts_no_longer_and_keeps_no_thread_waiting(pipe):
    reader, fd = pipe
    source = Source(2_000_000)  # more than a pipe holds, so that the writer has to wait
    writer = Writer(source, source.lock, fd, bound=3_000_000, on_change=lambda: None)
    for _ in range(2):
        source.produce()
        writer.flush_now()
    waiting = threading.Thread(target=writer.flush)
    waiting.start()
    writer.leave(lambda: None)
    waiting.join(60)
    assert not waiting.is_alive()
    assert read_all(reader, 1) == [0]
    writer.wait_empty(30)
    assert writer.unsent == 0


def test_a_wake_that_comes_after_the_end_reaches_no_descriptor_that_has_the_number_now():
    wakes = WakePipe()
    numbers = wakes.fds
    assert numbers == (wakes.reader, wakes.writer)
    wakes.wake()
    assert wakes.drain() == b"\0"
    wakes.close()
    assert wakes.fds == ()
    others = [os.pipe() for _ in range(2)]
    try:
        assert {*numbers} <= {fd for pair in others for fd in pair}
        for reader, writer in others:
            os.write(writer, b"theirs")
            os.set_blocking(reader, False)
        wakes.wake()
        assert wakes.drain() == b""
        wakes.close()
        assert [os.read(reader, 100) for reader, _ in others] == [b"theirs", b"theirs"]
    finally:
        for pair in others:
            for fd in pair:
                os.close(fd)
