"""The reference client of the tasks extension, of npm, drives our tasks."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from npm_servers import INSTALLING, modern_node, node_modules
from task_server import make_server

from over_http import serving

pytestmark = INSTALLING

SCRIPT = Path(__file__).with_name("tasks_client.mjs")


def test_the_reference_client_of_npm_drives_our_tasks(tmp_path: Path) -> None:
    node, going = modern_node(), threading.Event()
    (tmp_path / "node_modules").symlink_to(node_modules())  # node looks beside the script
    script = tmp_path / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    calls = json.dumps([[name, {}] for name in ("slow", "greet", "invite", "broken", "quick")])
    with serving(make_server(going).asgi()) as url:
        command = [node, str(script), url, calls]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        finally:
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
