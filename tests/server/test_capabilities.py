"""What is declared is what is served and announced (SRV-2, SRV-3, SRV-4)."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import RegistrationError, Server


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"tools": True}, "tools"),
        ({"tools": {"listChanged": "yes"}}, "listChanged"),
        ({"experimental": 5}, "experimental"),
        ({"extensions": {"a/b": object()}}, "object"),
        (["tools"], "list"),
    ],
)
def test_capabilities_of_the_wrong_shape_are_refused_when_the_server_is_made(declared: Any, named: str) -> None:
    with pytest.raises(RegistrationError, match=named):
        Server(capabilities=declared)


def test_what_is_declared_cannot_change_behind_the_servers_back() -> None:
    declared: dict[str, Any] = {"tools": {}}
    server = Server(capabilities=declared)
    declared["tools"] = True
    assert server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"] == {"tools": []}
