"""Pipes are grown while messages pass that do not fit them, and not kept grown."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkspan import SyncClient
from linkspan.runtime.descriptors import CHUNK, Readable, Writer

if sys.platform == "linux":
    from fcntl import F_GETPIPE_SZ, F_SETPIPE_SZ, fcntl
else:
    pytest.skip("only Linux has pipes that grow", allow_module_level=True)

GROWN = 1 << 20
ALL_OF_A_USER = 64 * 1024 * 1024
"""Bytes of room that the pipes of an unprivileged user may have together (pipe-user-pages-soft)."""
SERVER = """
from linkspan import Server
server = Server("echo")
@server.tool
def echo(text: str) -> str:
    return text
server.run()
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


class Messages:
    """What a writer sends."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def data_to_send(self) -> bytes:
        data = b"".join(self.waiting)
        self.waiting.clear()
        return data


def drain(reader: int, size: int) -> None:
    while size:
        size -= len(os.read(reader, size))


def test_a_reader_grows_the_pipe_of_a_message_that_does_not_fit_until_its_end(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    source = Readable(reader)
    os.write(writer, b"x" * (CHUNK - 1))
    source.read_chunk()
    assert fcntl(reader, F_GETPIPE_SZ) == CHUNK
    os.write(writer, b"x" * CHUNK)
    source.read_chunk()
    assert fcntl(reader, F_GETPIPE_SZ) == GROWN
    os.write(writer, b"x" * 100)
    source.read_chunk()
    assert fcntl(reader, F_GETPIPE_SZ) == GROWN
    os.write(writer, b"the end\n")
    source.read_chunk()
    assert fcntl(reader, F_GETPIPE_SZ) == CHUNK


def test_a_writer_grows_the_pipe_of_a_message_that_does_not_fit_until_one_does(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    messages = Messages()
    sent = Writer(messages, threading.RLock(), writer, bound=1, on_change=lambda: None)
    for size, room in ((100, CHUNK), (10 * CHUNK, GROWN), (100, CHUNK)):
        messages.waiting.append(b"x" * size)
        sent.flush_now()
        assert fcntl(reader, F_GETPIPE_SZ) == room
        drain(reader, size)


def test_a_pipe_that_another_one_has_let_shrink_is_grown_again(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    messages = Messages()
    sent = Writer(messages, threading.RLock(), writer, bound=1, on_change=lambda: None)
    for _ in range(2):
        messages.waiting.append(b"x" * (10 * CHUNK))
        sent.flush_now()
        assert fcntl(reader, F_GETPIPE_SZ) == GROWN
        drain(reader, 10 * CHUNK)
        fcntl(reader, F_SETPIPE_SZ, CHUNK)


def test_what_is_no_pipe_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"x" * CHUNK + b"\n")
    with path.open("rb") as file:
        source = Readable(file.fileno(), pumped=False)
        assert len(source.read_chunk()) == CHUNK
        assert source.read_chunk() == b"\n"


def test_a_hundred_servers_leave_room_for_new_pipes(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    with SyncClient(path) as client:
        text = "x" * 300_000
        assert client.call_tool("echo", {"text": text}).text == text
        assert client.call_tool("echo", {"text": "small"}).text == "small"
        sizes = _rooms(_child())  # those to the client among them
    assert 100 * sum(sizes.values()) < ALL_OF_A_USER, sizes


def _child() -> int:
    [found] = [
        int(each)
        for task in Path("/proc/self/task").iterdir()
        for each in (task / "children").read_text().split()
        if b"server.py" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return found


def _rooms(pid: int) -> dict[str, int]:
    """Return the sizes of the pipes of a process, by name."""
    found: dict[str, int] = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(each)
            if name.startswith("pipe:") and name not in found:
                fd = os.open(each, os.O_RDWR | os.O_NONBLOCK)
                found[name] = fcntl(fd, F_GETPIPE_SZ)
                os.close(fd)
        except OSError:  # it was closed meanwhile
            continue
    return found
