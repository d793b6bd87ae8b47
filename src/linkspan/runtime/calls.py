"""Runs the calls that a connection hands out. What differs between the transports comes in through a `TransportPort`.

Law: one lock per connection, held around each of its methods and never while code of the author runs: functions, validators,
the server context, hooks. All of it runs as a call does, or ends one.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, cast

from linkspan.core.call import Ports
from linkspan.events import CallCancelled, Event
from linkspan.runtime.workers import MAX_WORKERS, Workers

if TYPE_CHECKING:
    from linkspan.core.call import Call, Conclusion

__all__ = ["Connect", "Connectable", "Connection", "Driver", "TransportPort"]


class Connection(Protocol):
    """The server's end of a byte stream, as a driver sees it: `ServerConnection` says what each method means."""

    @property
    def running(self) -> int: ...
    @property
    def accepting(self) -> bool: ...
    def receive_data(self, data: bytes) -> list[Event[Call]]: ...
    def receive_eof(self) -> list[Event[Call]]: ...
    def conclude(self, call: Call, value: object) -> Conclusion: ...
    def conclude_failure(self, call: Call, error: BaseException) -> Conclusion: ...
    def settle(self, call: Call, conclusion: Conclusion) -> list[Event[Call]]: ...
    def data_to_send(self) -> bytes: ...
    def next_timeout(self) -> float | None: ...
    def handle_timeout(self, now: float) -> list[Event[Call]]: ...
    def close(self) -> list[Event[Call]]: ...


class Connectable(Protocol):
    """A server, as a transport sees it."""

    def connect(self, *, ports: Ports) -> Connection:
        """Open a connection."""
        ...


class Connect(Protocol):
    """Opens a connection, as `Connectable.connect` does."""

    def __call__(self, *, ports: Ports) -> Connection: ...


class TransportPort(Protocol):
    """What a transport does for its driver. Each method may be called from any thread, without the lock."""

    def flush(self) -> None:
        """Send what the connection has to send, now or very soon."""
        ...

    def start(self, call: Call, awaitable: Awaitable[object] | None) -> None:
        """Run an async call on an event loop, or only wait for the `awaitable` that its function has returned."""
        ...

    def cancel(self, call: Call) -> None:
        """Stop a call that was started, if it still runs."""
        ...


class Driver:
    """Feeds one connection and runs its calls: inline, in a worker thread, or through the face on an event loop."""

    def __init__(
        self,
        connect: Connect,
        face: TransportPort,
        *,
        max_workers: int = MAX_WORKERS,
        congested: Callable[[], bool] = bool,
    ) -> None:
        """Open a connection, and drive it. `congested` returns whether progress and logs are dropped."""
        self.lock = threading.RLock()
        self.connection = connect(ports=Ports(self.lock, face.flush, congested))
        self._face = face
        self._context = contextvars.copy_context()
        self._workers: Workers[Call] = Workers(self._work, max_workers)
        self._endings: Workers[Callable[[], object]] = Workers(self._end, max(1, max_workers))
        self._nested: dict[int, deque[Event[Call]]] = {}
        self._threadless = max_workers < 1

    def receive_data(self, data: bytes) -> None:
        """Feed bytes and start what they ask for."""
        with self.lock:
            events = self.connection.receive_data(data)
        self.perform(events)

    def receive_eof(self) -> None:
        """Feed the end of the stream."""
        with self.lock:
            events = self.connection.receive_eof()
        self.perform(events)

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is due, by the connection's clock."""
        with self.lock:
            return self.connection.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Let the connection end what has waited too long."""
        with self.lock:
            deadline = self.connection.next_timeout()
            events = self.connection.handle_timeout(now) if deadline is not None and deadline <= now else []
        self.perform(events)

    def close(self) -> None:
        """Say goodbye and cancel what runs."""
        with self.lock:
            events = self.connection.close()
        self.perform(events)

    def perform(self, events: Iterable[Event[Call]]) -> None:
        """Do what the connection asks for."""
        for event in events:
            call = event.call
            if type(event) is CallCancelled:
                self._face.cancel(call)
                self._workers.abandon(call)
            elif call.is_async:
                self._face.start(call, None)
            elif call.inline or self._threadless:
                self._run(call, None)
            else:
                self._workers.submit(call)

    def _run(self, call: Call, context: contextvars.Context | None) -> None:
        """Run a plain call here and now, and hand in what came of it; what its end brings does not see its context."""
        try:
            value = call.run() if context is None else context.run(call.run)
        except BaseException as error:
            conclusion = self.connection.conclude_failure(call, error)
        else:
            if hasattr(type(value), "__await__"):
                self._face.start(call, cast("Awaitable[object]", value))
                return
            conclusion = self.connection.conclude(call, value)
        with self.lock:
            events = self.connection.settle(call, conclusion)
        if events:
            self._perform_next(events)

    def finish(self, call: Call, value: object) -> None:
        """Hand in the value of a call."""
        self._settle(call, self.connection.conclude(call, value))

    def fail(self, call: Call, error: BaseException) -> None:
        """Hand in the exception of a call."""
        self._settle(call, self.connection.conclude_failure(call, error))

    def end_in_thread(self, end: Callable[[], object]) -> None:
        """Run `finish` or `fail` of a call whose end runs hooks of the author's, which an event loop must not wait for."""
        self._endings.submit(end)

    def _end(self, end: Callable[[], object]) -> None:
        end()
        self._face.flush()

    def _settle(self, call: Call, conclusion: Conclusion) -> None:
        with self.lock:
            events = self.connection.settle(call, conclusion)
        if events:
            self._perform_next(events)

    def _perform_next(self, events: list[Event[Call]]) -> None:
        """Do what came of a call that has ended: a chain of calls, each of which makes room for the next, must not nest."""
        thread = threading.get_ident()
        queue = self._nested.get(thread)
        if queue is not None:
            queue += events
            return
        queue = self._nested[thread] = deque(events)
        try:
            while queue:
                self.perform((queue.popleft(),))
        finally:
            del self._nested[thread]

    def _work(self, call: Call) -> None:
        if not call.cancelled:
            self._run(call, self._context.copy())
            self._face.flush()
