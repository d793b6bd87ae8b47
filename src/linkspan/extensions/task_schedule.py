"""The tasks that are due, and those that wait, as one process takes them: it ends them, runs them, or leaves them to others.

Every operation raises StoreError if the store fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from linkspan.extensions import task_record
from linkspan.extensions.submit_queue import SubmitQueue
from linkspan.extensions.task_changes import SOON, TaskChanges, waits
from linkspan.extensions.task_claims import CHECK, TaskClaims, sooner
from linkspan.extensions.task_host import TaskHost
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_room import TaskRoom
from linkspan.extensions.task_run import TaskRun
from linkspan.extensions.task_runs import TaskRuns
from linkspan.extensions.task_store import TaskQueue, TaskStore, Ticket
from linkspan.stores.leases import Lease
from linkspan.stores.port import StoreError
from linkspan.wire.values import key_of

PERIOD: Final = 1.0
"""Seconds between two looks at what is due."""
_UNREADABLE: Final = 60.0
"""Seconds after which a task is looked at again that this process cannot read."""
_BATCH: Final = 64
"""Tasks that are looked after in one go."""
_SPARE: Final = 16
"""Tasks that are looked at beyond the room for them: another process may be faster."""
_MOST_SKIPPED: Final = 1000
"""Tasks of principals without a place that are looked past for those of others."""
_LEFT: Final = 86400.0
"""Seconds that a task without a time to live waits for a process that has its tool."""
_CLAIMS: Final = 3
"""How often a worker tries to claim a task that changes meanwhile."""
_SWEEP: Final = 60.0
"""Seconds between two sweeps of what is left of tasks that had ended, whose records have gone."""


class TaskSchedule:
    """The schedule and the queues of one server, as its process sees them; `run` begins what was claimed."""

    def __init__(
        self,
        host: TaskHost,
        tasks: TaskStore,
        runs: TaskRuns,
        claims: TaskClaims,
        changes: TaskChanges,
        room: TaskRoom,
        submit_queue: SubmitQueue | None,
        *,
        most_open: int,
        run: Callable[[TaskRecord, Lease, float], TaskRun],
    ) -> None:
        """Take `tasks` of `host`, of whose principals each has `most_open` at most."""
        self._host = host
        self._tasks = tasks
        self._runs = runs
        self._claims = claims
        self._changes = changes
        self._room = room
        self._submit_queue = submit_queue
        self._most_open = most_open
        self._run = run
        self.start_afresh()

    def start_afresh(self) -> None:
        """Look at everything again."""
        self._due_at = self._take_at = self._sweep_at = 0.0
        self._tool = 0
        """The tool at whose queue this process has looked last, as its place in the list."""
        self._not_ours: dict[str, set[str]] = {}
        """Tasks in the queues of tools that this process has, but not for their arguments: others must have their turn."""
        self.checked_at: float | None = None
        """When this process looked at what is due; None before."""

    def take_soon(self) -> None:
        """Look at what waits in the next turn: there may be room, or more of it."""
        self._take_at = 0.0

    def take_turn(self, now: float) -> bool:
        """Look after what is due, and run what waits; return whether there is more to do at once."""
        is_behind = False
        if now >= self._due_at:
            self._due_at, self._take_at = now + PERIOD, 0.0
            if is_behind := self._take_due(now):
                self._due_at = 0.0
        if now >= self._take_at:
            self._take_at = now + PERIOD
            self._take_waiting(now)
        return is_behind

    def _take_due(self, now: float) -> bool:
        """Look after what is due; return whether there may be more of it."""
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP
            self._room.sweep(now)
        due = self._tasks.schedule.due(now, _BATCH)
        self._claims.trust(self.checked_at, now)
        self.checked_at = now
        for ticket in due:
            with self._putting_off(ticket, self._tasks.schedule, now):
                self._attend(ticket, now)
        self._take_left(now)
        return len(due) == _BATCH

    def _take_waiting(self, now: float) -> None:
        """Run what waits, as far as there is room for it, and for its principal."""
        if self._submit_queue is not None:
            return
        runs = self._runs
        while runs.has_room():
            room = runs.max_tasks - len(runs.by_id) + _SPARE
            limit = room + min(self._most_open, _MOST_SKIPPED) if runs.without_place() else room
            found, has_moved = self._tasks.waiting.due(now, limit), False
            for ticket in found:
                if not runs.has_room():
                    return
                if ticket.owner not in runs.without_place():
                    with self._putting_off(ticket, self._tasks.waiting, now):
                        has_moved |= self._take(ticket, self._tasks.waiting, now)
            if not has_moved or len(found) < limit:
                return

    def _take_left(self, now: float) -> None:
        """Take what processes without a tool have left, of one tool in each look."""
        tools = self._host.tools()
        if not tools or not self._runs.has_room():
            return
        self._tool = (self._tool + 1) % len(tools)
        tool = key_of(tools[self._tool])
        queue, not_ours = self._tasks.left(tool), self._not_ours.get(tool, set[str]())
        found = queue.due(now, _BATCH + min(len(not_ours), _MOST_SKIPPED))
        self._not_ours[tool] = not_ours & {ticket.task_id for ticket in found}
        for ticket in found:
            if ticket.task_id not in not_ours and self._runs.has_room():
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
        if ticket.task_id in self._runs.by_id:
            return False
        record = self._tasks.get(ticket.task_id)
        if record is None or record.status in FINAL:
            queue.remove(ticket)
            return True
        is_waiting = waits(record) or record.id in self._claims.doubtful
        if not is_waiting and record.running and now - record.updated < SOON:
            return False  # the process that has claimed it takes it out
        if not self._host.can_run(record):
            self._leave(record, ticket, now)
            if queue is self._tasks.waiting:
                queue.remove(ticket)
            else:
                self._not_ours[ticket.tool].add(ticket.task_id)
        elif is_waiting and self._submit_queue is None:
            return self.claim(record.id, now, partial(self._resumed, now), partial(queue.remove, ticket)) is not None
        else:
            if queue is self._tasks.waiting:  # that process could not; it may wait again at any moment
                queue.put(ticket, now + self._claims.lease)
            self._attend(ticket, now)
            if queue is not self._tasks.waiting:  # not before: this process may be killed here
                queue.remove(ticket)
        return True

    def _attend(self, ticket: Ticket, now: float) -> None:
        """Look after a task that is due: end it, or see to it that it runs."""
        if ticket.task_id in self._runs.by_id:
            return
        record = self._tasks.get(ticket.task_id)
        if record is None:
            self._tasks.forget(ticket)
        elif record.status in FINAL or (record.ends is not None and record.ends <= now):
            self._changes.end(record, ticket, now)
        elif record.status == "input_required":
            self._tasks.attend(record, record.ends)
        elif self._submit_queue is not None and not record.running:
            self._changes.submit_again(record, self._submit_queue, now)
        elif not self._host.can_run(record):
            self._leave(record, ticket, now)
        elif not record.running:
            self._tasks.waiting.put(ticket, record.updated)
            self._tasks.attend(record, self._changes.next_check(record, now))
        elif self.claim(record.id, now, partial(self._claims.lost, now)) is None:  # its process is there
            self._tasks.attend(record, sooner(now + SOON, record.ends))

    def _leave(self, record: TaskRecord, ticket: Ticket, now: float) -> None:
        """Leave a task to processes that have its tool: until its time to live is over, and without one for a day."""
        if self._fail_unserved(record, now):
            self._tasks.withdraw(ticket)
            return
        self._tasks.left(ticket.tool).put(ticket, record.updated)
        again = now + max(now - record.updated, CHECK)  # the process that has taken it there may be lost, too
        self._tasks.attend(record, sooner(min(again, record.updated + _LEFT), record.ends))

    def _fail_unserved(self, record: TaskRecord, now: float) -> bool:
        """End a task without a time to live that has waited for its tool for too long; return whether that is so."""
        if record.ends is not None or now < record.updated + _LEFT:
            return False
        self.claim(record.id, now, partial(task_record.unserved, now=now, waited=_LEFT))
        return True

    def _resumed(self, now: float, record: TaskRecord) -> TaskRecord:
        """Return a task whose run begins, if there is still room for it."""
        resumed = self._claims.resumed(now, record)
        return record if resumed.running and not self._runs.has_room(record.owner) else resumed

    def claim(
        self,
        task_id: str,
        now: float,
        change: Callable[[TaskRecord], TaskRecord],
        claimed: Callable[[], object] = bool,
    ) -> TaskRun | TaskRecord | None:
        """Claim a task with a change, and run it if it runs then; None if there was nothing to change, or no claim.

        `claimed` is called between the claim and the run.
        """
        found = self._claims.claim(task_id, now, change)
        if found is None:
            return None
        lease, record = found
        until = sooner(now + self._claims.lease, record.ends)
        if not record.running:
            self._tasks.attend(record, until)
            lease.renew(0.0)
            self._changes.settle(record, now)
            return record
        with suppress(StoreError):  # then it is looked at too early, which does no harm
            self._tasks.attend(record, until)
            claimed()
        return self._run(record, lease, now)

    def run_now(self, task_id: str, now: float) -> None:
        """Run a task here, and return when the run has ended; at once if another process has it."""
        refused: TaskRecord | None = None

        def resume(record: TaskRecord) -> TaskRecord:
            nonlocal refused
            if record.status == "working" and not self._host.can_run(record):
                refused = record
                return record
            return self._claims.resumed(now, record)

        for _ in range(_CLAIMS):
            claimed = self.claim(task_id, now, resume)
            if isinstance(claimed, TaskRun):
                claimed.ended.result()
            elif refused is not None:
                if not self._fail_unserved(refused, now):
                    self._changes.refuse(refused, now)
            elif claimed is None and (record := self._tasks.get(task_id)) is not None and waits(record):
                continue  # it has changed since it was read: without another attempt this job would be lost
            return
