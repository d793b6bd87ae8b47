"""Every transcript, at every revision it applies to, through every face."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linkspan.core.call import CallReady
from linkspan.core.connection import ServerConnection
from linkspan.revisions import MODERN
from linkspan.serve.memory import MemoryTransport
from mounts import through_mounts
from servers import SERVERS
from transcript import Transcript, compare, load

CASES = [
    pytest.param(transcript, revision, id=f"{transcript.name}@{revision}")
    for transcript in load()
    for revision in transcript.revisions
]


def feed(connection: ServerConnection, data: bytes, size: int | None) -> None:
    """Feed bytes in chunks of `size`, running each call where it stands."""
    chunks = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    for chunk in chunks:
        events = list(connection.receive_data(chunk))
        while events:
            event = events.pop(0)
            if isinstance(event, CallReady) and not event.call.cancelled:
                try:
                    value = event.call.run()
                    if hasattr(type(value), "__await__"):
                        value = step(value)
                except BaseException as error:
                    events += connection.fail(event.call, error)
                else:
                    events += connection.finish(event.call, value)


def step(awaitable: object) -> object:
    """Await something that never waits."""
    try:
        awaitable.__await__().send(None)  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value
    raise AssertionError("the servers of transcripts never wait")


@pytest.mark.parametrize("size", [None, 1, 7, 64], ids=lambda size: f"chunks of {size}")
@pytest.mark.parametrize(("transcript", "revision"), CASES)
def test_the_bare_core_says_what_the_transcript_says(transcript: Transcript, revision: str, size: int | None) -> None:
    connection = SERVERS[transcript.server]().connect()
    for sent, expected in transcript.lines(revision):
        feed(connection, b"".join(line + b"\n" for line in sent), size)
        compare(expected, connection.messages_to_send(), revision)


NOT_MOUNTED = "sources/custom_methods"
"""Custom methods are those of the server around."""


@pytest.mark.parametrize("mounts", [1, 3])
@pytest.mark.parametrize(
    ("transcript", "revision"), [each for each in CASES if not (each.id or "").startswith(NOT_MOUNTED)]
)
def test_through_mounts_the_transcript_says_the_same(transcript: Transcript, revision: str, mounts: int) -> None:
    connection = through_mounts(SERVERS[transcript.server](), mounts).connect()
    for sent, expected in transcript.lines(revision):
        feed(connection, b"".join(line + b"\n" for line in sent), None)
        compare(expected, connection.messages_to_send(), revision)


PATIENCE = 60.0


def converse(
    transcript: Transcript, revision: str, send: Callable[[bytes], None], receive: Callable[[float], bytes]
) -> None:
    """Hold the conversation of a transcript over a face, and make sure that nothing comes after it."""
    got: list[bytes] = []

    def wait_for(count: int) -> None:
        give_up = time.monotonic() + PATIENCE
        while len(got) < count and (left := give_up - time.monotonic()) > 0:
            got.extend(line for line in receive(left).split(b"\n") if line)

    for sent, expected in transcript.lines(revision):
        send(b"".join(line + b"\n" for line in sent))
        wait_for(len(expected))
        compare(expected, got, revision)
        got.clear()
    send(json.dumps(last_word(revision)).encode() + b"\n")
    wait_for(1)
    assert [json.loads(line).get("id") for line in got] == ["the last word"]


def last_word(revision: str) -> dict[str, Any]:
    """A request that every server answers at once."""
    message = {"jsonrpc": "2.0", "id": "the last word", "method": "ping"}
    if revision not in MODERN:
        return message
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": revision, f"{prefix}clientCapabilities": {}}
    return message | {"method": "server/discover", "params": {"_meta": meta}}


@pytest.mark.parametrize(("transcript", "revision"), CASES)
def test_memory_says_what_the_transcript_says(transcript: Transcript, revision: str) -> None:
    with MemoryTransport(SERVERS[transcript.server]()) as pipe:
        converse(transcript, revision, pipe.send, pipe.receive)


@pytest.fixture(scope="module")
def prepared() -> Iterator[socket.socket]:
    """A socket to a process that forks servers: to start Python and import everything would take most of the time."""
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    command = [sys.executable, str(Path(__file__).parent / "serve.py"), "--prepared", str(theirs.fileno())]
    with ours, subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            yield ours
        finally:
            ours.shutdown(socket.SHUT_WR)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:  # a server has not ended, for which the process waits
                process.kill()
                raise


@contextmanager
def process_of(server: str, prepared: socket.socket) -> Iterator[tuple[int, int]]:
    """Serve over stdio in a process; give the descriptors to write to and to read from. In the end it must leave by itself."""
    (their_input, to), (back, their_output) = os.pipe(), os.pipe()
    try:
        socket.send_fds(prepared, [server.encode()], [their_input, their_output])
        os.close(their_input)
        os.close(their_output)
        yield to, back
    finally:
        os.close(to)
        status = prepared.recv(16)
        os.close(back)
    assert status == b"0\n"


@pytest.mark.parametrize(("transcript", "revision"), CASES)
def test_stdio_says_what_the_transcript_says(transcript: Transcript, revision: str, prepared: socket.socket) -> None:
    rest = b""
    with process_of(transcript.server, prepared) as (to, back):

        def receive(timeout: float) -> bytes:
            nonlocal rest
            if not select.select([back], [], [], timeout)[0]:
                return b""
            whole, newline, rest = (rest + os.read(back, 1 << 16)).rpartition(b"\n")
            return whole + newline

        converse(transcript, revision, lambda data: write(to, data), receive)


def write(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
