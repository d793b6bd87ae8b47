"""What begins with a slash in a chat: about the chat itself, and never said to the model."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from linkspan.cli.chat_screen import status_words
from linkspan.cli.chat_terminal import ChatTerminal
from linkspan.cli.chat_threads import Stopped, Threads
from linkspan.host.consent import hints_of, matches
from linkspan.host.conversation import Conversation
from linkspan.text import nearest
from linkspan.wire.plain import one_line

__all__ = ["NAMES", "Commands"]

_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "help": ("", "show this"),
    "tools": ("[WORD]", "show the tools, or those that have to do with a word"),
    "servers": ("", "show how the servers are doing"),
    "allow": ("PATTERN", "let tools run without a question: SERVER, or SERVER/TOOL with * in it"),
    "model": ("[NAME]", "show which model answers, or go on with another one"),
    "save": ("FILE", "write the conversation to a file; --load FILE goes on from it"),
    "reset": ("", "forget what was said"),
    "quit": ("", "end; so do exit and Ctrl-D"),
}

NAMES: Final = [f"/{name}" for name in _HELP]


class Commands:
    """Runs them. `leaving` is true once the person wants to leave."""

    def __init__(self, terminal: ChatTerminal, threads: Threads, chat: Conversation) -> None:
        self._terminal = terminal
        self._threads = threads
        self._chat = chat
        self._saved: set[Path] = set()
        self.leaving = False
        self._known: Mapping[str, Callable[[str], object]] = {
            "help": self._help,
            "tools": self._tools,
            "servers": self._servers,
            "allow": self._allow,
            "model": self._model,
            "save": self._save,
            "reset": self._reset,
            "quit": self._quit,
        }

    def run(self, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        found = self._known.get(name.casefold())
        if found is not None:
            found(rest.strip())
            return
        near = nearest(name, self._known)
        meant = f"; did you mean /{near}?" if near is not None else ""
        self._terminal.say(
            self._terminal.err.yellow(f"There is no /{one_line(name, 40)}{meant} /help shows what there is.")
        )

    def show_servers(self) -> None:
        """Show how each server is doing, on a line of its own."""
        try:
            entries = self._threads.run(self._chat.host.catalogue)
        except Stopped:
            return
        for status in self._chat.host.status():
            words = status_words(status, sum(entry.server == status.server for entry in entries))
            words = textwrap.fill(words, self._terminal.console.columns - 1, subsequent_indent="  ")
            style = self._terminal.err
            self._terminal.say(style.yellow(words) if status.state == "failed" else style.dim(words))

    def _help(self, rest: str) -> None:
        width = max(len(f"{name} {takes}") for name, (takes, _) in _HELP.items())
        for name, (takes, does) in _HELP.items():
            self._terminal.say(f"/{f'{name} {takes}':<{width}}  {self._terminal.err.dim(does)}")
        self._terminal.say(
            self._terminal.err.dim("Ctrl-C stops the model; twice at the empty prompt it ends the chat.")
        )

    def _tools(self, word: str) -> None:
        try:
            entries = self._threads.run(self._chat.host.catalogue)
        except Stopped:
            return
        style, wanted, shown = self._terminal.err, word.casefold(), 0
        for entry in entries:
            described = entry.item.description or entry.item.title or ""
            if wanted not in f"{entry.name} {entry.server} {described}".casefold():
                continue
            shown += 1
            room = max(20, self._terminal.console.columns - len(entry.name) - len(entry.server) - 8)
            hints = f" [{', '.join(hints_of(entry.item))}]" if hints_of(entry.item) else ""
            first = one_line(described.strip().partition("\n")[0] + hints, room)
            self._terminal.say(
                f"{style.cyan(one_line(entry.name, 64))}  {style.dim(f'({one_line(entry.server, 60)})')} {first}"
            )
        if not shown:
            self._terminal.say("No tools match that." if word else "There are no tools.")

    def _servers(self, rest: str) -> None:
        if not self._chat.host.status():
            self._terminal.say("There are no servers: the model is alone.")
        self.show_servers()

    def _allow(self, pattern: str) -> None:
        if not pattern:
            self._say_usage("allow")
            return
        host = self._chat.host
        try:
            entries = self._threads.run(host.catalogue)
        except Stopped:
            return
        meant = [
            f"{entry.server}/{entry.item.name}" for entry in entries if matches(pattern, entry.server, entry.item.name)
        ]
        if not meant:
            known = ", ".join(sorted({entry.server for entry in entries})) or "none"
            self._terminal.say(
                self._terminal.err.yellow(f"No tool is called like that; the servers with tools: {known}")
            )
            return
        host.policy = msgspec.structs.replace(host.policy, allow=[*host.policy.allow, pattern])
        shown = ", ".join(one_line(each, 80) for each in meant[:5]) + (", ..." if len(meant) > 5 else "")
        self._terminal.say(f"These run without a question until the chat ends: {shown}")

    def _model(self, name: str) -> None:
        if name:
            from linkspan.host.models import UnusableModel, open_model

            try:
                self._chat.model = open_model(name)
            except UnusableModel as problem:
                self._terminal.say(self._terminal.err.red(one_line(str(problem))))
                return
        self._terminal.say(f"The model is {one_line(self._chat.model.name, 200)}.")

    def _save(self, file: str) -> None:
        if not file:
            self._say_usage("save")
            return
        path = Path(file).expanduser()
        if path.exists() and path not in self._saved:
            self._terminal.say(self._terminal.err.yellow(f"{one_line(file)} is there already; take another name."))
            return
        try:
            self._chat.save(path)
        except OSError as error:
            self._terminal.say(self._terminal.err.red(f"{one_line(file)} cannot be written: {error.strerror or error}"))
            return
        self._saved.add(path)
        self._terminal.say(f"{_messages(len(self._chat.messages))} saved in {one_line(file)}.")

    def _reset(self, rest: str) -> None:
        count = len(self._chat.messages)
        self._chat.reset()
        self._terminal.say(f"{_messages(count)} forgotten.")

    def _quit(self, rest: str) -> None:
        self.leaving = True

    def _say_usage(self, name: str) -> None:
        takes, does = _HELP[name]
        self._terminal.say(self._terminal.err.yellow(f"/{name} {takes}: {does}"))


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"
