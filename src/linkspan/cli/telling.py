"""What happens during a conversation, in words for stderr."""

from __future__ import annotations

from collections.abc import Callable

from linkspan.cli.terminal import dump
from linkspan.client.events import ClientEvent, Connected, Disconnected, StreamRestored
from linkspan.io.sync_client import SyncClient
from linkspan.revisions import REVISIONS
from linkspan.types.base import Implementation
from linkspan.types.messages import LoggingMessageParams
from linkspan.wire.plain import neutral, one_line

__all__ = ["Lines", "called", "event_words", "introduction", "log_words", "milliseconds"]


class Lines:
    """Cuts what comes in pieces into lines."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._rest = ""

    def add(self, text: str) -> None:
        """Take a piece."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._tell(line.removesuffix("\r"))

    def end(self) -> None:
        """Tell what has no end of line."""
        if self._rest:
            self._tell(self._rest)
            self._rest = ""


def called(name: str, info: Implementation | None) -> str:
    """Name a server for its user: what we call it, and what it calls itself (ELI-8)."""
    own = one_line(info.title or info.name, 60) if info is not None else ""
    return name if own in ("", name) else f"{name} ({own})"


def milliseconds(seconds: float) -> str:
    """Return a duration for people."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def introduction(client: SyncClient, seconds: float) -> str:
    """Say who was started, how long that took, and what was agreed."""
    info = client.server_info
    name = one_line(f"{info.name} {info.version}" if info is not None else client.name, 80)
    version = client.protocol_version or ""
    return f"{name}: started in {milliseconds(seconds)}, speaks {version} ({REVISIONS[version].era})"


def log_words(server: str, message: LoggingMessageParams) -> str:
    """Return a log message of the server's, with its level."""
    data = message.data if isinstance(message.data, str) else dump(message.data, None)
    logger = f" {one_line(message.logger)}" if message.logger else ""
    return f"{server}: log {message.level}{logger}: {neutral(data)}"


def event_words(event: ClientEvent) -> str:
    """Say that the server came, went, or came back."""
    match event:
        case Connected():
            words = f"connected, {event.revision}"
        case Disconnected():
            words = f"disconnected: {one_line(event.error.problem)}"
        case StreamRestored():
            words = f"listening again, after the stream was lost: {one_line(event.error.problem)}"
        case _:
            words = "connected again; what it kept in memory for us is gone"
    return f"{event.server}: {words}"
