"""What clients and servers send about a task. Spec: https://github.com/modelcontextprotocol/ext-tasks."""

from __future__ import annotations

from typing import ClassVar, Final

from linkspan.types.messages import Params

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The id of the extension."""


class TaskParams(Params, frozen=True, kw_only=True):
    """Which task."""

    named_by: ClassVar[str | None] = "task_id"
    task_id: str
