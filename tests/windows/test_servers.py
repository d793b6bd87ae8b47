"""Servers over standard input and output, and over HTTP."""

from __future__ import annotations

import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from pipes import Piped

import pytest

from linkspan import SyncClient
from linkspan.flows.client_errors import ClientError

HARBOUR = str(Path(__file__).parent / "harbour.py")
NO_CONSOLE = "without a console no process can be interrupted from outside"


@pytest.mark.parametrize("tool", ["inline", "plain", "on_loop", "isolated"])
def test_a_tool_answers_and_the_server_ends_with_its_input(tool: str) -> None:
    with Piped("run", HARBOUR) as server:
        server.shake_hands()
        assert server.call(1, tool, text="Oban") == "Oban"
        assert server.call(2, tool, text="Łódź ⚓") == "Łódź ⚓"
        server.hang_up()
        assert server.end() == 0
        assert server.errors.split() == ["opened", "closed"]


def test_lines_are_utf_8_and_end_with_a_newline_alone() -> None:
    with Piped("run", HARBOUR) as server:
        server.ask(1, "tools/call", name="plain", arguments={"text": "\u0141\u00f3d\u017a\r\n\x1a"})
        line = server.read_line()
        assert not line.endswith(b"\r")
        assert "\u0141\u00f3d\u017a".encode() in line


@pytest.mark.parametrize("tool", ["plain", "on_loop"])
def test_two_megabytes_pass_in_both_directions(tool: str) -> None:
    with Piped("run", HARBOUR) as server:
        text = "a ship " * 300_000
        assert server.call(1, tool, text=text) == text


def test_what_was_asked_before_the_end_of_the_input_is_answered() -> None:
    with Piped("run", HARBOUR) as server:
        for number in range(50):
            server.ask(number, "tools/call", name="plain", arguments={"text": str(number)})
        server.hang_up()
        assert {server.read()["id"] for _ in range(50)} == {*range(50)}
        assert server.end() == 0


def test_what_a_tool_prints_reaches_stderr_and_never_the_client() -> None:
    with Piped("run", HARBOUR) as server:
        assert server.call(1, "prints", text="Oban") == "Oban"
        assert server.call(2, "plain", text="still in order") == "still in order"
        server.wait_for_error("from a child")
        assert "harbour.py" in server.errors


def test_a_function_that_blocks_does_not_outlive_the_input() -> None:
    with Piped("run", HARBOUR) as server:
        server.ask(1, "tools/call", name="block", arguments={})
        server.wait_for_error("blocking")
        server.hang_up()
        assert server.end() == 0


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 0), ("SIGBREAK", 0)])
@pytest.mark.parametrize("tool", ["raise_signal", "raise_signal_on_loop", "raise_signal_and_block"])
def test_a_signal_ends_the_server_whatever_it_runs(tool: str, name: str, status: int) -> None:
    if not hasattr(signal, name):
        pytest.skip(f"there is no {name} here")
    with Piped("run", HARBOUR) as server:
        server.ask(1, "tools/call", name=tool, arguments={"name": name})
        assert server.end() == status
        assert tool == "raise_signal_and_block" or "closed" in server.errors


def test_a_server_is_asked_to_end_from_outside() -> None:
    with Piped("run", HARBOUR) as server:
        assert server.call(1, "plain", text="Oban") == "Oban"
        if not server.interrupt():
            pytest.skip(NO_CONSOLE)
        assert server.end() == 0
        assert "closed" in server.errors


def test_a_server_is_a_part_of_a_program_on_its_own_event_loop(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, runpy\n"
        f"server = runpy.run_path({HARBOUR!r})['server']\n"
        "async def main():\n"
        "    beat = asyncio.create_task(asyncio.sleep(600))\n"
        "    await server.serve('stdio')\n"
        "    beat.cancel()\n"
        "asyncio.run(main())\n"
    )
    with Piped(program=[str(program)]) as server:
        assert server.call(1, "on_loop", text="Oban") == "Oban"
        assert server.call(2, "plain", text="Oban") == "Oban"
        server.hang_up()
        assert server.end() == 0


def test_http_is_served_until_a_signal() -> None:
    with Piped("run", "--http", HARBOUR, "--port", "0") as server:
        server.wait_for_error("/mcp")
        url = next(word for word in server.errors.split() if word.startswith("http://"))
        request = urllib.request.Request(url, headers={"accept": "text/html"})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert b"harbour" in response.read()
        with SyncClient(url) as client, suppress(ClientError):
            client.call_tool("raise_signal", {"name": "SIGTERM"})
        assert server.end() == 0
        assert "closed" in server.errors
