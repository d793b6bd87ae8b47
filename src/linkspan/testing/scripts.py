"""From a transcript to what a player plays: each message of the client with all that the server said on its account.

A message of the server belongs to the request whose answer it is or whose progress it tells, else to the newest request that
was still open, else to the last thing that the client said. Pure: knows no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from linkspan.testing.transcripts import Entry
from linkspan.text import did_you_mean
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.messages import RequestId, encode
from linkspan.wire.redaction import REDACTED

__all__ = [
    "LISTEN",
    "Awaits",
    "Exchange",
    "Step",
    "choose",
    "explain_missing",
    "matched_params",
    "read_exchanges",
    "read_id",
]

LISTEN: Final = "subscriptions/listen"
_PREFIX: Final = "io.modelcontextprotocol/"
_NEVER_COMPARED: Final = ("progressToken", "traceparent", "tracestate", "baggage")
_SHOWN: Final = 60
_DIFFERENCES: Final = 3


class Awaits(msgspec.Struct, frozen=True):
    """Go on when the client has answered the server's request of this recorded id."""

    id: RequestId


Step: TypeAlias = JSONObject | Awaits
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
        kept = {name: value for name, value in meta.items() if not _is_envelope(name)}
        plain |= {"_meta": kept} if kept else {}
    return plain


def _is_envelope(name: str) -> bool:
    return name in _NEVER_COMPARED or name.startswith(_PREFIX)


def read_id(members: JSON, name: str) -> RequestId | None:
    """Return a member that is an id or a token, None if there is no such."""
    found = members.get(name) if is_object(members) else None
    return found if isinstance(found, int | str) else None


# Reading.


def read_exchanges(entries: Iterable[Entry]) -> list[Exchange]:
    """Say which message of the server belongs to which of the client."""
    reader = _Reader()
    for entry in entries:
        for message in entry.message if is_array(entry.message) else [entry.message]:
            if is_object(message) and entry.side == "client":
                reader.receive_from_client(message)
            elif is_object(message):
                reader.receive_from_server(message)
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        self._all: list[Exchange] = []
        self._open: dict[RequestId | None, Exchange] = {}
        self._asked: dict[RequestId | None, Exchange] = {}

    def receive_from_client(self, message: JSONObject) -> None:
        method, request_id, params = message.get("method"), read_id(message, "id"), message.get("params")
        if not isinstance(method, str):
            exchange = self._asked.pop(request_id, None)
            if exchange is not None and request_id is not None:
                exchange.steps.append(Awaits(request_id))
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
        exchange = self._owner(message)
        if exchange is None:
            return
        exchange.steps.append(message)
        if request_id is not None:
            self._asked[request_id] = exchange

    def _owner(self, message: JSONObject) -> Exchange | None:
        params = message.get("params")
        token = read_id(params, "progressToken")
        if token is not None:
            for exchange in self._open.values():
                if exchange.token == token:
                    return exchange
        for exchange in reversed(self._open.values()):
            if exchange.method != LISTEN:
                return exchange
        return self._all[-1] if self._all else None

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
    fitting = [each for each in exchanges if each.method == method and _fits(each.params, params)]
    exact = [each for each in fitting if each.params == params]
    candidates = exact or fitting
    fresh = (each for each in candidates if each not in played)
    return next(fresh, candidates[-1] if candidates else None)


def _fits(recorded: JSON, given: JSON) -> bool:
    return next(_differences(recorded, given, ""), None) is None


def explain_missing(exchanges: Iterable[Exchange], method: str, params: JSON) -> RemoteProtocolError:
    """Say that a request was not recorded, which one comes nearest, and what differs."""
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
    elif not _equal(recorded, given):
        yield f"{path or 'params'} was {_short(recorded)}, now it is {_short(given)}"


def _equal(recorded: JSON, given: JSON) -> bool:
    if isinstance(recorded, str) and isinstance(given, str) and REDACTED in recorded:
        return _fits_pieces(recorded.split(REDACTED), given)
    return isinstance(recorded, bool) == isinstance(given, bool) and bool(recorded == given)


def _fits_pieces(pieces: list[str], text: str) -> bool:
    first, *middle, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)


def _short(value: JSON) -> str:
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
