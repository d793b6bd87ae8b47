"""Members that appear twice in one object: each reader believes another one, so a message with them is refused.

Law: what could not be repeated is not looked at. Callers compare lengths first, which says so of nearly every message.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

__all__ = ["SLACK", "repeated"]

SLACK: Final = 6
"""Bytes that can be left over in a message without room for another member that matters: `"id":1,` has 7."""

_CLOSING: Final = 3
"""Bytes after the last value: a brace, and blanks. A member takes more."""

_MOST: Final = 100
"""Members that are looked at; no message needs as many."""

_KEY: Final = re.compile(rb'[\s,{]*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*')
_SCALAR: Final = rb'(?:-?\d+|"[^"\\]*")'
_ORDERLY: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*%b\s*,\s*)?"(?:method|name)"\s*:\s*%b\s*,'
    rb'\s*"(?:params|arguments)"\s*:\s*' % (_SCALAR, _SCALAR)
)
_members = msgspec.json.Decoder(dict[str, Raw])
_name = msgspec.json.Decoder(str)


def repeated(text: bytes, value: bytes | Raw = b"") -> str | None:
    """Return the name of a member that an object has twice, however it is spelled; None if there is none.

    `text` is a valid JSON object. Its values are skipped, not searched. Empty if there are more than 100 members. `value` is
    that of its `params` or `arguments`, which most objects end with: then there is no need to take it apart.
    """
    if value and (head := _ORDERLY.match(text)) is not None and len(text) - head.end() - len(value) <= _CLOSING:
        return None
    members = _members.decode(text)
    if len(members) > _MOST:
        return ""
    seen: set[str] = set()
    at, name = 0, ""
    while (found := _KEY.match(text, at)) is not None:
        name = _name.decode(found[1])
        value = bytes(members[name])
        at = found.end()
        if name in seen or not text.startswith(value, at):  # of repeated members the dict has the last value
            return name
        seen.add(name)
        at += len(value)
    return None if text[at:].strip() in (b"}", b"{}") else name
