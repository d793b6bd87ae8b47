"""Run the flows of shared sessions with the store of a server, and bring the endpoint what other processes send."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from linkspan.core.shared_state import (
    Append,
    Drop,
    Due,
    Load,
    Publish,
    Read,
    Save,
    Schedule,
    StoreFlow,
    StoreOperation,
)
from linkspan.errors import LinkspanError
from linkspan.runtime.forks import ForkedLock
from linkspan.runtime.workers import Workers
from linkspan.stores.port import Bounds, Record, Store, StoreError

if TYPE_CHECKING:
    from linkspan.core.shared_endpoint import SharedEndpoint

ResultT = TypeVar("ResultT")
_log: Final = logging.getLogger("linkspan.http")


def perform(store: Store, operation: StoreOperation) -> object:
    """Carry out one operation of a flow. Raises: StoreError."""
    match operation:
        case Load(key):
            return store.get(key)
        case Save(key, value, expect, ttl):
            return store.put(key, value, expect=expect, ttl=ttl)
        case Drop(key):
            return store.delete(key)
        case Schedule(queue, key, at):
            store.schedule(queue, key, at)
        case Due(queue, now, limit):
            return store.due(queue, now, limit)
        case Append(log, data, items, size, ttl):
            return store.append(log, data, Bounds(items=items, bytes=size, ttl=ttl))
        case Read(log):
            return [each.data for each in store.read(log)]
        case Publish(channel, data):
            store.publish(channel, data)
    return None


class StoreFlows:
    """Runs flows in the thread that asks for them; those that none waits for in one of their own, unless the store is quick."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """Use `store()`, which opens it where that is needed."""
        self._store = store
        self._workers: Workers[Callable[[], object]] = Workers(operator.call, 1)
        self._endpoint: SharedEndpoint | None = None
        self._receive: Callable[[bytes | None], object] = bool
        self._subscribed: tuple[str, ...] = ()
        self._attempt: tuple[tuple[str, ...], Future[None]] | None = None
        """To subscribe to these channels: it goes on."""
        self._lock = ForkedLock()

    @property
    def quick(self) -> bool:
        """Whether an event loop may wait for the store."""
        return self._store().quick

    def deliver(self, endpoint: SharedEndpoint, receive: Callable[[bytes | None], object]) -> None:
        """Call `receive` with what comes for `endpoint`, in a thread of the store, once a flow has run in this process."""
        self._endpoint, self._receive = endpoint, receive

    def load(self, key: str) -> Record | None:
        """Return a record."""
        return self._ready().get(key)

    def _ready(self) -> Store:
        """Return the store, once what comes for the endpoint arrives."""
        store = self._store()
        if self._endpoint is not None and self._subscribed is not (channels := self._endpoint.channels):
            self._subscribe(store, channels)
        return store

    def run(self, flow: StoreFlow[ResultT]) -> ResultT:
        """Run a flow here, and return its value."""
        store = self._ready()
        result: Any = None
        problem: LinkspanError | None = None
        while True:
            try:
                operation = flow.send(result) if problem is None else flow.throw(problem)
            except StopIteration as end:
                value: ResultT = end.value
                return value
            result = problem = None
            try:
                result = perform(store, operation)
            except LinkspanError as error:
                problem = error

    def _subscribe(self, store: Store, channels: tuple[str, ...]) -> None:
        """Subscribe this process, once: all who come meanwhile wait for one attempt, and fail with it. Raises: LinkspanError."""
        with self._lock:
            if self._subscribed is channels:
                return None
            is_first = self._attempt is None or self._attempt[0] is not channels  # those of a forked child are others
            if is_first:
                self._attempt = channels, Future()
            assert self._attempt is not None
            attempt = self._attempt[1]
        if not is_first:
            return attempt.result()
        try:
            with ExitStack() as if_one_fails:
                for channel in channels:
                    if_one_fails.callback(store.subscribe(channel, self._receive))
                if_one_fails.pop_all()
        except BaseException as problem:
            self._attempt = None
            is_ours = isinstance(problem, Exception)  # the others are about this thread only, such as SystemExit
            attempt.set_exception(problem if is_ours else StoreError("the subscription to the store was interrupted"))
            raise
        self._subscribed, self._attempt = channels, None
        attempt.set_result(None)
        return None

    def spawn(self, flow: StoreFlow[object]) -> None:
        """Run a flow soon; what fails is logged."""
        if self._store().quick:
            self._run_logged(flow)
        else:
            self._workers.submit_or_run(lambda: self._run_logged(flow))

    def _run_logged(self, flow: StoreFlow[object]) -> None:
        try:
            self.run(flow)
        except LinkspanError as error:
            _log.warning("the store of the sessions failed: %s", error)
