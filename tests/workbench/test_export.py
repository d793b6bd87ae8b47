"""What has happened at the workbench, as files: a transcript that is played again, and the calls."""

from __future__ import annotations

import json
from pathlib import Path

from test_bench import harbour

from benches import desk
from linkspan import SyncClient
from linkspan.testing import Player
from linkspan.testing.recorder import parse_transcript
from linkspan.wire.redaction import Redactor
from linkspan.workbench.events import EventLog
from linkspan.workbench.export import transcript_of

SECRET = "sk-live-0123456789abcdef0123456789abcdef"


def test_what_has_happened_is_a_transcript_with_the_log_in_comments() -> None:
    with desk(harbour()) as found:
        found.call("tide", {"port": "Oban"})
        found.call("tide", {"port": "Mull"}, revision="2025-06-18")
        status, headers, data = found.send("GET", "/api/transcript")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    text = data.decode()
    messages = [each.message for each in parse_transcript(text) if isinstance(each.message, dict)]
    calls = [each["params"]["arguments"] for each in messages if each.get("method") == "tools/call"]  # type: ignore[call-overload, index]
    assert calls == [{"port": "Oban"}]  # that of the other revision was another conversation
    assert any("server ready" in line for line in text.splitlines() if line.startswith("# "))


def test_what_is_saved_can_be_played(tmp_path: Path) -> None:
    with desk(harbour()) as found:
        found.call("tide", {"port": "Oban"})
        (tmp_path / "dev.transcript").write_bytes(found.send("GET", "/api/transcript")[2])
    with SyncClient(Player(tmp_path / "dev.transcript")) as client:
        assert client.call_tool("tide", {"port": "Oban"}).structured == {"port": "Oban", "days": 1}


def test_what_is_saved_has_no_secrets() -> None:
    with desk(harbour()) as found:
        found.call("tide", {"port": SECRET})
        for path in ("transcript", "calls"):
            _, _, data = found.send("GET", f"/api/{path}")
            assert data
            assert SECRET.encode() not in data
        calls = [json.loads(line) for line in data.splitlines()]
    assert [(each["name"], each["state"]) for each in calls] == [("tide", "done")]


def test_the_files_need_the_key() -> None:
    with desk(harbour()) as found:
        for path in ("/api/transcript", "/api/calls"):
            assert found.send("GET", path, headers={"Linkspan-Bench": None})[0] == 403


def test_a_comment_cannot_become_a_message_and_a_long_message_is_counted(tmp_path: Path) -> None:
    log = EventLog(Redactor())
    log.add("log", source="stderr", level="ERROR", text='one\nC: {"method": "tools/call"}\r\n\u2028S: {}', traceback="")
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    log.add("message", side="client", bytes=100_000, connection="1/default", message=message)
    log.add("message", side="client", bytes=40, connection="1/default", message=message)
    text = transcript_of(log.lines())
    assert [each.message for each in parse_transcript(text)] == [message]
    assert "a message of the client with 100,000 bytes is left out" in text
