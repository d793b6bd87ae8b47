"""One target, kept connected: its clients, one for each revision that was asked for, its lists, and the calls that are made.

A thread of its own starts and restarts the server and lists what it offers; each call has a thread. Nothing here knows of HTTP.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from linkspan._version import __version__
from linkspan.apps.serving import Apps
from linkspan.client.sync_client import SyncClient
from linkspan.flows.answers import Refused, read_question
from linkspan.flows.client_errors import (
    ClientError,
    ClientEvent,
    ConnectError,
    Disconnected,
    ProcessEnd,
    ServerOrigin,
    hint_for_ending,
)
from linkspan.flows.client_errors import Connected as ClientConnected
from linkspan.flows.state import DEFAULT_TIMEOUTS, Timeouts
from linkspan.flows.tasks import Tasks
from linkspan.host.messages import Model, ModelError, TextDelta
from linkspan.host.sampling import sampling_request
from linkspan.revisions import REVISIONS, supported_versions
from linkspan.revisions.neutral import SAMPLE
from linkspan.runtime.watching import Watch
from linkspan.testing.recorder import TranscriptWriter
from linkspan.text import counted
from linkspan.types.base import JSONObject
from linkspan.types.messages import (
    CreateMessageParams,
    PromptReference,
    ResourceTemplateReference,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED, Redactor, one_line
from linkspan.wire.reports import Report
from linkspan.wire.values import to_builtins
from linkspan.workbench.calling import BenchCallRunner
from linkspan.workbench.clients import BenchClients
from linkspan.workbench.code import Subject
from linkspan.workbench.copies import copied
from linkspan.workbench.events import EventLog, cut
from linkspan.workbench.exchanges import BenchCalls, GivenAnswer, Tap, Wanted
from linkspan.workbench.history import CallHistory
from linkspan.workbench.incoming import ServerTalk
from linkspan.workbench.listing import ItemMark, Listing, marks, reads_only
from linkspan.workbench.login import BenchLogins
from linkspan.workbench.placeholders import Placeholders, has_secrets
from linkspan.workbench.reaching import watch_address
from linkspan.workbench.served import Hearer, ServedFile
from linkspan.workbench.standing import Announce, ServerStanding
from linkspan.workbench.views import BenchViews

_AT_ONCE: Final = 16
"""Calls that may run at once."""
_PATIENCE: Final = 1.0
"""Seconds for a server to end before the next one starts."""
_SILENT: Final = 1.5
"""Seconds after which a server that has not answered yet is announced as such."""


class Setup(msgspec.Struct, frozen=True):
    """What the command line says."""

    target: Any
    """What a client takes."""
    subject: Subject
    file: str = ""
    """The source whose changes restart the server; empty for none."""
    served: ServedFile | None = None
    """The file to serve at the URL of the target."""
    watched: Sequence[str] = ()
    """Further files and folders whose changes restart it."""
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    cwd: str | None = None
    inherit_env: bool = False
    era: Literal["modern", "legacy"] | None = None
    revision: str | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    roots: Sequence[str] = ()
    model: Model | None = None
    open_url: Callable[[str], str | None] | None = None
    """Shows a page of a login to the person; None where there is no login."""
    history: Path | None = None
    transcript: TranscriptWriter | None = None
    """Gets the messages of the connection whose revision was negotiated."""


class NotConfirmed(Exception):
    """A call that may change something would be made again; the person has not said that this is meant."""


class TooMany(Exception):
    """More calls run than may run at once."""


class UnknownCall(Exception):
    """There is no such call, or it is forgotten."""


class SecretsGone(Exception):
    """A call of an earlier day cannot be made again as it was: its secrets were not kept."""


class DeclaredToServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the client declares."""

    elicitation: bool = True
    sampling: bool = True
    roots: bool = True
    views: bool = True


class Bench:
    """A target, kept connected while its author works on it. Any thread."""

    def __init__(self, setup: Setup, announce: Announce = lambda _kind, _text: None) -> None:
        self._setup = setup
        self._announce = announce
        secrets = [
            *setup.headers.values(),
            *(each.partition(" ")[2] for each in setup.headers.values()),
            *setup.env.values(),
        ]
        self._redactor = Redactor(secrets)
        self.events = EventLog(self._redactor)
        self.exchanges = BenchCalls(lambda exchange: self.events.add("exchange", exchange=exchange.shown())["exchange"])
        self._incoming = ServerTalk(
            self.events,
            self.exchanges,
            self._redactor,
            lambda: self._todo.put(_RELIST),
            lambda call: self._runner.announce_crash(call),
        )
        self.questions = self._incoming.questions
        self._clients = BenchClients(self._new_client)
        self.views = BenchViews(self.questions, self.events, self.exchanges, self._clients.connected)
        self._history = CallHistory(setup.history, self._redactor)
        self.exchanges.restore(self._history.read())
        self.declared = DeclaredToServer(roots=bool(setup.roots))
        self.listing = Listing()
        self._shown = self.listing.shown()
        self.changed: Sequence[ItemMark] = ()
        kind: Literal["file", "url", "command"] = "file" if setup.file else "url" if setup.subject.url else "command"
        self.standing = ServerStanding(kind, self.events, announce, self._redactor, self._incoming.printed_text)
        self._runner = BenchCallRunner(
            self._clients, self._incoming, self.exchanges, self._history, self.standing, self.events, self._redactor,
            announce, self._lose_in_call,
        )  # fmt: skip
        self._logins = BenchLogins(setup.open_url if setup.subject.url else None, lambda: self.events.add("state"))
        self._era: Literal["modern", "legacy"] | None = setup.era
        self._revision = setup.revision
        self._subscribed: set[str] = set()
        self._todo: queue.SimpleQueue[str | _StartAttempt | _LostOrBack | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._threads = [_run(self._work)]
        if setup.file:
            self._threads.append(_run(self._record_changes))
        if setup.subject.url and setup.served is None:
            back = partial(self.restart, "the server can be reached again")
            self._threads.append(_run(watch_address, setup.subject.url, self._over, self.standing, self._lose, back))

    # From outside.

    @property
    def served_at(self) -> str:
        """The URL of a file that is served over HTTP; else empty."""
        return self._setup.served.url if self._setup.served is not None else ""

    def start(self) -> None:
        """Start the server, in a thread of its own."""
        self._todo.put("")

    def switch_era(self) -> None:
        """Start the server anew, and speak the handshake with one that spoke without, or the other way."""
        client = self._clients.first
        is_modern = client is not None and _is_modern(client.protocol_version)
        self._era, self._revision = "legacy" if is_modern else "modern", None
        self.restart("with a handshake" if is_modern else "without a handshake")

    def restart(self, why: str) -> None:
        """Start the server anew."""
        self._logins.give_up()
        self._todo.put(why)

    def close(self) -> None:
        """End the server and all that runs."""
        self._over.set()
        self._todo.put(None)
        self._logins.give_up()
        self.questions.drop()
        for client in self._clients.take():
            client.close()
        if self._setup.served is not None:
            self._setup.served.close()
        self.events.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def declare(self, declared: DeclaredToServer) -> None:
        """Declare other capabilities from now on, to a server that is started anew."""
        self.declared = declared
        self.restart("other capabilities are declared")

    def state(self) -> JSONObject:
        """Return all that a browser shows at first."""
        client = self._clients.first
        info = client.server_info if client is not None else None
        offers = client.server_capabilities if client is not None else None
        return {
            "version": __version__,
            **self.standing.shown(),
            "login": self._logins.shown(),
            "target": {
                "name": client.name if client is not None else "",
                "shown": self._redactor.text(" ".join(self._setup.subject.words)),
                "file": self._setup.file,
                "url": self._setup.subject.url,
            },
            "server": to_builtins(info) if info is not None else None,
            "capabilities": to_builtins(offers) if offers is not None else None,
            "instructions": cut((client.instructions if client is not None else None) or ""),
            "revision": (client.protocol_version if client is not None else None) or "",
            "revisions": list(supported_versions()),
            **self._shown,
            "changes": msgspec.to_builtins(self.changed),
            "questions": self.questions.shown(),
            "exchanges": self.exchanges.public(),
            "declared": msgspec.to_builtins(self.declared),
            "roots": list(self._setup.roots),
            "model": self._setup.model.name if self._setup.model is not None else None,
            "subscribed": sorted(self._subscribed),
            "last": self.events.last,
        }

    def call(self, wanted: Wanted, reused: Sequence[GivenAnswer] = ()) -> int:
        """Make a call in a thread of its own; return the number of its exchange.

        Questions that were answered in `reused` are answered so again. Raises: NotConfirmed, TooMany.
        """
        if wanted.again and not wanted.confirmed and not reads_only(self.listing, wanted.kind, wanted.name):
            raise NotConfirmed
        if len(self.exchanges.running()) >= _AT_ONCE:
            raise TooMany
        exchange = self.exchanges.begin(wanted, reused)
        _run(self._runner.carry_out, exchange)
        return exchange.id

    def again(self, number: int, *, same_answers: bool = False, confirmed: bool = False) -> int:
        """Make a call again, as it was; with `same_answers` only new questions are asked.

        Raises: UnknownCall, SecretsGone, NotConfirmed, TooMany.
        """
        old = self.exchanges.get(number)
        if old is None:
            raise UnknownCall
        made = Placeholders(kept=old.kept).without_secrets(old.wanted.arguments, old.wanted.arguments)
        if has_secrets(made) or (old.kept and REDACTED in old.wanted.name):
            raise SecretsGone
        wanted = msgspec.structs.replace(old.wanted, again=True, confirmed=confirmed)
        return self.call(wanted, old.answers if same_answers else ())

    def stop(self, number: int) -> bool:
        """Stop a call; return whether there is such a call that runs."""
        exchange = self.exchanges.get(number)
        if exchange is None or exchange.state != "running":
            return False
        exchange.stopper.stop("the user stopped it")
        return True

    def complete(self, kind: str, name: str, argument: str, value: str, given: Mapping[str, str]) -> JSONObject:
        """Return how an argument of a prompt or a template may go on; `report` is the traceback of a failure, if there is one.

        Raises: ClientError.
        """
        ref = PromptReference(name) if kind == "prompt" else ResourceTemplateReference(name)
        try:
            found: JSONObject = to_builtins(self._clients.connected("").complete(ref, argument, value, given))
        except ClientError as error:
            if report := self._incoming.traceback_of(error):
                return {"values": [], "problem": str(error.problem), "report": report}
            raise
        return found

    def subscribe(self, uri: str, *, on: bool) -> None:
        """Subscribe to a resource, or end that. Raises: ClientError."""
        client = self._clients.connected("")
        (client.subscribe if on else client.unsubscribe)(uri)
        (self._subscribed.add if on else self._subscribed.discard)(uri)
        self.events.add("state")

    def draft(self, number: int) -> str:
        """Let the model write the text that a server wants. Raises: Refused."""
        shown = next(
            (each for each in self.questions.shown() if each["id"] == number and each["kind"] == "sampling"), None
        )
        model = self._setup.model
        if shown is None or model is None:
            raise Refused("there is no model" if model is None else "the question is gone")
        params = read_question(SAMPLE, encode(shown["params"]))
        assert isinstance(params, CreateMessageParams)
        request = sampling_request(params)

        async def written() -> str:
            text = ""
            async with aclosing(model.reply(request)) as events:
                async for event in events:
                    text += event.text if isinstance(event, TextDelta) else ""
            return text

        try:
            return asyncio.run(written())
        except ModelError as error:
            raise Refused(f"the model gave no answer: {one_line(str(error), 200)}") from None

    def code(self, number: int) -> dict[str, str] | None:
        """Return a call as code; None if there is no such call."""
        exchange = self.exchanges.get(number)
        if exchange is None:
            return None
        roots = self._setup.roots if self.declared.roots else ()
        return copied(self._setup.subject, exchange, self._incoming.hops, self.listing, roots, self._redactor)

    def forget(self) -> None:
        """Forget the calls that have ended, those of earlier days too."""
        self.exchanges.forget()
        self._history.forget()
        self.events.add("state")

    # The thread that starts servers. What may take long is an attempt, in a thread of its own: a wish for another start ends it.

    def _work(self) -> None:
        running: _StartAttempt | None = None
        list_again = False
        while (item := self._next()) is not None:
            match item:
                case _StartAttempt():
                    if item is running:
                        running = None
                        self._settle(item)
                case _LostOrBack() if item.generation == self.standing.generation:
                    if item.error is None:
                        list_again = self.standing.be_ready_again()
                    elif running is not None or self.standing.status == "ready":
                        running = None
                        self._broken(item.error)
                case str() if item != _RELIST:
                    running, list_again = self._begin(item), False
                case str():
                    list_again = True
                case _:
                    pass
            if list_again and running is None:
                running, list_again = (
                    self._try(_StartAttempt(_RELIST, self.standing.generation), self._connected_and_listed),
                    False,
                )

    def _next(self) -> str | _StartAttempt | _LostOrBack | None:
        """Return what is to do; meanwhile announce once that a server has not answered yet."""
        if self.standing.is_silent:
            with suppress(queue.Empty):
                return self._todo.get(timeout=_SILENT)
            if self.standing.is_silent:
                self.standing.show_waiting()
        return self._todo.get()

    def _try(self, attempt: _StartAttempt, work: Callable[[], Connected]) -> _StartAttempt:
        """Begin what may take long; its end is put with what is to do."""

        def carry_out() -> None:
            try:
                attempt.outcome = work()
            except ClientError as error:
                attempt.outcome = error
            except Exception as error:  # a fault here must not end the thread that starts servers
                attempt.outcome = ClientError(f"{type(error).__name__}: {error}")
            self._todo.put(attempt)

        _run(carry_out)
        return attempt

    def _begin(self, why: str) -> _StartAttempt:
        was_ready = self.standing.status == "ready"
        self._logins.begin_anew()
        self.standing.begin(why)
        self.questions.drop()
        old = [_run(client.close) for client in self._clients.take()]
        for thread in old:
            thread.join(_PATIENCE if was_ready else 0)  # what has not answered yet has nothing to end in peace
        if self._setup.transcript is not None:
            self._setup.transcript.comment(f"start {self.standing.generation}")
        if (served := self._setup.served) is not None:
            served.start(self._hearer())
        return self._try(_StartAttempt(why, self.standing.generation), self._connected_and_listed)

    def _connected_and_listed(self) -> Connected:
        client = self._clients.connected("")
        seconds = time.monotonic() - self.standing.began
        listing = _listed(client)
        if listing.problems and not listing.items:
            self.events.add("log", source="bench", level="ERROR", text="; ".join(listing.problems.values()))
        for uri in self._subscribed:
            with suppress(ClientError):
                client.subscribe(uri)
        return client, seconds, listing

    def _settle(self, attempt: _StartAttempt) -> None:
        """Show what has become of an attempt."""
        if isinstance(attempt.outcome, ClientError):
            self._broken(attempt.outcome)
            return
        assert attempt.outcome is not None
        client, seconds, listing = attempt.outcome
        before, self.listing, self._shown = self.listing, listing, listing.shown()
        found = () if not before.items else marks(before, listing)
        if attempt.why == _RELIST:
            self.changed = found or self.changed
        else:
            self.changed = found
            self.standing.be_ready(seconds, attempt.why)
            self._announce(
                "changed" if attempt.why else "ready", _ready_words(client, attempt.why, seconds, listing, found)
            )
        self.events.add("state")

    # What happens to a server that was started.

    def _lose(self, generation: int, error: ClientError | None) -> None:
        """The connection of a start is lost, or there again without an error."""
        self._todo.put(_LostOrBack(generation, error))

    def _lose_in_call(self, error: ClientError) -> None:
        if self._setup.served is None:  # else its process says more
            self._lose(self.standing.generation, error)

    def _hearer(self) -> Hearer:
        generation = self.standing.generation

        def ended(ending: ProcessEnd) -> None:
            how = f"by {ending.signal}" if ending.signal else f"with exit status {ending.exit_code}"
            origin = ServerOrigin(Path(self._setup.file or "server").stem)
            error = ConnectError(
                f"the server ended {how}", origin, phase="spawn", ending=ending, hint=hint_for_ending(ending)
            )
            self._lose(generation, error)

        return Hearer(self._incoming.printed, partial(self._reported, generation), ended)

    def _reported(self, generation: int, report: Report) -> None:
        """Take a report: of a server that is being started, or cannot begin, it belongs to the state."""
        self._incoming.reported(report)
        if report.stage is None or generation != self.standing.generation:
            return
        if report.stage == "loading" and self.standing.status == "connecting":
            self.standing.show_waiting(report.traceback)
        elif report.stage == "lifespan":
            self.standing.fail(report)

    def _happened(self, generation: int, revision: str, event: ClientEvent) -> None:
        """Take an event of a client; the connection of the first one is what the state is about."""
        self._incoming.event(event)
        if revision or self._setup.served is not None:
            return
        if isinstance(event, Disconnected | ClientConnected):
            self._lose(generation, event.error if isinstance(event, Disconnected) else None)

    def _broken(self, error: ClientError) -> None:
        if not self._over.is_set():
            self.standing.be_broken(error)

    def _record_changes(self) -> None:
        watch = Watch(self._setup.file, self._setup.watched)
        while not self._over.is_set():
            watch.wait(self._over)
            if not self._over.is_set() and (path := watch.changed()) is not None:
                self.restart(f"{path} changed")

    # Clients.

    def _new_client(self, revision: str) -> SyncClient:
        setup, declared = self._setup, self.declared
        connection = f"{self.standing.generation}/{revision or 'default'}"
        elicitation = self._incoming.elicited if declared.elicitation else None
        sampling = self._incoming.sampled if declared.sampling else None
        return SyncClient(
            setup.target,
            env=dict(setup.env),
            headers=dict(setup.headers),
            cwd=setup.cwd,
            inherit_env=setup.inherit_env,
            era=None if revision else self._era,
            protocol_version=revision or self._revision,
            timeouts=setup.timeouts,
            auth=self._logins.identity,
            check_output="off",
            retry="never",
            max_cached_bytes=0,
            elicitation=elicitation,
            sampling=sampling,
            roots=list(setup.roots) if declared.roots and setup.roots else None,
            on_log=self._incoming.logged,
            on_change=self._incoming.resource_changed,
            on_event=partial(self._happened, self.standing.generation, revision),
            on_stderr=self._incoming.printed,
            on_report=partial(self._reported, self.standing.generation),
            on_http=self._incoming.hopped,
            extensions=[Tasks(), *([Apps()] if declared.views else [])],
            recorder=Tap(self.exchanges, connection, self._incoming.tapped, setup.transcript if not revision else None),
        )


def _listed(client: SyncClient) -> Listing:
    offers = client.server_capabilities
    ask: dict[str, tuple[str, Callable[[], Sequence[Any]]]] = {
        "tools": ("tools", client.list_tools),
        "resources": ("resources", client.list_resources),
        "templates": ("resources", client.list_resource_templates),
        "prompts": ("prompts", client.list_prompts),
    }
    items: dict[str, Sequence[JSONObject]] = {}
    problems: dict[str, str] = {}
    for kind, (capability, listed) in ask.items():
        if offers is not None and getattr(offers, capability) is None:
            continue
        try:
            items[kind] = [to_builtins(each) for each in listed()]
        except ClientError as error:
            problems[kind] = str(error.problem)
    return Listing(items, problems, client.instructions)


def _ready_words(client: SyncClient, why: str, seconds: float, listing: Listing, changes: Sequence[ItemMark]) -> str:
    milliseconds = f"{seconds * 1000:.0f} ms"
    if why:
        return "; ".join([f"{why}: restarted in {milliseconds}", *map(_mark_words, changes[:8])])
    info = client.server_info
    named = f"{one_line(info.name, 60)} {one_line(info.version or '', 20)}".strip() if info is not None else client.name
    counts = [counted(len(items), kind.removesuffix("s")) for kind, items in listing.items.items() if items]
    total = sum(map(sum, listing.shown()["tokens"].values()))
    return ", ".join([named, client.protocol_version or "", *counts, f"~{total} tokens", milliseconds])


def _run(target: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="linkspan-workbench", daemon=True)
    thread.start()
    return thread


def _mark_words(mark: ItemMark) -> str:
    if not mark.name:
        return "; ".join(f"~ {each}" for each in mark.what)
    return f"{mark.mark} {mark.kind.removesuffix('s')} {one_line(mark.name, 40)}"


def _is_modern(date: str | None) -> bool:
    return date in REVISIONS and REVISIONS[date].extends_by_request


_RELIST: Final = "\0"
"""What to do, where no server is to be started: list again."""
Connected: TypeAlias = tuple[SyncClient, float, Listing]
"""A client, the seconds until it was connected, and what its server offers."""


class _StartAttempt:
    """A start, or a listing, that is under way in a thread of its own."""

    def __init__(self, why: str, generation: int) -> None:
        self.why = why
        self.generation = generation
        self.outcome: Connected | ClientError | None = None


class _LostOrBack(msgspec.Struct, frozen=True):
    """A server of some start was lost, for an error, or is there again."""

    generation: int
    error: ClientError | None
