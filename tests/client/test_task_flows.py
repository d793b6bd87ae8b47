"""How a client follows a task, as lists of effects: no server, no second. TSK-C1 to TSK-C6."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from test_negotiation import state

from linkspan import CallStopped, CallTimeout, ClientError, ConnectionLost, InvalidResponse, ServerError, TaskCancelled
from linkspan.core.flow import AskUser, ListenFor, Receive, RequestSpec, Send, Sleep, Stopper
from linkspan.flows.client_errors import ServerOrigin
from linkspan.flows.client_extensions import extended
from linkspan.flows.operations import call_tool, read_resource
from linkspan.flows.state import CallOptions, ClientState
from linkspan.flows.tasks import Following, StartedTask, Tasks, TaskStatus, start_tool, task_result
from linkspan.revisions import LATEST, LATEST_LEGACY, Revision
from linkspan.revisions.agreement import Agreement
from linkspan.wire.jsonrpc import ErrorResponse, Notification, Response, encode

ORIGIN = ServerOrigin("there", command="there")
DONE = {"content": [{"type": "text", "text": "done"}], "isError": False}
QUESTION = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {"type": "object"}}}


class Clock:
    """Time that passes where a flow waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def client(revision: Revision = LATEST) -> tuple[ClientState, Clock]:
    clock = Clock()
    found = state()
    found.options = extended(found.options, [Tasks()])
    found.agreement = Agreement(revision)
    found.clock = clock
    return found, clock


class FakeReader:
    """A subscription that acknowledges."""

    def __init__(self, acknowledged: Mapping[str, Any]) -> None:
        self.acknowledged = acknowledged
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def task(status: str = "working", **members: Any) -> Response:
    body = {"taskId": "t1", "status": status, "createdAt": "c", "lastUpdatedAt": "l", "ttlMs": None, **members}
    return Response(1, msgspec.Raw(encode(body)))


def created(status: str = "working", **members: Any) -> Response:
    return task(status, resultType="task", **members)


def reported(status: str, task_id: str = "t1", **members: Any) -> Notification:
    return Notification("notifications/tasks", msgspec.Raw(encode({"taskId": task_id, "status": status, **members})))


class Play:
    """Plays the part of the driver: gives the outcomes of a list, in turn, and writes down what the flow wants."""

    def __init__(self, clock: Clock, outcomes: Iterable[Any], reader: FakeReader | None = None) -> None:
        self.clock = clock
        self.outcomes = iter(outcomes)
        self.reader = reader or FakeReader({})
        self.seen: list[Any] = []
        self.specs: list[RequestSpec] = []

    def run(self, flow: Any) -> Any:
        try:
            effect = next(flow)
            while True:
                outcome = self.perform(effect)
                effect = flow.throw(outcome) if self.raises(outcome, effect) else flow.send(outcome)
        except StopIteration as stop:
            return stop.value

    def raises(self, outcome: Any, effect: Any) -> bool:
        return isinstance(outcome, BaseException) and not (
            isinstance(effect, Receive) and isinstance(outcome, ClientError)
        )

    def perform(self, effect: Any) -> Any:
        match effect:
            case ListenFor():
                self.seen.append(("listen", dict(effect.wanted)))
                return self.reader
            case Receive():
                outcome = next(self.outcomes)
                if outcome is None or isinstance(outcome, float):  # nothing is heard: for all, or some, of the time
                    self.clock.now += effect.seconds if outcome is None else outcome
                    self.seen.append(("wait", round(effect.seconds, 3)))
                    return None
                self.seen.append("hear")
            case AskUser():
                self.seen.append(("ask", *effect.requests))
                outcome = next(self.outcomes)
            case Sleep():
                self.seen.append(("sleep", effect.seconds))
                return None
            case _:
                assert isinstance(effect, Send)
                self.specs.append(effect.spec)
                self.seen.append((effect.spec.method, json.loads(effect.spec.params)))
                outcome = next(self.outcomes)
        return outcome() if callable(outcome) else outcome

    @property
    def methods(self) -> list[Any]:
        return [each[0] if isinstance(each, tuple) else each for each in self.seen]


ABOUT = {"taskId": "t1"}
CALL = ("tools/call", {"name": "work", "arguments": {}})
LISTENS = ("listen", {"taskIds": ("t1",)})


def test_a_task_is_polled_as_often_as_its_server_asks_for() -> None:
    state, clock = client()
    play = Play(
        clock, [created(pollIntervalMs=200), None, task(pollIntervalMs=700), None, task("completed", result=DONE)]
    )
    result = play.run(call_tool(state, "work"))
    assert result.text == "done"
    assert play.seen == [
        CALL,
        LISTENS,
        ("wait", 0.2),
        ("tasks/get", ABOUT),
        ("wait", 0.7),
        ("tasks/get", ABOUT),
    ]
    assert play.reader.closed == 1
    assert state.listening == 0


@pytest.mark.parametrize(("asked", "waits"), [(None, 1.0), (0, 0.05), (-5, 0.05), (3_600_000, 60.0)])
def test_polls_are_neither_too_many_nor_too_few(asked: int | None, waits: float) -> None:
    state, clock = client()
    first = created() if asked is None else created(pollIntervalMs=asked)
    play = Play(clock, [first, None, task("completed", result=DONE)])
    play.run(call_tool(state, "work"))
    assert ("wait", waits) in play.seen


def test_what_the_server_reports_ends_the_wait_and_makes_polls_rare() -> None:
    state, clock = client()
    reader = FakeReader({"taskIds": ["t1"]})
    play = Play(clock, [created(), reported("working"), reported("completed", result=DONE)], reader)
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.seen == [CALL, LISTENS, "hear", "hear"]
    play = Play(clock, [created(pollIntervalMs=500), None, task("completed", result=DONE)], reader)
    play.run(call_tool(state, "work"))
    assert play.seen[2:] == [("wait", 2.5), ("tasks/get", ABOUT)]


@pytest.mark.parametrize(
    "heard",
    [
        reported("completed", task_id="t2", result=DONE),
        reported("completed"),
        Notification("notifications/tasks", msgspec.Raw(b"[]")),
        Notification("notifications/tasks", None),
        0.0,
    ],
)
def test_other_notifications_are_ignored(heard: Any) -> None:
    state, clock = client()
    play = Play(clock, [created(), heard, None, task("completed", result=DONE)])
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.methods[-1] == "tasks/get"


def test_a_task_that_ended_before_the_server_began_to_report_is_polled_for_at_once() -> None:
    state, clock = client()
    reader = FakeReader({"taskIds": ["t1"]})
    play = Play(clock, [created(pollIntervalMs=1000), 0.25, task("completed", result=DONE)], reader)
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.seen[2:] == [("wait", 5.0), ("tasks/get", ABOUT)]
    assert clock.now == 0.25


def test_a_subscription_that_ends_leaves_polling() -> None:
    state, clock = client()
    lost = ConnectionLost("lost", ORIGIN)
    play = Play(clock, [created(), lost, None, task("completed", result=DONE)], FakeReader({"taskIds": ["t1"]}))
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.seen[2:] == ["hear", ("wait", 1.0), ("tasks/get", ABOUT)]
    assert play.reader.closed == 1


def test_a_subscription_that_was_lost_and_is_there_again_leads_to_a_poll() -> None:
    state, clock = client()
    reader = FakeReader({"taskIds": ["t1"]})
    play = Play(
        clock,
        [created(pollIntervalMs=1000), 0.0, task(pollIntervalMs=1000), 0.5, task("completed", result=DONE)],
        reader,
    )
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.seen[2:] == [("wait", 5.0), ("tasks/get", ABOUT), ("wait", 5.0), ("tasks/get", ABOUT)]
    assert clock.now == 0.5


def test_a_client_listens_to_few_tasks_at_a_time() -> None:
    state, clock = client()
    state.listening = 16
    play = Play(clock, [created(), None, task("completed", result=DONE)])
    play.run(call_tool(state, "work"))
    assert play.methods == ["tools/call", "wait", "tasks/get"]
    assert state.listening == 16


# Questions (TSK-C4).


def test_questions_are_answered_once_for_each_key() -> None:
    state, clock = client()
    asking = task("input_required", inputRequests={"name": QUESTION})
    both = task("input_required", inputRequests={"name": QUESTION, "name#2": QUESTION})
    answer, second = {"name": b'{"action":"accept"}'}, {"name#2": b'{"action":"decline"}'}
    outcomes = [created(), None, asking, answer, task(), None, asking, None, both, second, task()]
    play = Play(clock, [*outcomes, None, task("completed", result=DONE)])
    assert play.run(call_tool(state, "work")).text == "done"
    assert [each for each in play.seen if each[0] in ("ask", "tasks/update")] == [
        ("ask", "name"),
        ("tasks/update", {"taskId": "t1", "inputResponses": {"name": {"action": "accept"}}}),
        ("ask", "name#2"),
        ("tasks/update", {"taskId": "t1", "inputResponses": {"name#2": {"action": "decline"}}}),
    ]


def test_a_task_that_is_created_with_a_question_is_read_first() -> None:
    state, clock = client()
    asking = task("input_required", inputRequests={"name": QUESTION})
    play = Play(
        clock,
        [
            created("input_required"),
            asking,
            {"name": b'{"action":"cancel"}'},
            task(),
            None,
            task("completed", result=DONE),
        ],
    )
    assert play.run(call_tool(state, "work")).text == "done"
    assert play.methods == ["tools/call", "tasks/get", "ask", "tasks/update", "listen", "wait", "tasks/get"]


def test_the_time_of_answers_does_not_count() -> None:
    state, clock = client()

    def slowly() -> Mapping[str, bytes]:
        clock.now += 500
        return {"name": b'{"action":"cancel"}'}

    asking = task("input_required", inputRequests={"name": QUESTION})
    play = Play(clock, [created(), None, asking, slowly, task(), None, task("completed", result=DONE)])
    assert play.run(call_tool(state, "work", options=CallOptions(total=60.0))).text == "done"


def test_a_question_of_another_kind_is_invalid() -> None:
    state, clock = client()
    play = Play(clock, [created(), None, task("input_required", inputRequests={"x": {"method": "shell/run"}})])
    with pytest.raises(InvalidResponse, match="the protocol has no input request 'shell/run'") as caught:
        play.run(call_tool(state, "work"))
    assert caught.value.task_id == "t1"


def test_a_task_may_not_ask_without_an_end() -> None:
    state, clock = client()
    rounds: list[Any] = []
    for number in range(17):
        key = f"name#{number}"
        rounds += [None, task("input_required", inputRequests={key: QUESTION}), {key: b'{"action":"cancel"}'}, task()]
    play = Play(clock, [created(pollIntervalMs=100), *rounds])
    with pytest.raises(InvalidResponse, match=r"the task asked for input 17 times \(limits.max_rounds\)") as caught:
        play.run(call_tool(state, "work"))
    assert caught.value.task_id == "t1"
    assert play.methods.count("ask") == 16


@pytest.mark.parametrize("honoured", [7, "t1", {"t1": 1}, [], ["t2"], None])
def test_what_is_not_acknowledged_is_polled(honoured: Any) -> None:
    state, clock = client()
    play = Play(clock, [created(), None, task("completed", result=DONE)], FakeReader({"taskIds": honoured}))
    play.run(call_tool(state, "work"))
    assert ("wait", 1.0) in play.seen


# Ends.


def test_a_task_that_failed_is_the_error_of_the_call() -> None:
    state, clock = client()
    play = Play(clock, [created(), None, task("failed", error={"code": -32050, "message": "no", "data": {"a": 1}})])
    with pytest.raises(ServerError, match="tools/call was refused: no") as caught:
        play.run(call_tool(state, "work"))
    error = caught.value
    assert (error.code, error.message, error.data, error.task_id) == (-32050, "no", {"a": 1}, "t1")


def test_a_task_that_was_cancelled_is_a_typed_error() -> None:
    state, clock = client()
    play = Play(clock, [created(), None, task("cancelled", statusMessage="by an operator")])
    with pytest.raises(TaskCancelled, match="the task of tools/call of 'work' was cancelled: by an operator") as caught:
        play.run(call_tool(state, "work"))
    assert (caught.value.task_id, caught.value.delivery) == ("t1", "answered")


def test_a_failure_of_the_tool_is_a_result() -> None:
    state, clock = client()
    play = Play(clock, [created(), None, task("completed", result={"content": [], "isError": True})])
    assert play.run(call_tool(state, "work")).is_error


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_an_end_without_an_outcome_is_invalid(status: str) -> None:
    state, clock = client()
    with pytest.raises(InvalidResponse, match=f"invalid response to tasks/get: the task is {status}"):
        Play(clock, [created(), None, task(status)]).run(call_tool(state, "work"))


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"taskId":"t1"}', b'{"taskId":"t1","status":"lost"}', b'{"taskId":7,"status":"working"}']
)
def test_a_state_that_cannot_be_read_is_invalid(body: bytes) -> None:
    state, clock = client()
    answer = Response(1, msgspec.Raw(body))
    with pytest.raises(InvalidResponse, match="invalid response to tasks/get"):
        Play(clock, [created(), None, answer]).run(call_tool(state, "work"))


def test_a_result_whose_result_is_a_task_again_is_invalid() -> None:
    state, clock = client()
    again = task("completed", result={**DONE, "resultType": "task"})
    with pytest.raises(InvalidResponse, match="has the type 'task'"):
        Play(clock, [created(), None, again]).run(call_tool(state, "work"))


def test_a_task_in_place_of_anything_else_is_invalid() -> None:
    state, clock = client()
    with pytest.raises(InvalidResponse, match="the result of resources/read has the type 'task'"):
        Play(clock, [created(contents=[])]).run(read_resource(state, "note://one"))


def test_a_task_that_was_not_declared_is_invalid() -> None:
    plain = state()
    plain.agreement = Agreement(LATEST)
    with pytest.raises(InvalidResponse, match="has the type 'task', which this client does not know"):
        Play(Clock(), [created()]).run(call_tool(plain, "work"))


def test_a_deadline_names_the_task_which_goes_on() -> None:
    state, clock = client()
    play = Play(clock, [created(pollIntervalMs=4000), None, task(pollIntervalMs=4000), None, task()])
    with pytest.raises(CallTimeout, match="still at work after 5 s") as caught:
        play.run(call_tool(state, "work", options=CallOptions(total=5.0, timeout=5.0)))
    assert (caught.value.task_id, caught.value.seconds, caught.value.delivery) == ("t1", 5.0, "maybe_sent")
    assert play.methods == ["tools/call", "listen", "wait", "tasks/get", "wait", "tasks/get"]
    assert clock.now == 5.0


def test_an_unknown_task_is_the_error_of_the_server() -> None:
    state, clock = client()
    unknown = ErrorResponse(1, -32602, "Unknown task")
    with pytest.raises(ServerError) as caught:
        Play(clock, [created(), None, unknown]).run(call_tool(state, "work"))
    assert (caught.value.code, caught.value.task_id) == (-32602, "t1")


# Giving up (TSK-C5).


def test_a_stopped_call_cancels_its_task() -> None:
    state, clock = client()
    stopper = Stopper()

    def stop() -> None:
        stopper.stop("enough")

    play = Play(clock, [created(), stop, task()])
    with pytest.raises(CallStopped) as caught:
        play.run(call_tool(state, "work", options=CallOptions(stopper=stopper)))
    assert play.seen[-1] == ("tasks/cancel", ABOUT)
    assert caught.value.task_id == "t1"
    assert play.reader.closed == 1


@pytest.mark.parametrize("answer", [task(), ConnectionLost("gone", ORIGIN)])
def test_a_caller_that_is_interrupted_cancels_its_task(answer: Any) -> None:
    state, clock = client()
    play = Play(clock, [created(), KeyboardInterrupt(), answer, *[answer] * 9])
    with pytest.raises(KeyboardInterrupt):
        play.run(call_tool(state, "work"))
    assert ("tasks/cancel", ABOUT) in play.seen
    assert play.reader.closed == 1


def test_a_flow_that_is_dropped_asks_for_nothing() -> None:
    state, clock = client()
    flow = call_tool(state, "work")
    play = Play(clock, [created()])
    effect: Any = flow.send(play.perform(next(flow)))
    effect = flow.send(play.perform(effect))
    assert isinstance(effect, Receive)
    flow.close()
    assert play.reader.closed == 1


# Starting, and following from elsewhere.


def test_a_started_call_returns_its_task_at_once() -> None:
    state, clock = client()
    play = Play(clock, [created()])
    found = play.run(start_tool(state, "work", {"a": 1}, CallOptions()))
    assert isinstance(found, StartedTask)
    assert (found.task.task_id, found.text) == ("t1", "task t1 is working")
    assert play.methods == ["tools/call"]


def test_a_started_call_that_is_answered_at_once_has_its_result() -> None:
    state, clock = client()
    found = Play(clock, [Response(1, msgspec.Raw(encode(DONE)))]).run(start_tool(state, "work", None, CallOptions()))
    assert found.text == "done"
    assert not isinstance(found, StartedTask)


def test_middleware_sees_a_text_in_place_of_a_task() -> None:
    from linkspan.flows.client_middleware import compile_middleware

    seen: list[str] = []

    def middleware(call: Any) -> Any:
        result = yield
        seen.append(result.text)

    state, clock = client()
    state.surround = compile_middleware([middleware], awaits=False)
    found = Play(clock, [created()]).run(start_tool(state, "work", None, CallOptions()))
    assert isinstance(found, StartedTask)
    assert seen == ["task t1 is working"]


def test_the_result_of_a_task_is_waited_for_from_elsewhere() -> None:
    state, clock = client()
    play = Play(clock, [task(), None, task("completed", result=DONE)])
    assert play.run(task_result(state, "t1", "", CallOptions(), None)).text == "done"
    assert play.methods == ["tasks/get", "listen", "wait", "tasks/get"]
    with pytest.raises(CallTimeout) as caught:
        Play(clock, [task(), None, task()]).run(task_result(state, "t1", "", CallOptions(), 0.5))
    assert caught.value.task_id == "t1"


def test_what_follows_a_task_is_asked_for_by_the_same_principal() -> None:
    state, clock = client()
    headers = {"authorization": "Bearer x"}
    play = Play(clock, [created(), None, task("completed", result=DONE)])
    play.run(call_tool(state, "work", options=CallOptions(headers=headers, meta={"a": 1})))
    assert "listen" not in play.methods
    assert [(each.headers, each.meta) for each in play.specs] == [(headers, b'"a":1'), (headers, b"")]


def test_a_handshake_server_is_not_listened_to() -> None:
    state, clock = client(LATEST_LEGACY)
    following = Following(state, "t1", CallOptions())
    play = Play(clock, [None, task()])
    play.run(following.next(TaskStatus(task_id="t1", status="working"), 10.0))
    assert play.methods == ["wait", "tasks/get"]
