"""The tasks extension of a server: which calls become tasks, and what clients may do with one.

Spec: the extension io.modelcontextprotocol/tasks, https://github.com/modelcontextprotocol/ext-tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Raw

from linkspan.core.call import Call, Hook, Lifespan
from linkspan.core.connection import ServerConnection
from linkspan.core.extension import Extension, ExtensionMethod, ListenMember, missing_extension
from linkspan.core.waiting import ServerChange
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    RemoteProtocolError,
    RequestCancelled,
)
from linkspan.extensions.task_record import TaskRecord, TaskRequest, arguments_of, described, detailed
from linkspan.extensions.task_run import TaskRun
from linkspan.extensions.task_runner import TaskRunner
from linkspan.extensions.task_store import TaskStore
from linkspan.revisions import REVISIONS
from linkspan.revisions.neutral import Encoded, Outcome, Request
from linkspan.server.asking import asks_first, read_responses
from linkspan.server.dispatch import Dispatcher
from linkspan.server.features.tool_calls import takes
from linkspan.server.handlers import target_of
from linkspan.server.observation import tool_error
from linkspan.server.steps import Step, Steps, await_steps, run_steps
from linkspan.server.task_settings import Task
from linkspan.server.tools import BoundTool
from linkspan.stores.port import Store, StoreError
from linkspan.types.base import JSON, is_array
from linkspan.types.messages import CallToolParams
from linkspan.types.task_messages import TASKS, TaskParams
from linkspan.wire.jsonrpc import encode

_ACKNOWLEDGED: Final = Encoded(b"{}")
_UNKNOWN: Final = "Unknown task: it does not exist, its time is over, or later ones of its caller needed the room"


class _UpdateParams(TaskParams, frozen=True, kw_only=True):
    """Answers to what a task asks."""

    input_responses: Raw


class ServerTasks:
    """The tasks of one server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        store: Callable[[], Store],
        *,
        connections: Callable[[], Sequence[ServerConnection]],
        shared: Callable[[], bool],
    ) -> None:
        """Keep them in `store()`, which other processes see if `shared()`, and notify the clients of `connections()`."""
        self._dispatcher = dispatcher
        self._connections = connections
        system, profile = dispatcher.system, dispatcher.profile
        self.engine, self.max_tasks = profile.tasks, profile.max_tasks
        self.runner = TaskRunner(
            self,
            TaskStore(store, profile.implementation.name),
            random=system.random,
            max_tasks=profile.max_tasks,
            max_tasks_per_principal=profile.max_tasks_per_principal,
            max_task_bytes=profile.max_task_bytes,
            max_task_bytes_per_principal=profile.max_task_bytes_per_principal,
            engine=profile.tasks,
            shared=shared,
        )
        self._tasks = self.runner.tasks
        self.extension = Extension(
            id=TASKS,
            server={},
            methods={
                "tasks/get": ExtensionMethod(params=TaskParams, begin=partial(self._begin_about, self._get)),
                "tasks/update": ExtensionMethod(params=_UpdateParams, begin=partial(self._begin_about, self._update)),
                "tasks/cancel": ExtensionMethod(params=TaskParams, begin=partial(self._begin_about, self._cancel)),
            },
            listen={"taskIds": ListenMember(honoured=self._honoured)},
            around_call=self._around_call,
        )

    # Calls.

    def _around_call(self, request: Request, begin: Callable[[], Outcome | Call]) -> Outcome | Call:
        """Let a call become a task, if its tool may and its client declares the extension (TSK-S1 to TSK-S3)."""
        params = request.params
        assert isinstance(params, CallToolParams)
        tool = self._dispatcher.catalogue.tools.get(params.name, request.shown)
        if type(request) is TaskRequest or tool is None or tool.task is None:
            return begin()
        if not self.extension.declared_by(request.peer):
            return _refusal(request, params.name) if tool.task.required else begin()
        asks = tool.handler.parameters.asks
        if asks and asks_first(asks, self._dispatcher.rounds, request, params.name):  # there is no task yet (TSK-S12)
            return begin()
        if not tool.task.after and self._takes(tool, request, params):
            return self._starting(request, tool, tool.task, None)
        step = begin()
        if not isinstance(step, Call):  # the arguments are wrong, for instance
            return step
        return self._starting(request, tool, tool.task, step)

    def _takes(self, tool: BoundTool, request: Request, params: CallToolParams) -> bool:
        """Return whether it is certain that a call can begin: then it begins once, when its task runs."""
        settings = self._dispatcher.settings.current
        if settings.observed or request.observer is not None:  # the call is reported as it begins
            return False
        is_certain = tool.mounted is None and tool.when is None and not tool.handler.parameters.runs_code
        return is_certain and takes(tool, params.arguments, settings)

    def _starting(self, request: Request, tool: BoundTool, settings: Task, step: Call | None) -> Call:
        """Return the call that answers: with the result if that comes in time, or with the task."""
        is_async, quick = tool.handler.is_async, self._tasks.quick
        steps = partial(self._start, request, settings, step, is_async)
        if is_async:
            return Hook(request, lambda: await_steps(steps(), self._dispatcher.system), is_async=True)
        inline = quick and not settings.after
        return Hook(request, lambda: run_steps(steps(), self._dispatcher.system), inline=inline)

    def _start(self, request: Request, settings: Task, step: Call | None, is_async: bool) -> Steps:
        blocking = not self._tasks.quick
        try:
            if step is None or not settings.after or not self.runner.runs.has_room(request.facts.principal):
                record = yield Step(partial(self.runner.create, request, settings), blocking)
                return _created(record)
            yield Step(partial(self.runner.admit, request), blocking)
            run = self.runner.begin_in_foreground(request, step)
            try:
                yield Step(partial(_wait_on_loop if is_async else _wait, run, settings.after))
                if run.ended.done():
                    self.runner.runs.forget(run)
                    return run.ended.result()
                if request.cancelled:
                    raise RequestCancelled(request.cancel_reason)
                record = yield Step(partial(self.runner.become_task, run, settings), blocking)
            except BaseException:
                self.runner.runs.abandon(run, request.cancel_reason or "the client does not wait any more")
                raise
            return _created(record)
        except RemoteProtocolError as error:
            return error
        except StoreError:
            return _store_failed()

    # What clients do with a task.

    def _begin_about(self, serve: Callable[[Request, TaskRecord], Outcome], request: Request) -> Call:
        return Hook(request, partial(self._about, serve, request), inline=self._tasks.quick)

    def _about(self, serve: Callable[[Request, TaskRecord], Outcome], request: Request) -> Outcome:
        """Serve a request about a task, which must be of the same principal: others' do not exist (TSK-S7, TSK-S13)."""
        params = request.params
        assert isinstance(params, TaskParams)
        try:
            record = self._find(request, params.task_id)
            if record is None:
                return RemoteProtocolError(INVALID_PARAMS, _UNKNOWN)
            return serve(request, record)
        except RemoteProtocolError as error:
            return error
        except StoreError:
            return _store_failed()

    def _find(self, request: Request, task_id: str) -> TaskRecord | None:
        self.runner.use()
        record = self.runner.find(task_id)
        return record if record is not None and record.owner == request.facts.principal else None

    def _get(self, _: Request, record: TaskRecord) -> Outcome:
        return Encoded(detailed(record))

    def _update(self, request: Request, record: TaskRecord) -> Outcome:
        params = request.params
        assert isinstance(params, _UpdateParams)
        if bytes(params.input_responses) == b"null":
            return RemoteProtocolError(INVALID_PARAMS, "Invalid params: inputResponses must be an object of objects")
        self.runner.answer(record, read_responses(params.input_responses))
        return _ACKNOWLEDGED

    def _cancel(self, _: Request, record: TaskRecord) -> Outcome:
        self.runner.cancel(record)
        return _ACKNOWLEDGED

    # Listening.

    def _honoured(self, request: Request, wanted: JSON) -> JSON:
        """Return those of the ids that are tasks of the same principal."""
        ids = wanted if is_array(wanted) else ()
        try:
            return [task_id for task_id in dict.fromkeys(ids) if self._find(request, task_id) is not None]
        except StoreError:
            raise _store_failed() from None

    def listened_to(self) -> set[str]:
        """Return the tasks that clients of this process listen for."""
        return {f"{task_id}" for each in self._connections() for task_id in each.listened_for("taskIds")}

    def announce(self, record: TaskRecord) -> None:
        """Notify the clients of this process that listen for a task: with all that `tasks/get` would return (TSK-S10)."""
        listening = [each for each in self._connections() if each.listeners(_change(record.id))]
        if not listening:
            return
        change = _change(record.id, detailed(record))
        for connection in listening:
            connection.notify(change)

    # What the runner asks (extensions.task_host.TaskHost).

    @property
    def lifespan(self) -> Lifespan | None:
        """What the server opens before its first call."""
        return self._dispatcher.lifespan

    def begin(self, request: Request) -> Outcome | Call:
        """Serve the request of a run."""
        return self._dispatcher.begin(request)

    def reopen(self, request: Request, since: float) -> None:
        """Let a run go on with answers that were kept since a time."""
        request.round = self._dispatcher.rounds.open(request, target_of(request.params) or request.method, at=since)

    def settings(self, record: TaskRecord) -> tuple[Task | None, bool]:
        """Return how the tool of a task runs, and whether it may be repeated."""
        tool = self._dispatcher.catalogue.tools.registered(record.tool)
        hints = tool.spec.annotations if tool is not None else None
        return (tool.task or Task()) if tool is not None else None, hints is not None and hints.is_repeatable

    def can_run(self, record: TaskRecord) -> bool:
        """Return whether this process has the tool of a task, for its arguments."""
        tool = self._dispatcher.catalogue.tools.registered(record.tool)
        if tool is None or record.caller.revision not in REVISIONS:
            return False
        return takes(tool, arguments_of(record), self._dispatcher.settings.current)

    def tools(self) -> Sequence[str]:
        """Return the tools of this process that run as tasks."""
        return [each.spec.name for each in self._dispatcher.catalogue.tools.all() if each.task is not None]

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report a result that cannot be encoded."""
        return self._dispatcher.unsendable(request, error)


def _store_failed() -> RemoteProtocolError:
    """Return the error for a client whose request needs the store while that cannot be reached."""
    return RemoteProtocolError(INTERNAL_ERROR, "The server cannot reach the store of its tasks; try again later")


def _refusal(request: Request, tool: str) -> Outcome:
    """Refuse a client without the extension; in a revision without that error, in words for the model (TSK-S2)."""
    if MISSING_CLIENT_CAPABILITY in request.peer.revision.error_codes:
        return missing_extension(TASKS)
    return tool_error(f"{tool} runs as a task only, which this client does not support: it needs the extension {TASKS}")


def _created(record: TaskRecord) -> Outcome:
    return Raw(encode({"resultType": "task"} | described(record)))


def _wait(run: TaskRun, seconds: float) -> None:
    with suppress(TimeoutError):
        run.ended.result(seconds)


async def _wait_on_loop(run: TaskRun, seconds: float) -> None:
    import asyncio

    await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=seconds)


def _change(task_id: str, params: bytes = b"{}") -> ServerChange:
    return ServerChange("notifications/tasks", member="taskIds", value=task_id, params=Raw(params))
