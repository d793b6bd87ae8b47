"""One conversation of a verb with one server, and its results for a shell: output, error, exit status.

The conversation runs in a worker thread, while the main thread serves the terminal (see `terminal`).
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from linkspan.cli.options import Options, WrongUse, timeouts_of
from linkspan.cli.reasons import Printed, lateness, reason_lines
from linkspan.cli.show import Lines, called, event_words, hop_words, introduction, log_words
from linkspan.cli.terminal import Style, Terminal, ThreadWorker, dump, milliseconds
from linkspan.client.sync_client import SyncClient
from linkspan.client.targets import UnusableTarget
from linkspan.core.flow import Stopper
from linkspan.errors import INTERNAL_ERROR, MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED
from linkspan.flows.answers import Refused
from linkspan.flows.client_errors import (
    AuthorizationError,
    CallStopped,
    ClientError,
    ConnectError,
    InputUnavailable,
    LoginRequired,
    LoginTimeout,
    ServerError,
    TaskCancelled,
    hint_for_refusal,
    hint_for_variable,
)
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import ElicitParams, ProgressParams
from linkspan.wire.redaction import neutral, neutral_json, one_line
from linkspan.wire.reports import Report

if TYPE_CHECKING:
    from linkspan.auth.identities import OAuth
    from linkspan.core.extension import Extension
    from linkspan.flows.tasks import TaskStatus
    from linkspan.testing.recorder import Side

_MAX_CRASHES: Final = 20
_MISSING: Final = r"(?m)^KeyError: '(\w+)'$"
"""What `os.environ` raises; where the shell has no such variable, it may be any other mapping."""
REFUSED: Final = 1
WRONG_USE: Final = 2
UNREACHABLE: Final = 3
LOST: Final = 4
NO_INPUT: Final = 5
INTERRUPTED: Final = 130

_IN_A_SHELL: Final = (
    (r"raise timeouts\.\w+|raise the call's timeout", "give it a longer --timeout"),
    (r"pass env=\{\"(\w+)\": \.\.\.\}", r"pass --env \1=..."),
    (r"pass headers=\{'Authorization': \.\.\.\}", "pass --header 'Authorization: Bearer ...'"),
    (r"of headers= text", "of --header text"),
    (r"pass the right one in headers=", "pass the right one with --header"),
    (r", or pass auth= or headers=", ", or pass --header 'Authorization: ...'"),
    (r"pass it as auth=", "pass it as --header 'Authorization: Bearer ...'"),
    (r"with client_secret=\.\.\.", "with --client-secret"),
    (r"pass dpop=False", "a program can pass OAuth(dpop=False)"),
    (r"leave out device\b", "leave out --device"),
    (r'pass era="legacy" to the client', "pass --era legacy"),
    (r"give another cwd", "give another --cwd"),
    (r"client\.task\(error\.task_id\)\.result\(\) waits for it", "linkspan task watch waits for it"),
    (r"do not pin protocol_version or era", "leave --protocol-version and --era out"),
)
_FOR_LOGINS: Final = (
    (r"pass OAuth\(([^)]*)\)", ""),
    (r"pass (issuer='[^']*')", ""),
    (r"pass another (redirect_port=)", " with another port"),
)
"""Arguments of an identity, which are options of `linkspan login`; and words to add."""
_SWITCHES: Final = ("client_secret", "assume_pkce")
_NO_INPUT_HINTS: Final = {
    "sampling": "use a host: this command has no model to answer with",
    "roots": "offer it directories with --root DIR",
    "": "run this in a terminal to be asked, or answer with --answer FIELD=VALUE",
}
"""How to provide the input that a server requires, by the capability that it names; the last one otherwise."""
_FIELDS: Final = (
    *("problem", "server", "phase", "command", "url", "exit_code", "signal", "stderr"),
    *("code", "message", "data", "delivery", "seconds", "task_id", "hint"),
)
"""The members of an error that --json shows, in their order."""


def status_of(error: ClientError) -> int:
    """Return the exit status for an error of a client."""
    match error:
        case ConnectError():
            return UNREACHABLE
        case LoginRequired() | LoginTimeout():
            return NO_INPUT
        case AuthorizationError():
            return REFUSED
        case InputUnavailable():
            return NO_INPUT
        case ServerError() if error.code in (MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED):
            return NO_INPUT
        case ServerError() | TaskCancelled():
            return REFUSED
        case CallStopped():
            return INTERRUPTED
        case _:
            return LOST


def for_the_shell(error: ClientError) -> ClientError:
    """Return the error with a hint that names options of the command line instead of arguments in Python."""
    found = error.again()
    if status_of(error) == NO_INPUT and not isinstance(error, AuthorizationError):
        found.hint = _NO_INPUT_HINTS[""]
        data: JSON = error.data
        if is_object(data) and is_array(pages := data.get("elicitations")):
            urls = [str(each["url"]) for each in pages if is_object(each) and "url" in each]
            found.hint = f"open {', '.join(urls)} and try again"
        elif is_object(data) and is_object(wanted := data.get("requiredCapabilities")):
            found.hint = next((hint for name, hint in _NO_INPUT_HINTS.items() if name in wanted or not name))
    elif error.hint:
        found.hint = hint_in_a_shell(error.hint, error.url)
    return found


def hint_in_a_shell(hint: str, url: str | None = None) -> str:
    """Return a hint with options of the command line in the place of arguments in Python; `url` is the server's."""
    for pattern, more in _FOR_LOGINS:
        found = re.search(pattern, hint)
        if found is not None:
            hint = f"{hint[: found.start()]}run `{_login_command(url, found[1])}`{more}{hint[found.end() :]}"
    for pattern, words in _IN_A_SHELL:
        hint = re.sub(pattern, words, hint)
    return re.sub(r"--env (\w+)=\.\.\.", _passed_on, hint)


def _login_command(url: str | None, arguments: str) -> str:
    """Return what to run where a program passes these arguments to `OAuth`; what it has to fill in is in capitals."""
    command = ["linkspan", "login", url or "URL"]
    for found in re.finditer(r"(\w+)=(?:'([^']*)'|([^,)]*))", arguments):
        name, quoted, value = found.groups("")
        if (name, value) == ("resource", "False"):
            command.append("--no-resource")
            continue
        command.append(f"--{name.replace('_', '-')}")
        if name not in _SWITCHES:
            command.append(quoted or (value if value not in ("", "...") else name.rpartition("_")[2].upper()))
    return shlex.join(command)


def _passed_on(option: re.Match[str]) -> str:
    """Return the option for a variable that the server lacks: its name is enough where the shell has it."""
    name = option[1]
    return f"--env {name} (the shell has it, but a server gets only what is named)" if name in os.environ else option[0]


def describe(error: ClientError) -> JSONObject:
    """Return an error's fields; those without a value are left out."""
    fields: JSONObject = {name: getattr(error, name) for name in _FIELDS}
    fields = {"type": type(error).__name__, **fields, "stderr": error.stderr or None}
    return {name: value for name, value in fields.items() if value is not None}


T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """The result of a verb: a JSON document as it came, a function that shows it (neutralised), and an exit status."""

    document: JSON
    show: Callable[[Any, Style], str]
    status: int = 0
    instead: Callable[[Terminal], None] | None = None
    """Writes a result that is not a text to show."""


class MessageLines:
    """Shows the messages of both sides as `linkspan trace` does. It is a client's recorder."""

    def __init__(self, show: Callable[[str], object]) -> None:
        """Call `show` with lines that have no secrets in them."""
        from linkspan.cli.trace import TraceView

        self._show = show
        self._view = TraceView()
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def client(self, data: bytes) -> None:
        """Show what the client sends."""
        self._receive("client", data)

    def server(self, data: bytes) -> None:
        """Show what the server sends."""
        self._receive("server", data)

    def _receive(self, side: Side, data: bytes) -> None:
        with self._lock:
            lines = self._view.receive(side, data, time.monotonic() - self._began)
        if lines:
            self._show(lines.rstrip("\n"))


def _is_trace(target: str | tuple[str, ...]) -> bool:
    """Return whether a command is `linkspan trace ...`, or `python -m linkspan trace ...`: its stderr is what to look at."""
    program, verb = (2, 3) if target[1:2] == ("-m",) else (0, 1)
    return not isinstance(target, str) and target[verb:][:1] == ("trace",) and Path(target[program]).stem == "linkspan"


def _extensions(options: Options) -> Sequence[Extension]:
    if not options.task:
        return ()
    from linkspan.flows.tasks import Tasks

    return (Tasks(),)


class Session:
    """Runs one verb's conversation, a function of this session; turns its outcome into output and an exit status."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
        self.stopper = Stopper()
        self.connect_seconds = 0.0
        self._worker = ThreadWorker()
        self._unanswered: str | None = None
        self._printed = Printed()
        self._crashes: deque[Report] = deque(maxlen=_MAX_CRASHES)
        """What is shown below the result, though it may arrive first."""
        self._traces = _is_trace(options.target)
        self._stderr = Lines(lambda line: self._worker.later(self._show_stderr, neutral(line)))

    def run(self, work: Callable[[Session], Outcome]) -> int:
        """Run the conversation; return the exit status."""
        try:
            self.client = self._new_client(self.options.target)
        except (UnusableTarget, ValueError) as problem:
            return self.wrong(str(problem))
        try:
            status = self._finish(work)
            self._close()
        except KeyboardInterrupt:
            self.stopper.stop("the user interrupted it")
            self.terminal.status("")
            if not self.terminal.quiet:
                self.terminal.write_line("interrupted")
            self._close()
            return INTERRUPTED
        return status

    def _finish(self, work: Callable[[Session], Outcome]) -> int:
        try:
            found = self._worker.run(lambda: self._explained(work))
        except WrongUse as problem:
            return self.wrong(str(problem))
        except ClientError as error:
            error = for_the_shell(error)
            return self._fail(status_of(error), describe(error), str(error))
        except RecursionError:
            too_deep = "the response is nested too deeply"
            return self._fail(LOST, {"type": "InvalidResponse", "problem": too_deep}, too_deep)
        status = self.show(found)
        if self._unanswered is None:
            return status
        # A handshake server without an answer may still have a result, but not the wanted one.
        wanted = f"{self.client.name}: it requested input: {neutral(self._unanswered)}"
        self.terminal.fail(wanted)
        return NO_INPUT

    def show(self, found: Outcome) -> int:
        """Write a result to stdout; return its exit status."""
        if self.options.json:
            self.terminal.emit(dump(found.document))
        elif found.instead is not None:
            found.instead(self.terminal)
        else:
            self.terminal.emit(found.show(neutral_json(found.document), self.terminal.out))
        return found.status

    # For the conversation's thread.

    def connect(self) -> SyncClient:
        """Start the server, negotiate, and report that. Raises: ClientError."""
        began = time.monotonic()
        client = self.client.connect()
        self.connect_seconds = time.monotonic() - began
        self._worker.later(self.terminal.info, introduction(client, self.connect_seconds))
        offers = client.server_capabilities
        if self.terminal.verbose and offers is not None and offers.logging is not None:
            client.set_logging_level("debug")
        return client

    def client_of(self, target: str | tuple[str, ...]) -> SyncClient:
        """Return a client of another server than that of the verb, with the same options. Raises: WrongUse."""
        try:
            return self._new_client(target)
        except (UnusableTarget, ValueError) as problem:
            raise WrongUse(str(problem)) from None

    def timed(self, what: str, call: Callable[[], T]) -> T:
        """Make the request of the verb; report it and its duration."""
        self._worker.later(self.terminal.info, f"-> {what}")
        self._printed.begin()
        began = time.monotonic()
        try:
            return call()
        finally:
            self._worker.later(self.terminal.status, "")
            if not self.stopper.stopped:
                self._worker.later(self.terminal.info, f"<- after {milliseconds(time.monotonic() - began)}")

    def progressed(self, found: ProgressParams) -> None:
        """Show progress."""
        from linkspan.cli.show import progress_line, progress_words

        if self.terminal.moving:
            self._worker.later(lambda: self.terminal.status(progress_line(found, self.terminal.columns)))
        else:
            self._worker.later(self.terminal.detail, f"{self.client.name}: progress {progress_words(found)}")

    def warn(self, text: str) -> None:
        """Show a warning."""
        self._worker.later(self.terminal.warn, text)

    def explain(self, answer: str) -> None:
        """Show the reason of an answer that is an error, or where it is; a server that is a file of ours reports it."""
        if (hint := hint_for_refusal(answer)) is not None:
            self.warn(f"  hint: {hint_in_a_shell(hint)}")
            return
        time.sleep(lateness(self.client))
        for line in reason_lines(self.client, answer, str(self._printed), on_screen=self.terminal.verbose):
            self.warn(line)

    def _explained(self, work: Callable[[Session], Outcome]) -> Outcome:
        try:
            return work(self)
        except ServerError as error:
            if error.code == INTERNAL_ERROR:
                self.explain(error.problem)
            raise

    def task_changed(self, found: TaskStatus) -> None:
        """Show the state of a task."""
        said = f": {one_line(found.status_message, 200)}" if found.status_message else ""
        self._worker.later(self.terminal.info, f"task {one_line(found.task_id)} is {found.status}{said}")

    # Setting up.

    def _new_client(self, target: str | tuple[str, ...]) -> SyncClient:
        options = self.options
        answering = self.terminal.interactive or bool(options.answer)
        verbose, headers = self.terminal.verbose, dict(options.header)

        def answer(params: ElicitParams) -> Any:
            """Answer a request of the server for input, in the thread that received it. Raises: Refused."""
            from linkspan.cli.forms import ask_user

            server, worker, given = called(client.name, client.server_info), self._worker, dict(options.answer)
            try:
                return worker.ask(lambda: ask_user(self.terminal, server, params, given, lambda: worker.over), Refused)
            except Refused as refusal:
                self._unanswered = str(refusal)
                raise

        client = SyncClient(
            target,
            auth=self._identity(),
            env=dict(options.env),
            headers=headers,
            cwd=options.cwd,
            inherit_env=options.inherit_env,
            era=options.era,
            protocol_version=options.protocol_version,
            timeouts=timeouts_of(options.timeout),
            check_output="off",
            retry="never",  # on the command line a failure should be visible
            elicitation=answer if answering else None,
            roots=options.root or None,
            on_log=(lambda message: self._worker.later(self.terminal.detail, log_words(self.client.name, message)))
            if verbose
            else None,
            on_event=(lambda event: self._worker.later(self.terminal.detail, event_words(event))) if verbose else None,
            on_stderr=self._receive_stderr,
            on_http=(lambda hop: self._worker.later(self.terminal.detail, hop_words(hop))) if verbose else None,
            recorder=MessageLines(lambda lines: self._worker.later(self.terminal.detail, lines)) if verbose else None,
            on_report=lambda report: self._crashes.append(report) if report.traceback else None,
            extensions=_extensions(options),
        )
        if headers and client.origin.url is None:
            raise ValueError("--header is for a server at a URL; a command or a file gets --env KEY=VALUE")
        return client

    def _receive_stderr(self, text: str) -> None:
        self._printed.add(text)
        if self.terminal.verbose or self._traces:
            self._stderr.add(text)

    def _show_crash(self, report: Report) -> None:
        """Show a crash of the author's code, unless the log is on the screen."""
        if self.terminal.verbose and report.printed:
            return
        if self.options.json:
            self.terminal.write_line(dump(msgspec.to_builtins(msgspec.structs.replace(report, printed="")), None))
        else:
            self._write_failure(f"{self.client.name}: {report}")
            if (missing := re.search(_MISSING, report.traceback)) is not None and missing[1] in os.environ:
                self._write_failure(f"hint: {hint_in_a_shell(hint_for_variable(missing[1]))}")

    def _identity(self) -> OAuth | None:
        """Return who logs in if a server at a URL asks for it: the person at the terminal, if there is one."""
        if not self.terminal.interactive:
            return None
        from linkspan.auth.identities import OAuth
        from linkspan.cli.forms import PersonAtTerminal

        return OAuth(open_url=PersonAtTerminal(lambda line: self._worker.later(self.terminal.write_line, line)))

    def _show_stderr(self, line: str) -> None:
        if self._traces:
            self.terminal.write_line(line)  # as it is, for programs that read the JSON of a trace
        else:
            self.terminal.detail(f"{self.client.name} | {line}")

    # The end.

    def wrong(self, problem: str) -> int:
        """Report a wrong command line; return its exit status."""
        return self._fail(
            WRONG_USE, {"type": "WrongUse", "problem": problem}, f"linkspan {self.options.verb}: {problem}"
        )

    def _fail(self, status: int, fields: JSON, text: str) -> int:
        if self.options.json:
            self.terminal.emit(dump({"error": fields}))
        else:
            self._write_failure(text)
        return status

    def _write_failure(self, text: str) -> None:
        first, newline, rest = neutral(text).partition("\n")
        self.terminal.write_line(self.terminal.err.red(first) + newline + rest)

    def _close(self) -> None:
        self.client.close()
        self._stderr.end()
        self._worker.catch_up()
        for report in self._crashes:
            self._show_crash(report)
