"""Tools of FastMCP that may run as tasks: their settings, and the extension of version 4 that serves them.

Clients that declare `io.modelcontextprotocol/tasks` get a task of Linkspan, whatever the version; all others get the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from linkspan_compat.keywords import check, without_effect

__all__ = [
    "DEFAULT_POLL_INTERVAL",
    "DEFAULT_POLL_INTERVAL_MS",
    "DEFAULT_TTL_MS",
    "TASKS_EXTENSION_ID",
    "TaskConfig",
    "TaskMeta",
    "TasksExtension",
]

TASKS_EXTENSION_ID: Final = "io.modelcontextprotocol/tasks"
DEFAULT_POLL_INTERVAL: Final = timedelta(seconds=5)
DEFAULT_POLL_INTERVAL_MS: Final = 5_000
DEFAULT_TTL_MS: Final = 60_000

_SHORTEST_POLL: Final = 0.05


@dataclass
class TaskMeta:
    """What a request says of its task."""

    ttl: int | None = None
    fn_key: str | None = None


@dataclass
class TaskConfig:
    """How a tool may run: `forbidden` never as a task, `optional` and `required` for clients that can follow one."""

    mode: Literal["forbidden", "optional", "required"] = "optional"
    poll_interval: timedelta = DEFAULT_POLL_INTERVAL

    @classmethod
    def from_bool(cls, value: bool) -> TaskConfig:
        """Return the settings that `task=True` and `task=False` stand for."""
        return cls("optional" if value else "forbidden")

    def supports_tasks(self) -> bool:
        """Return whether a call may be a task."""
        return self.mode != "forbidden"

    def validate_function(self, fn: Callable[..., Any], name: str) -> None:
        """Refuse a plain function, as FastMCP does. Raises: ValueError."""
        from linkspan_compat.server.components import is_async_callable

        function = fn.__func__ if isinstance(fn, staticmethod) else fn
        if self.supports_tasks() and not is_async_callable(function):
            raise ValueError(
                f"'{name}' uses a sync function but has task execution enabled. Background tasks require async functions."
            )

    def settings(self) -> Any:
        """Return the same for Linkspan."""
        from linkspan import Task

        poll = max(_SHORTEST_POLL, self.poll_interval.total_seconds())
        return Task(required=self.mode == "required", poll=poll)


def config_of(task: Any) -> TaskConfig:
    """Return what `task=` says. Raises: TypeError."""
    if task is None or isinstance(task, bool):
        return TaskConfig.from_bool(bool(task))
    if isinstance(task, TaskConfig):
        return task
    raise TypeError(f"task= takes True, False or a TaskConfig, not {type(task).__name__}")


def note_task(noun: str, task: Any) -> None:
    """Say that a prompt or a resource is served within its requests. Raises: NotServed where it must be a task."""
    mode = config_of(task).mode
    if mode == "required":
        from linkspan_compat.keywords import refusal

        raise refusal(noun, "task")
    if mode == "optional":
        without_effect(noun, "task", "only tools run as tasks, and this is answered at once")


class TasksExtension:
    """What a server of version 4 registers for its tasks. `url` is where they are kept: memory, or Redis."""

    identifier = TASKS_EXTENSION_ID

    def __init__(self, *, url: str | None = None, concurrency: int | None = None, **more: Any) -> None:
        from os import environ

        check("TasksExtension", more, _OF_DOCKET)
        self.url = url or environ.get("FASTMCP_DOCKET_URL") or "memory://"
        self.concurrency = concurrency or int(environ.get("FASTMCP_DOCKET_CONCURRENCY") or 10)

    def options(self) -> dict[str, Any]:
        """Return the keywords of a server of Linkspan."""
        store = {} if self.url.startswith("memory:") else {"store": self.url}
        return {"max_tasks": self.concurrency, **store}


_OF_DOCKET: Final = "credential_provider name worker_name redelivery_timeout reconnection_delay minimum_check_interval"
"""Keywords of the engine of FastMCP."""
