"""Tasks in workers of Procrastinate, whose jobs are rows in PostgreSQL. Spec: https://procrastinate.readthedocs.io."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from linkspan.runtime.forks import renew


class Procrastinate:
    """The engine: `Server(tasks=Procrastinate(App(connector=PsycopgConnector(conninfo=url))))`.

    The tables of Procrastinate must be there: `procrastinate schema --apply`, as for every app.
    """

    def __init__(self, app: object, *, queue: str = "linkspan", **options: Any) -> None:
        """Send jobs to `app`, in a queue of their own; `options` are those of a task, such as `priority` and `retry`."""
        self._app: Any = app
        self._queue = queue
        self._options = {"retry": 3, **options}
        self._job: Any = None
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Open connections anew, in a forked child."""
        self._lock = threading.Lock()
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, name: str, run: Callable[[str], object]) -> None:
        """Let jobs of the server `name` call `run`, in workers that import this file."""

        def run_task(task_id: str) -> None:
            run(task_id)

        self._job = self._app.task(run_task, name=f"linkspan:{name}", queue=self._queue, **self._options)

    def submit(self, task_id: str) -> None:
        """Have a worker run a task soon."""
        from procrastinate.exceptions import AlreadyEnqueued

        job = self._job.configure(queueing_lock=task_id)
        with suppress(AlreadyEnqueued):  # a job waits already; one that runs does not count
            if self._loop is not None:  # this is a worker: its connections belong to its event loop
                asyncio.run_coroutine_threadsafe(job.defer_async(task_id=task_id), self._loop).result()
                return
            with self._lock:
                if not self._is_open:
                    self._app.open()
                    self._is_open = True
            job.defer(task_id=task_id)

    def work(self, threads: int, drain: float) -> None:
        """Run jobs in this process until it is asked to stop; those that run have `drain` seconds then."""
        asyncio.run(self._work(threads, drain))

    async def _work(self, threads: int, drain: float) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(threads))  # that of asyncio is smaller on most machines
        async with self._app.open_async():
            self._loop = loop
            try:
                await self._app.run_worker_async(
                    queues=[self._queue], concurrency=threads, shutdown_graceful_timeout=drain
                )
            finally:
                self._loop, self._is_open = None, False
