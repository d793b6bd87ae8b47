"""What is put into an outbox leaves it in order; a slow reader is waited for where that is asked for."""

from __future__ import annotations

import os
import threading

from linkspan.runtime.descriptors import Outbox

PATIENCE = 60.0
MUCH = b"x" * (1 << 20)


def test_all_that_was_put_before_the_end_leaves_in_order() -> None:
    reader, writer = os.pipe()
    outbox = Outbox(writer)
    for number in range(100):
        outbox.put(b"%d," % number)
    outbox.end()
    outbox.put(b"too late")
    outbox.thread.join(PATIENCE)
    os.close(writer)
    with open(reader, "rb") as stream:
        assert stream.read() == b"".join(b"%d," % number for number in range(100))


def test_putting_never_waits_and_asking_for_room_does() -> None:
    reader, writer = os.pipe()
    outbox = Outbox(writer, room=1)
    outbox.put(MUCH)
    waiting = threading.Thread(target=outbox.wait_for_room, daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), "the pipe holds less than that"
    left = len(MUCH)
    while left:
        left -= len(os.read(reader, left))
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    outbox.end()
    outbox.thread.join(PATIENCE)
    os.close(writer)
    os.close(reader)


def test_it_is_heard_that_nobody_reads_and_nobody_waits_for_room_any_more() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    broken = threading.Event()
    outbox = Outbox(writer, room=1, on_broken=broken.set)
    outbox.put(MUCH)
    assert broken.wait(PATIENCE)
    outbox.wait_for_room()
    outbox.thread.join(PATIENCE)
    os.close(writer)
