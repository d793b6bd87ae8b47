"""What a client asks before it agrees with a server, and which URLs turned out to be of the handshake era (ERA-2)."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

import msgspec

from linkspan.client.transports.base import CallbackWaiter, ClientTransport, PendingRequest, Waiter, stands
from linkspan.core.flow import RequestSpec, Send
from linkspan.flows.client_errors import ClientError
from linkspan.flows.state import ClientSpan, ClientState
from linkspan.runtime.forks import start_afresh_with
from linkspan.wire.jsonrpc import ErrorResponse, Response

_LEAST: float = 0.1
Answer: TypeAlias = Response | ErrorResponse | ClientError


class Asking:
    """The requests of one negotiation."""

    def __init__(self, state: ClientState) -> None:
        """Ask for `timeouts.connect` seconds; those in which a person logs in do not count."""
        self._state = state
        self._give_up = state.clock() + state.options.timeouts.connect
        self._inbox: SimpleQueue[tuple[Waiter, Any]] = SimpleQueue()
        self._answers: dict[Waiter, Answer] = {}
        self._spans: dict[Waiter, ClientSpan] = {}
        self._beside: tuple[RequestSpec, Waiter] | None = None

    @property
    def left(self) -> float:
        """Seconds that are left; never none at all."""
        return max(_LEAST, self._give_up - self._state.clock())

    def ask(self, transport: ClientTransport, send: Send) -> Response | ErrorResponse | None:
        """Return the answer to a request; None if the one beside it got its result first. Raises: ClientError.

        What was sent beside another is not sent again: its answer is the one that is under way.
        """
        if self._beside is not None and self._beside[0] == send.spec:
            (_, place), self._beside = self._beside, None
            return self._answer_to(place)
        place = self._submit(transport, send.spec)
        if send.beside is None or self._comes_within(place, min(send.after, self.left)):
            return self._answer_to(place)
        rival = self._submit(transport, send.beside)
        self._beside = send.beside, rival
        while place not in self._answers and not isinstance(self._answers.get(rival), Response):
            self._receive()
        if place in self._answers:
            return self._answer_to(place)
        pending_request: PendingRequest = place.pending_request
        transport.give_up(pending_request.request_id, None)
        self._end_span(place, None)
        return None

    def end(self, transport: ClientTransport) -> None:
        """Let go of a request that was sent beside another and is not needed after all."""
        if self._beside is not None:
            pending_request: PendingRequest = self._beside[1].pending_request
            transport.discard(pending_request.request_id)
            self._end_span(self._beside[1], None)

    def _submit(self, transport: ClientTransport, spec: RequestSpec) -> Waiter:
        place: Waiter = CallbackWaiter(lambda item: self._inbox.put((place, item)))
        left, telemetry = self.left, transport.state.telemetry
        if telemetry is not None:
            self._spans[place] = span = telemetry.begin(transport.state, spec)
            spec = span.spec
        transport.submit(msgspec.structs.replace(spec, timeout=min(spec.timeout or left, left)), place)
        transport.flush()
        return place

    def _comes_within(self, place: Waiter, seconds: float) -> bool:
        """Return whether an answer comes in time; the time in which a person logs in does not count."""
        end = self._state.clock() + seconds
        while (left := end - self._state.clock()) > 0 or stands(self._state.clock):
            with suppress(Empty):
                self._receive(max(left, _LEAST))
                return place in self._answers
        return False

    def _receive(self, timeout: float | None = None) -> None:
        place, answer = self._inbox.get(timeout=timeout)
        self._answers[place] = answer

    def _answer_to(self, place: Waiter) -> Response | ErrorResponse:
        while place not in self._answers:
            self._receive()
        answer = self._answers.pop(place)
        self._end_span(place, answer)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def _end_span(self, place: Waiter, outcome: Answer | None) -> None:
        if (span := self._spans.pop(place, None)) is not None:
            span.end(outcome)


_MOST: Final = 256
_SECONDS: Final = 600.0

_known: dict[str, float] = {}
_lock = threading.Lock()


def remember_legacy(endpoint: str) -> None:
    """Remember that the server at `endpoint` wants a handshake."""
    with _lock:
        _known.pop(endpoint, None)
        while len(_known) >= _MOST:
            del _known[next(iter(_known))]
        _known[endpoint] = time.monotonic() + _SECONDS


def is_legacy(endpoint: str) -> bool:
    """Return whether a server is known to require a handshake."""
    with _lock:
        until = _known.get(endpoint)
        if until is not None and until < time.monotonic():
            del _known[endpoint]
            return False
        return until is not None


def forget(endpoint: str) -> None:
    """Take back what was remembered."""
    with _lock:
        _known.pop(endpoint, None)


def _start_afresh() -> None:
    global _lock
    _lock = threading.Lock()


start_afresh_with(_start_afresh)
