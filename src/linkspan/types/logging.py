"""Log messages and progress, as notifications.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.types.base import JSON, Meta, Wire
from linkspan.types.shared import RequestId

__all__ = ["LOG_LEVELS", "LoggingLevel", "LoggingMessageParams", "ProgressParams"]

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""From the least to the most severe (RFC 5424)."""


class LoggingMessageParams(Wire, frozen=True):
    """A log message; `data` is any JSON."""

    level: LoggingLevel
    data: JSON
    logger: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ProgressParams(Wire, frozen=True):
    """How far a request has come; `progress` grows with every message."""

    progress_token: RequestId
    progress: float
    total: float | None = None
    message: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")
