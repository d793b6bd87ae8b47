"""Answers that a server allows to be kept for a while: `ttlMs` says how long, `cacheScope` for whom.

A list or a resource is answered from here while it is fresh, and forgotten as soon as the server says that it changed. What
is private is kept apart for everybody who asks: two calls with other headers are two principals.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/caching (checklist 4.6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.client.authorizing import Principal, principal_of
from linkspan.core.flow import Outgoing
from linkspan.wire.messages import encode

__all__ = ["ResponseCache"]

_LISTED_BY: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "contents",
}
_CHANGED_BY: Final = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "contents",
}
_UPDATED: Final = "notifications/resources/updated"
_MARKER: Final = b'"ttlMs"'

Key: TypeAlias = tuple[str, bytes, Principal | None]
"""Method, params, and whose it is; None: anybody's."""


class _Hints(msgspec.Struct, rename="camel"):
    ttl_ms: float = 0
    cache_scope: str = "private"
    result_type: str = "complete"


class _Kept(msgspec.Struct, frozen=True):
    raw: Raw
    until: float


class _Updated(msgspec.Struct):
    uri: str


_read_hints = msgspec.json.Decoder(_Hints).decode
_read_updated = msgspec.json.Decoder(_Updated).decode


class ResponseCache:
    """One client's answers. Any thread: each step is one operation on a dictionary."""

    def __init__(self, clock: Callable[[], float], *, max_bytes: int) -> None:
        """Keep at most `max_bytes`; 0 keeps nothing. `clock` gives seconds that never go back."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._kept: dict[Key, _Kept] = {}
        self._bytes = 0
        self._changes: Counter[str] = Counter()

    def find(self, outgoing: Outgoing) -> Raw | None:
        """Return the answer to a request, if it is here and fresh."""
        if not self._kept:
            return None
        for whose in (None, principal_of(outgoing.headers)):
            kept = self._kept.get((outgoing.method, outgoing.params, whose))
            if kept is not None and self._clock() < kept.until:
                return kept.raw
        return None

    def mark(self, outgoing: Outgoing) -> int:
        """Return where we are before a request goes out, for `keep`."""
        return self._changes[_LISTED_BY[outgoing.method]]

    def keep(self, outgoing: Outgoing, raw: Raw, mark: int) -> None:
        """Keep an answer as its server allows, unless what it tells of has changed since it was asked for."""
        data = bytes(raw)
        if _MARKER not in data or mark != self.mark(outgoing):
            return
        try:
            hints = _read_hints(raw)
        except (msgspec.DecodeError, RecursionError):
            return
        size = len(data)
        if hints.ttl_ms <= 0 or hints.result_type != "complete" or size > self._max_bytes:
            return
        if self._bytes + size > self._max_bytes:  # a full cache begins anew
            self.clear()
        whose = None if hints.cache_scope == "public" else principal_of(outgoing.headers)
        key = (outgoing.method, outgoing.params, whose)
        self._drop(key)
        self._kept[key] = _Kept(raw, self._clock() + hints.ttl_ms / 1000)
        self._bytes += size

    def hear(self, method: str, params: bytes | Raw | None) -> None:
        """Forget what a notification says has changed."""
        kind = _CHANGED_BY.get(method)
        if kind is None:
            return
        about: bytes | None = None
        if method == _UPDATED:
            try:
                about = b'{"uri":%b}' % encode(_read_updated(params or b"{}").uri)
            except (msgspec.DecodeError, RecursionError):
                return
        self._forget(kind, about)

    def forget_list(self, method: str) -> None:
        """Forget all pages of a list."""
        self._forget(_LISTED_BY[method], None)

    def clear(self) -> None:
        """Forget everything."""
        self._kept = {}
        self._bytes = 0

    def _forget(self, kind: str, about: bytes | None) -> None:
        self._changes[kind] += 1
        for key in list(self._kept):
            if _LISTED_BY[key[0]] == kind and about in (None, key[1]):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        gone = self._kept.pop(key, None)
        self._bytes -= len(memoryview(gone.raw)) if gone is not None else 0
