"""Runs the tasks of one server in this process, each by the lease in its record.

One thread renews the leases, looks for tasks that no process has, and writes down how far runs have come; the functions run in
threads and on the event loop, as those of other calls do. Law: no lock is held while the store is used.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from linkspan.core.call import Call
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions import task_record
from linkspan.extensions.submit_queue import SubmitQueue
from linkspan.extensions.task_changes import TaskChanges
from linkspan.extensions.task_claims import TaskClaims, sooner
from linkspan.extensions.task_host import TaskHost
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_run import TaskRun
from linkspan.extensions.task_runs import TaskRuns
from linkspan.extensions.task_schedule import PERIOD, TaskSchedule
from linkspan.extensions.task_store import TaskStore, new_id
from linkspan.revisions.neutral import Request
from linkspan.runtime.calls import CLEANUP
from linkspan.runtime.forks import renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.server.task_settings import Task, TaskEngine
from linkspan.stores.leases import Lease
from linkspan.stores.port import StoreError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LEASE: Final = 20.0
"""Seconds after which the task of a process that is gone is claimed by another."""

_MESSAGES: Final = 0.25
"""Seconds between two messages of one task that are written down."""

_TOO_MANY: Final = "Too many tasks of this principal have not ended (max_tasks_per_principal); try again later [LS-505]"
_FULL: Final = "Too many bytes of ended tasks are kept (max_task_bytes); try again later [LS-505]"


class TaskRunner:
    """The tasks of one server as this process serves them. Any thread may use it."""

    def __init__(
        self,
        host: TaskHost,
        tasks: TaskStore,
        *,
        random: Callable[[int], bytes],
        clock: Callable[[], float] | None = None,
        max_tasks: int = 16,
        max_tasks_per_principal: int = 100,
        max_task_bytes: int = 256 * 1024 * 1024,
        max_task_bytes_per_principal: int = 64 * 1024 * 1024,
        engine: TaskEngine | None = None,
        shared: Callable[[], bool] = bool,
        lease: float = LEASE,
    ) -> None:
        """Run up to `max_tasks` at a time, or leave them to `engine`; `shared()` is whether other processes see the store.

        One principal has three quarters of these places at most, and `max_tasks_per_principal` tasks that have not ended. Of
        those that have ended `max_task_bytes` are kept, and `max_task_bytes_per_principal` of each.
        """
        self.tasks = tasks
        self._host = host
        self._random = random
        self._clock = clock or tasks.now
        self._most_open = max_tasks_per_principal
        self._room = room = tasks.room(max_task_bytes, max_task_bytes_per_principal)
        self._submit_queue = queue = SubmitQueue(engine) if engine is not None else None
        self._shared = shared
        self.runs = TaskRuns(host, max_tasks, self._find_more)
        self.claims = TaskClaims(host, tasks, random, lease)
        self._changes = TaskChanges(host, tasks, room, queue, shared=shared, act=self._act)
        self.schedule = TaskSchedule(
            host,
            tasks,
            self.runs,
            self.claims,
            self._changes,
            room,
            queue,
            most_open=max_tasks_per_principal,
            run=self._run,
        )
        self._begin_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without runs and without claims; those of a parent are the parent's."""
        for each in (self.runs, self.claims, self.schedule):
            each.start_afresh()
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._received: deque[tuple[str, str]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = self._left = self._failing = False

    # The processes that serve.

    def attach(self, user: object, loop: Callable[[], AbstractEventLoop | None]) -> None:
        """Run tasks as long as `user` is there; async functions on `loop()` if it runs."""
        if user not in self.runs.users:
            self.runs.users[user] = loop
            self.use()

    def use(self) -> None:
        """Run tasks: until all users have left, or if there are none as long as there is something to do."""
        if self._left:
            self._left = self._stopping = False
        self.wake()

    def drain(self, user: object) -> None:
        """Claim nothing more for `user`, which will leave."""
        self._stopping = set(self.runs.users) <= {user}

    def leave(self, user: object, within: float, cleanup: float = CLEANUP) -> None:
        """Let `user` go. If it was the last, what runs has `within` seconds to end; the rest is given back and cancelled.

        It has `cleanup` seconds then to close what it opened.
        """
        self.runs.users.pop(user, None)
        if self.runs.users:
            return
        self._stopping = True
        for run in self.runs.wait(within):
            with suppress(StoreError):
                now = self._clock()
                if (record := self.claims.give_back(run, now)) is not None:
                    self._changes.settle(record, now)
            self.runs.abandon(run, "the server is stopping")
        if self._submit_queue is not None:
            self._submit_queue.wait()
        self._woken.set()
        self.runs.stop(cleanup)
        self.start_afresh()
        self._stopping = self._left = True  # what abandoned runs still bring must not begin anything

    # A call that becomes a task.

    def admit(self, request: Request) -> None:
        """Refuse a call that may become a task, where its principal has too many, or all of them keep too much.

        Raises: RemoteProtocolError, StoreError.
        """
        now = self._clock()
        if self.tasks.count(request.facts.principal, now, self._most_open) >= self._most_open:
            raise RemoteProtocolError(INTERNAL_ERROR, _TOO_MANY)
        if self._room.is_full(now):
            raise RemoteProtocolError(INTERNAL_ERROR, _FULL)

    def begin_in_foreground(self, request: Request, step: Call) -> TaskRun:
        """Run a call that becomes a task if it takes long."""
        self.use()
        run = self._add(new_id(self._random), request)
        self.runs.start(run, step)
        return run

    def become_task(self, run: TaskRun, settings: Task) -> TaskRecord:
        """Let a call that runs go on as a task, and return its record. Raises: StoreError."""
        now = self._clock()
        record = task_record.begun(task_record.created(run.request, run.id, settings, now), now)
        lease = self.claims.create(record, now, begins=True)
        run.become_task(lease, now, record.ends)
        self.wake()
        return record

    def create(self, request: Request, settings: Task) -> TaskRecord:
        """Make a task of a call that has not begun, and return its record. Raises: RemoteProtocolError, StoreError."""
        self.use()
        self.admit(request)
        now = self._clock()
        record = task_record.created(request, new_id(self._random), settings, now)
        if self._submit_queue is None and self.runs.has_room(record.owner) and not self._stopping:
            record = task_record.begun(record, now)
            lease = self.claims.create(record, now, begins=True)
            self._run(record, lease, now)
        else:
            self.claims.create(record, now, begins=False)
            self._changes.settle(record, now)
        return record

    # Runs.

    def _add(self, task_id: str, request: Request) -> TaskRun:
        run = TaskRun(task_id, request, self._conclude, self.wake)
        self.runs.add(run)
        return run

    def _run(self, record: TaskRecord, lease: Lease, now: float) -> TaskRun:
        """Run a task that this process has claimed."""
        request = task_record.request_of(record)
        run = self._add(record.id, request)
        run.become_task(lease, now, record.ends)
        self.wake()
        try:
            self._host.reopen(request, record.sealed)
        except RemoteProtocolError as error:  # other keys, or another version of the server
            run.end(error)
            return run
        step = self._host.begin(request)
        if isinstance(step, Call):
            self.runs.start(run, step)
        else:
            run.end(step)
        return run

    def _conclude(self, run: TaskRun) -> None:
        """Write the outcome of a run down, once. If the store fails, `turn` does it again."""
        if not run.settling.acquire(blocking=False):
            return
        try:
            self._changes.conclude(run, self._clock())
        except StoreError as problem:
            run.settling.release()
            self._report(problem)
            return
        self.runs.forget(run)

    def run_now(self, task_id: str) -> None:
        """Run a task here, and return when the run has ended; at once if another process has it. Raises: StoreError."""
        self.schedule.run_now(task_id, self._clock())

    # What clients ask for.

    def find(self, task_id: str) -> TaskRecord | None:
        """Return a task as it is now: one whose time is over has failed, also before a process has written that down."""
        record = self.tasks.get(task_id)
        return task_record.expired(record, self._clock()) if record is not None else None

    def answer(self, record: TaskRecord, responses: Mapping[str, object]) -> None:
        """Take answers to what a task asks. Raises: StoreError."""
        self._changes.answer(record, responses, self._clock())

    def cancel(self, record: TaskRecord) -> None:
        """Cancel a task: at once if no process runs it. Raises: StoreError."""
        self._changes.cancel(record, self._clock())

    # Between processes.

    def receive(self, what: str, task_id: str) -> None:
        """Keep what another process has published for the next turn: the thread of the store must not wait for it."""
        self._received.append((what, task_id))
        self.wake()

    def _handle(self, what: str, task_id: str) -> None:
        """Act on what another process has published; with empty texts, something may have been missed."""
        if what != "changed":
            self._act(what, task_id)
        if what == "cancelled":
            return
        for each in self._host.listened_to():
            if task_id in ("", each) and (record := self.tasks.get(each)) is not None:
                self._host.announce(record)

    def _act(self, what: str, task_id: str) -> None:
        if what != "cancelled":
            self._find_more()
        elif (run := self.runs.by_id.get(task_id)) is not None:
            self.runs.cancel(run, "the client has cancelled the task")

    def _find_more(self) -> None:
        self.schedule.take_soon()
        self.wake()

    # The thread.

    def wake(self) -> None:
        """Take a turn soon."""
        self._woken.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping:
                    thread = threading.Thread(target=self._take_turns, name="linkspan-tasks", daemon=True)
                    with suppress(RuntimeError):  # the system has no more threads: the next task tries again
                        thread.start()
                        self._thread = thread

    def _take_turns(self) -> None:
        woken = self._woken
        unexpected = Unexpected("linkspan.tasks", "the tasks could not be looked after")
        leave: Callable[[], object] | None = None
        pause: float | None = 0.0
        while pause is not None and woken is self._woken:
            woken.wait(pause)
            woken.clear()
            try:
                if leave is None and self._shared():
                    leave = self.tasks.subscribe(self.receive)
                    if self._failing:
                        self._received.append(("", ""))
                pause = self.turn(self._clock())
            except StoreError as problem:
                self._report(problem)
                pause = PERIOD
            except Exception as error:
                pause = unexpected.log(error)
        if leave is not None:
            leave()

    def turn(self, now: float) -> float | None:
        """Do what is due; return how many seconds there is nothing to do, and None if nothing is left. Raises: StoreError."""
        while self._received:
            what, task_id = self._received.popleft()
            try:
                self._handle(what, task_id)
            except StoreError:
                self._received.appendleft(("", ""))
                raise
        for run in self.runs.all():
            if run.lease is not None:
                self._attend(run, run.lease, now)
        before = self.schedule.checked_at
        is_behind = not self._stopping and self.schedule.take_turn(now)
        if self.schedule.checked_at != before:
            self._failing = False  # not after a turn that did not use the store
        self.runs.close_lifespan()
        with self._lock:
            if is_behind:
                return 0.0
            if self.runs.by_id:
                return self._pause(now)
            if self.runs.users or self._woken.is_set():
                return PERIOD
            self._thread, self.schedule.checked_at = None, None
        return None

    def _pause(self, now: float) -> float:
        """Return how many seconds the runs need nothing."""
        runs = self.runs.all()
        pause = _MESSAGES if any(run.message is not None for run in runs) else min(PERIOD, self.claims.lease / 4)
        return min([pause, *(run.ends - now for run in runs if run.ends is not None and run.ends > now)])

    def _attend(self, run: TaskRun, lease: Lease, now: float) -> None:
        """Renew the lease of a run, and write down how far it has come and that its time is over."""
        if run.outcome is not None:
            self._conclude(run)
            return
        renews = self.claims.renews(run, now)
        is_over = run.ends is not None and now >= run.ends
        if not renews and not is_over and (run.message is None or now - run.written < _MESSAGES):
            return
        message, run.message = run.message, None
        until = now + self.claims.lease if renews else None
        try:
            record = TaskStore.change(lease, now, partial(_with_message, message, now), until=until)
        except StoreError:
            run.message = run.message or message
            raise
        if record is None or record.status in FINAL:
            if record is None:
                self.claims.doubt(lease, now, run.id)
            self.runs.abandon(run, "another process has the task, or its time is over")
            self.runs.forget(run)
            if record is not None:
                self._changes.settle(record, now)
            return
        if renews:
            run.renewed = now
            self.tasks.attend(record, sooner(now + self.claims.lease, record.ends))
        if message is not None:
            run.written = now
            self._changes.announce("changed", record)
        if record.stopping and not run.request.cancelled:
            self._act("cancelled", run.id)

    def _report(self, problem: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logging.getLogger("linkspan.tasks").warning("the store of the tasks fails: %s", problem)


def _with_message(message: str | None, now: float, record: TaskRecord) -> TaskRecord:
    record = task_record.expired(record, now)
    return record if message is None else task_record.with_message(record, message, now)
