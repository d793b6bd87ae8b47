"""What the transports of the SDKs yield here: two ends that stand for a connection, which the session opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkspan_compat.errors import NotServed

__all__ = ["End", "ends"]


class End:
    """One end of a stream: to be passed to a session. Iterating over it is not served."""

    def __init__(self, connect: Callable[..., Any], kind: str) -> None:
        self.connect = connect
        self.kind = kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotServed(
            f"the streams of {self.kind} can be passed to ClientSession, and are not read one by one (.{name}); "
            "write for Linkspan: Client(lambda: channel), with a channel of your own"
        )

    def __aiter__(self) -> Any:
        raise NotServed(f"the streams of {self.kind} can be passed to ClientSession, and are not read one by one")


def ends(connect: Callable[..., Any], kind: str) -> tuple[End, End]:
    """Return both ends of a connection that `connect(**callbacks)` opens as a client of Linkspan."""
    return End(connect, kind), End(connect, kind)
