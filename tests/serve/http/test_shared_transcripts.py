"""The transcripts of handshake sessions, with every message sent to a different one of three processes."""

from __future__ import annotations

import re

import pytest
from http_faces import Live, Scattered

from linkspan.revisions import LEGACY
from servers import SERVERS
from transcript import Transcript, compare, load

BOTH = "application/json, text/event-stream"
OF_BYTE_STREAMS = (
    "asking/answer_too_long",
    "eras/interleaved",
    "messages/bad_ids",
    "messages/bad_ids_early",
    "messages/batch",
    "messages/not_a_message",
    "messages/not_json",
    "messages/silence",
    "messages/too_",
)
"""What these show is that a byte stream goes on, or they need headers over HTTP."""
NAME = re.compile(r'"([0-9a-f]{12}\.\d+\.([^"]+)/\d+)"')
"""The id of a question: the process that has asked, the request that it is about, and a number."""
CASES = [
    pytest.param(transcript, revision, id=f"{transcript.name}@{revision}")
    for transcript in load()
    for revision in transcript.revisions
    if revision in LEGACY and not transcript.name.startswith(OF_BYTE_STREAMS)
]


class Conversation:
    """One client, whose requests each reach another process."""

    def __init__(self, three: Scattered) -> None:
        self._three = three
        self._headers = {"accept": BOTH}
        self._lives: list[Live] = []
        self._names: dict[str, str] = {}

    def begin(self, lines: list[bytes]) -> None:
        """Shake hands, and open the GET stream."""
        hello, ready = lines
        self.send(hello)
        self._headers["mcp-session-id"] = self._lives[0].begin().headers["mcp-session-id"]
        self.send(ready)
        self._lives.append(self._three.open("GET", self._headers | {"accept": "text/event-stream"}))

    def send(self, line: bytes) -> None:
        """Post one message."""
        text = line.decode()
        for whole, name in self._names.items():
            text = text.replace(f'"{name}"', f'"{whole}"')
        self._lives.append(self._three.open("POST", self._headers, text))

    def received(self) -> list[bytes]:
        """Take all messages that have come, with the ids of questions as one process would write them."""
        found: list[str] = []
        for live in self._lives:
            while not live.waiting:
                live._take()
            found += [each.data for each in live._events if each.data]
            live._events.clear()
            if live.ended and live.body and not live.kind.startswith("text/event-stream"):
                found.append(live.body.decode())
                live.body = b""
        for whole, request in NAME.findall("".join(found)):
            self._names.setdefault(whole, f"{request}/{len(self._names) + 1}")
        return [NAME.sub(lambda found: f'"{self._names[found[1]]}"', text).encode() for text in found]


@pytest.mark.parametrize(("transcript", "revision"), CASES)
def test_three_processes_say_what_the_transcript_says(transcript: Transcript, revision: str) -> None:
    client = Conversation(Scattered(SERVERS[transcript.server]()))
    (hello, welcome), *steps = transcript.lines(revision)
    client.begin(hello)
    compare(welcome, client.received(), revision)
    for sent, expected in steps:
        for line in sent:
            client.send(line)
        compare(expected, client.received(), revision)
