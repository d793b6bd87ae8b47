"""The lines between a client and a server that may be replaced behind it. No I/O, no clock.

The next server gets what the client had agreed on with the one before: handshake, subscriptions, level of logging.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

import msgspec

from linkspan.errors import INTERNAL_ERROR
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import (
    Batch,
    ErrorResponse,
    Message,
    Notification,
    RequestId,
    Response,
    RpcRequest,
    decode,
    encode,
    encode_error,
    encode_notification,
    unreadable,
)

_MAX_LINE: Final = 64 * 1024 * 1024
_KINDS: Final = ("tools", "prompts", "resources")
_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_RESTARTED: Final = "the server was restarted because its source changed; call again"


class _OpenListen(msgspec.Struct):
    """An open subscription of the modern era."""

    line: bytes
    acknowledged: bool = False
    renewed: bool = False


class Handover:
    """The lines between a client and a server that may be replaced. `to_client` and `to_server` are for the driver to empty."""

    def __init__(self) -> None:
        """Begin without a server."""
        self.to_client: list[bytes] = []
        self.to_server: list[bytes] = []
        self._state: Literal["waiting", "greeting", "serving", "broken"] = "waiting"
        self._problem = ""
        self._client_reader = LineReader(_MAX_LINE)
        self._server_reader = LineReader(_MAX_LINE)
        self._held: deque[bytes] = deque()
        self._numbers = 0
        self._in_flight: dict[RequestId | None, tuple[RpcRequest, bytes]] = {}
        self._listening: dict[RequestId | None, _OpenListen] = {}
        self._asked: set[RequestId | None] = set()
        self._swallowed: set[RequestId | None] = set()
        # What a handshake client has agreed on.
        self._hello: bytes | None = None
        self._greeting: RequestId | None = None
        self._initialized: bytes | None = None
        self._kinds: set[str] = set()
        self._level: bytes | None = None
        self._subscribed: dict[str, bytes] = {}

    # What happens to the servers.

    def begin(self) -> None:
        """Record that a server has been started."""
        self._server_reader = LineReader(_MAX_LINE)
        self._greeting = None
        if self._hello is None:
            self._resume()
            return
        self._state = "greeting"
        self._greeting = self._send_again(self._hello)

    def replace(self) -> None:
        """Record that the server has ended and will be replaced; the senders of its pending requests are notified."""
        self._state = "waiting"
        self._abandon(_RESTARTED)

    def give_up(self, problem: str) -> None:
        """Record that the server exited and is not restarted yet: requests are answered with `problem`."""
        self._state, self._problem = "broken", problem
        self._abandon(problem)
        self._release()

    def _abandon(self, problem: str) -> None:
        for request, line in list(self._in_flight.values()):
            if request.method == "initialize" and line and self._state == "waiting":
                self._held.appendleft(line)  # nothing has happened yet: let the next server answer
            else:
                self.to_client.append(encode_error(request.id, INTERNAL_ERROR, problem))
        for request_id in self._asked:
            params = encode({"requestId": request_id, "reason": problem})
            self.to_client.append(encode_notification("notifications/cancelled", params))
        self._in_flight.clear()
        self._asked.clear()
        self._swallowed.clear()

    def _resume(self) -> None:
        """Agree again on the rest, and let through what waits."""
        self._state = "serving"
        if self._initialized is not None and self._hello is not None:
            self.to_server.append(self._initialized)
            for line in (self._level, *self._subscribed.values()):
                if line is not None:
                    self._send_again(line)
            for kind in _KINDS:
                if kind in self._kinds:
                    self.to_client.append(encode_notification(f"notifications/{kind}/list_changed"))
        for listen in self._listening.values():
            listen.renewed = listen.acknowledged
            self.to_server.append(listen.line)
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, deque()
        for line in held:
            self._receive_client_line(line)

    def _send_again(self, line: bytes) -> RequestId:
        """Send a request once more, under an id of ours; its answer will be swallowed."""
        self._numbers += 1
        request_id = f"linkspan-reload-{self._numbers}"
        message: JSONObject = msgspec.json.decode(line)
        self.to_server.append(encode({**message, "id": request_id}))
        self._swallowed.add(request_id)
        return request_id

    # From the client.

    def receive_from_client(self, data: bytes) -> None:
        """Take bytes of the client's."""
        for line in self._client_reader.receive_data(data):
            self._receive_client_line(line)

    def receive_client_eof(self) -> None:
        """Take what had no end of line."""
        for line in self._client_reader.receive_eof():
            self._receive_client_line(line)

    def _receive_client_line(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            problem = unreadable(line, f"Parse error: message longer than {_MAX_LINE} bytes")
            self.to_client.append(encode_error(problem.reply_id, problem.code, problem.message))
            return
        if self._state in ("waiting", "greeting"):
            self._held.append(line)
            return
        message = decode(line)
        if isinstance(message, Batch):
            wanted = [self._track(each, b"") for each in message.messages]
        else:
            wanted = [self._track(message, line)]
        if self._state == "serving" and any(wanted):
            self.to_server.append(line)

    def _track(self, message: Message, line: bytes) -> bool:
        """Record what may have to be sent again, except parts of batches; return whether to pass the message on."""
        match message:
            case RpcRequest():
                if self._state == "broken":
                    self.to_client.append(encode_error(message.id, INTERNAL_ERROR, self._problem))
                elif message.method == _LISTEN and line:
                    self._listening[message.id] = _OpenListen(line)
                else:
                    self._in_flight[message.id] = (message, line)
            case Notification("notifications/initialized"):
                self._initialized = line
            case Notification("notifications/cancelled"):
                cancelled = _read_id(_read(message.params), "requestId")
                self._in_flight.pop(cancelled, None)
                self._listening.pop(cancelled, None)
            case Response() | ErrorResponse() if message.id is not None:
                if message.id not in self._asked:
                    return False  # asked by a server that has ended
                self._asked.discard(message.id)
            case _:
                pass
        return True

    # From the server.

    def receive_from_server(self, data: bytes) -> None:
        """Take bytes of the present server's."""
        for line in self._server_reader.receive_data(data):
            if isinstance(line, TooLong):
                lost = unreadable(line, f"the server sent a message longer than {_MAX_LINE} bytes")
                if lost.id is not None and lost.kind == "response":
                    self._in_flight.pop(lost.id, None)
                    self.to_client.append(encode_error(lost.id, INTERNAL_ERROR, lost.message))
                continue
            message = decode(line)
            passes = [self._passes(each) for each in (message.messages if isinstance(message, Batch) else [message])]
            if isinstance(message, Batch) or passes[0]:
                self.to_client.append(line)

    def _passes(self, message: Message) -> bool:
        """Return whether to pass the message to the client."""
        match message:
            case Response() | ErrorResponse():
                return self._receive_answer(message)
            case RpcRequest():
                self._asked.add(message.id)
            case Notification("notifications/cancelled"):
                self._asked.discard(_read_id(_read(message.params), "requestId"))
            case Notification(method) if method == _ACKNOWLEDGED:
                return self._receive_acknowledgement(_read(message.params))
            case _:
                pass
        return True

    def _receive_answer(self, message: Response | ErrorResponse) -> bool:
        if message.id in self._swallowed:
            self._swallowed.discard(message.id)
            if message.id == self._greeting:
                self._record_offers(message)
                self._resume()
            return False
        self._listening.pop(message.id, None)
        request, line = self._in_flight.pop(message.id, (None, b""))
        if request is not None and line and isinstance(message, Response):
            self._remember(request, line, message)
        return True

    def _remember(self, request: RpcRequest, line: bytes, answer: Response) -> None:
        """Keep a request that the next server has to get too, now that this one has granted it."""
        match request.method:
            case "initialize":
                self._hello, self._level, self._subscribed = line, None, {}
                self._record_offers(answer)
            case "logging/setLevel":
                self._level = line
            case "resources/subscribe" | "resources/unsubscribe":
                params = _read(request.params)
                uri = params.get("uri") if is_object(params) else None
                self._subscribed.pop(str(uri), None)
                if request.method == "resources/subscribe":
                    self._subscribed[str(uri)] = line
            case _:
                pass

    def _record_offers(self, answer: Response | ErrorResponse) -> None:
        result = _read(answer.result) if isinstance(answer, Response) else None
        offers = result.get("capabilities") if is_object(result) else None
        for kind in _KINDS:
            offer = offers.get(kind) if is_object(offers) else None
            if is_object(offer) and offer.get("listChanged") is True:
                self._kinds.add(kind)

    def _receive_acknowledgement(self, params: JSON) -> bool:
        """Let the first one through. After each later one the client is notified that everything may have changed."""
        request_id = _read_id(params.get("_meta") if is_object(params) else None, SUBSCRIPTION_ID)
        listen = self._listening.get(request_id)
        if listen is None or not is_object(params):
            return True
        renewed, listen.renewed, listen.acknowledged = listen.renewed, False, True
        granted = params.get("notifications")
        if renewed and is_object(granted):
            tag = encode({"_meta": {SUBSCRIPTION_ID: request_id}})
            for kind in _KINDS:
                if granted.get(f"{kind}ListChanged"):
                    self.to_client.append(encode_notification(f"notifications/{kind}/list_changed", tag))
        return not renewed


def _read(raw: msgspec.Raw) -> JSON:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_id(members: JSON, name: str) -> RequestId | None:
    found = members.get(name) if is_object(members) else None
    return found if isinstance(found, int | str) else None
