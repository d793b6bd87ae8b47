"""The runs of one server in this process: where functions run, and whether there is room for more. Any thread may use it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from linkspan.core.call import Call
from linkspan.extensions.task_host import TaskHost
from linkspan.extensions.task_run import TaskRun
from linkspan.runtime.calls import CallRunner
from linkspan.wire.values import key_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class TaskRuns:
    """The runs, by the ids of their tasks."""

    def __init__(self, host: TaskHost, max_tasks: int, freed: Callable[[], object]) -> None:
        """Run up to `max_tasks` at a time, at most three quarters for one principal; `freed()` is called when one has ended."""
        self.max_tasks = max_tasks
        self._share = max(1, max_tasks * 3 // 4)
        self._host = host
        self._freed = freed
        self.start_afresh()

    def start_afresh(self) -> None:
        """Begin without runs; those of a parent are the parent's."""
        self.by_id: dict[str, TaskRun] = {}
        self.users: WeakKeyDictionary[object, Callable[[], AbstractEventLoop | None]] = WeakKeyDictionary()
        """What serves here, and the event loop of each, if that runs."""
        self._calls = CallRunner(self._loop, max_workers=self.max_tasks)
        self._idle = threading.Condition()
        self._holds_lifespan = False

    def _loop(self) -> AbstractEventLoop:
        for found in reversed([each() for each in list(self.users.values())]):
            if found is not None and found.is_running():
                return found
        from linkspan.runtime.background import background_loop

        return background_loop().loop

    def all(self) -> list[TaskRun]:
        """Return the runs that have not ended."""
        return list(self.by_id.values())

    def has_room(self, owner: str | None = None) -> bool:
        """Return whether one more task may run here, also one of `owner`."""
        if len(self.by_id) >= self.max_tasks:
            return False
        if owner is None:
            return True
        return sum(run.request.facts.principal == owner for run in self.all()) < self._share

    def without_place(self) -> set[str]:
        """Return the principals, as tickets name them, whose share of this process is used up."""
        counts = Counter(run.request.facts.principal for run in self.all())
        return {key_of(owner) for owner, count in counts.items() if owner is not None and count >= self._share}

    def add(self, run: TaskRun) -> None:
        """Keep a run until it has ended."""
        self.by_id[run.id] = run
        if self._host.lifespan is not None:
            self._holds_lifespan = True
            self._host.lifespan.attach(self._calls)

    def start(self, run: TaskRun, step: Call) -> None:
        """Run the function of a run."""
        self._calls.perform(run, [run.start(step)])

    def cancel(self, run: TaskRun, reason: str) -> None:
        """Ask the function of a run to end."""
        self._calls.perform(run, run.cancel(reason))

    def abandon(self, run: TaskRun, reason: str) -> None:
        """Stop a run whose outcome does not count any more."""
        if run.give_up():
            self.forget(run)
        self.cancel(run, reason)

    def forget(self, run: TaskRun) -> None:
        """Let go of a run that has ended."""
        run.let_go()
        with self._idle:
            if self.by_id.get(run.id) is run:
                del self.by_id[run.id]
            if not self.by_id:
                self._idle.notify_all()
        self._freed()

    def close_lifespan(self) -> None:
        """Leave the lifespan of the server, if no run needs it."""
        if self._holds_lifespan and not self.by_id and self._host.lifespan is not None:
            self._holds_lifespan = False
            self._host.lifespan.close(self._calls)

    def wait(self, within: float) -> list[TaskRun]:
        """Wait so many seconds at most until all have ended; return those that have not."""
        with self._idle:
            self._idle.wait_for(lambda: not self.by_id, within)
            return self.all()

    def stop(self, cleanup: float) -> None:
        """End the threads; what was cancelled has `cleanup` seconds to close what it opened."""
        self._calls.end_threads()
        self._calls.leave(self._host.lifespan, cleanup)
        self._calls.disown_tasks()
