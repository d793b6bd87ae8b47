"""Structured values beside content of an author's own (TOOL-4)."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import ImageContent, Server, ToolResponse
from linkspan.revisions import REVISIONS
from talk import connected, say

PICTURE = {"type": "image", "data": "AAE=", "mimeType": "image/png"}


@pytest.mark.parametrize("revision", [each.date for each in REVISIONS.values() if each.era == "legacy"])
@pytest.mark.parametrize(
    ("content", "value", "told"),
    [
        ([ImageContent("AAE=", "image/png")], [1, 2], [PICTURE, {"type": "text", "text": "[1,2]"}]),
        (["two"], 2, [{"type": "text", "text": "two"}, {"type": "text", "text": "2"}]),
        (["[1, 2]"], [1, 2], [{"type": "text", "text": "[1, 2]"}]),
        (["one"], {"a": 1}, [{"type": "text", "text": "one"}]),
        ([], [1], [{"type": "text", "text": "[1]"}]),
    ],
)
def test_a_list_or_a_bare_value_is_told_as_a_text_too(revision: str, content: Any, value: Any, told: Any) -> None:
    server = Server()
    server.define_tool(name="t", handler=lambda **args: ToolResponse(content, structured_content=value))
    (answer,) = say(connected(server, revision=revision), "tools/call", 1, name="t")
    assert answer["result"]["content"] == told
    modern = server.handle(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "t",
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": list(REVISIONS)[-1],
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
    )
    assert (modern["result"]["content"], modern["result"]["structuredContent"]) == (told, value)
