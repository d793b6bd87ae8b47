"""The types of the protocol in both versions."""

import json

import pytest
from pydantic import AnyUrl, ValidationError

from linkspan_compat.protocol.types import types_of


def test_all_models_of_both_versions_can_be_made():
    for version in ("1", "2"):
        found = types_of(version)
        assert all(found[name] is not None for name in found)


def test_version_2_has_every_name_of_the_sdk():
    import mcp_types

    names = {name for name in mcp_types.__all__ if name not in ("CORE_RESULT_TYPES",)}
    assert names - set(types_of("2")) == set()


def test_version_2_accepts_and_writes_what_the_sdk_does():
    import mcp_types

    ours = types_of("2")
    samples = {
        "Tool": {
            "name": "a",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "_meta": {"x": 1},
        },
        "CallToolResult": {
            "content": [{"type": "text", "text": "x"}],
            "structuredContent": {"a": None},
            "isError": True,
        },
        "Resource": {"uri": "data://x", "name": "x", "mimeType": "text/plain", "size": 3},
        "PromptMessage": {"role": "user", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}},
        "CreateMessageRequestParams": {"messages": [], "maxTokens": 5, "modelPreferences": {"hints": [{"name": "x"}]}},
        "ElicitResult": {"action": "accept", "content": {"a": [1 and "x"], "b": 2.5}},
        "InitializeResult": {
            "protocolVersion": "x",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "a", "version": "1"},
        },
        "CompleteResult": {"completion": {"values": ["a"], "hasMore": False}},
    }
    for name, sample in samples.items():
        mine, real = ours[name].model_validate(sample), getattr(mcp_types, name).model_validate(sample)
        dumped = [json.loads(each.model_dump_json(by_alias=True, exclude_none=True)) for each in (mine, real)]
        assert dumped[0] == dumped[1], name
        assert mine.model_dump() == real.model_dump(), name


def test_version_1_has_the_names_of_the_wire_urls_and_root_models():
    found = types_of("1")
    tool = found["Tool"](name="a", inputSchema={}, extra="kept")
    assert tool.inputSchema == tool.input_schema == {}
    assert tool.extra == "kept"
    assert isinstance(found["Resource"](uri="https://x.org", name="x").uri, AnyUrl)
    message = found["JSONRPCMessage"].model_validate({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert isinstance(message.root, found["JSONRPCRequest"])
    with pytest.raises(ValidationError):
        found["TextContent"](text="a type is needed")


def test_content_can_be_told_apart_and_extended():
    found = types_of("2")
    block = found["TextContent"](text="x")
    assert isinstance(block, found["ContentBlock"])
    assert not isinstance(found["Tool"](name="a", input_schema={}), found["ContentBlock"])

    class Mine(found["TextContent"]):
        more: int = 1

    assert Mine(text="x").model_dump(exclude_none=True) == {"type": "text", "text": "x", "more": 1}
