"""`linkspan check`: what is printed, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import DICE, Shell

NO_TYPES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line) if line.startswith("{") and line.endswith("}\\n") else {}
    if "id" not in asked:
        continue
    head = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked.get("method") == "initialize":
        info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({**head, "result": info}), flush=True)
    elif asked.get("method") == "ping":
        print(json.dumps({**head, "result": {}}), flush=True)
    elif asked.get("method") == "tools/list" and isinstance(asked.get("params", {}), dict):
        tool = {"name": "a", "description": "A tool.", "inputSchema": {"properties": {}}}
        print(json.dumps({**head, "result": {"tools": [tool]}}), flush=True)
    else:
        print(json.dumps({**head, "error": {"code": -32601, "message": "no"}}), flush=True)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linkspan.checks.peer._QUIET", 0.02)


def test_a_server_that_meets_all_is_told_so(linkspan: Shell) -> None:
    done = linkspan("check", DICE, "--only", "MSG-11,tool-1,STDIO-2")
    assert (done.status, done.err) == (0, "")
    assert done.out == "dice in 2026-07-28, 2025-11-25: 6 of 6 passed, 0 failed, 0 warnings (0 not applicable)\n"
    assert "pass  MSG-11 (2026-07-28)  a response has the id" in linkspan("check", DICE, "--only", "MSG-11", "-v").out


def test_what_is_not_met_has_its_evidence_and_its_page(linkspan: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "ferries"
    folder.mkdir()
    (folder / "server.py").write_text(NO_TYPES)
    command = ("--cwd", str(folder), "python server.py")
    done = linkspan("check", *command, "--only", "TOOL-1,MSG-11")
    assert done.status == 1
    assert done.out == (
        "FAIL  TOOL-1 (2025-11-25)  the input schema of a tool is an object's\n"
        "        the inputSchema of 'a' has the type None\n"
        "        https://modelcontextprotocol.io/specification/2025-11-25/server/tools\n"
        "ferries in 2025-11-25: 1 of 2 passed, 1 failed, 0 warnings (0 not applicable)\n"
    )
    outcomes = json.loads(linkspan("check", *command, "--only", "TOOL-1", "--json").out)["outcomes"]
    assert [(each["id"], each["level"]) for each in outcomes] == [("TOOL-1", "fail")]
    assert "| fail | [TOOL-1](https://" in linkspan("check", *command, "--only", "TOOL-1", "--markdown").out
    assert linkspan("check", *command, "--only", "TOOL-6").status == 0
    assert linkspan("check", *command, "--only", "TOOL-6", "--strict").status == 1


def test_a_tool_that_writes_is_called_only_if_it_is_named(linkspan: Shell, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from linkspan import Server\nserver = Server('s')\n"
        "@server.tool\ndef note(text: str) -> str:\n"
        "    'Keep a note.'\n    open('note.txt', 'a').write(text)\n    return text\n"
    )
    linkspan("check", str(server), "--cwd", str(tmp_path))
    assert not (tmp_path / "note.txt").exists()
    linkspan("check", str(server), "--cwd", str(tmp_path), "--only", "TOOL-4", "--call", 'note={"text": "x"}')
    assert (tmp_path / "note.txt").read_text() == "xx"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ((), 2, "name the server"),
        ((DICE, "--only", "TOOLS-1"), 2, "there is no requirement 'TOOLS-1'"),
        ((DICE, "--call", "note=[1]"), 2, "--call"),
        (("python -c 'print(1)'",), 3, "could not be reached"),
        (("http://127.0.0.1:9/mcp",), 3, "could not be reached"),
    ],
)
def test_what_cannot_be_checked(linkspan: Shell, arguments: tuple[str, ...], status: int, says: str) -> None:
    done = linkspan("check", *arguments)
    assert done.status == status
    assert says in done.err
