"""One chat, from its start to its end: the servers, the model, the user at the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.cli.chat_ui import History, Screen, ask_approval, ask_review, ask_sampling, ended_words, status_words
from linkspan.cli.forms import ask_user
from linkspan.cli.session import INTERRUPTED
from linkspan.cli.show import Lines, called
from linkspan.cli.terminal import Interrupted, LoopWorker, Stopped, Terminal, dump
from linkspan.client.targets import ServerTarget
from linkspan.flows.client_errors import ClientEvent
from linkspan.flows.state import Timeouts
from linkspan.host.consent import Approval, Policy, Verdict, hints_of, matches
from linkspan.host.conversation import Bounds, Conversation, TurnEnded
from linkspan.host.host import Host
from linkspan.host.http_model import HttpModel
from linkspan.host.memory import Memory
from linkspan.host.messages import Model, ModelError
from linkspan.host.sampling import sample_with
from linkspan.text import nearest
from linkspan.types.base import JSON
from linkspan.types.messages import CreateMessageParams, ElicitParams
from linkspan.wire.redaction import neutral, one_line

__all__ = ["ChatOptions", "ChatSession"]

FAILED: Final = 1
_BANNER: Final = "MCP Client Started!\nType your queries 'exit' to exit."
_PROMPT: Final = "\n> "


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a chat."""

    servers: Mapping[str, ServerTarget]
    left_out: Sequence[str] = ()
    """Which servers of a configuration are not started, and why."""
    configs: Sequence[str] = ()
    """Configurations on this machine, if the command line names no server."""
    model: Model
    home: Path
    question: str | None = None
    """A single question, instead of a dialogue."""
    as_json: bool = False
    system: str | None = None
    bounds: Bounds
    policy: Policy
    sampling_allowed: bool = False
    timeouts: Timeouts
    roots: tuple[str, ...] = ()
    load: Path | None = None
    verbose: bool = False
    quiet: bool = False


class ChatSession:
    """Runs a chat and returns its exit status."""

    def __init__(self, options: ChatOptions, terminal: Terminal) -> None:
        """Prepare it. Raises: OSError, ValueError for a conversation that cannot be loaded."""
        self._options = options
        self._terminal = terminal
        self._worker = LoopWorker(self._terminal)
        self._screen = Screen(self._terminal, answer=options.question is None)
        self._memory = Memory(options.home / "host.json")
        self._history = History(options.home / "history")
        self._started = False
        self._sampled: set[str] = set()
        self._stderr: dict[str, Lines] = {}
        self._chat = Conversation(self._new_host(), options.model, system=options.system, bounds=options.bounds)
        self._commands = Commands(self._terminal, self._worker, self._chat)
        if options.load is not None:
            self._chat.load(options.load)

    def run(self) -> int:
        """Chat."""
        with self._worker.signals(), self._terminal.restored():
            try:
                return self._converse() if self._options.question is None else self._answer(self._options.question)
            except Stopped:
                self._terminal.write_line("interrupted")
                return INTERRUPTED
            finally:
                self._terminal.end_line()
                with suppress(Stopped):
                    self._worker.run(self._chat.host.close)
                self._worker.close()

    def _new_host(self) -> Host:
        options = self._options
        person = self._terminal.interactive
        return Host(
            options.servers,
            policy=options.policy,
            approve=self._approve if person else None,
            memory=self._memory,
            elicitation=self._elicit if person else None,
            sampling=sample_with(lambda: self._chat.model, self._approve_sampling, self._review_sampling)
            if person or options.sampling_allowed
            else None,
            on_event=lambda event: self._worker.later(self._show_event, event),
            on_stderr=(lambda server, text: self._worker.later(self._show_stderr, server, text))
            if options.verbose
            else None,
            timeouts=options.timeouts,
            roots=list(options.roots) or None,
        )

    # The dialogue.

    def _converse(self) -> int:
        if not self._options.quiet:
            self._terminal.emit(_BANNER)
        for line in self._history.lines():
            self._terminal.remember(line)
        self._terminal.complete(NAMES)
        self._start()
        if self._options.configs:
            self._terminal.info("no servers; --config FILE uses those of another host:")
            for each in self._options.configs:
                self._terminal.info(f"  {one_line(each)}")
        name = one_line(self._chat.model.name, 100)
        self._terminal.info(f"{name} answers; /help lists the commands")
        interrupts = 0
        while not self._commands.leaving:
            self._worker.catch_up()
            try:
                line = self._terminal.read(_PROMPT if self._terminal.interactive else "")
            except EOFError:
                break
            except Interrupted as interrupt:
                interrupts = interrupts + 1 if interrupt.empty else 0
                if interrupts == 2:
                    break
                if interrupt.empty:
                    self._terminal.info("press Ctrl-C again, or type Ctrl-D or exit, to end the chat")
                continue
            interrupts = 0
            if line.strip().casefold() == "exit":
                break
            self._take(line)
        return 0

    def _start(self) -> None:
        """Start all servers, and list them. Raises: Stopped."""
        for each in self._options.left_out:
            self._terminal.info(one_line(each))
        if self._options.servers:
            names = ", ".join(self._options.servers)
            self._terminal.status(
                self._terminal.err.dim(f"... starting {one_line(names, self._terminal.columns - 16)}")
            )
            self._worker.run(self._chat.host.connect)
            if not self._options.quiet:
                self._commands.show_servers()
            self._warn_of_idle_patterns()
        self._started = True
        self._warn_of_memory()

    def _warn_of_idle_patterns(self) -> None:
        """Name the patterns that match no tool: a misspelt one would deny nothing."""
        entries = self._worker.run(self._chat.host.catalogue)
        missing = [each.server for each in self._chat.host.status() if each.state == "failed"]
        policy = self._options.policy
        for option, patterns in (("--allow", policy.allow), ("--deny", policy.deny)):
            for pattern in patterns:
                of_missing = any(matches(pattern.partition("/")[0], server, "") for server in missing)
                if not of_missing and not any(matches(pattern, each.server, each.item.name) for each in entries):
                    self._terminal.warn(f"{option} {one_line(pattern, 100)} matches no tool")

    def _take(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if self._history.add(line):
            self._terminal.remember(line)
        if text.startswith("/"):
            self._commands.run(text)
            return
        try:
            self._turn(text)
        except Stopped:
            self._terminal.warn("stopped; the conversation so far is kept")
        except ModelError as error:
            self._terminal.write_line(self._terminal.err.red(neutral(str(error))))
            self._terminal.info("the conversation is unchanged; try again, or switch with /model NAME")
        self._warn_of_memory()

    def _turn(self, text: str) -> TurnEnded | None:
        """Take a turn. Raises: Stopped, ModelError."""
        self._screen.begin(self._chat.model.name)
        try:
            return self._worker.run(partial(self._ask, text))
        finally:
            self._screen.end()

    async def _ask(self, text: str) -> TurnEnded | None:
        ended: TurnEnded | None = None
        model = self._chat.model
        # A model over HTTP keeps its connections from one message of a turn to the next.
        connections: AbstractAsyncContextManager[object] = model if isinstance(model, HttpModel) else nullcontext()
        async with connections, aclosing(self._chat.ask(text)) as events:
            async for event in events:
                self._worker.later(self._screen.show, event)
                if isinstance(event, TurnEnded):
                    ended = event
        return ended

    # One question.

    def _answer(self, question: str) -> int:
        self._start()
        try:
            ended = self._turn(question)
        except ModelError as error:
            problem = one_line(str(error))
            if self._options.as_json:
                self._terminal.emit(dump({"error": {"type": "ModelError", "problem": problem}}))
            else:
                self._terminal.write_line(self._terminal.err.red(problem))
            return FAILED
        assert ended is not None
        if self._options.as_json:
            self._terminal.emit(dump(self._document(ended)))
        elif ended.text.strip():
            self._terminal.emit(neutral(ended.text))
        else:
            self._terminal.warn("No response from the server")
        return 0 if ended.reason == "answered" else FAILED

    def _document(self, ended: TurnEnded) -> JSON:
        problem = {} if ended.reason == "answered" else {"problem": ended_words(ended)}
        return {
            "text": ended.text,
            "reason": ended.reason,
            **problem,
            "model": self._chat.model.name,
            "messages": msgspec.to_builtins(self._chat.messages),
            "usage": msgspec.to_builtins(ended.usage),
        }

    # Questions from the event loop to the user.

    async def _approve(self, approval: Approval) -> Verdict:
        return await self._worker.ask(lambda is_over: ask_approval(self._terminal, approval, is_over), "no")

    async def _elicit(self, server: str, params: ElicitParams) -> Any:
        name = called(server, self._chat.host.group.client(server).server_info)
        return await self._worker.ask(lambda is_over: ask_user(self._terminal, name, params, {}, is_over), None)

    async def _approve_sampling(self, server: str, params: CreateMessageParams) -> bool:
        if self._options.sampling_allowed or server in self._sampled:
            return True
        async with self._chat.host.user_lock:
            model = self._chat.model.name
            verdict: Verdict = await self._worker.ask(
                lambda is_over: ask_sampling(self._terminal, server, params, model, is_over), "no"
            )
        if verdict == "session":
            self._sampled.add(server)
        return verdict != "no"

    async def _review_sampling(self, server: str, text: str) -> bool:
        if self._options.sampling_allowed or server in self._sampled:
            return True
        async with self._chat.host.user_lock:
            return await self._worker.ask(lambda is_over: ask_review(self._terminal, server, text, is_over), False)

    # Events for the user.

    def _show_event(self, event: ClientEvent) -> None:
        if self._started:
            self._screen.server_event(event)

    def _show_stderr(self, server: str, text: str) -> None:
        def show(line: str) -> None:
            self._terminal.info(f"{one_line(server, 60)} | {neutral(line)}")

        self._stderr.setdefault(server, Lines(show)).add(text)

    def _warn_of_memory(self) -> None:
        problem, self._memory.problem = self._memory.problem, ""
        if problem:
            self._terminal.warn(f"permissions are not kept for the next chat: {one_line(problem)}")


_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "help": ("", "show this"),
    "tools": ("[WORD]", "list the tools, or those that match a word"),
    "servers": ("", "show the state of the servers"),
    "allow": ("PATTERN", "let tools run without a question: SERVER, or SERVER/TOOL with * in it"),
    "model": ("[NAME]", "show the model, or switch to another one"),
    "save": ("FILE", "write the conversation to a file; --load FILE continues it"),
    "reset": ("", "forget the conversation"),
    "quit": ("", "end; so do exit and Ctrl-D"),
}

NAMES: Final = [f"/{name}" for name in _HELP]


class Commands:
    """The commands of the prompt. `leaving` is true after /quit."""

    def __init__(self, terminal: Terminal, worker: LoopWorker, chat: Conversation) -> None:
        self._terminal = terminal
        self._worker = worker
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
        meant = f"; did you mean /{near}?" if near is not None else "."
        self._terminal.write_line(
            self._terminal.err.yellow(f"There is no /{one_line(name, 40)}{meant} /help lists the commands.")
        )

    def show_servers(self) -> None:
        """Show the state of each server, each on its own line."""
        try:
            entries = self._worker.run(self._chat.host.catalogue)
        except Stopped:
            return
        for status in self._chat.host.status():
            words = status_words(status, sum(entry.server == status.server for entry in entries))
            words = textwrap.fill(words, self._terminal.columns - 1, subsequent_indent="  ")
            style = self._terminal.err
            self._terminal.write_line(style.yellow(words) if status.state == "failed" else style.dim(words))

    def _help(self, rest: str) -> None:
        width = max(len(f"{name} {takes}") for name, (takes, _) in _HELP.items())
        for name, (takes, does) in _HELP.items():
            self._terminal.write_line(f"/{f'{name} {takes}':<{width}}  {self._terminal.err.dim(does)}")
        self._terminal.write_line(
            self._terminal.err.dim("Ctrl-C stops the model; twice at the empty prompt it ends the chat.")
        )

    def _tools(self, word: str) -> None:
        try:
            entries = self._worker.run(self._chat.host.catalogue)
        except Stopped:
            return
        style, wanted, shown = self._terminal.err, word.casefold(), 0
        for entry in entries:
            described = entry.item.description or entry.item.title or ""
            if wanted not in f"{entry.name} {entry.server} {described}".casefold():
                continue
            shown += 1
            room = max(20, self._terminal.columns - len(entry.name) - len(entry.server) - 8)
            hints = f" [{', '.join(hints_of(entry.item))}]" if hints_of(entry.item) else ""
            first = one_line(described.strip().partition("\n")[0] + hints, room)
            self._terminal.write_line(
                f"{style.cyan(one_line(entry.name, 64))}  {style.dim(f'({one_line(entry.server, 60)})')} {first}"
            )
        if not shown:
            self._terminal.write_line("No tools match that." if word else "There are no tools.")

    def _servers(self, rest: str) -> None:
        if not self._chat.host.status():
            self._terminal.write_line("There are no servers, so the model has no tools.")
        self.show_servers()

    def _allow(self, pattern: str) -> None:
        if not pattern:
            self._show_usage("allow")
            return
        host = self._chat.host
        try:
            entries = self._worker.run(host.catalogue)
        except Stopped:
            return
        matching = [
            f"{entry.server}/{entry.item.name}" for entry in entries if matches(pattern, entry.server, entry.item.name)
        ]
        if not matching:
            known = ", ".join(sorted({entry.server for entry in entries})) or "none"
            self._terminal.write_line(
                self._terminal.err.yellow(f"No tool matches this pattern; servers with tools: {known}")
            )
            return
        host.policy = msgspec.structs.replace(host.policy, allow=[*host.policy.allow, pattern])
        shown = ", ".join(one_line(each, 80) for each in matching[:5]) + (", ..." if len(matching) > 5 else "")
        self._terminal.write_line(f"These run without a question until the chat ends: {shown}")

    def _model(self, name: str) -> None:
        if name:
            from linkspan.host.models import UnusableModel, open_model

            try:
                self._chat.model = open_model(name)
            except UnusableModel as problem:
                self._terminal.write_line(self._terminal.err.red(one_line(str(problem))))
                return
        self._terminal.write_line(f"The model is {one_line(self._chat.model.name, 200)}.")

    def _save(self, file: str) -> None:
        if not file:
            self._show_usage("save")
            return
        path = Path(file).expanduser()
        if path.exists() and path not in self._saved:
            self._terminal.write_line(
                self._terminal.err.yellow(f"{one_line(file)} exists already; choose another name.")
            )
            return
        try:
            self._chat.save(path)
        except OSError as error:
            self._terminal.write_line(
                self._terminal.err.red(f"{one_line(file)} cannot be written: {error.strerror or error}")
            )
            return
        self._saved.add(path)
        self._terminal.write_line(f"{_messages(len(self._chat.messages))} saved in {one_line(file)}.")

    def _reset(self, rest: str) -> None:
        count = len(self._chat.messages)
        self._chat.reset()
        self._terminal.write_line(f"{_messages(count)} forgotten.")

    def _quit(self, rest: str) -> None:
        self.leaving = True

    def _show_usage(self, name: str) -> None:
        takes, does = _HELP[name]
        self._terminal.write_line(self._terminal.err.yellow(f"/{name} {takes}: {does}"))


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"
