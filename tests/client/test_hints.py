"""What a client suggests where a server refuses, or has nothing to serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wild import error, result, wild

from linkspan import ConnectError, Context, Server, ServerError, SyncClient, ToolFailed
from linkspan.cli.session import for_the_shell
from linkspan.flows.client_errors import hint_for_refusal

NO_WAY_BACK = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."
)
OLDER = 'the server asks in the way of older revisions: pass era="legacy" to the client [LS-307]'


def asker() -> Server:
    server = Server("asker")

    @server.tool
    def ask(ctx: Context) -> str:
        return ctx.ask("name", str, "Name?")

    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_without_a_handler_is_named_the_option(era: Any) -> None:
    with SyncClient(asker(), era=era) as client, pytest.raises((ServerError, ToolFailed)) as raised:
        client.call_tool("ask").raise_for_error()
    assert raised.value.hint == "pass elicitation=... to the client [LS-303]"


FAILED = {"resultType": "complete", "content": [{"type": "text", "text": NO_WAY_BACK}], "isError": True}


@pytest.mark.parametrize(
    "answer",
    [error(-32600, NO_WAY_BACK), result(FAILED)],
    ids=["error", "result"],
)
def test_a_server_that_asks_as_in_the_handshake_era_is_recognized_and_called_once(answer: Any) -> None:
    lines: list[str] = []
    plan = {"tools/call ask": [{"stderr": "called"}, answer]}
    with SyncClient(wild(plan), on_stderr=lines.append) as client, pytest.raises((ServerError, ToolFailed)) as raised:
        client.call_tool("ask").raise_for_error()
    assert "".join(lines).count("called") == 1
    assert raised.value.hint == OLDER
    assert (
        for_the_shell(raised.value).hint == "the server asks in the way of older revisions: pass --era legacy [LS-307]"
    )


def test_other_refusals_have_no_hint() -> None:
    assert hint_for_refusal("no") is None
    assert hint_for_refusal("no", {"requiredCapabilities": {"acme": {}}}) is None


def test_a_file_without_a_server_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.py"
    file.write_text("x = 1\n")
    with pytest.raises(ConnectError) as raised, SyncClient(file) as client:
        client.list_tools()
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("notes.py ended without serving: write `server = linkspan.Server(...)`")


def test_a_variable_that_the_shell_has_is_passed_on_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weather.py"
    file.write_text("import os\nfrom linkspan import Server\nserver = Server('weather')\nos.environ['WEATHER_KEY']\n")
    with pytest.raises(ConnectError) as raised, SyncClient(file) as client:
        client.list_tools()
    without = "it needs the environment variable WEATHER_KEY: pass --env WEATHER_KEY=... [LS-114]"
    assert for_the_shell(raised.value).hint == without
    monkeypatch.setenv("WEATHER_KEY", "secret")
    passed_on = "--env WEATHER_KEY (the shell has it, but a server gets only what is named)"
    assert for_the_shell(raised.value).hint == without.replace("--env WEATHER_KEY=...", passed_on)
