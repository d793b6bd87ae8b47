"""Any object of any shape, as JSON that the newest schema allows; with foreign members and foreign blocks if asked for."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from official_schemas import DEFINITIONS

from linkspan.types.base import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    Wire,
)
from linkspan.types.messages import ElicitParams

__all__ = ["KINDS", "objects"]

KINDS: tuple[type[Wire], ...] = tuple(kind for kind in DEFINITIONS if issubclass(kind, Wire))

Objects = st.SearchStrategy[dict[str, Any]]

texts = st.text(max_size=6)
names = st.text("abc", min_size=1, max_size=4)
numbers = st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)
open_objects = st.dictionaries(names, values, max_size=3)
meta = st.dictionaries(st.sampled_from(["com.example/k", "traceparent"]), texts, max_size=2)
base64_texts = st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())
fractions = st.floats(0, 1)
uris = st.sampled_from(["file:///a.txt", "test://greeting/you"])
input_schemas = st.sampled_from(
    [
        {"type": "object"},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "x-mcp-header": "A"}},
            "required": ["a"],
            "$defs": {},
        },
    ]
)
output_schemas = input_schemas | st.sampled_from([{"type": "array", "items": {"type": "string"}}, {"anyOf": [{}]}, {}])
questions = st.sampled_from(
    [
        {"type": "string", "title": "A", "description": "B", "format": "email", "default": "c", "maxLength": 9},
        {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        {"type": "number"},
        {"type": "boolean", "default": True},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "default": ["a"]},
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1, "title": "C"},
    ]
)
forms = st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(names, questions, max_size=3)})

NAMED: dict[str, st.SearchStrategy[Any]] = {
    "_meta": meta,
    "blob": base64_texts,
    "cacheScope": st.sampled_from(["public", "private"]),
    "completions": st.just({}),
    "costPriority": fractions,
    "data": base64_texts,
    "experimental": st.dictionaries(names, open_objects, max_size=2),
    "extensions": st.dictionaries(st.just("io.modelcontextprotocol/tasks"), st.just({})),
    "inputSchema": input_schemas,
    "intelligencePriority": fractions,
    "logging": st.just({}),
    "outputSchema": output_schemas,
    "priority": fractions,
    "requestedSchema": forms,
    "speedPriority": fractions,
    "src": st.just("https://example.com/icon.png"),
    "structuredContent": values,
    "ttlMs": st.integers(0, 10**9),
    "uri": uris,
    "uriTemplate": st.just("test://greeting/{name}"),
    "url": st.just("https://example.com/pay"),
    "websiteUrl": st.just("https://example.com"),
}
"""Members whose values the schema narrows beyond their Python type."""


@cache
def objects(kind: type[Wire], *, members: str = "some", foreign: bool = False) -> Objects:
    """Return objects of a shape with `all`, `some` or `no` optional members."""
    if kind is ElicitParams:
        return _questions(foreign)
    tag = kind.__struct_config__.tag
    required: dict[str, st.SearchStrategy[Any]] = {} if tag is None else {"type": st.just(tag)}
    optional: dict[str, st.SearchStrategy[Any]] = {"x-foreign": values} if foreign else {}
    hints = get_type_hints(kind)
    first_default = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    for place, (field, name) in enumerate(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)):
        is_required = place < first_default or members == "all"
        (required if is_required else optional)[name] = _member(kind, name, hints[field], foreign)
    return st.fixed_dictionaries(required, optional=None if members == "no" else optional)


def _questions(foreign: bool) -> Objects:
    """Return forms: a page to open has no shape that all revisions share."""
    optional = {"mode": st.just("form")} | ({"x-foreign": values} if foreign else {})
    return st.fixed_dictionaries({"message": texts, "requestedSchema": forms}, optional=optional)


def _member(kind: type[Wire], name: str, hint: Any, foreign: bool) -> st.SearchStrategy[Any]:
    if special := SPECIAL.get((kind.__name__, name)):
        return special(foreign)
    is_shape = any(isinstance(each, type) and issubclass(each, Wire) for each in get_args(hint) or (hint,))
    return NAMED[name] if name in NAMED and not is_shape else _hinted(hint, foreign)


def _hinted(hint: Any, foreign: bool) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*(_hinted(each, foreign) for each in get_args(hint) if each is not NoneType))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is list:
        return st.lists(_hinted(get_args(hint)[0], foreign), max_size=2)
    if get_origin(hint) is dict:
        return open_objects if get_args(hint)[1] is Any else st.dictionaries(names, _hinted(get_args(hint)[1], foreign))
    if issubclass(hint, Wire):
        return objects(hint, foreign=foreign)
    return {str: texts, int: st.integers(0, 2**53), float: fractions, bool: st.booleans()}[hint]


def _any_of(*kinds: type[Wire]) -> Callable[[bool], Objects]:
    def blocks(foreign: bool) -> Objects:
        known = st.one_of(*(objects(kind, foreign=foreign) for kind in kinds))
        return known | st.fixed_dictionaries({"type": st.just("x-hologram"), "voxels": values}) if foreign else known

    return blocks


def _list_of(element: Callable[[bool], Objects]) -> Callable[[bool], st.SearchStrategy[Any]]:
    return lambda foreign: st.lists(element(foreign), max_size=3)


def _contents(foreign: bool) -> Objects:
    return objects(TextResourceContents, foreign=foreign) | objects(BlobResourceContents, foreign=foreign)


_block = _any_of(TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)
_sampled = _any_of(TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent)


def _sampled_content(foreign: bool) -> st.SearchStrategy[Any]:
    return _sampled(foreign) | _list_of(_sampled)(foreign)


SPECIAL: dict[tuple[str, str], Callable[[bool], st.SearchStrategy[Any]]] = {
    ("CallToolResult", "content"): _list_of(_block),
    ("ToolResultContent", "content"): _list_of(_block),
    ("PromptMessage", "content"): _block,
    ("SamplingMessage", "content"): _sampled_content,
    ("CreateMessageResult", "content"): _sampled_content,
    ("EmbeddedResource", "resource"): _contents,
    ("ReadResourceResult", "contents"): _list_of(_contents),
    ("LoggingMessageParams", "data"): lambda _: values,
    ("ElicitResult", "content"): lambda _: st.dictionaries(names, texts | st.integers() | st.booleans(), max_size=2),
}
"""Members that hold one of several shapes, or whose name means something else elsewhere."""
