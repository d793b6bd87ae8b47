"""The reason of a failed call, for the person at the terminal, who gets more than the model: what a server of ours reported, what
another one printed during the call, or where its log is."""

from __future__ import annotations

import re
import threading
from typing import Final

from linkspan.client.base import BaseClient
from linkspan.flows.client_errors import last_words
from linkspan.wire.redaction import neutral

_LATENESS: Final = 0.1
_KEPT: Final = 32_000


class Printed:
    """What a server process has printed since a call began. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""

    def begin(self) -> None:
        """Forget what came before a call."""
        with self._lock:
            self._text = ""

    def add(self, text: str) -> None:
        """Keep the end of what came."""
        with self._lock:
            self._text = (self._text + text)[-_KEPT:]

    def __str__(self) -> str:
        return self._text


def lateness(client: BaseClient) -> float:
    """Return how many seconds to wait for what a process printed before its answer, and which arrives after it."""
    return _LATENESS if client.origin.command and not client.reports else 0.0


def reason_lines(client: BaseClient, answer: str, printed: str, *, on_screen: bool) -> list[str]:
    """Return the last lines that were `printed` during a call whose answer is an error, or where else its reason is.

    Returns nothing where the reason arrives as a report, what was printed is `on_screen`, or the log of the server is our own.
    """
    if client.reports or not (client.origin.command or client.origin.url) or (on_screen and printed):
        return []
    if lines := last_words(printed):
        return [f"{client.name} | {neutral(line)}" for line in lines]
    incident = re.search(r"\bincident ([0-9A-F]{6})\b", answer)
    where = f"has the reason, under incident {incident[1]}" if incident is not None else "may have the reason"
    return [f"{client.name}: the log of the server {where}"]
