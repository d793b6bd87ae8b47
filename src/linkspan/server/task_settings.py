"""How a tool runs as a task, and what becomes of a task whose process is gone.

Spec: the extension io.modelcontextprotocol/tasks, https://github.com/modelcontextprotocol/ext-tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from linkspan.errors import RegistrationError

Restart: TypeAlias = Literal["safe", "never", "always"]

_SHORTEST_POLL: Final = 0.05


class Task(msgspec.Struct, frozen=True):
    """Lets a tool run as a task for clients that declare the extension: `@server.tool(task=Task(after=2.0))`.

    - `after`: a call that ends within so many seconds is answered at once; then it becomes a task.
    - `required`: refuse clients without the extension, instead of serving them as ever.
    - `ttl`: seconds from its creation after which a task ends and its record goes; None keeps it for ever.
    - `poll`: seconds between two polls that clients are advised to make.
    - `restart`: what happens to a task whose process is gone: "safe" runs it again if the tool is annotated as read-only or
      idempotent, "always" in any case, "never" in none. Where it does not run again it fails.
    - `attempts`: how many runs may be lost before it fails in any case.

    Raises: RegistrationError.
    """

    after: float = 0.0
    required: bool = False
    ttl: float | None = 3600.0
    poll: float = 1.0
    restart: Restart = "safe"
    attempts: int = 3

    def __post_init__(self) -> None:
        for name, (is_right, wanted) in _CHECKS.items():
            value = getattr(self, name)
            if not is_right(value):
                raise RegistrationError(f"Task({name}={value!r}): {name} is {wanted}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


_CHECKS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "after": (lambda value: _is_number(value) and value >= 0, "a number of seconds, 0 or more"),
    "required": (lambda value: isinstance(value, bool), "True or False"),
    "ttl": (lambda value: value is None or (_is_number(value) and value > 0), "a number of seconds above 0, or None"),
    "poll": (lambda value: _is_number(value) and value >= _SHORTEST_POLL, f"{_SHORTEST_POLL} seconds or more"),
    "restart": (lambda value: value in ("safe", "never", "always"), '"safe", "never" or "always"'),
    "attempts": (lambda value: isinstance(value, int) and value >= 1, "a whole number, 1 or more"),
}


class TaskEngine(Protocol):
    """Runs tasks elsewhere: a queue of jobs, whose workers call `run_task(server, task_id)`."""

    def submit(self, task_id: str) -> None:
        """Have a worker run a task soon. It may do so twice, or on a worker that dies: the record decides what runs."""
        ...


def task_of(value: object, tool: str) -> Task | None:
    """Return the settings that `task=` gives a tool; True stands for `Task()`. Raises: RegistrationError."""
    if value is None or value is False:
        return None
    if value is True:
        return Task()
    if isinstance(value, Task):
        return value
    raise RegistrationError(f"{tool}: task= takes True or a Task(...), not {type(value).__name__}")


_RUNS_AGAIN: Final[Mapping[tuple[Restart, bool], bool]] = {
    ("safe", True): True,
    ("safe", False): False,
    ("never", True): False,
    ("never", False): False,
    ("always", True): True,
    ("always", False): True,
}
"""Whether a task runs again, by its setting and by whether its tool may be repeated."""


def reason_to_fail(settings: Task, *, repeatable: bool, lost: int) -> str | None:
    """Return why a task fails of which so many runs were lost; None if it runs again."""
    if not _RUNS_AGAIN[settings.restart, repeatable]:
        return "the server stopped while it ran; it may have been carried out"
    if lost >= settings.attempts:
        return f"the server stopped {lost} times while it ran" if lost > 1 else "the server stopped while it ran"
    return None
