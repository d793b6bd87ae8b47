"""A server that misbehaves on request, in the standard library only. Its tools are the ways."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202eevil\r\nnext\tend"
TOOLS = ["evil", "die", "garble", "chat", "refuse", "stick", "bytes", "closed", "mixed", "misfit", "wordless"]


def main() -> None:
    if sys.argv[1:] == ["silent"]:
        sys.stdin.read()
    if sys.argv[1:] == ["junk"]:
        print("Welcome to my server!", flush=True)
        sys.exit("no such luck")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            print("told:", message["params"].get("reason"), file=sys.stderr, flush=True)
        if "id" in message:
            answer(message)


def answer(message: dict[str, Any]) -> None:
    match message["method"]:
        case "server/discover":
            reply(
                message,
                supportedVersions=["2026-07-28"],
                capabilities={"tools": {}, "resources": {}, "prompts": {}},
                ttlMs=0,
                cacheScope="private",
                _meta={"io.modelcontextprotocol/serverInfo": {"name": f"odd{EVIL}", "version": "1"}},
            )
        case "tools/list":
            closed = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
            mixed = {
                "type": "object",
                "properties": {
                    "either": {"type": ["string", "integer", "null"]},
                    "some": {"anyOf": [{"$ref": "#/$defs/names"}, {"type": "null"}]},
                    "free": {},
                    "text": {"type": "string"},
                    "flag": {"type": "boolean"},
                },
                "required": ["text"],
                "$defs": {"names": {"type": "array", "items": {"type": "string"}}},
            }
            schemas = {"closed": closed, "mixed": mixed}
            output = {"misfit": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
            tools = [
                {
                    "name": name,
                    "description": f"{EVIL}\nsecond line",
                    "inputSchema": schemas.get(name, {"type": "object"}),
                    **({"outputSchema": output[name]} if name in output else {}),
                }
                for name in TOOLS
            ]
            reply(message, tools=tools, ttlMs=0, cacheScope="private")
        case "tools/call":
            call(message, message["params"]["name"], message["params"]["arguments"])
        case "prompts/list":
            fail(message, -32603, "the list is broken")
        case _:
            fail(message, -32601, "Method not found")


def call(message: dict[str, Any], name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "evil":
            reply(message, content=[{"type": "text", "text": EVIL}])
        case "die":
            print("my disk is full", file=sys.stderr, flush=True)
            os._exit(9)
        case "garble":
            send({"jsonrpc": "2.0", "id": message["id"], "result": {"content": 7, "resultType": "complete"}})
        case "chat":
            print("hello from the server", flush=True)
            reply(message, content=[{"type": "text", "text": "done"}])
        case "refuse":
            fail(message, -32000, f"not today {EVIL}")
        case "stick":
            print("stuck", file=sys.stderr, flush=True)
        case "misfit":
            reply(message, content=[{"type": "text", "text": "x"}], structuredContent={"n": "x"})
        case "wordless":
            reply(message, content=[], structuredContent={"n": [1, 2]})
        case "bytes":
            blob = {"uri": "file:///../../etc/pass wd.tar", "blob": "AAEC", "mimeType": "application/x-tar"}
            reply(
                message,
                content=[
                    {"type": "image", "data": "!", "mimeType": "image/png"},
                    {"type": "resource", "resource": blob},
                ],
            )
        case _:
            reply(message, content=[{"type": "text", "text": json.dumps(arguments)}])


def reply(message: dict[str, Any], **result: Any) -> None:
    send({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}})


def fail(message: dict[str, Any], code: int, text: str) -> None:
    send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}})


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
