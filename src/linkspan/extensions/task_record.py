"""The record of a task: what is kept of a request that runs on after its answer, and how it changes. No I/O, no clock.

Law: a status that is final never changes, and a key under which the client was asked something is never used again. Neither a
token nor a header of the request is ever in a record.
Spec: the extension io.modelcontextprotocol/tasks, https://github.com/modelcontextprotocol/ext-tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, structs

from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError, clipped
from linkspan.extensions.task_result import Repeated, kept_once
from linkspan.revisions import REVISIONS
from linkspan.revisions.modern import encode_result, input_requests
from linkspan.revisions.neutral import (
    NO_FACTS,
    NOTHING,
    Encoded,
    EncodedToolResult,
    Grant,
    InputRequest,
    Outcome,
    Peer,
    Request,
    TransportInfo,
    read_only,
)
from linkspan.server.task_settings import Task, reason_to_fail
from linkspan.types.base import ABSENT, JSON, Implementation, JSONObject, Wire
from linkspan.types.messages import CallToolParams
from linkspan.types.methods import METHOD_OF
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import key_of

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
FINAL: Final = frozenset({"completed", "failed", "cancelled"})

_KEPT: Final = 60.0
"""Seconds that an ended task can be read for at least, and one whose time is over."""

SUBMIT_AGAIN: Final = 60.0
"""Seconds after which an engine gets a task again that none of its workers has begun; then after twice as long each time."""

_RAREST: Final = 3600.0
"""Seconds after which it gets it again at the latest."""

_REFUSED: Final = 1.0
"""The same for a task that a worker has refused; then after twice as long each time, up to the longest pause."""

_LONGEST_PAUSE: Final = 30.0
"""The longest pause of a task that has waited for up to ten minutes, as during a deploy."""

_PART: Final = 20
"""Of the time that it has waited, which part the longest pause may be: for a tool that never comes, all wait ever longer."""


class _TaskQuestion(msgspec.Struct, frozen=True, array_like=True):
    key: str
    """Under which the handler asks."""
    request: bytes
    """The input request, as JSON."""


class _Caller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who made the request: what the server knows of the client, and on whose behalf it acts."""

    revision: str
    capabilities: bytes
    info: Implementation | None = None
    by_transport: bool = False
    """The transport knows something of its clients, as HTTP does."""
    principal: str | None = None
    grant: bytes | None = None


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task. Times are seconds since 1970; JSON is kept as it is."""

    id: str
    tool: str
    params: bytes
    """Those of the `tools/call`, as they came, with the trace context in their `_meta`; without answers."""
    caller: _Caller
    trace: str | None = None
    """The span of the call, to which those of runs are linked."""
    created: float
    updated: float
    ttl: float | None
    poll: float
    status: Status = "working"
    message: str | None = None
    running: bool = False
    """A run has begun that neither has ended nor was given back."""
    lost: int = 0
    """Runs that ended with their process."""
    stopping: bool = False
    """The client has cancelled it while it ran."""
    submissions: int = 0
    """How often an engine got it again since it waits, or since a worker has refused it."""
    refusals: int = 0
    """How often a worker has refused it since it waits."""
    submit_at: float = 0.0
    """When an engine gets it again, unless a worker has begun it by then; 0 before it was submitted again."""
    questions: Mapping[str, _TaskQuestion] = msgspec.field(default_factory=dict[str, _TaskQuestion])
    """What the client is asked, by the key that it sees."""
    used: tuple[str, ...] = ()
    """All keys that the client has seen."""
    answers: bytes = b"{}"
    """The answers that the next run gets, by the handler's keys."""
    state: str | None = None
    """What that run gets besides: the answers of earlier rounds, sealed."""
    sealed: float
    """When that was sealed: it does not expire while the task waits."""
    result: bytes | None = None
    repeated: Repeated | None = None
    """Takes the place of the result where that repeats a large text."""
    error: bytes | None = None

    OVERHEAD: ClassVar[int] = 4096
    """Bytes that each record takes besides what it holds."""

    @property
    def size(self) -> int:
        """How many bytes it takes in a store, about."""
        parts = (self.params, self.answers, self.result, self.repeated and self.repeated.value, self.error)
        return self.OVERHEAD + sum(len(each) for each in parts if each)

    @property
    def ends(self) -> float | None:
        """When it fails, unless it has ended by then."""
        return None if self.ttl is None else self.created + self.ttl

    def kept_for(self, now: float) -> float | None:
        """Return how many seconds the record stays in the store; None for ever."""
        return None if self.ttl is None else max(self.created + self.ttl - now, 0.0) + _KEPT

    @property
    def owner(self) -> str | None:
        """The principal to whom it belongs."""
        return self.caller.principal

    def encoded(self) -> bytes:
        """Return what is stored."""
        return _encode(self)


_encode: Final[Callable[[TaskRecord], bytes]] = msgspec.msgpack.Encoder().encode
decode_record: Final[Callable[[bytes], TaskRecord]] = msgspec.msgpack.Decoder(TaskRecord).decode


def owner_key(owner: str | None) -> str:
    """Return what stands for a principal in the keys of a store; callers without one count as one."""
    return key_of(owner or "")


# From a request to a record, and back.


def created(request: Request, task_id: str, settings: Task, now: float) -> TaskRecord:
    """Return the record of a `tools/call` that becomes a task."""
    params = request.params
    assert isinstance(params, CallToolParams)
    facts, peer = request.facts, request.peer
    bare = structs.replace(params, input_responses=ABSENT, request_state=None)
    return TaskRecord(
        id=task_id,
        tool=params.name,
        params=encode(bare),
        caller=_Caller(
            revision=peer.revision.date,
            capabilities=_plain_json(peer.capabilities),
            info=peer.info,
            by_transport=facts is not NO_FACTS,
            principal=facts.principal,
            grant=_plain_json(structs.asdict(facts.grant)) if facts.grant is not None else None,
        ),
        trace=next((each.trace for each in request.spans or () if each.trace is not None), None),
        created=now,
        updated=now,
        ttl=settings.ttl,
        poll=settings.poll,
        answers=bytes(request.input_responses) or b"{}",
        state=request.request_state,
        sealed=now,
    )


def _plain_json(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, MappingProxyType):
        return dict(cast("Mapping[str, JSON]", value))
    raise NotImplementedError


class TaskRequest(Request):
    """The request that a run of a task serves."""

    is_run: ClassVar[bool] = True


def request_of(record: TaskRecord) -> TaskRequest:
    """Return the request that a run serves. It has no headers, no token and no way to its client."""
    params, caller = msgspec.json.decode(record.params, type=CallToolParams), record.caller
    facts = NO_FACTS
    if caller.by_transport:
        grant = None if caller.grant is None else msgspec.json.decode(caller.grant, type=Grant)
        grant = grant and structs.replace(grant, claims=read_only(dict(grant.claims)))
        facts = TransportInfo(principal=caller.principal, grant=grant)
    capabilities: JSONObject = msgspec.json.decode(caller.capabilities)
    return TaskRequest(
        record.id,
        METHOD_OF[CallToolParams].name,
        params,
        Peer(REVISIONS[caller.revision], read_only(capabilities) if capabilities else NOTHING, caller.info),
        params.meta,
        progress_token=record.id,
        input_responses=Raw(record.answers),
        request_state=record.state,
        facts=facts,
        trace=record.trace,
    )


def arguments_of(record: TaskRecord) -> Raw | None:
    """Return the arguments of the call, as JSON."""
    return msgspec.json.decode(record.params, type=CallToolParams).arguments


# How it changes. Each function returns the record as it is afterwards; one that has ended stays as it is.


def begun(record: TaskRecord, now: float) -> TaskRecord:
    """Begin a run."""
    return structs.replace(record, running=True, submissions=0, refusals=0, submit_at=0.0, updated=now)


def resumed(record: TaskRecord, settings: Task | None, now: float, *, repeatable: bool) -> TaskRecord:
    """Begin a run of a task that no process has, if it can run; or end it, if it has ended without one."""
    record = lost(record, settings, now, repeatable=repeatable)
    return begun(record, now) if record.status == "working" else record


def lost(record: TaskRecord, settings: Task | None, now: float, *, repeatable: bool) -> TaskRecord:
    """Record that the process that ran it is gone: it can run again, or has failed."""
    settled = _settled(record, now)
    if settled is not record or not record.running:
        return settled
    count = record.lost + 1
    reason = reason_to_fail(settings or _UNKNOWN, repeatable=repeatable, lost=count)
    return _stopped(structs.replace(record, lost=count), reason, now)


def given_back(record: TaskRecord, settings: Task | None, now: float, *, repeatable: bool) -> TaskRecord:
    """Record that the process that runs it was asked to stop. That is no lost run: where it may run again, it does."""
    settled = _settled(record, now)
    if settled is not record or not record.running:
        return settled
    return _stopped(record, reason_to_fail(settings or _UNKNOWN, repeatable=repeatable, lost=0), now)


def _stopped(record: TaskRecord, reason: str | None, now: float) -> TaskRecord:
    """End a run without an outcome: the task fails for a reason, or can run again."""
    back = structs.replace(record, running=False, updated=now)
    return back if reason is None else failed(back, RemoteProtocolError(INTERNAL_ERROR, reason), now)


_UNKNOWN: Final = Task(restart="never")
"""Stands for the settings of a tool that the server has no more."""


def expired(record: TaskRecord, now: float) -> TaskRecord:
    """End it if its time is over."""
    if record.status in FINAL or record.ends is None or record.ends > now:
        return record
    waited = record.status == "working" and not record.running
    reason = f"the task did not end within its time to live ({record.ttl:g} s)"
    return _too_late(record, f"{reason}: {_unserved(record)}" if waited else reason, now)


def unserved(record: TaskRecord, now: float, waited: float) -> TaskRecord:
    """End it: no process that has its tool has come for so many seconds."""
    record = lost(record, None, now, repeatable=False)
    return _too_late(record, f"the task has waited for {waited:g} s: {_unserved(record)}", now)


def _unserved(record: TaskRecord) -> str:
    return f"no process that has its tool, {clipped(record.tool)}, had room for it"


def _too_late(record: TaskRecord, reason: str, now: float) -> TaskRecord:
    return failed(record, RemoteProtocolError(INTERNAL_ERROR, reason), now)


# While it waits for the worker of an engine.


def submitted(record: TaskRecord, now: float) -> TaskRecord:
    """Give it to an engine again, if it is time for that: where several processes try, it changes for one."""
    if record.status != "working" or record.running or now < record.submit_at:
        return record
    count = record.submissions + 1
    return structs.replace(record, submissions=count, submit_at=now + min(SUBMIT_AGAIN * 2**count, _RAREST))


def refused(record: TaskRecord, now: float) -> TaskRecord:
    """Record that a worker does not have its tool: the engine gets it again soon, and then ever more rarely."""
    if record.status != "working" or record.running:
        return record
    pause = min(_REFUSED * 2**record.refusals, max(_LONGEST_PAUSE, (now - record.updated) / _PART))
    return structs.replace(record, submissions=0, refusals=record.refusals + 1, submit_at=now + pause)


def _settled(record: TaskRecord, now: float) -> TaskRecord:
    """End it if there is an end without another run: its time is over, or the client has cancelled it."""
    record = expired(record, now)
    return _final(record, "cancelled", now) if record.stopping and record.status not in FINAL else record


def asked(record: TaskRecord, requests: Mapping[str, InputRequest], state: str | None, now: float) -> TaskRecord:
    """End a run with questions, under keys that the client has not seen yet (TSK-S6)."""
    settled = _settled(record, now)
    if settled.status in FINAL:
        return settled
    used = list(record.used)
    questions: dict[str, _TaskQuestion] = {}
    for key, request in input_requests(requests).items():
        shown, number = key, 1
        while shown in used:
            number += 1
            shown = f"{key}#{number}"
        used.append(shown)
        questions[shown] = _TaskQuestion(key, encode(request))
    if not questions:  # it has only a state for another run
        return structs.replace(record, running=False, answers=b"{}", state=state, sealed=now, updated=now)
    return structs.replace(
        record,
        status="input_required",
        running=False,
        questions=questions,
        used=tuple(used),
        answers=b"{}",
        state=state,
        sealed=now,
        updated=now,
    )


def answered(record: TaskRecord, responses: Mapping[str, JSON], now: float) -> TaskRecord:
    """Take the client's answers; once all are there the task can run again. Those to other keys are ignored."""
    record = expired(record, now)
    known = [key for key in record.questions if key in responses]
    if record.status != "input_required" or not known:
        return record
    answers: JSONObject = msgspec.json.decode(record.answers)
    answers |= {record.questions[key].key: responses[key] for key in known}
    left = {key: question for key, question in record.questions.items() if key not in known}
    return structs.replace(
        record,
        status="input_required" if left else "working",
        questions=left,
        answers=encode(answers),
        updated=now,
    )


def ended(record: TaskRecord, outcome: Outcome, now: float) -> TaskRecord:
    """End it with the outcome of a run that asks nothing: a result, also of an error of the tool, completes it (TSK-S5)."""
    record = expired(record, now)
    if record.status in FINAL:
        return record
    if isinstance(outcome, RemoteProtocolError):
        return failed(record, outcome, now)
    assert isinstance(outcome, Wire | Encoded | EncodedToolResult | Raw)
    result = encode_result(outcome)
    repeated = kept_once(result)
    return _final(record, "completed", now, result=None if repeated else result, repeated=repeated)


def failed(record: TaskRecord, error: RemoteProtocolError, now: float) -> TaskRecord:
    """End it with a JSON-RPC error."""
    if record.status in FINAL:
        return record
    body: JSONObject = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return _final(record, "failed", now, message=error.message, error=encode(body))


def cancelled(record: TaskRecord, now: float, *, held: bool = False) -> TaskRecord:
    """Cancel it: at once, or where a process runs it (`held`) when that has stopped."""
    record = expired(record, now)
    if record.status in FINAL:
        return record
    if held and record.running:
        return structs.replace(record, stopping=True, updated=now)
    return _final(record, "cancelled", now)


def _final(
    record: TaskRecord,
    status: Status,
    now: float,
    *,
    message: str | None = None,
    result: bytes | None = None,
    repeated: Repeated | None = None,
    error: bytes | None = None,
) -> TaskRecord:
    """End it, and forget what only runs need."""
    return structs.replace(
        record,
        status=status,
        message=message,
        running=False,
        questions={},
        answers=b"{}",
        state=None,
        result=result,
        repeated=repeated,
        error=error,
        updated=now,
    )


def with_message(record: TaskRecord, message: str, now: float) -> TaskRecord:
    """Describe how far it has come."""
    return record if record.status in FINAL else structs.replace(record, message=message, updated=now)


# As clients see it.


def described(record: TaskRecord) -> JSONObject:
    """Return the `Task`: what every message about a task has."""
    body: JSONObject = {
        "taskId": record.id,
        "status": record.status,
        "createdAt": _written(record.created),
        "lastUpdatedAt": _written(record.updated),
        "ttlMs": None if record.ttl is None else max(1, round(record.ttl * 1000)),
        "pollIntervalMs": max(1, round(record.poll * 1000)),
    }
    if record.message is not None:
        body["statusMessage"] = record.message
    return body


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def detailed(record: TaskRecord) -> bytes:
    """Return the `DetailedTask` as JSON: with the questions, the result or the error."""
    body: dict[str, object] = described(record)
    if record.status == "input_required":
        body["inputRequests"] = {key: Raw(each.request) for key, each in record.questions.items()}
    result = record.repeated.whole() if record.repeated is not None else record.result
    if result is not None:
        body["result"] = Raw(result)
    if record.error is not None:
        body["error"] = Raw(record.error)
    return encode(body)
