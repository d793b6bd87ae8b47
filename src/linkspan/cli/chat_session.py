"""One chat, from its start to its end: the servers, the model, the user at the terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.auth.identities import OAuth
from linkspan.cli.chat_ui import History, Screen, ask_approval, ask_review, ask_sampling, ended_words, status_words
from linkspan.cli.forms import PersonAtTerminal, ask_user
from linkspan.cli.options import ChatOptions, WrongUse, timeouts_of
from linkspan.cli.session import INTERRUPTED
from linkspan.cli.show import Lines, called
from linkspan.cli.terminal import Interrupted, LoopWorker, Stopped, Terminal, dump
from linkspan.client.config import known_configs
from linkspan.client.targets import ServerTarget
from linkspan.flows.client_errors import ClientEvent
from linkspan.host.consent import Approval, Policy, Verdict, hints_of, matches
from linkspan.host.conversation import Bounds, Conversation, TurnEnded
from linkspan.host.host import Host
from linkspan.host.http_model import HttpModel
from linkspan.host.memory import Memory
from linkspan.host.messages import Model, ModelError
from linkspan.host.sampling import sample_with
from linkspan.text import nearest
from linkspan.types.base import JSONObject
from linkspan.types.messages import CreateMessageParams, ElicitParams
from linkspan.wire.redaction import neutral, one_line

__all__ = ["ChatSession"]

FAILED: Final = 1
_HOME: Final = "LINKSPAN_HOME"
_BANNER: Final = "MCP Client Started!\nType your queries 'exit' to exit."
_PROMPT: Final = "\n> "


class ChatSession:
    """Runs a chat and returns its exit status."""

    def __init__(
        self,
        options: ChatOptions,
        servers: Mapping[str, ServerTarget],
        left_out: Sequence[str],
        model: Model,
        terminal: Terminal,
    ) -> None:
        """Prepare it. `left_out`: which servers of a configuration are not started, and why. Raises: WrongUse."""
        home = Path(os.environ.get(_HOME) or Path.home() / ".linkspan")
        self._options = options
        self._servers = servers
        self._left_out = left_out
        self._terminal = terminal
        self._worker = LoopWorker(self._terminal)
        self._screen = Screen(self._terminal, answer=options.prompt is None)
        self._memory = Memory(home / "host.json")
        self._history = History(home / "history")
        self._started = False
        self._sampled: set[str] = set()
        self._stderr: dict[str, Lines] = {}
        bounds = Bounds(rounds=options.max_rounds) if options.max_rounds else Bounds()
        self._chat = Conversation(self._new_host(), model, system=options.system, bounds=bounds)
        self._commands = Commands(self._terminal, self._worker, self._chat)
        if options.load is not None:
            try:
                self._chat.load(options.load)
            except (OSError, ValueError) as problem:
                raise WrongUse(f"--load {options.load}: {problem}") from None

    def run(self) -> int:
        """Chat."""
        with self._worker.signals(), self._terminal.restored():
            try:
                return self._converse() if self._options.prompt is None else self._answer(self._options.prompt)
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
        sampling = sample_with(lambda: self._chat.model, self.approve_sampling, self.review_sampling)
        verbose = options.verbose
        return Host(
            self._servers,
            policy=Policy(
                allow=options.allow,
                deny=options.deny,
                trust=options.trust,
                otherwise="allow" if options.yes else "ask",
            ),
            approve=self.approve if person else None,
            memory=self._memory,
            elicitation=self.elicit if person else None,
            sampling=sampling if person or options.yes else None,
            on_event=lambda event: self._worker.later(self.show_event, event),
            on_stderr=(lambda server, text: self._worker.later(self.show_stderr, server, text)) if verbose else None,
            timeouts=timeouts_of(options.timeout),
            auth=OAuth(open_url=PersonAtTerminal(self.show_login)) if person else None,
            roots=options.root or None,
        )

    # The dialogue.

    def _converse(self) -> int:
        if not self._options.quiet:
            self._terminal.emit(_BANNER)
        for line in self._history.lines():
            self._terminal.remember(line)
        self._terminal.complete(NAMES)
        self._start()
        configs = [] if self._options.config or self._servers else known_configs()
        if configs:
            self._terminal.info("no servers; --config FILE uses those of another host:")
        for each in configs:
            self._terminal.info(f"  {one_line(f'{each.path} ({each.host})')}")
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
        for each in self._left_out:
            self._terminal.info(one_line(each))
        if self._servers:
            names = ", ".join(self._servers)
            self._terminal.status(
                self._terminal.err.dim(f"... starting {one_line(names, self._terminal.columns - 16)}")
            )
            self._worker.run(self._chat.host.connect)
            if not self._options.quiet:
                with suppress(Stopped):
                    self._commands.servers("")
            entries = self._worker.run(self._chat.host.catalogue)
            missing = [each.server for each in self._chat.host.status() if each.state == "failed"]
            options = self._options
            patterns = [*(("--allow", each) for each in options.allow), *(("--deny", each) for each in options.deny)]
            for option, pattern in patterns:
                found = any(matches(pattern, each.server, each.item.name) for each in entries)
                if not found and not any(matches(pattern.partition("/")[0], server, "") for server in missing):
                    self._terminal.warn(f"{option} {one_line(pattern, 100)} matches no tool")  # it would deny nothing
        self._started = True
        self._warn_of_memory()

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
            self._terminal.fail(neutral(str(error)))
            self._terminal.info("the conversation is unchanged; try again, or switch with /model NAME")
        self._warn_of_memory()

    def _turn(self, text: str) -> TurnEnded | None:
        """Take a turn. Raises: Stopped, ModelError."""
        ended: list[TurnEnded] = []
        model = self._chat.model
        # A model over HTTP keeps its connections from one message of a turn to the next.
        connections: AbstractAsyncContextManager[object] = model if isinstance(model, HttpModel) else nullcontext()

        async def take() -> None:
            async with connections, aclosing(self._chat.ask(text)) as events:
                async for event in events:
                    self._worker.later(self._screen.show, event)
                    ended.extend([event] if isinstance(event, TurnEnded) else [])

        self._screen.begin(model.name)
        try:
            self._worker.run(take)
        finally:
            self._screen.end()
        return ended[0] if ended else None

    # One question.

    def _answer(self, question: str) -> int:
        self._start()
        try:
            ended = self._turn(question)
        except ModelError as error:
            problem = one_line(str(error))
            if self._options.json:
                self._terminal.emit(dump({"error": {"type": "ModelError", "problem": problem}}))
            else:
                self._terminal.fail(problem)
            return FAILED
        assert ended is not None
        if self._options.json:
            document: JSONObject = {
                "text": ended.text,
                "reason": ended.reason,
                **({} if ended.reason == "answered" else {"problem": ended_words(ended)}),
                "model": self._chat.model.name,
                "messages": msgspec.to_builtins(self._chat.messages),
                "usage": msgspec.to_builtins(ended.usage),
            }
            self._terminal.emit(dump(document))
        elif ended.text.strip():
            self._terminal.emit(neutral(ended.text))
        else:
            self._terminal.warn("No response from the server")
        return 0 if ended.reason == "answered" else FAILED

    # What the host asks the user, on its event loop, and what it reports.

    async def approve(self, approval: Approval) -> Verdict:
        """Ask whether a tool may be called."""
        return await self._worker.ask(lambda is_over: ask_approval(self._terminal, approval, is_over), "no")

    async def elicit(self, server: str, params: ElicitParams) -> Any:
        """Answer a server."""
        name = called(server, self._chat.host.group.client(server).server_info)
        return await self._worker.ask(lambda is_over: ask_user(self._terminal, name, params, {}, is_over), None)

    async def approve_sampling(self, server: str, params: CreateMessageParams) -> bool:
        """Ask whether the model may write a text for a server."""
        if self._options.yes or server in self._sampled:
            return True
        async with self._chat.host.user_lock:
            model = self._chat.model.name
            verdict: Verdict = await self._worker.ask(
                lambda is_over: ask_sampling(self._terminal, server, params, model, is_over), "no"
            )
        if verdict == "session":
            self._sampled.add(server)
        return verdict != "no"

    async def review_sampling(self, server: str, text: str) -> bool:
        """Ask whether a text may be sent to a server."""
        if self._options.yes or server in self._sampled:
            return True
        async with self._chat.host.user_lock:
            return await self._worker.ask(lambda is_over: ask_review(self._terminal, server, text, is_over), False)

    def show_event(self, event: ClientEvent) -> None:
        """Show what happened to a server."""
        if self._started:
            self._screen.server_event(event)

    def show_login(self, text: str) -> None:
        """Show what a login wants the person to do. In a thread of the login."""
        self._worker.later(self._terminal.write_line, text)

    def show_stderr(self, server: str, text: str) -> None:
        """Show what a server writes to stderr."""

        def show(line: str) -> None:
            self._terminal.info(f"{one_line(server, 60)} | {neutral(line)}")

        self._stderr.setdefault(server, Lines(show)).add(text)

    def _warn_of_memory(self) -> None:
        problem, self._memory.problem = self._memory.problem, ""
        if problem:
            self._terminal.warn(f"permissions are not kept for the next chat: {one_line(problem)}")


_HELP: Final = {
    "help": ("", "show this"),
    "tools": ("[WORD]", "list the tools, or those that match a word"),
    "servers": ("", "show the state of the servers"),
    "allow": ("PATTERN", "let tools run without a question: SERVER, or SERVER/TOOL with * in it"),
    "model": ("[NAME]", "show the model, or switch to another one"),
    "save": ("FILE", "write the conversation to a file; --load FILE continues it"),
    "reset": ("", "forget the conversation"),
    "quit": ("", "end; so do exit and Ctrl-D"),
}
"""For each command, which is a method of `Commands`, what it takes and what it does."""

NAMES: Final = [f"/{name}" for name in _HELP]


class Commands:
    """The commands of the prompt. `leaving` is true after /quit."""

    def __init__(self, terminal: Terminal, worker: LoopWorker, chat: Conversation) -> None:
        self._terminal = terminal
        self._worker = worker
        self._chat = chat
        self._saved: set[Path] = set()
        self.leaving = False

    def run(self, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if name.casefold() in _HELP:
            with suppress(Stopped):
                getattr(self, name.casefold())(rest.strip())
            return
        near = nearest(name, _HELP)
        meant = f"; did you mean /{near}?" if near is not None else "."
        self._advise(f"There is no /{one_line(name, 40)}{meant} /help lists the commands.")

    def help(self, _: str) -> None:
        """List the commands."""
        dim = self._terminal.err.dim
        width = max(len(f"{name} {takes}") for name, (takes, _) in _HELP.items())
        for name, (takes, does) in _HELP.items():
            self._terminal.write_line(f"/{f'{name} {takes}':<{width}}  {dim(does)}")
        self._terminal.write_line(dim("Ctrl-C stops the model; twice at the empty prompt it ends the chat."))

    def tools(self, word: str) -> None:
        """List the tools, or those that match a word. Raises: Stopped."""
        style, wanted, shown = self._terminal.err, word.casefold(), 0
        for entry in self._worker.run(self._chat.host.catalogue):
            described = entry.item.description or entry.item.title or ""
            if wanted not in f"{entry.name} {entry.server} {described}".casefold():
                continue
            shown += 1
            room = max(20, self._terminal.columns - len(entry.name) - len(entry.server) - 8)
            hints = f" [{', '.join(hints_of(entry.item))}]" if hints_of(entry.item) else ""
            first = one_line(described.strip().partition("\n")[0] + hints, room)
            name = style.cyan(one_line(entry.name, 64))
            self._terminal.write_line(f"{name}  {style.dim(f'({one_line(entry.server, 60)})')} {first}")
        if not shown:
            self._terminal.write_line("No tools match that." if word else "There are no tools.")

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

    def reset(self, _: str) -> None:
        """Forget the conversation."""
        count = len(self._chat.messages)
        self._chat.reset()
        self._terminal.write_line(f"{_messages(count)} forgotten.")

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
