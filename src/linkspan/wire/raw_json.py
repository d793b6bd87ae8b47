"""What can be learnt of a message without decoding all of it: the id of a damaged one, and members that appear twice.

Laws: when in doubt there is no id, since an error under the wrong one would end another request; and a text without room for a
repeated member is not searched. Callers compare lengths first, which rules it out for nearly every message. Readers disagree
about members that appear twice, so a message with them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw

__all__ = ["SLACK", "Kind", "Remains", "identify", "repeated"]

Kind: TypeAlias = Literal["request", "response"]


class Remains(msgspec.Struct, frozen=True):
    """What was found. A notification counts as a request: it has a method, and no id."""

    id: int | str | None
    kind: Kind | None


_KINDS: Final[dict[str, Kind]] = {"method": "request", "params": "request", "result": "response", "error": "response"}
_TOKEN: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+(?=[\s,}\]]))')
_LAST_MEMBER: Final = re.compile(rb',\s*("[^"\\]*")\s*:\s*("[^"\\]*"|[^\s"{}\[\]:,\\]+)\s*\Z')
_decoder = msgspec.json.Decoder(int | float | str)


def identify(head: bytes, tail: bytes) -> Remains:
    """Find the top-level members in the first bytes of a line, and in its last; both are the whole line if it is short.

    `tail` must end where the line ends; leave it empty for a line that was cut.
    """
    ids: set[int | str | None] = set()
    kinds: set[Kind] = set()
    if head.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{"):
        for raw, value in (*_first_members(head), *_last_members(tail)):
            name = _scalar(raw)
            if name == "id":
                ids.add(_request_id(value))
            elif isinstance(name, str) and name in _KINDS:
                kinds.add(_KINDS[name])
    return Remains(ids.pop() if len(ids) == 1 else None, kinds.pop() if len(kinds) == 1 else None)


def _first_members(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and value of each member at depth 1, as far as they can be read; of a nested value the bracket."""
    depth, before, name = 0, b"", b""
    found = _TOKEN.match(head, head.find(b"{"))
    while found is not None:
        token = found[1]
        if depth == 1 and before == b":" and name:
            yield name, token
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b":" and depth == 1:
            name = before if before.startswith(b'"') else b""
        before = token
        found = _TOKEN.match(head, found.end())


def _last_members(tail: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and value of the members that end a message. Only the brace of the message itself can come after them."""
    body = tail.rstrip()
    if not body.endswith(b"}"):
        return
    body = body[:-1]
    while (found := _LAST_MEMBER.search(body)) is not None:
        yield found[1], found[2]
        body = body[: found.start()]


def _request_id(raw: bytes) -> int | str | None:
    found = _scalar(raw)
    if isinstance(found, float):
        return int(found) if found.is_integer() else None  # 1.0 is 1 to a peer that has one type of numbers
    return found


def _scalar(raw: bytes) -> int | float | str | None:
    try:
        value: int | float | str = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value


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
