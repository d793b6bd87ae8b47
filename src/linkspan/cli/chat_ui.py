"""The screen of a chat, its questions to the user, and the history of typed lines.

Laws: the user sees exactly what will be sent, and to which server, before it is sent, with invisible characters escaped; a
password is not shown while it is typed, and neither passwords nor answers are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from linkspan.cli.forms import Prompter
from linkspan.cli.markdown import markdown_writer
from linkspan.cli.pictures import Protocol, drawing, protocol_of, save_picture
from linkspan.cli.session import for_the_shell
from linkspan.cli.show import event_words, progress_line
from linkspan.cli.terminal import Terminal, dump, milliseconds
from linkspan.client.config import InputWanted, UnusableTarget, variable_of
from linkspan.flows.client_errors import ClientEvent, Connected, Disconnected
from linkspan.host.consent import Approval, Verdict, hints_of
from linkspan.host.conversation import (
    CallEnded,
    CallProgressed,
    CallStarted,
    ChatEvent,
    TurnEnded,
)
from linkspan.host.group import ServerStatus
from linkspan.host.messages import (
    AssistantMessage,
    Message,
    Picture,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolUse,
    Usage,
    UserMessage,
)
from linkspan.host.results import unmarked
from linkspan.text import clip
from linkspan.types.base import ImageContent, TextContent, is_array
from linkspan.types.messages import CreateMessageParams
from linkspan.wire.redaction import neutral, one_line, redact, revealed, revealed_line

_ARGUMENTS: Final = 100
_ANSWER: Final = 100
_EXCERPT: Final = 8
"""Lines that are shown of a text that is added to the conversation."""
_BOUNDS: Final = {
    "rounds": "the turn was ended: the model reached the maximum of messages in one turn (--max-rounds)",
    "tokens": "the turn was ended: it reached the maximum of tokens",
    "seconds": "the turn was ended: it reached the maximum duration",
    "length": "the answer was cut: it reached the maximum length of a message",
    "refused": "the provider withheld the answer",
}


class Screen:
    """Shows the events of a conversation. With `answer`, text is shown as it arrives; otherwise it is left out."""

    def __init__(
        self, terminal: Terminal, *, answer: bool = True, pictures: Callable[[], str | None] = lambda: None
    ) -> None:
        """`pictures` returns the folder for pictures that the terminal cannot draw."""
        self._terminal = terminal
        self._answer = answer
        self._pictures = pictures
        self._protocol: Protocol | None = protocol_of(os.environ) if terminal.moving else None
        self._markdown = markdown_writer(terminal.emit, lambda: terminal.columns) if terminal.styled else None
        self._has_text = False
        self._model = ""
        self._running = 0
        self._lost: set[str] = set()

    def begin(self, model: str) -> None:
        """Begin a turn."""
        self._has_text = False
        self._model = one_line(model, 60)
        self._running = 0
        self._wait()

    def show(self, event: ChatEvent) -> None:
        """Show an event of the turn."""
        match event:
            case TextDelta():
                if event.text and self._answer:
                    self._has_text = self._has_text or not event.text.isspace()
                    self.write(event.text)
            case ThoughtDelta():
                self._terminal.write_thought(event.text)
            case CallStarted():
                self._running += 1
                self._terminal.info(f"-> {_call_words(event.server, event.use)}")
            case CallProgressed():
                self._terminal.status(progress_line(event.progress, self._terminal.columns))
            case CallEnded():
                self._ended(event)
            case TurnEnded():
                self.end()
                if self._answer and not self._has_text and not event.text.strip():
                    self._terminal.emit("No response from the server")
                if event.reason != "answered":
                    self._terminal.warn(ended_words(event))
                usage = event.usage
                if self._terminal.interactive and self._answer and (usage.input_tokens or usage.cost):
                    self._terminal.info(f"   {_usage_words(usage)}")
            case _:
                self._end_text()

    def write(self, text: str) -> None:
        """Write a piece of an answer: as it arrives, or, as Markdown, block by block."""
        if self._markdown is None:
            self._terminal.write_answer(text)
            return
        self._markdown.add(text)
        self._wait()

    def end(self) -> None:
        """End the turn, however it ended."""
        self._end_text()
        self._terminal.status("")

    def _end_text(self) -> None:
        if self._markdown is not None:
            self._markdown.end()
        self._terminal.end_line()

    def show_added(self, messages: Sequence[Message], typed: str) -> None:
        """Show what goes to the model besides what the user has typed: the texts of a prompt or of resources, and pictures."""
        for message in messages:
            parts = message.parts if isinstance(message, UserMessage | AssistantMessage) else ()
            for part in parts:
                if isinstance(part, Picture):
                    self.show_picture(part)
                elif isinstance(part, Text) and part.text != typed:
                    self._terminal.info(_excerpt(part.text))

    def show_picture(self, image: Picture) -> None:
        """Draw a picture, or save it."""
        drawn = drawing(image, self._protocol)
        if drawn is not None:
            self._terminal.write_line(drawn)
        else:
            self._terminal.info(save_picture(image, self._pictures))

    def server_event(self, event: ClientEvent) -> None:
        """Show that a server connected or disconnected; of a server that was lost, its return is shown once."""
        if isinstance(event, Disconnected):
            self._lost.add(event.server)
        elif isinstance(event, Connected):
            if event.server not in self._lost:
                self._terminal.info(event_words(event))
            return
        self._terminal.warn(event_words(event))

    def _wait(self) -> None:
        """Show that the model is working."""
        self._terminal.status(self._terminal.err.dim(f"... {self._model}"))

    def _ended(self, event: CallEnded) -> None:
        self._terminal.status("")
        answer = unmarked(event.answer.text)
        if event.seconds is None:
            reason = one_line(answer.partition(". ")[0], _ANSWER).rstrip(".")
            words = f"-- {_call_words(event.server, event.use)} was not called: {reason}"
        else:
            took = milliseconds(event.seconds)
            words = f"<- {one_line(event.use.name, 64)} after {took}: {one_line(answer, _ANSWER)}"
        (self._terminal.warn if event.answer.is_error else self._terminal.info)(words)
        for image in event.answer.images if not self._terminal.quiet else ():
            self.show_picture(image)
        self._running -= event.seconds is not None
        if not self._running:
            self._wait()


def _excerpt(text: str) -> str:
    """Return the beginning of a text that is added to the conversation."""
    lines = neutral(unmarked(text)).splitlines()
    more = [f"... {len(lines) - _EXCERPT} more lines"] if len(lines) > _EXCERPT else []
    return "\n".join(f"  | {clip(line, 200, '...')}" for line in [*lines[:_EXCERPT], *more])


def _usage_words(usage: Usage) -> str:
    """Return the tokens and the cost of a turn; what the provider does not count is left out."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{cost}"


def ended_words(event: TurnEnded) -> str:
    """Return why a turn ended without an answer."""
    return _BOUNDS.get(event.reason, event.reason)


def status_words(status: ServerStatus, tools: int) -> str:
    """Return the state of a server on one line, with a hint."""
    name = one_line(status.server, 60)
    if status.state == "connected":
        return f"{name}: {tools} tool{'s' * (tools != 1)}"
    if status.error is None:
        return f"{name}: not running; the next call starts it"
    error = for_the_shell(status.error)
    hint = f" ({one_line(error.hint, 200)})" if error.hint else ""
    return f"{one_line(str(error).partition(chr(10))[0], 300)}{hint}"


def _call_words(server: str, use: ToolUse) -> str:
    where = f"{one_line(server, 60)}: " if server else ""
    arguments = one_line(json.dumps(use.arguments, ensure_ascii=False), _ARGUMENTS)
    return f"{where}{one_line(use.name, 64)} {arguments}"


T = TypeVar("T")

_LINES: Final = 40
_CHARACTERS: Final = 4_000
_NO: Final[Verdict] = "no"
_VERDICTS: Final[Mapping[str, Verdict]] = {
    **dict.fromkeys(("y", "yes", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("n", "no"), _NO),
}
_YES_OR_NO: Final[Mapping[str, bool]] = {"y": True, "yes": True, "n": False, "no": False}


def ask_approval(terminal: Prompter, approval: Approval, is_over: Callable[[], bool] = lambda: False) -> Verdict:
    """Ask whether a tool may be called. Raises: KeyboardInterrupt for Ctrl-C."""
    style = terminal.err
    tool = approval.tool
    is_skill = approval.kind == "skill"
    what = "load the skill" if is_skill else "call"
    name = str(approval.arguments.get("skill", tool.name)) if is_skill else tool.name
    terminal.write_line(
        f"\n{style.bold(f'The model wants to {what}')} {style.cyan(revealed_line(name, 100))} "
        f"{style.bold(f'of the server {revealed_line(approval.server, 60)}.')}"
    )
    if approval.caution:
        terminal.write_line(style.yellow(f"  {revealed_line(approval.caution, 300)}"))
    if approval.change:
        warning = 'Its definition has changed since it was first used; "no" keeps the old one:'
        warning = "Its files have changed since it was approved:" if is_skill else warning
        terminal.write_line(style.yellow(f"  {warning}"))
        paint = {"-": style.red, "+": style.cyan}
        for line in revealed(approval.change).splitlines():
            terminal.write_line(f"    {paint.get(line[:1], style.dim)(line)}")
    elif tool.description and not is_skill:
        terminal.write_line(f"  {revealed_line(tool.description, 300)}")
    if (hints := hints_of(tool)) and not is_skill:
        terminal.write_line(style.dim(f"  hints of its server: {', '.join(hints)}"))
    text = dump(approval.arguments, reveal=True)
    terminal.write_line("  what is approved:" if is_skill else "  arguments that will be sent:")
    shown_all = _show(terminal, text)
    choices = "[y]es, for this [s]ession, [a]lways, [n]o" + ("" if shown_all else ", [m]ore")
    question = style.bold("Load it?" if is_skill else "Call it?")
    return _choose(terminal, f"{question} {choices}: ", _VERDICTS, _NO, text, is_over)


def ask_sampling(
    terminal: Prompter,
    server: str,
    params: CreateMessageParams,
    model: str,
    is_over: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Ask whether the model may write a text for a server; after `once` the text is reviewed before it is sent."""
    style = terminal.err
    terminal.write_line(
        f"\n{style.bold(f'The server {revealed_line(server, 60)} requests a text from the model')} "
        f"{style.dim(f'({revealed_line(model, 80)}, at most {params.max_tokens} tokens)')}"
    )
    parts = [f"system: {params.system_prompt}"] if params.system_prompt else []
    for message in params.messages:
        for block in message.content if is_array(message.content) else [message.content]:
            match block:
                case TextContent():
                    said = block.text
                case ImageContent():
                    said = f"[a picture, {block.mime_type}]"
                case _:
                    said = "[content that is not text]"
            parts.append(f"{message.role}: {said}")
    text = "\n".join(parts)
    shown_all = _show(terminal, text)
    choices = "[y]es and show me the text, for this [s]ession, [n]o" + ("" if shown_all else ", [m]ore")
    verdicts: dict[str, Verdict] = {word: verdict for word, verdict in _VERDICTS.items() if verdict != "always"}
    return _choose(terminal, f"{style.bold('Let the model write it?')} {choices}: ", verdicts, _NO, text, is_over)


def ask_review(terminal: Prompter, server: str, text: str, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Ask whether a text that the model wrote may be sent to a server."""
    style = terminal.err
    terminal.write_line(f"\n{style.bold('The model wrote:')}")
    shown_all = _show(terminal, text)
    prompt = f"{style.bold(f'Send it to {revealed_line(server, 60)}?')} [y]es, [n]o" + ("" if shown_all else ", [m]ore")
    return _choose(terminal, f"{prompt}: ", _YES_OR_NO, False, text, is_over)


def _choose(
    terminal: Prompter, prompt: str, words: Mapping[str, T], otherwise: T, text: str, is_over: Callable[[], bool]
) -> T:
    """Ask until the user chooses; Enter alone asks again. The end of the input chooses `otherwise`."""
    while True:
        try:
            typed = terminal.read(prompt).strip().casefold()
        except EOFError:
            return otherwise
        if is_over():
            terminal.write_line(terminal.err.yellow("  This answer is no longer needed."))
            return otherwise
        if typed in words:
            return words[typed]
        if typed in ("m", "more"):
            terminal.write_line(_indented(revealed(text)))


def _show(terminal: Prompter, text: str) -> bool:
    """Show a text, or its beginning; return whether that was all of it."""
    text = revealed(text)
    head = "\n".join(text[:_CHARACTERS].rstrip("\n").split("\n")[:_LINES])
    terminal.write_line(_indented(head))
    if len(head) >= len(text.rstrip("\n")):
        return True
    terminal.write_line(terminal.err.yellow(f"    ... cut: the text has {len(text)} characters"))
    return False


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.removesuffix("\n").split("\n"))


_LONGEST: Final = 200


def inputs_from(terminal: Terminal) -> Callable[[InputWanted], str] | None:
    """Return the function that asks for inputs, or None without a terminal."""
    if not terminal.interactive:
        return None

    def ask(wanted: InputWanted) -> str:
        """Ask until there is a value. Raises: UnusableTarget at the end of the input, so that only this server fails."""
        if (known := os.environ.get(variable_of(wanted.id))) is not None:
            return known
        terminal.write_line(f"The configuration needs {one_line(wanted.description or wanted.id, _LONGEST)}")
        for number, option in enumerate(wanted.options, 1):
            terminal.write_line(f"  {number}) {one_line(option, _LONGEST)}")
        bracket = f" [{one_line(wanted.default, _LONGEST)}]" if wanted.default and not wanted.secret else ""
        read = terminal.read_secret if wanted.secret else terminal.read
        while True:
            try:
                typed = read(f"{one_line(wanted.id, _LONGEST)}{bracket}: ").strip()
            except EOFError:
                raise UnusableTarget(f"no value was given for the input {wanted.id!r}") from None
            if typed in wanted.options or (typed and not wanted.options):
                return typed
            if typed.isdecimal() and len(typed) < 4 and 0 < int(typed) <= len(wanted.options):
                return wanted.options[int(typed) - 1]
            if not typed and wanted.default is not None:
                return wanted.default

    return ask


_KEPT: Final = 1000
_OWNER_ONLY: Final = 0o600
_DIRECTORY: Final = 0o700


class History:
    """The file of typed lines. Errors of the file are ignored: the chat works without it."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """`private`: recall earlier lines, and keep none."""
        self._path = path
        self._private = private

    def lines(self) -> Iterator[str]:
        """Return the typed lines, oldest first."""
        with suppress(OSError):
            lines = self._path.read_text("utf-8", "replace").splitlines()
            if len(lines) > 2 * _KEPT:
                lines = lines[-_KEPT:]
                self._write("".join(f"{line}\n" for line in lines), os.O_TRUNC)
            yield from lines[-_KEPT:]

    def add(self, typed: str) -> bool:
        """Keep a line if it may be kept; return whether it is."""
        line = " ".join(typed.splitlines())
        if self._private or not line.strip() or line[0].isspace() or redact(line) != line:
            return False
        with suppress(OSError):
            self._path.parent.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
            self._write(f"{line}\n", os.O_APPEND)
        return True

    def _write(self, text: str, how: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, _OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
