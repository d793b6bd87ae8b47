"""What the runs of tasks need of the server whose tasks they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from linkspan.core.call import Call, Lifespan
from linkspan.errors import RemoteProtocolError
from linkspan.extensions.task_record import TaskRecord
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.task_settings import Task


class TaskHost(Protocol):
    """The server whose tasks these are."""

    @property
    def lifespan(self) -> Lifespan | None:
        """What it opens before its first call."""
        ...

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or return the function that must run for it. Never raises."""
        ...

    def reopen(self, request: Request, since: float) -> None:
        """Let a request go on with answers that were kept since a time."""
        ...

    def settings(self, record: TaskRecord) -> tuple[Task | None, bool]:
        """Return how the tool of a task runs, and whether it may be repeated; None for a tool that does not exist any more."""
        ...

    def can_run(self, record: TaskRecord) -> bool:
        """Return whether this process has the tool of a task, for its arguments: a process of another release may not."""
        ...

    def tools(self) -> Sequence[str]:
        """Return the tools of this process that run as tasks."""
        ...

    def announce(self, record: TaskRecord) -> None:
        """Notify the clients of this process that listen for a task."""
        ...

    def listened_to(self) -> Collection[str]:
        """Return the tasks that clients of this process listen for."""
        ...

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report a result that cannot be encoded."""
        ...
