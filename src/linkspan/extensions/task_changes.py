"""What a change of a task brings with it: when it is looked after next, who is notified, and what is counted.

Every operation raises StoreError if the store fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions import task_record
from linkspan.extensions.submit_queue import SubmitQueue
from linkspan.extensions.task_claims import CHECK, sooner
from linkspan.extensions.task_host import TaskHost
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_room import TaskRoom
from linkspan.extensions.task_run import TaskRun
from linkspan.extensions.task_store import TaskStore, Ticket
from linkspan.revisions.neutral import InputRequired, unsayable

SOON: Final = 5.0
"""Seconds after which a task is looked at whose process was lost between two writes."""


def waits(record: TaskRecord) -> bool:
    """Return whether a task waits for a process to run it."""
    return record.status == "working" and not record.running


class TaskChanges:
    """The changes that this process makes of tasks, and what follows from each."""

    def __init__(
        self,
        host: TaskHost,
        tasks: TaskStore,
        room: TaskRoom,
        submit_queue: SubmitQueue | None,
        *,
        shared: Callable[[], bool],
        act: Callable[[str, str], object],
    ) -> None:
        """Change `tasks` of `host`, which other processes see if `shared()`.

        `act` gets what concerns the runs of this process: a task is "waiting", or "cancelled".
        """
        self._host = host
        self._tasks = tasks
        self._room = room
        self._submit_queue = submit_queue
        self._shared = shared
        self._act = act

    def settle(self, record: TaskRecord, now: float) -> None:
        """Do what a change of a task brings with it. One that waits from now on must be scheduled already."""
        is_waiting, is_final = waits(record), record.status in FINAL
        if is_waiting and self._submit_queue is None:
            # It is not scheduled again: another process may have claimed it by then.
            self._tasks.waiting.put(Ticket.of(record), record.updated)
        elif not is_final:
            self._tasks.attend(record, self.next_check(record, now))
        self.announce("waiting" if is_waiting else "changed", record)
        if is_final:  # not before: the process that looks at it next announces it, if this one cannot
            self._room.keep(record, now, self._tasks.ended(record))
        elif is_waiting and self._submit_queue is not None:
            self._submit_queue.put(record.id)

    def next_check(self, record: TaskRecord, now: float) -> float | None:
        """Return when to look after a task that does not run: at its end, or before, if it waits."""
        if record.status == "input_required":
            return record.ends
        pause = max(now - record.updated, CHECK)
        if self._submit_queue is not None:
            pause = max(record.submit_at - now, 0.0) or task_record.SUBMIT_AGAIN
        return sooner(now + pause, record.ends)

    def announce(self, what: str, record: TaskRecord) -> None:
        """Notify this process and the others."""
        if what != "cancelled":
            self._host.announce(record)
        if what != "changed":
            self._act(what, record.id)
        if self._shared():
            self._tasks.publish(what, record.id)

    # What clients ask for.

    def answer(self, record: TaskRecord, responses: Mapping[str, object], now: float) -> None:
        """Take answers to what a task asks."""
        self._tasks.attend(record, now + SOON)
        changed = self._tasks.amend(record, now, partial(task_record.answered, responses=responses, now=now))
        if changed is not None:
            self._follow(*changed, now)

    def cancel(self, record: TaskRecord, now: float) -> None:
        """Cancel a task: at once if no process runs it."""
        if not record.running:
            self._tasks.attend(record, now + SOON)
        changed = self._tasks.amend(record, now, partial(task_record.cancelled, now=now, held=True))
        if changed is None:
            return
        if changed[1].stopping:
            self.announce("cancelled", changed[1])
        else:
            self._follow(*changed, now)

    def end(self, record: TaskRecord, ticket: Ticket, now: float) -> None:
        """End a task whose time is over, or do what the process could not do that ended it."""
        changed = self._tasks.amend(record, now, partial(task_record.expired, now=now))
        if changed is not None:
            self._follow(*changed, now)
            self._tasks.withdraw(ticket)

    def _follow(self, before: TaskRecord, after: TaskRecord, now: float) -> None:
        if after is not before or after.status in FINAL:  # the process that ended it may not have got further
            self.settle(after, now)
            if after.status in FINAL and not before.running:
                self._tasks.withdraw(Ticket.of(after))
        elif after.status == "input_required":  # what was scheduled for the case that this process is lost meanwhile
            self._tasks.attend(after, after.ends)

    # The engine.

    def submit_again(self, record: TaskRecord, engine: SubmitQueue, now: float) -> None:
        """Give a task to the engine again which none of its workers has begun. One process does, for all."""
        before, after = self._tasks.amend(record, now, partial(task_record.submitted, now=now)) or (record, record)
        if waits(after):
            self._tasks.attend(after, self.next_check(after, now))
        if after is not before:  # not before it is scheduled: the worker may refuse it, for a sooner time
            engine.put(after.id)

    def refuse(self, record: TaskRecord, now: float) -> None:
        """Have the engine give a task to another worker: this one does not have its tool."""
        _, after = self._tasks.amend(record, now, partial(task_record.refused, now=now)) or (record, record)
        if waits(after):
            self._tasks.attend(after, sooner(after.submit_at, after.ends))

    # The end of a run.

    def conclude(self, run: TaskRun, now: float) -> None:
        """Write the outcome of a run down, unless another process has claimed its task."""
        if run.lease is None or run.abandoned:
            return
        record = TaskStore.change(run.lease, now, partial(self._concluded, run, now), until=0.0)
        if record is not None:
            self.settle(record, now)

    def _concluded(self, run: TaskRun, now: float, record: TaskRecord) -> TaskRecord:
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
