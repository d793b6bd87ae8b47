"""A revision is one file and one line in the table: nothing else knows how many there are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import linkspan
from linkspan.revisions import LATEST, REVISIONS

MADE_UP = '''"""2099-01-01, which tests made up."""

from linkspan.revisions.{module} import REVISION as PREDECESSOR

__all__ = ["REVISION"]

REVISION = PREDECESSOR.evolve("2099-01-01", remove=("completion/complete",))
'''
TALK = """
import json
from linkspan import Server, SyncClient

server = Server("made-up")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

@server.prompt
def greet(name: str) -> str:
    return name

found = {}
for pinned in (None, *OLDER):
    with SyncClient(server, **({"protocol_version": pinned} if pinned else {})) as client:
        found[str(pinned)] = [client.protocol_version, client.call_tool("add", {"a": 1, "b": 2}).structured]
call = {"jsonrpc": "2.0", "id": 1, "params": {"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2099-01-01",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}}}
asked = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}}
found["discover"] = server.handle(call | {"method": "server/discover"})["result"]["supportedVersions"]
found["removed"] = server.handle(call | {"method": "completion/complete", "params": call["params"] | asked})["error"]["code"]
print(json.dumps(found))
"""


def test_a_made_up_revision_is_one_file_and_one_line(tmp_path: Path) -> None:
    package = tmp_path / "linkspan"
    shutil.copytree(Path(linkspan.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    newest = f"v{LATEST.date.replace('-', '_')}"
    (package / "revisions" / "v2099_01_01.py").write_text(MADE_UP.format(module=newest))
    table = package / "revisions" / "__init__.py"
    line = f"from linkspan.revisions.{newest} import REVISION as {newest.upper()}\n"
    text = table.read_text()
    assert line in text
    text = text.replace(line, f"{line}from linkspan.revisions.v2099_01_01 import REVISION as V2099_01_01\n")
    table.write_text(text.replace(f"{newest.upper()})", f"{newest.upper()}, V2099_01_01)"))

    older = tuple(REVISIONS)
    ended = subprocess.run(
        [sys.executable, "-c", TALK.replace("OLDER", repr(older))],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["None"] == ["2099-01-01", {"result": 3}]
    for date in older:
        structured = None if REVISIONS[date].structured_content == "none" else {"result": 3}
        assert found[date] == [date, structured]
    assert found["discover"] == ["2099-01-01", *reversed(older)]
    assert found["removed"] == -32601
