"""What older revisions are told where they cannot be told all: value rules, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from linkspan.revisions import LATEST, REVISIONS
from linkspan.revisions.stepdown import plan_for, step_down
from linkspan.types.base import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    Icon,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
    Wire,
)
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    GetPromptResult,
    InitializeResult,
    ListChangedCapability,
    ListResourcesResult,
    ListToolsResult,
    PromptMessage,
    ReadResourceResult,
    Resource,
    SamplingMessage,
    ServerCapabilities,
    Tool,
    ToolAnnotations,
)
from linkspan.wire.values import from_builtins, to_builtins

A, B, C, D, E = REVISIONS.values()


def down(revision: Any, value: Wire) -> Any:
    """Step a shape down to a revision and return its JSON."""
    return to_builtins(step_down(revision, value))


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


SOUND = {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}
PICTURE = {"type": "image", "data": "AAE=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///a", "text": "A"}}
HOLOGRAM = {"type": "x-hologram", "voxels": [1]}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": [text("3")]}

blocks = pytest.mark.parametrize(
    ("revision", "block", "said"),
    [
        (A, SOUND, text("[audio/wav audio, 3 bytes]")),
        (B, SOUND, SOUND),
        (A, PICTURE, PICTURE),
        (A, LINK, text("[resource a: file:///a]")),
        (B, LINK, text("[resource a: file:///a]")),
        (C, LINK, LINK),
        (C, LINK | {"icons": []}, LINK),
        (D, LINK | {"icons": []}, LINK | {"icons": []}),
        (A, EMBEDDED, EMBEDDED),
        (B, EMBEDDED | {"resource": EMBEDDED["resource"] | {"_meta": {}}, "_meta": {}}, EMBEDDED),
        (C, EMBEDDED | {"_meta": {"k": 1}}, EMBEDDED | {"_meta": {"k": 1}}),
        (A, HOLOGRAM, HOLOGRAM),
        (D, HOLOGRAM, HOLOGRAM),
        (A, text("a", _meta={}), text("a")),
        (A, SOUND | {"annotations": {"audience": ["user"], "lastModified": "2025"}, "_meta": {}},
         text("[audio/wav audio, 3 bytes]", annotations={"audience": ["user"]})),
        (B, text("a", annotations={"priority": 1, "lastModified": "2025"}), text("a", annotations={"priority": 1})),
        (C, text("a", annotations={"lastModified": "2025"}), text("a", annotations={"lastModified": "2025"})),
        (D, text("a", extra=1), text("a", extra=1)),
    ],
)  # fmt: skip


@blocks
def test_a_tool_tells_in_words_what_the_client_cannot_show(revision: Any, block: Any, said: Any) -> None:
    """TOOL-3, MSG-53: a foreign block passes; whom a block is for stays said."""
    assert down(revision, from_builtins({"content": [block]}, CallToolResult)) == {"content": [said]}


@blocks
def test_a_prompt_tells_in_words_what_the_client_cannot_show(revision: Any, block: Any, said: Any) -> None:
    """PR-2."""
    message = {"role": "user", "content": block}
    stepped = down(revision, from_builtins({"messages": [message]}, GetPromptResult))
    assert stepped == {"messages": [message | {"content": said}]}


@pytest.mark.parametrize(
    ("revision", "content", "structured", "expected"),
    [
        (A, ["x"], {"a": 1}, {"content": [text("x")]}),
        (B, [], {"a": 1}, {"content": [text('{"a":1}')]}),
        (C, [], {"a": 1}, {"content": [], "structuredContent": {"a": 1}}),
        (C, ["x"], [1], {"content": [text("x"), text("[1]")]}),
        (A, ["x"], [1], {"content": [text("x"), text("[1]")]}),
        (C, ["x", "[ 1 ]"], [1], {"content": [text("x"), text("[ 1 ]")]}),
        (C, ["[1.0]"], [1], {"content": [text("[1.0]"), text("[1]")]}),
        (C, ["x"], "x", {"content": [text("x")]}),
        (C, ["x"], None, {"content": [text("x"), text("null")]}),
        (C, [], [1], {"content": [text("[1]")]}),
        (D, [], None, {"content": [text("null")]}),
        (D, ["x"], Raw(b"[1]"), {"content": [text("x"), text("[1]")]}),
        (D, ["x"], Raw(b'{"a":1}'), {"content": [text("x")], "structuredContent": {"a": 1}}),
        (E, [], None, {"content": [], "structuredContent": None}),
        (E, [], [1], {"content": [], "structuredContent": [1]}),
    ],
)
def test_a_bare_value_is_not_lost_where_only_objects_are_known(
    revision: Any, content: list[str], structured: Any, expected: Any
) -> None:
    """TOOL-4: before the modern era `structuredContent` is an object; before titles it is not there."""
    result = CallToolResult(content=[TextContent(each) for each in content], structured_content=structured)
    assert down(revision, result) == expected


@pytest.mark.parametrize(
    ("revision", "schema", "is_shown"),
    [
        (A, {"type": "object"}, False),
        (B, {"type": "object"}, False),
        (C, {"type": "object"}, True),
        (C, {"type": "array"}, False),
        (D, {}, False),
        (D, {"anyOf": [{"type": "object"}]}, False),
        (E, {"type": "array"}, True),
        (E, {}, True),
    ],
)
def test_an_output_schema_is_shown_where_it_is_understood(revision: Any, schema: Any, is_shown: bool) -> None:
    """TOOL-1, JS-5."""
    stepped = down(revision, Tool("t", {"type": "object"}, output_schema=schema))
    assert stepped.get("outputSchema") == (schema if is_shown else None)


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
def test_an_input_schema_goes_out_word_for_word(revision: Any) -> None:
    """MSG-55."""
    schema = {"$schema": "x", "type": "object", "title": "T", "icons": [], "$defs": {"a": {"_meta": {}}}, "x-y": [None]}
    assert down(revision, Tool("t", schema))["inputSchema"] == schema


def test_a_tool_has_the_members_that_its_revision_knows() -> None:
    """TOOL-1, ICON-1, TITLE-1, CACHE-S1, inside a list as well."""
    tool = Tool(
        "t",
        {"type": "object"},
        title="T",
        annotations=ToolAnnotations(title="U"),
        icons=[Icon("data:,")],
        meta={"k": 1},
    )
    page = ListToolsResult([tool], ttl_ms=0, cache_scope="private")
    bare = {"name": "t", "inputSchema": {"type": "object"}}
    annotated = bare | {"annotations": {"title": "U"}}
    titled = annotated | {"title": "T", "_meta": {"k": 1}}
    with_icons = titled | {"icons": [{"src": "data:,"}]}
    assert [down(revision, page) for revision in (A, B, C, D)] == [
        {"tools": [each]} for each in (bare, annotated, titled, with_icons)
    ]
    assert step_down(E, page) is page


def test_a_server_says_of_itself_what_its_revision_knows() -> None:
    """IMPL-1, SRV-1, EXT-1: a completions capability came second; extensions are declared in every revision."""
    value = InitializeResult(
        "-",
        ServerCapabilities(tools=ListChangedCapability(list_changed=True), completions={}, extensions={}),
        Implementation("n", "1", title="T", description="D", website_url="https://example.com", icons=[]),
    )
    plain, titled = {"name": "n", "version": "1"}, {"name": "n", "version": "1", "title": "T"}
    full = titled | {"description": "D", "websiteUrl": "https://example.com", "icons": []}
    tools = {"tools": {"listChanged": True}, "extensions": {}}
    assert [(down(each, value)["serverInfo"], down(each, value)["capabilities"]) for each in (A, B, C, D)] == [
        (plain, tools),
        (plain, tools | {"completions": {}}),
        (titled, tools | {"completions": {}}),
        (full, tools | {"completions": {}}),
    ]


def test_resources_and_their_contents_lose_only_what_is_later() -> None:
    """RES-1, RES-2, ANN-1, META-2, CACHE-S1."""
    listed = Resource("file:///a", "a", title="A", size=1, annotations=Annotations(priority=1, last_modified="2025"))
    assert down(A, ListResourcesResult([listed], ttl_ms=5, cache_scope="public")) == {
        "resources": [{"uri": "file:///a", "name": "a", "size": 1, "annotations": {"priority": 1}}]
    }
    read = ReadResourceResult([TextResourceContents("file:///a", "A", meta={"k": 1})], ttl_ms=5)
    assert down(B, read) == {"contents": [{"uri": "file:///a", "text": "A"}]}
    assert down(C, read) == {"contents": [{"uri": "file:///a", "text": "A", "_meta": {"k": 1}}]}


@pytest.mark.parametrize(
    ("revision", "content", "said"),
    [
        (D, [text("a"), USE, RESULT], [text("a"), USE, RESULT]),
        (D, USE, USE),
        (D, RESULT | {"structuredContent": [1]}, RESULT | {"content": [text("3"), text("[1]")]}),
        (D, RESULT | {"structuredContent": 3}, RESULT),
        (D, RESULT | {"content": [], "structuredContent": 1}, RESULT | {"content": [text("1")]}),
        (C, [text("a")], text("a")),
        (C, [text("a"), text("b")], text("a\nb")),
        (C, [text("a"), PICTURE], text("a\n[image/png image, 2 bytes]")),
        (C, [], text("")),
        (C, [text("a"), USE], text('a\n[call of tool add: {"a":1}]')),
        (C, RESULT, text('[result of a tool: [{"type":"text","text":"3"}]]')),
        (C, PICTURE, PICTURE),
        (C, [PICTURE], PICTURE),
        (A, SOUND, text("[audio/wav audio, 3 bytes]")),
        (A, HOLOGRAM, HOLOGRAM),
    ],
)
def test_a_model_is_told_in_one_block_where_lists_are_not_known(revision: Any, content: Any, said: Any) -> None:
    """SAM-4: in messages to the model, and in what it wrote."""
    message = {"role": "user", "content": content}
    params = from_builtins({"messages": [message], "maxTokens": 1}, CreateMessageParams)
    assert down(revision, params)["messages"] == [message | {"content": said}]
    written = from_builtins(message | {"model": "m"}, CreateMessageResult)
    assert down(revision, written)["content"] == said


def test_tools_for_a_model_are_dropped_where_they_are_not_known() -> None:
    """SAM-5."""
    message = SamplingMessage("user", TextContent("hi"), meta={"k": 1})
    tool = Tool("t", {"type": "object"}, output_schema={"type": "array"})
    params = CreateMessageParams([message], 9, tools=[tool])
    assert down(C, params) == {"messages": [{"role": "user", "content": text("hi")}], "maxTokens": 9}
    assert down(D, params)["tools"] == [{"name": "t", "inputSchema": {"type": "object"}}]


CHOICES = [{"const": "r", "title": "Red"}, {"const": "g"}]


@pytest.mark.parametrize(
    ("newest", "plain"),
    [
        ({"type": "string", "oneOf": CHOICES}, {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "g"]}),
        ({"type": "string", "enum": ["r"], "default": "r"}, {"type": "string", "enum": ["r"]}),
        ({"type": "string", "enum": ["r"], "enumNames": ["R"]}, {"type": "string", "enum": ["r"], "enumNames": ["R"]}),
        ({"type": "boolean", "default": True}, {"type": "boolean", "default": True}),
        ({"type": "integer", "default": 1, "minimum": 0}, {"type": "integer", "minimum": 0}),
        ({"type": "string", "default": "a", "format": "email"}, {"type": "string", "format": "email"}),
        (
            {"type": "array", "items": {"type": "string", "enum": ["r", "g"]}, "minItems": 1, "default": ["r"]},
            {"type": "string", "description": "one or more of r, g, separated by commas"},
        ),
        (
            {"type": "array", "items": {"anyOf": CHOICES}, "maxItems": 1, "description": "Colours"},
            {"type": "string", "description": "Colours (one or more of r, g, separated by commas)"},
        ),
        (True, True),
    ],
)
def test_a_form_is_made_plain_where_rich_ones_are_not_known(newest: Any, plain: Any) -> None:
    """ELI-4: choices become `enum` and `enumNames`, and only booleans keep their default."""
    schema = {"type": "object", "properties": {"a": newest}, "required": ["a"]}
    params = ElicitParams("?", mode="form", requested_schema=schema)
    assert down(C, params) == {"message": "?", "requestedSchema": schema | {"properties": {"a": plain}}}
    assert step_down(D, params) is params


def test_a_shape_that_did_not_change_since_has_no_way_down() -> None:
    """The step from one revision to the next costs only what changed in it."""
    for kind in (PromptMessage, GetPromptResult, EmbeddedResource, ResourceLink, ElicitParams, Implementation):
        assert [plan_for(revision, kind) is None for revision in (C, D, E)] == [kind is EmbeddedResource, True, True]


@pytest.mark.parametrize(
    "value",
    [
        CallToolResult([TextContent("a")]),
        CallToolResult([TextContent("a")], structured_content=Raw(b'{"a":1}')),
        PromptMessage("user", TextContent("a")),
        ToolUseContent("1", "add", {}),
        ToolResultContent("1", [ImageContent("", "image/png"), AudioContent("", "audio/wav")]),
        EmbeddedResource(TextResourceContents("file:///a", "A")),
        ResourceLink("file:///a", "a"),
        UnknownContent({"type": "x"}),
    ],
)
def test_what_is_the_same_in_the_newest_revision_goes_out_as_it_is(value: Wire) -> None:
    assert plan_for(LATEST, type(value)) is None
    assert step_down(LATEST, value) is value


def test_the_commonest_result_needs_no_way_down_in_the_handshake_era() -> None:
    """Plain texts and an object, as most calls answer."""
    both = CallToolResult([TextContent("a")], structured_content=Raw(b'{"a":1}'))
    assert [step_down(revision, both) is both for revision in (A, B, C, D)] == [False, False, True, True]
    plain = CallToolResult([TextContent("a")])
    assert all(step_down(revision, plain) is plain for revision in (A, B, C, D))


def test_stepping_down_leaves_the_value_as_it_was() -> None:
    """One list of tools serves clients of every revision."""
    members = {"content": [LINK | {"icons": []}, SOUND], "structuredContent": [1]}
    result = from_builtins(members, CallToolResult)
    down(A, result)
    assert to_builtins(result) == members
