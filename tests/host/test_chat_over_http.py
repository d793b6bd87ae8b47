"""The whole way: a conversation, a model over HTTP in each wire format, and a server with tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from providers import KINDS, FakeProvider, Kind

from linkspan import Server, ToolError
from linkspan.host.consent import Policy
from linkspan.host.conversation import Conversation
from linkspan.host.host import Host
from linkspan.host.messages import ToolMessage

every_kind = pytest.mark.parametrize("kind", KINDS)


def dice() -> Server:
    server = Server("dice")

    @server.tool(annotations={"read_only_hint": True})
    def roll(sides: int = 6) -> str:
        """Roll a die."""
        if sides < 2:
            raise ToolError("A die has two sides at least.")
        return f"a {sides - 2}"

    @server.tool(name="table.set.up")
    def set_up() -> str:
        """Set up the table."""
        return "done"

    return server


def host() -> Host:
    return Host({"dice": dice()}, policy=Policy(otherwise="allow"))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def answers(chat: Conversation) -> list[tuple[str, bool]]:
    told = [message for message in chat.messages if isinstance(message, ToolMessage)]
    return [(answer.name, answer.is_error) for message in told for answer in message.answers]


@every_kind
def test_calls_run_errors_are_mended_and_odd_names_are_found(kind: Kind) -> None:
    async def test() -> None:
        rounds = [
            ["I roll.", ("roll", {"sides": 6}), ("roll", {"sides": 1}), ("table_set_up", {})],
            [("roll", {"sides": 8})],
            ["A four and a six."],
            ["You are welcome."],
        ]
        async with FakeProvider(kind, rounds).serving() as provider, host() as servers, provider.open() as model:
            chat = Conversation(servers, model)
            assert await chat.answer("Roll dice") == "A four and a six."
            assert answers(chat) == [("roll", False), ("roll", True), ("table.set.up", False), ("roll", False)]
            assert "A die has two sides at least." in str(provider.requests[1])
            assert await chat.answer("Thank you") == "You are welcome."
            assert len(provider.requests) == 4

    run(test)


def test_a_conversation_goes_on_with_another_providers_model() -> None:
    async def test() -> None:
        async with host() as servers:
            chat: Conversation | None = None
            for kind in (*KINDS, "anthropic"):
                rounds = [["I roll.", ("roll", {"sides": 6}), ("roll", {"sides": 8})], [f"So says {kind}."]]
                async with FakeProvider(kind, rounds).serving() as provider:
                    chat = chat or Conversation(servers, provider.open())
                    chat.model = provider.open()
                    assert await chat.answer("Roll dice") == f"So says {kind}."
            assert chat is not None
            assert answers(chat) == [("roll", False)] * 8

    run(test)
