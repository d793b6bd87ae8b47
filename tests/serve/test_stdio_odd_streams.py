"""Servers whose standard streams are closed, full, or read by nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX descriptors")

SERVER = """
import sys
from linkspan import Server
server = Server("odd")
@server.tool
def talk(count: int) -> str:
    for n in range(count):
        print("x" * 1000)
    return "done"
@server.tool
def talk_below(count: int) -> str:
    import os
    for n in range(count):
        os.write(1, b"x" * 999 + b"\\n")
    return "done"
server.run()
"""


@pytest.mark.parametrize(("closing", "name"), [("<&-", "input"), (">&-", "output")])
def test_a_closed_stream_is_one_line(closing: str, name: str) -> None:
    command = f'"$0" -c "$1" {closing}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, SERVER], stdin=subprocess.PIPE, capture_output=True, timeout=60
    )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert (
        line
        == f"linkspan: no standard {name} to speak the protocol on: connect stdin and stdout of the server to a client"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk")
def test_an_output_that_is_full_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        given = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        command = [sys.executable, "-c", SERVER]
        done = subprocess.run(command, input=given, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert done.stderr.decode() == "linkspan: cannot write to standard output: No space left on device\n"


def test_a_client_that_hangs_up_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    given = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    command = [sys.executable, "-c", SERVER]
    done = subprocess.run(command, input=given, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("tool", ["talk", "talk_below"])
def test_printing_waits_for_nobody_who_reads_stderr(tool: str) -> None:
    command = [sys.executable, "-c", SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        params = {"name": tool, "arguments": {"count": 4000}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        dropped = next(line for line in process.stderr if b"were dropped" in line)
        assert dropped.endswith(b"bytes were dropped, because nothing read stderr\n")
        process.stdin.close()
        process.stderr.read()
        assert process.wait(60) == 0
