"""Opaque cursors that stay right when items come and go.

Every item has a sequence number, given at registration, rising, and never given twice; a cursor holds the number of the last
item that was shown. What is added or removed elsewhere is then neither skipped nor repeated, and when that item itself is
gone the list goes on behind the place where it was. Processes that register the same things in the same order understand one
another's cursors. Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination
"""

from __future__ import annotations

import binascii
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from linkspan.errors import INVALID_PARAMS, LocalProtocolError, RemoteProtocolError

__all__ = ["Page", "paginate"]

T = TypeVar("T")
_MARK = b"after:"
_MAX_DIGITS = 18


class Page(NamedTuple, Generic[T]):
    """A part of a list, and where it goes on (None at the end)."""

    items: list[T]
    next_cursor: str | None


def paginate(items: Sequence[tuple[int, T]], cursor: str | None, page_size: int | None) -> Page[T]:
    """Return the page after `cursor` of `(sequence, item)` with rising sequences; all of the rest if `page_size` is None.

    Raises: RemoteProtocolError (-32602) for a cursor that was not made here (PAG-2), as the empty string is not;
    LocalProtocolError for a `page_size` below 1.
    """
    if page_size is not None and page_size < 1:
        raise LocalProtocolError(f"page_size must be at least 1, or None for all; got {page_size}")
    start = 0 if cursor is None else bisect_right(items, _sequence(cursor), key=itemgetter(0))
    end = len(items) if page_size is None else min(start + page_size, len(items))
    next_cursor = _cursor(items[end - 1][0]) if end < len(items) else None
    return Page([item for _, item in items[start:end]], next_cursor)


def _cursor(sequence: int) -> str:
    return binascii.b2a_base64(b"%b%d" % (_MARK, sequence), newline=False).decode()


def _sequence(cursor: str) -> int:
    try:
        text = binascii.a2b_base64(cursor.encode("ascii"), strict_mode=True)
    except ValueError:  # binascii.Error and UnicodeEncodeError are some
        text = b""
    digits = text.removeprefix(_MARK)
    if digits.isdigit() and len(digits) <= _MAX_DIGITS and cursor == _cursor(int(digits)):
        return int(digits)
    raise RemoteProtocolError(INVALID_PARAMS, "Invalid cursor: use the nextCursor of the page before, unchanged")
