"""What engines for jobs need to run tasks: the port that gets them, and the function that a worker calls.

class Jobs:
    def submit(self, task_id: str) -> None:
        queue.enqueue("my_server.work", task_id)

server = Server("indexer", store="redis://...", tasks=Jobs())

def work(task_id: str) -> None:  # in a worker of the engine
    run_task(server, task_id)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from linkspan.server.task_settings import TaskEngine

if TYPE_CHECKING:
    from linkspan.extensions.server_tasks import ServerTasks

__all__ = ["HasTasks", "TaskEngine", "WorkerEngine", "run_task"]


class HasTasks(Protocol):
    """A `linkspan.Server`."""

    @property
    def tasks(self) -> ServerTasks:
        """Its tasks."""
        ...


@runtime_checkable
class WorkerEngine(TaskEngine, Protocol):
    """An engine that knows its server by itself, and whose workers `linkspan worker` starts: those of `linkspan.engines`."""

    def bind(self, name: str, run: Callable[[str], object]) -> None:
        """Let jobs of the server `name` call `run`, in workers that import the file of the server."""
        ...

    def work(self, threads: int, drain: float) -> None:
        """Run jobs in this process until it is asked to stop; those that run have `drain` seconds then."""
        ...


def run_task(server: HasTasks, task_id: str) -> None:
    """Run a task here, until it has ended or asks its client something; at once if another process runs it, or it has ended.

    Blocks. Raises: StoreError, after which the engine may try again.
    """
    server.tasks.runner.run_now(task_id)
