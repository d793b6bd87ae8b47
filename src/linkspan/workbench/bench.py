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
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from linkspan._version import __version__
from linkspan.apps.serving import Apps
from linkspan.client.sync_client import SyncClient
from linkspan.flows.answers import Refused, read_question
from linkspan.flows.client_errors import CallStopped, ClientError
from linkspan.flows.state import DEFAULT_TIMEOUTS, Timeouts
from linkspan.flows.tasks import Tasks, TaskStatus
from linkspan.host.messages import Model, ModelError, TextDelta
from linkspan.host.sampling import sampling_request
from linkspan.revisions import REVISIONS, supported_versions
from linkspan.revisions.neutral import SAMPLE
from linkspan.runtime.watching import Watch
from linkspan.testing.recorder import TranscriptWriter
from linkspan.text import clip, counted
from linkspan.types.base import JSONObject
from linkspan.types.messages import (
    CreateMessageParams,
    ProgressParams,
    PromptReference,
    ResourceTemplateReference,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED, Redactor, one_line
from linkspan.wire.values import to_builtins
from linkspan.workbench.code import Subject
from linkspan.workbench.copies import copied
from linkspan.workbench.events import EventLog, cut
from linkspan.workbench.exchanges import BenchCall, BenchCalls, GivenAnswer, Tap, Wanted
from linkspan.workbench.history import CallHistory
from linkspan.workbench.incoming import ServerTalk
from linkspan.workbench.listing import ItemMark, Listing, marks, reads_only
from linkspan.workbench.login import BenchLogins
from linkspan.workbench.placeholders import Placeholders, has_secrets
from linkspan.workbench.views import BenchViews

_AT_ONCE: Final = 16
"""Calls that may run at once."""
_HOPS: Final = 100
_LINES: Final = 40
_LONGEST_TEXT: Final = 64 * 1024
_PATIENCE: Final = 1.0
"""Seconds for a server to end before the next one starts."""


class Setup(msgspec.Struct, frozen=True):
    """What the command line says."""

    target: Any
    """What a client takes."""
    subject: Subject
    file: str = ""
    """The source whose changes restart the server; empty for none."""
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


Announce = Callable[[str, str], object]
"""Is given what happened in one word, and the words for the terminal."""


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
            self.events, self.exchanges, self._redactor, lambda: self._todo.put(_RELIST), self._announce_crash
        )
        self.questions = self._incoming.questions
        self.views = BenchViews(self.questions, self.events, self.exchanges, self._client)
        self._history = CallHistory(setup.history, self._redactor)
        self.exchanges.restore(self._history.read())
        self.declared = DeclaredToServer(roots=bool(setup.roots))
        self.listing = Listing()
        self._shown = self.listing.shown()
        self.changed: Sequence[ItemMark] = ()
        self._logins = BenchLogins(setup.open_url if setup.subject.url else None, lambda: self.events.add("state"))
        self._status = "connecting"
        self._problem: JSONObject | None = None
        self._seconds = 0.0
        self._generation = 0
        self._era: Literal["modern", "legacy"] | None = setup.era
        self._revision = setup.revision
        self._lock = threading.Lock()
        self._clients: dict[str, SyncClient] = {}
        self._subscribed: set[str] = set()
        self._todo: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._threads = [self._run(self._work)]
        if setup.file:
            self._threads.append(self._run(self._record_changes))

    # From outside.

    def start(self) -> None:
        """Start the server, in a thread of its own."""
        self._todo.put("")

    def switch_era(self) -> None:
        """Start the server anew, and speak the handshake with one that spoke without, or the other way."""
        client = self._clients.get("")
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
        for client in self._take_clients():
            client.close()
        self.events.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def declare(self, declared: DeclaredToServer) -> None:
        """Declare other capabilities from now on, to a server that is started anew."""
        self.declared = declared
        self.restart("other capabilities are declared")

    def state(self) -> JSONObject:
        """Return all that a browser shows at first."""
        client = self._clients.get("")
        info = client.server_info if client is not None else None
        offers = client.server_capabilities if client is not None else None
        return {
            "version": __version__,
            "generation": self._generation,  # before the status: that of another start is never with it
            "status": self._status,
            "problem": self._problem,
            "login": self._logins.shown(),
            "target": {
                "name": self._clients[""].name if "" in self._clients else "",
                "shown": self._redactor.text(" ".join(self._setup.subject.words)),
                "file": self._setup.file,
                "url": self._setup.subject.url,
            },
            "server": to_builtins(info) if info is not None else None,
            "capabilities": to_builtins(offers) if offers is not None else None,
            "instructions": cut((client.instructions if client is not None else None) or ""),
            "revision": (client.protocol_version if client is not None else None) or "",
            "revisions": list(supported_versions()),
            "seconds": self._seconds,
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
        self._run(self._carry_out, exchange)
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
        """Return how an argument of a prompt or a template may go on. Raises: ClientError."""
        ref = PromptReference(name) if kind == "prompt" else ResourceTemplateReference(name)
        found: JSONObject = to_builtins(self._client("").complete(ref, argument, value, given))
        return found

    def subscribe(self, uri: str, *, on: bool) -> None:
        """Subscribe to a resource, or end that. Raises: ClientError."""
        client = self._client("")
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

    # The thread that starts servers.

    def _work(self) -> None:
        while (why := self._todo.get()) is not None:
            with suppress(queue.Empty):
                while True:  # several reasons, one start
                    later = self._todo.get_nowait()
                    if later is None:
                        return
                    why = later if why == _RELIST else why if later == _RELIST else later
            try:
                self._relist() if why == _RELIST else self._begin(why)
            except ClientError as error:
                self._broken(error)
            except Exception as error:  # a fault here must not end the thread that starts servers
                self._broken(ClientError(f"{type(error).__name__}: {error}"))

    def _begin(self, why: str) -> None:
        began = time.monotonic()
        self._status, self._problem = "connecting", None
        self._generation += 1
        self._logins.begin_anew()
        self.events.add("status", status="connecting", why=why)
        self.questions.drop()
        old = [self._run(client.close) for client in self._take_clients()]
        for thread in old:
            thread.join(_PATIENCE)
        if self._setup.transcript is not None:
            self._setup.transcript.comment(f"start {self._generation}")
        client = self._client("")
        self._seconds = time.monotonic() - began
        before = self._list_again(client)
        first = self._generation == 1 or not before.items
        self.changed = () if first else marks(before, self.listing)
        self._status = "ready"
        self.events.add("status", status="ready", ms=round(self._seconds * 1000), why=why)
        self.events.add("state")
        self._announce("changed" if why else "ready", self._ready_words(client, why))
        for uri in self._subscribed:
            with suppress(ClientError):
                client.subscribe(uri)

    def _ready_words(self, client: SyncClient, why: str) -> str:
        milliseconds = f"{self._seconds * 1000:.0f} ms"
        if why:
            return "; ".join([f"{why}: restarted in {milliseconds}", *map(_mark_words, self.changed[:8])])
        info = client.server_info
        named = (
            f"{one_line(info.name, 60)} {one_line(info.version or '', 20)}".strip() if info is not None else client.name
        )
        counts = [counted(len(items), kind.removesuffix("s")) for kind, items in self.listing.items.items() if items]
        total = sum(map(sum, self._shown["tokens"].values()))
        return ", ".join([named, client.protocol_version or "", *counts, f"~{total} tokens", milliseconds])

    def _relist(self) -> None:
        before = self._list_again(self._client(""))
        found = marks(before, self.listing)
        if found:
            self.changed = found
        self.events.add("state")

    def _list_again(self, client: SyncClient) -> Listing:
        """Ask for the lists; return those of before."""
        before, listing = self.listing, self._listed(client)
        self.listing, self._shown = listing, listing.shown()
        return before

    def _listed(self, client: SyncClient) -> Listing:
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
        if problems and not items:
            self.events.add("log", source="bench", level="ERROR", text="; ".join(problems.values()))
        return Listing(items, problems, client.instructions)

    def _broken(self, error: ClientError) -> None:
        if self._over.is_set():
            return
        text = self._redactor.text(str(error))
        self._status = "broken"
        self._problem = {"text": text, "waits": bool(self._setup.file)}
        self.events.add("status", status="broken", text=text)
        self.events.add("state")
        self._announce("broken", text + ("\nwaiting for a change" if self._setup.file else ""))

    def _record_changes(self) -> None:
        watch = Watch(self._setup.file, self._setup.watched)
        while not self._over.is_set():
            watch.wait(self._over)
            if not self._over.is_set() and (path := watch.changed()) is not None:
                self.restart(f"{path} changed")

    # Clients.

    def _client(self, revision: str) -> SyncClient:
        """Return the connected client for a revision. Raises: ClientError."""
        with self._lock:
            client = self._clients.get(revision)
            is_new = client is None
            if client is None:
                client = self._clients[revision] = self._new_client(revision)
        client.connect()
        offers = client.server_capabilities
        if is_new and offers is not None and offers.logging is not None:
            client.set_logging_level("debug")  # servers of the newest revision send no log that is not asked for
        return client

    def _take_clients(self) -> list[SyncClient]:
        with self._lock:
            found, self._clients = [*self._clients.values()], {}
        return found

    def _new_client(self, revision: str) -> SyncClient:
        setup, declared = self._setup, self.declared
        connection = f"{self._generation}/{revision or 'default'}"
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
            on_event=self._incoming.event,
            on_stderr=self._incoming.printed,
            on_report=self._incoming.reported,
            on_http=self._incoming.hopped,
            extensions=[Tasks(), *([Apps()] if declared.views else [])],
            recorder=Tap(self.exchanges, connection, self.events.add, setup.transcript if not revision else None),
        )

    # One call.

    def _carry_out(self, exchange: BenchCall) -> None:
        self._incoming.current.exchange = exchange
        began = time.monotonic()
        try:
            client = self._client(exchange.wanted.revision)
            exchange.revision = client.protocol_version or ""
            began = time.monotonic()
            exchange.result, exchange.is_error = self._result(client, exchange)
            exchange.state = "done"
        except CallStopped:
            exchange.state = "stopped"
        except ClientError as error:
            exchange.state, exchange.error = "error", _described(error)
        except Exception as error:  # what the person typed may be no such call at all
            exchange.state = "error"
            exchange.error = {"problem": self._redactor.text(f"{type(error).__name__}: {error}")}
        exchange.seconds = time.monotonic() - began
        self.exchanges.changed(exchange)
        if (problem := self._history.write(self.exchanges.shown)) is not None:
            self.events.add("log", source="bench", level="WARNING", text=problem)
        self._announce("call", f"{self._redactor.text(_call_words(exchange))}\n{exchange.report}".rstrip())

    def _result(self, client: SyncClient, exchange: BenchCall) -> tuple[bytes, bool]:
        wanted = exchange.wanted

        def progressed(found: ProgressParams) -> None:
            self.events.add("progress", exchange=exchange.id, **to_builtins(found))

        options: Any = {"on_progress": progressed, "stopper": exchange.stopper}
        if wanted.kind == "resource":
            return msgspec.json.encode(to_builtins(client.read_resource(wanted.name, **options))), False
        if wanted.kind == "prompt":
            texts = {name: str(value) for name, value in wanted.arguments.items()}
            return msgspec.json.encode(to_builtins(client.get_prompt(wanted.name, texts, **options))), False
        task = client.start_tool(wanted.name, wanted.arguments, **options)

        def changed(status: TaskStatus) -> None:
            exchange.task = to_builtins(status)
            self.exchanges.changed(exchange)

        def cancel(task_id: str) -> None:
            with suppress(ClientError):
                client.task(task_id).cancel()  # for itself: the stopper ends what else is sent about the task

        if (task_id := task.id) is not None:
            changed(task.status())
            exchange.stopper.attach(lambda: self._run(cancel, task_id) and None)
        result = task.result(on_status=changed if task.id is not None else None)
        return bytes(result.raw), result.is_error

    def _announce_crash(self, exchange: BenchCall) -> None:
        self._announce("call", f"{one_line(exchange.wanted.name, 60)}\n{exchange.report}")

    def _run(self, target: Callable[..., object], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name="linkspan-workbench", daemon=True)
        thread.start()
        return thread


def _call_words(exchange: BenchCall) -> str:
    wanted = exchange.wanted
    arguments = wanted.arguments if wanted.kind != "resource" else {}
    given = " ".join(f"{one_line(name, 40)}={one_line(str(value), 60)}" for name, value in arguments.items())
    ended = "error" if exchange.is_error or exchange.error else exchange.state
    words = f"{one_line(wanted.name, 60)} {given}".strip()
    problem = f": {clip(str(exchange.error.get('problem')), 200)}" if exchange.error else ""
    return f"{words}: {ended}, {exchange.seconds * 1000:.0f} ms{problem}"


def _described(error: ClientError) -> JSONObject:
    names = ("problem", "code", "message", "data", "phase", "delivery", "hint", "exit_code", "signal")
    found: JSONObject = {name: value for name in names if (value := getattr(error, name)) is not None}
    if error.stderr:
        found["stderr"] = error.stderr
    return {"type": type(error).__name__, **found}


def _mark_words(mark: ItemMark) -> str:
    if not mark.name:
        return "; ".join(f"~ {each}" for each in mark.what)
    return f"{mark.mark} {mark.kind.removesuffix('s')} {one_line(mark.name, 40)}"


def _is_modern(date: str | None) -> bool:
    return date in REVISIONS and REVISIONS[date].extends_by_request


_RELIST: Final = "\0"
"""What to do, where no server is to be started: list again."""
