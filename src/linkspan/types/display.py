"""Values of the protocol as notebooks show them: HTML, and Markdown.

Laws: everything comes from a server and is untrusted, so every text is escaped; pictures and sounds are embedded if their data is
base64 of a known type, and nothing is loaded from elsewhere. Shapes are recognized by the names of their types, since these types
lead here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

_ROWS: Final = 100
"""Rows of a table that are shown."""
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SOUNDS: Final = ("audio/wav", "audio/mpeg", "audio/ogg", "audio/flac", "audio/mp4", "audio/webm")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_LEFT: Final = "text-align:left;vertical-align:top"
_NO_MATH: Final = 'class="tex2jax_ignore mathjax_ignore"'
"""Keeps notebooks from reading what is between two dollar signs as a formula."""


class _Table:
    """Rows below a head."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
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


def result_parts(content: Sequence[Any], structured: Any, *, has_structured: bool, is_error: bool) -> list[object]:
    """Return what is shown of a tool's result: the structured content once, and not the text that repeats it."""
    shown: list[object] = ["The tool failed:"] if is_error else []
    value = structured["result"] if _is_object(structured) and list(structured) == ["result"] else structured
    for each in content:
        text = each.text if type(each).__name__ == "TextContent" else None
        if not (has_structured and text is not None and _repeats(text, structured, value)):
            shown.append(each)
    return [*shown, _Structured(value)] if has_structured else shown


class _Structured:
    """A JSON value."""

    def __init__(self, value: object) -> None:
        self.value = value


def _repeats(text: str, *values: object) -> bool:
    try:
        return json.loads(text) in values
    except (ValueError, RecursionError):
        return text in [each for each in values if isinstance(each, str)]


def _parts(value: Any) -> list[Part] | None:
    """Return the parts of a value, None if its repr is as good."""
    if isinstance(value, str):
        return [value]
    if _is_array(value):
        return [part for each in value for part in (_parts(each) or [repr(each)])]
    of = _SHOWN.get(type(value).__name__)
    return of(value) if of is not None else None


def _embedded(kind: str, mime_type: str, data: str) -> list[Part]:
    known = _PICTURES if kind == "image" else _SOUNDS
    compact = "".join(data.split())
    if mime_type in known and _BASE64.fullmatch(compact):
        return [(kind, mime_type, compact)]
    return [f"[{kind}: {mime_type or 'an unknown type'}, {len(data) * 3 // 4} bytes]"]


def _described(name: str, value: Any, rows: Sequence[Sequence[object]] = ()) -> list[Part]:
    """Return the name, the description and the arguments of what a server offers."""
    about = f"{name}: {value.description or value.title or ''}".removesuffix(": ")
    return [about, _Table(("argument", "type", "", "description"), rows)] if rows else [about]


def _tool(value: Any) -> list[Part]:
    properties: Any = value.input_schema.get("properties")
    needed: Any = value.input_schema.get("required") or ()
    rows: list[list[object]] = []
    for name, schema in properties.items() if _is_object(properties) else ():
        facts = schema if _is_object(schema) else {}
        rows.append([name, facts.get("type", ""), "required" if name in needed else "", facts.get("description", "")])
    return _described(value.name, value, rows)


def _json(value: Any) -> list[Part]:
    """Return a list of objects, or an object, as a table; another value as it is written."""
    if _is_array(value) and value and all(_is_object(each) for each in value):
        head = list(dict.fromkeys(name for each in value for name in each))
        return [_Table(head, [[each.get(name) for name in head] for each in value])]
    if _is_object(value) and value:
        return [_Table(("", ""), list(value.items()))]
    return [_written(value)]


_SHOWN: Final[Mapping[str, Callable[[Any], list[Part] | None]]] = {
    "_Structured": lambda value: _json(value.value),
    "TextContent": lambda value: [value.text],
    "TextResourceContents": lambda value: [value.text],
    "ImageContent": lambda value: _embedded("image", value.mime_type, value.data),
    "AudioContent": lambda value: _embedded("audio", value.mime_type, value.data),
    "BlobResourceContents": lambda value: [value.uri, *_embedded("image", value.mime_type or "", value.blob)],
    "EmbeddedResource": lambda value: _parts(value.resource),
    "ResourceLink": lambda value: [f"{value.title or value.name}: {value.uri}"],
    "ReadResourceResult": lambda value: _parts(list(value.contents)),
    "GetPromptResult": lambda value: _parts(
        [part for each in value.messages for part in (f"{each.role}:", each.content)]
    ),
    "Tool": _tool,
    "Prompt": lambda value: _described(
        value.name,
        value,
        [
            (each.name, "string", "required" if each.required else "", each.description)
            for each in value.arguments or ()
        ],
    ),
    "Resource": lambda value: _described(value.uri, value),
    "ResourceTemplate": lambda value: _described(value.uri_template, value),
}
"""How each shape is shown, by the name of its type."""


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _html(part: Part) -> str:
    match part:
        case str():
            return f'<pre style="white-space:pre-wrap">{_escaped(part)}</pre>'
        case _Table():
            head = "".join(f'<th style="{_LEFT}">{_escaped(str(each))}</th>' for each in part.head)
            rows = [_row(each, _escaped, f'<td style="{_LEFT}">', "</td>") for each in part.rows[:_ROWS]]
            body = "".join(f"<tr>{each}</tr>" for each in rows)
            return f"<table {_NO_MATH}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_left_out(part)}"
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


def _row(cells: Sequence[object], escaped: Callable[[str], str], before: str, after: str) -> str:
    return "".join(f"{before}{escaped('' if each is None else _written(each))}{after}" for each in cells)


def _left_out(table: _Table) -> str:
    more = len(table.rows) - _ROWS
    return f"and {more} more rows" if more > 0 else ""


def _escaped(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(sign, entity)
    return text


def _escaped_markdown(text: str) -> str:
    return _escaped(re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", " ".join(text.split())))
