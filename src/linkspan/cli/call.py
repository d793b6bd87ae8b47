"""`linkspan call FILE TOOL key=value ...`: start a server as a client would, call a tool, and show what went to and fro."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from linkspan._version import __version__
from linkspan.revisions import LATEST

__all__ = ["main"]

_PREFIX = "io.modelcontextprotocol/"


class Failed(Exception):
    """The exchange cannot go on; the message says why."""


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 for a result, 1 for an error result or a failure, 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="linkspan call",
        description="Start a server over stdio, call one of its tools, and show the exchange. "
        "The messages go to stderr, the result to stdout.",
    )
    parser.add_argument("file", help="a Python file with a Server in it: FILE[:OBJECT]")
    parser.add_argument("tool", help="the tool's name")
    parser.add_argument("argument", nargs="*", help="key=value; values are JSON unless the tool wants a text")
    parser.add_argument("--quiet", action="store_true", help="show the result only")
    options = parser.parse_args(list(arguments))
    pairs = [each.partition("=") for each in options.argument]
    if wrong := next((key for key, equals, _ in pairs if not equals), None):
        parser.error(f"arguments are key=value, got {wrong!r}")
    try:
        with _Exchange(options.file, show=not options.quiet) as exchange:
            return _call(exchange, options.tool, {key: value for key, _, value in pairs})
    except Failed as problem:
        print(f"linkspan call: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _call(exchange: _Exchange, tool: str, texts: dict[str, str]) -> int:
    exchange.request("server/discover", {})
    tools = exchange.request("tools/list", {})["tools"]
    schema: dict[str, Any] = {each["name"]: each["inputSchema"] for each in tools}.get(tool) or {}
    given = {key: _value(text, schema.get("properties", {}).get(key, {})) for key, text in texts.items()}
    result = exchange.request("tools/call", {"name": tool, "arguments": given})
    if result.get("resultType") != "complete":
        raise Failed("the tool asks the user something, which this command cannot do")
    for block in result.get("content", []):
        print(block["text"] if block.get("type") == "text" else json.dumps(block))
    return 1 if result.get("isError") else 0


def _value(text: str, schema: dict[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Exchange:
    """A server in a process of its own, spoken to one request at a time."""

    def __init__(self, file: str, *, show: bool) -> None:
        self._show = show
        self._last_id = 0
        command = [sys.executable, "-m", "linkspan", "run", file]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._tell("$", f"linkspan run {file}")

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its result. Raises: Failed."""
        self._last_id += 1
        meta = {
            f"{_PREFIX}protocolVersion": LATEST.date,
            f"{_PREFIX}clientCapabilities": {},
            f"{_PREFIX}clientInfo": {"name": "linkspan call", "version": __version__},
        }
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params | {"_meta": meta}}
        self._tell("->", f"{method} {_short(params)}")
        self._write(json.dumps(message).encode() + b"\n")
        answer = self._answer()
        if "error" in answer:
            self._tell("<-", f"error {_short(answer['error'])}")
            raise Failed(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        self._tell("<-", _short({key: value for key, value in result.items() if key != "_meta"}))
        return result

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._ended()) from None

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._last_id:
                return answer
            self._tell("<-", f"{answer.get('method')} {_short(answer.get('params', {}))}")
        raise Failed(self._ended())

    def _ended(self) -> str:
        return f"the server ended with exit status {self._process.wait()}; what it printed is above"

    def _tell(self, arrow: str, text: str) -> None:
        if self._show:
            print(f"{arrow:<2} {text}", file=sys.stderr, flush=True)


def _short(value: Any, limit: int = 400) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= limit else f"{text[:limit]}..."
