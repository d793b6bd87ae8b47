"""What providers of models refuse is said when a tool is registered."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server


def test_what_providers_of_models_refuse_is_said_once_when_a_tool_is_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("ferries")
    schemas: list[tuple[str, dict[str, Any]]] = [
        ("fine", {"type": "object", "properties": {"port": {"type": "string"}}}),
        ("two.words", {"type": "object"}),
        ("spaced", {"type": "object", "properties": {"a port": {"type": "string"}}}),
        ("either", {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        ("listed", {"type": "object", "properties": {"ports": {"type": "array"}}}),
    ]
    for name, schema in schemas:
        server.define_tool(name=name, handler=lambda arguments: "", description="Ferries.", input_schema=schema)
    said = [each.getMessage() for each in caplog.records if each.name == "linkspan.server"]
    assert [(each.split()[2], each[-5:]) for each in said] == [
        ("two.words:", "[L01]"), ("spaced:", "[L02]"), ("either:", "[L03]"), ("listed:", "[L04]"),
    ]  # fmt: skip
