"""Gives tasks to an engine in a thread of its own. Law: no caller waits for the engine, whose broker may block."""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from typing import Final

from linkspan.runtime.forks import renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.server.task_settings import TaskEngine

_MOST: Final = 10_000
"""Tasks that wait for the engine; it gets the others later, as all that it has not begun."""
_AT_END: Final = 1.0
"""Seconds that a process waits at its end for the engine."""


class SubmitQueue:
    """The tasks on their way to one engine, each once, in the order in which they came."""

    def __init__(self, engine: TaskEngine) -> None:
        """Begin without tasks."""
        self._engine = engine
        self._unexpected = Unexpected("linkspan.tasks", "the engine did not take a task, which it gets again later")
        atexit.register(self.wait)
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without tasks in a forked child: those that wait in the parent are submitted there."""
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._is_working = False

    def put(self, task_id: str) -> None:
        """Submit a task soon."""
        with self._changed:
            if len(self._waiting) >= _MOST:
                return
            self._waiting[task_id] = None
            if not self._is_working:
                with suppress(RuntimeError):  # the system has no more threads: the next task tries again
                    threading.Thread(target=self._submit_all, name="linkspan-engine", daemon=True).start()
                    self._is_working = True

    def wait(self) -> None:
        """Wait until the engine has all, or for a second."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_working, _AT_END)

    def _submit_all(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_working = False
                    self._changed.notify_all()
                    return
                task_id = next(iter(self._waiting))
                del self._waiting[task_id]
            try:
                self._engine.submit(task_id)
            except Exception as error:
                self._unexpected.log(error)  # no rest: the next task may be taken
