"""What runs for one HTTP connection of a client: each request where its caller waits, everything else in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from linkspan.client.transports.base import ThreadWaiter, Waiter
from linkspan.client.transports.http_connections import Routes
from linkspan.client.transports.http_requests import HttpFlow
from linkspan.client.transports.http_threads import ThreadPool, ThreadRun

if TYPE_CHECKING:
    import asyncio

    from linkspan.client.transports.http_loops import LoopPool, LoopRun


class HttpRuns:
    """The flows under way, by the id of a request or by what they are. Any thread may use it."""

    def __init__(self, routes: Routes, lock: threading.RLock) -> None:
        """Open connections by `routes`; `lock` is that of the transport, which holds it while it prepares."""
        self._routes = routes
        self._lock = lock
        self._threads = ThreadPool(routes)
        self._loops: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._due: list[ThreadRun] = []
        self._due_on_loops: dict[LoopPool, list[LoopRun]] = {}
        self.by_key: dict[object, ThreadRun | LoopRun] = {}
        """A flow takes itself out as it ends."""
        self._closed = threading.Event()

    def prepare(self, key: object, flow: HttpFlow[None], waiter: Waiter) -> None:
        """Prepare what `waiter` waits for: `start_due` must follow. With the lock."""
        loop = waiter.loop
        if loop is not None:
            pool = self._loops.get(loop) or self._open_pool(loop)
            self.by_key[key] = on_loop = pool.run(flow)
            self._due_on_loops.setdefault(pool, []).append(on_loop)
            return
        self.by_key[key] = run = ThreadRun(flow, self._threads)
        if not (isinstance(waiter, ThreadWaiter) and waiter.thread == threading.get_ident()):
            self._due.append(run)

    def prepare_alone(self, key: object, flow: HttpFlow[None], deadline: float | None = None) -> None:
        """Prepare what no caller waits for: `start_due` must follow. With the lock."""
        run = self.by_key[key] = ThreadRun(flow, self._threads, deadline)
        self._due.append(run)

    def start_due(self) -> None:
        """Start what was prepared."""
        with self._lock:
            threads, self._due = self._due, []
            loops, self._due_on_loops = self._due_on_loops, {}
        for run in threads:
            run.start()
        for pool, runs in loops.items():
            pool.start(runs)

    def step(self, key: object, waiter: ThreadWaiter) -> None:
        """Run, in this thread, what `waiter` waits for, as long as there is only reading and sending to do."""
        run = self.by_key.get(key)
        while run is not None and run.step() and waiter.empty():  # type: ignore[union-attr]
            pass

    def cancel(self, keys: Iterable[object]) -> None:
        """Close the streams of flows that were given up."""
        for key in keys:
            if (run := self.by_key.pop(key, None)) is not None:
                run.cancel()

    def close(self, farewell: HttpFlow[None] | None, seconds: float) -> None:
        """Stop all flows, run the last one, which has some seconds, and close the connections. Once."""
        with self._lock:
            runs, self.by_key = self.by_key, {}
        for run in runs.values():
            run.cancel()

        def release() -> None:
            try:
                if farewell is not None:
                    ThreadRun(farewell, self._threads, time.monotonic() + seconds).run()
            finally:
                self._threads.close()
                self._closed.set()

        for pool in self._loops.values():
            pool.close_soon()
        if farewell is None:
            release()
            return
        try:
            threading.Thread(target=release, name="linkspan-http", daemon=True).start()
        except RuntimeError:  # the interpreter is ending
            release()

    def wait_until_closed(self, seconds: float) -> None:
        """Wait until all connections are closed, or so many seconds."""
        self._closed.wait(seconds)

    def _open_pool(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        from linkspan.client.transports.http_loops import LoopPool

        pool = LoopPool(self._routes, loop)
        self._loops = {each: kept for each, kept in self._loops.items() if not each.is_closed()} | {loop: pool}
        return pool
