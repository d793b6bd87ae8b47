"""Opaque cursors that stay right when items come and go (checklist 3.3).

Every item has a sequence number that is never given twice; a cursor holds the number of the last item that was shown. What is
added or removed elsewhere is then neither skipped nor repeated.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError

__all__ = ["Page", "paginate"]

T = TypeVar("T")
_MARK = b"after:"


class Page(NamedTuple, Generic[T]):
    """A part of a list, and where it goes on (None at the end)."""

    items: list[T]
    next_cursor: str | None


def paginate(items: Sequence[tuple[int, T]], cursor: str | None, page_size: int | None) -> Page[T]:
    """Return the page after `cursor` of items with rising sequence numbers; all of the rest if `page_size` is None.

    Raises: RemoteProtocolError (-32602) for a cursor that was not made here (PAG-2). The empty string is one of those.
    """
    after = 0 if cursor is None else _sequence(cursor)
    rest = [(sequence, item) for sequence, item in items if sequence > after]
    if page_size is None or len(rest) <= page_size:
        return Page([item for _, item in rest], None)
    shown = rest[:page_size]
    return Page([item for _, item in shown], _cursor(shown[-1][0]))


def _cursor(sequence: int) -> str:
    return binascii.b2a_base64(b"%b%d" % (_MARK, sequence), newline=False).decode()


def _sequence(cursor: str) -> int:
    try:
        text = binascii.a2b_base64(cursor.encode("ascii"), strict_mode=True)
    except (binascii.Error, ValueError):
        text = b""
    digits = text.removeprefix(_MARK)
    if not text.startswith(_MARK) or not digits.isdigit() or len(digits) > 18:
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid cursor: use the nextCursor of the page before, unchanged")
    return int(digits)
