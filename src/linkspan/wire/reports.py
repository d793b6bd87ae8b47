"""Reports: log records of a server as lines of its stderr, apart from what is printed there.

A server writes them if `LINKSPAN_REPORT` is set in its environment, which a client does that starts a file of the caller. They
are for the person who runs both, and never part of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from linkspan.wire.redaction import redact

VARIABLE: Final = "LINKSPAN_REPORT"
"""The environment variable that asks a server for reports; the server removes it, so that no other process inherits it."""
_MARK: Final = "\x1e"
_KIND: Final = "LS1 "
_LONGEST: Final = 16_000
"""Characters of each text of a report; the end is kept, since a traceback ends with what was raised."""
_TEXTS: Final = ("text", "traceback", "printed")
_LONGEST_LINE: Final = 512 * 1024
"""Characters of a line, in which JSON may take six for each one."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of a server's log. As a string, it is the text, and below it the traceback."""

    level: str
    """The name of the level, such as ERROR."""
    logger: str
    text: str
    method: str | None = None
    """The method of the request that the record is about, if it is about one; likewise the next three."""
    tool: str | None = None
    request_id: str | int | None = None
    incident: str | None = None
    """The id of an internal error, which the client got too."""
    server: str | None = None
    """The mounted server that served the request, if one did."""
    traceback: str = ""
    """The author's frames of the exception, and what was raised; empty without an exception."""
    printed: str = ""
    """What the server would have printed without reports."""
    stage: str | None = None
    """`loading` for a report of where the import of the file stands, `lifespan` for one on the lifespan of the server."""

    def __str__(self) -> str:
        return f"{self.text}\n{self.traceback}".rstrip("\n")

    def without(self, secrets: Iterable[str]) -> Report:
        """Return the report without what looks like a secret, and without these `secrets`."""
        texts = {name: redact(getattr(self, name), secrets) for name in _TEXTS}
        return msgspec.structs.replace(self, **texts)


def encode_report(report: Report) -> str:
    """Return a report as one line of ASCII."""
    texts = {name: _sendable(getattr(report, name)) for name in _TEXTS}
    fields = msgspec.to_builtins(msgspec.structs.replace(report, **texts))
    return f"{_MARK}{_KIND}{json.dumps(fields)}\n"


def _sendable(text: str) -> str:
    return text[-_LONGEST:].encode("utf-8", "backslashreplace").decode()


class ReportReader:
    """Splits what a server writes to stderr into reports and printed text. A damaged report is printed text."""

    def __init__(self) -> None:
        """Begin before the first character."""
        self._held: str = ""

    def receive(self, text: str) -> list[str | Report]:
        """Return what is complete with `text`, in its order. The beginning of a report is held until its line ends."""
        found: list[str | Report] = []
        text, self._held = self._held + text, ""
        while text:
            printed, mark, rest = text.partition(_MARK)
            line, newline, text = rest.partition("\n")
            if printed:
                found.append(printed)
            if mark and not newline and len(line) < _LONGEST_LINE:
                self._held = mark + line
            elif (report := _decode(line)) is not None:
                found.append(report)
            else:
                found.append(mark)
                text = rest
        return [each for each in found if each]

    def end(self) -> list[str | Report]:
        """Return what is left at the end of the output."""
        held, self._held = self._held, ""
        return [held] if held else []


def _decode(line: str) -> Report | None:
    if not line.startswith(_KIND):
        return None
    try:
        return msgspec.json.decode(line.removeprefix(_KIND), type=Report)
    except (msgspec.DecodeError, UnicodeError):
        return None
