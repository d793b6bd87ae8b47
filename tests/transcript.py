"""Transcripts: text files that show one behaviour each, and how to replay them.

    # What is shown, as a sentence, with requirement ids (MSG-10).
    @at all                  revisions: dates, or all, legacy, modern, raw (nothing is added to what is written)
    @server basic            the server in tests/servers.py
    @capabilities {...}      what the client declares (default {})
    C: {"id": 1, "method": "ping"}
    S: {"id": 1, "result": {}}

Lines of C that follow each other are sent together; the lines of S after them are what must come, in any order. "jsonrpc" is
filled in. At a handshake revision the handshake comes first; at a modern one each request gets its envelope, and of each result
the stamps (resultType "complete", who answered, caching hints) are checked and taken off, unless the transcript names them.
A string "*" matches anything, `"...": 0` any further members, and `C!` sends a line exactly as it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linkspan.revisions import LEGACY, MODERN, REVISIONS

FOLDER = Path(__file__).parent / "transcripts"
PREFIX = "io.modelcontextprotocol/"
ANYTHING = "*"
MORE = "..."


@dataclass
class Step:
    """What the client sends together, and what must come back for it."""

    sent: list[tuple[bool, str]] = field(default_factory=list)
    expected: list[Any] = field(default_factory=list)


@dataclass
class Transcript:
    """One behaviour."""

    name: str
    title: str
    revisions: list[str]
    server: str
    capabilities: dict[str, Any]
    steps: list[Step]

    def lines(self, revision: str) -> Iterator[tuple[list[bytes], list[Any]]]:
        """Yield what to send, as lines, and what to expect, step by step."""
        if revision in LEGACY:
            yield self._handshake(revision)
        for step in self.steps:
            yield [self._line(raw, text, revision) for raw, text in step.sent], step.expected

    def _handshake(self, revision: str) -> tuple[list[bytes], list[Any]]:
        hello = {
            "jsonrpc": "2.0",
            "id": "hello",
            "method": "initialize",
            "params": {
                "protocolVersion": revision,
                "capabilities": self.capabilities,
                "clientInfo": {"name": "transcript", "version": "1"},
            },
        }
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        welcome = {"id": "hello", "result": {"protocolVersion": revision, MORE: 0}}
        return [json.dumps(hello).encode(), json.dumps(ready).encode()], [welcome]

    def _line(self, raw: bool, text: str, revision: str) -> bytes:
        if raw:
            return text.encode()
        message = json.loads(text)
        if isinstance(message, dict):
            message = {"jsonrpc": "2.0"} | message
            if revision in MODERN and "method" in message and "id" in message:
                params = message.setdefault("params", {})
                params["_meta"] = self._envelope(revision) | params.get("_meta", {})
        return json.dumps(message).encode()

    def _envelope(self, revision: str) -> dict[str, Any]:
        return {
            f"{PREFIX}protocolVersion": revision,
            f"{PREFIX}clientCapabilities": self.capabilities,
            f"{PREFIX}clientInfo": {"name": "transcript", "version": "1"},
        }


def load() -> list[Transcript]:
    """Read every transcript."""
    return [_parse(path) for path in sorted(FOLDER.rglob("*.txt"))]


def _parse(path: Path) -> Transcript:
    title, options, steps = "", {"at": "all", "server": "basic", "capabilities": "{}"}, [Step()]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, _, text = line.partition(" ")
        if not line.strip():
            continue
        if mark == "#":
            title = title or text
        elif mark.startswith("@"):
            options[mark[1:]] = text.strip()
        elif mark in ("C:", "C!"):
            if steps[-1].expected:
                steps.append(Step())
            steps[-1].sent.append((mark == "C!", text))
        elif mark == "S:":
            steps[-1].expected.append(json.loads(text))
        else:
            raise ValueError(f"{path}:{number}: begin a line with #, @, C:, C! or S:")
    name = path.relative_to(FOLDER).with_suffix("").as_posix()
    return Transcript(
        name, title, _revisions(options["at"]), options["server"], json.loads(options["capabilities"]), steps
    )


def _revisions(text: str) -> list[str]:
    groups = {"all": list(REVISIONS), "legacy": list(LEGACY), "modern": list(MODERN)}
    return [revision for word in text.split() for revision in groups.get(word, [word])]


def compare(expected: list[Any], got: list[bytes], revision: str) -> None:
    """Assert that what came is what must come, in any order."""
    came = [_plain(json.loads(line), revision) for line in got]
    open_ = list(came)
    for message in expected:
        found = next((each for each in open_ if _fits(message, each)), None)
        shown = "\n".join(json.dumps(each) for each in came)
        assert found is not None, f"expected\n{json.dumps(message)}\namong\n{shown}"
        open_.remove(found)
    assert not open_, f"unexpected: {json.dumps(open_)}"


def _plain(message: Any, revision: str) -> Any:
    if isinstance(message, list):
        return [_plain(each, revision) for each in message]
    assert message.pop("jsonrpc") == "2.0"
    return message


def _unstamped(result: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Take the stamps of the modern era off a result, as far as the transcript does not name them."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != f"{PREFIX}serverInfo"}
    stamps = {"resultType", "ttlMs", "cacheScope", "_meta"} - set(named)
    plain = {key: value for key, value in result.items() if key not in stamps}
    if meta and "_meta" not in named:
        plain["_meta"] = meta
    return plain


def _fits(expected: Any, got: Any) -> bool:
    if isinstance(expected, dict) and isinstance(got, dict) and set(expected) >= {"id", "result"} and "result" in got:
        result = got["result"]
        if isinstance(result, dict) and isinstance(expected["result"], dict) and "resultType" in result:
            if result["resultType"] != expected["result"].get("resultType", "complete"):
                return False
            got = got | {"result": _unstamped(result, expected["result"])}
    return matches(expected, got)


def matches(expected: Any, got: Any) -> bool:
    """Compare, with wildcards in `expected`."""
    if expected == ANYTHING:
        return True
    if isinstance(expected, dict) and isinstance(got, dict):
        members = {key for key in expected if key != MORE}
        if not (members <= set(got) and (MORE in expected or members == set(got))):
            return False
        return all(matches(expected[key], got[key]) for key in members)
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(matches, expected, got))
    return type(expected) is type(got) and expected == got
