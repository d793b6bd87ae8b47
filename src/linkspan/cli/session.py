"""One conversation with one server, as a verb has it.

Law: the terminal belongs to the main thread. The conversation runs in another one and sends it things to do: lines to show,
forms to fill in. So Ctrl-C ends the call wherever it is, and no two things are written at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from linkspan.cli.failures import INTERRUPTED, LOST, NO_INPUT, WRONG_USE, describe, for_the_shell, status_of
from linkspan.cli.target import Options, WrongUse, timeouts_of
from linkspan.cli.telling import Lines, called, event_words, introduction, log_words, milliseconds
from linkspan.cli.terminal import Console, Style, dump
from linkspan.client.answers import Refused
from linkspan.client.errors import ClientError
from linkspan.core.flow import Stopper
from linkspan.io.sync_client import SyncClient
from linkspan.io.targets import UnusableTarget
from linkspan.types.base import JSON
from linkspan.types.messages import ElicitParams, ProgressParams
from linkspan.wire.plain import neutral, neutral_json

__all__ = ["Outcome", "Session"]

T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """What a verb found out: a JSON document as it came, how to show it (neutralised), and an exit status."""

    document: JSON
    show: Callable[[Any, Style], str]
    status: int = 0
    instead: Callable[[Console], None] | None = None
    """Writes the result itself, where it is not a text to show."""


class Session:
    """Runs one verb's conversation, a function of this session, and turns what comes of it into output and an exit status."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.console = Console(quiet=options.quiet, verbose=options.verbose, color=options.color)
        self.stopper = Stopper()
        self.connect_seconds = 0.0
        self._todo: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._over = False
        self._unanswered: str | None = None
        self._stderr = Lines(lambda line: self._later(self.console.detail, f"{self.client.name} | {neutral(line)}"))

    def run(self, work: Callable[[Session], Outcome]) -> int:
        """Have the conversation; return the exit status."""
        try:
            self.client = self._new_client()
        except (UnusableTarget, ValueError) as problem:
            return self.wrong(str(problem))
        try:
            status = self._settle(self._wait_for(work))
            self._close()
        except KeyboardInterrupt:
            return self._interrupted()
        return status

    # For the conversation's thread.

    def connect(self) -> SyncClient:
        """Start the server and agree with it; say so. Raises: ClientError."""
        began = time.monotonic()
        client = self.client.connect()
        self.connect_seconds = time.monotonic() - began
        self._later(self.console.account, introduction(client, self.connect_seconds))
        offers = client.server_capabilities
        if self.console.verbose and offers is not None and offers.logging is not None:
            client.set_logging_level("debug")
        return client

    def timed(self, what: str, call: Callable[[], T]) -> T:
        """Do the one thing that the verb is about, and say what it was and how long it took."""
        self._later(self.console.account, f"-> {what}")
        began = time.monotonic()
        try:
            return call()
        finally:
            self._later(self.console.status, "")
            if not self.stopper.stopped:
                self._later(self.console.account, f"<- after {milliseconds(time.monotonic() - began)}")

    def progressed(self, found: ProgressParams) -> None:
        """Show progress."""
        from linkspan.cli.progress import progress_line, progress_words

        if self.console.moving:
            self._later(lambda: self.console.status(progress_line(found, self.console.columns)))
        else:
            self._later(self.console.detail, f"{self.client.name}: progress {progress_words(found)}")

    def note(self, text: str) -> None:
        """Show a warning."""
        self._later(self.console.note, text)

    # Setting up.

    def _new_client(self) -> SyncClient:
        options = self.options
        asked = self.console.interactive or bool(options.answers)
        verbose = self.console.verbose
        client = SyncClient(
            options.target,
            env=options.env,
            headers=options.headers,
            cwd=options.cwd,
            inherit_env=options.inherit_env,
            era=options.era,
            protocol_version=options.protocol_version,
            timeouts=timeouts_of(options.timeout),
            check_output="off",
            retry="never",  # who looks at a server wants to see it fail
            elicitation=self._answer if asked else None,
            roots=list(options.roots) or None,
            on_log=(lambda message: self._later(self.console.detail, log_words(self.client.name, message)))
            if verbose
            else None,
            on_event=(lambda event: self._later(self.console.detail, event_words(event))) if verbose else None,
            on_stderr=self._stderr.add if verbose else None,
        )
        if options.headers and client.origin.url is None:
            raise ValueError("--header is for a server at a URL; a command or a file gets --env KEY=VALUE")
        return client

    # The two threads.

    def _wait_for(self, work: Callable[[Session], Outcome]) -> Outcome | Exception:
        """Let the conversation run, and do meanwhile what it wants from this thread."""
        found: list[Outcome | Exception] = []

        def converse() -> None:
            try:
                found.append(work(self))
            except Exception as error:
                found.append(error)
            self._over = True
            self._later(lambda: None)

        threading.Thread(target=converse, name="linkspan-conversation", daemon=True).start()
        while not found:
            self._todo.get()()
        self._do_the_rest()
        return found[0]

    def _later(self, function: Callable[..., object], *arguments: object) -> None:
        self._todo.put(partial(function, *arguments))

    def _do_the_rest(self) -> None:
        while True:
            try:
                task = self._todo.get_nowait()
            except Empty:
                return
            task()

    def _answer(self, params: ElicitParams) -> Any:
        """In whatever thread a question comes: have it answered in the main one. Raises: Refused."""
        reply: SimpleQueue[tuple[Any, Refused | None]] = SimpleQueue()

        def ask() -> None:
            from linkspan.cli.questions import ask_user

            try:
                reply.put((ask_user(self.console, self._server(), params, self.options.answers, self._is_over), None))
            except Refused as refusal:
                self._unanswered = str(refusal)
                reply.put((None, refusal))

        self._later(ask)
        value, refusal = reply.get()
        if refusal is not None:
            raise refusal
        return value

    def _is_over(self) -> bool:
        return self._over

    def _server(self) -> str:
        return called(self.client.name, self.client.server_info)

    # The end.

    def _settle(self, found: Outcome | Exception) -> int:
        if isinstance(found, Outcome):
            status = self._shown(found)
            return status if self._unanswered is None else self._nobody_answered()
        if isinstance(found, WrongUse):
            return self.wrong(str(found))
        if isinstance(found, ClientError):
            return self._failed(found)
        if isinstance(found, RecursionError):
            return self._fail(
                LOST, {"type": "InvalidResponse", "problem": "it is nested too deeply"}, "it is nested too deeply"
            )
        raise found

    def _shown(self, found: Outcome) -> int:
        if self.options.as_json:
            self.console.emit(dump(found.document))
        elif found.instead is not None:
            found.instead(self.console)
        else:
            self.console.emit(found.show(neutral_json(found.document), self.console.out))
        return found.status

    def _nobody_answered(self) -> int:
        """A handshake server that gets no answer may still have a result, but not the one that was wanted."""
        self.console.say(
            self.console.err.red(f"{self.client.name}: it wanted input: {neutral(self._unanswered or '')}")
        )
        return NO_INPUT

    def wrong(self, problem: str) -> int:
        return self._fail(
            WRONG_USE, {"type": "WrongUse", "problem": problem}, f"linkspan {self.options.verb}: {problem}"
        )

    def _failed(self, error: ClientError) -> int:
        error = for_the_shell(error)
        return self._fail(status_of(error), describe(error), str(error))

    def _fail(self, status: int, fields: JSON, text: str) -> int:
        if self.options.as_json:
            self.console.emit(dump({"error": fields}))
        else:
            first, newline, rest = neutral(text).partition("\n")
            self.console.say(self.console.err.red(first) + newline + rest)
        return status

    def _interrupted(self) -> int:
        """Ctrl-C: tell the server, and leave."""
        self.stopper.stop("the user interrupted it")
        self.console.status("")
        if not self.console.quiet:
            self.console.say("interrupted")
        self._close()
        return INTERRUPTED

    def _close(self) -> None:
        self.client.close()
        self._stderr.end()
        self._do_the_rest()
