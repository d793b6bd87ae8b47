"""Clients of servers that they start."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from linkspan import Client, SyncClient, Timeouts
from linkspan.flows.client_errors import ClientError, ConnectionLost

HARBOUR = Path(__file__).parent / "harbour.py"
COMMAND = [sys.executable, "-m", "linkspan", "run", str(HARBOUR)]
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "the default loop": asyncio.new_event_loop,
    "a selector loop": asyncio.SelectorEventLoop,
}
every_loop = pytest.mark.parametrize("loop", LOOPS.values(), ids=[each.replace(" ", "_") for each in LOOPS])


class Holders:
    """Processes that are connected to a port for as long as they live."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.port: int = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []

    def accept(self) -> None:
        """Wait for one more."""
        held, _ = self._listener.accept()
        held.settimeout(60)
        self._held.append(held)

    def wait_until_gone(self) -> None:
        """Wait until all have ended."""
        for held in self._held:
            with suppress(ConnectionError):  # an ended process may reset its connections
                assert held.recv(1) == b""
            held.close()
        self._held.clear()

    def close(self) -> None:
        for each in (self._listener, *self._held):
            each.close()


@pytest.fixture
def holders() -> Iterator[Holders]:
    found = Holders()
    yield found
    found.close()


@pytest.mark.parametrize("target", [str(HARBOUR), COMMAND], ids=["a_file", "a_command"])
def test_a_sync_client_calls(target: str | list[str]) -> None:
    with SyncClient(target) as client:
        assert client.call_tool("plain", {"text": "Łódź"}).text == "Łódź"
        assert client.call_tool("on_loop", {"text": "Oban"}).text == "Oban"


@every_loop
def test_an_async_client_calls(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> list[str]:
        async with Client(str(HARBOUR)) as client:
            calls = [client.call_tool("plain", {"text": str(number)}) for number in range(20)]
            return [result.text for result in await asyncio.gather(*calls)]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == [str(number) for number in range(20)]


def test_threads_share_a_client() -> None:
    with SyncClient(COMMAND) as client:
        found: list[str] = []

        def call(number: int) -> None:
            found.append(client.call_tool("plain", {"text": str(number)}).text)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(found, key=int) == [str(number) for number in range(20)]


def test_two_megabytes_pass_in_both_directions() -> None:
    with SyncClient(COMMAND) as client:
        text = "a ship " * 300_000
        assert client.call_tool("plain", {"text": text}).text == text


def test_progress_arrives() -> None:
    with SyncClient(COMMAND) as client:
        seen: list[float] = []
        client.call_tool("counts", {"to": 5}, on_progress=lambda progress: seen.append(progress.progress))
        assert seen == [1, 2, 3, 4, 5]


def test_the_end_of_a_server_is_reported_with_its_last_words() -> None:
    with SyncClient(COMMAND) as client:
        with pytest.raises(ConnectionLost) as caught:
            client.call_tool("die")
        assert "exit status 3" in str(caught.value)
        assert "the harbour burns" in str(caught.value)
        assert client.call_tool("plain", {"text": "rebuilt"}).text == "rebuilt"


def test_a_call_that_takes_too_long_ends() -> None:
    with SyncClient(COMMAND, timeouts=Timeouts(close=0.5)) as client:
        client.call_tool("plain", {"text": "Oban"})
        with pytest.raises(ClientError, match="timed out"):
            client.call_tool("block", timeout=1)


def test_what_a_server_has_started_ends_with_it(holders: Holders) -> None:
    with SyncClient(COMMAND) as client:
        client.call_tool("hold", {"port": holders.port})
        holders.accept()
        client.call_tool("start_another", {"port": holders.port})
        holders.accept()
    holders.wait_until_gone()


def test_a_server_that_reads_nothing_is_ended_all_the_same(tmp_path: Path, holders: Holders) -> None:
    deaf = tmp_path / "deaf.py"
    deaf.write_text(
        f"import socket, sys, time\nheld = socket.create_connection(('127.0.0.1', {holders.port}))\ntime.sleep(600)\n"
    )
    client = SyncClient([sys.executable, str(deaf)], era="legacy", timeouts=Timeouts(close=0.5, connect=3))

    def call() -> None:
        with pytest.raises(ClientError):
            client.call_tool("plain", {"text": "a ship " * 300_000})

    caller = threading.Thread(target=call)
    caller.start()
    holders.accept()
    caller.join(60)
    client.close()
    holders.wait_until_gone()


def test_a_client_that_is_killed_takes_its_servers_along(tmp_path: Path, holders: Holders) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time\nfrom linkspan import SyncClient\n"
        f"client = SyncClient({COMMAND!r})\n"
        f"client.call_tool('hold', {{'port': {holders.port}}})\n"
        f"client.call_tool('start_another', {{'port': {holders.port}}})\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, str(program)])
    holders.accept()
    holders.accept()
    process.kill()
    process.wait(60)
    holders.wait_until_gone()


def test_what_comes_after_a_close_is_another_server() -> None:
    client = SyncClient(COMMAND)
    for number in range(3):
        with client:
            assert client.call_tool("plain", {"text": str(number)}).text == str(number)


def test_many_clients_close_in_time() -> None:
    clients = [SyncClient(COMMAND) for _ in range(3)]
    for client in clients:
        client.call_tool("plain", {"text": "Oban"})
    began = time.monotonic()
    for client in clients:
        client.close()
    assert time.monotonic() - began < 30


# Commands that are scripts: `npx` and `uvx` are `.cmd` files on Windows.

IS_WINE = os.name == "nt" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")
HOSTILE = [
    "plain", "", "two words", 'a "quoted" word', "ends\\", 'ends\\"', "a & calc", "| more", "> out", "^caret", "!PATH!", "(a)",
    "semi;colon,comma=", "100 %", "Łódź", "'single'", "*?", "a\ttab",
]  # fmt: skip


def launcher(folder: Path, program: Path) -> str:
    """Write a launcher as npm does; return its name, as users write it."""
    if os.name == "nt":
        script = f'@ECHO off\r\n"{sys.executable}" "{program}" %*\r\n'
        (folder / "launch.cmd").write_text(script)
    else:
        file = folder / "launch"
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
        file.chmod(0o755)
    return "launch"


def test_a_script_on_the_path_is_a_command(tmp_path: Path) -> None:
    name = launcher(tmp_path, HARBOUR)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    with SyncClient([name], env={"PATH": path}) as client:
        assert client.call_tool("plain", {"text": "Oban"}).text == "Oban"


@pytest.mark.parametrize("argument", HOSTILE)
def test_an_argument_of_a_script_arrives_as_it_is(argument: str, tmp_path: Path) -> None:
    if "%" in argument and IS_WINE:
        pytest.skip("wine's cmd.exe drops a percent sign, however it is written")
    program, seen = tmp_path / "program.py", tmp_path / "seen.json"
    program.write_text(
        f"import json, pathlib, runpy, sys\n"
        f"pathlib.Path({str(seen)!r}).write_text(json.dumps(sys.argv[1:]))\n"
        f"sys.argv[1:] = []\nrunpy.run_path({str(HARBOUR)!r}, run_name='__main__')\n"
    )
    folder = tmp_path / "with spaces & more"
    folder.mkdir()
    name = launcher(folder, program)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    with SyncClient([name, argument, "last"], env={"PATH": path}) as client:
        assert client.call_tool("plain", {"text": "Oban"}).text == "Oban"
    assert json.loads(seen.read_text()) == [argument, "last"]


def test_what_a_script_has_started_ends_with_it(tmp_path: Path, holders: Holders) -> None:
    name = launcher(tmp_path, HARBOUR)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    with SyncClient([name], env={"PATH": path}) as client:
        client.call_tool("hold", {"port": holders.port})
        holders.accept()
    holders.wait_until_gone()


def test_a_command_line_is_one_text() -> None:
    line = subprocess.list2cmdline(COMMAND) if os.name == "nt" else " ".join(COMMAND)
    with SyncClient(line) as client:
        assert client.call_tool("plain", {"text": "Oban"}).text == "Oban"
