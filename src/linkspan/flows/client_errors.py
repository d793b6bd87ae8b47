"""What a client reports: errors of calls, with hints where something can be done, and events of its connection.

One flat tree of errors. Each names the server, the phase, how the connection ended and whether the request was delivered.
Hints are read from what the server left behind; each rule is a pattern over its output and a sentence. Pure, and never certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from linkspan.errors import LinkspanError
from linkspan.text import clip
from linkspan.types.base import JSON, is_object

Delivery: TypeAlias = Literal["not_sent", "maybe_sent", "answered"]
"""Whether the server may have acted on the request: `not_sent` is safe to repeat, `maybe_sent` is not known."""
Phase: TypeAlias = Literal["spawn", "connect", "negotiate", "list", "call", "close", "authorize"]

_SHOWN_LINES = 12
_SHOWN_FRAMES = 3
_TRACEBACK = "Traceback (most recent call last):"
_NOT_THE_AUTHORS: Final = r'File "(?:<frozen |.*[/\\](?:site-packages|src)[/\\]linkspan[/\\])'
"""Frames that say nothing to the author of a server."""


class ServerOrigin(msgspec.Struct, frozen=True):
    """Which server an error is about; `command` and `url` are redacted, and None where the server has none."""

    server: str
    command: str | None = None
    url: str | None = None


NO_ORIGIN = ServerOrigin("")
"""For what is wrong before it is known which server it is about."""


class ProcessEnd(msgspec.Struct, frozen=True):
    """What is known of a server process that ended, or does not do what it should."""

    exit_code: int | None = None
    """Its exit status; None after a signal, or while it runs."""
    signal: str | None = None
    """The name of the signal that ended it, such as SIGKILL."""
    stderr: str = ""
    """The last that it wrote to stderr, redacted."""
    stray: Sequence[str] = ()
    """Lines on its stdout that were no messages."""


NOTHING_KNOWN = ProcessEnd()


class ClientError(LinkspanError):
    """The root of what a client raises.

    Attributes: `server` (its name), `phase`, `problem` (one sentence), `command` or `url`, `exit_code`, `signal` (the name
    of the signal that ended the process), `stderr` (its last lines, redacted), `code`, `message` and `data` (the server's own
    words, if it answered with an error), `delivery`, `hint` (what a person can do) and `seconds` (the bound that was passed).
    """

    task_id: str | None = None
    """The task that the call has become, if it has; it may go on."""

    def __init__(
        self,
        problem: str,
        origin: ServerOrigin = NO_ORIGIN,
        *,
        phase: Phase = "call",
        delivery: Delivery = "not_sent",
        ending: ProcessEnd = NOTHING_KNOWN,
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
        copy = type(self)(
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
        copy.task_id = self.task_id
        return copy

    def __str__(self) -> str:
        """Return the whole story: problem, command, what the server printed, and the hint."""
        lines = [f"{self.server}: {self.problem}" if self.server else self.problem]
        if where := self.command or self.url:
            lines.append(f"  {'command' if self.command else 'url'}: {where}")
        if self.delivery == "maybe_sent":
            lines.append("  delivery: maybe_sent (the server may have acted on the request)")
        lines += [f"  stderr: {line}" for line in last_words(self.stderr)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def last_words(stderr: str) -> list[str]:
    """Return the last 12 lines of what a server printed; of a traceback first what was raised, then the author's frames."""
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
    authors = [frame for frame in frames if not re.search(_NOT_THE_AUTHORS, frame[0])]
    shown = [line for frame in authors[-_SHOWN_FRAMES:] for line in frame]
    return [*lines[end:][:_SHOWN_LINES], *shown] or lines[-_SHOWN_LINES:]


class ConnectError(ClientError, ConnectionError):
    """The server could not be started, reached or agreed with. Nothing was sent."""


class ConnectionLost(ClientError, ConnectionError):
    """The server went away before it answered. `delivery` indicates whether it may have acted."""


class CallTimeout(ClientError, TimeoutError):
    """No answer within the bound, `seconds`. The server has been asked to stop."""


class CallStopped(ClientError):
    """The caller stopped the call through its `Stopper`. The server has been notified."""


class TaskCancelled(ClientError):
    """The task that a call had become was cancelled."""


class HttpError(ClientError):
    """The server, or something in front of it, answered with an HTTP status and no message of the protocol.

    Attributes: `status`, `retry_after` (seconds, if the server named some), `delivery` (`not_sent` where the status
    means that nothing was done: 429, 503; `maybe_sent` for other 5xx).
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


class AuthorizationError(ClientError):
    """There is no token: the servers contradict each other, one refuses us, or what one answers is not safe to use."""

    @property
    def error(self) -> str | None:
        """The error code of the authorization server, such as `invalid_grant`, if it answered with one."""
        return self.data if isinstance(self.data, str) else None


class LoginRequired(AuthorizationError):
    """The server wants to know who asks, and only a person can answer that; `hint` is the command to run."""


class LoginTimeout(AuthorizationError, TimeoutError):
    """The person did not finish the login within `seconds`."""

    @property
    def login_url(self) -> str:
        """The URL at which the login began."""
        return str(self.data["url"])


class InsufficientScope(AuthorizationError):
    """The server wants scopes that the login does not have, and did not get by asking for them."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """What the operation needs, as far as the server named it."""
        return tuple(self.data or ())


_MODULE: Final = r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?"
_VARIABLE: Final = 'it needs the environment variable {0}: pass env={{"{0}": ...}} [LS-114]'
_OTHER_SDK: Final = (
    "it was written for another version of its SDK: put `linkspan exec` in front of its command, which serves all of them (with "
    "the distribution linkspan-compat), or install the version that it needs [LS-121]"
)
_RULES: Final[tuple[tuple[str, str], ...]] = (
    (r"(?:ModuleNotFoundError|ImportError): No module named '(?:mcp|fastmcp)\.[\w.]+'", _OTHER_SDK),
    (r"ImportError: cannot import name '\w+' from '(?:mcp|fastmcp)(?:\.[\w.]+)?'", _OTHER_SDK),
    (r"AttributeError: '(?:Server|MCPServer|FastMCP)' object has no attribute '\w+'", _OTHER_SDK),
    (
        _MODULE,
        "the module `{0}` is not installed where the server runs: install it there, or start the server with a Python that "
        "has it [LS-106]",
    ),
    (
        r"ImportError: cannot import name '(\w+)' from '([\w.]+)'",
        "`{1}` has no `{0}` where the server runs: install another version of `{1}` [LS-107]",
    ),
    (
        r"Cannot find (?:module|package) '([^']+)'",
        "the Node package `{0}` is missing: run `npm install` in the directory of the server [LS-108]",
    ),
    (r"npm (?:ERR!|error) (?:code )?E404", "npm found no package of this name: check its spelling [LS-109]"),
    (r"No solution found|was not found in the package registry", "the package was not found: check its name [LS-109]"),
    (
        r"can't open file '([^']+)'",
        "there is no file `{0}`: the path is relative to the directory in which the server starts [LS-110]",
    ),
    (r"(?:SyntaxError|IndentationError|TabError): (.+)", "the server's code has a syntax error: {0} [LS-111]"),
    (
        r"(?:EADDRINUSE|[Aa]ddress already in use)",
        "its port is in use: stop the other copy, or connect to its URL [LS-112]",
    ),
    (
        r"(?:Uvicorn running on|Running on|[Ll]istening (?:on|at)) (https?://\S+)",
        "the server speaks HTTP at {0}: connect to that URL, or start it with stdio [LS-113]",
    ),
    (r"KeyError: '([A-Z][A-Z0-9_]+)'", _VARIABLE),
    (
        r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|URL))\b[^\n]{0,80}(?:not set|missing|required|undefined)",
        _VARIABLE,
    ),
    (r"[Pp]ermission denied", "the system denied it a permission: see the last lines of its stderr [LS-115]"),
)


def _match(text: str) -> str | None:
    for pattern, sentence in _RULES:
        found = re.search(pattern, text)
        if found is not None:
            return sentence.format(*found.groups())
    return None


def hint_for_variable(name: str) -> str:
    """Return the hint for a server that lacks an environment variable."""
    return _VARIABLE.format(name)


_UNREADABLE: Final = r"(?:SyntaxError|IndentationError|TabError|ModuleNotFoundError): .*\s*\Z"


def is_unreadable(ending: ProcessEnd) -> bool:
    """Return whether a program of Python ended since it cannot be loaded: it would end so each time."""
    return ending.exit_code == 1 and re.search(_UNREADABLE, ending.stderr) is not None


def hint_for_ending(ending: ProcessEnd, command: str | None = None) -> str | None:
    """Return a hint at what may have ended the server process that `command` started."""
    if found := _match(ending.stderr):
        return found
    if ending.stray:
        return _about_stray(ending.stray[0])
    if ending.exit_code == 127:
        return "the shell did not find a command: install it, or give its full path [LS-117]"
    if ending.exit_code == 0 and (file := re.search(r"([^\s/\\'\"]+\.py)['\"]?$", command or "")):
        return (
            f"{file[1]} ended without serving: write `server = linkspan.Server(...)` at its top level, or let it run the server "
            "of another SDK [LS-118]"
        )
    if ending.exit_code == 0:
        return "it exited without an error: check that it is a stdio server, and its arguments [LS-118]"
    if ending.signal == "SIGKILL":
        return "it was killed: the system may have run out of memory [LS-119]"
    return None


_NO_WAY_BACK: Final = r"no back-channel|server-initiated requests? (?:is|are) unavailable"
"""What servers answer whose code asks as in the handshake era, where this client agreed on a revision that asks otherwise."""
_INCAPABLE: Final = r"The client does not support what this needs: ([\w, ]+)"
_FOR_CAPABILITY: Final = {"elicitation": "elicitation=...", "sampling": "sampling=...", "roots": "roots=[...]"}


def hint_for_refusal(text: str, data: JSON = None) -> str | None:
    """Return a hint at how to be served, for the text (and the `data`) with which a server refused or failed a request."""
    if re.search(_NO_WAY_BACK, text):
        return 'the server asks in the way of older revisions: pass era="legacy" to the client [LS-307]'
    declared: JSON = data.get("requiredCapabilities") if is_object(data) else None
    named = re.search(_INCAPABLE, text)
    required: Collection[str] = declared if is_object(declared) else named[1].split(", ") if named is not None else ()
    wanted = [option for name, option in _FOR_CAPABILITY.items() if name in required]
    return f"pass {' and '.join(wanted)} to the client [LS-303]" if wanted else None


def hint_for_silence(ending: ProcessEnd, *, starting: bool, at_url: bool = False) -> str | None:
    """Return a hint at why a running server may not answer."""
    if found := _match(ending.stderr):
        return found
    if ending.stray:
        return _about_stray(ending.stray[0])
    if starting and at_url:
        return "the address accepts connections but does not respond: check the URL, or raise timeouts.connect [LS-201]"
    if starting:
        return "it runs but sends nothing: check that it is a stdio server, or raise timeouts.connect [LS-120]"
    return "if the server is slow, raise the call's timeout, or let the tool report progress [LS-301]"


def _about_stray(line: str) -> str:
    shown = clip("".join(each if each.isprintable() else " " for each in line).strip(), 80, "...")
    return (
        f"the server printed `{shown}` on stdout, which is for messages only: print to stderr instead "
        "(a Linkspan server does this by itself) [LS-116]"
    )


_INSTALLERS: Final = {
    "uvx": "install uv (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "npx": "install Node.js (https://nodejs.org)",
    "node": "install Node.js (https://nodejs.org)",
    "npm": "install Node.js (https://nodejs.org)",
    "docker": "install and start Docker",
    "deno": "install Deno (https://deno.com)",
    "bunx": "install Bun (https://bun.sh)",
}


def hint_for_missing_command(command: str, find: Callable[[str], str | None]) -> str:
    """Return a hint at what to do about a missing command; `find` looks a name up on the path."""
    if "/" in command or "\\" in command:
        return f"there is no file {command!r}: give the full path, or one relative to the server's directory [LS-102]"
    if " " in command:
        return 'write a command with arguments as a list, such as ["python", "server.py"], or as one string [LS-103]'
    if installer := _INSTALLERS.get(command):
        return f"{command!r} is not on the PATH of the server: {installer} [LS-101]"
    others = {"python": "python3", "python3": "python", "pip": "pip3"}
    if (other := others.get(command)) and find(other):
        return f"{command!r} is not on the PATH of the server, but {other!r} is [LS-101]"
    return f"{command!r} is not on the PATH of the server: install it, or give its full path [LS-101]"


class Change(msgspec.Struct, frozen=True):
    """A list changed, or a resource did (`kind` is then "resource", and `uri` identifies it).

    `missed` means that changes may have been missed while the connection was away: look again.
    """

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None
    missed: bool = False


class Connected(msgspec.Struct, frozen=True):
    """A connection has been made, in the named revision."""

    server: str
    revision: str


class Disconnected(msgspec.Struct, frozen=True):
    """The connection was lost. The next call makes a new one."""

    server: str
    error: ClientError


class StateLost(msgspec.Struct, frozen=True):
    """A new connection took the place of a lost one: what the server kept in memory for us is gone."""

    server: str
    error: ClientError


class StreamRestored(msgspec.Struct, frozen=True):
    """Over HTTP: the stream on which the server tells of changes was lost, and is open again. Calls were not concerned."""

    server: str
    error: ClientError


ClientEvent: TypeAlias = Connected | Disconnected | StateLost | StreamRestored
