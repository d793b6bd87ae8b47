"""Every deadline of a client, by name, with its default. All finite, all in seconds."""

from __future__ import annotations

import msgspec

__all__ = ["CLIENT_LIMITS", "DEFAULT_TIMEOUTS", "Timeouts"]

from linkspan.wire.limits import Limits


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client waits. Raises: ValueError for a bound that is not above zero: no call may wait for ever."""

    connect: float = 30.0
    """From starting the server to the end of the negotiation."""

    probe: float = 5.0
    """For the first question in the modern era, before the handshake is tried; over HTTP beside it, while that stays open."""

    list: float = 30.0
    """For one page of a list, a completion, a ping, and other short requests."""

    call: float = 60.0
    """For a tool, a prompt or a resource: without an answer or a sign of progress."""

    total: float = 900.0
    """For one call in all: progress, attempts, rounds and pauses. What our handlers take does not count, up to `input`."""

    input: float = 600.0
    """For our handlers to answer the questions of one call, in all; those that overlap count once."""

    close: float = 2.0
    """For a server process to end by itself once it was told; then it is ended."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"timeouts.{name} must be above 0 seconds, got {getattr(self, name)!r}")


DEFAULT_TIMEOUTS = Timeouts()

CLIENT_LIMITS = Limits(max_line_bytes=64 * 1024 * 1024)
"""A client chose its server and asked for what comes, so one message may be larger than a server takes from strangers."""
