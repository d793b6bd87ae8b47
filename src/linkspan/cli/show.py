"""Results as people read them. Everything here gets JSON that is neutralised already, and returns text for stdout."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Final

from linkspan.cli.terminal import Style
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.plain import one_line

__all__ = ["Saver", "show_block", "show_contents", "show_json", "show_messages", "show_result", "size_of"]

Saver = Callable[[JSONObject], str]
"""Stores a block's bytes, and returns where."""

_WIDE: Final = 100


def show_result(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return what a tool answered: its content, or its structured content if there is no text."""
    blocks: JSON = result.get("content")
    shown = [show_block(each, style, save) for each in (blocks if is_array(blocks) else [])]
    has_text = any(is_object(each) and each.get("type") == "text" for each in (blocks if is_array(blocks) else []))
    if not has_text and "structuredContent" in result:
        shown.append(show_json(result["structuredContent"]))
    return "\n".join(shown)


def show_messages(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return a prompt's messages, each under its role."""
    messages: JSON = result.get("messages")
    found = [each for each in (messages if is_array(messages) else []) if is_object(each)]
    return "\n\n".join(_message(each, style, save) for each in found)


def _message(message: JSONObject, style: Style, save: Saver | None) -> str:
    role = style.cyan(f"{message.get('role')}:")
    return f"{role}\n{textwrap.indent(show_block(message.get('content'), style, save), '  ')}"


def show_contents(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return a resource's contents; of more than one each with its URI."""
    contents: JSON = result.get("contents")
    found = [each for each in (contents if is_array(contents) else []) if is_object(each)]
    if len(found) == 1:
        return _content(found[0], style, save)
    return "\n\n".join(f"{style.cyan(str(each.get('uri')))}\n{_content(each, style, save)}" for each in found)


def show_block(block: JSON, style: Style, save: Saver | None = None) -> str:
    """Return one content block."""
    if not is_object(block):
        return show_json(block)
    match block.get("type"):
        case "text":
            return str(block.get("text"))
        case "image" | "audio":
            return _described(block, style, save)
        case "resource" if is_object(block.get("resource")):
            inner: JSONObject = block["resource"]
            head = style.dim(f"[resource {inner.get('uri')}{_kind(inner)}]")
            return f"{head}\n{_content(inner, style, save)}" if "text" in inner else _content(inner, style, save)
        case "resource_link":
            words = [str(block.get("title") or block.get("name")), str(block.get("mimeType") or "")]
            return style.dim(f"[link {block.get('uri')}: {', '.join(each for each in words if each)}]")
        case _:
            return show_json(block)


def show_json(value: JSON) -> str:
    """Return JSON on one line if it fits there."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _WIDE else json.dumps(value, ensure_ascii=False, indent=2)


def size_of(base64: JSON) -> int:
    """Return how many bytes a base64 text stands for."""
    if not isinstance(base64, str):
        return 0
    return len(base64.rstrip("=")) * 3 // 4


def _content(contents: JSONObject, style: Style, save: Saver | None) -> str:
    text: JSON = contents.get("text")
    return text if isinstance(text, str) else _described(contents, style, save)


def _described(block: JSONObject, style: Style, save: Saver | None) -> str:
    """Describe bytes: they are for files, not for terminals."""
    what = block.get("type") or f"blob {block.get('uri')}"
    size = size_of(block.get("data", block.get("blob")))
    kept = f", saved as {save(block)}" if save is not None else ""
    return style.dim(f"[{one_line(str(what))}{_kind(block)}, {size} byte{'s' * (size != 1)}{kept}]")


def _kind(block: JSONObject) -> str:
    found: JSON = block.get("mimeType")
    return f": {one_line(found)}" if isinstance(found, str) else ""
