"""Every revision of the protocol, and everything in which they differ. Dates stand nowhere else."""

from __future__ import annotations

from linkspan.revisions import v2024_11_05, v2025_03_26, v2025_06_18, v2025_11_25, v2026_07_28
from linkspan.revisions.record import Revision

__all__ = [
    "DEFAULT_NEGOTIATED",
    "LATEST",
    "LATEST_LEGACY",
    "LEGACY",
    "MODERN",
    "REVISIONS",
    "Revision",
    "supported_versions",
]

REVISIONS: dict[str, Revision] = {
    module.REVISION.date: module.REVISION
    for module in (v2024_11_05, v2025_03_26, v2025_06_18, v2025_11_25, v2026_07_28)
}
"""From the oldest to the newest, by date."""

LEGACY: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "legacy")
MODERN: tuple[str, ...] = tuple(date for date, revision in REVISIONS.items() if revision.era == "modern")
LATEST = REVISIONS[MODERN[-1]]
LATEST_LEGACY = REVISIONS[LEGACY[-1]]
DEFAULT_NEGOTIATED = v2025_03_26.REVISION
"""What an HTTP request without any version information is taken for."""


def supported_versions() -> list[str]:
    """Return every version that is served, newest first (ERA-6)."""
    return list(reversed(REVISIONS))
