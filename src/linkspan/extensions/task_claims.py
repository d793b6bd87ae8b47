"""The claims of one process on the tasks of a server. Law: a body begins after a claim, and a result counts only with its fence.

Every operation raises StoreError if the store fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from linkspan.extensions import task_record
from linkspan.extensions.task_host import TaskHost
from linkspan.extensions.task_record import FINAL, TaskRecord
from linkspan.extensions.task_run import TaskRun
from linkspan.extensions.task_store import TaskStore, new_id
from linkspan.stores.leases import Lease
from linkspan.stores.port import StoreError

CHECK: Final = 300.0
"""Seconds after which a task that waits is put into its queue again, in case that was interrupted; later ever more rarely."""
_DOUBTFUL: Final = (
    "another process has claimed the task %s %.1f s before its lease was over: the clocks of the processes differ by more than "
    "leases allow; let a service keep them in agreement, or use a store that has a clock"
)


def sooner(at: float, ends: float | None) -> float:
    """Return a time, or when a task ends if that is before."""
    return at if ends is None else min(at, ends)


class TaskClaims:
    """The claims, each for `lease` seconds."""

    def __init__(self, host: TaskHost, tasks: TaskStore, random: Callable[[int], bytes], lease: float) -> None:
        """Claim `tasks` of `host`."""
        self._host = host
        self._tasks = tasks
        self._random = random
        self.lease = lease
        self.start_afresh()

    def start_afresh(self) -> None:
        """Begin without claims."""
        self.doubtful: dict[str, str] = {}
        """The owners of claims that the store may have carried out, by task: it failed."""
        self._trusting = 0.0
        self._has_doubted = False

    def create(self, record: TaskRecord, now: float, *, begins: bool) -> Lease:
        """Write a new task, claimed if its run begins.

        It is scheduled and counted first: without a record, the next look at it takes it out again.
        """
        until = now + self.lease if begins else 0.0
        self._tasks.expect(record, sooner(until or now + CHECK, record.ends), now)
        return self._tasks.create(record, new_id(self._random), now, until)

    def claim(
        self, task_id: str, now: float, change: Callable[[TaskRecord], TaskRecord]
    ) -> tuple[Lease, TaskRecord] | None:
        """Claim a task with a change; None if there was nothing to change, or no claim."""
        doubtful = self.doubtful.pop(task_id, None)
        owner = doubtful or new_id(self._random)
        try:
            lease, record = self._tasks.claim(task_id, owner, now, now + self.lease, change)
        except StoreError:
            self.doubtful[task_id] = owner
            raise
        if lease is None or record is None:
            # The store may carry out the first one yet.
            if doubtful and record is not None and record.status not in FINAL:
                self.doubtful[task_id] = doubtful
            return None
        return lease, record

    def renews(self, run: TaskRun, now: float) -> bool:
        """Return whether the lease of a run must be renewed."""
        return now - run.renewed >= self.lease / 4

    def give_back(self, run: TaskRun, now: float) -> TaskRecord | None:
        """Let others claim the task of a run, which does not count any more; return it as it is then."""
        run.abandoned = True
        if run.lease is None:
            return None
        settings, repeatable = self._host.settings(task_record.decode_record(run.lease.value))
        back = partial(task_record.given_back, settings=settings, now=now, repeatable=repeatable)
        return TaskStore.change(run.lease, now, back, until=0.0)

    def doubt(self, lease: Lease, now: float, task_id: str) -> None:
        """Warn of clocks that differ, once, where a lease was lost before its time was over."""
        left = lease.until - now
        if left > 0 and not self._has_doubted:
            self._has_doubted = True
            logging.getLogger("linkspan.tasks").warning(_DOUBTFUL, task_id, left)

    def trust(self, before: float | None, now: float) -> None:
        """Decide whether the owners of leases that have run out are there all the same; the schedule was used `before`.

        Without that for long, the store was away, or the whole host stood still. Then other leases have run out, too, and are
        renewed now. Owners are trusted only now and then, for a process that is always slow.
        """
        if before is not None and now - before > self.lease / 4 and now > self._trusting + self.lease:
            self._trusting = now + self.lease / 2

    def lost(self, now: float, record: TaskRecord) -> TaskRecord:
        """Return a task whose process is gone."""
        if record.running and now < self._trusting:
            return record
        settings, repeatable = self._host.settings(record)
        return task_record.lost(record, settings, now, repeatable=repeatable)

    def resumed(self, now: float, record: TaskRecord) -> TaskRecord:
        """Return a task whose run begins."""
        settings, repeatable = self._host.settings(record)
        return task_record.resumed(record, settings, now, repeatable=repeatable)
