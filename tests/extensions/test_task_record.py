"""The record of a task: the codec, its changes, and what clients see of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw, structs

from linkspan import RegistrationError
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions.task_record import (
    TaskRecord,
    answered,
    asked,
    begun,
    cancelled,
    created,
    decode_record,
    detailed,
    ended,
    expired,
    given_back,
    lost,
    refused,
    request_of,
    resumed,
    submitted,
    with_message,
)
from linkspan.revisions import LATEST
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION, encode_answer
from linkspan.revisions.neutral import (
    ELICIT,
    NO_FACTS,
    EncodedToolResult,
    Grant,
    InputRequest,
    Peer,
    Request,
    TransportInfo,
    read_only,
)
from linkspan.server.task_settings import Task, reason_to_fail, task_of
from linkspan.types.base import UNSET, Implementation, TextContent
from linkspan.types.messages import CallToolParams, CallToolResult, ElicitParams, ToolAnnotations

NOW = 1_700_000_000.0
META = {
    PROTOCOL_VERSION: LATEST.date,
    CAPABILITIES: {"elicitation": {}},
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


def request(facts: TransportInfo = NO_FACTS, **members: Any) -> Request:
    params = msgspec.json.decode(
        json.dumps({"name": "reindex", "arguments": {"shards": 12}, "_meta": META}).encode(), type=CallToolParams
    )
    peer = Peer(LATEST, read_only({"elicitation": {}}), Implementation("tester", "1"))
    return Request(7, "tools/call", params, peer, params.meta, facts=facts, **members)


DEFAULT = Task()


def record(settings: Task = DEFAULT, **members: Any) -> TaskRecord:
    return msgspec.structs.replace(created(request(), "a" * 32, settings, NOW), **members)


def question(text: str) -> InputRequest:
    return InputRequest(ELICIT, ElicitParams(message=text, mode="form", requested_schema={"type": "object"}))


def shown(task: TaskRecord) -> dict[str, Any]:
    return json.loads(detailed(task))


# From a request and back.


def test_a_run_serves_the_request_as_it_came() -> None:
    before = request()
    after = request_of(decode_record(created(before, "a" * 32, Task(), NOW).encoded()))
    assert isinstance(before.params, CallToolParams)
    assert isinstance(after.params, CallToolParams)
    assert after.params.name == "reindex"
    assert json.loads(bytes(after.params.arguments)) == {"shards": 12}
    assert json.loads(bytes(after.meta)) == META
    assert after.peer == before.peer
    assert after.facts is NO_FACTS, "what a transport without facts may do, a run may do too"


def test_the_grant_is_kept_and_neither_the_token_nor_a_header() -> None:
    class Token:
        def challenge(self, scopes: object, description: str) -> str:
            return "a secret"

        def token_for(self, audience: str, scopes: object) -> str:
            return "a secret"

    grant = Grant("https://issuer", "ada", scopes=frozenset({"write"}), claims=read_only({"groups": ["a", {"b": 1}]}))
    facts = TransportInfo(read_only({"x-secret": "a secret"}), grant.subject, "10.0.0.1", grant, Token())
    kept = created(request(facts), "a" * 32, Task(), NOW).encoded()
    assert b"secret" not in kept
    after = request_of(decode_record(kept)).facts
    assert after == TransportInfo(principal=grant.subject, grant=grant)


def test_the_answers_to_rounds_before_the_task_reach_its_runs() -> None:
    early = request(input_responses=Raw(b'{"name":{"action":"accept"}}'), request_state="sealed")
    kept = decode_record(created(early, "a" * 32, Task(), NOW).encoded())
    assert b"sealed" not in kept.params
    later = request_of(kept)
    assert (later.request_state, bytes(later.input_responses)) == ("sealed", b'{"name":{"action":"accept"}}')


def test_a_newer_record_can_be_read() -> None:
    """Processes of two versions may share a store."""
    newer = msgspec.msgpack.decode(record().encoded()) | {"invented_later": 1}
    assert decode_record(msgspec.msgpack.encode(newer)) == record()


# What clients see.


def test_a_task_has_the_members_of_the_specification() -> None:
    assert shown(record(Task(ttl=60.0, poll=0.5))) == {
        "taskId": "a" * 32,
        "status": "working",
        "createdAt": "2023-11-14T22:13:20.000Z",
        "lastUpdatedAt": "2023-11-14T22:13:20.000Z",
        "ttlMs": 60000,
        "pollIntervalMs": 500,
    }
    assert shown(record(Task(ttl=None)))["ttlMs"] is None
    assert shown(with_message(record(), "3 of 12", NOW + 1))["statusMessage"] == "3 of 12"


@pytest.mark.parametrize(
    "outcome",
    [
        EncodedToolResult(b'"12"', b"12", True),
        EncodedToolResult(b'"{}"', b'{"a":1}'),
        EncodedToolResult(b'"text"'),
        CallToolResult(content=[TextContent("no")], is_error=True),
        CallToolResult(content=[], meta={"acme/x": 1}, structured_content=Raw(b"[1]")),
        Raw(b'{"content":[]}'),
    ],
)
def test_the_result_in_a_task_is_the_result_that_a_call_returns(outcome: Any) -> None:
    """TSK-S5: a tool's error completes the task, too."""
    task = shown(ended(begun(record(), NOW), outcome, NOW + 2))
    assert task["status"] == "completed"
    suffix = b'"resultType":"complete","_meta":{}}'
    answer = json.loads(encode_answer(request(), outcome, suffix))["result"]
    assert task["result"]["resultType"] == "complete"
    assert {"_meta": {}} | task["result"] == answer


LARGE = 'a "quoted" é\n' * 1000


@pytest.mark.parametrize(
    ("text", "structured", "once"),
    [
        (LARGE, {"result": LARGE}, True),
        (json.dumps({"rows": [LARGE]}, separators=(",", ":"), ensure_ascii=False), {"rows": [LARGE]}, True),
        (json.dumps([LARGE, 1.5], separators=(",", ":"), ensure_ascii=False), {"result": [LARGE, 1.5]}, True),
        (
            json.dumps({"result": 1, "rows": LARGE}, separators=(",", ":"), ensure_ascii=False),
            {"result": 1, "rows": LARGE},
            True,
        ),
        (LARGE, {"result": LARGE + "!"}, False),
        (LARGE, {"other": LARGE}, False),
        (LARGE, None, False),
        ("x" * 1022, {"result": "x" * 1022}, True),  # 1,024 bytes of JSON, the least
        ("x" * 1021, {"result": "x" * 1021}, False),
    ],
)
def test_a_large_text_that_structured_content_repeats_is_kept_once(text: str, structured: Any, once: bool) -> None:
    outcome = CallToolResult(
        content=[TextContent(text)], structured_content=UNSET if structured is None else structured
    )
    task = ended(record(), outcome, NOW)
    assert (task.repeated is not None) is once
    whole = shown(decode_record(task.encoded()))["result"]
    assert whole["content"] == [{"type": "text", "text": text}]
    assert whole.get("structuredContent") == structured
    assert len(task.encoded()) < len(json.dumps(text)) * (1.5 if once else 3) + 2000


def test_a_text_beside_other_content_is_kept_as_it_is() -> None:
    outcome = CallToolResult(content=[TextContent(LARGE), TextContent("more")], structured_content={"result": LARGE})
    task = ended(record(), outcome, NOW)
    assert task.repeated is None
    assert [each["text"] for each in shown(task)["result"]["content"]] == [LARGE, "more"]


def test_a_protocol_error_fails_a_task_with_a_sentence() -> None:
    task = shown(ended(record(), RemoteProtocolError(-32000, "the index is locked", {"by": "ada"}), NOW))
    assert (task["status"], task["statusMessage"]) == ("failed", "the index is locked")
    assert task["error"] == {"code": -32000, "message": "the index is locked", "data": {"by": "ada"}}
    assert "result" not in task


# Questions.


def test_keys_are_unique_for_the_life_of_a_task() -> None:
    """TSK-S6."""
    task = record()
    keys: list[list[str]] = []
    for requests in (["name", "sure"], ["name"], ["name#2", "name"], ["sure"]):
        task = asked(begun(task, NOW), {key: question(key) for key in requests}, "s", NOW)
        assert shown(task)["status"] == "input_required"
        keys.append(list(shown(task)["inputRequests"]))
        task = answered(task, {key: {"action": "accept"} for key in keys[-1]}, NOW)
        assert json.loads(task.answers) == {key: {"action": "accept"} for key in requests}
    assert keys == [["name", "sure"], ["name#2"], ["name#2#2", "name#3"], ["sure#2"]]


def test_answered_keys_vanish_and_the_task_waits_for_the_rest() -> None:
    task = asked(begun(record(), NOW), {"a": question("A?"), "b": question("B?")}, "sealed", NOW)
    half = answered(task, {"a": {"action": "accept"}, "unknown": {"action": "accept"}}, NOW + 1)
    assert shown(half)["status"] == "input_required"
    assert list(shown(half)["inputRequests"]) == ["b"]
    again = answered(half, {"a": {"action": "decline"}}, NOW + 2)
    assert again is half, "an answered key is ignored"
    whole = answered(again, {"b": {"action": "accept"}}, NOW + 3)
    assert shown(whole)["status"] == "working"
    assert "inputRequests" not in shown(whole)
    assert json.loads(whole.answers) == {"a": {"action": "accept"}, "b": {"action": "accept"}}
    run = request_of(whole)
    assert run.request_state == "sealed"


def test_answers_to_a_task_that_asks_nothing_are_ignored() -> None:
    working = record()
    assert answered(working, {"a": {"action": "accept"}}, NOW) is working


# Ends.

ENDS = {
    "completed": lambda task: ended(task, Raw(b"{}"), NOW),
    "failed": lambda task: ended(task, RemoteProtocolError(INTERNAL_ERROR, "no"), NOW),
    "cancelled": lambda task: cancelled(task, NOW),
}


@pytest.mark.parametrize("status", ENDS)
def test_an_ended_task_never_changes(status: str) -> None:
    done = ENDS[status](record())
    assert done.status == status
    for change in (
        *ENDS.values(),
        lambda task: asked(task, {"a": question("A?")}, None, NOW),
        lambda task: answered(task, {"a": {}}, NOW),
        lambda task: with_message(task, "more", NOW),
        lambda task: expired(task, NOW + 10**6),
        lambda task: lost(task, Task(), NOW, repeatable=True),
        lambda task: resumed(task, Task(), NOW, repeatable=True),
        lambda task: cancelled(task, NOW, held=True),
    ):
        assert change(done) is done


def test_a_task_that_does_not_end_in_time_fails() -> None:
    """TSK-S11."""
    task = asked(begun(record(Task(ttl=60.0)), NOW), {"a": question("A?")}, None, NOW)
    assert expired(task, NOW + 59) is task
    late = shown(expired(task, NOW + 60))
    assert late["error"] == {"code": INTERNAL_ERROR, "message": "the task did not end within its time to live (60 s)"}
    assert record(Task(ttl=60.0)).kept_for(NOW + 50) == 70.0
    assert record(Task(ttl=60.0)).kept_for(NOW + 500) == 60.0
    assert record(Task(ttl=None)).kept_for(NOW) is None
    assert expired(record(Task(ttl=None)), NOW + 10**9).status == "working"


def test_a_task_that_runs_is_cancelled_when_its_run_has_ended() -> None:
    held = cancelled(begun(record(), NOW), NOW, held=True)
    assert (held.status, held.stopping) == ("working", True)
    assert shown(held)["status"] == "working"
    assert cancelled(held, NOW).status == "cancelled", "the run ended because of that"
    assert ended(held, Raw(b"{}"), NOW).status == "completed", "a function that does not look ends as it ends"
    assert asked(held, {"a": question("A?")}, None, NOW).status == "cancelled"
    assert lost(held, Task(restart="always"), NOW, repeatable=True).status == "cancelled"
    assert cancelled(record(), NOW, held=True).status == "cancelled", "no process runs it"


# Restart.

GONE = "the server stopped while it ran; it may have been carried out"


@pytest.mark.parametrize(
    ("restart", "repeatable", "again"),
    [
        ("safe", True, True),
        ("safe", False, False),
        ("never", True, False),
        ("never", False, False),
        ("always", True, True),
        ("always", False, True),
    ],
)
def test_a_lost_task_runs_again_as_its_restart_says(restart: Any, repeatable: bool, again: bool) -> None:
    task = lost(begun(record(), NOW), Task(restart=restart), NOW, repeatable=repeatable)
    assert (task.status, task.running, task.lost) == ("working" if again else "failed", False, 1)
    if not again:
        assert shown(task)["statusMessage"] == GONE


def test_attempts_bound_the_runs_that_are_lost() -> None:
    task, settings = record(), Task(restart="always", attempts=3)
    for _ in range(2):
        task = lost(begun(task, NOW), settings, NOW, repeatable=False)
        assert task.status == "working"
    assert shown(lost(begun(task, NOW), settings, NOW, repeatable=False))["statusMessage"] == (
        "the server stopped 3 times while it ran"
    )


@pytest.mark.parametrize(
    ("restart", "repeatable", "again"),
    [("safe", True, True), ("safe", False, False), ("never", True, False), ("always", False, True)],
)
def test_a_run_that_is_given_back_is_not_lost(restart: Any, repeatable: bool, again: bool) -> None:
    settings = Task(restart=restart, attempts=1)
    task = given_back(begun(record(), NOW), settings, NOW, repeatable=repeatable)
    assert (task.status, task.running, task.lost) == ("working" if again else "failed", False, 0)
    if not again:
        assert shown(task)["statusMessage"] == GONE


@pytest.mark.parametrize("change", [submitted, refused])
@pytest.mark.parametrize("kept", [begun(record(), NOW), ended(begun(record(), NOW), CallToolResult(content=[]), NOW)])
def test_a_task_that_does_not_wait_is_not_submitted(
    kept: TaskRecord, change: Callable[[TaskRecord, float], TaskRecord]
) -> None:
    assert change(kept, NOW + 3600) is kept


def test_an_engine_gets_a_task_that_waits_for_long_each_hour() -> None:
    task, now, pauses = record(), NOW, list[float]()
    for _ in range(8):
        task = submitted(task, now)
        pauses.append(task.submit_at - now)
        now = task.submit_at
    assert pauses == [120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]


def pauses_of_refusals(until: float) -> Iterator[tuple[float, float]]:
    """Refuse a task again and again; give how long it has waited then, and the pause that follows."""
    task, now = record(), NOW
    while now < NOW + until:
        task = refused(submitted(task, now), now)
        yield now - NOW, task.submit_at - now
        now = task.submit_at


def test_a_job_that_all_workers_of_a_deploy_refuse_is_submitted_again_within_half_a_minute() -> None:
    pauses = [pause for _, pause in pauses_of_refusals(600.0)]
    assert pauses[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert set(pauses[7:]) == {30.0}


def test_a_job_whose_tool_never_comes_is_submitted_again_ever_more_rarely() -> None:
    """After a twentieth of the time that it has waited at the latest, so that each of many such tasks costs little in a day."""
    waits = list(pauses_of_refusals(86_400.0))
    assert all(pause == pytest.approx(max(30.0, waited / 20)) for waited, pause in waits[6:])
    assert len(waits) < 130


def test_a_job_that_is_lost_after_refusals_is_submitted_again_as_one_that_was_not_refused() -> None:
    task = refused(refused(submitted(record(), NOW), NOW), NOW)
    assert task.submit_at == NOW + 2.0
    task = submitted(task, NOW + 2.0)
    assert task.submit_at == NOW + 122.0
    assert refused(task, NOW + 2.0).submit_at == NOW + 6.0
    assert refused(begun(task, NOW), NOW).running
    waiting = structs.replace(begun(task, NOW), running=False)
    assert refused(waiting, NOW).submit_at == NOW + 1.0, "another wait begins anew"
    assert submitted(waiting, NOW + 1.0).submit_at == NOW + 121.0


def test_a_task_that_had_not_begun_is_not_lost() -> None:
    task = record()
    assert lost(task, Task(restart="never"), NOW, repeatable=False) is task
    assert resumed(task, Task(restart="never"), NOW, repeatable=False).running


def test_a_lost_task_whose_tool_is_gone_does_not_run_again() -> None:
    assert lost(begun(record(), NOW), None, NOW, repeatable=False).status == "failed"


# Settings.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"after": -1.0}, "after is a number of seconds, 0 or more"),
        ({"after": float("nan")}, "after is a number"),
        ({"ttl": 0}, "ttl is a number of seconds above 0, or None"),
        ({"poll": 0.01}, r"poll is 0\.05 seconds or more"),
        ({"restart": "sometimes"}, 'restart is "safe", "never" or "always"'),
        ({"attempts": 0}, "attempts is a whole number, 1 or more"),
        ({"required": "yes"}, "required is True or False"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        Task(**wrong)


def test_task_takes_true_or_settings() -> None:
    assert task_of(True, "t") == Task()
    assert task_of(False, "t") is task_of(None, "t") is None
    assert task_of(Task(after=2), "t") == Task(after=2)
    with pytest.raises(RegistrationError, match=r"reindex: task= takes True or a Task\(\.\.\.\), not float"):
        task_of(2.0, "reindex")


def test_only_hints_say_that_a_tool_may_run_again() -> None:
    assert not ToolAnnotations(destructive_hint=False).is_repeatable
    assert ToolAnnotations(idempotent_hint=True).is_repeatable
    assert ToolAnnotations(read_only_hint=True).is_repeatable
    assert reason_to_fail(Task(attempts=1, restart="always"), repeatable=True, lost=1) == (
        "the server stopped while it ran"
    )
