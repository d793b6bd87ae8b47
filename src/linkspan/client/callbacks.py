"""What a client calls of its application: callbacks, in the order of events, and the handlers that answer the server.

`CallbackQueue` runs away from the thread that reads: on the application's event loop if it has one, else in a thread that lives
while there are events. If the loop ends meanwhile, a thread goes on. What a callback raises is logged.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.client.transports.base import ClientTransport, Recorder
from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from linkspan.flows.answers import Handlers, InvalidAnswer, Refused, encode_answer, failed, read_question
from linkspan.flows.client_errors import (
    Change,
    ClientEvent,
    Connected,
    Disconnected,
    StateLost,
    StreamRestored,
)
from linkspan.loading import logger
from linkspan.runtime.forks import renew
from linkspan.types.base import Wire
from linkspan.types.messages import LoggingMessageParams
from linkspan.wire.jsonrpc import Notification, RequestId, RpcRequest
from linkspan.wire.reports import Report

if TYPE_CHECKING:
    import asyncio

    from linkspan.flows.http_messages import HttpHop

_REFUSED: Final = -1


def is_awaitable(value: object) -> bool:
    """Return whether a value must be awaited."""
    return hasattr(type(value), "__await__")


def finished(value: Any) -> Any:
    """Return what a function returned, or what the coroutine that it returned gives on our own loop."""
    if not is_awaitable(value):
        return value
    from linkspan.runtime.background import run_awaitable

    return run_awaitable(value)


class Callbacks(msgspec.Struct, frozen=True):
    """What an application wants to hear; each may be a coroutine function."""

    on_log: Callable[[LoggingMessageParams], Any] | None = None
    on_change: Callable[[Change], Any] | None = None
    on_event: Callable[[ClientEvent], Any] | None = None
    on_notification: Callable[[str, Any], Any] | None = None
    on_stderr: Callable[[str], Any] | None = None
    on_report: Callable[[Report], Any] | None = None
    recorder: Recorder | None = None
    on_http: Callable[[HttpHop], Any] | None = None


class PendingQuestion(msgspec.Struct, frozen=True):
    """A request of a handshake server that waits for one of our handlers."""

    transport: ClientTransport
    request_id: RequestId
    method: str
    params: Wire | None
    handler: Callable[[], Any]

    def answer(self, value: object) -> None:
        """Send what the handler returned."""
        try:
            result = encode_answer(self.transport.machine.agreement.revision, self.method, self.params, value)
        except Exception as error:  # there is no end to what a handler may return
            self.fail(error)
        else:
            self.transport.answer(self.request_id, result)

    def fail(self, error: BaseException) -> None:
        """End the call that the server asks for with what went wrong, and refuse the question without details."""
        if isinstance(error, Refused):
            self.transport.refuse(self.request_id, _REFUSED, str(error))
            return
        trace = None if isinstance(error, InvalidAnswer) else error
        logger("linkspan").error("the handler for %s failed: %s", self.method, error, exc_info=trace)
        raised = failed(self.method, self.transport.state.origin, error)
        raised.__cause__ = error
        self.transport.fail_call(self.request_id, raised)
        self.transport.refuse(self.request_id, INTERNAL_ERROR, "The client's handler failed")


def answer_in_thread(question: PendingQuestion) -> None:
    """Run a handler in a thread of its own: it may well wait for a person."""

    def run() -> None:
        try:
            value = question.handler()
            if is_awaitable(value):
                from linkspan.runtime.background import run_awaitable

                value = run_awaitable(value)
        except BaseException as error:
            question.fail(error)
        else:
            question.answer(value)

    try:
        threading.Thread(target=run, name="linkspan-answer", daemon=True).start()
    except RuntimeError as error:  # the server must not wait for an answer that cannot come
        question.fail(error)


class _WaitingWalk:
    """One walk through what waits, on a loop or in a thread (None). `task` is only held."""

    __slots__ = ("loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None

    @property
    def stranded(self) -> bool:
        """Whether its loop has ended under it."""
        return self.loop is not None and self.loop.is_closed()


class CallbackQueue:
    """One application's deliveries. `loop` is where its callbacks belong, None for a thread; `answer` runs a handler."""

    def __init__(self) -> None:
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with nothing to deliver; what waits in the parent is delivered there."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.answer: Callable[[PendingQuestion], object] = answer_in_thread
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[tuple[Callable[..., Any], object]] = deque()
        self._round: _WaitingWalk | None = None

    def post(self, callback: Callable[..., Any], value: object) -> None:
        """Call `callback` with `value`, after everything that was posted before."""
        with self._lock:
            self._waiting.append((callback, value))
            if self._round is not None and not self._round.stranded:
                return
            begun = self._round = _WaitingWalk(self.loop)
        self._begin(begun)

    def settle(self, timeout: float) -> None:
        """Wait until everything is delivered, at most `timeout` seconds; not where that would be waiting for the caller."""
        if _delivering.get() is self:
            return
        with self._lock:
            current = self._round
            if current is not None and current.stranded:
                current = self._round = _WaitingWalk(None)
                self._begin(current)
            if current is None or (current.loop is not None and not _runs_elsewhere(current.loop)):
                return
            self._idle.wait_for(lambda: self._round is None, timeout)

    def _begin(self, begun: _WaitingWalk) -> None:
        if begun.loop is not None:
            try:
                begun.loop.call_soon_threadsafe(self._start, begun, begun.loop)
            except RuntimeError:
                begun.loop = None  # closed: the callbacks still come, in a thread
            else:
                return
        try:
            threading.Thread(target=self._deliver, args=(begun,), name="linkspan-callbacks", daemon=True).start()
        except RuntimeError:  # the system has no more threads: the next delivery tries again
            self._round = None

    def _hand_over(self, ended: _WaitingWalk) -> None:
        """Go on in a thread with what a round has left, because it cannot."""
        with self._lock:
            if self._round is not ended:
                return
            begun = self._round = _WaitingWalk(None)
        self._begin(begun)

    def _next(self, current: _WaitingWalk) -> tuple[Callable[..., Any], object] | None:
        with self._lock:
            if self._round is not current:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._round = None
            self._idle.notify_all()
            return None

    def _deliver(self, current: _WaitingWalk) -> None:
        _delivering.set(self)
        try:
            while (next_one := self._next(current)) is not None:
                callback, value = next_one
                try:
                    found = callback(value)
                    if is_awaitable(found):
                        from linkspan.runtime.background import run_awaitable

                        run_awaitable(found)
                except Exception:
                    _complain(callback)
        except BaseException:
            self._hand_over(current)
            raise

    def _start(self, current: _WaitingWalk, loop: asyncio.AbstractEventLoop) -> None:
        current.task = loop.create_task(self._deliver_on_loop(current))

    async def _deliver_on_loop(self, current: _WaitingWalk) -> None:
        _delivering.set(self)
        try:
            while (next_one := self._next(current)) is not None:
                callback, value = next_one
                try:
                    found = callback(value)
                    if is_awaitable(found):
                        await found
                except Exception:
                    _complain(callback)
        except BaseException:  # cancelled, with its loop most likely
            self._hand_over(current)
            raise


class Application:
    """Whom a client serves: the handlers and callbacks that it was given, and where they run."""

    def __init__(self, handlers: Handlers, callbacks: Callbacks, queue: CallbackQueue | None = None) -> None:
        """Call what is given by `queue`, or by a queue of its own."""
        self.handlers = handlers
        self.callbacks = callbacks
        self.queue = queue if queue is not None else CallbackQueue()

    def of_a_session(self) -> Application:
        """Return the same for the session of another principal, whose connecting and losing is no event for this one."""
        on_event = self.callbacks.on_event

        def on_loss(event: ClientEvent) -> object:
            return on_event(event) if on_event is not None and isinstance(event, StateLost) else None

        callbacks = msgspec.structs.replace(self.callbacks, on_event=on_loss, on_change=None, on_stderr=None)
        return Application(self.handlers, callbacks, self.queue)

    def ask(self, transport: ClientTransport, request: RpcRequest) -> None:
        """Let the handler for a question of the server answer it, or refuse it."""
        try:
            params = read_question(request.method, request.params)
        except (msgspec.DecodeError, RecursionError):
            transport.refuse(request.id, INVALID_PARAMS, f"Invalid params for {request.method}")
            return
        handler = self.handlers.handler(request.method, params)
        if handler is None:
            known = request.method in self.handlers.answerable()
            code = INVALID_PARAMS if known else METHOD_NOT_FOUND
            transport.refuse(request.id, code, f"This client does not support this kind of {request.method[:80]}")
            return
        self.queue.answer(PendingQuestion(transport, request.id, request.method, params, handler))

    def notify(self, message: Notification, owner: object) -> None:
        """Pass on a notification that is not about changes: a log message, or any other."""
        on_log, on_other = self.callbacks.on_log, self.callbacks.on_notification
        try:
            if message.method == "notifications/message":
                if on_log is not None:
                    self.queue.post(on_log, _log_message.decode(message.params or b"{}"))
            elif on_other is not None:
                self.queue.post(partial(on_other, message.method), _json.decode(message.params or b"null"))
        except (msgspec.DecodeError, RecursionError):
            return

    def person_awaited(self) -> None:
        """Do nothing: a person who logs in knows it. Must not block."""

    def report(self, event: ClientEvent) -> None:
        """Pass on what has happened to the connection, and log what the client does about a failure."""
        if not isinstance(event, Connected):
            logger("linkspan.client").info(
                _LOGGED[type(event)], event.server, event.error.problem, extra={"server": event.server}
            )
        if self.callbacks.on_event is not None:
            self.queue.post(self.callbacks.on_event, event)


_LOGGED: Final[Mapping[type[ClientEvent], str]] = {
    Disconnected: "%s: the connection was lost, the next call opens another: %s",
    StateLost: "%s: a new connection took the place of a lost one, and what the server kept in memory is gone: %s",
    StreamRestored: "%s: the stream of notifications was lost and is open again, changes may have been missed: %s",
}
_log_message = msgspec.json.Decoder(LoggingMessageParams)
_json = msgspec.json.Decoder()
_delivering: contextvars.ContextVar[CallbackQueue | None] = contextvars.ContextVar("linkspan_delivering", default=None)
"""Whose callback this is: what it calls must not wait for it."""


def _runs_elsewhere(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether another thread is running that loop now."""
    import asyncio

    try:
        return loop.is_running() and asyncio.get_running_loop() is not loop
    except RuntimeError:
        return True


def _complain(callback: Callable[..., Any]) -> None:
    logger("linkspan").exception("a client's callback %r raised", callback)
