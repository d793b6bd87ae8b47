"""The calls of a workbench, and the messages that went back and forth for each of them. Any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, Literal

import msgspec

from linkspan.contract.tokens import BYTES_PER_TOKEN
from linkspan.core.flow import Stopper
from linkspan.testing.recorder import TranscriptWriter
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.methods import ITEM_METHODS, NAMED
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED
from linkspan.workbench.events import cut_json

_MOST: Final = 200
_MOST_BYTES: Final = 16 * 1024 * 1024
_WHOLE: Final = 64 * 1024
"""Bytes of a result that is sent with its exchange; of a larger one the beginning is."""
_MOST_ANSWERS: Final = 100
_MAX_LINE: Final = 64 * 1024 * 1024
_MAX_OPEN: Final = 1_000

_OF_WANTED: Final = ("kind", "name", "arguments", "template")
_MEMBERS: Final = frozenset({"method", "result", "error"})
"""Each message has one of these."""

Kind = Literal["tool", "resource", "prompt"]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that a person asks for."""

    kind: Kind
    name: str
    arguments: JSONObject = {}
    template: str = ""
    """Of a resource, the template that the URI was made from, with these arguments."""
    revision: str = ""
    """Empty for the one that was negotiated."""
    again: bool = False
    """Whether it repeats a call that was made: in another revision, or later."""
    confirmed: bool = False
    """Whether the person knows that it is made again."""


class GivenAnswer(msgspec.Struct, frozen=True):
    """What the person said to a question that the server asked in a call."""

    kind: Literal["elicitation", "sampling"]
    message: str
    """The question."""
    mode: str
    """Of an elicitation, `form` or `url`; else empty."""
    action: str
    """`accept`, `decline` or `cancel`."""
    content: JSON = None
    """The values of a form."""
    text: str | None = None
    """What a model would have said."""


class BenchCall(msgspec.Struct):
    """One call and what became of it."""

    id: int
    wanted: Wanted
    began: float
    """Seconds since 1970."""
    state: Literal["running", "done", "error", "stopped"] = "running"
    revision: str = ""
    """The revision in which it was made."""
    seconds: float = 0.0
    result: bytes = b""
    is_error: bool = False
    error: JSONObject | None = None
    report: str = ""
    """What the server logged about it: the traceback of its author."""
    task: JSONObject | None = None
    kept: bool = False
    """Whether it is one of an earlier day."""
    request: JSONObject | None = None
    """The message that was sent first."""
    answers: list[GivenAnswer] = []
    """What the person answered, in the order of the questions."""
    reused: list[GivenAnswer] = []
    """Answers of the call that this one repeats, which no question has taken yet."""
    stopper: Stopper = msgspec.field(default_factory=Stopper)
    open_requests: int = 0

    public: JSONObject | None = None
    """What was shown of it last, without secrets."""

    def keep_answer(self, answer: GivenAnswer) -> bool:
        """Keep an answer for copies and repetitions of the call; return whether there is room for it."""
        size = sum(len(msgspec.json.encode(each)) for each in (*self.answers, answer))
        if len(self.answers) >= _MOST_ANSWERS or size > _WHOLE:
            return False
        self.answers.append(answer)
        return True

    def take_reused(self, kind: str, message: str, mode: str) -> GivenAnswer | None:
        """Return the answer to the same question in the call that this one repeats; None where the person must be asked.

        A page must be opened again, and what is secret may be gone.
        """
        for each in self.reused:
            if (each.kind, each.message, each.mode) == (kind, message, mode):
                self.reused.remove(each)
                is_gone = REDACTED in msgspec.json.encode([each.content, each.text]).decode()
                return None if is_gone or (mode == "url" and each.action == "accept") else each
        return None

    @property
    def method(self) -> str:
        """The method that was called."""
        return ITEM_METHODS[self.wanted.kind].name

    def names(self, incident: str | None) -> bool:
        """Return whether its error or its result names an incident of the server."""
        if not incident:
            return False
        message = str((self.error or {}).get("message") or "")
        return incident in message or (self.is_error and incident.encode() in self.result)

    def shown(self) -> JSONObject:
        """Return what a browser and the history get."""
        found: JSONObject = {
            "id": self.id,
            "kind": self.wanted.kind,
            "name": self.wanted.name,
            "arguments": self.wanted.arguments,
            "template": self.wanted.template,
            "began": self.began,
            "state": self.state,
            "revision": self.revision,
            "ms": round(self.seconds * 1000, 1),
            "is_error": self.is_error,
            "error": self.error,
            "report": self.report,
            "task": self.task,
            "answers": msgspec.to_builtins(self.answers),
            "kept": self.kept,
            "bytes": len(self.result),
            "tokens": round(len(self.result) / BYTES_PER_TOKEN),
        }
        if len(self.result) <= _WHOLE:
            found["result"] = msgspec.json.decode(self.result) if self.result else None
        else:
            found["beginning"] = self.result[:_WHOLE].decode("utf-8", "replace")
        return found


class BenchCalls:
    """The latest calls. `on_change` gets each that begins, ends, or gets to be known better, and returns what is shown of it."""

    def __init__(self, on_change: Callable[[BenchCall], JSONObject | None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._all: dict[int, BenchCall] = {}
        self._ids = count(1)

    def begin(self, wanted: Wanted, reused: Iterable[GivenAnswer] = ()) -> BenchCall:
        """Begin a call, in which questions may be answered as they were in another one."""
        with self._lock:
            found = BenchCall(next(self._ids), wanted, time.time(), reused=[*reused])
            self._all[found.id] = found
            ended = [each for each in self._all.values() if each.state != "running"]
            spare = len(self._all) - _MOST
            size = sum(len(each.result) for each in ended)
            for each in ended:
                if spare > 0 or size > _MOST_BYTES:
                    spare, size = spare - 1, size - len(each.result)
                    del self._all[each.id]
        self.changed(found)
        return found

    def restore(self, kept: Iterable[JSONObject]) -> None:
        """Add the calls of earlier days."""
        for each in kept:
            try:
                wanted = msgspec.convert({name: each[name] for name in _OF_WANTED if name in each}, Wanted)
                rest = msgspec.convert(each, _KeptExchange)
            except msgspec.ValidationError:
                continue
            state = "stopped" if rest.state == "running" else rest.state  # its end was not written
            result = encode(rest.result) if rest.result is not None else rest.beginning.encode()
            found = BenchCall(
                next(self._ids), wanted, rest.began, "error" if rest.error else state, rest.revision, rest.ms / 1000,
                result, rest.is_error, rest.error, rest.report, kept=True, answers=rest.answers,
            )  # fmt: skip
            self._all[found.id] = found

    def changed(self, exchange: BenchCall) -> None:
        """Report that more is known of a call."""
        exchange.public = self._on_change(exchange)

    def get(self, number: int) -> BenchCall | None:
        """Return a call by its number."""
        return self._all.get(number)

    def running(self) -> list[BenchCall]:
        """Return the calls that have not ended."""
        with self._lock:
            return [each for each in self._all.values() if each.state == "running"]

    def shown(self) -> list[JSONObject]:
        """Return all calls, the oldest first."""
        with self._lock:
            return [each.shown() for each in self._all.values()]

    def public(self) -> list[JSONObject]:
        """Return all calls as they were shown last, without secrets, the oldest first."""
        with self._lock:
            found = (each.shown() if each.kept else each.public for each in self._all.values())
            return [each for each in found if each is not None]  # what begins just now is shown with its event

    def forget(self) -> None:
        """Forget the calls that have ended."""
        with self._lock:
            self._all = {number: each for number, each in self._all.items() if each.state == "running"}

    def claim(self, method: str, params: JSON) -> BenchCall | None:
        """Return the running call that a request is for; the oldest of several that it may be for."""
        if not is_object(params):
            return None
        task: JSON = params.get("taskId")
        for each in self.running():
            if task is not None and each.task is not None and each.task.get("taskId") == task:
                return each
            wanted = each.wanted
            if method != each.method or each.open_requests or params.get(NAMED[method]) != wanted.name:
                continue
            if (params.get("arguments") or {}) == wanted.arguments or wanted.kind == "resource":
                return each
        return None

    def only(self) -> BenchCall | None:
        """Return the running call, if there is one alone."""
        running = self.running()
        return running[0] if len(running) == 1 else None

    def reported(self, tool: str | None, request_id: JSON, incident: str | None = None) -> BenchCall | None:
        """Return the latest call that a report of the server's log can be about.

        A task has no request of its own: it is found by its incident, or as the only one of its tool that runs.
        """
        with self._lock:
            latest = [each for each in reversed(self._all.values()) if not each.kept]
        named = [each for each in latest if each.wanted.name == (tool or each.wanted.name)]
        for each in named:
            if each.request is not None and each.request.get("id") == request_id:
                return each
        tasks = [each for each in named if each.task is not None and tool is not None]
        known = next((each for each in tasks if each.names(incident)), None)
        running = [each for each in tasks if each.state == "running"]
        return known or (running[0] if len(running) == 1 else None)


class _KeptExchange(msgspec.Struct):
    """What the history has of a call, beside what was wanted."""

    began: float = 0.0
    state: Literal["running", "done", "error", "stopped"] = "done"
    revision: str = ""
    ms: float = 0.0
    result: JSON = None
    beginning: str = ""
    is_error: bool = False
    error: JSONObject | None = None
    report: str = ""
    answers: list[GivenAnswer] = []


class Tap:
    """Reads the messages of one connection, finds the calls they are for, and passes them on. It is a client's recorder."""

    def __init__(
        self,
        exchanges: BenchCalls,
        connection: str,
        show: Callable[..., object],
        transcript: TranscriptWriter | None = None,
    ) -> None:
        """Call `show("message", ...)` with each message; `connection` tells its ids from those of others."""
        self._transcript = transcript
        self._exchanges = exchanges
        self._connection = connection
        self._show = show
        self._lock = threading.Lock()
        self._readers = {"client": LineReader(_MAX_LINE), "server": LineReader(_MAX_LINE)}
        self._open: dict[tuple[str, bytes], tuple[str, float, BenchCall | None]] = {}
        """By the side that asked and the id as JSON: 1 is not "1", and an id may be anything."""

    def client(self, data: bytes) -> None:
        """Take what the client sent."""
        self._take("client", data)
        if self._transcript is not None:
            self._transcript.client(data)

    def server(self, data: bytes) -> None:
        """Take what the server sent."""
        self._take("server", data)
        if self._transcript is not None:
            self._transcript.server(data)

    def _take(self, side: str, data: bytes) -> None:
        with self._lock:
            for line in self._readers[side].receive_data(data):
                self._line(side, line)

    def _line(self, side: str, line: bytes | TooLong) -> None:
        size = len(line) if isinstance(line, bytes) else 0
        try:
            value: JSON = msgspec.json.decode(line) if isinstance(line, bytes) else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = None
        is_whole = True
        for message in value if is_array(value) and value else [value]:
            try:
                if is_object(message) and not _MEMBERS.isdisjoint(message):
                    self._message(side, message, size)
                else:
                    is_whole = False
            except RecursionError:  # it was read, and is too deep to be shown
                is_whole = False
        if not is_whole:
            text = line[:1000].decode("utf-8", "replace") if isinstance(line, bytes) else "(a line that is too long)"
            self._show("junk", side=side, text=text)

    def _message(self, side: str, message: JSONObject, size: int) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        facts: JSONObject = {"side": side, "bytes": size, "connection": self._connection}
        exchange: BenchCall | None = None
        if isinstance(method, str) and "id" in message:
            exchange = self._exchanges.claim(method, params) if side == "client" else self._exchanges.only()
            if len(self._open) < _MAX_OPEN:
                self._open[side, encode(number)] = method, time.monotonic(), exchange
            if exchange is not None and side == "client":
                exchange.open_requests += 1
                exchange.request = exchange.request or message
        elif isinstance(method, str):
            token: JSON = params.get("progressToken", params.get("requestId")) if is_object(params) else None
            found = self._open.get(("client", encode(token)))
            exchange = found[2] if found is not None else self._exchanges.only()
        else:
            asker = "server" if side == "client" else "client"
            method, began, exchange = self._open.pop((asker, encode(number)), ("", 0.0, None))
            facts["ms"] = round((time.monotonic() - began) * 1000, 1) if began else None
            if exchange is not None and asker == "client":
                exchange.open_requests -= 1
        shown = cut_json(message)
        if size > _WHOLE and len(whole := encode(shown)) > 4 * _WHOLE:  # not long texts, but many
            shown = {"id": number, "beginning": whole[:_WHOLE].decode("utf-8", "replace")}
        facts |= {"method": method, "exchange": exchange.id if exchange is not None else None, "message": shown}
        self._show("message", **facts)
