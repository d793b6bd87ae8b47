"""One call of a person: it is made, followed, and kept with what belongs to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from linkspan.client.sync_client import SyncClient
from linkspan.flows.client_errors import CallStopped, ClientError, ConnectError, ConnectionLost
from linkspan.flows.tasks import TaskStatus
from linkspan.text import clip
from linkspan.types.base import JSONObject
from linkspan.types.messages import ProgressParams
from linkspan.wire.redaction import Redactor, one_line
from linkspan.wire.values import to_builtins
from linkspan.workbench.clients import BenchClients
from linkspan.workbench.events import EventLog
from linkspan.workbench.exchanges import BenchCall, BenchCalls
from linkspan.workbench.history import CallHistory
from linkspan.workbench.incoming import ServerTalk
from linkspan.workbench.standing import Announce, ServerStanding


class BenchCallRunner:
    """Makes calls, each in the thread of its caller."""

    def __init__(
        self,
        clients: BenchClients,
        incoming: ServerTalk,
        exchanges: BenchCalls,
        history: CallHistory,
        standing: ServerStanding,
        events: EventLog,
        redactor: Redactor,
        announce: Announce,
        lose: Callable[[ClientError], object],
    ) -> None:
        """`lose` is called with the error of a call that finds the connection lost."""
        self._clients = clients
        self._incoming = incoming
        self._exchanges = exchanges
        self._history = history
        self._standing = standing
        self._events = events
        self._redactor = redactor
        self._announce = announce
        self._lose = lose

    def carry_out(self, exchange: BenchCall) -> None:
        """Make a call, in this thread, and keep what becomes of it."""
        self._incoming.current.exchange = exchange
        began, printed, losses = time.monotonic(), self._incoming.printed_text.end, self._incoming.losses
        try:
            client = self._clients.connected(exchange.wanted.revision)
            exchange.revision = client.protocol_version or ""
            began = time.monotonic()
            exchange.result, exchange.is_error = self._result(client, exchange)
            exchange.state = "done"
        except CallStopped:
            exchange.state = "stopped"
        except ClientError as error:
            described = _described(error)
            if error.stderr:
                described["stderr"] = self._incoming.printed_since(printed, losses)
            exchange.state, exchange.error = "error", described
            is_gone = isinstance(error, ConnectError | ConnectionLost) and not exchange.wanted.revision
            if is_gone:
                self._lose(error)
        except Exception as error:  # what the person typed may be no such call at all
            exchange.state = "error"
            exchange.error = {"problem": self._redactor.text(f"{type(error).__name__}: {error}")}
        exchange.seconds = time.monotonic() - began
        self._incoming.explain(exchange)
        if exchange.state == "done":
            self._standing.serve()
        self._exchanges.changed(exchange)
        if (problem := self._history.write(self._exchanges.shown)) is not None:
            self._events.add("log", source="bench", level="WARNING", text=problem)
        self._announce("call", f"{self._redactor.text(_call_words(exchange))}\n{exchange.report}".rstrip())

    def _result(self, client: SyncClient, exchange: BenchCall) -> tuple[bytes, bool]:
        wanted = exchange.wanted

        def progressed(found: ProgressParams) -> None:
            self._events.add("progress", exchange=exchange.id, **to_builtins(found))

        options: Any = {"on_progress": progressed, "stopper": exchange.stopper}
        if wanted.kind == "resource":
            return msgspec.json.encode(to_builtins(client.read_resource(wanted.name, **options))), False
        if wanted.kind == "prompt":
            texts = {name: str(value) for name, value in wanted.arguments.items()}
            return msgspec.json.encode(to_builtins(client.get_prompt(wanted.name, texts, **options))), False
        task = client.start_tool(wanted.name, wanted.arguments, **options)

        def changed(status: TaskStatus) -> None:
            exchange.task = to_builtins(status)
            self._exchanges.changed(exchange)

        if (task_id := task.id) is None:
            result = task.result()
            return bytes(result.raw), result.is_error
        try:
            changed(task.status())
            result = task.result(on_status=changed)
        except CallStopped as error:
            if error.task_id is None:  # it was not being followed yet, so the client has not cancelled it
                with suppress(ClientError):
                    client.task(task_id).cancel()
            raise
        return bytes(result.raw), result.is_error

    def announce_crash(self, exchange: BenchCall) -> None:
        """Announce the traceback of a call that was announced before."""
        self._announce("call", f"{one_line(exchange.wanted.name, 60)}\n{exchange.report}")


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
    return {"type": type(error).__name__, **found}
