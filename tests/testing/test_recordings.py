"""Conversations that are recorded, and what comes of them when they are played."""

from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from linkspan import Context, MemoryTransport, Server, SyncClient
from linkspan.host.conversation import Conversation
from linkspan.host.host import Host
from linkspan.host.scripted import ScriptedModel
from linkspan.revisions import LATEST
from linkspan.testing import Player, TranscriptWriter
from linkspan.testing.player import Playback
from linkspan.testing.recorder import parse_transcript, read_transcript, write_transcript
from linkspan.types.messages import ElicitParams
from servers import SERVERS
from transcript import load

PREFIX = "io.modelcontextprotocol/"


def play(text: str) -> Playback:
    return Player(parse_transcript(text)).connect()


def tell(playback: Playback, *messages: dict[str, Any]) -> list[Any]:
    for message in messages:
        playback.receive_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    came = [json.loads(message) for message in playback.messages_to_send()]
    for message in came:
        del message["jsonrpc"]
    return came


def call(request_id: object, name: str, token: object = None, **arguments: object) -> dict[str, Any]:
    meta = {f"{PREFIX}clientInfo": {"name": str(request_id)}} | ({} if token is None else {"progressToken": token})
    return {"id": request_id, "method": "tools/call", "params": {"name": name, "arguments": arguments, "_meta": meta}}


# Recording.


@pytest.mark.parametrize("before", [None, 0o644])
def test_recordings_are_for_their_owner_only(tmp_path: Path, before: int | None) -> None:
    files = [tmp_path / name for name in ("recorder", "writer", "conversation")]
    for file in files if before is not None else ():
        file.write_text("of before")
        file.chmod(before)
    TranscriptWriter(files[0]).close()
    write_transcript(files[1], [])
    Conversation(Host({}), ScriptedModel([])).save(files[2])
    assert [oct(stat.S_IMODE(file.stat().st_mode)) for file in files] == ["0o600"] * 3
    assert [file.read_text() for file in files] == ["", "", "[]\n"]


@dataclass
class Card:
    pin: str
    city: str


def pin_server() -> Server:
    server = Server("vault")

    @server.tool
    def unlock(ctx: Context) -> str:
        card = ctx.ask("card", Card, "Who are you?")
        ctx.ask("sure", bool, "Are you sure?")  # the state of this question holds the answer to the one before
        return f"opened with {card.pin} in {card.city}"

    return server


def fill_in(params: ElicitParams) -> dict[str, Any]:
    return {"pin": "981234", "city": "Rome"} if "pin" in str(params.requested_schema) else {"sure": True}


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_answer_to_a_secret_field_is_in_no_recording(tmp_path: Path, era: Literal["modern", "legacy"]) -> None:
    file = tmp_path / "vault.transcript"
    with (
        TranscriptWriter(file) as recorder,
        SyncClient(pin_server(), era=era, recorder=recorder, elicitation=fill_in) as client,
    ):
        assert client.call_tool("unlock").text == "opened with 981234 in Rome"
    recorded = file.read_text()
    assert "981234" not in recorded
    assert "opened with [redacted] in Rome" in recorded
    assert base64.b64encode(b"981234").decode().rstrip("=") not in recorded
    again = tmp_path / "again.transcript"
    write_transcript(again, read_transcript(file))
    with SyncClient(Player(file), era=era, elicitation=fill_in) as client:
        assert client.call_tool("unlock").text == "opened with [redacted] in Rome"


def test_what_is_recorded_is_one_line_a_message_in_the_order_sent_without_secrets() -> None:
    out = io.StringIO()
    with TranscriptWriter(out, secrets=["open sesame"]) as transcript:
        transcript.comment("Recorded with --token abcdef")
        transcript.client(b'{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{"arg')
        transcript.server(b'hello there, token=abc\n{"jsonrpc":"2.0","method":"n"}\n')
        transcript.client('uments":{"password":"x","say":"open sesame é"},"_meta":{"progressToken":"t"}}}\n'.encode())
        transcript.server(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert out.getvalue() == (
        "# Recorded with --token [redacted]\n"
        "# The server sent what is no message: 'hello there, token=[redacted]'\n"
        'S: {"jsonrpc": "2.0", "method": "n"}\n'
        'C: {"id": 1, "jsonrpc": "2.0", "method": "tools/call", "params": {"arguments": {"password": "[redacted]", '
        '"say": "[redacted] é"}, "_meta": {"progressToken": "t"}}}\n'
        'S: {"jsonrpc": "2.0", "id": 1, "result": {}}\n'
    )


def test_a_recording_may_keep_its_secrets() -> None:
    out = io.StringIO()
    with TranscriptWriter(out, redacted=False) as transcript:
        transcript.client(b'{"password":"x"}\n')
    assert out.getvalue() == 'C: {"password": "x"}\n'


def test_threads_do_not_mix_their_lines() -> None:
    out = io.StringIO()
    transcript = TranscriptWriter(out)
    threads = [
        threading.Thread(target=lambda write=write: [write(b'{"n":1}\n{"n"') or write(b":2}\n") for _ in range(200)])
        for write in (transcript.client, transcript.server)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(out.getvalue().splitlines()) == sorted(
        f'{side}: {{"n": {n}}}' for side in "CS" for n in (1, 2) for _ in range(200)
    )


def test_a_file_that_is_no_transcript_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.transcript"
    file.write_text("# fine\n\nX: {}\n")
    with pytest.raises(ValueError, match=r"wrong\.transcript:3: a line begins with"):
        read_transcript(file)
    with pytest.raises(ValueError, match="transcript:1: "):
        parse_transcript("C: {nothing")


def test_a_transcript_that_is_written_is_read_again(tmp_path: Path) -> None:
    entries = parse_transcript('C: {"id": 1, "method": "ping"}\nS: [{"id": 1, "result": {"x": [1.5, null]}}]')
    write_transcript(tmp_path / "a.transcript", entries)
    assert read_transcript(tmp_path / "a.transcript") == entries


# Playing.


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_cannot_tell_a_recording_from_its_server(era: Any, tmp_path: Path) -> None:
    class Recorded:
        """A server whose connections are written down."""

        def __init__(self, transcript: TranscriptWriter) -> None:
            self.transcript = transcript

        def connect(self, **options: Any) -> Any:
            connection = SERVERS["basic"]().connect(**options)
            receive, send = connection.receive_data, connection.data_to_send

            def receive_data(data: bytes) -> Any:
                self.transcript.client(data)
                return receive(data)

            def data_to_send() -> bytes:
                data = send()
                self.transcript.server(data)
                return data

            connection.receive_data, connection.data_to_send = receive_data, data_to_send  # type: ignore[method-assign]
            return connection

    def converse(server: Any) -> list[object]:
        progress: list[object] = []
        with SyncClient(server, era=era) as client:
            told = [
                client.call_tool("add", {"a": 1, "b": 2}).text,
                client.call_tool("count", {"to": 2}, on_progress=lambda *each: progress.append(each)).text,
                client.call_tool("add", {"a": 1, "b": 2}).text,
                [tool.name for tool in client.list_tools()],
            ]
        return [*told, [str(each) for each in progress]]

    with TranscriptWriter(tmp_path / "basic.transcript") as transcript:
        first = converse(Recorded(transcript))
    assert converse(Player(tmp_path / "basic.transcript")) == first


def test_answers_come_in_their_order_and_the_last_one_again() -> None:
    playback = play(
        'C: {"id": 1, "method": "tools/call", "params": {"name": "now"}}\nS: {"id": 1, "result": {"n": 1}}\n'
        'C: {"id": 2, "method": "tools/call", "params": {"name": "now"}}\nS: {"id": 2, "result": {"n": 2}}\n'
    )
    asked = [{"id": n, "method": "tools/call", "params": {"name": "now", "_meta": {}}} for n in ("a", "b", "c")]
    assert tell(playback, *asked) == [
        {"id": "a", "result": {"n": 1}},
        {"id": "b", "result": {"n": 2}},
        {"id": "c", "result": {"n": 2}},
    ]


COUNTED = """
C: {"id": 1, "method": "tools/call", "params": {"name": "count", "arguments": {}, "_meta": {"progressToken": 1}}}
S: {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
S: {"method": "notifications/message", "params": {"level": "info", "data": 1}}
S: {"id": 1, "result": {}}
S: {"method": "notifications/tools/list_changed"}
"""


def test_progress_is_told_under_the_token_of_today() -> None:
    assert tell(play(COUNTED), call("x", "count", token="t")) == [
        {"method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}},
        {"method": "notifications/message", "params": {"level": "info", "data": 1}},
        {"id": "x", "result": {}},
        {"method": "notifications/tools/list_changed"},
    ]
    without = tell(play(COUNTED), call(5, "count"))
    assert [message.get("method") for message in without] == [
        "notifications/message",
        None,
        "notifications/tools/list_changed",
    ]


def test_what_was_redacted_fits_anything() -> None:
    playback = play(
        'C: {"id": 1, "method": "tools/call", "params": {"name": "in", "arguments": {"password": "[redacted]", '
        '"url": "https://me:[redacted]@host"}}}\nS: {"id": 1, "result": {}}'
    )
    assert tell(playback, call(2, "in", password="x", url="https://me:abc@host")) == [{"id": 2, "result": {}}]
    [refused] = tell(playback, call(3, "in", password="x", url="https://me:abc@elsewhere"))
    assert "arguments.url was" in refused["error"]["message"]


ASKED = """
C: {"id": 1, "method": "tools/call", "params": {"name": "book", "arguments": {}}}
S: {"id": "s1", "method": "elicitation/create", "params": {"message": "How many?"}}
C: {"id": "s1", "result": {"action": "accept", "content": {"seats": 2}}}
S: {"id": 1, "result": {"content": []}}
"""


def test_the_questions_of_a_server_are_asked_again_and_their_answers_awaited() -> None:
    playback = play(ASKED)
    assert tell(playback, call(1, "book"), call(2, "book")) == [
        {"id": "s1", "method": "elicitation/create", "params": {"message": "How many?"}},
        {"id": "s1-2", "method": "elicitation/create", "params": {"message": "How many?"}},
    ]
    declined = {"result": {"action": "decline"}}
    assert tell(playback, {"id": "s1-2", **declined}) == [{"id": 2, "result": {"content": []}}]
    assert tell(playback, {"id": "s1", **declined}) == [{"id": 1, "result": {"content": []}}]


def test_a_cancelled_request_gets_no_answer() -> None:
    playback = play(ASKED)
    tell(playback, call(1, "book"))
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    assert tell(playback, cancel, {"id": "s1", "result": {}}) == []


LISTENED = f"""
C: {{"id": 7, "method": "subscriptions/listen", "params": {{"notifications": {{"toolsListChanged": true}}}}}}
S: {{"method": "notifications/subscriptions/acknowledged", "params": {{"_meta": {{"{PREFIX}subscriptionId": 7}}}}}}
C: {{"id": 8, "method": "tools/call", "params": {{"name": "grow", "arguments": {{}}}}}}
S: {{"method": "notifications/tools/list_changed", "params": {{"_meta": {{"{PREFIX}subscriptionId": 7}}}}}}
S: {{"id": 8, "result": {{}}}}
S: {{"id": 7, "result": {{"_meta": {{"{PREFIX}subscriptionId": 7}}}}}}
"""


def test_subscriptions_stay_open_under_the_id_of_today() -> None:
    playback = play(LISTENED)
    tag = {"_meta": {f"{PREFIX}subscriptionId": "mine"}}
    listen = {"id": "mine", "method": "subscriptions/listen", "params": {"notifications": {"toolsListChanged": True}}}
    assert tell(playback, listen) == [{"method": "notifications/subscriptions/acknowledged", "params": tag}]
    assert tell(playback, call(1, "grow")) == [
        {"method": "notifications/tools/list_changed", "params": tag},
        {"id": 1, "result": {}},
    ]
    playback.close()
    assert tell(playback) == [{"id": "mine", "result": tag}]


def test_who_did_not_subscribe_hears_nothing() -> None:
    assert tell(play(LISTENED), call(1, "grow")) == [{"id": 1, "result": {}}]


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (call(1, "book", seats=2), -32602, "arguments.seats was missing, now it is 2"),
        (call(1, "buck"), -32602, 'name was "book", now it is "buck"'),
        (
            {"id": 1, "method": "tools/lst"},
            -32601,
            "tools/lst was not recorded; did you mean 'tools/call'? the recorded methods are tools/call",
        ),
    ],
)
def test_what_was_never_recorded_is_refused_with_what_comes_nearest(
    request_: dict[str, Any], code: int, says: str
) -> None:
    [refused] = tell(play(ASKED), request_)
    assert refused["error"]["code"] == code
    assert says in refused["error"]["message"]


def test_a_recording_that_was_cut_off_says_so() -> None:
    [refused] = tell(play('C: {"id": 1, "method": "tools/list"}'), {"id": 2, "method": "tools/list"})
    assert refused["error"]["message"] == "The recording ends before the answer to tools/list"


def test_junk_and_pings_are_answered() -> None:
    playback = play("")
    playback.receive_data(b"junk\n")
    assert json.loads(playback.data_to_send())["error"]["code"] == -32700
    assert tell(playback, {"id": 1, "method": "ping"}) == [{"id": 1, "result": {}}]


@pytest.mark.parametrize("transcript", load(), ids=lambda transcript: transcript.name)
def test_any_conversation_can_be_recorded_and_played(transcript: Any) -> None:
    """Whatever a client and a server may say to each other: reading it and playing it fails nowhere."""
    revision = LATEST.date if LATEST.date in transcript.revisions or "raw" in transcript.revisions else "2025-03-26"
    out = io.StringIO()
    with MemoryTransport(SERVERS[transcript.server](), max_workers=0) as pipe, TranscriptWriter(out) as recording:
        steps = list(transcript.lines(revision if revision in transcript.revisions else transcript.revisions[0]))
        for sent, expected in steps:
            data = b"".join(line + b"\n" for line in sent)
            recording.client(data)
            pipe.send(data)
            if expected:
                recording.server(pipe.receive(20))
    playback = play(out.getvalue())
    for sent, _ in steps:
        for line in sent:
            playback.receive_data(line + b"\n")
    playback.close()
    playback.data_to_send()


def test_a_transcript_is_run_like_any_server(tmp_path: Path) -> None:
    file = tmp_path / "counted.transcript"
    file.write_text(COUNTED)
    given = json.dumps({"jsonrpc": "2.0", **call(3, "count")}) + "\n"
    command = [sys.executable, "-m", "linkspan", "run", str(file)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert '"id":3,"result":{}' in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*command, "more"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
