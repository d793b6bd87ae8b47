"""Runs the tasks of one server in this process, each by the lease in its record.

One thread renews the leases, looks for tasks that no process has, and writes down how far runs have come; the functions run in
threads and on the event loop, as those of other calls do. Law: a body begins after a claim, and a result counts only with its
fence. No lock is held while the store is used.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from linkspan.core.call import Call, Lifespan
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions import task_record
from linkspan.extensions.submit_queue import SubmitQueue
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_run import Run
from linkspan.extensions.task_store import TaskQueue, TaskStore, Ticket, new_id
from linkspan.revisions.neutral import InputRequired, Outcome, Request, unsayable
from linkspan.runtime.calls import CLEANUP, CallRunner
from linkspan.runtime.forks import renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.server.task_settings import Task, TaskEngine
from linkspan.stores.leases import Lease
from linkspan.stores.port import StoreError
from linkspan.wire.values import key_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["TaskHost", "TaskRunner"]

LEASE: Final = 20.0
"""Seconds after which the task of a process that is gone is claimed by another."""

_LOOK: Final = 1.0
"""Seconds between two looks at what is due."""

_MESSAGES: Final = 0.25
"""Seconds between two messages of one task that are written down."""

_UNREADABLE: Final = 60.0
"""Seconds after which a task is looked at again that this process cannot read."""

_SOON: Final = 5.0
"""Seconds after which a task is looked at whose process was lost between two writes."""

_BATCH: Final = 64
"""Tasks that are looked after in one go."""

_SPARE: Final = 16
"""Tasks that are looked at beyond the room for them: another process may be faster."""

_MOST_SKIPPED: Final = 1000
"""Tasks of principals without a place that are looked past for those of others."""

_CHECK: Final = 300.0
"""Seconds after which a task that waits is put into its queue again, in case that was interrupted; later ever more rarely."""

_LEFT: Final = 86400.0
"""Seconds that a task without a time to live waits for a process that has its tool."""

_CLAIMS: Final = 3
"""How often a worker tries to claim a task that changes meanwhile."""

_SWEEP: Final = 60.0
"""Seconds between two sweeps of what is left of tasks that had ended, whose records have gone."""

_TOO_MANY: Final = "Too many tasks of this principal have not ended (max_tasks_per_principal); try again later [LS-505]"
_FULL: Final = "Too many bytes of ended tasks are kept (max_task_bytes); try again later [LS-505]"


_DOUBTFUL: Final = (
    "another process has claimed the task %s %.1f s before its lease was over: the clocks of the processes differ by more than "
    "leases allow; let a service keep them in agreement, or use a store that has a clock"
)


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

    def can_run(self, record: TaskRecord) -> bool:
        """Return whether this process has the tool of a task, for its arguments: a process of another release may not."""
        ...

    def tools(self) -> Sequence[str]:
        """Return the tools of this process that run as tasks."""
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
        self._max_tasks = max_tasks
        self._share = max(1, max_tasks * 3 // 4)
        self._most_open = max_tasks_per_principal
        self._room = tasks.room(max_task_bytes, max_task_bytes_per_principal)
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
        self._thread: threading.Thread | None = None
        self._doubtful: dict[str, str] = {}
        """The owners of claims that the store may have carried out, by task: it failed."""
        self._look_at = self._take_at = self._sweep_at = self._trusting = 0.0
        self._tool = 0
        """The tool at whose queue this process has looked last, as its place in the list."""
        self._not_ours: dict[str, set[str]] = {}
        """Tasks in the queues of tools that this process has, but not for their arguments: others must have their turn."""
        self._looked: float | None = None
        self._stopping = self._left = self._failing = self._has_doubted = self._holds_lifespan = False

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

    def leave(self, user: object, within: float, cleanup: float = CLEANUP) -> None:
        """Let `user` go. If it was the last, what runs has `within` seconds to end; the rest is given back and cancelled.

        It has `cleanup` seconds then to close what it opened.
        """
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
        self._calls.leave(self._host.lifespan, cleanup)
        self._calls.disown_tasks()
        self.start_afresh()
        self._stopping = self._left = True  # what abandoned runs still bring must not begin anything

    def _give_back(self, run: Run) -> None:
        run.abandoned = True
        if run.lease is None:
            return
        now, (settings, repeatable) = self._clock(), self._host.settings(task_record.decode_record(run.lease.value))
        back = partial(task_record.given_back, settings=settings, now=now, repeatable=repeatable)
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
        """Refuse a call that may become a task, where its principal has too many, or all of them keep too much.

        Raises: RemoteProtocolError, StoreError.
        """
        now = self._clock()
        if self.tasks.count(request.facts.principal, now, self._most_open) >= self._most_open:
            raise RemoteProtocolError(INTERNAL_ERROR, _TOO_MANY)
        if self._room.is_full(now):
            raise RemoteProtocolError(INTERNAL_ERROR, _FULL)

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
        run.become_task(lease, now, record.ends)
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
        self.tasks.attend(record, _sooner(until or now + _CHECK, record.ends))
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
        run.become_task(lease, now, record.ends)
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
        run.let_go()
        with self._idle:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
            if not self._runs:
                self._idle.notify_all()
        self._take_at = 0.0
        self.wake()

    def _conclude(self, run: Run) -> None:
        """Write the outcome of a run down, once. If the store fails, `turn` does it again."""
        if not run.settling.acquire(blocking=False):
            return
        try:
            now = self._clock()
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
            return self._fitting(task_record.ended(record, outcome, now), now, record)
        except Exception as error:  # the author's result contains a value that cannot be encoded as JSON
            return task_record.failed(record, self._host.unsendable(request, error), now)

    def _fitting(self, ended: TaskRecord, now: float, before: TaskRecord) -> TaskRecord:
        """Return an ended task; a failed one instead where the result alone is more than a principal may keep."""
        if ended.size <= self._room.most_of_one:
            return ended
        problem = "The result has more bytes than one principal may keep (max_task_bytes_per_principal)"
        logging.getLogger("linkspan.tasks").warning("task %s of the tool %s failed: %s", ended.id, ended.tool, problem)
        return task_record.failed(before, RemoteProtocolError(INTERNAL_ERROR, problem), now)

    def _settled(self, record: TaskRecord, now: float) -> None:
        """Do what a change of a task brings with it. One that waits from now on must be scheduled already."""
        waits = _waits(record)
        if waits and self._submit_queue is None:  # not scheduled again: another process may have claimed it by then
            self.tasks.waiting.put(Ticket.of(record), record.updated)
        elif record.status not in FINAL:
            self.tasks.attend(record, self._next_look(record, now))
        self._tell("waiting" if waits else "changed", record)
        if record.status in FINAL:  # not before: the process that looks at it next announces it, if this one cannot
            self.tasks.note_end(record)
            self._room.keep(record, now)
            self.tasks.attend(record, None)
        elif waits and self._submit_queue is not None:
            self._submit_queue.put(record.id)

    def _next_look(self, record: TaskRecord, now: float) -> float | None:
        """Return when to look after a task that does not run: at its end, or before, if it waits."""
        if record.status == "input_required":
            return record.ends
        pause = max(now - record.updated, _CHECK)
        if self._submit_queue is not None:
            pause = max(record.submit_at - now, 0.0) or task_record.SUBMIT_AGAIN
        return _sooner(now + pause, record.ends)

    # What clients ask for.

    def find(self, task_id: str) -> TaskRecord | None:
        """Return a task as it is now: one whose time is over has failed, also before a process has written that down."""
        record = self.tasks.get(task_id)
        return task_record.expired(record, self._clock()) if record is not None else None

    def answer(self, record: TaskRecord, responses: Mapping[str, object]) -> None:
        """Take answers to what a task asks. Raises: StoreError."""
        now = self._clock()
        self.tasks.attend(record, now + _SOON)
        changed = self.tasks.amend(record, now, partial(task_record.answered, responses=responses, now=now))
        if changed is not None:
            self._amended(*changed, now)

    def cancel(self, record: TaskRecord) -> None:
        """Cancel a task: at once if no process runs it. Raises: StoreError."""
        now = self._clock()
        if not record.running:
            self.tasks.attend(record, now + _SOON)
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
            if after.status in FINAL and not before.running:
                self.tasks.withdraw(Ticket.of(after))
        elif after.status == "input_required":  # what was scheduled for the case that this process is lost meanwhile
            self.tasks.attend(after, after.ends)

    # Between processes.

    def _tell(self, what: str, record: TaskRecord) -> None:
        """Notify this process and the others."""
        if what != "cancelled":
            self._host.announce(record)
        if what != "changed":
            self._act(what, record.id)
        if self._shared():
            self.tasks.publish(what, record.id)

    def _hear(self, what: str, task_id: str) -> None:
        """Keep what another process has published for the next turn: the thread of the store must not wait for it."""
        self._heard.append((what, task_id))
        self.wake()

    def _take_in(self, what: str, task_id: str) -> None:
        """Take what another process has published; with empty texts, something may have been missed."""
        if what != "changed":
            self._act(what, task_id)
        if what == "cancelled":
            return
        for each in self._host.listened_to():
            if task_id in ("", each) and (record := self.tasks.get(each)) is not None:
                self._host.announce(record)

    def _act(self, what: str, task_id: str) -> None:
        if what == "cancelled":
            if (run := self._runs.get(task_id)) is not None:
                self._calls.perform(run, run.cancel("the client has cancelled the task"))
            return
        self._take_at = 0.0
        self.wake()

    # The thread.

    def wake(self) -> None:
        """Take a turn soon."""
        self._woken.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping:
                    thread = threading.Thread(target=self._tend, name="linkspan-tasks", daemon=True)
                    with suppress(RuntimeError):  # the system has no more threads: the next task tries again
                        thread.start()
                        self._thread = thread

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
        is_behind = not self._stopping and self._look_for_tasks(now)
        if self._holds_lifespan and not self._runs and self._host.lifespan is not None:
            self._holds_lifespan = False
            self._host.lifespan.close(self._calls)
        with self._lock:
            if is_behind:
                return 0.0
            if self._runs:
                return self._pause(now)
            if self._users or self._woken.is_set():
                return _LOOK
            self._thread, self._looked = None, None
        return None

    def _pause(self, now: float) -> float:
        """Return how many seconds the runs need nothing."""
        runs = list(self._runs.values())
        pause = _MESSAGES if any(run.message is not None for run in runs) else min(_LOOK, self._lease / 4)
        return min([pause, *(run.ends - now for run in runs if run.ends is not None and run.ends > now)])

    def _look_after(self, run: Run, lease: Lease, now: float) -> None:
        """Renew the lease of a run, and write down how far it has come and that its time is over."""
        if run.outcome is not None:
            self._conclude(run)
            return
        renews = now - run.renewed >= self._lease / 4
        is_over = run.ends is not None and now >= run.ends
        if not renews and not is_over and (run.message is None or now - run.written < _MESSAGES):
            return
        message, run.message = run.message, None
        until = now + self._lease if renews else None
        try:
            record = TaskStore.change(lease, now, partial(_with_message, message, now), until=until)
        except StoreError:
            run.message = run.message or message
            raise
        if record is None or record.status in FINAL:
            if record is None:
                self._doubt(lease, now, run.id)
            self.abandon(run, "another process has the task, or its time is over")
            self.forget(run)
            if record is not None:
                self._settled(record, now)
            return
        if renews:
            run.renewed = now
            self.tasks.attend(record, _sooner(now + self._lease, record.ends))
        if message is not None:
            run.written = now
            self._tell("changed", record)
        if record.stopping and not run.request.cancelled:
            self._act("cancelled", run.id)

    def _doubt(self, lease: Lease, now: float, task_id: str) -> None:
        """Warn of clocks that differ, once, where a lease was lost before its time was over."""
        left = lease.until - now
        if left > 0 and not self._has_doubted:
            self._has_doubted = True
            logging.getLogger("linkspan.tasks").warning(_DOUBTFUL, task_id, left)

    # What is due, and what waits.

    def _look_for_tasks(self, now: float) -> bool:
        """Look after what is due, and run what waits; return whether there is more to do at once. Raises: StoreError."""
        is_behind = False
        if now >= self._look_at:
            self._look_at, self._take_at = now + _LOOK, 0.0
            if now >= self._sweep_at:
                self._sweep_at = now + _SWEEP
                self._room.sweep(now)
            due = self.tasks.schedule.due(now, _BATCH)
            # Without a look for long the store was away, or the whole host stood still. Then other leases have run out, too, and
            # are renewed now: trust that their owners are there; but only now and then, for a process that is always slow.
            if self._looked is not None and now - self._looked > self._lease / 4 and now > self._trusting + self._lease:
                self._trusting = now + self._lease / 2
            self._looked = now
            for ticket in due:
                with self._putting_off(ticket, self.tasks.schedule, now):
                    self._look(ticket, now)
            self._take_left(now)
            self._failing = False  # not after a turn that did not use the store
            if is_behind := len(due) == _BATCH:
                self._look_at = 0.0
        if now >= self._take_at:
            self._take_at = now + _LOOK
            self._take_waiting(now)
        return is_behind

    def _take_waiting(self, now: float) -> None:
        """Run what waits, as far as there is room for it, and for its principal."""
        if self._submit_queue is not None:
            return
        while self.has_room():
            room = self._max_tasks - len(self._runs) + _SPARE
            limit = room + min(self._most_open, _MOST_SKIPPED) if self._without_place() else room
            found, has_moved = self.tasks.waiting.due(now, limit), False
            for ticket in found:
                if not self.has_room():
                    return
                if ticket.owner not in self._without_place():
                    with self._putting_off(ticket, self.tasks.waiting, now):
                        has_moved |= self._take(ticket, self.tasks.waiting, now)
            if not has_moved or len(found) < limit:
                return

    def _without_place(self) -> set[str]:
        """Return what stands in tickets for principals of whom no more tasks may run here."""
        counts = Counter(run.request.facts.principal for run in list(self._runs.values()))
        return {key_of(owner) for owner, count in counts.items() if owner is not None and count >= self._share}

    def _take_left(self, now: float) -> None:
        """Take what processes without a tool have left, of one tool in each look."""
        tools = self._host.tools()
        if not tools or not self.has_room():
            return
        self._tool = (self._tool + 1) % len(tools)
        tool = key_of(tools[self._tool])
        queue, not_ours = self.tasks.left(tool), self._not_ours.get(tool, set[str]())
        found = queue.due(now, _BATCH + min(len(not_ours), _MOST_SKIPPED))
        self._not_ours[tool] = not_ours & {ticket.task_id for ticket in found}
        for ticket in found:
            if ticket.task_id not in not_ours and self.has_room():
                with self._putting_off(ticket, queue, now):
                    self._take(ticket, queue, now)

    @contextmanager
    def _putting_off(self, ticket: Ticket, queue: TaskQueue, now: float) -> Generator[None]:
        """Put off a task that cannot be read, such as that of another release: others must have their turn."""
        try:
            yield
        except StoreError:
            raise
        except Exception:
            logging.getLogger("linkspan.tasks").exception("task %s could not be looked after", ticket.task_id)
            queue.put(ticket, now + _UNREADABLE)

    def _take(self, ticket: Ticket, queue: TaskQueue, now: float) -> bool:
        """Run a task of a queue in which it waits; return whether it is out of the way of the others there."""
        if ticket.task_id in self._runs:
            return False
        record = self.tasks.get(ticket.task_id)
        if record is None or record.status in FINAL:
            queue.remove(ticket)
            return True
        waits = _waits(record) or record.id in self._doubtful
        if not waits and record.running and now - record.updated < _SOON:
            return False  # the process that has claimed it takes it out
        if not self._host.can_run(record):
            self._leave(record, ticket, now)
            if queue is self.tasks.waiting:
                queue.remove(ticket)
            else:
                self._not_ours[ticket.tool].add(ticket.task_id)
        elif waits and self._submit_queue is None:
            return self._claim(record.id, now, partial(self._resume, now), partial(queue.remove, ticket)) is not None
        else:
            if queue is self.tasks.waiting:  # that process could not; it may wait again at any moment
                queue.put(ticket, now + self._lease)
            else:
                queue.remove(ticket)
            self._look(ticket, now)
        return True

    def _look(self, ticket: Ticket, now: float) -> None:
        """Look after a task that is due: end it, or see to it that it runs."""
        if ticket.task_id in self._runs:
            return
        record = self.tasks.get(ticket.task_id)
        if record is None:
            self.tasks.forget(ticket)
        elif record.status in FINAL or (record.ends is not None and record.ends <= now):
            self._end(record, ticket, now)
        elif record.status == "input_required":
            self.tasks.attend(record, record.ends)
        elif self._submit_queue is not None and not record.running:
            self._submit_again(record, self._submit_queue, now)
        elif not self._host.can_run(record):
            self._leave(record, ticket, now)
        elif not record.running:
            self.tasks.waiting.put(ticket, record.updated)
            self.tasks.attend(record, self._next_look(record, now))
        elif self._claim(record.id, now, partial(self._lose, now)) is None:  # its process is there
            self.tasks.attend(record, _sooner(now + _SOON, record.ends))

    def _end(self, record: TaskRecord, ticket: Ticket, now: float) -> None:
        """End a task whose time is over, or do what the process could not do that ended it."""
        changed = self.tasks.amend(record, now, partial(task_record.expired, now=now))
        if changed is not None:
            self._amended(*changed, now)
            self.tasks.withdraw(ticket)

    def _submit_again(self, record: TaskRecord, engine: SubmitQueue, now: float) -> None:
        """Give a task to the engine again which none of its workers has begun. One process does, for all."""
        before, after = self.tasks.amend(record, now, partial(task_record.submitted, now=now)) or (record, record)
        if _waits(after):
            self.tasks.attend(after, self._next_look(after, now))
        if after is not before:  # not before it is scheduled: the worker may refuse it, for a sooner time
            engine.put(after.id)

    def _leave(self, record: TaskRecord, ticket: Ticket, now: float) -> None:
        """Leave a task to processes that have its tool: until its time to live is over, and without one for a day."""
        if record.ends is None and now >= record.updated + _LEFT:
            self._claim(record.id, now, partial(task_record.unserved, now=now, waited=_LEFT))
            self.tasks.withdraw(ticket)
            return
        self.tasks.left(ticket.tool).put(ticket, record.updated)
        self.tasks.attend(record, record.ends or record.updated + _LEFT)

    def _lose(self, now: float, record: TaskRecord) -> TaskRecord:
        """Return a task whose process is gone."""
        if record.running and now < self._trusting:
            return record
        settings, repeatable = self._host.settings(record)
        return task_record.lost(record, settings, now, repeatable=repeatable)

    def _resume(self, now: float, record: TaskRecord) -> TaskRecord:
        """Return a task whose run begins, if there is still room for it."""
        settings, repeatable = self._host.settings(record)
        resumed = task_record.resumed(record, settings, now, repeatable=repeatable)
        return record if resumed.running and not self.has_room(record.owner) else resumed

    def _claim(
        self,
        task_id: str,
        now: float,
        change: Callable[[TaskRecord], TaskRecord],
        claimed: Callable[[], object] = bool,
    ) -> Run | TaskRecord | None:
        """Claim a task with a change, and run it if it runs then; None if there was nothing to change, or no claim.

        `claimed` is called between the claim and the run.
        """
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
            self.tasks.attend(record, _sooner(now + self._lease, record.ends))
            lease.renew(0.0)
            self._settled(record, now)
            return record
        with suppress(StoreError):  # then it is looked at too early, which does no harm
            self.tasks.attend(record, _sooner(now + self._lease, record.ends))
            claimed()
        return self._run(record, lease, now)

    def run_now(self, task_id: str) -> None:
        """Run a task here, and return when the run has ended; at once if another process has it. Raises: StoreError."""
        now = self._clock()
        refused: TaskRecord | None = None

        def resume(record: TaskRecord) -> TaskRecord:
            nonlocal refused
            if record.status == "working" and not self._host.can_run(record):
                refused = record
                return record
            settings, repeatable = self._host.settings(record)
            return task_record.resumed(record, settings, now, repeatable=repeatable)

        for _ in range(_CLAIMS):
            claimed = self._claim(task_id, now, resume)
            if isinstance(claimed, Run):
                claimed.ended.result()
            elif refused is not None:
                self._refuse(refused, now)
            elif claimed is None and (record := self.tasks.get(task_id)) is not None and _waits(record):
                continue  # it has changed since it was read: without another attempt this job would be lost
            return

    def _refuse(self, record: TaskRecord, now: float) -> None:
        """Have the engine give a task to another worker: this one does not have its tool."""
        if record.ends is None and now >= record.updated + _LEFT:
            self._claim(record.id, now, partial(task_record.unserved, now=now, waited=_LEFT))
            return
        _, after = self.tasks.amend(record, now, partial(task_record.refused, now=now)) or (record, record)
        if _waits(after):
            self.tasks.attend(after, _sooner(after.submit_at, after.ends))

    def _report(self, problem: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logging.getLogger("linkspan.tasks").warning("the store of the tasks fails: %s", problem)


def _waits(record: TaskRecord) -> bool:
    """Return whether a task waits for a process to run it."""
    return record.status == "working" and not record.running


def _sooner(at: float, ends: float | None) -> float:
    return at if ends is None else min(at, ends)


def _with_message(message: str | None, now: float, record: TaskRecord) -> TaskRecord:
    record = task_record.expired(record, now)
    return record if message is None else task_record.with_message(record, message, now)
