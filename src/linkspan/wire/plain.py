r"""Texts of strangers, made harmless: what a terminal would obey, or an eye would not see, is written out as `\x1b`."""

from __future__ import annotations

import re
from typing import Final

from linkspan.types.base import JSON, is_array, is_object

__all__ = ["COMMANDS", "neutral", "neutral_json", "one_line"]

COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 except tab and newline, DEL and C1, what turns the direction of text (Trojan Source), halves of characters, and tags,
which nobody sees and models read."""


def neutral(text: str) -> str:
    r"""Return a text with every command and every hidden character written as `\x1b` or `\u202e`."""
    return COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def neutral_json(value: JSON) -> JSON:
    """Return a JSON value with all its texts, names included, neutralised."""
    if isinstance(value, str):
        return neutral(value)
    if is_array(value):
        return [neutral_json(each) for each in value]
    if is_object(value):
        return {neutral(key): neutral_json(each) for key, each in value.items()}
    return value


def one_line(text: str, limit: int = 0) -> str:
    """Return a text, neutralised, on one line; of at most `limit` characters if that is not 0."""
    text = neutral(" ".join(text.split()))
    return text if not limit or len(text) <= limit else f"{text[: limit - 3]}..."


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
