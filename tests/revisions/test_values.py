"""Shapes from and to JSON: nothing that a newer peer says is lost, and nothing that is wrong gets through."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from any_shape import KINDS, objects
from hypothesis import HealthCheck, given, settings

from linkspan.types.base import ImageContent, TextContent, UnknownContent, Wire, unknown_members
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageParams,
    LoggingMessageParams,
    PromptMessage,
    ReadResourceResult,
    ServerCapabilities,
    Tool,
)
from linkspan.wire.values import decode_content, decode_open, encode_base64, from_builtins, to_builtins


@pytest.mark.parametrize("kind", KINDS)
def test_a_shape_with_foreign_members_comes_back_as_it_came(kind: type[Wire]) -> None:
    """MSG-25, MSG-50, MSG-53, META-2: at every depth, foreign blocks included."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(objects(kind, foreign=True))
    def check(members: dict[str, Any]) -> None:
        assert to_builtins(from_builtins(members, kind)) == members
        assert to_builtins(decode_open(json.dumps(members).encode(), kind)) == members

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_shape_encodes_to_what_it_is_as_builtins(kind: type[Wire]) -> None:
    """The hot path encodes shapes directly; both ways say the same."""

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(objects(kind))
    def check(members: dict[str, Any]) -> None:
        value = from_builtins(members, kind)
        assert json.loads(msgspec.json.encode(value)) == to_builtins(value) == members

    check()


def test_unknown_members_stand_beside_the_fields() -> None:
    tool = from_builtins({"name": "t", "inputSchema": {}, "execution": {"taskSupport": "optional"}}, Tool)
    assert tool == Tool("t", {})
    assert unknown_members(tool) == {"execution": {"taskSupport": "optional"}}
    assert unknown_members(Tool("t", {})) == {}


@pytest.mark.parametrize("block", [{"type": "x-hologram", "voxels": 1}, {"type": []}, {"type": None}, {}])
def test_a_block_of_no_known_type_is_kept_whole(block: dict[str, Any]) -> None:
    """MSG-53: one odd block never fails the whole result."""
    assert decode_content(block) == UnknownContent(block)
    result = from_builtins({"content": [block, {"type": "text", "text": "a"}]}, CallToolResult)
    assert result.content == [UnknownContent(block), TextContent("a")]


@pytest.mark.parametrize(
    ("kind", "members", "complaint"),
    [
        (CallToolResult, [], "Expected `object`, got `list`"),
        (CallToolResult, {}, "missing required field `content`"),
        (CallToolResult, {"content": {}}, "Expected `array`"),
        (CallToolResult, {"content": ["a"]}, "Expected `object`, got `str`"),
        (CallToolResult, {"content": [{"type": "text"}]}, r"missing required field `text` \(in content\)"),
        (CallToolResult, {"content": [], "isError": 1}, "in isError"),
        (TextContent, {"type": "image", "text": "a"}, "Expected type `text`, got 'image'"),
        (TextContent, {"text": "a"}, "Expected type `text`, got None"),
        (PromptMessage, {"role": "system", "content": {"type": "x"}}, "in role"),
        (ReadResourceResult, {"contents": [{"uri": "file:///a"}]}, "missing required field `text`"),
        (LoggingMessageParams, {"level": "loud", "data": 1}, "in level"),
        (ServerCapabilities, {"tools": {"listChanged": "yes"}}, r"in listChanged\) \(in tools"),
        (CreateMessageParams, {"messages": [], "maxTokens": True}, "in maxTokens"),
    ],
)
def test_what_has_the_wrong_shape_is_refused_with_its_place(kind: type[Wire], members: Any, complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        from_builtins(members, kind)


def test_null_is_a_value_of_structured_content_and_of_log_data_and_absence_elsewhere() -> None:
    """TOOL-4."""
    result = from_builtins({"content": [], "structuredContent": None}, CallToolResult)
    assert to_builtins(result) == {"content": [], "structuredContent": None}
    assert to_builtins(CallToolResult([])) == {"content": []}
    assert to_builtins(LoggingMessageParams("info", None)) == {"level": "info", "data": None}
    lenient = from_builtins({"messages": [], "maxTokens": 1, "tools": None, "toolChoice": None}, CreateMessageParams)
    assert to_builtins(lenient) == {"messages": [], "maxTokens": 1}


def test_content_is_written_in_its_natural_order() -> None:
    assert to_builtins(TextContent("hi")) == {"type": "text", "text": "hi"}
    picture = ImageContent(encode_base64(b"\x00\x01"), "image/png")
    assert to_builtins([picture]) == [{"type": "image", "data": "AAE=", "mimeType": "image/png"}]
