"""What happens in a turn, as a person sees it: words as they come, and a line when a call begins and when it has ended."""

from __future__ import annotations

import json
from typing import Final

from linkspan.cli.chat_terminal import ChatTerminal
from linkspan.cli.failures import for_the_shell
from linkspan.cli.progress import progress_line
from linkspan.cli.telling import event_words, milliseconds
from linkspan.client.catalogue import ServerStatus
from linkspan.client.events import ClientEvent, Connected, Disconnected
from linkspan.host.conversation import (
    CallEnded,
    CallProgressed,
    CallStarted,
    ChatEvent,
    TurnEnded,
)
from linkspan.host.messages import TextDelta, ThoughtDelta, ToolUse, Usage
from linkspan.host.results import unmarked
from linkspan.wire.plain import one_line

__all__ = ["Screen", "ended_words", "status_words"]

_ARGUMENTS: Final = 100
_ANSWER: Final = 100
_BOUNDS: Final = {
    "rounds": "the turn was ended: the model has spoken as often as it may in one turn (--max-rounds)",
    "tokens": "the turn was ended: it used more tokens than one turn may",
    "seconds": "the turn was ended: it took longer than one turn may",
    "length": "the answer was cut: it was longer than one message may be",
    "refused": "the provider held the answer back",
}


class Screen:
    """Shows the events of a conversation. With `answer`, words are shown as they come; otherwise they are kept back."""

    def __init__(self, terminal: ChatTerminal, *, answer: bool = True) -> None:
        self._terminal = terminal
        self._answer = answer
        self._said = False
        self._model = ""
        self._running = 0
        self._lost: set[str] = set()

    def begin(self, model: str) -> None:
        """A turn begins."""
        self._said = False
        self._model = one_line(model, 60)
        self._running = 0
        self._wait()

    def show(self, event: ChatEvent) -> None:
        """Show what happened."""
        match event:
            case TextDelta():
                self._say(event.text)
            case ThoughtDelta():
                self._terminal.thoughts(event.text)
            case CallStarted():
                self._running += 1
                self._terminal.account(f"-> {_call_words(event.server, event.use)}")
            case CallProgressed():
                self._terminal.status(progress_line(event.progress, self._terminal.console.columns))
            case CallEnded():
                self._ended(event)
            case TurnEnded():
                self._over(event)
            case _:
                self._terminal.end_line()

    def end(self) -> None:
        """The turn is over, however it ended."""
        self._terminal.status("")
        self._terminal.end_line()

    def server_event(self, event: ClientEvent) -> None:
        """Tell that a server came or went; that it is back, once."""
        if isinstance(event, Disconnected):
            self._lost.add(event.server)
        elif isinstance(event, Connected):
            if event.server not in self._lost:
                self._terminal.account(event_words(event))
            return
        self._terminal.note(event_words(event))

    def _wait(self) -> None:
        """Nothing happens until the model speaks again."""
        self._terminal.status(self._terminal.err.dim(f"... {self._model}"))

    def _say(self, text: str) -> None:
        if text and self._answer:
            self._said = self._said or not text.isspace()
            self._terminal.words(text)

    def _ended(self, event: CallEnded) -> None:
        self._terminal.status("")
        answer = unmarked(event.answer.text)
        if event.seconds is None:
            reason = one_line(answer.partition(". ")[0], _ANSWER).rstrip(".")
            words = f"-- {_call_words(event.server, event.use)} was not called: {reason}"
        else:
            took = milliseconds(event.seconds)
            words = f"<- {one_line(event.use.name, 64)} after {took}: {one_line(answer, _ANSWER)}"
        if event.answer.is_error:
            self._terminal.note(words)
        else:
            self._terminal.account(words)
        self._running -= event.seconds is not None
        if not self._running:
            self._wait()

    def _over(self, event: TurnEnded) -> None:
        self.end()
        if self._answer and not self._said and not event.text.strip():
            self._terminal.console.emit("No response from the server")
        if event.reason != "answered":
            self._terminal.note(ended_words(event))
        if self._terminal.interactive and self._answer and (spent := _usage_words(event.usage)):
            self._terminal.account(f"   {spent}")


def ended_words(event: TurnEnded) -> str:
    """Say why a turn has ended without an answer."""
    return _BOUNDS.get(event.reason, event.reason)


def status_words(status: ServerStatus, tools: int) -> str:
    """Say on one line how a server is doing, and what to try."""
    name = one_line(status.server, 60)
    if status.state == "connected":
        return f"{name}: {tools} tool{'s' * (tools != 1)}"
    if status.error is None:
        return f"{name}: not running; it is started again when it is needed"
    error = for_the_shell(status.error)
    hint = f" ({one_line(error.hint, 200)})" if error.hint else ""
    return f"{one_line(str(error).partition(chr(10))[0], 300)}{hint}"


def _call_words(server: str, use: ToolUse) -> str:
    where = f"{one_line(server, 60)}: " if server else ""
    arguments = one_line(json.dumps(use.arguments, ensure_ascii=False), _ARGUMENTS)
    return f"{where}{one_line(use.name, 64)} {arguments}"


def _usage_words(usage: Usage) -> str:
    if not usage.input_tokens:  # the provider does not count
        return ""
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
