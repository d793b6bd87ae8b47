"""What has happened as a transcript, which people can read, attach to a report, and play again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from linkspan.testing.recorder import RecordedLine, format_entry

_WHOLE: Final = 64 * 1024
"""Bytes of a message; of a longer one the log of events may have the beginning only."""


def transcript_of(events: Iterable[bytes]) -> str:
    """Return the messages of the negotiated connections as a transcript; what else has happened is in its comments.

    `events` are those of an `EventLog`, which are without secrets.
    """
    return "".join(line for each in events for line in _lines(msgspec.json.decode(each)))


def _lines(event: Any) -> Iterator[str]:
    match event:
        case {"type": "message", "connection": str(connection)} if not connection.endswith("/default"):
            return  # of another revision, for a comparison
        case {"type": "message", "side": side, "bytes": int(size)} if size > _WHOLE:
            yield _comment(event, f"a message of the {side} with {size:,} bytes is left out")
        case {"type": "message", "side": side, "message": message}:
            yield format_entry(RecordedLine(side, message), redacted=False)
        case {"type": "log", "source": source, "text": text}:
            yield _comment(event, f"{source} {event.get('level') or ''} {text}\n{event.get('traceback') or ''}")
        case {"type": "status", "status": status}:
            yield _comment(event, f"server {status} {event.get('why') or ''} {event.get('text') or ''}")
        case {"type": "http", "method": method, "url": url}:
            yield _comment(event, f"{method} {url} {event.get('status') or event.get('problem')}")
        case _:
            return


def _comment(event: Any, text: str) -> str:
    at = datetime.fromtimestamp(event["at"], UTC).strftime("%H:%M:%S")
    return "".join(f"# {at} {line.rstrip()}\n" for line in text.splitlines() if line.strip())
