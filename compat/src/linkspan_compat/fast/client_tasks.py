"""Handles of tasks for clients of FastMCP: `call_tool(..., task=True)` of versions 2 and 3, `call_tool_task` of version 4."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import uuid
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from linkspan import ClientError, ServerError, TaskCancelled
from linkspan_compat.errors import ToolError
from linkspan_compat.flavours import fast_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES

if TYPE_CHECKING:
    from linkspan_compat.fast.client import CallToolResult, Client

__all__ = ["PromptTask", "ResourceTask", "Task", "ToolTask", "call_tool_task"]

logger = logging.getLogger("fastmcp.client.tasks")

ResultT = TypeVar("ResultT")

_POLL: Final = 0.05
_LONGEST_POLL: Final = 0.5


class Task(Generic[ResultT]):
    """A request that may go on at the server: `await task`, or `await task.result()`, gives what it gives."""

    def __init__(self, task_id: str | None = None, immediate_result: ResultT | None = None) -> None:
        """`immediate_result` is what the server answered where it made no task of the request."""
        self._id = task_id or str(uuid.uuid4())
        self._found: ResultT | None = immediate_result
        self._is_immediate = immediate_result is not None
        self._callbacks: list[Callable[[Any], Any]] = []

    @property
    def task_id(self) -> str:
        """The id, at the server if there is a task."""
        return self._id

    @property
    def returned_immediately(self) -> bool:
        """Whether the server answered at once, and there is no task."""
        return self._is_immediate

    def on_status_change(self, callback: Callable[[Any], Any]) -> None:
        """Call a function, plain or async, with each state that follows."""
        self._callbacks.append(callback)

    async def status(self) -> Any:
        """Return the state now."""
        now = datetime.now(UTC).isoformat()
        return _shown(self._id, "completed", created_at=now, last_updated_at=now)

    async def wait(self, *, state: str | None = None, timeout: float = 300.0) -> Any:
        """Wait for a state, or for the end, and return it. Questions stay open. Raises: TimeoutError."""
        pause = _POLL
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = await self.status()
                    if found.status == state or (state is None and found.status != "working"):
                        return found
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_POLL)
        except TimeoutError:
            raise TimeoutError(
                f"Task {self._id} did not reach {state or 'a terminal state'} within {timeout}s"
            ) from None

    async def result(self) -> ResultT:
        """Return what the request gives."""
        assert self._found is not None
        return self._found

    async def cancel(self) -> None:
        """Ask the server to end it."""

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.result().__await__()


class PromptTask(Task[Any]):
    """A prompt: servers give it at once."""


class ResourceTask(Task[Any]):
    """A read: servers give it at once."""


class ToolTask(Task["CallToolResult"]):
    """A call of a tool."""

    def __init__(
        self,
        client: Client,
        name: str,
        started: Any = None,
        *,
        immediate_result: CallToolResult | None = None,
        raise_on_error: bool = True,
    ) -> None:
        """`started` is the task of Linkspan, None for a call that was answered at once."""
        super().__init__(started.id if started is not None else None, immediate_result)
        self._client = client
        self._name = name
        self._started: Any = started
        self._raises = raise_on_error
        self._watching: asyncio.Task[None] | None = None

    async def status(self) -> Any:
        """Return the state now. Raises: ClientError."""
        if self._started is None:
            return await super().status()
        return shown(await self._started.status())

    def on_status_change(self, callback: Callable[[Any], Any]) -> None:
        """Call a function, plain or async, with each state that follows."""
        super().on_status_change(callback)
        if self._started is not None and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        with contextlib.suppress(ClientError):
            async for each in self._started.watch():
                await self._tell(shown(each))

    async def _tell(self, status: Any) -> None:
        for callback in self._callbacks:
            try:
                found = callback(status)
                if inspect.isawaitable(found):
                    await found
            except Exception:
                logger.warning("a callback of task %s failed", self._id, exc_info=True)

    async def result(self) -> CallToolResult:
        """Wait for the end, answer questions, and return the result. Raises: ToolError where it fails, unless not wanted."""
        if self._found is None:
            self._found = await self._client.result_of(self._name, await self._ended())
        if self._watching is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._found.is_error and self._raises:
            text = getattr(self._found.content[0], "text", "") if self._found.content else ""
            raise ToolError(text or f"Tool {self._name!r} returned an error")
        return self._found

    async def _ended(self) -> Any:
        try:
            found = await self._started.result()
        except TaskCancelled:
            return _failed(f"Task {self._id} was cancelled")
        except ServerError as error:
            return _failed(error.message or f"Task {self._id} failed")
        return TYPES["CallToolResult"].model_validate_json(bytes(found.raw))

    async def cancel(self) -> None:
        """Ask the server to end it, which may take a while."""
        if self._started is not None:
            await self._started.cancel()


def _failed(text: str) -> Any:
    return TYPES["CallToolResult"].model_validate({"content": [{"type": "text", "text": text}], "isError": True})


def shown(status: Any) -> Any:
    """Return a state as programs read it."""
    return _shown(
        status.task_id,
        status.status,
        message=status.status_message,
        created_at=status.created_at,
        last_updated_at=status.last_updated_at,
        ttl=status.ttl_ms,
        poll=status.poll_interval_ms,
    )


def _shown(
    task_id: str,
    status: str,
    *,
    created_at: str | None,
    last_updated_at: str | None,
    message: str | None = None,
    ttl: float | None = None,
    poll: float | None = None,
) -> Any:
    if fast_version() == "4":
        from linkspan import TaskStatus

        return TaskStatus(
            task_id=task_id,
            status=status,  # type: ignore[arg-type]
            status_message=message,
            created_at=created_at,
            last_updated_at=last_updated_at,
            ttl_ms=ttl,
            poll_interval_ms=poll,
        )
    found: dict[str, Any] = {"taskId": task_id, "status": status, "statusMessage": message, "ttl": _whole(ttl)}
    found |= {"createdAt": created_at, "lastUpdatedAt": last_updated_at, "pollInterval": _whole(poll)}
    return TYPES["GetTaskResult"].model_validate(found)


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else int(milliseconds)


async def call_tool_task(
    client: Client,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    timeout: Any = None,
    raise_on_error: bool = True,
    version: str | None = None,
    meta: dict[str, Any] | None = None,
) -> ToolTask:
    """Call a tool as a task, and return the task at once. Raises: ToolError where the server makes no task of it."""
    check("call_tool_task", {"version": version}, "version")
    task = await client.started(name, arguments, timeout=timeout, raise_on_error=raise_on_error, meta=meta)
    if task.returned_immediately:
        raise ToolError(
            f"Tool {name!r} did not run as a task: the server returned a CallToolResult instead of a task. Ensure the tool is "
            "declared task=True and the connection is modern (mode='auto')."
        )
    return task
