"""Each example, as a plain process that reads and writes JSON lines, in every revision."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linkspan.revisions import LEGACY, MODERN, REVISIONS

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRATCH = EXAMPLES / "from_scratch"
FILES = sorted([*(path.name for path in EXAMPLES.glob("*.py")), "from_scratch/server.py"])
PREFIX = "io.modelcontextprotocol/"
ME = {"name": "test", "version": "1"}
NEWEST = MODERN[-1]
PATIENCE = 60.0

CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "dice.py": ("roll", {"sides": 1, "count": 2}, "[1,1]"),
    "everything.py": ("price", {"km": 100}, "12.0"),
    "files.py": ("read", {"file": "dice.py", "first": 3, "count": 1}, "import random"),
    "long_job.py": ("count_books", {"shelf": "maps"}, "10"),
    "gateway.py": ("roll", {"sides": 1, "count": 3}, "[1,1,1]"),
    "sqlite_explorer.py": ("query", {"sql": "select seats from ferries where name = 'Lord'"}, '[{"seats":20}]'),
    "weather.py": (
        "forecast",
        {"city": "Oslo", "days": 1},
        '[{"day":"2026-11-22","highest_celsius":3.5,"rain_mm":0.2}]',
    ),
    "passenger_chart.py": ("passengers", {"year": 2025}, "[310,340,520,880,1340,1990,2480,2510,1620,900,410,380]"),
    "ticket_form.py": ("offer", {"people": 9}, '{"07:30":12,"12:15":40}'),
    "ferry_map.py": (
        "ferries",
        {"minute": 0},
        '[{"name":"Loch Frisa","latitude":56.41,"longitude":-5.47,"heading":"Craignure"},'
        '{"name":"Lochnevis","latitude":56.41,"longitude":-5.47,"heading":"Lismore"},'
        '{"name":"Isle of Mull","latitude":56.41,"longitude":-5.47,"heading":"Colonsay"}]',
    ),
    "shop.py": ("status", {"number": 1}, "2 x pear"),
    "from_scratch/server.py": ("dice", {"sides": 1}, "1"),
}
"""For each example a tool, its arguments, and the text of the result."""

EXTRAS = ["attrs", "cryptography", "jsonschema", "jsonschema_rs", "pydantic"]
WITHOUT_EXTRAS = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Conversation:
    """A client of one revision that has read nothing but the specification."""

    def __init__(self, process: subprocess.Popen[str], revision: str) -> None:
        self.process = process
        self.revision = revision
        self._ids = iter(range(1, 1000))
        if revision in LEGACY:
            hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": ME}
            assert self.ask("initialize", hello)["result"]["protocolVersion"] == revision
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the next message, which must be its answer."""
        assert self.process.stdout is not None
        params = dict(params or {})
        if self.revision in MODERN:
            params["_meta"] = {
                f"{PREFIX}protocolVersion": self.revision,
                f"{PREFIX}clientCapabilities": {},
                f"{PREFIX}clientInfo": ME,
            }
        number = next(self._ids)
        self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        answer = json.loads(self.process.stdout.readline())
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", number)
        return answer

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self.ask("tools/call", {"name": name, "arguments": arguments})["result"]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python as a server; in the end it must leave by itself, in good order, having said nothing else on stdout."""
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        with process:
            yield process
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            assert process.stdout.read() == ""
            assert process.wait() == 0
    finally:
        process.kill()
        watchdog.cancel()


def test_each_example_is_tried() -> None:
    assert sorted(CALLS) == FILES


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("file", FILES)
def test_an_example_lists_and_calls_its_tools_in_every_revision(file: str, revision: str) -> None:
    name, arguments, text = CALLS[file]
    with running("-m", "linkspan", "run", str(EXAMPLES / file)) as process:
        client = Conversation(process, revision)
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
        assert tools[name]["description"]
        assert set(arguments) <= set(tools[name]["inputSchema"]["properties"])
        result = client.call(name, arguments)
        assert not result.get("isError")
        assert result["content"] == [{"type": "text", "text": text}]
        wrong = client.call(name, {"nonsense": "x"} | {key: {} for key in arguments})
        assert wrong["isError"]
        assert all(each in wrong["content"][0]["text"] for each in arguments)
        assert client.ask("tools/call", {"name": "nonsense"})["error"]["code"] == -32602


@pytest.mark.parametrize("file", ["dice.py", "everything.py", "from_scratch/server.py"])
def test_an_example_runs_with_nothing_but_linkspan(file: str) -> None:
    name, arguments, text = CALLS[file]
    with running("-c", WITHOUT_EXTRAS, str(EXAMPLES / file)) as process:
        result = Conversation(process, NEWEST).call(name, arguments)
        assert result["content"][0]["text"] == text


def test_an_example_serves_both_eras_on_one_connection() -> None:
    with running(str(EXAMPLES / "dice.py")) as process:
        modern, legacy = (Conversation(process, revision) for revision in (NEWEST, LEGACY[0]))
        assert modern.call("roll", {"sides": 1})["structuredContent"] == {"result": [1]}
        assert "structuredContent" not in legacy.call("roll", {"sides": 1})
        assert modern.ask("ping")["error"]["code"] == -32601
        assert legacy.ask("ping")["result"] == {}


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_client_gets_no_content_that_its_revision_does_not_know(revision: str) -> None:
    known = {"text", "image", "resource"}
    known |= {"audio"} if revision >= "2025-03-26" else set()
    known |= {"resource_link"} if revision >= "2025-06-18" else set()
    with running(str(EXAMPLES / "everything.py")) as process:
        content = Conversation(process, revision).call("brochure", {})["content"]
        assert len(content) == 5
        assert {block["type"] for block in content} == known


def python(*arguments: str, said: str = "") -> str:
    """Run Python; return what it prints, when it ends well and complains of nothing."""
    ended = subprocess.run([sys.executable, *arguments], input=said, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_the_smallest_host_answers_line_by_line() -> None:
    printed = python(str(EXAMPLES / "hosts" / "minimal.py"), said="Roll two dice\n")
    assert printed == "You rolled two ones.\n"


@pytest.mark.parametrize(("answer", "end"), [("yes", "bob has 50 now"), ("no", "The user refused this call")])
def test_an_agent_asks_before_it_pays(answer: str, end: str) -> None:
    printed = python(str(EXAMPLES / "hosts" / "approvals.py"), said=f"{answer}\n")
    assert printed.startswith('The model wants pay {"sender": "alice", "receiver": "bob", "amount": 30}. Allow it?')
    assert end in printed


def test_the_gallery_names_every_example() -> None:
    gallery = (EXAMPLES / "README.md").read_text()
    missing = [path for path in EXAMPLES.rglob("*.py") if f"({path.relative_to(EXAMPLES).as_posix()})" not in gallery]
    assert missing == []


def test_the_host_from_scratch_asks_calls_and_answers_until_exit() -> None:
    printed = python(str(SCRATCH / "host.py"), said="Roll a dice with 20 sides\nsilence\nEXIT\nnever\n")
    assert re.fullmatch(
        r"MCP Client Started!\nType your queries 'exit' to exit\.\n"
        r"\[Calling tool dice with args \{\"sides\": 20\}\]\nThe dice shows \d+\.\n"
        r"No response from the server\n",
        printed,
    )


def test_the_host_from_scratch_tells_the_model_what_went_wrong(tmp_path: Path) -> None:
    script = tmp_path / "replies.jsonl"
    calls = [{"call": {"name": "dice", "arguments": {"sides": 0}}}, {"call": {"name": "mice"}}, {"say": "{last}"}]
    script.write_text("".join(f"{json.dumps(each)}\n" for each in calls))
    printed = python(str(SCRATCH / "host.py"), f"scripted:{script}", said="Go\nAnd?\n")
    assert "mice" in printed.partition("args {}]\n")[2]
    assert "the script has no further reply" in printed.splitlines()[-1]


def test_the_client_from_scratch_shows_the_tool_and_calls_it() -> None:
    printed = python(str(SCRATCH / "client.py"))
    assert "dice: Roll a dice" in printed
    assert re.search(r"A die with 20 sides: \d+\n", printed)


def test_the_host_from_scratch_is_under_a_hundred_lines() -> None:
    assert len((SCRATCH / "host.py").read_text().splitlines()) < 100
