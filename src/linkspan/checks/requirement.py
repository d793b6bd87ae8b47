"""A requirement: its id, what it says, and the function that looks whether a server meets it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.checks.peer import CheckedPeer, Transport
from linkspan.revisions.record import Era, Revision

Level: TypeAlias = Literal["fail", "warn", "skip", "pass"]
Strength: TypeAlias = Literal["must", "should"]
_EITHER: Final[tuple[Era, ...]] = ("legacy", "modern")
_BOTH: Final[tuple[Transport, ...]] = ("stdio", "http")

_MOVED: Final[Mapping[Era, Mapping[str, str]]] = {
    "modern": {
        "basic/transports#stdio": "basic/transports/stdio",
        "basic/transports#streamable-http": "basic/transports/streamable-http",
        "basic/utilities/cancellation": "basic/patterns/cancellation",
        "basic/utilities/progress": "basic/patterns/progress",
    }
}
"""Pages that an era has elsewhere than the era of the handshake."""


class Requirement(msgspec.Struct, frozen=True):
    """What the protocol asks of a server."""

    id: str
    words: str
    strength: Strength
    eras: tuple[Era, ...]
    transports: tuple[Transport, ...]
    source: str
    """The page of the specification, below that of a revision; one that moved is named as in the era of the handshake."""
    check: Callable[[CheckedPeer], None]
    """Raises: Unmet or NotApplicable."""

    def page(self, revision: Revision) -> str:
        """Return the URL of the page in a revision."""
        path = _MOVED.get(revision.era, {}).get(self.source, self.source)
        return f"https://modelcontextprotocol.io/specification/{revision.date}/{path}"

    @property
    def wrong(self) -> Level:
        """The level of a server that does not meet it."""
        return "fail" if self.strength == "must" else "warn"


class CheckOutcome(msgspec.Struct, frozen=True):
    """What was found about one requirement, in one revision."""

    id: str
    revision: str
    level: Level
    words: str = ""
    evidence: str = ""
    source: str = ""


REQUIREMENTS: Final[list[Requirement]] = []
"""All of them, when `linkspan.checks.running` is imported."""
_ORDER: Final = ("calling", "lists", "messages", "posts", "pipes")
"""The modules of the requirements, in the order in which they are looked at.

What comes for calls and lists is judged once more by the requirements on messages; the last one on pipes ends the server.
"""


def requirement(
    id: str,
    words: str,
    source: str,
    *,
    strength: Strength = "must",
    eras: tuple[Era, ...] = _EITHER,
    transports: tuple[Transport, ...] = _BOTH,
) -> Callable[[Callable[[CheckedPeer], None]], Callable[[CheckedPeer], None]]:
    """Make a function the check of a requirement."""

    def keep(check: Callable[[CheckedPeer], None]) -> Callable[[CheckedPeer], None]:
        REQUIREMENTS.append(Requirement(id, words, strength, eras, transports, source, check))
        return check

    return keep


def applying(revision_era: Era, transport: Transport, only: Collection[str] = ()) -> Iterator[Requirement]:
    """Yield the requirements for an era and a transport; if ids are given, those of them."""
    for each in sorted(REQUIREMENTS, key=_place):
        if revision_era in each.eras and transport in each.transports and (not only or each.id in only):
            yield each


def _place(each: Requirement) -> int:
    return _ORDER.index(each.check.__module__.rpartition(".")[2])
