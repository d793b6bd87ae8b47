"""The limits of a tool as values, and what runs its calls within them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from linkspan.types.base import JSON
from linkspan.types.messages import CallToolResult


class CallLimits(msgspec.Struct, frozen=True):
    """How long a call of a tool may take, and how many run at once."""

    tool: str
    blocking: bool
    """Its function may block an event loop."""
    timeout: float | None
    """Seconds."""
    concurrency: int | None
    max_waiting: int


Limited: TypeAlias = Callable[[Callable[[], object], Callable[[], object]], Awaitable[object]]
"""Runs a function within limits on an event loop; calls the second one when its time is over."""


class Isolation(msgspec.Struct, frozen=True):
    """The function of a tool as another process finds it, and the limits of that process."""

    tool: str
    function: str
    """Its qualified name."""
    module: str | None
    """The module to import, or None to load `path`."""
    path: str | None
    structured: bool
    output_schema: Mapping[str, JSON] | None
    derives_output_schema: bool
    structured_text: bool
    coerce: bool
    processes: int
    timeout: float | None
    """Seconds that a call may take."""
    memory: int | None
    """Bytes of address space that a process may have."""


class ProcessReply(msgspec.Struct, omit_defaults=True):
    """What a process answers to a call. One member is set."""

    result: CallToolResult | None = None
    refused: str | None = None
    """The text of a ToolError."""
    failed: str | None = None
    """The traceback of any other exception."""


class IsolatedCall(Protocol):
    """Runs a call in a process and waits for it. Raises: ToolError if the process ends first, or takes too long."""

    def __call__(self, arguments: bytes, *, repair: bool, cancelled: Callable[[], bool]) -> ProcessReply: ...
