"""How often a server may ask the user for one call: `limits.max_rounds` (MSG-60)."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Context, Limits, Server
from linkspan.client import SyncClient
from linkspan.flows.client_errors import InvalidResponse


def asks_in_turn(count: int, ctx: Context) -> int:
    """Ask the user that many questions, one after the other."""
    return sum(ctx.ask(f"n{each}", int, f"Number {each}?") for each in range(count))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_last_round_of_questions_gets_its_result(most: int) -> None:
    server = Server("curious")
    server.tool(name="ask")(asks_in_turn)
    asked: list[str] = []

    def answer(question: Any) -> dict[str, int]:
        asked.append(question.message)
        return dict.fromkeys(question.requested_schema["properties"], 1)

    with SyncClient(server, limits=Limits(max_rounds=most), elicitation=answer) as client:
        assert client.call_tool("ask", {"count": most}).structured == {"result": most}
        assert len(asked) == most
        with pytest.raises(InvalidResponse, match=rf"asked for input {most + 1} times \(limits.max_rounds\)"):
            client.call_tool("ask", {"count": most + 1})
        assert len(asked) == 2 * most, "the user is not asked what cannot be answered"
        assert client.call_tool("ask", {"count": most}).structured == {"result": most}, "each call counts afresh"
