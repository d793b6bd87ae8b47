"""What has happened, as numbered lines of JSON that browsers read from any number on. Bounded, and without secrets."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import Redactor

_MOST: Final = 5_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_LONGEST: Final = 64 * 1024
"""Characters of one text."""


class EventLog:
    """Events, the oldest of which are forgotten. Any thread."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._changed = threading.Condition()
        self._lines: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._closed = False

    @property
    def last(self) -> int:
        """The number of the latest event."""
        return self._last

    def add(self, kind: str, **members: JSON) -> JSONObject:
        """Add an event; return what is shown of it."""
        shown: JSONObject = self._redactor.message({"type": kind, "at": time.time(), **members})
        with self._changed:
            self._last += 1
            line = encode({"n": self._last, **shown})
            self._lines.append((self._last, line))
            self._bytes += len(line)
            while len(self._lines) > _MOST or self._bytes > _MOST_BYTES:
                self._bytes -= len(self._lines.popleft()[1])
            self._changed.notify_all()
        return shown

    def after(self, number: int, timeout: float) -> list[bytes] | None:
        """Return the events after a number as JSON; none after `timeout` seconds without any, None once the log is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._last > number or self._closed, timeout)
            if self._closed:
                return None
            return [line for at, line in self._lines if at > number]

    def without_secrets(self, value: JSON) -> JSON:
        """Return what can be shown of a value."""
        return self._redactor.message(value)

    def lines(self) -> list[bytes]:
        """Return all events that are kept, as JSON."""
        with self._changed:
            return [line for _, line in self._lines]

    def close(self) -> None:
        """Let all who wait return."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class PrintedText:
    """The latest of what a server printed, and what of it came after some moment. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._end = 0

    @property
    def end(self) -> int:
        """The number of characters so far: a moment to ask for what came `since`."""
        return self._end

    def add(self, text: str) -> None:
        """Add what was printed now."""
        with self._lock:
            self._end += len(text)
            self._text = (self._text + text)[-_LONGEST:]

    def since(self, moment: int) -> str:
        """Return what was printed since a moment, as far as it is kept."""
        with self._lock:
            count = self._end - moment
            return self._text[-count:] if count > 0 else ""


class Trickle:
    """Lets as many bytes of a log through as a person can read, and counts the rest. One thread at a time."""

    def __init__(self, rate: int = 128 * 1024, burst: int = 512 * 1024) -> None:
        """Let `rate` bytes a second through, and `burst` at once."""
        self._rate = rate
        self._burst = self._room = burst
        self._at = 0.0
        self.left_out = 0
        """Bytes since the last text that got through."""

    def let_through(self, text: str, now: float) -> str:
        """Return the text, or what there is room for of it, with a line that counts what was left out before."""
        self._room = min(self._burst, self._room + int((now - self._at) * self._rate))
        self._at = now
        kept = text[: self._room]
        if not kept:
            self.left_out += len(text)
            return ""
        self._room -= len(kept)
        before, self.left_out = self.left_out, len(text) - len(kept)
        return f"({before:,} characters are not shown: the server writes too fast)\n{kept}" if before else kept


def cut(text: str, longest: int = _LONGEST) -> str:
    """Return the beginning of a text, with a remark where it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}\n... ({len(text):,} characters)"


def cut_json(value: JSON, longest: int = _LONGEST) -> JSON:
    """Return a JSON value with the beginnings of its long texts."""
    if isinstance(value, str):
        return cut(value, longest)
    if is_array(value):
        return [cut_json(each, longest) for each in value]
    if is_object(value):
        found: JSONObject = {name: cut_json(each, longest) for name, each in value.items()}
        return found
    return value
