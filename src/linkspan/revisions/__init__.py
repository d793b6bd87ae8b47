"""Every revision of the protocol, and everything in which they differ. Dates stand nowhere else."""

from __future__ import annotations

from linkspan.revisions.record import Revision
from linkspan.revisions.v2024_11_05 import REVISION as V2024_11_05
from linkspan.revisions.v2025_03_26 import REVISION as V2025_03_26
from linkspan.revisions.v2025_06_18 import REVISION as V2025_06_18
from linkspan.revisions.v2025_11_25 import REVISION as V2025_11_25
from linkspan.revisions.v2026_07_28 import REVISION as V2026_07_28

__all__ = [
    "DEFAULT_NEGOTIATED",
    "LATEST",
    "LATEST_LEGACY",
    "LEGACY",
    "MESSAGES",
    "METHODS",
    "MODERN",
    "REVISIONS",
    "Revision",
    "supported_versions",
]

REVISIONS: dict[str, Revision] = {
    each.date: each for each in (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
}
"""From the oldest to the newest, by date."""

LEGACY: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "legacy")
MODERN: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "modern")
METHODS = frozenset[str]().union(*(each.requests for each in REVISIONS.values()))
"""What clients may call, in any revision."""
MESSAGES = METHODS.union(
    *(each.server_requests | each.client_notifications | each.server_notifications for each in REVISIONS.values())
)
"""Every method and notification of the protocol, in any revision and either direction."""
LATEST = REVISIONS[MODERN[-1]]
LATEST_LEGACY = REVISIONS[LEGACY[-1]]
DEFAULT_NEGOTIATED = V2025_03_26
"""What an HTTP request without any version information is taken for."""


def supported_versions() -> list[str]:
    """Return every version that is served, newest first (ERA-6)."""
    return list(reversed(REVISIONS))
