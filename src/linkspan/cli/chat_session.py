"""One chat, from its start to its end: the servers, the model, the user at the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.auth.identities import OAuth
from linkspan.cli.chat_commands import NAMES, Commands
from linkspan.cli.chat_offers import Offers, read_arguments
from linkspan.cli.chat_store import KeptChat, SavedChat
from linkspan.cli.chat_ui import History, Screen, ask_approval, ask_review, ask_sampling, ended_words
from linkspan.cli.forms import PersonAtTerminal, ask_user
from linkspan.cli.options import ChatOptions, WrongUse, timeouts_of
from linkspan.cli.reasons import Printed, lateness, reason_lines
from linkspan.cli.session import INTERRUPTED
from linkspan.cli.show import Lines, called
from linkspan.cli.terminal import Interrupted, LoopWorker, Stopped, Terminal, dump
from linkspan.client.config import known_configs
from linkspan.client.targets import ServerTarget
from linkspan.flows.client_errors import ClientError, ClientEvent
from linkspan.flows.tasks import Tasks
from linkspan.host.consent import Approval, Policy, Verdict, matches
from linkspan.host.conversation import CallEnded, CallStarted, ChatEvent, Conversation, TurnBounds, TurnEnded
from linkspan.host.host import Host
from linkspan.host.http_model import HttpModel
from linkspan.host.memory import Memory
from linkspan.host.messages import Message, Model, ModelError, UserMessage
from linkspan.host.sampling import sample_with
from linkspan.types.base import JSONObject
from linkspan.types.messages import CreateMessageParams, ElicitParams
from linkspan.wire.redaction import neutral, one_line
from linkspan.wire.reports import Report

if TYPE_CHECKING:
    from linkspan.skills.hosting import HostSkills

FAILED: Final = 1
_HOME: Final = "LINKSPAN_HOME"
_BANNER: Final = "MCP Client Started!\nType your queries 'exit' to exit."
_PROMPT: Final = "\n> "
_MORE: Final = "... "
_BLOCK: Final = '"""'
_SUGGESTING: Final = 1.0
"""Seconds that completion may take."""
SESSIONS: Final = "sessions"


def chat_home() -> Path:
    """Return the directory of what chats keep."""
    return Path(os.environ.get(_HOME) or Path.home() / ".linkspan")


class ChatSession:
    """Runs a chat and returns its exit status."""

    def __init__(
        self,
        options: ChatOptions,
        servers: Mapping[str, ServerTarget],
        left_out: Sequence[str],
        model: Model,
        terminal: Terminal,
        resumed: SavedChat | None = None,
    ) -> None:
        """Prepare it. `left_out`: which servers of a configuration are not started, and why. Raises: WrongUse."""
        home = chat_home()
        self._options = options
        self._servers = servers
        self._left_out = left_out
        self._terminal = terminal
        self._worker = LoopWorker(self._terminal)
        self._memory = Memory(home / "host.json")
        self._history = History(home / "history", private=options.private)
        self._started = False
        self._sampled: set[str] = set()
        self._stderr: dict[str, Lines] = {}
        self._printed = {name: Printed() for name in servers}
        bounds = TurnBounds(rounds=options.max_rounds) if options.max_rounds else TurnBounds()
        self._chat = Conversation(self._new_host(), model, system=options.system, bounds=bounds)
        self._screen = Screen(
            self._terminal,
            answer=options.prompt is None,
            pictures=lambda: options.save or (self._kept.pictures if options.prompt is None else None),
        )
        self._offers = Offers(self._chat.host, NAMES)
        self._kept = KeptChat(home / SESSIONS, self._chat, private=options.private)
        self._commands = Commands(
            self._terminal, self._worker, self._chat, self._offers, self._kept, self._ask, self._skills
        )
        if resumed is not None:
            self._kept.resume(resumed)
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
        self._skills = _skills_of_servers()
        person = self._terminal.interactive
        sampling = sample_with(lambda: self._chat.model, self.approve_sampling, self.review_sampling)
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
            on_stderr=self.receive_stderr,
            on_report=lambda server, report: self._worker.later(self.show_report, server, report),
            extensions=[Tasks()],
            toolsets=[self._skills] if self._skills is not None else [],
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
        self._terminal.complete(lambda line: self._worker.within(_SUGGESTING, lambda: self._offers.suggest(line)) or ())
        self._start()
        configs = [] if self._options.config or self._servers else known_configs()
        if configs:
            self._terminal.info("no servers; --config FILE uses those of another host:")
        for each in configs:
            self._terminal.info(f"  {one_line(f'{each.path} ({each.host})')}")
        name = one_line(self._chat.model.name, 100)
        if self._chat.messages:
            self._terminal.info(f"the conversation goes on after {len(self._chat.messages)} messages")
        self._terminal.info(f"{name} answers; /help lists the commands")
        interrupts = 0
        while not self._commands.leaving:
            self._worker.catch_up()
            try:
                line = self._read()
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
            with suppress(Stopped):
                self._worker.run(self._offers.refresh)
        self._started = True
        self._warn_of_memory()

    def _take(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if self._history.add(line):
            self._terminal.remember(line)
        try:
            messages = self._messages(text)
        except (Stopped, Interrupted):
            return
        except (ClientError, WrongUse, EOFError) as problem:
            self._terminal.fail(neutral(str(problem)) or "the prompt needs its arguments")
            return
        if messages and isinstance(last := messages[-1], UserMessage):
            self._screen.show_added(messages, text)
            self._ask(last, messages[:-1])
        elif messages is None:
            self._commands.run(text)
        else:
            self._terminal.warn("the prompt has no messages, so nothing is asked")

    def _messages(self, text: str) -> Sequence[Message] | None:
        """Return what a line adds to the conversation, None for a command. Raises: Stopped, ClientError, WrongUse, EOFError."""
        if not text.startswith("/"):
            if "@" in text and not self._offers.resources:
                self._worker.run(self._offers.refresh)
            return [self._worker.run(lambda: self._offers.with_resources(text))]
        name, _, rest = text[1:].partition(" ")
        if name not in self._offers.prompts and name.casefold() not in NAMES:
            self._worker.run(self._offers.refresh)
        if name not in self._offers.prompts:
            return None
        prompt = self._offers.prompts[name].item
        given = read_arguments(prompt, rest.strip())
        for each in prompt.arguments or ():
            if each.required and each.name not in given:
                about = f" ({one_line(each.description, 200)})" if each.description else ""
                given[each.name] = self._terminal.read(f"  {one_line(each.name, 60)}{about}: ")
        return self._worker.run(lambda: self._offers.use_prompt(name, given))

    def _ask(self, message: UserMessage, before: Sequence[Message] = ()) -> None:
        """Take a turn, after the messages that lead to it, and keep the conversation."""
        messages = self._chat.messages
        begun = len(messages)
        messages.extend(before)
        self._commands.failed = None
        try:
            self._turn(message)
        except Stopped:
            self._terminal.warn("stopped; the conversation so far is kept")
        except ModelError as error:
            self._terminal.fail(neutral(str(error)))
            self._terminal.info("/retry asks again, /model NAME switches to another model")
        if len(messages) == begun + len(before):  # the turn left no message
            self._commands.failed = message
            del messages[begun:]
        self._kept.keep()
        self._warn_of_memory()

    def _read(self) -> str:
        """Read what the user types: a line, and more of them where one ends with a backslash, or all between two of \"\"\"."""
        interactive = self._terminal.interactive
        line = self._terminal.read(_PROMPT if interactive else "")
        more = _MORE if interactive else ""
        if line.strip() == _BLOCK:
            lines: list[str] = []
            while (line := self._terminal.read(more)).strip() != _BLOCK:
                lines.append(line)
            return "\n".join(lines)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._terminal.read(more)}"
        return line

    def _turn(self, said: str | UserMessage) -> TurnEnded | None:
        """Take a turn. Raises: Stopped, ModelError."""
        ended: list[TurnEnded] = []
        model = self._chat.model
        # A model over HTTP keeps its connections from one message of a turn to the next.
        connections: AbstractAsyncContextManager[object] = model if isinstance(model, HttpModel) else nullcontext()

        async def take() -> None:
            async with connections, aclosing(self._chat.ask(said)) as events:
                async for event in events:
                    self._worker.later(self._screen.show, event)
                    await self._explain(event)
                    ended.extend([event] if isinstance(event, TurnEnded) else [])

        self._screen.begin(model.name)
        try:
            self._worker.run(take)
        finally:
            self._screen.end()
        return ended[0] if ended else None

    async def _explain(self, event: ChatEvent) -> None:
        """Show the user, and not the model, the reason of a failed call, or where it is."""
        match event:
            case CallStarted(server=server) if server:
                self._printed[server].begin()
            case CallEnded(server=server) if server and event.answer.is_error and event.seconds is not None:
                client, printed = self._chat.host.group.client(server), self._printed[server]
                await asyncio.sleep(lateness(client))
                text = event.answer.text
                for line in reason_lines(client, text, str(printed), on_screen=self._options.verbose):
                    self._worker.later(self._terminal.info, line)
            case _:
                pass

    # One question.

    def _answer(self, question: str) -> int:
        self._start()
        try:
            ended = self._turn(self._worker.run(lambda: self._offers.with_resources(question)))
        except (ModelError, ClientError, WrongUse) as error:
            problem = one_line(str(error))
            if self._options.json:
                self._terminal.emit(dump({"error": {"type": type(error).__name__, "problem": problem}}))
            else:
                self._terminal.fail(problem)
            return FAILED
        assert ended is not None
        if self._options.resume is not None or self._options.continue_:
            self._kept.keep()
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

    def show_report(self, server: str, report: Report) -> None:
        """Show a crash of the user's own server."""
        if report.traceback and not (self._options.verbose and report.printed):  # otherwise the log is on the screen
            self._terminal.write_line(self._terminal.err.dim(f"{one_line(server, 60)}: {neutral(str(report))}"))

    def receive_stderr(self, server: str, text: str) -> None:
        """Keep what a server writes to stderr, and show it if the user wants that. In a thread of the client."""
        self._printed[server].add(text)
        if self._options.verbose:
            self._worker.later(self.show_stderr, server, text)

    def show_stderr(self, server: str, text: str) -> None:
        """Show what a server writes to stderr."""

        def show(line: str) -> None:
            self._terminal.info(f"{one_line(server, 60)} | {neutral(line)}")

        self._stderr.setdefault(server, Lines(show)).add(text)

    def _warn_of_memory(self) -> None:
        problem, self._memory.problem = self._memory.problem, ""
        if problem:
            self._terminal.warn(f"permissions are not kept for the next chat: {one_line(problem)}")
        problem, self._kept.problem = self._kept.problem, ""
        if problem:
            self._terminal.warn(f"this chat cannot be kept: {one_line(problem)}")


def _skills_of_servers() -> HostSkills | None:
    """Return the skills of servers; None where PyYAML is missing, without which there are none."""
    if find_spec("yaml") is None:
        return None
    from linkspan.skills.hosting import HostSkills

    return HostSkills()
