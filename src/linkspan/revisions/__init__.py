"""Every revision of the protocol, and everything in which they differ. Dates stand nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from operator import eq, ge, gt, le, lt
from typing import Final

import msgspec

from linkspan.errors import UnsupportedProtocolVersion
from linkspan.revisions.record import Revision
from linkspan.revisions.v2024_11_05 import REVISION as V2024_11_05
from linkspan.revisions.v2025_03_26 import REVISION as V2025_03_26
from linkspan.revisions.v2025_06_18 import REVISION as V2025_06_18
from linkspan.revisions.v2025_11_25 import REVISION as V2025_11_25
from linkspan.revisions.v2026_07_28 import REVISION as V2026_07_28

__all__ = [
    "ALL",
    "DEFAULT_NEGOTIATED",
    "LATEST",
    "LATEST_LEGACY",
    "LEGACY",
    "MESSAGES",
    "METHODS",
    "MODERN",
    "REVISIONS",
    "Revision",
    "Served",
    "served_revisions",
    "supported_versions",
]

REVISIONS: dict[str, Revision] = {
    each.date: each for each in (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
}
"""From the oldest to the newest, by date."""

LEGACY: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "legacy")
"""The dates of the revisions with a handshake, oldest first."""
MODERN: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "modern")
"""The dates of the stateless revisions, oldest first."""
METHODS = frozenset[str]().union(*(each.requests for each in REVISIONS.values()))
"""What clients may call, in any revision."""
MESSAGES = METHODS.union(
    *(each.server_requests | each.client_notifications | each.server_notifications for each in REVISIONS.values())
)
"""Every method and notification of the protocol, in any revision and either direction."""
LATEST = REVISIONS[MODERN[-1]]
"""The newest revision."""
LATEST_LEGACY = REVISIONS[LEGACY[-1]]
DEFAULT_NEGOTIATED = V2025_03_26
"""What an HTTP request without any version information is taken for."""


def supported_versions() -> list[str]:
    """Return every version that is spoken here, newest first (ERA-6)."""
    return list(reversed(REVISIONS))


class Served(msgspec.Struct, frozen=True, eq=False):
    """The revisions that one server speaks, each tuple from the oldest to the newest."""

    with_envelope: tuple[str, ...] = MODERN
    """Those in which each request carries its version in an envelope."""
    with_handshake: tuple[str, ...] = LEGACY

    @property
    def versions(self) -> list[str]:
        """Every version, newest first (ERA-6)."""
        return [*reversed(self.with_envelope), *reversed(self.with_handshake)]


ALL: Final = Served()

_COMPARES: Final[Mapping[str, Callable[[str, str], bool]]] = {">=": ge, "<=": le, ">": gt, "<": lt, "": eq}
_CONDITION: Final = r"\s*(>=|<=|>|<|)\s*(\S+)\s*"


def served_revisions(choice: str | Collection[str] | None) -> Served:
    """Return the revisions that an author chose: a list of dates, or a text of conditions, such as ">=DATE, <DATE".

    Raises: UnsupportedProtocolVersion for a revision that is not spoken here, and for a choice of none.
    """
    if choice is None:
        return ALL
    if isinstance(choice, str):
        conditions = [_condition(each, choice) for each in choice.split(",")]
        dates = [date for date in REVISIONS if all(compare(date, bound) for compare, bound in conditions)]
    else:
        named = [_condition(each, choice)[1] for each in choice]
        dates = [date for date in REVISIONS if date in named]
    if not dates:
        raise _no_choice(choice)
    return Served(tuple(each for each in MODERN if each in dates), tuple(each for each in LEGACY if each in dates))


def _condition(text: object, choice: object) -> tuple[Callable[[str, str], bool], str]:
    found = re.fullmatch(_CONDITION, text) if isinstance(text, str) else None
    if found is None or found[2] not in REVISIONS:
        raise _no_choice(choice)
    return _COMPARES[found[1]], found[2]


def _no_choice(choice: object) -> UnsupportedProtocolVersion:
    listed = ", ".join(supported_versions())
    return UnsupportedProtocolVersion(
        f"revisions={choice!r} names no revision that is spoken here: write a list of some of {listed}, or conditions such "
        f"as '>={LEGACY[-2]}' or '<{MODERN[0]}'"
    )
