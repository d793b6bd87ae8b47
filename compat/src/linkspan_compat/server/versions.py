"""The revisions that are spoken, by the names of `mcp.shared.version` and of `mcp_types.version`."""

from __future__ import annotations

from typing import Final

from linkspan.revisions import LEGACY, MODERN

__all__ = [
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "KNOWN_PROTOCOL_VERSIONS",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LATEST_PROTOCOL_VERSION",
    "MODERN_PROTOCOL_VERSIONS",
    "OLDEST_SUPPORTED_VERSION",
    "SUPPORTED_PROTOCOL_VERSIONS",
    "is_version_at_least",
]

HANDSHAKE_PROTOCOL_VERSIONS: Final = LEGACY
MODERN_PROTOCOL_VERSIONS: Final = MODERN
KNOWN_PROTOCOL_VERSIONS: Final = (*LEGACY, *MODERN)
OLDEST_SUPPORTED_VERSION: Final = LEGACY[0]
LATEST_HANDSHAKE_VERSION: Final = LEGACY[-1]
LATEST_MODERN_VERSION: Final = MODERN[-1]

SUPPORTED_PROTOCOL_VERSIONS: Final = list(LEGACY)
LATEST_PROTOCOL_VERSION: Final = LEGACY[-1]


def is_version_at_least(version: str, minimum: str) -> bool:
    """Return whether a revision is as new as another; False for one that is not known. Raises: ValueError."""
    known = KNOWN_PROTOCOL_VERSIONS
    if minimum not in known:
        raise ValueError(f"minimum must be a known protocol version, got {minimum!r}")
    return version in known and known.index(version) >= known.index(minimum)
