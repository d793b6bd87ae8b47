"""How long to wait before a provider is asked once more. Pure: time and chance are arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from linkspan.host.dialects.reading import items, member
from linkspan.types.base import JSON, is_array

__all__ = ["RETRIED", "Backoff", "read_retry_after"]

RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""What passes by itself."""

_SECONDS: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on asking again: each pause is about twice as long as the one before."""

    attempts: int = 5
    """How often a request is sent at most."""
    connections: int = 3
    """How often at most while there is no connection: whoever forgot to start a server should not wait long to hear it."""
    first: float = 1.0
    """Seconds of the first pause."""
    longest: float = 30.0
    """Seconds of the longest pause that we choose."""
    patience: float = 60.0
    """Seconds that a provider may ask for; if it wants more, its error is raised at once and says so."""

    def pause(self, failures: int, chance: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after so many failures, or None to give up. `chance` is between 0 and 1."""
        if failures >= self.attempts or (retry_after is not None and retry_after > self.patience):
            return None
        chosen: float = min(self.first * 2 ** (failures - 1), self.longest) * (0.5 + chance / 2)
        return max(chosen, retry_after or 0.0)


def read_retry_after(headers: Mapping[str, str], body: JSON, now: float) -> float | None:
    """Return the seconds after which to come back, as the headers (names in lower case) or Google's body say it.

    `now` is the time of day, for a header that names a moment.
    """
    if (milliseconds := _SECONDS.fullmatch(headers.get("retry-after-ms", ""))) is not None:
        return float(milliseconds[1]) / 1000
    header = headers.get("retry-after", "")
    if (seconds := _SECONDS.fullmatch(header)) is not None:
        return float(seconds[1])
    return _until(header, now) if header else _google(body)


def _until(moment: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(moment).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _google(body: JSON) -> float | None:
    error = member(body[0] if is_array(body) and body else body, "error")
    for detail in items(member(error, "details")):
        delay = member(detail, "retryDelay")
        if isinstance(delay, str) and (seconds := _SECONDS.fullmatch(delay.removesuffix("s"))) is not None:
            return float(seconds[1])
    return None
