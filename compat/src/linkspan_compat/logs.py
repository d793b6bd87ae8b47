"""Loggers of the SDKs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["configure_logging", "get_fastmcp_logger", "get_logger", "temporary_log_level"]


def get_logger(name: str) -> logging.Logger:
    """Return a logger."""
    return logging.getLogger(name)


def get_fastmcp_logger(name: str) -> logging.Logger:
    """Return a logger below that of FastMCP."""
    return logging.getLogger(name if name.startswith("fastmcp.") else f"fastmcp.{name}")


def configure_logging(level: Any = "INFO", logger: logging.Logger | None = None, **rich: Any) -> None:
    """Log to stderr from a level on; what is passed on to rich has no effect."""
    logging.basicConfig(format="%(message)s")
    (logger or logging.getLogger()).setLevel(level)


@contextmanager
def temporary_log_level(level: str | None, logger: logging.Logger | None = None) -> Iterator[None]:
    """Log from another level on, until the block ends."""
    found = logger or logging.getLogger("fastmcp")
    before = found.level
    if level is not None:
        found.setLevel(level)
    try:
        yield
    finally:
        found.setLevel(before)
