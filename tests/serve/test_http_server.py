"""`server.run("http")` as processes: the first line, signals, workers, ports that are taken."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from linkspan import Change, ClientError, SyncClient

TOOLS = Path(__file__).parent / "http_tools.py"
FREE = {"port": 0, "drain": 1.0}


class Process:
    """A server process and the URL that its first line says."""

    def __init__(self, options: dict[str, Any]) -> None:
        command = [sys.executable, str(TOOLS), json.dumps(FREE | options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.first_line = self.process.stderr.readline()
        found = re.search(r"http://\S+?(?=[,\s])", self.first_line)
        self.url = found[0] if found else ""

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to stop; return the exit status and what was on stderr after the first line."""
        self.process.send_signal(number)
        rest = self.process.communicate(timeout=60)[1]
        return self.process.returncode, rest


@contextmanager
def serving(**options: Any) -> Generator[Process]:
    server = Process(options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def get(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def listening_until_the_end(url: str) -> tuple[SyncClient, threading.Event, list[Change]]:
    """Return a client with an open stream, and an event that says that the stream has ended."""
    client = SyncClient(url)
    changes: list[Change] = []
    ended = threading.Event()
    subscription = client.listen(tools=True)

    def listen() -> None:
        changes.extend(subscription)
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    return client, ended, changes


def test_the_first_line_is_the_url_to_paste_into_a_client() -> None:
    with serving() as server:
        assert re.fullmatch(r"Serving MCP at http://127\.0\.0\.1:\d+/mcp\n", server.first_line)
        with SyncClient(server.url) as client:
            assert client.call_tool("pid").structured == {"result": server.process.pid}
        assert get(server.url.replace("/mcp", "/health")) == b"ok"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_an_idle_server_with_the_status_that_says_which(number: int, status: int) -> None:
    with serving() as server:
        assert server.stop(number) == (status, "")


def test_calls_end_in_their_time_when_the_server_is_asked_to_stop() -> None:
    with serving(drain=60.0) as server, SyncClient(server.url) as client:
        begun = threading.Event()
        texts: list[str] = []

        def call() -> None:
            texts.append(client.call_tool("sleep", {"seconds": 0.5}, on_progress=lambda _: begun.set()).text)

        caller = threading.Thread(target=call)
        caller.start()
        assert begun.wait(60)
        assert server.stop() == (0, "")
        caller.join(60)
        assert texts == ["awake"]


def test_a_call_that_takes_longer_than_the_drain_does_not_hold_the_process() -> None:
    with serving(drain=0.3) as server, SyncClient(server.url, retry="never") as client:
        begun = threading.Event()
        caller = threading.Thread(target=_ignoring_errors, args=(client, begun), daemon=True)
        caller.start()
        assert begun.wait(60)
        started = time.monotonic()
        status, _ = server.stop()
        assert status == 0
        assert time.monotonic() - started < 30  # the call takes a minute


def _ignoring_errors(client: SyncClient, begun: threading.Event) -> None:
    try:
        client.call_tool("sleep", {"seconds": 60}, on_progress=lambda _: begun.set())
    except ClientError:
        return


def test_streams_end_at_once_when_the_server_is_asked_to_stop() -> None:
    with serving(drain=30.0) as server:
        client, _, _ = listening_until_the_end(server.url)
        started = time.monotonic()
        assert server.stop() == (0, "")
        assert time.monotonic() - started < 15  # not the thirty seconds that calls would have had
        client.close()


def test_a_port_that_is_taken_is_one_line_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(TOOLS), json.dumps({"port": port})]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (
        1,
        f"tools: cannot serve HTTP on 127.0.0.1:{port}: address already in use; choose another port, or port 0 for any "
        "free one [LS-602]\n",
    )


def test_a_connection_that_sends_no_head_is_closed_and_others_are_not() -> None:
    with serving(head_timeout=1.0) as server:
        host, port = server.url.split("/")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=60) as silent:
            silent.sendall(b"POST /mcp HTTP/1.1\r\nHos")
            with SyncClient(server.url) as client:
                assert client.call_tool("sleep", {"seconds": 2.5}).text == "awake"
            assert silent.recv(1) == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
class TestWorkers:
    def test_rounds_go_on_in_another_process(self) -> None:
        with serving(workers=4) as server:
            assert server.first_line.endswith("/mcp, with 4 workers\n")
            for _ in range(8):  # each client has a connection of its own, so they come to different workers
                with SyncClient(server.url, elicitation=lambda _: {"seats": 2}, era="modern") as client:
                    assert client.call_tool("book").text == "2 seats"
            assert _pids(server.url, 2)

    def test_handshake_clients_are_asked_whichever_worker_their_requests_reach(self) -> None:
        with serving(workers=4) as server:
            for _ in range(4):
                with SyncClient(server.url, elicitation=lambda _: {"seats": 2}, era="legacy") as client:
                    assert client.call_tool("book").text == "2 seats"

    def test_a_worker_that_dies_is_replaced(self) -> None:
        with serving(workers=2) as server:
            before = _pids(server.url, 2)
            with SyncClient(server.url, retry="never") as client, pytest.raises(ClientError):
                client.call_tool("die")
            assert server.process.stderr is not None
            line = server.process.stderr.readline()
            assert re.fullmatch(r"linkspan: worker \d+ has ended \(exit status 7\); starting another\n", line)
            assert _pids(server.url, 2) - before
            assert server.stop() == (0, "")

    def test_a_listener_hears_every_change_that_any_worker_announces(self) -> None:
        seats = [f"seat://{number}" for number in range(100)]
        workers, announced = set[object](), set[str]()
        with serving(workers=2) as server, SyncClient(server.url) as client, client.listen(*seats) as changes:
            for seat in seats:  # each client has a connection of its own, so they come to different workers
                with SyncClient(server.url) as other:
                    workers.add(other.call_tool("update", {"uri": seat}).decode(int))
                announced.add(seat)
                if len(announced) >= 10 and len(workers) == 2:
                    break
            assert {next(changes) for _ in announced} == {Change("resource", seat) for seat in announced}
        assert len(workers) == 2

    def test_workers_that_are_killed_while_they_serve_are_replaced_however_many(self) -> None:
        with serving(workers=2) as server:
            for _ in range(6):  # one more than the deaths in a row that would end a server whose workers never serve
                with SyncClient(server.url) as client:
                    pid = client.call_tool("pid").structured["result"]
                os.kill(pid, signal.SIGKILL)
                assert server.process.stderr is not None
                assert f"worker {pid} has ended (Killed)" in server.process.stderr.readline()
            with SyncClient(server.url) as client:
                assert client.call_tool("sleep", {"seconds": 0}).text == "awake"
            assert server.stop() == (0, "")

    def test_no_worker_outlives_its_parent_however_that_ends(self) -> None:
        with serving(workers=2) as server:
            pids = _pids(server.url, 2)
            server.process.kill()
            server.process.wait()
            assert all(_ends(pid) for pid in pids)

    def test_workers_that_end_as_soon_as_they_start_end_the_server(self) -> None:
        command = [sys.executable, str(TOOLS), json.dumps({"port": 0, "workers": 2, "ssl_keyfile": "no-such-file"})]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "linkspan: the workers end as soon as they start; giving up\n" in done.stderr

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
    def test_a_signal_ends_them_all(self, number: int, status: int) -> None:
        with serving(workers=2) as server:
            pids = _pids(server.url, 2)
            assert server.stop(number) == (status, "")
            assert all(_ends(pid) for pid in pids)


STUBBORN = """
import os, signal, sys, time
from linkspan.serve.http_workers import serve_in_workers

def serve(ready):
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked\\n"))
    os.write(1, b"%d\\n" % os.getpid())
    while True:
        time.sleep(1)

sys.exit(serve_in_workers(2, serve, patience=5.0, ready=lambda: sys.stderr.write("ready\\n")))
sys.exit(serve_in_workers(2, serve, patience=5.0, ready=lambda: None))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
def test_workers_are_asked_to_end_and_killed_only_when_the_patience_is_over() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        asked = time.monotonic()
        parent.terminate()
        assert [parent.stdout.readline() for _ in pids] == [b"asked\n"] * 2
        assert parent.wait(30) == 0
        assert time.monotonic() - asked >= 5.0  # they have that long to see the signal, too
        assert all(_ends(pid) for pid in pids)


def _pids(url: str, count: int) -> set[int]:
    """Return so many processes that answer: which one does is up to the system."""
    found: set[int] = set()
    give_up = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < give_up
        with SyncClient(url) as client:
            found.add(client.call_tool("pid").structured["result"])
    return found


def _ends(pid: int) -> bool:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)  # nobody tells us: it is not our child
    return False
