"""Tasks in workers of Dramatiq, over Redis or RabbitMQ. Spec: https://dramatiq.io/guide.html."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from linkspan.errors import LinkspanError, import_problem

_LONGEST: Final = 7 * 24 * 3600 * 1000
"""Milliseconds after which Dramatiq interrupts a job: the `ttl` of a task ends it before."""


class Dramatiq:
    """The engine: `Server(tasks=Dramatiq(RedisBroker(url="redis://host:6379/1")))`."""

    def __init__(self, broker: object, *, queue: str = "linkspan", **options: Any) -> None:
        """Send jobs over `broker`, in a queue of their own; `options` are those of an actor, such as `priority`.

        Raises: LinkspanError where Dramatiq is missing.
        """
        try:
            import dramatiq
        except ImportError as error:
            raise LinkspanError(import_problem("tasks=Dramatiq(...) needs dramatiq", "dramatiq", error)) from None
        self._library: Any = dramatiq
        self._broker = broker
        self._queue = queue
        self._options = {"time_limit": _LONGEST, **options}
        self._actor: Any = None

    def bind(self, name: str, run: Callable[[str], object]) -> None:
        """Let jobs of the server `name` call `run`, in workers that import this file."""

        def run_task(task_id: str) -> None:
            run(task_id)

        self._actor = self._library.actor(
            run_task, broker=self._broker, queue_name=self._queue, actor_name=f"linkspan:{name}", **self._options
        )

    def submit(self, task_id: str) -> None:
        """Have a worker run a task soon."""
        self._actor.send(task_id)

    def work(self, threads: int, drain: float) -> None:
        """Run jobs in this process until it is asked to stop; those that run have `drain` seconds then."""
        stopped = threading.Event()

        def stop(_: int, __: object) -> None:
            stopped.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        worker = self._library.Worker(self._broker, queues={self._queue}, worker_threads=threads)
        worker.start()
        stopped.wait()
        worker.stop(timeout=int(drain * 1000))
