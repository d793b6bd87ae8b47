"""The result of a task as its record keeps it: a large text once, where structured content repeats it. No I/O, no clock.

Spec: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#structured-content.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from linkspan.wire.jsonrpc import encode

_LARGE = 1024
"""Bytes of a text from which on it is worth the effort."""


class Repeated(msgspec.Struct, frozen=True, array_like=True):
    """A JSON text in which one value stands twice."""

    before: bytes
    between: bytes
    after: bytes
    value: bytes
    quoted: bool
    """First it is a text that quotes the JSON of the value, then the value."""

    def whole(self) -> bytes:
        """Return the JSON text."""
        first = _quote(self.value) if self.quoted else self.value
        return b"".join((self.before, first, self.between, self.value, self.after))


class _RawBlock(msgspec.Struct):
    text: Raw = Raw()


class _RawResult(msgspec.Struct, rename="camel"):
    content: list[_RawBlock]
    structured_content: Raw = Raw()


class _Wrapped(msgspec.Struct):
    result: Raw


def kept_once(result: bytes) -> Repeated | None:
    """Return a result whose structured content is what its one text says; None for every other result."""
    if len(result) < 2 * _LARGE:
        return None
    read = msgspec.json.decode(result, type=_RawResult)
    text, structured = bytes(read.content[0].text) if len(read.content) == 1 else b"", bytes(read.structured_content)
    if len(text) < _LARGE or not structured:
        return None
    for value in (structured, _wrapped_in(structured)):
        for quoted, first in ((False, value), (True, _quote(value))):
            if first == text:
                before, _, rest = result.partition(text)
                between, _, after = rest.partition(value)
                found = Repeated(before, between, after, value, quoted)
                return found if found.whole() == result else None
    return None


def _quote(value: bytes) -> bytes:
    return encode(value.decode())


def _wrapped_in(structured: bytes) -> bytes:
    try:
        return bytes(msgspec.json.decode(structured, type=_Wrapped).result)
    except msgspec.DecodeError:  # it has another form
        return b""
