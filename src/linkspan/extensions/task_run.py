"""One run of a task in this process: what it brings, and whether that still counts. Any thread may use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from msgspec import Raw

from linkspan.core.call import CANCELLED, Call, CallCancelled, CallReady, Event
from linkspan.revisions.neutral import Outcome, Request
from linkspan.stores.leases import Lease
from linkspan.types.base import Wire
from linkspan.types.messages import ProgressParams


class TaskRun:
    """One run of a task in this process, or of a call that may become one. `lease` is None until it is one."""

    def __init__(
        self, task_id: str, request: Request, settle: Callable[[TaskRun], object], wake: Callable[[], object]
    ) -> None:
        """`settle` writes the outcome down, `wake` has the message written down soon."""
        self.id = task_id
        self.request = request
        self.lease: Lease | None = None
        self.call: Call | None = None
        self.message: str | None = None
        """What has to be written down."""
        self.renewed = self.written = 0.0
        """When the lease, and when a message, was written last."""
        self.ends: float | None = None
        """When the time of the task is over."""
        self.outcome: Outcome | None = None
        self.ended: Future[Outcome] = Future()
        self.ended.set_running_or_notify_cancel()  # so that a waiter that is cancelled cannot cancel it
        self.abandoned = False
        """It is another's by now, or over: what it still brings is thrown away."""
        self.settling = threading.Lock()
        """Held while the outcome is written down, and for ever once it has been."""
        self._began = False
        self._lock = threading.Lock()
        self._settle = settle
        self._wake = wake

    # What runs calls does with it (core.call.RunsCalls).

    def finish(self, call: Call, value: object) -> list[Event]:
        """Take the value of the function."""
        self.end(call.finish(value))
        return []

    def fail(self, call: Call, error: BaseException) -> list[Event]:
        """Take its exception."""
        self.end(call.fail(error))
        return []

    def start(self, step: Call) -> CallReady:
        """Return the event that runs a call."""
        self.call, step.hooked = step, True  # its end writes to the store, for which an event loop must not wait
        step.run = partial(self._enter, step.run)
        return CallReady(step)

    def _enter(self, run: Callable[[], object]) -> object:
        self._began = True
        return run()

    def end(self, outcome: Outcome) -> None:
        """Take the outcome, once, and write it down if this is a task."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome, is_awaited = outcome, self.lease is None and not self.abandoned
        try:
            if not is_awaited:
                self._settle(self)
        finally:
            self.ended.set_result(outcome)

    def become_task(self, lease: Lease, now: float, ends: float | None) -> None:
        """Go on as a task, until its time is over; what comes from now on is written down."""
        request = self.request
        with self._lock:
            self.lease, self.renewed, self.ends, has_ended = lease, now, ends, self.outcome is not None
        request.emit = self.emit
        if request.progress_token is None:
            request.progress_token = self.id
        if has_ended:
            self._settle(self)

    def give_up(self) -> bool:
        """Throw away what it still brings; return whether it has ended already."""
        with self._lock:
            self.abandoned = True
            return self.outcome is not None

    def emit(self, _: Request, __: str, params: Wire | Raw) -> None:
        """Keep progress as the message of the task; nothing else is sent on its behalf (TSK-S10)."""
        if not isinstance(params, ProgressParams):
            return
        of = "" if params.total is None else f" of {params.total:g}"
        has_waited, self.message = self.message is not None, params.message or f"{params.progress:g}{of}"
        if not has_waited:
            self._wake()

    def cancel(self, reason: str) -> list[Event]:
        """Ask the function to end; return what stops it. One that has not begun has ended with this."""
        self.request.cancel(reason)
        call = self.call
        if not self._began:
            self.end(CANCELLED)
        return [CallCancelled(call)] if call is not None else []

    def let_go(self) -> None:
        """Hold nothing that holds this run: a result may be large, and must not wait for the collector."""
        self.call = None
        self.request.emit = _ignore


def _ignore(_: Request, __: str, ___: Wire | Raw) -> None:
    """Take what a function sends after its run has ended."""
