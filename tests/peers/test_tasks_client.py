"""The reference client of the tasks extension, of npm, drives our tasks."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from npm_servers import modern_node, node_modules

from linkspan import Ask, Context, Server, Task
from over_http import serving

pytestmark = pytest.mark.timeout(180)

SOON = Task(poll=0.05)
SCRIPT = Path(__file__).with_name("tasks_client.mjs")


def make_server(going: threading.Event) -> Server:
    server = Server("peer")

    @server.tool(task=SOON)
    def slow(ctx: Context) -> int:
        ctx.progress(1, total=2, message="half")
        return 12

    @server.tool(task=SOON)
    def greet(ctx: Context) -> str:
        return f"hello {ctx.ask('name', str, 'Your name?')}"

    @server.tool(task=SOON)
    def invite(name: Annotated[str, Ask("Your name?")]) -> str:
        return f"come, {name}"

    @server.tool(task=SOON)
    def broken() -> str:
        raise ValueError("a secret")

    @server.tool(task=Task(after=20.0))
    def quick() -> str:
        return "at once"

    @server.tool(task=SOON)
    def endless(ctx: Context) -> str:
        while not ctx.cancelled:
            going.wait(0.01)
        return "over"

    return server


def test_the_reference_client_of_npm_drives_our_tasks(tmp_path: Path) -> None:
    node, going = modern_node(), threading.Event()
    (tmp_path / "node_modules").symlink_to(node_modules())  # node looks beside the script
    script = tmp_path / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    calls = json.dumps([[name, {}] for name in ("slow", "greet", "invite", "broken", "quick")])
    with serving(make_server(going).asgi()) as url:
        command = [node, str(script), url, calls]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        going.set()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert {name: each["kind"] for name, each in found.items() if "kind" in each} == {
        "slow": "task",
        "greet": "task",
        "invite": "task",
        "broken": "task",
        "quick": "immediate",
    }
    texts = {name: each["result"]["content"][0]["text"] for name, each in found.items() if "result" in each}
    assert "a secret" not in texts.pop("broken")
    assert texts == {"slow": "12", "greet": "hello Ada", "invite": "come, Ada", "quick": "at once"}
    assert found["slow"]["result"]["structuredContent"] == {"result": 12}
    assert found["broken"]["result"]["isError"]
    assert found["endless"] == {"status": "cancelled"}
