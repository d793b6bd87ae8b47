"""Tasks, as a client sees them: calls of tools whose server answers with a task, and goes on.

A task is polled as often as its server asks for, and listened to where the server acknowledges that. Its questions go to the
handlers of the client, each once. Spec: https://github.com/modelcontextprotocol/ext-tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, structs

from linkspan.core.extension import Extension, ExtensionMethod
from linkspan.core.flow import AskUser, Flow, ListenFor, Receive, RequestSpec, ResultFlow, ValueReader
from linkspan.flows.client_errors import (
    CallStopped,
    CallTimeout,
    ClientClosed,
    ClientError,
    InvalidResponse,
    TaskCancelled,
)
from linkspan.flows.operations import call_tool, final_head, request_spec
from linkspan.flows.requesting import SHORTEST, Question, TimeLeft, read_questions, request, server_error, shown
from linkspan.flows.state import DEFAULT_CALL, NO_RESULTS, CallOptions, ClientState
from linkspan.flows.tool_results import Head, ToolResult, check_output
from linkspan.types.base import ABSENT, JSONObject, is_array
from linkspan.types.methods import ITEM_METHODS
from linkspan.types.task_messages import TASKS, TaskParams
from linkspan.wire.jsonrpc import ErrorResponse, Notification, encode

_FINAL: Final = frozenset({"completed", "failed", "cancelled"})
_SHORTEST_POLL: Final = 0.05
_LONGEST_POLL: Final = 60.0
_USUAL_POLL: Final = 1.0
"""Seconds between two polls, if the server does not name any."""
_LISTENING: Final = 5
"""How many times rarer polls are while the server reports changes by itself."""
_MOST_LISTENING: Final = 16
"""Tasks of one client that are listened to at a time: over HTTP each has a stream of its own. Others are polled."""
_PARTING: Final = 2.0
"""Seconds that a caller who gives up waits for the server to acknowledge the cancellation."""


StatusCallback: TypeAlias = Callable[["TaskStatus"], object]
"""Is called with each new state of a task."""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The state of a task, as its server reported it. Times are in ISO 8601; a `ttl_ms` of None has no end."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str | None = None
    last_updated_at: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.status in _FINAL

    def __repr__(self) -> str:
        """Show what matters in a debugger."""
        said = f", {self.status_message!r}" if self.status_message else ""
        return f"TaskStatus({self.task_id!r}, {self.status!r}{said})"


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str = ""
    data: object = None


class DetailedTask(TaskStatus, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The same with what belongs to the state: what it asks, or how it ended."""

    input_requests: dict[str, Question] | None = None
    result: Raw = ABSENT
    error: _Error | None = None

    @property
    def is_whole(self) -> bool:
        """Whether that is there, as it is in all but the answer that creates a task."""
        needed = {"input_required": self.input_requests, "completed": self.result or None, "failed": self.error}
        return needed.get(self.status, self) is not None


_read_task: Final = msgspec.json.Decoder(DetailedTask).decode


# One request about a task.


def _spec(state: ClientState, method: str, task_id: str, options: CallOptions, members: bytes = b"") -> RequestSpec:
    """Return a short request for the principal of a call."""
    about = structs.replace(options.about_the_caller(), stopper=options.stopper)
    params = b'{"taskId":%b%b}' % (encode(task_id), members)
    return request_spec(state, method, params, about, timeout=state.options.timeouts.list)


def get_task(state: ClientState, task_id: str, options: CallOptions) -> Flow[DetailedTask]:
    """Return the state of a task. Raises: ClientError."""
    spec = _spec(state, "tasks/get", task_id, options)
    return _task_in(state, spec, (yield from request(state, spec)).result)


def cancel_task(state: ClientState, task_id: str, options: CallOptions) -> Flow[None]:
    """Ask the server to end a task; it may end in another way before that. Raises: ClientError."""
    yield from request(state, _spec(state, "tasks/cancel", task_id, options))


def _task_in(state: ClientState, spec: RequestSpec, raw: Raw) -> DetailedTask:
    try:
        return _read_task(raw)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidResponse(
            f"invalid response to {spec.method}: {problem}", state.origin, delivery="answered"
        ) from None


# Following a task.


class Following:
    """Waits for a task to change: for a notification of the server, or for the next poll. `close` it in the end."""

    def __init__(self, state: ClientState, task_id: str, options: CallOptions) -> None:
        self._state = state
        self._task_id = task_id
        self._options = options
        self._reader: ValueReader | None = None
        self._began = False

    def next(self, task: TaskStatus, seconds: float) -> Flow[DetailedTask]:
        """Return the next state after `task`: what is reported, or at the latest what there is after `seconds`."""
        yield from self._listen()
        stopper, clock = self._options.stopper, self._state.clock
        began = clock()
        while (left := began + min(self._pause(task), seconds) - clock()) > 0:
            item: Notification | ClientError | None = yield Receive(left, self._reader, stopper)
            if stopper is not None and stopper.stopped:
                raise CallStopped("the call was stopped", self._state.origin, delivery="maybe_sent")
            if isinstance(item, Notification) and (reported := self._reported(item)) is not None:
                return reported
            if isinstance(item, ClientClosed):
                raise item
            if isinstance(item, ClientError):
                self.close()
            elif item is None and self._listens:
                break  # the subscription has just begun, or begun again: what came before was not reported
        return (yield from get_task(self._state, self._task_id, self._options))

    def close(self) -> None:
        """Listen no more."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._state.listening -= 1
            reader.close()

    def _listen(self) -> Flow[None]:
        """Subscribe, once, unless the task is that of another principal than the client's."""
        state, began, self._began = self._state, self._began, True
        modern = state.agreement is not None and state.agreement.revision.listens_by_request
        if (
            not began
            and modern
            and self._options.about_the_caller() is DEFAULT_CALL
            and state.listening < _MOST_LISTENING
        ):
            self._reader = yield ListenFor({"taskIds": (self._task_id,)})
            state.listening += 1

    @property
    def _listens(self) -> bool:
        """Whether the server reports changes of the task by itself."""
        acknowledged = self._reader.acknowledged.get("taskIds") if self._reader is not None else None
        return is_array(acknowledged) and self._task_id in acknowledged

    def _pause(self, task: TaskStatus) -> float:
        """Return how many seconds may pass before the next poll."""
        wanted = _USUAL_POLL if task.poll_interval_ms is None else task.poll_interval_ms / 1000
        return min(max(wanted, _SHORTEST_POLL) * (_LISTENING if self._listens else 1), _LONGEST_POLL)

    def _reported(self, message: Notification) -> DetailedTask | None:
        """Return the state that a notification reports, if it is one of this task."""
        try:
            found = _read_task(message.params or b"{}")
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if found.task_id == self._task_id and found.is_whole else None


def _follow(
    state: ClientState,
    spec: RequestSpec,
    task: DetailedTask,
    options: CallOptions,
    began: float,
    on_status: StatusCallback | None = None,
) -> Flow[DetailedTask]:
    """Follow a task to its end, and answer its questions. Raises: ClientError, with the id of the task."""
    time_left, answered, rounds = TimeLeft(state, spec, began), set[str](), 0
    following = Following(state, task.task_id, options)
    try:
        if not task.is_whole:
            task = yield from get_task(state, task.task_id, options)
        while not task.is_final:
            asked = {key: each for key, each in (task.input_requests or {}).items() if key not in answered}
            if asked:
                rounds += 1
                if rounds > state.options.limits.max_rounds:
                    problem = f"the task asked for input {rounds} times (limits.max_rounds)"
                    raise InvalidResponse(problem, state.origin, delivery="answered")
                yield from _answer(state, spec, task.task_id, asked, options, time_left)
                answered.update(asked)
            if (left := time_left()) < SHORTEST:
                raise _timed_out(state, spec)
            seen, task = task, (yield from following.next(task, left))
            if on_status is not None and task != seen:
                on_status(task)
        return task
    except ClientError as error:
        error.task_id = task.task_id
        if isinstance(error, CallStopped):
            yield from _give_up(state, task.task_id, options)
        raise
    except GeneratorExit:
        raise
    except BaseException:  # the caller was cancelled, or interrupted
        yield from _give_up(state, task.task_id, options)
        raise
    finally:
        following.close()


def _answer(
    state: ClientState,
    spec: RequestSpec,
    task_id: str,
    asked: Mapping[str, Question],
    options: CallOptions,
    time_left: TimeLeft,
) -> Flow[None]:
    """Put questions to the handlers of the client, and send the answers."""
    began = state.clock()
    answers: Mapping[str, bytes] = yield AskUser(read_questions(state, spec, asked), time_left.for_answers)
    time_left.answers_took(state.clock() - began)
    members = b",".join(b"%b:%b" % (encode(key), each) for key, each in answers.items())
    yield from request(state, _spec(state, "tasks/update", task_id, options, b',"inputResponses":{%b}' % members))


def _give_up(state: ClientState, task_id: str, options: CallOptions) -> Flow[None]:
    """Cancel a task for which no caller waits any more, as far as that is possible at once (TSK-C5)."""
    spec = _spec(state, "tasks/cancel", task_id, options.about_the_caller())
    try:
        yield from request(state, structs.replace(spec, timeout=_PARTING, total=_PARTING))
    except ClientError:
        return  # it ends with its ttl


def _timed_out(state: ClientState, spec: RequestSpec) -> CallTimeout:
    seconds = spec.total if spec.total is not None else state.options.timeouts.total
    return CallTimeout(
        f"{shown(spec)} timed out: its task was still at work after {seconds:g} s",
        state.origin,
        delivery="maybe_sent",
        seconds=seconds,
        hint="the task goes on: client.task(error.task_id).result() waits for it",
    )


def _outcome(state: ClientState, spec: RequestSpec, task: DetailedTask) -> Raw:
    """Return the result of a task that has ended. Raises: ServerError, TaskCancelled."""
    error: ClientError
    if task.status == "completed" and task.is_whole:
        return task.result
    if task.error is not None:
        error = server_error(state, spec, ErrorResponse(None, task.error.code, task.error.message, task.error.data))
    elif task.status == "cancelled":
        said = f": {task.status_message}" if task.status_message else ""
        error = TaskCancelled(f"the task of {shown(spec)} was cancelled{said}", state.origin, delivery="answered")
    else:
        problem = f"invalid response to tasks/get: the task is {task.status} without its outcome"
        error = InvalidResponse(problem, state.origin, delivery="answered")
    error.task_id = task.task_id
    raise error


# What a client does with tasks.


def _finish(state: ClientState, spec: RequestSpec, raw: Raw, began: float, options: CallOptions) -> Flow[Raw]:
    """Return the final result of a call that has become a task. Raises: ClientError."""
    task = yield from _follow(state, spec, _task_in(state, spec, raw), options, began)
    return _outcome(state, spec, task)


class Tasks(Extension, frozen=True, kw_only=True, eq=False):
    """Tasks, for `Client(extensions=[Tasks()])`: servers may answer calls of tools with a task, which the client follows."""

    id: str = TASKS
    client: JSONObject | None = msgspec.field(default_factory=dict[str, object])
    methods: Mapping[str, ExtensionMethod] = msgspec.field(
        default_factory=lambda: dict.fromkeys(
            ("tasks/get", "tasks/update", "tasks/cancel"), ExtensionMethod(params=TaskParams)
        )
    )
    results: Mapping[str, ResultFlow] = msgspec.field(default_factory=lambda: {"task": _finish})


class StartedTask(ToolResult):
    """What middleware sees of a call that was started as a task: a text, with the task behind it."""

    __slots__ = ("task",)

    def __init__(self, state: ClientState, raw: Raw, tool: str, task: DetailedTask) -> None:
        text = f"task {task.task_id} is {task.status}"
        super().__init__(Head([{"type": "text", "text": text}]), raw, state.origin, tool)
        self.task = task


def start_tool(
    state: ClientState, name: str, arguments: Mapping[str, object] | None, options: CallOptions
) -> Flow[ToolResult]:
    """Call a tool, and return its result if that comes at once, or a `StartedTask`. Raises: ClientError."""

    def keep(state: ClientState, spec: RequestSpec, raw: Raw, _: float, __: CallOptions) -> Flow[ToolResult]:
        return StartedTask(state, raw, name, _task_in(state, spec, raw))
        yield

    results: Mapping[str, ResultFlow] = {**NO_RESULTS, "task": keep}
    return (yield from call_tool(state, name, arguments, structs.replace(options, results=results)))


def task_result(
    state: ClientState,
    task_id: str,
    tool: str,
    options: CallOptions,
    timeout: float | None,
    on_status: StatusCallback | None = None,
) -> Flow[ToolResult]:
    """Follow a task to its end and return the result of its tool. `timeout` bounds that in seconds. Raises: ClientError."""
    call = encode({"name": tool}) if tool else b"{}"
    spec = RequestSpec(ITEM_METHODS["tool"].name, call, total=timeout)  # for its errors
    began = state.clock()
    task = yield from get_task(state, task_id, options)
    if on_status is not None:
        on_status(task)
    task = yield from _follow(state, spec, task, options, began, on_status)
    raw = _outcome(state, spec, task)
    head = final_head(state, spec, raw)
    mine = state.own
    known = mine.tools.get(tool)
    return ToolResult(head, raw, state.origin, tool, check_output(state, mine, known, head) if known else ())
