"""Servers of other SDKs at the workbench: each line that is copied from a call makes the same call again."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from listening import listening
from native_programs import BUILDING, native_program
from npm_servers import node_modules

from benches import desk
from linkspan.cli.main import main
from linkspan.testing.recorder import read_transcript
from linkspan.workbench.code import Subject

pytestmark = BUILDING
SERVER = Path(__file__).parent / "python_server.py"
NASTY = 'O\'ban "x" $HOME `id` \\ é'
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("echo", {"message": NASTY}),
    "mcp": ("forecast", {"city": NASTY}),
    "fastmcp": ("forecast", {"city": NASTY}),
    "go": ("echo", {"text": NASTY}),
    "rust": ("echo", {"text": NASTY}),
}
REVISIONS = {**dict.fromkeys(CALLS, ("", "2025-11-25")), "mcp": ("2026-07-28", "2025-11-25")}
"""In which each is called; empty for the one that is agreed on."""


def command(kind: str) -> list[str]:
    if kind in ("go", "rust"):
        return [native_program(kind)]
    if kind != "everything":
        if importlib.util.find_spec(kind) is None:
            pytest.skip(f"{kind} is not installed: pip install -e '.[peers]'")
        return [sys.executable, str(SERVER), kind]
    package = node_modules() / "@modelcontextprotocol" / "server-everything"
    (start,) = json.loads((package / "package.json").read_text())["bin"].values()
    return ["node", str(package / start)]


@pytest.mark.parametrize("kind", CALLS)
def test_each_line_that_is_copied_makes_the_same_call(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen.transcript"
    target = [sys.executable, "-m", "linkspan", "trace", "--out", str(seen), "--", *command(kind)]
    name, arguments = CALLS[kind]
    with desk(target, subject=Subject(target)) as found:
        made = found.call(name, arguments)
        assert made["state"] == "done"
        code = found.ask(f"code?id={made['id']}")
    wanted = params(seen)
    assert wanted == {"name": name, "arguments": arguments}
    (tmp_path / "program.py").write_text(code["python"])
    exec(compile(code["pytest"], "test", "exec"), scope := {})
    for run in (
        lambda: main(shlex.split(code["command"])[1:]),
        lambda: subprocess.run([sys.executable, tmp_path / "program.py"], check=True, capture_output=True, timeout=60),
        lambda: next(value for each, value in scope.items() if each.startswith("test_"))(),
    ):
        seen.unlink()
        run()
        assert params(seen) == wanted
    capfd.readouterr()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mcp", ["PORT"]),
        ("fastmcp", ["PORT"]),
        ("everything", ["streamableHttp"]),
        ("go", ["PORT"]),
        ("rust", ["PORT"]),
    ],
)
def test_a_line_for_curl_calls_a_server_of_another_sdk(kind: str, words: list[str]) -> None:
    name, arguments = CALLS[kind]
    start = command(kind)
    with (
        listening(lambda port: [*start, *(each.replace("PORT", str(port)) for each in words)]) as url,
        desk(url) as found,
    ):
        for revision in REVISIONS[kind]:
            made = found.call(name, arguments, revision=revision)
            assert made["state"] == "done", made
            line = found.ask(f"code?id={made['id']}")["curl"]
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
            (answer,) = re.findall(r'^(?:data: )?(\{.*"id".*\})\s*$', done.stdout, re.MULTILINE)
            assert json.loads(answer)["result"]["content"] == made["result"]["content"], (revision, line)


def params(transcript: Path) -> dict[str, Any]:
    """Return the params of the last call in a transcript, without `_meta`."""
    messages = [each.message for each in read_transcript(transcript) if each.side == "client"]
    (found,) = (each["params"] for each in messages if isinstance(each, dict) and each.get("method") == "tools/call")
    assert isinstance(found, dict)
    return {name: value for name, value in found.items() if name != "_meta"}
