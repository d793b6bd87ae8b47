"""The client's machine without any I/O: whatever a server sends, each request ends once, and the next good answer counts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan.core.client_connection import (
    CancellationReceived,
    ClientConnection,
    Expired,
    ForbiddenRequest,
    InvalidMessage,
    NotificationReceived,
    Progressed,
    ResponseReceived,
    ServerRequest,
    UnexpectedOutput,
)
from linkspan.core.pending_requests import _ENDED_KEPT, PendingRequests
from linkspan.revisions import LATEST, LATEST_LEGACY
from linkspan.revisions.agreement import Agreement, ClientProfile, before_agreement
from linkspan.types.base import Implementation
from linkspan.wire.values import Limits

Machine = ClientConnection[str]
LIMITS = Limits(max_line_bytes=2000, max_depth=20, max_running=3)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def machine(clock: Clock | None = None) -> Machine:
    return ClientConnection(Agreement(LATEST_LEGACY), clock=clock or Clock(), limits=LIMITS, input_timeout=10)


def send(connection: Machine, owner: str, *, timeout: float = 5, total: float = 60, **options: Any) -> int:
    return connection.send_request("tools/call", b"{}", owner, timeout=timeout, total=total, **options)


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def answer(request_id: Any) -> bytes:
    return line(id=request_id, result={})


def sent(connection: Machine) -> list[Any]:
    return [json.loads(each) for each in connection.data_to_send().splitlines()]


def ended(events: list[Any]) -> list[str]:
    return [each.owner for each in events if isinstance(each, ResponseReceived | InvalidMessage | Expired)]


def chunked(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    return [*chunks, data[at:]]


ids = st.integers(-2, 6) | st.sampled_from(["1", "a", 1.5, None, True, 10**400, [], {}])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
methods = st.sampled_from(
    ["ping", "tools/call", "notifications/progress", "notifications/cancelled", "elicitation/create", ""]
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": ids,
        "method": methods | values,
        "result": values,
        "error": st.fixed_dictionaries({"code": st.integers() | values, "message": values}) | values,
        "params": st.fixed_dictionaries({}, optional={"progressToken": ids, "progress": values, "requestId": ids}),
    },
)
texts = (messages | st.lists(messages, max_size=3) | values).map(lambda value: json.dumps(value).encode())
noise = st.lists(st.binary(max_size=40) | texts | st.just(b"[" * 400) | st.just(b"x" * 2500), max_size=6)


@settings(max_examples=300, deadline=None)
@given(noise, st.lists(st.integers(0, 60), max_size=12))
def test_whatever_comes_in_whatever_chunks_each_request_ends_once_and_the_next_good_answer_counts(
    lines: list[bytes], sizes: list[int]
) -> None:
    connection = machine()
    early = [send(connection, owner) for owner in "abc"]
    events: list[Any] = []
    for chunk in chunked(b"\n".join([*lines, b""]), sizes):
        events += connection.receive_data(chunk)
    late = send(connection, "late")
    after = connection.receive_data(b"\n" + answer(late))
    assert ended(after) == ["late"]  # a good answer is never lost
    for request_id in early:
        events += connection.receive_data(answer(request_id))
    assert sorted(ended(events)) == ["a", "b", "c"]  # each of them once, whatever it was
    assert connection.pending == 0
    assert connection.abandon() == []
    sent(connection)  # whatever was said back is JSON, line by line


@settings(max_examples=150, deadline=None)
@given(noise, st.lists(st.integers(0, 60), max_size=12))
def test_the_chunks_make_no_difference(lines: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join([*lines, b""])
    whole, cut = machine(), machine()
    for connection in (whole, cut):
        send(connection, "a")
    at_once = whole.receive_data(data)
    in_pieces = [event for chunk in chunked(data, sizes) for event in cut.receive_data(chunk)]
    assert in_pieces == at_once
    assert cut.data_to_send() == whole.data_to_send()


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "answer", "error", "progress", "cancel", "forget", "wait", "ask", "reply"]),
        st.integers(1, 5),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_each_request_has_exactly_one_outcome_whatever_happens_in_whatever_order(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    connection = machine(clock)
    asked: list[int] = []
    outcomes: list[str] = []
    for step, number in steps:
        events: list[Any] = []
        match step:
            case "send":
                asked.append(send(connection, str(len(asked) + 1)))
            case "answer":
                events = connection.receive_data(answer(number))
            case "error":
                events = connection.receive_data(line(id=number, error={"code": 1, "message": "no"}))
            case "progress":
                params = {"progressToken": number, "progress": 1}
                events = connection.receive_data(line(method="notifications/progress", params=params))
            case "cancel" | "forget":
                owner = connection.cancel(number) if step == "cancel" else connection.forget(number)
                outcomes += [owner] if owner is not None else []
            case "wait":
                clock.now += number
                events = connection.handle_timeout(clock.now)
            case "ask":
                events = connection.receive_data(line(id=number, method="roots/list"))
            case _:
                connection.answer(number, b"{}")
        outcomes += ended(events)
        due = connection.next_timeout()
        assert (due is None) == (connection.pending == 0)  # nobody waits without an end
    outcomes += connection.abandon()
    assert sorted(outcomes, key=int) == [str(each) for each in asked]


@pytest.mark.parametrize(
    "late",
    [answer(7), answer("1"), answer(1.0), line(id=7, error={"code": 1, "message": "x"}), line(id=True, result={})],
)
def test_answers_to_nothing_are_dropped(late: bytes) -> None:
    """CAN-5; ids are keyed by type and value."""
    connection = machine()
    request_id = send(connection, "a")
    assert ended(connection.receive_data(late)) == (["a"] if late == answer(1.0) else [])
    connection.receive_data(answer(request_id))
    assert connection.receive_data(answer(request_id)) == []


def test_an_answer_after_its_cancellation_is_dropped_and_the_server_was_told() -> None:
    """CAN-3, CAN-5."""
    connection = machine()
    request_id = send(connection, "a")
    connection.data_to_send()
    assert connection.cancel(request_id, "enough") == "a"
    assert sent(connection) == [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "enough"}}
    ]
    assert connection.cancel(request_id) is None
    assert connection.receive_data(answer(request_id)) == []
    assert sent(connection) == []


def test_a_request_that_may_not_be_cancelled_ends_in_silence() -> None:
    """CAN-2: a client never cancels initialize."""
    connection = machine()
    request_id = send(connection, "a", cancellable=False)
    connection.data_to_send()
    assert connection.cancel(request_id) == "a"
    assert sent(connection) == []


def test_progress_moves_the_deadline_up_to_the_total() -> None:
    """CAN-7: reset on progress, a hard maximum regardless of it."""
    clock = Clock()
    connection = machine(clock)
    request_id = send(connection, "a", timeout=5, total=12, watches=True)
    connection.data_to_send()
    for clock.now in (4.0, 8.0, 11.0):
        params = {"progressToken": request_id, "progress": clock.now}
        (event,) = connection.receive_data(line(method="notifications/progress", params=params))
        assert isinstance(event, Progressed)
        assert connection.handle_timeout(clock.now) == []
    assert connection.handle_timeout(11.9) == []
    assert connection.handle_timeout(12.0) == [Expired("a", 12, with_progress=True)]
    assert sent(connection)[0]["method"] == "notifications/cancelled"


def test_the_clock_stands_still_while_the_server_waits_for_our_user() -> None:
    """CAN-9."""
    clock = Clock()
    connection = machine(clock)
    send(connection, "a", timeout=5, total=8)
    clock.now = 1.0
    (asked,) = connection.receive_data(line(id="q", method="elicitation/create", params={}))
    assert isinstance(asked, ServerRequest)
    clock.now = 9.0
    assert connection.handle_timeout(9.0) == []
    connection.answer("q", b"{}")
    assert connection.handle_timeout(13.9) == []
    assert connection.handle_timeout(14.0) == [Expired("a", 5, with_progress=False)]


def test_a_question_that_nobody_answers_does_not_stop_the_clock_for_ever() -> None:
    clock = Clock()
    connection = machine(clock)
    send(connection, "a", timeout=5, total=8)
    connection.receive_data(line(id="q", method="elicitation/create", params={}))
    now, expired = 0.0, []
    while not expired:
        assert now < 30
        now += 1.0
        clock.now = now
        expired = connection.handle_timeout(now)
    assert ended(expired) == ["a"]


def test_questions_are_answered_once_and_only_so_many_at_a_time() -> None:
    connection = machine()
    questions = [line(id=number, method="roots/list") for number in range(4)]
    events = connection.receive_data(b"".join(questions))
    assert [each.request.id for each in events if isinstance(each, ServerRequest)] == [0, 1, 2]
    assert [(each["id"], each["error"]["code"]) for each in sent(connection)] == [(3, -32603)]
    connection.receive_data(questions[0])
    assert [(each["id"], each["error"]["code"]) for each in sent(connection)] == [(0, -32600)]
    connection.answer(0, b"{}")
    connection.answer(0, b"{}")
    assert sent(connection) == [{"jsonrpc": "2.0", "id": 0, "result": {}}]


def test_a_question_that_was_taken_back_gets_no_answer() -> None:
    """CAN-4."""
    connection = machine()
    connection.receive_data(line(id=1, method="roots/list"))
    cancelled = line(method="notifications/cancelled", params={"requestId": 1})
    assert connection.receive_data(cancelled) == [CancellationReceived(1)]
    connection.answer(1, b"{}")
    connection.refuse(1, -1, "no")
    assert sent(connection) == []


def test_only_the_end_of_a_question_or_of_a_subscription_is_an_event() -> None:
    """CAN-6."""
    connection = machine()
    assert connection.receive_data(line(method="notifications/cancelled", params={})) == []
    (event,) = connection.receive_data(line(method="notifications/cancelled", params={"requestId": 7}))
    assert isinstance(event, NotificationReceived)


def test_a_question_on_the_stream_of_a_call_that_has_ended_is_for_nobody() -> None:
    connection = machine()
    first = send(connection, "first")
    send(connection, "second")
    connection.receive_message(line(id=1, method="roots/list"), answers=first)
    assert connection.asked_for(1) == (first, "first")
    connection.receive_data(answer(first))
    assert connection.asked_for(1) is None


def test_a_ping_is_answered_at_once() -> None:
    connection = machine()
    assert connection.receive_data(line(id=5, method="ping")) == []
    assert sent(connection) == [{"jsonrpc": "2.0", "id": 5, "result": {}}]


PROFILE = ClientProfile(Implementation("c", "1"))
ASKABLE = ["ping", "sampling/createMessage", "elicitation/create", "roots/list", "x/y"]


@pytest.mark.parametrize(
    ("agreement", "answered"),
    [
        (Agreement(LATEST), []),
        (before_agreement(LATEST, PROFILE), ["ping"]),
        (before_agreement(LATEST_LEGACY, PROFILE), ASKABLE),
        (Agreement(LATEST_LEGACY), ASKABLE),
    ],
)
def test_a_modern_server_may_not_ask(agreement: Agreement, answered: list[str]) -> None:
    """MSG-6, MSG-7."""
    clock = Clock()
    limits = Limits(max_running=9)
    connection: Machine = ClientConnection(agreement, clock=clock, limits=limits, input_timeout=10)
    send(connection, "a", timeout=5)
    connection.data_to_send()
    events = connection.receive_data(b"".join(line(id=f"q{each}", method=each, params={}) for each in ASKABLE))
    assert [each.method for each in events if isinstance(each, ForbiddenRequest)] == [
        each for each in ASKABLE if each not in answered
    ]
    assert [each.request.method for each in events if isinstance(each, ServerRequest)] == [
        each for each in answered if each != "ping"
    ]
    stopped = connection.handle_timeout(5.0) == []
    assert stopped is (len(answered) > 1), "only a question that may be asked stops the clock of the calls"
    for each in ASKABLE:
        connection.answer(f"q{each}", b"{}")
    assert {each["id"] for each in sent(connection) if "id" in each} == {f"q{each}" for each in answered}


def test_who_may_ask_follows_from_what_was_proposed_last() -> None:
    """A handshake server may ask as soon as it has got `initialize`; one that turns out to be modern may not."""
    connection: Machine = ClientConnection(Agreement(LATEST), clock=Clock(), limits=LIMITS, input_timeout=10)
    kinds = []
    for number, revision in enumerate((LATEST_LEGACY, LATEST)):
        send(connection, f"{revision.era}", agreement=before_agreement(revision, PROFILE))
        (event,) = connection.receive_data(line(id=f"q{number}", method="roots/list"))
        kinds.append(type(event))
    assert kinds == [ServerRequest, ForbiddenRequest]


def test_an_error_without_id_is_meant_for_the_only_request_there_is() -> None:
    nobody = line(id=None, error={"code": -32700, "message": "what?"})
    connection = machine()
    send(connection, "a")
    assert ended(connection.receive_data(nobody)) == ["a"]
    send(connection, "b")
    send(connection, "c")
    assert ended(connection.receive_data(nobody)) == []


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', ["a"]),  # whole, though without a newline
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[', []),  # cut off
        (b'{"jsonrpc":"2.0","id":1,"res', []),
    ],
)
def test_the_last_line_counts_only_if_it_is_whole(last: bytes, expected: list[str]) -> None:
    connection = machine()
    send(connection, "a")
    connection.receive_data(last)
    events = connection.receive_eof()
    assert ended(events) == expected
    assert not any(isinstance(each, UnexpectedOutput) for each in events)  # it was no print
    assert connection.abandon() == ["a"][len(expected) :]


def test_the_last_print_of_a_server_is_kept_though_it_has_no_newline() -> None:
    connection = machine()
    connection.receive_data(b"Starting...")
    assert connection.receive_eof() == [UnexpectedOutput("Starting...", True)]


def test_requests_that_have_ended_are_not_kept_because_one_hangs() -> None:
    connection = machine()
    send(connection, "hangs")
    for number in range(5000):
        connection.receive_data(answer(send(connection, str(number), timeout=50)))
    assert len(connection._pending.deadlines) < 1100
    assert connection.next_timeout() == 5


def test_a_request_without_deadline_never_expires() -> None:
    connection = machine()
    send(connection, "listens", timeout=math.inf, total=math.inf)
    assert connection.next_timeout() is None
    assert connection.handle_timeout(1e12) == []


def test_notifications_come_through_and_broken_progress_does_not() -> None:
    connection = machine()
    changed = line(method="notifications/tools/list_changed")
    (event,) = connection.receive_data(changed)
    assert isinstance(event, NotificationReceived)
    for params in ({}, {"progressToken": 1}, {"progressToken": 9, "progress": 1}, [], {"progress": "x"}):
        assert connection.receive_data(line(method="notifications/progress", params=params)) == []


def test_each_message_of_a_batch_counts() -> None:
    connection = machine()
    first, second = send(connection, "a"), send(connection, "b")
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    answers = [{"jsonrpc": "2.0", "id": each, "result": {}} for each in (second, first)]
    events = connection.receive_data(json.dumps([answers[0], changed, answers[1]]).encode() + b"\n")
    assert ended(events) == ["b", "a"]
    assert isinstance(events[1], NotificationReceived)


@pytest.mark.parametrize("params", [[], "x", {"requestId": []}, {"requestId": 1.5}, {"requestId": {}}])
def test_a_broken_cancellation_ends_nothing(params: Any) -> None:
    connection = machine()
    send(connection, "a")
    assert connection.receive_data(line(method="notifications/cancelled", params=params)) == []
    assert connection.pending == 1


LONG, DEEP = "x" * 2500, "[" * 30 + "]" * 30


@pytest.mark.parametrize("members", [f'"a":"{LONG}"', f'"a":{DEEP}'], ids=["long", "deep"])
def test_an_answer_too_large_to_be_read_ends_its_own_call(members: str) -> None:
    """MSG-5. The id is looked for at both ends."""
    connection = machine()
    first, second, _ = (send(connection, owner) for owner in "abc")
    head = f'{{"jsonrpc":"2.0","id":{second},"result":{{{members}}}}}\n'
    tail = f'{{"result":{{{members}}},"jsonrpc":"2.0","id":{first}}}\n'
    (event,) = connection.receive_data(head.encode())
    assert isinstance(event, InvalidMessage)
    assert event.owner == "b"
    assert ended(connection.receive_data(tail.encode())) == ["a"]
    assert connection.pending == 1


@pytest.mark.parametrize("members", [f'"a":"{LONG}"', f'"a":{DEEP}'], ids=["long", "deep"])
def test_a_question_too_large_to_be_read_is_refused_and_ends_no_call(members: str) -> None:
    """MSG-5. The ids of the two sides have nothing to do with each other."""
    connection = machine()
    request_id = send(connection, "a")
    connection.data_to_send()
    question = f'{{"jsonrpc":"2.0","id":{request_id},"method":"sampling/createMessage","params":{{{members}}}}}\n'
    assert connection.receive_data(question.encode()) == []
    (refusal,) = sent(connection)
    assert (refusal["id"], refusal["error"]["code"]) == (request_id, -32700)
    assert connection.pending == 1


def test_a_notification_too_large_to_be_read_ends_no_call() -> None:
    connection = machine()
    send(connection, "a")
    line_ = f'{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{LONG}"}}}}\n'
    (event,) = connection.receive_data(line_.encode())
    assert isinstance(event, UnexpectedOutput)
    assert connection.pending == 1


@pytest.mark.parametrize(
    ("first", "counts"),
    [
        (answer(1), True),
        (line(id=1, error={"code": 1, "message": "no"}), True),
        (line(id=7, method="ping"), True),
        (line(method="notifications/tools/list_changed"), True),
        (line(id=1, result={"a": LONG}), True),
        (line(id=7, method="sampling/createMessage", params={"a": LONG}), True),
        (line(id=9, result={"a": LONG}), False),
        (b"Welcome!\n", False),
    ],
)
def test_a_message_of_the_server_is_known_to_have_come_also_one_too_large_to_be_read(
    first: bytes, counts: bool
) -> None:
    """What ends before its first message is no MCP server; what ends after it has stopped."""
    connection = machine()
    send(connection, "a")
    connection.receive_data(first)
    assert connection.has_received is counts


def question(request_id: str) -> bytes:
    return line(id=request_id, method="elicitation/create", params={})


def test_overlapping_questions_stop_the_clock_once() -> None:
    """CAN-9: three questions over the same six seconds buy a call six seconds, not eighteen."""
    clock = Clock()
    connection = machine(clock)
    send(connection, "a", timeout=60, total=8)
    clock.now = 1.0
    connection.receive_data(b"".join(map(question, "xyz")))
    clock.now = 7.0
    for each in "xyz":
        connection.answer(each, b"{}")
    assert connection.next_timeout() == 8.0
    assert connection.handle_timeout(13.9) == []
    clock.now = 14.0
    assert connection.handle_timeout(14.0) == [Expired("a", 8, with_progress=False)]


def test_questions_stop_the_clock_for_the_time_of_input_in_all() -> None:
    """However many questions come one after the other."""
    clock = Clock()
    connection = machine(clock)
    send(connection, "a", timeout=5, total=8)
    found: list[Any] = []
    while not found:
        connection.receive_data(question(str(clock.now)))
        clock.now += 1.0
        found = connection.handle_timeout(clock.now)
        connection.answer(str(clock.now - 1.0), b"{}")
    assert (clock.now, found) == (18.0, [Expired("a", 8, with_progress=False)])


def test_a_question_before_a_call_buys_it_nothing() -> None:
    clock = Clock()
    connection = machine(clock)
    connection.receive_data(question("x"))
    clock.now = 6.0
    send(connection, "a", timeout=60, total=3)
    connection.answer("x", b"{}")
    clock.now = 9.0
    assert connection.handle_timeout(9.0) == [Expired("a", 3, with_progress=False)]


def test_a_call_expires_in_time_after_a_question_was_answered_early() -> None:
    """A deadline that a question had put off comes forward again when it is answered, and the driver learns of it."""
    clock = Clock()
    connection = machine(clock)
    send(connection, "a", timeout=5, total=60)
    connection.receive_data(question("x"))
    clock.now = 5.0
    assert connection.handle_timeout(5.0) == []
    assert connection.next_timeout() == 15.0
    connection.answer("x", b"{}")
    assert connection.next_timeout() == 10.0
    clock.now = 10.0
    assert ended(connection.handle_timeout(10.0)) == ["a"]
    assert connection.next_timeout() is None


def test_a_log_message_belongs_to_the_oldest_call_also_when_its_response_comes_with_it() -> None:
    connection = machine()
    first = send(connection, "first")
    send(connection, "second")
    message = line(method="notifications/message", params={"level": "info", "data": "x"})
    logged, response = connection.receive_data(message + answer(first))
    assert isinstance(logged, NotificationReceived)
    assert (logged.owner, response.owner) == ("first", "first")  # type: ignore[union-attr]


def test_only_a_request_that_can_be_cancelled_asks_for_progress() -> None:
    connection = machine()
    for cancellable in (True, False):
        send(connection, "caller", cancellable=cancellable)
    tokens = [each.get("params", {}).get("_meta", {}).get("progressToken") for each in sent(connection)]
    assert tokens[0] is not None
    assert tokens[1] is None


# Other framings, and what is kept.


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"id": 1, "result": {}}, ["one"]),
        ({"id": 2, "result": {}}, []),
        ({"id": True, "result": {}}, []),
        ({"id": 1, "error": {"code": -32603, "message": "no"}}, ["one"]),
        ({"id": None, "error": {"code": -32603, "message": "no"}}, ["one"]),
        ({"error": {"code": -32603, "message": "no"}}, ["one"]),
        ({"id": 2, "error": {"code": -32603, "message": "no"}}, []),
    ],
)
def test_what_answers_one_request_ends_no_other_and_needs_no_id_to_be_an_error(
    members: dict[str, Any], found: list[str]
) -> None:
    connection = machine()
    assert (send(connection, "one"), send(connection, "two")) == (1, 2)
    events = connection.receive_message(line(**members).rstrip(), 1)
    assert ended(events) == found
    assert connection.is_pending(1) == (not found)
    assert connection.is_pending(2)


def test_requests_that_have_ended_are_not_kept_for_one_that_hangs() -> None:
    clock = Clock()
    pending = PendingRequests[str](10.0)
    pending.add(0, "hangs", "x", 0.0, 1000.0, 1000.0, watches=False, cancellable=True)
    most = 0
    for number in range(1, 5000):
        pending.add(number, "ends", "x", clock.now, 2000.0, 2000.0, watches=False, cancellable=True)
        del pending.by_id[number]
        most = max(most, len(pending.deadlines))
    assert most == 2 * 2 + _ENDED_KEPT + 1  # of the two that are open at that moment
    for number in (5000, 5001):
        pending.add(number, f"waits {number}", "x", 0.0, number - 4900.0, 2000.0, watches=False, cancellable=True)
    found: list[str] = []
    for now in (99.0, 100.0, 101.0, 1000.0):
        for request_id, each, _ in pending.expired(now):
            found.append(f"{now:g} {each.owner}")
            del pending.by_id[request_id]
    assert found == ["100 waits 5000", "101 waits 5001", "1000 hangs"]
    assert pending.next_timeout() is None


def test_many_that_wait_are_all_kept() -> None:
    pending = PendingRequests[str](10.0)
    for number in range(500):
        pending.add(number, "waits", "x", 0.0, 1000.0 - number, 1000.0, watches=False, cancellable=True)
    assert pending.next_timeout() == 501.0
    assert [request_id for request_id, *_ in pending.expired(1000.0)] == list(range(499, -1, -1))
