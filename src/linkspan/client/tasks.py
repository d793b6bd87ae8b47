"""One task of a server, for `Client` and for `SyncClient`: its state, its result, its end."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Generic, Protocol, TypeVar

from linkspan.core.flow import Flow
from linkspan.flows.state import CallOptions, ClientState
from linkspan.flows.tasks import (
    Following,
    StartedTask,
    StatusCallback,
    TaskStatus,
    cancel_task,
    get_task,
    task_result,
)
from linkspan.flows.tool_results import ToolResult
from linkspan.types.task_messages import TASKS

T = TypeVar("T")
RunT = TypeVar("RunT")


class AwaitsFlow(Protocol):
    """How `Client` runs a flow."""

    def __call__(self, flow: Flow[T], /) -> Awaitable[T]: ...


class Runs(Protocol):
    """How `SyncClient` runs a flow."""

    def __call__(self, flow: Flow[T], /) -> T: ...


def check_tasks(state: ClientState) -> None:
    """Raise ValueError for a client that does not declare tasks."""
    if TASKS not in state.options.profile.capabilities.get("extensions", {}):
        raise ValueError("this client does not know tasks: pass extensions=[Tasks()] to it")


def settled(found: ToolResult) -> tuple[str | None, ToolResult | None]:
    """Return the id of the task that a call has become, or the result that came instead."""
    return (found.task.task_id, None) if isinstance(found, StartedTask) else (None, found)


_AT_ONCE = TaskStatus(task_id="", status="completed")
"""The state of a call that was answered at once."""


class _BaseTask(Generic[RunT]):
    """What both kinds have: which task it is, and how its flows run."""

    def __init__(
        self,
        run: RunT,
        state: ClientState,
        task_id: str | None,
        tool: str,
        options: CallOptions,
        result: ToolResult | None = None,
    ) -> None:
        self.id = task_id
        self._run = run
        self._state = state
        self._tool = tool
        self._options = options
        self._result: ToolResult | None = result

    def __repr__(self) -> str:
        """Show what it is about."""
        return f"{type(self).__name__}({self.id!r})"


class ClientTask(_BaseTask[AwaitsFlow]):
    """A task of a server: of a call that `start_tool` began, or one that another process began (`client.task(id)`).

    `id` is None where the server answered at once; the result is there then, and there is nothing to cancel.
    """

    async def status(self) -> TaskStatus:
        """Return its state now. Raises: ClientError."""
        if self.id is None:
            return _AT_ONCE
        return await self._run(get_task(self._state, self.id, self._options))

    async def result(self, timeout: float | None = None, on_status: StatusCallback | None = None) -> ToolResult:
        """Wait for its end, answer its questions, and return the result of its tool.

        `timeout` is in seconds, without it `timeouts.total` of the client. `on_status`, a plain function, is called with its
        state now, and with each that follows. Raises: CallTimeout, after which the task goes on
        and can be waited for again; TaskCancelled; ServerError if the call failed; other ClientErrors.
        """
        if self._result is None:
            assert self.id is not None
            flow = task_result(self._state, self.id, self._tool, self._options, timeout, on_status)
            self._result = await self._run(flow)
        return self._result

    async def cancel(self) -> None:
        """Ask the server to end it, which may take a while; it may end in another way before that. Raises: ClientError."""
        if self.id is not None:
            await self._run(cancel_task(self._state, self.id, self._options))

    async def watch(self) -> AsyncIterator[TaskStatus]:
        """Yield its state now, and each time that it changes, to its end. Questions are left to others. Raises: ClientError."""
        if self.id is None:
            yield _AT_ONCE
            return
        run, state = self._run, self._state
        following = Following(state, self.id, self._options)
        try:
            task = await run(get_task(state, self.id, self._options))
            yield task
            while not task.is_final:
                seen, task = task, await run(following.next(task, math.inf))
                if task != seen:
                    yield task
        finally:
            following.close()


class SyncClientTask(_BaseTask[Runs]):
    """A task of a server: of a call that `start_tool` began, or one that another process began (`client.task(id)`).

    `id` is None where the server answered at once; the result is there then, and there is nothing to cancel.
    """

    def status(self) -> TaskStatus:
        """Return its state now. Raises: ClientError."""
        if self.id is None:
            return _AT_ONCE
        return self._run(get_task(self._state, self.id, self._options))

    def result(self, timeout: float | None = None, on_status: StatusCallback | None = None) -> ToolResult:
        """Wait for its end, answer its questions, and return the result of its tool.

        `timeout` is in seconds, without it `timeouts.total` of the client. `on_status`, a plain function, is called with its
        state now, and with each that follows. Raises: CallTimeout, after which the task goes on
        and can be waited for again; TaskCancelled; ServerError if the call failed; other ClientErrors.
        """
        if self._result is None:
            assert self.id is not None
            flow = task_result(self._state, self.id, self._tool, self._options, timeout, on_status)
            self._result = self._run(flow)
        return self._result

    def cancel(self) -> None:
        """Ask the server to end it, which may take a while; it may end in another way before that. Raises: ClientError."""
        if self.id is not None:
            self._run(cancel_task(self._state, self.id, self._options))

    def watch(self) -> Iterator[TaskStatus]:
        """Yield its state now, and each time that it changes, to its end. Questions are left to others. Raises: ClientError."""
        if self.id is None:
            yield _AT_ONCE
            return
        run, state = self._run, self._state
        following = Following(state, self.id, self._options)
        try:
            task = run(get_task(state, self.id, self._options))
            yield task
            while not task.is_final:
                seen, task = task, run(following.next(task, math.inf))
                if task != seen:
                    yield task
        finally:
            following.close()
