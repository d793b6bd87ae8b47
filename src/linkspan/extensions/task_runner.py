"""Runs the tasks of one server in this process, each by the lease in its record.

One thread renews the leases, looks for tasks that no process has, and writes down how far runs have come; the functions run in
threads and on the event loop, as those of other calls do. Law: a body begins after a claim, and a result counts only with its
fence. No lock is held while the store is used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from linkspan.core.call import Call, Lifespan
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions import task_record
from linkspan.extensions.submit_queue import SubmitQueue
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_run import Run
from linkspan.extensions.task_store import TaskStore, new_id
from linkspan.revisions.neutral import InputRequired, Outcome, Request, unsayable
from linkspan.runtime.calls import CallRunner
from linkspan.runtime.forks import renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.server.task_settings import Task, TaskEngine
from linkspan.stores.leases import Lease
from linkspan.stores.port import StoreError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["TaskHost", "TaskRunner"]

LEASE: Final = 20.0
"""Seconds after which the task of a process that is gone is claimed by another."""

_LOOK: Final = 1.0
"""Seconds between two looks at what is due."""

_MESSAGES: Final = 0.25
"""Seconds between two messages of one task that are written down."""

_SUBMIT_AGAIN: Final = 60.0
"""Seconds after which an engine that has not begun a task gets it again."""

_SOON: Final = 5.0
"""Seconds after which a task is looked at whose process was lost between two writes."""

_MOST_HELD_BACK: Final = 1000
"""Tasks without a place of their principal that a process remembers; it meets others again when it looks."""

_TOO_MANY: Final = "Too many tasks of this principal have not ended (max_tasks_per_principal); try again later [LS-505]"


class TaskHost(Protocol):
    """The server whose tasks these are."""

    @property
    def lifespan(self) -> Lifespan | None:
        """What it opens before its first call."""
        ...

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or return the function that must run for it. Never raises."""
        ...

    def reopen(self, request: Request, since: float) -> None:
        """Let a request go on with answers that were kept since a time."""
        ...

    def settings(self, record: TaskRecord) -> tuple[Task | None, bool]:
        """Return how the tool of a task runs, and whether it may be repeated; None for a tool that does not exist any more."""
        ...

    def announce(self, record: TaskRecord) -> None:
        """Notify the clients of this process that listen for a task."""
        ...

    def listened_to(self) -> Collection[str]:
        """Return the tasks that clients of this process listen for."""
        ...

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report a result that cannot be encoded."""
        ...


class TaskRunner:
    """The runs of one server in this process. Any thread may use it."""

    def __init__(
        self,
        host: TaskHost,
        tasks: TaskStore,
        *,
        random: Callable[[int], bytes],
        clock: Callable[[], float] = time.time,
        max_tasks: int = 16,
        max_tasks_per_principal: int = 100,
        engine: TaskEngine | None = None,
        shared: Callable[[], bool] = bool,
        lease: float = LEASE,
    ) -> None:
        """Run up to `max_tasks` at a time, or leave them to `engine`; `shared()` is whether other processes see the store.

        One principal has three quarters of these places at most, and `max_tasks_per_principal` tasks that have not ended.
        """
        self.tasks = tasks
        self._host = host
        self._random = random
        self._clock = clock
        self._max_tasks = max_tasks
        self._share = max(1, max_tasks * 3 // 4)
        self._most_open = max_tasks_per_principal
        self._submit_queue = SubmitQueue(engine) if engine is not None else None
        self._shared = shared
        self._lease = lease
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without runs; those of a parent are the parent's."""
        self._users: WeakKeyDictionary[object, Callable[[], AbstractEventLoop | None]] = WeakKeyDictionary()
        self._calls = CallRunner(self._loop, max_workers=self._max_tasks)
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._woken = threading.Event()
        self._heard: deque[tuple[str, str]] = deque()
        self._held_back: dict[str, str] = {}
        """Tasks that wait for a place of their principal, by id, with the principal; another process may have them by now."""
        self._thread: threading.Thread | None = None
        self._doubtful: dict[str, str] = {}
        """The owners of claims that the store may have carried out, by task: it failed."""
        self._look_at = self._trusting = 0.0
        self._looked: float | None = None
        self._stopping = self._left = self._failing = self._holds_lifespan = False

    # The processes that serve.

    def attach(self, user: object, loop: Callable[[], AbstractEventLoop | None]) -> None:
        """Run tasks as long as `user` is there; async functions on `loop()` if it runs."""
        if user not in self._users:
            self._users[user] = loop
            self.use()

    def use(self) -> None:
        """Run tasks: until all users have left, or if there are none as long as there is something to do."""
        if self._left:
            self._left = self._stopping = False
        self.wake()

    def _loop(self) -> AbstractEventLoop:
        for found in reversed([each() for each in list(self._users.values())]):
            if found is not None and found.is_running():
                return found
        from linkspan.runtime.background import background_loop

        return background_loop().loop

    def drain(self, user: object) -> None:
        """Claim nothing more for `user`, which will leave."""
        self._stopping = set(self._users) <= {user}

    def leave(self, user: object, within: float) -> None:
        """Let `user` go. If it was the last, what runs has so many seconds to end; the rest is given back."""
        self._users.pop(user, None)
        if self._users:
            return
        self._stopping = True
        with self._idle:
            self._idle.wait_for(lambda: not self._runs, within)
            left = list(self._runs.values())
        for run in left:
            with suppress(StoreError):
                self._give_back(run)
            self.abandon(run, "the server is stopping")
        if self._submit_queue is not None:
            self._submit_queue.wait()
        self._woken.set()
        self._calls.end_threads()
        if self._host.lifespan is not None:
            self._calls.leave(self._host.lifespan)
        self.start_afresh()
        self._stopping = self._left = True  # what abandoned runs still bring must not begin anything

    def _give_back(self, run: Run) -> None:
        run.abandoned = True
        if run.lease is None:
            return
        now, (settings, repeatable) = self._clock(), self._host.settings(task_record.decode_record(run.lease.value))
        back = partial(task_record.lost, settings=settings, now=now, repeatable=repeatable)
        record = TaskStore.change(run.lease, now, back, until=0.0)
        if record is not None:
            self._settled(record, now)

    def abandon(self, run: Run, reason: str) -> None:
        """Stop a run whose outcome does not count any more."""
        if run.give_up():
            self.forget(run)
        self._calls.perform(run, run.cancel(reason))

    # A call that becomes a task.

    def has_room(self, owner: str | None = None) -> bool:
        """Return whether one more task may run here, also one of `owner`."""
        if len(self._runs) >= self._max_tasks:
            return False
        if owner is None:
            return True
        return sum(run.request.facts.principal == owner for run in list(self._runs.values())) < self._share

    def admit(self, request: Request) -> None:
        """Refuse a call that may become a task, where its principal has too many. Raises: RemoteProtocolError, StoreError."""
        owner = request.facts.principal
        if owner is not None and self.tasks.count(owner, self._clock(), self._most_open) >= self._most_open:
            raise RemoteProtocolError(INTERNAL_ERROR, _TOO_MANY)

    def begin_in_foreground(self, request: Request, step: Call) -> Run:
        """Run a call that becomes a task if it takes long."""
        self.use()
        run = self._add(new_id(self._random), request)
        self._perform(run, step)
        return run

    def become_task(self, run: Run, settings: Task) -> TaskRecord:
        """Let a call that runs go on as a task, and return its record. Raises: StoreError."""
        now = self._clock()
        record = task_record.begun(task_record.created(run.request, run.id, settings, now), now)
        lease = self._write(record, now, now + self._lease)
        run.become_task(lease, now)
        self.wake()
        return record

    def create(self, request: Request, settings: Task) -> TaskRecord:
        """Make a task of a call that has not begun, and return its record. Raises: RemoteProtocolError, StoreError."""
        self.use()
        self.admit(request)
        now = self._clock()
        record = task_record.created(request, new_id(self._random), settings, now)
        if self._submit_queue is None and self.has_room(record.owner) and not self._stopping:
            record = task_record.begun(record, now)
            lease = self._write(record, now, now + self._lease)
            self._run(record, lease, now)
        else:
            self._write(record, now, 0.0)
            self._settled(record, now)
        return record

    def _write(self, record: TaskRecord, now: float, until: float) -> Lease:
        """Write a new task. It is scheduled first: without a record that does no harm, and not the other way round."""
        self.tasks.attend(record.id, now + self._lease)
        lease = self.tasks.create(record, new_id(self._random), now, until)
        with suppress(StoreError):  # the task is there; it is not counted, which does no harm
            self.tasks.note(record, now)
        return lease

    # Runs.

    def _add(self, task_id: str, request: Request) -> Run:
        run = self._runs[task_id] = Run(task_id, request, self._conclude, self.wake)
        if self._host.lifespan is not None:
            self._holds_lifespan = True
            self._host.lifespan.attach(self._calls)
        return run

    def _run(self, record: TaskRecord, lease: Lease, now: float) -> Run:
        """Run a task that this process has claimed."""
        request = task_record.request_of(record)
        run = self._add(record.id, request)
        run.become_task(lease, now)
        self.wake()
        try:
            self._host.reopen(request, record.sealed)
        except RemoteProtocolError as error:  # other keys, or another version of the server
            run.end(error)
            return run
        step = self._host.begin(request)
        if isinstance(step, Call):
            self._perform(run, step)
        else:
            run.end(step)
        return run

    def _perform(self, run: Run, step: Call) -> None:
        self._calls.perform(run, [run.start(step)])

    def forget(self, run: Run) -> None:
        """Let go of a run that has ended."""
        with self._idle:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
            if not self._runs:
                self._idle.notify_all()
        self._look_at = 0.0
        self.wake()

    def _conclude(self, run: Run) -> None:
        """Write the outcome of a run down, once. If the store fails, `turn` does it again."""
        if not run.settling.acquire(blocking=False):
            return
        now = self._clock()
        try:
            if run.lease is not None and not run.abandoned:
                record = TaskStore.change(run.lease, now, partial(self._concluded, run, now), until=0.0)
                if record is not None:
                    self._settled(record, now)
        except StoreError as problem:
            run.settling.release()
            self._report(problem)
            return
        self.forget(run)

    def _concluded(self, run: Run, now: float, record: TaskRecord) -> TaskRecord:
        outcome, request = run.outcome, run.request
        assert outcome is not None
        if not record.running:  # it was written, though the store failed then
            return record
        if isinstance(outcome, InputRequired):
            return task_record.asked(record, outcome.requests, outcome.state, now)
        if isinstance(outcome, RemoteProtocolError) and request.cancelled:
            return task_record.cancelled(record, now)
        try:
            if isinstance(outcome, RemoteProtocolError) and (problem := unsayable(request.peer.revision, outcome)):
                raise problem
            return task_record.ended(record, outcome, now)
        except Exception as error:  # the author's result contains a value that cannot be encoded as JSON
            return task_record.failed(record, self._host.unsendable(request, error), now)

    def _settled(self, record: TaskRecord, now: float) -> None:
        """Do what a change of a task brings with it."""
        has_ended = record.status in FINAL
        if not has_ended:
            self.tasks.attend(record.id, self._next_look(record, now))
        self._tell("changed", record)
        if has_ended:  # not before: the process that looks at it next announces it, if this one cannot
            self.tasks.note_end(record)
            self.tasks.attend(record.id, None)
        if record.status != "working" or record.running:
            return
        if self._submit_queue is not None:
            self._submit_queue.put(record.id)
        else:
            self._tell("waiting", record)

    def _next_look(self, record: TaskRecord, now: float) -> float | None:
        if record.status in FINAL:
            return None
        if record.status == "input_required":
            return record.ends
        return now if self._submit_queue is None else now + _SUBMIT_AGAIN

    # What clients ask for.

    def answer(self, record: TaskRecord, responses: Mapping[str, object]) -> None:
        """Take answers to what a task asks. Raises: StoreError."""
        now = self._clock()
        self.tasks.attend(record.id, now + _SOON)
        changed = self.tasks.amend(record, now, partial(task_record.answered, responses=responses, now=now))
        if changed is not None:
            self._amended(*changed, now)

    def cancel(self, record: TaskRecord) -> None:
        """Cancel a task: at once if no process runs it. Raises: StoreError."""
        now = self._clock()
        if not record.running:
            self.tasks.attend(record.id, now + _SOON)
        changed = self.tasks.amend(record, now, partial(task_record.cancelled, now=now, held=True))
        if changed is None:
            return
        if changed[1].stopping:
            self._tell("cancelled", changed[1])
        else:
            self._amended(*changed, now)

    def _amended(self, before: TaskRecord, after: TaskRecord, now: float) -> None:
        if after is not before or after.status in FINAL:  # the process that ended it may not have got further
            self._settled(after, now)
        elif not after.running:  # what was scheduled for the case that this process is lost meanwhile
            self.tasks.attend(after.id, self._next_look(after, now))

    # Between processes.

    def _tell(self, what: str, record: TaskRecord) -> None:
        """Notify this process and the others."""
        if what == "changed":
            self._host.announce(record)
        else:
            self._act(what, record.id)
        if self._shared():
            self.tasks.publish(what, record.id)

    def _hear(self, what: str, task_id: str) -> None:
        """Keep what another process has published for the next turn: the thread of the store must not wait for it."""
        self._heard.append((what, task_id))
        self.wake()

    def _take_in(self, what: str, task_id: str) -> None:
        if not what:  # something may have been missed
            for each in self._host.listened_to():
                if (record := self.tasks.get(each)) is not None:
                    self._host.announce(record)
        if what != "changed":
            self._act(what, task_id)
        elif task_id in self._host.listened_to() and (record := self.tasks.get(task_id)) is not None:
            self._host.announce(record)

    def _act(self, what: str, task_id: str) -> None:
        if what == "cancelled":
            if (run := self._runs.get(task_id)) is not None:
                self._calls.perform(run, run.cancel("the client has cancelled the task"))
            return
        self._look_at = 0.0
        self.wake()

    # The thread.

    def wake(self) -> None:
        """Take a turn soon."""
        self._woken.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping:
                    self._thread = threading.Thread(target=self._tend, name="linkspan-tasks", daemon=True)
                    self._thread.start()

    def _tend(self) -> None:
        woken = self._woken
        unexpected = Unexpected("linkspan.tasks", "the tasks could not be looked after")
        leave: Callable[[], object] | None = None
        pause: float | None = 0.0
        while pause is not None and woken is self._woken:
            woken.wait(pause)
            woken.clear()
            try:
                if leave is None and self._shared():
                    leave = self.tasks.subscribe(self._hear)
                    if self._failing:
                        self._heard.append(("", ""))
                pause = self.turn(self._clock())
            except StoreError as problem:
                self._report(problem)
                pause = _LOOK
            except Exception as error:
                pause = unexpected.log(error)
        if leave is not None:
            leave()

    def turn(self, now: float) -> float | None:
        """Do what is due; return how many seconds there is nothing to do, and None if nothing is left. Raises: StoreError."""
        while self._heard:
            what, task_id = self._heard.popleft()
            try:
                self._take_in(what, task_id)
            except StoreError:
                self._heard.appendleft(("", ""))
                raise
        for run in list(self._runs.values()):
            if run.lease is not None:
                self._look_after(run, run.lease, now)
        found = 0
        if now >= self._look_at and not self._stopping:
            self._look_at = now + _LOOK
            due = dict.fromkeys(self.tasks.due(now))
            # Without a look for long the store was away, or the whole host stood still. Then other leases have run out, too, and
            # are renewed now: trust that their owners are there; but only now and then, for a process that is always slow.
            if self._looked is not None and now - self._looked > self._lease / 4 and now > self._trusting + self._lease:
                self._trusting = now + self._lease / 2
            self._looked = now
            for task_id, owner in list(self._held_back.items()):
                if self.has_room(owner):
                    due.pop(task_id, None)
                    found += self._look_safely(task_id, now)
            for task_id in due:
                found += self._look_safely(task_id, now)
            self._failing = False  # not after a turn that did not use the store
        if self._holds_lifespan and not self._runs and self._host.lifespan is not None:
            self._holds_lifespan = False
            self._host.lifespan.close(self._calls)
        with self._lock:
            if self._runs:
                waiting = any(run.message is not None for run in self._runs.values())
                return _MESSAGES if waiting else min(_LOOK, self._lease / 4)
            if self._users or found or self._woken.is_set():
                return _LOOK
            self._thread, self._looked = None, None
        return None

    def _look_after(self, run: Run, lease: Lease, now: float) -> None:
        """Renew the lease of a run, and write down how far it has come and that its time is over."""
        if run.outcome is not None:
            self._conclude(run)
            return
        renews = now - run.renewed >= self._lease / 4
        if not renews and (run.message is None or now - run.written < _MESSAGES):
            return
        message, run.message = run.message, None
        until = now + self._lease if renews else None
        try:
            record = TaskStore.change(lease, now, partial(_with_message, message, now), until=until)
        except StoreError:
            run.message = run.message or message
            raise
        if record is None or record.status in FINAL:
            self.abandon(run, "another process has the task, or its time is over")
            self.forget(run)
            if record is not None:
                self._settled(record, now)
            return
        if renews:
            run.renewed = now
            self.tasks.attend(run.id, now + self._lease)
        if message is not None:
            run.written = now
            self._tell("changed", record)
        if record.stopping and not run.request.cancelled:
            self._act("cancelled", run.id)

    def _look_safely(self, task_id: str, now: float) -> bool:
        """Look at a task. Put off one that cannot be read, such as that of another release: others must have their turn."""
        try:
            return self._look(task_id, now)
        except StoreError:
            raise
        except Exception:
            logging.getLogger("linkspan.tasks").exception("task %s could not be looked after", task_id)
            self.tasks.attend(task_id, now + _SUBMIT_AGAIN)
            return False

    def _look(self, task_id: str, now: float) -> bool:
        """Claim a task that is due, and run it or end it; return whether it is still due."""
        self._held_back.pop(task_id, None)
        if task_id in self._runs:
            return False
        if self._claim(task_id, now, partial(self._resume, now)) is not None:
            return False
        record = self.tasks.get(task_id)
        if record is None:
            self.tasks.attend(task_id, None)
        elif record.status in FINAL:  # its process could not do what an end brings with it
            self._settled(record, now)
        elif record.status == "input_required":
            self.tasks.attend(task_id, record.ends)
        elif self._submit_queue is not None and not record.running:
            self.tasks.attend(task_id, now + _SUBMIT_AGAIN)
            self._submit_queue.put(task_id)
        elif self.has_room():  # another process has it, or was faster; or its principal has no place left here
            if record.owner is not None and not self.has_room(record.owner) and len(self._held_back) < _MOST_HELD_BACK:
                self._held_back[task_id] = record.owner
            self.tasks.attend(task_id, now + _LOOK)
        else:
            return True
        return False

    def _resume(self, now: float, record: TaskRecord) -> TaskRecord:
        if record.running and now < self._trusting:
            return record
        settings, repeatable = self._host.settings(record)
        if self._submit_queue is not None:
            return task_record.lost(record, settings, now, repeatable=repeatable)
        resumed = task_record.resumed(record, settings, now, repeatable=repeatable)
        return record if resumed.running and not self.has_room(record.owner) else resumed

    def _claim(self, task_id: str, now: float, change: Callable[[TaskRecord], TaskRecord]) -> Run | TaskRecord | None:
        """Claim a task with a change, and run it if it runs then; None if there was nothing to change, or no claim."""
        doubtful = self._doubtful.pop(task_id, None)
        owner = doubtful or new_id(self._random)
        try:
            lease, record = self.tasks.claim(task_id, owner, now, now + self._lease, change)
        except StoreError:
            self._doubtful[task_id] = owner
            raise
        if lease is None or record is None:
            # The store may carry out the first one yet.
            if doubtful and record is not None and record.status not in FINAL:
                self._doubtful[task_id] = doubtful
            return None
        if not record.running:
            lease.renew(0.0)
            self._settled(record, now)
            return record
        with suppress(StoreError):  # then it is looked at too early, which does no harm
            self.tasks.attend(task_id, now + self._lease)
        return self._run(record, lease, now)

    def run_now(self, task_id: str) -> None:
        """Run a task here, and return when the run has ended; at once if another process has it. Raises: StoreError."""
        now = self._clock()

        def resume(record: TaskRecord) -> TaskRecord:
            settings, repeatable = self._host.settings(record)
            return task_record.resumed(record, settings, now, repeatable=repeatable)

        claimed = self._claim(task_id, now, resume)
        if isinstance(claimed, Run):
            claimed.ended.result()

    def _report(self, problem: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logging.getLogger("linkspan.tasks").warning("the store of the tasks fails: %s", problem)


def _with_message(message: str | None, now: float, record: TaskRecord) -> TaskRecord:
    record = task_record.expired(record, now)
    return record if message is None else task_record.with_message(record, message, now)
