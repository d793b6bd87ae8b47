"""A name that a client makes up is repeated as far as it helps, and no further."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server

LONG = "tool_number_" * 100_000
REFERENCE = {"ref": {"type": "ref/prompt", "name": LONG}, "argument": {"name": "a", "value": ""}}


def server() -> Server:
    made = Server()
    for n in range(100):
        made.define_tool(name=f"tool_number_{n}", handler=lambda **args: "x")
    made.define_prompt(name="p", handler=lambda a: a)
    made.completion("p", "a")(lambda value: [])
    made.define_resource("x://a", text="t")
    return made


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": LONG}),
        ("prompts/get", {"name": LONG}),
        ("resources/read", {"uri": LONG}),
        ("resources/subscribe", {"uri": LONG}),
        ("completion/complete", REFERENCE),
        (LONG, {}),
    ],
)
@pytest.mark.timeout(20)
def test_a_very_long_name_is_answered_shortly_and_at_once(method: str, params: Any) -> None:
    answer = server().handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert "tool_number_" in answer["error"]["message"]
    assert len(str(answer)) < 700


def test_a_near_miss_is_still_pointed_out() -> None:
    answer = server().handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tool_numbr_7"}})
    assert answer["error"]["message"] == "Unknown tool: tool_numbr_7; did you mean 'tool_number_7'?"
