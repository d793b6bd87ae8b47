"""Tasks in workers of Celery. Spec: https://docs.celeryq.dev/en/stable/userguide/tasks.html."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Celery:
    """The engine: `Server(tasks=Celery(celery.Celery(broker="redis://host:6379/1")))`."""

    def __init__(self, app: object, *, queue: str = "linkspan", **options: Any) -> None:
        """Send jobs to `app`, in a queue of their own; `options` are those of a task, such as `priority`.

        A job is acknowledged when it has ended: a worker that is lost costs none.
        """
        self._app: Any = app
        self._queue = queue
        # A task that is shared would be in the other apps of this process, too.
        self._options = {
            "shared": False,
            "acks_late": True,
            "reject_on_worker_lost": True,
            "ignore_result": True,
            **options,
        }
        self._job: Any = None

    def bind(self, name: str, run: Callable[[str], object]) -> None:
        """Let jobs of the server `name` call `run`, in workers that import this file."""

        def run_task(task_id: str) -> None:
            run(task_id)

        self._job = self._app.task(run_task, name=f"linkspan:{name}", **self._options)

    def submit(self, task_id: str) -> None:
        """Have a worker run a task soon."""
        self._job.apply_async((task_id,), queue=self._queue)

    def work(self, threads: int, drain: float) -> None:
        """Run jobs in this process until it is asked to stop; those that run have `drain` seconds then."""
        self._app.conf.worker_soft_shutdown_timeout = drain
        options = ["--pool=threads", f"--concurrency={threads}", f"--queues={self._queue}", "--loglevel=warning"]
        self._app.worker_main(["worker", *options])
