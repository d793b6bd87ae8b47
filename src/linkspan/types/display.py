"""Values of the protocol as notebooks show them: HTML, and Markdown.

Laws: everything comes from a server and is untrusted, so every text is escaped; pictures and sounds are embedded if their data is
base64 of a known type, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from linkspan.types.base import (
    JSON,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
    TextResourceContents,
    is_array,
    is_object,
)
from linkspan.types.messages import GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool

__all__ = ["html", "markdown", "result_parts"]

_ROWS: Final = 100
"""Rows of a table that are shown."""
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SOUNDS: Final = ("audio/wav", "audio/mpeg", "audio/ogg", "audio/flac", "audio/mp4", "audio/webm")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_LEFT: Final = "text-align:left;vertical-align:top"


class _Table:
    """Rows below a head."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[JSON]]) -> None:
        self.head = head
        self.rows = rows


Part = str | _Table | tuple[str, str, str]
"""A text, a table, or the kind, type and data of something to embed."""


def html(value: object) -> str | None:
    """Return a value as HTML, None if it has no special form."""
    parts = _parts(value)
    return None if parts is None else "\n".join(_html(each) for each in parts)


def markdown(value: object) -> str | None:
    """Return a value as Markdown, None if it has no special form."""
    parts = _parts(value)
    return None if parts is None else "\n\n".join(_markdown(each) for each in parts)


def result_parts(content: Sequence[object], structured: JSON, *, has_structured: bool, is_error: bool) -> list[object]:
    """Return what is shown of a tool's result: the structured content once, and not the text that repeats it."""
    shown: list[object] = ["The tool failed:"] if is_error else []
    value: JSON = structured
    if is_object(structured) and list(structured) == ["result"]:
        value = structured["result"]
    for each in content:
        if not (has_structured and isinstance(each, TextContent) and _repeats(each.text, structured, value)):
            shown.append(each)
    return [*shown, _Structured(value)] if has_structured else shown


class _Structured:
    """A JSON value."""

    def __init__(self, value: JSON) -> None:
        self.value = value


def _repeats(text: str, *values: JSON) -> bool:
    try:
        return json.loads(text) in values
    except (ValueError, RecursionError):
        return text in [each for each in values if isinstance(each, str)]


def _parts(value: object) -> list[Part] | None:
    """Return the parts of a value, None if its repr is as good."""
    match value:
        case str():
            return [value]
        case _Structured():
            return [_of_json(value.value)]
        case TextContent() | TextResourceContents():
            return [value.text]
        case ImageContent() | AudioContent():
            kind = "image" if isinstance(value, ImageContent) else "audio"
            return [_embedded(kind, value.mime_type, value.data)]
        case BlobResourceContents():
            return [value.uri, _embedded("image", value.mime_type or "", value.blob)]
        case EmbeddedResource():
            return _parts(value.resource)
        case ResourceLink():
            return [f"{value.title or value.name}: {value.uri}"]
        case Tool() | Prompt() | Resource() | ResourceTemplate():
            return _described(value)
        case ReadResourceResult():
            return _all(value.contents)
        case GetPromptResult():
            messages = [(f"{each.role}:", each.content) for each in value.messages]
            return _all([part for message in messages for part in message])
        case list():
            return _all(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return None


def _all(values: Sequence[object]) -> list[Part]:
    return [part for each in values for part in (_parts(each) or [repr(each)])]


def _embedded(kind: str, mime_type: str, data: str) -> Part:
    known = _PICTURES if kind == "image" else _SOUNDS
    if mime_type in known and _BASE64.fullmatch(data):
        return (kind, mime_type, "".join(data.split()))
    return f"[{kind}: {mime_type or 'an unknown type'}, {len(data) * 3 // 4} bytes]"


def _described(value: Tool | Prompt | Resource | ResourceTemplate) -> list[Part]:
    """Return the name, the description and the arguments of what a server offers."""
    name = (
        value.uri
        if isinstance(value, Resource)
        else value.uri_template
        if isinstance(value, ResourceTemplate)
        else value.name
    )
    shown: list[Part] = [f"{name}: {value.description or value.title or ''}".removesuffix(": ")]
    rows: list[list[JSON]] = []
    if isinstance(value, Tool):
        properties: JSON = value.input_schema.get("properties")
        needed: JSON = value.input_schema.get("required") or []
        for each, schema in properties.items() if is_object(properties) else ():
            facts: JSONObject = schema if is_object(schema) else {}
            rows.append(
                [each, facts.get("type", ""), "required" if each in needed else "", facts.get("description", "")]
            )
    elif isinstance(value, Prompt):
        for one in value.arguments or ():
            rows.append([one.name, "string", "required" if one.required else "", one.description or ""])
    return [*shown, _Table(["argument", "type", "", "description"], rows)] if rows else shown


def _of_json(value: JSON) -> Part:
    """Return a list of objects, or an object, as a table; another value as it is written."""
    if is_array(value) and value and all(is_object(each) for each in value):
        head = list(dict.fromkeys(name for each in value for name in each))
        return _Table(head, [[each.get(name) for name in head] for each in value])
    if is_object(value) and value:
        return _Table(["", ""], [[name, each] for name, each in value.items()])
    return value if isinstance(value, str) else _written(value)


def _written(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _html(part: Part) -> str:
    match part:
        case str():
            return f'<pre style="white-space:pre-wrap">{_escaped(part)}</pre>'
        case _Table():
            head = "".join(f'<th style="{_LEFT}">{_escaped(str(each))}</th>' for each in part.head)
            rows = [_row(each, _escaped, f'<td style="{_LEFT}">', "</td>") for each in part.rows[:_ROWS]]
            body = "".join(f"<tr>{each}</tr>" for each in rows)
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_left_out(part)}"
        case ("audio", mime_type, data):
            return f'<audio controls src="data:{mime_type};base64,{data}"></audio>'
        case (_, mime_type, data):
            return f'<img src="data:{mime_type};base64,{data}" style="max-width:100%">'


def _markdown(part: Part) -> str:
    match part:
        case str():
            fence = "`" * max(3, 1 + max((len(each) for each in re.findall("`+", part)), default=0))
            return f"{fence}text\n{part}\n{fence}"
        case _Table():
            rows = [_row(each, _escaped_markdown, "| ", " ") for each in (part.head, *part.rows[:_ROWS])]
            rows.insert(1, "|---" * len(part.head))
            return "\n".join(f"{each}|" for each in rows) + ("\n\n" + _left_out(part) if _left_out(part) else "")
        case ("audio", mime_type, _):
            return f"[sound: {mime_type}]"
        case (_, mime_type, data):
            return f"![picture](data:{mime_type};base64,{data})"


def _row(cells: Sequence[JSON], escaped: Callable[[str], str], before: str, after: str) -> str:
    return "".join(f"{before}{escaped('' if each is None else _written(each))}{after}" for each in cells)


def _left_out(table: _Table) -> str:
    more = len(table.rows) - _ROWS
    return f"and {more} more rows" if more > 0 else ""


def _escaped(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(sign, entity)
    return text


def _escaped_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", _escaped(" ".join(text.split())))
