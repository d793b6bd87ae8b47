"""The terminal of a command, and the thread that works while the main thread owns the terminal.

`Terminal` is for the main thread, which alone writes, reads lines and receives Ctrl-C. A `Worker` runs the conversation in
another thread and sends the main thread tasks: lines to show, questions to ask. So output never mixes, a read never stops the
conversation, and Ctrl-C works wherever the conversation is. `ThreadWorker` runs a function, `LoopWorker` coroutines.

How a read or a run may end, other than with its result:

    EOFError           the input has ended                      Terminal.read, read_secret
    Interrupted        Ctrl-C while a line was read             Terminal.read; it is a KeyboardInterrupt
    KeyboardInterrupt  Ctrl-C while the work was running        ThreadWorker.run; the work goes on
    Stopped            Ctrl-C has cancelled the work            LoopWorker.run; the work has ended

Laws: stdout gets the result and nothing else; everything else goes to stderr. Control characters from a server are shown, never
obeyed. A question begins on a line of its own, text typed ahead does not answer it, and answers enter no history.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeVar

from linkspan.types.base import JSON
from linkspan.wire.redaction import belongs, hidden, invisible, neutral

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_IMPATIENT: Final = 3
"""This many presses of Ctrl-C end the program if the work does not stop."""
_UNDECIDED: Final = "[\r\u200c\u200d\ufe0e\ufe0f]\\Z"
"""The next character decides how a last character like these is shown."""
_CONTEXT: Final = 2
"""Characters kept of what is written: perhaps half an end of line, whose other half comes with the next piece."""


def dump(value: JSON, indent: int | None = 2, *, reveal: bool = False) -> str:
    """Return readable JSON of a value without control characters. `reveal` escapes invisible characters: see `revealed`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)

    def escaped(found: re.Match[str]) -> str:
        if not reveal and belongs(text, found.start()):
            return found[0]
        number = ord(found[0])  # DEL and C1 too, which JSON leaves unchanged; beyond 16 bits it takes two escapes
        return f"\\u{number:04x}" if number <= 0xFFFF else json.dumps(found[0])[1:-1]

    return (invisible() if reveal else hidden()).sub(escaped, text)


def milliseconds(seconds: float, below: float = 1.0) -> str:
    """Return a duration for people; in milliseconds if it is below so many seconds."""
    if seconds >= below:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


class Style:
    """Colours, or none."""

    def __init__(self, *, on: bool) -> None:
        self.bold = partial(_paint, "1" if on else "")
        """For names."""
        self.dim = partial(_paint, "2" if on else "")
        """For secondary text."""
        self.red = partial(_paint, "31" if on else "")
        """For failures."""
        self.yellow = partial(_paint, "33" if on else "")
        """For warnings."""
        self.cyan = partial(_paint, "36" if on else "")
        """For headings."""


def _paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a line was read; `empty` if nothing had been typed, as far as that is known."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class Stopped(Exception):
    """Ctrl-C cancelled the work."""


class Terminal:
    """The streams of this command. For the main thread only."""

    def __init__(
        self, *, quiet: bool = False, verbose: bool = False, color: bool = True, editing: bool = False
    ) -> None:
        """`editing` loads readline, if a line can be edited at all: Python does that on a stdout that is a terminal."""
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name)
            if stream is None:  # it was closed
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it stays open
                continue
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")
                if os.name == "nt" and not stream.isatty():  # else UTF-8 would become the code page of this computer
                    stream.reconfigure(encoding="utf-8", newline="\n")
        color = color and not os.environ.get("NO_COLOR")
        self.quiet = quiet
        self.verbose = verbose and not quiet
        self.watched = sys.stderr.isatty()
        """Whether stderr is a terminal."""
        self.interactive = self.watched and sys.stdin is not None and sys.stdin.isatty()
        """Whether questions can be asked."""
        self.moving = self.watched and os.environ.get("TERM") != "dumb" and not quiet
        """Whether a line on stderr can be rewritten in place."""
        self.styled = color and self.interactive and self.moving and sys.stdout.isatty()
        """Whether a person reads stdout, and sees styles."""
        self.reading = False
        """Whether a line is being read, so that Ctrl-C belongs to it."""
        self.out = Style(on=color and sys.stdout.isatty())
        self.err = Style(on=color and self.watched)
        self._status = ""
        self._open: Literal["", "answer", "thought"] = ""
        self._held = ""
        self._before = ""
        """The end of what is written, as it came."""
        self._readline: Any = None
        """Python's readline, if lines can be edited and it was built with it."""
        if sys.platform != "win32" and editing and self.interactive and sys.stdout.isatty() and self.moving:
            with suppress(ImportError):
                import readline

                readline.set_auto_history(False)  # answers to questions do not belong in the history
                self._readline = readline

    # The result, on stdout.

    def emit(self, text: str) -> None:
        """Write the result. A closed pipe is ignored."""
        self.end_line()
        self.status("")
        _write(sys.stdout, text if text.endswith("\n") or not text else f"{text}\n")

    def emit_bytes(self, data: bytes) -> None:
        """Write a binary result. A closed pipe is ignored."""
        self.status("")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            _redirect_to_null(sys.stdout)

    # Lines on stderr.

    def write_line(self, text: str) -> None:
        """Write a line in any case."""
        self.end_line()
        shown, self._status = self._status, ""
        _write(sys.stderr, f"{_erase(shown)}{text}\n")

    def info(self, text: str) -> None:
        """Write an event: at a terminal, or if the command is verbose."""
        if (self.watched or self.verbose) and not self.quiet:
            self.write_line(self.err.dim(text))

    def detail(self, text: str) -> None:
        """Write a detail, if the command is verbose."""
        if self.verbose:
            self.write_line(self.err.dim(text))

    def warn(self, text: str) -> None:
        """Write a warning, unless the command is quiet."""
        if not self.quiet:
            self.write_line(self.err.yellow(text))

    def fail(self, text: str) -> None:
        """Write an error in any case."""
        self.write_line(self.err.red(text))

    def status(self, text: str) -> None:
        """Rewrite the last line in place; an empty text erases it."""
        if text:
            self.end_line()
        if self.moving and text != self._status:
            shown, self._status = self._status, text
            _write(sys.stderr, f"{_erase(shown)}{text}")

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    # Text that arrives in pieces.

    def write_answer(self, text: str) -> None:
        """Write a piece of a model's answer, on stdout."""
        self._write_piece("answer", text)

    def write_thought(self, text: str) -> None:
        """Write a piece of a model's reasoning, dimmed, on a stderr that is a terminal."""
        if self.watched and not self.quiet:
            self._write_piece("thought", text)

    def end_line(self) -> None:
        """End the line of the piece written last, if it is still open."""
        if not self._open:
            return
        rest, self._held, self._before = neutral(self._held, self._before), "", ""
        stream = sys.stdout if self._open == "answer" else sys.stderr
        self._open = ""
        _write(stream, f"{rest}\n")

    def _write_piece(self, kind: Literal["answer", "thought"], text: str) -> None:
        if self._open != kind:
            self.end_line()
        text = self._held + text
        self._held = text[-1] if re.search(_UNDECIDED, text) else ""
        whole = text.removesuffix(self._held) if self._held else text
        text = neutral(whole, self._before)
        self._before = (self._before + whole)[-_CONTEXT:]
        if not text and not self._held:
            return
        self.status("")
        if kind == "answer":
            _write(sys.stdout, text)
        else:
            _write(sys.stderr, self.err.dim(text))
        self._open = kind if self._held or not text.endswith("\n") else ""

    # Input. Prompts go to stderr, since stdout may be a pipe.

    def read(self, prompt: str) -> str:
        """Read a line. Raises: EOFError; Interrupted for Ctrl-C."""
        self.end_line()
        self.status("")
        self.reading = True
        try:
            if self._readline is not None:
                # Parts of a prompt without a width are marked, so that readline knows the place of the cursor.
                return input(re.sub(r"(\x1b\[\d+m)", "\x01\\1\x02", prompt))
            _write(sys.stderr, prompt)
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            typed = self._readline.get_line_buffer() if self._readline is not None else ""
            self.write_line("")
            raise Interrupted(empty=not typed) from None
        finally:
            self.reading = False
        if not line:
            _write(sys.stderr, "\n")
            raise EOFError
        return line.rstrip("\r\n")

    def read_secret(self, prompt: str) -> str:
        """Read a line that is not shown while it is typed. Raises: EOFError; KeyboardInterrupt for Ctrl-C."""
        from getpass import getpass

        self.end_line()
        self.status("")
        return getpass(prompt, stream=sys.stderr)

    def forget_typed(self) -> None:
        """Drop text typed ahead: it cannot answer a question that has not been shown yet."""
        if sys.platform != "win32" and self.interactive:
            with suppress(ImportError, OSError, ValueError):
                import termios

                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def remember(self, line: str) -> None:
        """Add a line to those that the arrow keys recall."""
        if self._readline is not None:
            self._readline.add_history(line)

    def complete(self, suggest: Callable[[str], Sequence[str]]) -> None:
        """With Tab, complete the last word of a line: `suggest` returns, for the line, what that word may become."""
        readline = self._readline
        if readline is None:
            return
        found: Sequence[str] = ()

        def completed(_: str, number: int) -> str | None:
            nonlocal found
            if number == 0:
                found = suggest(readline.get_line_buffer()[: readline.get_endidx()])
            return found[number] if number < len(found) else None

        self._readline.set_completer(completed)
        self._readline.set_completer_delims(" \t\n")
        self._readline.parse_and_bind("tab: complete")

    @contextmanager
    def restored(self) -> Generator[None, None, None]:
        """Restore the terminal's settings at the end, where it has any."""
        restore: Callable[[], None] = lambda: None  # noqa: E731
        if sys.platform != "win32":
            with suppress(ImportError, OSError, ValueError, AttributeError):
                import termios

                descriptor = sys.stdin.fileno()
                with suppress(termios.error):
                    settings = termios.tcgetattr(descriptor)
                    restore = partial(termios.tcsetattr, descriptor, termios.TCSADRAIN, settings)
        try:
            yield
        finally:
            with suppress(Exception):  # termios.error, where there is such a module
                restore()


def _erase(shown: str) -> str:
    return "\r\x1b[K" if shown else ""


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _redirect_to_null(stream)


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream whose reader is gone, so that flushing it at exit does not fail."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


# The worker thread.


class Worker:
    """Tasks that another thread sends to the main thread."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def later(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the main thread call a function after all earlier ones. For any thread."""
        self._tasks.put(partial(function, *arguments))

    def catch_up(self) -> None:
        """Run the waiting tasks. For the main thread."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()()

    def _serve(self, is_done: Callable[[], bool]) -> None:
        """Run tasks until the work is done, and then the remaining ones. The work sends a task at its end."""
        while not is_done():
            self._tasks.get()()
        self.catch_up()


class ThreadWorker(Worker):
    """Runs a function in a thread while the main thread serves it."""

    over = False
    """Whether the work has ended, so that answers to its questions are not needed."""

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise its exception. Raises: KeyboardInterrupt for Ctrl-C."""
        result: list[T] = []
        errors: list[BaseException] = []

        def perform() -> None:
            try:
                result.append(work())
            except BaseException as error:  # without an end the main thread would wait for ever
                errors.append(error)
            self.over = True
            self.later(lambda: None)

        threading.Thread(target=perform, name="linkspan-conversation", daemon=True).start()
        self._serve(lambda: self.over)
        if errors:
            raise errors[0]
        return result[0]

    def ask(self, question: Callable[[], T], kind: type[Exception]) -> T:
        """Have the main thread ask a question; return the answer, or raise its exception of this kind. For other threads."""
        reply: SimpleQueue[T | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                reply.put(question())
            except kind as error:
                reply.put(error)

        self.later(ask)
        answer = reply.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class LoopWorker(Worker):
    """Runs coroutines on an event loop in a thread while the main thread serves them."""

    def __init__(self, terminal: Terminal) -> None:
        """Start the loop."""
        from linkspan.runtime.background import BackgroundLoop

        super().__init__()
        self._terminal = terminal
        self._loop = BackgroundLoop()
        self._task: asyncio.Task[Any] | None = None
        self._interrupts = 0

    def run(self, start: Callable[[], Awaitable[T]]) -> T:
        """Await what `start` returns. Raises: Stopped when Ctrl-C has cancelled it."""
        import asyncio
        from concurrent.futures import CancelledError

        async def work() -> T:
            self._task = asyncio.current_task()
            try:
                return await start()
            finally:
                self._task = None

        self._interrupts = 0
        future = self._loop.submit(work)
        future.add_done_callback(lambda _: self.later(lambda: None))
        self._serve(future.done)
        try:
            return future.result().get()
        except CancelledError:
            raise Stopped from None

    def within(self, seconds: float, start: Callable[[], Awaitable[T]]) -> T | None:
        """Await what `start` returns, for so long, and without serving it: for completion. None if that fails."""
        future = self._loop.submit(start)
        try:
            return future.result(seconds).get()
        except Exception:  # a suggestion less
            future.cancel()
            return None

    async def ask(self, question: Callable[[Callable[[], bool]], T], interrupted: T) -> T:
        """Have the main thread ask a question, passing it a function that returns whether the answer is no longer needed.

        Ctrl-C at the question stops the work, and answers `interrupted`. For coroutines on the loop.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(settle: Callable[[Any], None], value: object) -> None:
            loop.call_soon_threadsafe(lambda: None if answer.done() else settle(value))

        def put() -> None:
            if answer.done():
                return
            self._terminal.forget_typed()
            try:
                settle(answer.set_result, question(answer.done))
            except KeyboardInterrupt:
                self._stop()
                settle(answer.set_result, interrupted)
            except Exception as error:
                settle(answer.set_exception, error)

        self.later(put)
        return await answer

    def close(self) -> None:
        """End the loop."""
        self._loop.close()

    @contextmanager
    def signals(self) -> Generator[None, None, None]:
        """While entered, Ctrl-C cancels the work, and SIGTERM and SIGHUP exit through the `finally` blocks."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupts += not self._terminal.reading
            if self._terminal.reading or self._interrupts >= _IMPATIENT:
                raise KeyboardInterrupt
            self._stop()

        def leave(number: int, frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
            raise SystemExit(128 + number)

        before = {signal.SIGINT: signal.signal(signal.SIGINT, interrupt)}
        for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
            if (number := getattr(signal, name, None)) is not None:
                before[number] = signal.signal(number, leave)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        if (task := self._task) is not None:
            self._loop.loop.call_soon_threadsafe(task.cancel)
