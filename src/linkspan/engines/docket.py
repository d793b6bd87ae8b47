"""Tasks in workers of Docket, over Redis: the engine of FastMCP's tasks. Spec: https://docket.lol."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from linkspan.errors import LinkspanError, import_problem
from linkspan.runtime.background import background_loop
from linkspan.runtime.forks import keep, renew


class Docket:
    """The engine: `Server(tasks=Docket("redis://host:6379/1"))`."""

    def __init__(self, url: str, *, name: str = "linkspan", **options: Any) -> None:
        """Send jobs to the docket `name` at a URL; `options` are those of `docket.Docket`. Raises: LinkspanError."""
        try:
            import docket
        except ImportError as error:
            raise LinkspanError(import_problem("tasks=Docket(...) needs pydocket", "docket", error)) from None
        self._library: Any = docket
        self._settings = {"url": url, "name": name, **options}
        self._job: Any = None
        self._docket: Any = None
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Connect anew, in a forked child."""
        if self._docket is not None:
            keep(self._docket)
        self._lock = threading.Lock()
        self._docket = None

    def bind(self, name: str, run: Callable[[str], object]) -> None:
        """Let jobs of the server `name` call `run`, in workers that import this file."""

        async def run_task(task_id: str) -> None:
            await asyncio.to_thread(run, task_id)

        run_task.__name__ = f"linkspan:{name}"
        self._job = run_task

    def submit(self, task_id: str) -> None:
        """Have a worker run a task soon."""

        async def add() -> None:
            if self._docket is None:
                self._docket = await self._library.Docket(**self._settings).__aenter__()
                self._docket.register(self._job)
            found = await self._docket.get_execution(task_id)
            if found is not None and found.state == self._library.ExecutionState.RUNNING:  # its worker may be dead
                await self._docket.replace(self._job, datetime.now(UTC), task_id)(task_id)
            else:
                await self._docket.add(self._job, key=task_id)(task_id)  # no second job while one waits

        with self._lock:
            background_loop().run(add)

    def work(self, threads: int, drain: float) -> None:
        """Run jobs in this process until it is asked to stop; those that run have `drain` seconds then."""

        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(threads))
            async with self._library.Docket(**self._settings) as docket:
                docket.register(self._job)
                async with self._library.Worker(docket, concurrency=threads) as worker:
                    working = asyncio.ensure_future(worker.run_forever())
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, working.cancel)
                    with suppress(asyncio.CancelledError):
                        await working

        asyncio.run(run())
