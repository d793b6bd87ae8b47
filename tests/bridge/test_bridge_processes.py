"""The processes of bridges: all of them end with the host, and several share one login."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
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
import sys, urllib.request
with open(sys.argv[1], "a") as tabs:
    tabs.write("tab\\n")
urllib.request.urlopen(sys.argv[2]).read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a browser of its own")
def test_bridges_without_a_login_open_one_tab_and_register_once(tmp_path: Path) -> None:
    browser, tabs = tmp_path / "browser.py", tmp_path / "tabs"
    browser.write_text(BROWSER)
    shown = {"BROWSER": f"{sys.executable} {browser} {tabs} %s", "DISPLAY": ":9"}
    with login_site() as site:
        started = [bridge(site.url, home=tmp_path, **shown) for _ in range(4)]
        for each in started:
            assert each.stdout is not None
            assert '"site"' in each.stdout.readline()
        for each in started:
            each.communicate(timeout=10)
        assert tabs.read_text() == "tab\n"
        assert (site.seen["/register"], site.seen["/authorize"]) == (1, 1)
