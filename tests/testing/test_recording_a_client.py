"""Record a real server once, and play it offline: through the client, over stdio and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkspan import Server, ServerError, SyncClient
from linkspan.testing import Player, TranscriptWriter

DICE = Path(__file__).parents[2] / "examples" / "dice.py"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_recorded_server_answers_the_same_again(tmp_path: Path, era: Any) -> None:
    file = tmp_path / "dice.transcript"
    with TranscriptWriter(file) as transcript, SyncClient(DICE, recorder=transcript, era=era) as client:
        rolled = client.call_tool("roll", {"sides": 20, "count": 5}).structured
        tools = client.list_tools()
    with SyncClient(Player(file), era=era) as client:
        assert client.call_tool("roll", {"sides": 20, "count": 5}).structured == rolled
        assert client.list_tools() == tools
        with pytest.raises(ServerError, match="sides was 20, now it is 6"):
            client.call_tool("roll", {"sides": 6, "count": 5})


def test_what_is_said_in_memory_is_recorded_without_its_secrets(tmp_path: Path) -> None:
    server = Server("vault")
    server.define_tool("login", input_schema={"type": "object"}, handler=lambda **_: "ok")
    file = tmp_path / "vault.transcript"
    with (
        TranscriptWriter(file, secrets=["open sesame"]) as transcript,
        SyncClient(server, recorder=transcript) as client,
    ):
        client.call_tool("login", {"password": "hunter2-hunter2", "note": "open sesame"})
    text = file.read_text()
    assert "hunter2" not in text
    assert "open sesame" not in text
    assert "tools/call" in text
