"""`linkspan trace`: what it shows, what it records, and that nobody notices it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from pipes import Piped, gone
from typing import Any

import pytest
from shell import DICE, ODD

from linkspan.cli.trace import TraceView
from linkspan.testing import Player

SERVE = [sys.executable, "-m", "linkspan", "run"]


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


# What it shows.


def converse(view: TraceView) -> str:
    call = {"name": "roll", "arguments": {"sides": 6}, "_meta": {"io.modelcontextprotocol/protocolVersion": "x"}}
    shown = view.receive("client", line(id=1, method="tools/call", params=call), 0.5)
    shown += view.receive("server", line(method="notifications/progress", params={"progress": 1}), 0.51)
    shown += view.receive("server", line(id="s1", method="elicitation/create", params={"message": "\x1b[2J"}), 0.52)
    shown += view.receive("client", line(id="s1", result={"action": "decline"})[:20], 1.5)
    shown += view.receive("client", line(id="s1", result={"action": "decline"})[20:], 1.52)
    shown += view.receive("server", line(id=1, result={"content": [], "isError": True}), 2)
    shown += view.receive("client", line(id="1", method="tools/list"), 2)
    shown += view.receive("server", line(id="1", error={"code": -32601, "message": "token=abc"}), 2.0005)
    shown += view.receive("server", b"Listening on \x9b31m\n", 3)
    return shown + view.receive_stderr(b"WARN: password=x\r\n\tagain", 4) + view.receive_eof(4)


def test_the_trace_says_who_said_what_and_how_long_it_took() -> None:
    assert converse(TraceView()) == (
        '    0.500 -> tools/call #1 {"name": "roll", "arguments": {"sides": 6}}\n'
        '    0.510 <- notifications/progress {"progress": 1}\n'
        '    0.520 <- elicitation/create #s1 {"message": "\\u001b[2J"}\n'
        '    1.520 -> result of elicitation/create (1000 ms) #s1 {"action": "decline"}\n'
        '    2.000 <- error result of tools/call (1500 ms) #1 {"content": [], "isError": true}\n'
        "    2.000 -> tools/list #1\n"
        '    2.001 <- error of tools/list (0.5 ms) #1 {"code": -32601, "message": "token=[redacted]"}\n'
        "    3.000 <- not a message: Listening on \\x9b31m\n"
        "    4.000    stderr| WARN: password=[redacted]\n"
        "    4.000    stderr|  again\n"
    )


@pytest.mark.parametrize(
    ("options", "methods"),
    [
        ({"only": ["tools/call"]}, ["tools/call", "tools/call"]),
        ({"only": ["tools/*"], "hide": ["*/list"]}, ["tools/call", "tools/call"]),
        ({"hide": ["tools/*", "elicitation/create"]}, ["notifications/progress"]),
    ],
)
def test_what_is_shown_can_be_chosen_and_answers_come_with_their_requests(options: Any, methods: list[str]) -> None:
    shown = [json.loads(each) for each in converse(TraceView(as_json=True, **options)).splitlines()]
    assert [each["method"] for each in shown if "method" in each] == methods
    assert [each["kind"] for each in shown if "method" not in each] == ["junk", "stderr", "stderr"]


def test_json_has_whole_messages() -> None:
    view = TraceView(as_json=True, redacted=False)
    asked = json.loads(view.receive("client", line(id=1, method="m", params={"token": "x" * 500}), 0.25))
    answered = json.loads(view.receive("server", line(id=1, result={}), 0.5))
    message = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"token": "x" * 500}}
    assert asked == {"time": 0.25, "from": "client", "kind": "request", "method": "m", "message": message}
    assert answered["milliseconds"] == 250
    assert json.loads(view.note("the end", 1, exit=3)) == {"time": 1, "exit": 3}


def test_nothing_that_is_sent_can_command_a_terminal_or_break_the_trace() -> None:
    view = TraceView()
    for data in (
        b"\x1b]0;x\x07",
        b"\xff\x00",
        b"[]",
        b"[1,{}]",
        b'"text"',
        b'{"method":5}',
        b'{"id":[],"result":7}',
        b"[" * 9999,
    ):
        shown = view.receive("server", data + b"\n", 0)
        assert re.fullmatch(r"[ -~\n]+", shown), shown


# What it does.


def test_a_client_and_a_server_do_not_notice_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "dice.transcript"
    with Piped("trace", "--out", str(file), "--hide", "notifications/*", "--", *SERVE, DICE) as client:
        client.ask(1, "tools/call", name="roll", arguments={"sides": 1, "count": 3})
        first = client.read_line()
        client.write(b"junk\n")
        assert client.read()["error"]["code"] == -32700
        client.hang_up()
        assert client.end() == 0
    shown = client.errors.splitlines()
    assert [re.sub(r"^ *[0-9.]+ (..) (.{9}).*", r"\1 \2", each) for each in shown[1:]] == [
        "-> tools/cal",
        "<- result of",
        "-> not a mes",
        "<- error of ",
        "-- the serve",
    ]
    assert shown[0].endswith(DICE)
    assert shown[-1].endswith("the server ended with exit status 0")
    playback = Player(file).connect()
    call = {"name": "roll", "arguments": {"sides": 1, "count": 3}}
    playback.receive_data(line(id=1, method="tools/call", params=call))
    assert json.loads(playback.data_to_send()) == json.loads(first)


def test_bytes_go_through_unchanged_in_both_directions_at_once() -> None:
    """More than any pipe holds, to a server that echoes while it is still being written to."""
    echo = "import os\nwhile data := os.read(0, 65536):\n    while data: data = data[os.write(1, data):]"
    sent = (bytes(range(256)) + bytes(range(11, 256)) * 20) * 250 + b"no newline at the end"
    with Piped("trace", "--", sys.executable, "-S", "-c", echo) as client:
        writer = threading.Thread(target=lambda: (write_all(client, sent), client.hang_up()))
        writer.start()
        got = client.rest()
        writer.join()
        assert client.end() == 0
    assert got == sent


def write_all(client: Piped, data: bytes) -> None:
    assert client.popen.stdin is not None
    while data:
        data = data[client.popen.stdin.write(data[:65536]) :]


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
os.write(1, b'{"pids": [%d, %d]}\\n' % (os.getpid(), child.pid))
time.sleep(60)
"""


def test_a_server_that_does_not_end_is_ended_with_all_it_started() -> None:
    with Piped("trace", "--grace", "0.05", "--", sys.executable, "-S", "-c", STUBBORN) as client:
        pids = client.read()["pids"]
        client.hang_up()
        assert client.end() == 128 + signal.SIGKILL
    assert all(gone(pid) for pid in pids)
    assert "the server ended with exit status 137 (SIGKILL)" in client.errors


def test_what_a_dead_server_leaves_behind_is_ended_too() -> None:
    leave = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.exit(7)"
    with Piped("trace", "--", sys.executable, "-S", "-c", leave) as client:
        pid = int(client.read_line())
        assert client.end() == 7
    assert gone(pid)
    assert "exit status 7" in client.errors


def test_the_status_of_a_server_that_dies_is_the_status_of_the_trace() -> None:
    die = "import sys; print('bye', flush=True); sys.stderr.write('Traceback: token=abc\\n'); sys.exit(3)"
    with Piped("trace", "--", sys.executable, "-S", "-c", die) as client:
        assert client.read_line() == b"bye"
        assert client.end() == 3
    assert "stderr| Traceback: token=[redacted]\n" in client.errors


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signals_reach_the_server(number: int, status: int) -> None:
    with Piped("trace", "--", *SERVE, DICE) as client:
        client.call(1, "roll")
        client.popen.send_signal(number)
        assert client.end() == status


def test_a_trace_that_nobody_reads_holds_up_nobody() -> None:
    """Stderr is a pipe that is never read; more is traced than any pipe holds."""
    trace = [sys.executable, "-m", "linkspan", "trace", "--", *ODD]
    with subprocess.Popen(trace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(line(id=n, method="ping") for n in range(3000)))
        process.stdin.close()
        assert len(process.stdout.readlines()) >= 3000
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "the server is missing"),
        (["https://a.example/mcp", "https://b.example/mcp"], 2, "name one URL"),
        (["http://user:abc@a.example/mcp"], 2, "without a user and a password"),
        (["--out", "/no/such/folder/x", "--", "true"], 2, "cannot write /no/such/folder/x"),
        (["--", "/no/such/server", "--token=abc"], 127, "cannot start /no/such/server: No such file"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(arguments: list[str], status: int, says: str) -> None:
    with Piped("trace", *arguments) as client:
        assert client.end() == status
    assert says in client.errors
    assert "abc" not in client.errors


def test_a_command_that_traces_shows_the_trace() -> None:
    """As docs/debugging.md and docs/tracing.md show it."""
    command = [sys.executable, "-m", "linkspan"]
    call = [*command, "call", "roll", "sides=1", "--", *command, "trace", "--json", "--", *command, "run", str(DICE)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    shown = [json.loads(line) for line in done.stderr.splitlines()]
    assert [each["method"] for each in shown if each.get("kind") == "request"] == [
        "server/discover",
        "tools/list",
        "tools/call",
    ]
