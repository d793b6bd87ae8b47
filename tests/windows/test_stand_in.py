"""The branches for Windows, elsewhere: in a process that `like_windows.py` makes as unkind as Windows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from pipes import Piped

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the other tests show these branches here")

HARBOUR = str(Path(__file__).parent / "harbour.py")
TESTS = str(Path(__file__).parents[1])


def like_windows(code: str) -> list[str]:
    return ["-c", f"import sys; sys.path.insert(0, {TESTS!r}); import like_windows\n{code}"]


LINKSPAN = like_windows("from linkspan.cli.main import main; sys.exit(main(sys.argv[1:]))")


@pytest.mark.parametrize("tool", ["inline", "plain", "on_loop"])
def test_a_server_answers(tool: str) -> None:
    with Piped("run", HARBOUR, program=LINKSPAN) as server:
        text = "a ship " * 100_000
        assert server.call(1, tool, text=text) == text
        server.hang_up()
        assert server.end() == 0
        assert server.errors.split() == ["opened", "closed"]


def test_a_function_that_blocks_does_not_outlive_the_input() -> None:
    with Piped("run", HARBOUR, program=LINKSPAN) as server:
        server.ask(1, "tools/call", name="block", arguments={})
        server.wait_for_error("blocking")
        server.hang_up()
        assert server.end() == 0


def test_a_server_is_a_part_of_a_program_on_its_own_event_loop() -> None:
    program = like_windows(
        f"import asyncio, runpy\nserver = runpy.run_path({HARBOUR!r})['server']\nasyncio.run(server.serve('stdio'))\n"
    )
    with Piped(program=program) as server:
        assert server.call(1, "on_loop", text="Oban") == "Oban"
        assert server.call(2, "plain", text="Oban") == "Oban"
        server.hang_up()
        assert server.end() == 0
        assert server.errors.split() == ["opened", "closed"]


CLIENT = f"""
from linkspan import SyncClient
with SyncClient([{sys.executable!r}, "-m", "linkspan", "run", {HARBOUR!r}]) as client:
    text = "a ship " * 100_000
    assert client.call_tool("plain", {{"text": text}}).text == text
    try:
        client.call_tool("die")
    except ConnectionError as error:
        print(error)
    print(client.call_tool("on_loop", {{"text": "rebuilt"}}).text)
"""
ASYNC_CLIENT = f"""
import asyncio
from linkspan import Client
async def main():
    async with Client([{sys.executable!r}, "-m", "linkspan", "run", {HARBOUR!r}]) as client:
        calls = [client.call_tool("plain", {{"text": str(number)}}) for number in range(9)]
        print(*(result.text for result in await asyncio.gather(*calls)))
asyncio.run(main())
"""


def test_a_sync_client_calls() -> None:
    with Piped(program=like_windows(CLIENT)) as program:
        assert program.end() == 0, program.errors
        out = program.rest().decode()
        assert "exit status 3" in out
        assert "the harbour burns" in out
        assert out.endswith("rebuilt\n")


def test_an_async_client_calls() -> None:
    with Piped(program=like_windows(ASYNC_CLIENT)) as program:
        assert program.end() == 0, program.errors
        assert program.rest() == b"0 1 2 3 4 5 6 7 8\n"


def test_a_trace_relays() -> None:
    with Piped("trace", "--", sys.executable, "-m", "linkspan", "run", HARBOUR, program=LINKSPAN) as trace:
        text = "a ship " * 100_000
        assert trace.call(1, "plain", text=text) == text
        trace.hang_up()
        assert trace.end() == 0
