"""A pinned revision refuses what its author wrote and it cannot say; what was only derived is left out (H14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from linkspan import Annotations, Configuration, RegistrationError, Server
from linkspan.types.messages import PromptArgument


def pinned(date: str, **more: Any) -> Server:
    return Server(configuration=Configuration(protocol_version=date), **more)


@pytest.mark.parametrize("date", ["2024-11-05", "2025-03-26"])
def test_a_tool_with_a_hinted_result_may_be_registered_under_an_old_pin(date: str) -> None:
    server = pinned(date)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    (listed,) = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
    assert set(listed) == {"name", "inputSchema"}


TITLED = PromptArgument("message", title="The message")


@pytest.mark.parametrize(
    ("register", "named"),
    [
        (
            lambda server: server.define_tool(name="t", handler=lambda: None, output_schema={"type": "object"}),
            "output_",
        ),
        (lambda server: server.define_prompt(name="p", handler=lambda args: "x", arguments=[TITLED]), "PromptArgument"),
        (
            lambda server: server.define_resource("x://a", annotations=Annotations(last_modified="2025-01-01T00:00Z")),
            "Annotations",
        ),
    ],
)
def test_what_the_author_wrote_is_refused_under_an_old_pin_also_inside_other_shapes(
    register: Callable[[Server], object], named: str
) -> None:
    with pytest.raises(RegistrationError, match=named):
        register(pinned("2025-03-26"))
    register(pinned("2025-06-18"))


@pytest.mark.parametrize(("wanted", "served"), [("1999-01-01", "2025-03-26"), ("2025-11-25", "2025-11-25")])
def test_a_pin_is_proposed_to_clients_and_forced_on_none(wanted: str, served: str) -> None:
    hello = {"protocolVersion": wanted, "capabilities": {}}
    answer = pinned("2025-03-26").handle({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert answer["result"]["protocolVersion"] == served
