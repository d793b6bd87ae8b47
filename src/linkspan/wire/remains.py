"""What can be known of a message that cannot be read as a whole: its id, and whether it is a request or a response.

Law: when in doubt there is no id. An error under the wrong one would end somebody else's request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = ["Kind", "Remains", "identify"]

Kind: TypeAlias = Literal["request", "response"]


class Remains(msgspec.Struct, frozen=True):
    """What was found. A notification counts as a request: it has a method, and no id."""

    id: int | str | None
    kind: Kind | None


_KINDS: Final[dict[str, Kind]] = {
    "method": "request",
    "params": "request",
    "result": "response",
    "error": "response",
}
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
