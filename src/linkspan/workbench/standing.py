"""Where the server of a workbench stands: for the page, and in words for the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from linkspan.flows.client_errors import ClientError, ConnectError, ConnectionLost
from linkspan.types.base import JSONObject
from linkspan.wire.redaction import Redactor
from linkspan.wire.reports import Report
from linkspan.workbench.events import EventLog, PrintedText

Announce = Callable[[str, str], object]
"""Is given what happened in one word, and the words for the terminal."""
_LINES: Final = 12
_AGAIN: Final = {
    "file": "Waiting for a change: save the file, and the server starts again.",
    "url": "It is connected again as soon as its address can be reached.",
    "command": "Restart starts it again; so does the next call.",
}


class ServerStanding:
    """The state of a server, changed in one thread, except where a method says otherwise."""

    def __init__(
        self,
        kind: Literal["file", "url", "command"],
        events: EventLog,
        announce: Announce,
        redactor: Redactor,
        printed: PrintedText,
    ) -> None:
        """`kind` is what the target is: it decides what starts a broken server again."""
        self._kind = kind
        self._events = events
        self._announce = announce
        self._redactor = redactor
        self._printed = printed
        self._printed_before = 0
        self._problem: JSONObject | None = None
        self._fault: JSONObject | None = None
        """What keeps a server that is connected from serving: the traceback of its lifespan."""
        self._waiting: JSONObject | None = None
        self.status: Literal["connecting", "ready", "broken"] = "connecting"
        self.generation = 0
        """The number of the start."""
        self.began = time.monotonic()
        self.seconds = 0.0
        """How long the last start took."""
        self.is_lost = self.is_unreachable = False
        """Of a server that does not run: whether it did; whether it may be only its address that cannot be reached."""

    @property
    def is_silent(self) -> bool:
        """Whether it was started and has not answered, and that was not announced."""
        return self.status == "connecting" and self._waiting is None and self.generation > 0

    def shown(self) -> JSONObject:
        """Return what a browser gets. Any thread."""
        return {
            "generation": self.generation,  # before the status: that of another start is never with it
            "status": self.status,
            "problem": self._problem or self._fault,
            "waiting": self._waiting,
            "seconds": self.seconds,
        }

    def begin(self, why: str) -> None:
        """Start anew."""
        self.status, self._problem, self._fault, self._waiting = "connecting", None, None, None
        self.generation += 1
        self.began, self._printed_before = time.monotonic(), self._printed.end
        self._events.add("status", status="connecting", why=why)

    def be_ready(self, seconds: float, why: str) -> None:
        """Be connected, `seconds` after the start."""
        self.status, self._waiting, self.seconds = "ready", None, seconds
        self._events.add("status", status="ready", ms=round(seconds * 1000), why=why)

    def be_ready_again(self) -> bool:
        """Be connected once more if the connection was lost; return whether it was."""
        was_lost, self.is_lost = self.is_lost, False
        if was_lost:
            self.status, self._problem = "ready", None
            self._events.add("status", status="ready", why="it is there again")
            self._announce("back", "the server is there again")
        return was_lost

    def be_broken(self, error: ClientError) -> None:
        """Be not connected, for an error."""
        text = self._redactor.text(str(error))
        self.is_lost, self.status, self._waiting = self.status == "ready", "broken", None
        self.is_unreachable = isinstance(error, ConnectError | ConnectionLost) and error.phase != "authorize"
        self._problem = {"text": text, "then": _AGAIN[self._kind]}
        self._events.add("status", status="broken", text=text)
        self._events.add("state")
        what = "lost" if self.is_lost else "broken"
        self._announce(what, text + ("\nwaiting for a change" if self._kind == "file" else ""))

    def show_waiting(self, stack: str = "") -> None:
        """Show that the server has not answered yet, and where it stands, or what it has printed. Any thread."""
        printed = self._printed.since(self._printed_before).splitlines()[-_LINES:]
        where = ["it is at", stack.rstrip()] if stack else ["it has printed", *printed] if printed else []
        text = f"the server has not answered for {max(1, round(time.monotonic() - self.began))} s"
        shown = self._redactor.text("\n".join([text, *where]))
        self._waiting = {
            "text": shown,
            "then": "Saving the file starts it again at once." if self._kind == "file" else "",
        }
        self._events.add("status", status="connecting", waiting=self._waiting)
        self._announce("waiting", shown)

    def fail(self, report: Report) -> None:
        """Show what keeps the server, which is connected, from serving. Any thread."""
        text = self._redactor.text(str(report))
        self._fault = {
            "text": text,
            "then": _AGAIN["file"] if self._kind == "file" else "Calls fail until it can begin.",
        }
        self._events.add("state")
        self._announce("failing", text)

    def serve(self) -> None:
        """Show that it serves: what has failed has gone well since. Any thread."""
        if self._fault is not None:
            self._fault = None
            self._events.add("state")
