"""The processes of bridges: all of them end with the host, and several share one login."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from login_site import login_site

STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
from linkspan import Server
server = Server("stubborn")
server.tool(name="ping")(lambda: "pong")
server.run()
while True:
    time.sleep(60)
"""
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}


def bridge(*arguments: str, home: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a bridge as a host does, and greet it."""
    environment = os.environ | {"XDG_STATE_HOME": str(home), "XDG_DATA_HOME": str(home)} | options
    process = subprocess.Popen(
        [sys.executable, "-m", "linkspan", "bridge", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(INITIALIZE) + "\n")
    process.stdin.flush()
    return process


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["the host ends", "SIGTERM"])
def test_a_server_that_does_not_end_is_gone_two_seconds_after_its_host(tmp_path: Path, how: str) -> None:
    program, written = tmp_path / "stubborn.py", tmp_path / "pid"
    program.write_text(STUBBORN)
    with bridge(f"{sys.executable} {program} {written}", home=tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "stubborn" in process.stdout.readline()
        pid = int(written.read_text())
        began = time.monotonic()
        if how == "SIGTERM":
            process.terminate()
        else:
            process.stdin.close()
        process.wait(30)
        while is_alive(pid) and time.monotonic() - began < 30:
            time.sleep(0.01)
        assert time.monotonic() - began < 25.0  # two seconds of grace, on a machine that has much else to do


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".child", "w").write(str(child.pid))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_bridge_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    program, written = tmp_path / "stubborn.py", tmp_path / "pid"
    program.write_text(PARENT + STUBBORN)
    with bridge(f"{sys.executable} {program} {written}", home=tmp_path) as process:
        assert process.stdout is not None
        assert "stubborn" in process.stdout.readline()
        pids = [int(Path(f"{written}{end}").read_text()) for end in ("", ".child")]
        process.kill()
        process.wait(60)
        end = time.monotonic() + 60
        while any(map(is_alive, pids)):
            assert time.monotonic() < end, "a process of the server is still there"
            time.sleep(0.05)


BROWSER = """
import os, sys, time, urllib.request
with open(sys.argv[1], "a") as tabs:
    tabs.write("tab\\n")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
urllib.request.urlopen(sys.argv[3]).read()
"""


def say(process: subprocess.Popen[str], method: str, number: int | None = None) -> None:
    """Send a message to a bridge."""
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "method": method} | ({} if number is None else {"id": number})
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def messages_until(process: subprocess.Popen[str], holds: Callable[[Any], bool]) -> list[Any]:
    """Return what a bridge writes, up to the message for which something holds."""
    assert process.stdout is not None
    found: list[Any] = []
    for line in process.stdout:
        found.append(json.loads(line))
        if holds(found[-1]):
            return found
    pytest.fail(f"the bridge ended after {found}")


def names_of(process: subprocess.Popen[str], number: int) -> list[str]:
    """Return the tools that a bridge lists."""
    say(process, "tools/list", number)
    listed = messages_until(process, lambda message: message.get("id") == number)[-1]
    return [each["name"] for each in listed["result"]["tools"]]


@pytest.mark.skipif(sys.platform == "win32", reason="a browser of its own")
def test_bridges_without_a_login_answer_at_once_and_offer_the_tools_after_one_login_in_one_tab(tmp_path: Path) -> None:
    browser, tabs, gate = (tmp_path / name for name in ("browser.py", "tabs", "gate"))
    browser.write_text(BROWSER)
    shown = {"BROWSER": f"{sys.executable} {browser} {tabs} {gate} %s", "DISPLAY": ":9"}
    with login_site() as site:
        started = [bridge(site.url, home=tmp_path, **shown) for _ in range(10)]
        try:
            for each in started:
                messages_until(each, lambda message: "result" in message)
                say(each, "notifications/initialized")
                assert names_of(each, 2) == []
            assert site.seen["/authorize"] == 0  # nobody has logged in yet
            gate.touch()
            for each in started:
                messages_until(each, lambda message: message.get("method") == "notifications/tools/list_changed")
                assert names_of(each, 3) == ["who", "write"]
        finally:
            for each in started:
                each.communicate(timeout=60)
        assert tabs.read_text() == "tab\n"
        assert (site.seen["/register"], site.seen["/authorize"]) == (1, 1)
