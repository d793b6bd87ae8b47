"""What the doctor says: a verdict for each fault that it looked for, with its evidence, whom it hurts, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.text import counted
from linkspan.wire.redaction import neutral, redact

Level: TypeAlias = Literal["fault", "warning", "ok", "skipped"]
LEVELS: Final[tuple[Level, ...]] = ("fault", "warning", "skipped", "ok")

FAULTS: Final[Mapping[str, str]] = {
    "D01": "the host connects to other ports only",
    "D02": "the address is not public",
    "D03": "TLS does not work",
    "D04": "the User-Agent of the host is refused",
    "D05": "the path is redirected, with or without a slash at its end",
    "D06": "a redirect leads to http:// or to another host, where the Authorization header is dropped",
    "D07": "the public Host is refused",
    "D08": "GET does not answer 405 or a stream of events",
    "D09": "a stream of events is held back on its way",
    "D10": "a later request reaches a process without the session",
    "D11": "the 401 does not name the metadata of the resource",
    "D12": "the metadata name another resource than the URL",
    "D13": "the metadata of an issuer with a path are not where clients look",
    "D14": "the issuer of the metadata is another one",
    "D15": "the endpoints of the authorization server are not where some hosts guess them",
    "D16": "S256 is not announced",
    "D17": "a registration is refused for the way in which the client authenticates",
    "D18": "a registration with the redirect URIs of a host is refused",
    "D19": "documents of clients are announced and cannot be used",
    "D20": "no refresh token can be asked for",
    "D21": "the token endpoint reads client_id from the form only",
    "D22": "the server needs no login, but answers for the metadata of one",
    "D23": "a page of another origin cannot use the server",
    "D24": "the Accept header of a host is refused",
    "D25": "MCP is not at this path",
    "D26": "the command is not on the PATH that hosts give",
    "D27": "a script for Windows' shell is started without that",
    "D28": "there is other text than messages on stdout",
    "D29": "the first answer comes later than a host waits",
    "D30": "the server does not end when its stdin does",
    "D31": "the server takes a whole processor after its stdin has ended",
    "D32": "a path is relative, and hosts start servers elsewhere",
    "D33": "a variable is missing, or is not filled in",
    "D34": "the command ends before it answers, for lack of a module or another fault",
    "D35": "the server speaks another transport than the entry says",
    "D36": "the entry is in a section that this host does not read",
    "D37": "the file is not JSON as this host reads it",
    "D38": "the file begins with a byte order mark",
    "D39": "this host does not read this file",
    "D40": "an array does not name its items",
    "D41": "the name of an argument is refused, and all tools with it",
    "D42": "a schema has a union at its root",
    "D43": "the name of a tool is refused",
    "D44": "a schema says more than Gemini accepts",
    "D45": "the names of server and tool together are too long",
    "D46": "there are more tools than the host takes",
    "D47": "the list of tools takes too much of each request",
    "D48": "tools have no title or no hints, which directories demand",
    "D49": "a tool has an output schema and returns no structured content",
    "D50": "the tools search and fetch are missing, which deep research needs",
    "D51": "the manifest of the bundle is refused",
}
"""For each fault by its id what it is."""


class Verdict(msgspec.Struct, frozen=True):
    """What was found about one fault."""

    id: str
    level: Level
    evidence: str = ""
    """What was sent or read, and what came; for a skipped one, why."""
    hurts: tuple[str, ...] = ()
    """The titles of the hosts that it concerns; empty for each."""
    cure: str = ""
    """The line to change, or the command to run."""

    def __str__(self) -> str:
        whom = f" [{', '.join(self.hurts)}]" if self.hurts else ""
        head = f"{_WORDS[self.level]:5} {self.id}{whom} {FAULTS[self.id]}" if self.level != "ok" else f"ok    {self.id}"
        lines = [f"{head}: {self.evidence}" if self.evidence else head]
        return "\n".join([*lines, f"          do: {self.cure}"] if self.cure else lines)


_WORDS: Final[Mapping[Level, str]] = {"fault": "FAULT", "warning": "warn", "ok": "ok", "skipped": "skip"}


def fault(id: str, evidence: str, cure: str, hurts: Sequence[str] = ()) -> Verdict:
    """Return the verdict on a fault that is there."""
    return Verdict(id, "fault", evidence, tuple(hurts), cure)


def warning(id: str, evidence: str, cure: str, hurts: Sequence[str] = ()) -> Verdict:
    """Return the verdict on what may do harm."""
    return Verdict(id, "warning", evidence, tuple(hurts), cure)


def skipped(id: str, why: str) -> Verdict:
    """Return the verdict on a fault that could not be looked for."""
    return Verdict(id, "skipped", why)


def settled(found: Sequence[Verdict]) -> list[Verdict]:
    """Return one verdict for each fault, the worst of them and the worst first, without secrets and control characters."""
    worst: dict[str, Verdict] = {}
    for each in sorted(found, key=lambda each: LEVELS.index(each.level)):
        worst.setdefault(each.id, each)
    clean = (
        msgspec.structs.replace(each, evidence=_clean(each.evidence), cure=_clean(each.cure)) for each in worst.values()
    )
    return sorted(clean, key=lambda each: (LEVELS.index(each.level), each.id))


def _clean(text: str) -> str:
    return " ".join(neutral(redact(text)).split())


def counts(found: Sequence[Verdict]) -> str:
    """Return the last line of a report."""
    faults, warnings, without, fine = (sum(each.level == level for each in found) for level in LEVELS)
    return f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}, {fine} ok, {without} skipped"


def markdown(title: str, found: Sequence[Verdict]) -> str:
    """Return a report to paste into an issue."""
    lines = [f"### {_cell(title)}", "", counts(found), "", "| | fault | evidence | to do |", "|---|---|---|---|"]
    return "\n".join([*lines, *_rows(found)]) + "\n"


def _rows(found: Sequence[Verdict]) -> Iterator[str]:
    for each in found:
        if each.level in ("fault", "warning"):
            what = f"{each.id}: {FAULTS[each.id]}"
            yield f"| {each.level} | {_cell(what)} | {_cell(each.evidence)} | {_cell(each.cure)} |"


def _cell(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\`*_[]<>|@" else each for each in text)
