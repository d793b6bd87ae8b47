"""Every transcript, at every revision it applies to, through every face."""

from __future__ import annotations

import pytest

from linkspan.core.connection import ServerConnection
from linkspan.events import CallReady
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
                    if hasattr(value, "send"):
                        value = step(value)
                except BaseException as error:
                    events += connection.fail(event.call, error)
                else:
                    events += connection.finish(event.call, value)


def step(coroutine: object) -> object:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
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
