"""From the newest vocabulary down to an older revision's: later members go, later blocks become texts, values are bent.

A plan is compiled once for a revision and a shape. Where nothing differs the plan is None, and the shape goes out as it is:
the newest revision pays nothing for the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from linkspan.revisions import LATEST, REVISIONS
from linkspan.revisions.record import Revision
from linkspan.types.base import (
    JSON,
    UNSET,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    Wire,
    is_array,
    is_object,
)
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageResult,
    ElicitParams,
    PromptMessage,
    ReadResourceResult,
    SamplingMessage,
    Tool,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import to_builtins

_OPENING_BRACE = ord("{")
Plan: TypeAlias = Callable[[JSONObject], JSONObject]


def encode_as(revision: Revision, value: Wire) -> bytes:
    """Encode what `revision` can say of `value`; the newest one can say all of it."""
    stepped = value if revision is LATEST else step_down(revision, value)
    return encode(to_builtins(stepped) if stepped is value and value.__dict__ else stepped)


def step_down(revision: Revision, value: Wire) -> Wire | JSON:
    """Return what `revision` can say of `value`: the shape itself, or JSON builtins."""
    plan = plan_for(revision, type(value))
    if plan is None or (isinstance(value, CallToolResult) and _fits(revision, value)):
        return value
    return plan(to_builtins(value))


def _fits(revision: Revision, result: CallToolResult) -> bool:
    """Return whether the commonest result, plain texts and an object, needs no step down, as most do."""
    structured = result.structured_content
    if structured is not UNSET:
        says_objects = revision.structured_content == "object" and isinstance(structured, Raw)
        if not (says_objects and memoryview(structured)[0] == _OPENING_BRACE):
            return False
    return all(type(each) is TextContent and each.meta is None and each.annotations is None for each in result.content)


def knows_field(revision: Revision, kind: type[Wire], field: str) -> bool:
    """Return whether a member of a shape existed in `revision`."""
    return field not in _later_fields(revision, kind)


@cache
def plan_for(revision: Revision, kind: type[Wire]) -> Plan | None:
    """Compile the way down for one shape, on its JSON builtins; None where it is the same in the newest revision."""
    if revision is LATEST:
        return None
    steps: list[Plan] = []
    wire_names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    rule, is_needed = _RULES.get(kind, _NO_RULE)
    if is_needed(revision):
        steps.append(lambda members: rule(revision, members))
    if gone := [wire_names[name] for name in _later_fields(revision, kind)]:
        steps.append(lambda members: {name: value for name, value in members.items() if name not in gone})
    for name, hint in get_type_hints(kind).items():
        inner = _shape_in(hint)
        if inner is not None and name in wire_names and (plan := plan_for(revision, inner)) is not None:
            steps.append(_inside(wire_names[name], plan))
    return _chain(steps) if steps else None


@cache
def _later_fields(revision: Revision, kind: type[Wire]) -> frozenset[str]:
    later = [each for each in REVISIONS.values() if each.date > revision.date]
    return frozenset(name for each in later for name in each.new_fields.get(kind, ()))


def _shape_in(hint: Any) -> type[Wire] | None:
    """Return the shape that a member is, or is a list of."""
    if get_origin(hint) in (Union, UnionType):
        inner = [each for each in get_args(hint) if each is not NoneType]
        return _shape_in(inner[0]) if len(inner) == 1 else None
    if get_origin(hint) is list:
        return _shape_in(get_args(hint)[0])
    return hint if isinstance(hint, type) and issubclass(hint, Wire) else None


def _inside(name: str, plan: Plan) -> Plan:
    def apply(members: JSONObject) -> JSONObject:
        value = members.get(name)
        if is_array(value):
            return members | {name: [plan(each) for each in value]}
        return members | {name: plan(value)} if is_object(value) else members

    return apply


def _chain(steps: list[Plan]) -> Plan:
    def apply(members: JSONObject) -> JSONObject:
        for step in steps:
            members = step(members)
        return members

    return apply


# Rules for values. Each takes and returns the JSON of one shape.


def _block(revision: Revision, block: JSON, known: frozenset[str]) -> JSON:
    """Keep a content block that the revision knows, and describe the others in a text. Foreign types pass (MSG-53)."""
    if not is_object(block) or (kind := _kind_of(block)) is None:
        return block
    members: JSONObject = block
    if members["type"] not in known:
        reported: JSONObject = {"annotations": members["annotations"]} if "annotations" in members else {}
        kind, members = TextContent, {"type": "text", "text": _in_words(members)} | reported
    plan = plan_for(revision, kind)
    return plan(members) if plan is not None else members


def _kind_of(block: JSONObject) -> type[Wire] | None:
    kind = block.get("type")
    return _ALL_BLOCKS.get(kind) if isinstance(kind, str) else None


def _in_words(block: JSONObject) -> str:
    """Describe a block, for a peer that only knows texts."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "mimeType": mime, "data": str(data)}:
            return f"[{mime} {kind}, {len(data) * 3 // 4 - data[-2:].count('=')} bytes]"
        case {"type": "resource_link", "uri": uri, "name": name}:
            return f"[resource {name}: {uri}]"
        case {"type": "tool_use", "name": name}:
            return f"[call of tool {name}: {_json(block.get('input'))}]"
        case {"type": "tool_result"}:
            return f"[result of a tool: {_json(block.get('content'))}]"
        case _:
            return _json(block)


def _embedded(revision: Revision, members: JSONObject) -> JSONObject:
    resource = members.get("resource")
    return members | {"resource": _contents(revision, resource)} if is_object(resource) else members


def _contents(revision: Revision, members: JSONObject) -> JSONObject:
    plan = plan_for(revision, BlobResourceContents if "blob" in members else TextResourceContents)
    return plan(members) if plan is not None else members


def _read_result(revision: Revision, members: JSONObject) -> JSONObject:
    return members | {"contents": [_contents(revision, each) for each in members["contents"]]}


def _prompt_message(revision: Revision, members: JSONObject) -> JSONObject:
    return members | {"content": _block(revision, members["content"], revision.content)}


def _call_result(revision: Revision, members: JSONObject) -> JSONObject:
    """`structuredContent` must be an object before the modern era; a bare value must not be lost with it (TOOL-4)."""
    content: list[JSON] = [_block(revision, each, revision.content) for each in members["content"]]
    if "structuredContent" in members:
        value = members["structuredContent"]
        says_it = revision.structured_content == "any" or (revision.structured_content == "object" and is_object(value))
        if not says_it:
            members = {name: each for name, each in members.items() if name != "structuredContent"}
            texts = [each["text"] for each in content if is_object(each) and isinstance(each.get("text"), str)]
            if not content or not (is_object(value) or is_stated(texts, _json(value))):
                content.append({"type": "text", "text": _json(value)})
    return members | {"content": content}


def is_stated(texts: Iterable[str], value: str) -> bool:
    """Return whether one of the texts contains a JSON value already: as JSON in any layout, or as the bare string."""
    wanted: JSON = msgspec.json.decode(value)
    for text in texts:
        if text in (value, wanted):
            return True
        try:
            found = _json(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
        if found == value:
            return True
    return False


def _tool(revision: Revision, members: JSONObject) -> JSONObject:
    """Before the modern era an output schema must describe an object (JS-5), and each property's schema be an object."""
    schema = members.get("outputSchema")
    if revision.structured_content != "any" and is_object(schema) and schema.get("type") != "object":
        members = {name: each for name, each in members.items() if name != "outputSchema"}
    return members | {
        name: _without_booleans(each)
        for name in ("inputSchema", "outputSchema")
        if is_object(each := members.get(name)) and is_object(each.get("properties"))
    }


def _without_booleans(schema: JSONObject) -> JSONObject:
    properties: JSONObject = schema["properties"]
    if not any(isinstance(each, bool) for each in properties.values()):
        return schema
    plain: JSONObject = {
        name: each if not isinstance(each, bool) else {} if each else {"not": {}} for name, each in properties.items()
    }
    return schema | {"properties": plain}


def _sampling_content(revision: Revision, members: JSONObject) -> JSONObject:
    content = members.get("content")
    blocks = content if is_array(content) else [content]
    stepped = [_block(revision, each, revision.sampling_content) for each in blocks]
    if revision.sampling_lists:
        return members | {"content": stepped if is_array(content) else stepped[0]}
    if len(stepped) == 1:
        return members | {"content": stepped[0]}
    return members | {"content": {"type": "text", "text": "\n".join(_in_words(each) for each in stepped)}}


def _form(_revision: Revision, members: JSONObject) -> JSONObject:
    """Before rich forms: `enum` with `enumNames`, and defaults for booleans only (ELI-4)."""
    schema = members.get("requestedSchema")
    properties = schema.get("properties") if is_object(schema) else None
    if not is_object(schema) or not is_object(properties):
        return members
    plain = {name: _plain_property(each) if is_object(each) else each for name, each in properties.items()}
    return members | {"requestedSchema": schema | {"properties": plain}}


def _plain_property(schema: JSONObject) -> JSONObject:
    plain: JSONObject = {
        name: each for name, each in schema.items() if name != "default" or schema.get("type") == "boolean"
    }
    if choices := _choices(plain.pop("oneOf", None)):
        plain["enum"] = [value for value, _ in choices]
        plain["enumNames"] = [title for _, title in choices]
    if plain.get("type") == "array":
        items: JSON = plain.pop("items", None)
        options: JSONObject = items if is_object(items) else {}
        values = options.get("enum") or [value for value, _ in _choices(options.get("anyOf"))]
        hint = f"one or more of {', '.join(map(str, values))}, separated by commas"
        said = plain.get("description")
        kept = {name: each for name, each in plain.items() if name not in ("minItems", "maxItems")}
        return kept | {"type": "string", "description": f"{said} ({hint})" if said else hint}
    return plain


def _choices(options: JSON) -> list[tuple[JSON, JSON]]:
    """Return the values and the titles of `oneOf` or `anyOf` constants."""
    listed = [each for each in options if is_object(each)] if is_array(options) else []
    return [(each["const"], each.get("title", each["const"])) for each in listed if "const" in each]


def _json(value: JSON) -> str:
    return msgspec.json.encode(value).decode()


_ALL_BLOCKS: dict[str, type[Wire]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": EmbeddedResource,
    "resource_link": ResourceLink,
    "tool_use": ToolUseContent,
    "tool_result": ToolResultContent,
}


def _blocks_differ(revision: Revision) -> bool:
    kinds = [kind for name, kind in _ALL_BLOCKS.items() if name in revision.content]
    return revision.content != LATEST.content or any(plan_for(revision, kind) is not None for kind in kinds)


def _contents_differ(revision: Revision) -> bool:
    return any(plan_for(revision, kind) is not None for kind in (TextResourceContents, BlobResourceContents))


def _values_differ(revision: Revision) -> bool:
    return revision.structured_content != LATEST.structured_content


def _results_differ(revision: Revision) -> bool:
    return _values_differ(revision) or _blocks_differ(revision)


def _sampling_differs(revision: Revision) -> bool:
    return not revision.sampling_lists or _results_differ(revision)


def _forms_differ(revision: Revision) -> bool:
    return not revision.rich_forms


Rule: TypeAlias = Callable[[Revision, JSONObject], JSONObject]
_NO_RULE: tuple[Rule, Callable[[Revision], bool]] = (lambda _, members: members, lambda _: False)
_RULES: dict[type[Wire], tuple[Rule, Callable[[Revision], bool]]] = {
    CallToolResult: (_call_result, _results_differ),
    ToolResultContent: (_call_result, _results_differ),
    Tool: (_tool, _values_differ),
    PromptMessage: (_prompt_message, _blocks_differ),
    ReadResourceResult: (_read_result, _contents_differ),
    EmbeddedResource: (_embedded, _contents_differ),
    SamplingMessage: (_sampling_content, _sampling_differs),
    CreateMessageResult: (_sampling_content, _sampling_differs),
    ElicitParams: (_form, _forms_differ),
}
"""The rule of a shape, and where it changes anything."""
