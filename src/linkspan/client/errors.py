"""What a client raises: one flat tree, in which every error says where, when and what to do.

No exception group and no cancellation that the caller did not cause comes out of a client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from linkspan.errors import LinkspanError

__all__ = [
    "NOWHERE",
    "CallStopped",
    "CallTimeout",
    "ClientClosed",
    "ClientError",
    "ConnectError",
    "ConnectionLost",
    "Delivery",
    "Ending",
    "HttpError",
    "InputUnavailable",
    "InvalidResponse",
    "Origin",
    "Phase",
    "ServerError",
    "ToolFailed",
]

Delivery: TypeAlias = Literal["not_sent", "maybe_sent", "answered"]
"""Whether the server may have acted on the request: `not_sent` is safe to repeat, `maybe_sent` is not known."""
Phase: TypeAlias = Literal["spawn", "connect", "negotiate", "list", "call", "close"]

_SHOWN_LINES = 12
_SHOWN_FRAMES = 3
_TRACEBACK = "Traceback (most recent call last):"
_NOT_THE_AUTHORS = re.compile(r'File "(?:<frozen |.*[/\\](?:site-packages|src)[/\\]linkspan[/\\])')
"""Frames that say nothing to the author of a server."""


class Origin(msgspec.Struct, frozen=True):
    """Which server an error is about; `command` and `url` are redacted, and None where the server has none."""

    server: str
    command: str | None = None
    url: str | None = None


NOWHERE = Origin("")
"""For what is wrong before it is known which server it is about."""


class Ending(msgspec.Struct, frozen=True):
    """What is known of a server process that ended, or does not do what it should."""

    exit_code: int | None = None
    """Its exit status; None after a signal, or while it runs."""
    signal: str | None = None
    """The name of the signal that ended it, such as SIGKILL."""
    stderr: str = ""
    """The last that it wrote to stderr, redacted."""
    stray: Sequence[str] = ()
    """Lines on its stdout that were no messages."""


NOTHING_KNOWN = Ending()


class ClientError(LinkspanError):
    """The root of what a client raises.

    Attributes: `server` (its name), `phase`, `problem` (one sentence), `command` or `url`, `exit_code`, `signal` (the name
    of the signal that ended the process), `stderr` (its last lines, redacted), `code`, `message` and `data` (the server's own
    words, if it answered with an error), `delivery`, `hint` (what a person can do) and `seconds` (the bound that was passed).
    """

    def __init__(
        self,
        problem: str,
        origin: Origin,
        *,
        phase: Phase = "call",
        delivery: Delivery = "not_sent",
        ending: Ending = NOTHING_KNOWN,
        hint: str | None = None,
        seconds: float | None = None,
        code: int | None = None,
        message: str | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.origin = origin
        self.phase: Phase = phase
        self.delivery: Delivery = delivery
        self.ending = ending
        self.hint = hint
        self.seconds = seconds
        self.code = code
        self.message = message
        self.data = data

    @property
    def server(self) -> str:
        """The server's name."""
        return self.origin.server

    @property
    def command(self) -> str | None:
        """The command that started the server, redacted."""
        return self.origin.command

    @property
    def url(self) -> str | None:
        """The server's URL, redacted."""
        return self.origin.url

    @property
    def exit_code(self) -> int | None:
        """The exit status of a server process that ended; None after a signal."""
        return self.ending.exit_code

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the server process, such as SIGKILL."""
        return self.ending.signal

    @property
    def stderr(self) -> str:
        """The last that the server wrote to stderr, redacted."""
        return self.ending.stderr

    def again(self) -> ClientError:
        """Return a copy for another caller, without this one's traceback."""
        return type(self)(
            self.problem,
            self.origin,
            phase=self.phase,
            delivery=self.delivery,
            ending=self.ending,
            hint=self.hint,
            seconds=self.seconds,
            code=self.code,
            message=self.message,
            data=self.data,
        )

    def __str__(self) -> str:
        """Return the whole story: problem, command, what the server printed, and the hint."""
        lines = [f"{self.server}: {self.problem}" if self.server else self.problem]
        if where := self.command or self.url:
            lines.append(f"  {'command' if self.command else 'url'}: {where}")
        if self.delivery == "maybe_sent":
            lines.append("  delivery: maybe_sent (the server may have acted on the request)")
        lines += [f"  stderr: {line}" for line in _last_words(self.stderr)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _last_words(stderr: str) -> list[str]:
    """Return the last lines; of a traceback first what was raised, then the author's frames."""
    lines = stderr.splitlines()
    if _TRACEBACK not in lines:
        return lines[-_SHOWN_LINES:]
    begin = len(lines) - lines[::-1].index(_TRACEBACK)
    end = next((place for place in range(begin, len(lines)) if not lines[place].startswith(" ")), len(lines))
    frames: list[list[str]] = []
    for line in lines[begin:end]:
        if line.startswith("  File ") or not frames:
            frames.append([])
        frames[-1].append(line)
    authors = [frame for frame in frames if not _NOT_THE_AUTHORS.search(frame[0])]
    shown = [line for frame in authors[-_SHOWN_FRAMES:] for line in frame]
    return [*lines[end:][:_SHOWN_LINES], *shown] or lines[-_SHOWN_LINES:]


class ConnectError(ClientError, ConnectionError):
    """The server could not be started, reached or agreed with. Nothing was sent."""


class ConnectionLost(ClientError, ConnectionError):
    """The server went away before it answered. `delivery` tells whether it may have acted."""


class CallTimeout(ClientError, TimeoutError):
    """No answer within the bound, `seconds`. The server has been told to stop."""


class CallStopped(ClientError):
    """The caller stopped the call through its `Stopper`. The server has been told."""


class HttpError(ClientError):
    """The server, or something in front of it, answered with an HTTP status and no message of the protocol.

    Attributes: `status`, `retry_after` (seconds, if the server named some), `delivery` (`not_sent` where the status says that
    nothing was done: 429, 503; `maybe_sent` for other 5xx).
    """

    status: int = 0
    retry_after: float | None = None

    def again(self) -> ClientError:
        """Return a copy for another caller."""
        copy = super().again()
        assert isinstance(copy, HttpError)
        copy.status, copy.retry_after = self.status, self.retry_after
        return copy


class ServerError(ClientError):
    """The server answered with a JSON-RPC error: `code`, `message` and `data` are its own."""


class InvalidResponse(ClientError):
    """The server answered, but not in the way of the protocol or of its own schema."""


class ToolFailed(ClientError):
    """A tool answered `isError`; `message` is its text. Only `raise_for_error` raises it."""


class InputUnavailable(ClientError):
    """The server needs an answer that this client cannot give: it has no handler, the handler failed, or the user refused."""


class ClientClosed(ClientError):
    """The client was closed before the call, or during it."""
