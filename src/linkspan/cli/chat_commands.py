"""The commands of a chat's prompt: `/tools`, `/retry`, `/compact`, ..."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from linkspan.cli.chat_offers import Offers
from linkspan.cli.chat_store import KeptChat, kept_chats, read_chat, show_chats
from linkspan.cli.chat_ui import status_words
from linkspan.cli.options import WrongUse
from linkspan.cli.terminal import LoopWorker, Stopped, Terminal
from linkspan.errors import install_hint
from linkspan.host.consent import hints_of, matches
from linkspan.host.conversation import Conversation
from linkspan.host.group import GroupEntry
from linkspan.host.messages import ModelError, UserMessage
from linkspan.text import nearest
from linkspan.types.messages import Resource, ResourceTemplate
from linkspan.wire.redaction import neutral, one_line

if TYPE_CHECKING:
    from linkspan.skills.hosting import HostSkills

_HELP: Final = {
    "help": ("", "show this"),
    "tools": ("[WORD]", "list the tools, or those that match a word"),
    "servers": ("", "show the state of the servers"),
    "allow": ("PATTERN", "let tools run without a question: SERVER, or SERVER/TOOL with * in it"),
    "prompts": ("[WORD]", "list the prompts of the servers; /NAME key=value uses one"),
    "resources": ("[WORD]", "list the resources; @URI in a question adds one to it"),
    "skills": ("[WORD]", "list the skills of the servers, which the model can load"),
    "model": ("[NAME]", "show the model, or switch to another one"),
    "retry": ("", "ask the last question again"),
    "compact": ("", "put a summary in the place of the conversation; the model writes it"),
    "clear": ("", "begin a new conversation; the old one can be resumed"),
    "sessions": ("", "list the conversations that are kept"),
    "resume": ("NAME", "go on with one of them"),
    "save": ("FILE", "write the conversation to a file; --load FILE continues it"),
    "quit": ("", "end; so do exit and Ctrl-D"),
}
"""For each command, which is a method of `Commands`, what it takes and what it does."""

NAMES: Final = [*_HELP]
_ALIASES: Final = {"reset": "clear", "exit": "quit"}


class Commands:
    """The commands of the prompt. `leaving` is true after /quit."""

    def __init__(
        self,
        terminal: Terminal,
        worker: LoopWorker,
        chat: Conversation,
        offers: Offers,
        kept: KeptChat,
        ask: Callable[[UserMessage], None],
        skills: HostSkills | None = None,
    ) -> None:
        """`ask` takes a turn. `skills` are those of the servers, if any can be read."""
        self._skills = skills
        self._terminal = terminal
        self._worker = worker
        self._chat = chat
        self._offers = offers
        self._kept = kept
        self._ask = ask
        self._saved: set[Path] = set()
        self.leaving = False
        self.failed: UserMessage | None = None
        """The last question, if the model failed to answer it."""

    def run(self, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        command = _ALIASES.get(name.casefold(), name.casefold())
        if command in _HELP:
            with suppress(Stopped):
                getattr(self, command)(rest.strip())
            return
        near = nearest(name, [*_HELP, *_ALIASES, *self._offers.prompts])
        meant = f"; did you mean /{one_line(near, 100)}?" if near is not None else "."
        self._advise(f"There is no /{one_line(name, 40)}{meant} /help lists the commands.")

    def help(self, _: str) -> None:
        """List the commands."""
        dim = self._terminal.err.dim
        width = max(len(f"{name} {takes}") for name, (takes, _) in _HELP.items())
        for name, (takes, does) in _HELP.items():
            self._terminal.write_line(f"/{f'{name} {takes}':<{width}}  {dim(does)}")
        lines = 'A line that ends with \\ goes on in the next one; so does everything between two lines of """.'
        self._terminal.write_line(dim(lines))
        self._terminal.write_line(dim("Ctrl-C stops the model; twice at the empty prompt it ends the chat."))

    def tools(self, word: str) -> None:
        """List the tools, or those that match a word. Raises: Stopped."""
        rows: list[tuple[str, str, str]] = []
        for each in self._worker.run(self._chat.host.catalogue):
            about = (each.item.description or each.item.title or "").strip().partition("\n")[0]
            hints = f" [{', '.join(hints_of(each.item))}]" if hints_of(each.item) else ""
            rows.append((each.name, each.server, about + hints))
        self._show(rows, word, "tools")

    def prompts(self, word: str) -> None:
        """List the prompts, or those that match a word. Raises: Stopped."""
        self._worker.run(self._offers.refresh)
        rows: list[tuple[str, str, str]] = []
        for name, each in self._offers.prompts.items():
            takes = " ".join(
                f"{one.name}=..." if one.required else f"[{one.name}=...]" for one in each.item.arguments or ()
            )
            rows.append((f"/{name} {takes}".strip(), each.server, each.item.description or each.item.title or ""))
        self._show(rows, word, "prompts")

    def resources(self, word: str) -> None:
        """List the resources, or those that match a word. Raises: Stopped."""
        self._worker.run(self._offers.refresh)
        listed: list[GroupEntry[Resource] | GroupEntry[ResourceTemplate]] = [
            *self._offers.resources.values(),
            *self._offers.templates,
        ]
        rows = [(f"@{each.name}", each.server, each.item.description or each.item.title or "") for each in listed]
        self._show(rows, word, "resources")

    def skills(self, word: str) -> None:
        """List the skills, or those that match a word. Raises: Stopped."""
        if self._skills is None:
            self._advise(f"Skills need PyYAML: {install_hint('skills')}")
            return
        found = self._worker.run(self._skills.listed)
        self._show([(name, each.server, each.description) for name, each in found.items()], word, "skills")
        for server, problems in self._skills.problems.items():
            for problem in problems:
                self._terminal.write_line(self._terminal.err.yellow(one_line(f"{server}: {problem}", 300)))

    def _show(self, rows: Iterable[tuple[str, str, str]], word: str, what: str) -> None:
        """Show names with their servers and descriptions, of those that match a word."""
        style, found = self._terminal.err, False
        for name, server, about in rows:
            if word.casefold() not in f"{name} {server} {about}".casefold():
                continue
            found = True
            room = max(20, self._terminal.columns - len(name) - len(server) - 8)
            first = one_line(about.strip().partition("\n")[0], room)
            self._terminal.write_line(
                f"{style.cyan(one_line(name, 100))}  {style.dim(f'({one_line(server, 60)})')} {first}"
            )
        if not found:
            self._terminal.write_line(f"No {what} match that." if word else f"There are no {what}.")

    def servers(self, _: str) -> None:
        """Show the state of each server, each on its own line. Raises: Stopped."""
        if not self._chat.host.status():
            self._terminal.write_line("There are no servers, so the model has no tools.")
        entries = self._worker.run(self._chat.host.catalogue)
        for status in self._chat.host.status():
            words = status_words(status, sum(entry.server == status.server for entry in entries))
            words = textwrap.fill(words, self._terminal.columns - 1, subsequent_indent="  ")
            style = self._terminal.err
            self._terminal.write_line(style.yellow(words) if status.state == "failed" else style.dim(words))

    def allow(self, pattern: str) -> None:
        """Let tools run without a question. Raises: Stopped."""
        if not pattern:
            self._show_usage("allow")
            return
        host = self._chat.host
        entries = self._worker.run(host.catalogue)
        fitting = [each for each in entries if matches(pattern, each.server, each.item.name)]
        if not fitting:
            known = ", ".join(sorted({entry.server for entry in entries})) or "none"
            self._advise(f"No tool matches this pattern; servers with tools: {known}")
            return
        host.policy = msgspec.structs.replace(host.policy, allow=[*host.policy.allow, pattern])
        shown = [one_line(f"{each.server}/{each.item.name}", 80) for each in fitting[:5]]
        shown += ["..."] if len(fitting) > 5 else []
        self._terminal.write_line(f"These run without a question until the chat ends: {', '.join(shown)}")

    def model(self, name: str) -> None:
        """Show the model, or switch to another one."""
        if name:
            from linkspan.host.models import UnusableModel, open_model

            try:
                self._chat.model = open_model(name)
            except UnusableModel as problem:
                self._terminal.fail(one_line(str(problem)))
                return
        self._terminal.write_line(f"The model is {one_line(self._chat.model.name, 200)}.")

    def save(self, file: str) -> None:
        """Write the conversation to a file."""
        path = Path(file).expanduser()
        if not file:
            self._show_usage("save")
        elif path.exists() and path not in self._saved:
            self._advise(f"{one_line(file)} exists already; choose another name.")
        else:
            try:
                self._chat.save(path)
            except OSError as error:
                self._terminal.fail(f"{one_line(file)} cannot be written: {error.strerror or error}")
                return
            self._saved.add(path)
            self._terminal.write_line(f"{_messages(len(self._chat.messages))} saved in {one_line(file)}.")

    def retry(self, _: str) -> None:
        """Ask the last question again."""
        message = self.failed or self._chat.retract()
        if message is None:
            self._advise("There is no question to ask again.")
            return
        self._ask(message)

    def compact(self, _: str) -> None:
        """Put a summary in the place of the conversation. Raises: Stopped."""
        count = len(self._chat.messages)
        if not count:
            self._advise("There is no conversation yet.")
            return
        self._terminal.status(self._terminal.err.dim("... the model writes a summary"))
        try:
            summary = self._worker.run(self._chat.compact)
        except ModelError as error:
            self._terminal.fail(neutral(str(error)))
            return
        self._kept.keep()
        self._terminal.write_line(self._terminal.err.dim(textwrap.indent(neutral(summary), "  ")))
        self._terminal.write_line(f"{_messages(count)} replaced by this summary.")

    def clear(self, _: str) -> None:
        """Begin a new conversation."""
        count = len(self._chat.messages)
        self._kept.begin()
        self.failed = None
        if self._skills is not None:
            self._skills.leave()
        self._terminal.write_line(f"{_messages(count)} forgotten.")

    def sessions(self, _: str) -> None:
        """List the conversations that are kept."""
        self._terminal.write_line(neutral(show_chats(kept_chats(self._kept.folder))))

    def resume(self, name: str) -> None:
        """Go on with a conversation that was kept."""
        if not name:
            self._show_usage("resume")
            return
        try:
            found = read_chat(self._kept.folder, name)
        except WrongUse as problem:
            self._advise(f"{neutral(str(problem))}; /sessions lists them")
            return
        self._kept.resume(found)
        self._terminal.write_line(f"{_messages(found.count)} of {found.name}: {one_line(found.title, 60)}")

    def quit(self, _: str) -> None:
        """End the chat."""
        self.leaving = True

    def _show_usage(self, name: str) -> None:
        takes, does = _HELP[name]
        self._advise(f"/{name} {takes}: {does}")

    def _advise(self, text: str) -> None:
        self._terminal.write_line(self._terminal.err.yellow(text))


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"
