"""A recorded server, played offline: it answers each request as it did in the recording.

A message of the server belongs to the request that it answers or whose progress it reports, else to the newest request that
was still open, else to the client's last message.
Law: a request that was never recorded gets an error that lists what was; nothing is made up but the answer to `ping`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import msgspec

from linkspan.core.call import NO_PORTS, Ports
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    LocalProtocolError,
    RemoteProtocolError,
)
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.testing.recorder import RecordedLine, read_transcript
from linkspan.text import did_you_mean
from linkspan.types.base import ABSENT, JSON, META_PREFIX, JSONObject, is_array, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Notification,
    RequestId,
    Response,
    RpcRequest,
    decode,
    encode,
    encode_error,
    encode_response,
)
from linkspan.wire.redaction import REDACTED
from linkspan.wire.values import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from linkspan.core.call import Call, Event


LISTEN: Final = "subscriptions/listen"
_NEVER_COMPARED: Final = ("progressToken", "traceparent", "tracestate", "baggage")
_SHOWN: Final = 60
_DIFFERENCES: Final = 3


class AwaitsAnswer(msgspec.Struct, frozen=True):
    """Go on when the client has answered the server's request of this recorded id."""

    id: RequestId


Step: TypeAlias = JSONObject | AwaitsAnswer
"""A message to send, as it was recorded, or something to wait for."""


class Exchange(msgspec.Struct, eq=False):
    """What the client sent once, and what the server sent for it, the answer among it. `id` is None for a notification."""

    method: str
    params: JSON
    id: RequestId | None
    token: RequestId | None = None
    steps: list[Step] = msgspec.field(default_factory=list[Step])


def matched_params(method: str, params: JSON) -> JSON:
    """Return the params without what differs from one client, and one call, to the next."""
    if method == "initialize":
        return {}
    if not is_object(params):
        return params or {}
    plain = {name: value for name, value in params.items() if name != "_meta"}
    meta = params.get("_meta")
    if is_object(meta):
        kept = {
            name: value
            for name, value in meta.items()
            if name not in _NEVER_COMPARED and not name.startswith(META_PREFIX)
        }
        plain |= {"_meta": kept} if kept else {}
    return plain


def read_id(members: JSON, name: str) -> RequestId | None:
    """Return a member that is an id or a token, None if there is no such."""
    found = members.get(name) if is_object(members) else None
    return found if isinstance(found, int | str) else None


# Reading.


def read_exchanges(entries: Iterable[RecordedLine]) -> list[Exchange]:
    """Match each message of the server to the message of the client to which it belongs."""
    reader = _PlayedReader()
    for entry in entries:
        for message in entry.message if is_array(entry.message) else [entry.message]:
            if is_object(message) and entry.side == "client":
                reader.receive_from_client(message)
            elif is_object(message):
                reader.receive_from_server(message)
    return reader.finish()


class _PlayedReader:
    def __init__(self) -> None:
        self._all: list[Exchange] = []
        self._open: dict[RequestId | None, Exchange] = {}
        self._asked: dict[RequestId | None, Exchange] = {}

    def receive_from_client(self, message: JSONObject) -> None:
        method, request_id, params = message.get("method"), read_id(message, "id"), message.get("params")
        if not isinstance(method, str):
            exchange = self._asked.pop(request_id, None)
            if exchange is not None and request_id is not None:
                exchange.steps.append(AwaitsAnswer(request_id))
            return
        if method == "notifications/cancelled":
            self._open.pop(read_id(params, "requestId"), None)
            return
        meta = params.get("_meta") if is_object(params) else None
        exchange = Exchange(method, matched_params(method, params), request_id, read_id(meta, "progressToken"))
        self._all.append(exchange)
        if request_id is not None:
            self._open[request_id] = exchange

    def receive_from_server(self, message: JSONObject) -> None:
        request_id = read_id(message, "id")
        if "method" not in message:
            if (answered := self._open.pop(request_id, None)) is not None:
                answered.steps.append(message)
            return
        token = read_id(message.get("params"), "progressToken")
        with_token = [each for each in self._open.values() if token is not None and each.token == token]
        running = [each for each in self._open.values() if each.method != LISTEN]
        candidates = with_token[:1] or running[-1:] or self._all[-1:]
        if not candidates:
            return
        exchange = candidates[0]
        exchange.steps.append(message)
        if request_id is not None:
            self._asked[request_id] = exchange

    def finish(self) -> list[Exchange]:
        """Give an error to those who would wait for ever: neither answered nor cancelled."""
        for request_id, exchange in self._open.items():
            if exchange.method != LISTEN:
                problem = f"The recording ends before the answer to {exchange.method}"
                error = {"code": INTERNAL_ERROR, "message": problem}
                exchange.steps.append({"jsonrpc": "2.0", "id": request_id, "error": error})
        return self._all


# Choosing.


def choose(exchanges: Iterable[Exchange], played: set[Exchange], method: str, params: JSON) -> Exchange | None:
    """Return the exchange to play: the first that fits and was not played yet, else the last that fits."""
    same = (each for each in exchanges if each.method == method)
    fitting = [each for each in same if next(_differences(each.params, params, ""), None) is None]
    exact = [each for each in fitting if each.params == params]
    candidates = exact or fitting
    fresh = (each for each in candidates if each not in played)
    return next(fresh, candidates[-1] if candidates else None)


def explain_missing(exchanges: Iterable[Exchange], method: str, params: JSON) -> RemoteProtocolError:
    """Return an error: the request was not recorded, which recorded one is nearest, and what differs."""
    recorded = [each for each in exchanges if each.id is not None]
    same = [list(_differences(each.params, params, "")) for each in recorded if each.method == method]
    if same:
        nearest = min(same, key=len)
        more = f"; and {len(nearest) - _DIFFERENCES} more" if len(nearest) > _DIFFERENCES else ""
        what = "; ".join(nearest[:_DIFFERENCES])
        return RemoteProtocolError(
            INVALID_PARAMS,
            f"{method} was not recorded with these params. In the nearest recorded {method}: {what}{more}",
        )
    methods = sorted({each.method for each in recorded})
    near = did_you_mean(method, methods)
    listed = f"the recorded methods are {', '.join(methods)}" if methods else "the recording has no requests"
    problem = f"Method not found: {method} was not recorded{near or ';'} {listed}"
    return RemoteProtocolError(METHOD_NOT_FOUND, problem, method)


def _differences(recorded: JSON, given: JSON, path: str) -> Iterator[str]:
    """Compare; what was redacted fits anything."""
    if recorded == REDACTED:
        return
    if is_object(recorded) and is_object(given):
        for name in recorded | given:
            place = f"{path}.{name}" if path else name
            if name not in given:
                yield f"{place} was {_short(recorded[name])}, now it is missing"
            elif name not in recorded:
                yield f"{place} was missing, now it is {_short(given[name])}"
            else:
                yield from _differences(recorded[name], given[name], place)
    elif is_array(recorded) and is_array(given) and len(recorded) == len(given):
        for index, (was, now) in enumerate(zip(recorded, given, strict=True)):
            yield from _differences(was, now, f"{path}[{index}]")
    elif isinstance(recorded, str) and isinstance(given, str) and REDACTED in recorded:
        first, *pieces, last = recorded.split(REDACTED)
        at = len(first) if given.startswith(first) else len(given) + 1
        for piece in pieces:
            found = given.find(piece, at)
            at = found + len(piece) if found >= 0 else len(given) + 1
        if len(given) - len(last) < at or not given.endswith(last):
            yield f"{path or 'params'} was {_short(recorded)}, now it is {_short(given)}"
    elif isinstance(recorded, bool) != isinstance(given, bool) or recorded != given:
        yield f"{path or 'params'} was {_short(recorded)}, now it is {_short(given)}"


def _short(value: JSON) -> str:
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Player:
    """A server made of a recording; give it to a client or a transport in the place of a `Server`.

    with Client(Player("dice.transcript")) as client: ...
    """

    def __init__(
        self, recording: str | os.PathLike[str] | Iterable[RecordedLine], *, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """Read a transcript file, or take its entries. Raises: OSError; ValueError that names the line."""
        self.name = "recording"
        if isinstance(recording, str | os.PathLike):
            path: str = os.fspath(recording)
            self.name = os.path.basename(path)
            recording = read_transcript(path)
        self.limits = limits
        self._exchanges = read_exchanges(recording)

    def __repr__(self) -> str:
        return f"<Player of {self.name}: {len(self._exchanges)} exchanges>"

    def connect(self, *, ports: Ports = NO_PORTS) -> Playback:
        """Open a connection, which plays the recording from its beginning; it runs no calls and has no use for `ports`."""
        return Playback(self._exchanges, self.limits)


class _PlayedRun:
    """One exchange, being played for one message of the client."""

    __slots__ = ("answered", "asked", "at", "exchange", "id")

    def __init__(self, exchange: Exchange, request_id: RequestId | None) -> None:
        self.exchange = exchange
        self.id = request_id
        self.at = 0
        self.answered = False
        self.asked: dict[RequestId | None, RequestId] = {}


class Playback:
    """One connection to a recorded server. It has the face of a `ServerConnection`, and no calls to run."""

    def __init__(self, exchanges: list[Exchange], limits: Limits) -> None:
        self._exchanges = exchanges
        self._limits = limits
        self._reader = LineReader(limits.max_line_bytes)
        self._played: set[Exchange] = set()
        self._open: dict[RequestId | None, _PlayedRun] = {}
        self._unanswered: dict[RequestId | None, _PlayedRun] = {}
        self._tokens: dict[RequestId | None, RequestId | None] = {}
        self._listening: dict[RequestId, RequestId] = {}
        self._out: list[bytes] = []

    # What drivers call.

    @property
    def lifespan(self) -> None:
        """Nothing is opened before calls: none runs."""

    @property
    def background(self) -> None:
        """Nothing else is done."""

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the stream; what they are answered with is in `data_to_send` afterwards."""
        for line in self._reader.receive_data(data):
            self._receive_line(line)
        return []

    def receive_eof(self) -> list[Event]:
        """Record that the client will send no more."""
        for line in self._reader.receive_eof():
            self._receive_line(line)
        return []

    def receive_message(self, data: bytes) -> list[Event]:
        """Take one whole message that some other framing delivered."""
        self._receive_line(data)
        return []

    def data_to_send(self) -> bytes:
        """Return what must go to the client now, and forget it."""
        return b"".join(message + b"\n" for message in self.messages_to_send())

    def messages_to_send(self) -> list[bytes]:
        """Return the same, message by message."""
        messages, self._out = self._out, []
        return messages

    def next_timeout(self) -> float | None:
        """Return None: a recording knows no time."""
        return None

    def handle_timeout(self, now: float) -> list[Event]:
        """Do nothing."""
        return []

    @property
    def running(self) -> int:
        """Zero: what has not been answered waits for the client."""
        return 0

    @property
    def accepting(self) -> bool:
        """Whether to read on: always."""
        return True

    def close(self) -> list[Event]:
        """Say goodbye to subscriptions, if the recorded server did."""
        for run in list(self._open.values()):
            if run.exchange.method == LISTEN:
                self._advance(run, closing=True)
        return []

    def finish(self, call: Call, value: object) -> list[Event]:
        """Never happens: a recording has no calls."""
        _no_calls()

    def fail(self, call: Call, error: BaseException) -> list[Event]:
        """Never happens."""
        _no_calls()

    # What the client sent.

    def _receive_line(self, line: bytes | TooLong) -> None:
        received = decode(line, self._limits)
        for message in received.messages if isinstance(received, Batch) else [received]:
            match message:
                case RpcRequest():
                    self._receive_request(message)
                case Notification():
                    self._receive_notification(message)
                case Response() | ErrorResponse():
                    if (run := self._unanswered.pop(message.id, None)) is not None:
                        self._advance(run)
                case Malformed():
                    self._out.append(encode_error(message.reply_id, message.code, message.message))

    def _receive_request(self, rpc: RpcRequest) -> None:
        if rpc.id in self._open:
            problem = "Invalid Request: a request with this id is still running"
            self._out.append(encode_error(rpc.id, INVALID_REQUEST, problem))
            return
        try:
            params: JSON = msgspec.json.decode(rpc.params) if rpc.params is not ABSENT else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._out.append(encode_error(rpc.id, INVALID_PARAMS, "Invalid params: not readable"))
            return
        exchange = self._choose(rpc.method, params, is_request=True)
        if exchange is not None:
            run = self._open[rpc.id] = _PlayedRun(exchange, rpc.id)
            # How the client calls now what the recording calls by other ids.
            if exchange.token is not None:
                self._tokens[exchange.token] = read_id(_meta(params), "progressToken")
            if exchange.method == LISTEN and exchange.id is not None:
                self._listening[exchange.id] = rpc.id
            self._advance(run)
        elif rpc.method == "ping":
            self._out.append(encode_response(rpc.id, b"{}"))
        else:
            error = explain_missing(self._exchanges, rpc.method, matched_params(rpc.method, params))
            self._out.append(encode_error(rpc.id, error.code, error.message, error.data))

    def _choose(self, method: str, params: JSON, *, is_request: bool) -> Exchange | None:
        candidates = (each for each in self._exchanges if (each.id is not None) == is_request)
        exchange = choose(candidates, self._played, method, matched_params(method, params))
        if exchange is not None:
            self._played.add(exchange)
        return exchange

    def _receive_notification(self, message: Notification) -> None:
        try:
            params: JSON = msgspec.json.decode(message.params) if message.params is not ABSENT else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if message.method == "notifications/cancelled":
            self._open.pop(read_id(params, "requestId"), None)
            return
        exchange = self._choose(message.method, params, is_request=False)
        if exchange is not None:
            self._advance(_PlayedRun(exchange, None))

    # What it gets for it.

    def _advance(self, run: _PlayedRun, *, closing: bool = False) -> None:
        """Play on, up to the end or to something that has to be waited for."""
        steps = run.exchange.steps
        while run.at < len(steps):
            if run.id is not None and self._open.get(run.id) is not run and not run.answered:
                return  # the client has cancelled it; what follows the answer is wanted in any case
            step = steps[run.at]
            if isinstance(step, AwaitsAnswer):
                if run.asked.get(step.id) in self._unanswered:
                    return
            elif "method" in step:
                self._send(run, step)
            elif run.exchange.method == LISTEN and not closing and "result" in step:
                return  # a subscription ends with its connection
            elif run.id is not None:
                self._open.pop(run.id, None)
                run.answered = True
                self._out.append(encode({**self._readdressed(step, "result"), "id": run.id}))
            run.at += 1

    def _send(self, run: _PlayedRun, step: JSONObject) -> None:
        """Send a request or a notification under the ids of today, unless it is about something that is not there."""
        message = self._readdressed(step, "params")
        params = message.get("params")
        recorded_id = read_id(step, "id")
        if recorded_id is not None:
            request_id, number = recorded_id, 2
            while request_id in self._unanswered:
                request_id, number = f"{recorded_id}-{number}", number + 1
            self._unanswered[request_id] = run
            message["id"] = run.asked[recorded_id] = request_id
        elif is_object(params) and "progressToken" in params:
            token = self._tokens.get(read_id(params, "progressToken"))
            if token is None:
                return
            message["params"] = {**params, "progressToken": token}
        elif is_object(params) and (asked := run.asked.get(read_id(params, "requestId"))) is not None:
            message["params"] = {**params, "requestId": asked}
            self._unanswered.pop(asked, None)
        elif _subscription(params) == "":
            return
        self._out.append(encode(message))

    def _readdressed(self, step: JSONObject, part: str) -> JSONObject:
        """Return a copy of a message whose subscription has the id that it has today."""
        body = step.get(part)
        recorded = _subscription(body)
        if recorded is None or not is_object(body):
            return dict(step)
        meta = {**body["_meta"], SUBSCRIPTION_ID: self._listening.get(recorded, "")}
        return {**step, part: {**body, "_meta": meta}}


def _meta(body: JSON) -> JSON:
    return body.get("_meta") if is_object(body) else None


def _subscription(body: JSON) -> RequestId | None:
    return read_id(_meta(body), SUBSCRIPTION_ID)


def _no_calls() -> NoReturn:
    raise LocalProtocolError("a recording has no calls")
