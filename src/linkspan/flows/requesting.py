"""One request with all that may happen to it: a lost server, another attempt, rounds of questions to the user.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr (MRTR-C1 to MRTR-C3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from linkspan.core.flow import AskUser, Flow, RequestSpec, Send, Sleep
from linkspan.flows.answers import read_question
from linkspan.flows.client_errors import (
    CallTimeout,
    ClientError,
    ConnectError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    ServerError,
    hint_for_refusal,
)
from linkspan.flows.state import ClientState
from linkspan.loading import logger
from linkspan.revisions.neutral import ELICIT, LIST_ROOTS, SAMPLE, InputRequest
from linkspan.wire.jsonrpc import ErrorResponse, Response, encode

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LONGEST_WAIT = 30.0
"""Seconds that a server may ask us to wait (Retry-After); who asks for more gets no second try."""
SHORTEST = 0.05
"""With less time left than this, a request is not sent again."""


class Repeatable(msgspec.Struct, frozen=True):
    """Whether a request may be sent twice. This one may: it only reads."""

    def decide(self, state: ClientState) -> Flow[bool]:
        """Tell, perhaps after asking the server. Raises: ClientError."""
        return True
        yield  # a flow, though this one has no effects


READS = Repeatable()


def backoff(failures: int, chance: float, first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE) -> float:
    """Return how many seconds to wait after so many failures in a row: doubling, with jitter, never long."""
    pause: float = min(first * 2.0 ** min(failures - 1, 16), longest)
    return pause * (0.5 + chance / 2)


def total_of(state: ClientState, spec: RequestSpec) -> float:
    """Return how many seconds a request has in all: for every attempt and every round together."""
    if spec.total is not None:
        return spec.total
    timeouts = state.options.timeouts
    return max(timeouts.list if spec.timeout is None else spec.timeout, timeouts.total)


class _NamedRequest(msgspec.Struct):
    name: str | None = None
    uri: str | None = None


_named = msgspec.json.Decoder(_NamedRequest)


def shown(spec: RequestSpec) -> str:
    """Return what to call a request in an error: its method, and which tool, prompt or resource it is about."""
    try:
        about = _named.decode(spec.params)
    except (msgspec.DecodeError, RecursionError):
        return spec.method
    named = about.name or about.uri
    return f"{spec.method} of {named[:80]!r}" if named else spec.method


def member(name: bytes, value: object) -> bytes:
    """Return one encoded member of an object, with a comma before it."""
    return b',"%b":%b' % (name, encode(value))


def request(state: ClientState, spec: RequestSpec, repeatable: Repeatable = READS) -> Flow[Response]:
    """Send a request, again where that is allowed and its server was lost. Raises: ClientError.

    What is raised tells of all attempts: once one of them may have been sent, `delivery` is never `not_sent`.
    """
    if state.telemetry is None and state.agreement is None:
        state.telemetry = state.find_telemetry()
    span = state.telemetry.begin(state, spec) if state.telemetry is not None else None
    current: RequestSpec | None
    current = spec = spec if span is None else span.spec
    began = state.clock()
    attempt = 1
    unsent = True
    try:
        while True:
            assert current is not None
            try:
                answer: Response | ErrorResponse = yield Send(current)
            except ClientError as error:
                pause = yield from _pause_before_next(state, error, repeatable, attempt)
                unsent = unsent and error.delivery == "not_sent"
                if pause is not None:
                    current = _in_the_time_left(state, spec, state.clock() - began, pause)
                if pause is None or current is None:
                    error.delivery = error.delivery if unsent or error.delivery == "answered" else "maybe_sent"
                    raise
                _log_repetition(state, spec, error, pause, attempt + 1)
            else:
                if type(answer) is Response:
                    if span is not None:
                        span.end(answer)
                    return answer
                assert isinstance(answer, ErrorResponse)
                raise server_error(state, spec, answer)
            yield Sleep(pause)
            attempt += 1
    except BaseException as error:
        if span is not None:
            span.end(error)
        raise


def _log_repetition(state: ClientState, spec: RequestSpec, error: ClientError, pause: float, attempt: int) -> None:
    server = state.origin.server
    logger("linkspan.client").info(
        "%s: %s is sent again in %.1f s (attempt %d): %s",
        *(server, shown(spec), pause, attempt, error.problem),
        extra={"server": server, "method": spec.method},
    )


def _pause_before_next(
    state: ClientState, error: ClientError, repeatable: Repeatable, attempt: int
) -> Flow[float | None]:
    """Return how many seconds to wait before the next attempt; None if there is none."""
    if not isinstance(error, ConnectionLost | ConnectError | HttpError):
        return None
    allowed = state.options.attempts * (2 if error.delivery == "not_sent" else 1)
    if attempt >= allowed or not (yield from _may_repeat(state, error, repeatable)):
        return None
    asked = getattr(error, "retry_after", None) or 0.0
    return None if asked > _LONGEST_WAIT else max(asked, backoff(attempt, state.random()))


def _in_the_time_left(state: ClientState, spec: RequestSpec, gone: float, pause: float) -> RequestSpec | None:
    """Return the same request with the time that is left for it `gone` seconds after it was sent first; None if none is.

    A server that was there for longer than the bound on silence has shown progress, and gets that bound anew.
    """
    timeout = state.options.timeouts.list if spec.timeout is None else spec.timeout
    total = total_of(state, spec) if spec.left is None else spec.left
    left = (timeout - gone if gone < timeout else timeout) - pause
    total_left = total - gone - pause
    if min(left, total_left) < SHORTEST:
        return None
    return msgspec.structs.replace(spec, timeout=left, left=total_left)


def _may_repeat(state: ClientState, error: ClientError, repeatable: Repeatable) -> Flow[bool]:
    """Decide by the policy. A server that never worked is not tried again by itself: it would only fail more slowly."""
    policy = state.options.retry
    if (
        policy == "never"
        or error.delivery == "answered"
        or (isinstance(error, ConnectError) and state.agreement is None)
    ):
        return False
    if policy == "always" or error.delivery == "not_sent":
        return True
    return (yield from repeatable.decide(state))


def server_error(state: ClientState, spec: RequestSpec, answer: ErrorResponse) -> ServerError:
    """Return what the caller of a request gets for a JSON-RPC error."""
    return ServerError(
        f"{spec.method} was refused: {answer.message} ({answer.code})",
        state.origin,
        phase=spec.phase,
        delivery="answered",
        code=answer.code,
        message=answer.message,
        data=answer.data,
        hint=hint_for_refusal(answer.message, answer.data),
    )


# Rounds of questions.


class Question(msgspec.Struct, frozen=True):
    """A question of the server, as it came."""

    method: str
    params: Raw = Raw(b"{}")


class _Interim(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = "complete"
    input_requests: dict[str, Question] | None = None
    request_state: str | None = None


_interim = msgspec.json.Decoder(_Interim)
_ASKABLE = (ELICIT, SAMPLE, LIST_ROOTS)


def request_with_rounds(
    state: ClientState,
    spec: RequestSpec,
    repeatable: Repeatable = READS,
    at_once: Callable[[Raw], object] | None = None,
    began: float | None = None,
    first: Response | None = None,
) -> Flow[Raw]:
    """Send a request and answer the server's questions until it has a result; return the result. Raises: ClientError.

    `at_once` receives a result that came without any questions: only such a result may be cached (CACHE-C6).
    `began` is when the time of the whole call began, if that is not now. `first` is the response to the first round, if
    there is one.
    """
    began = state.clock() if began is None else began
    time_left: TimeLeft | None = None
    current = spec
    number = 0
    while True:
        number += 1
        response = first or (yield from request(state, current, repeatable))
        first, result = None, response.result
        interim = read_interim(state, spec, result) if b'"input_required"' in bytes(result) else None
        if interim is None:
            if number == 1 and at_once is not None:
                at_once(result)
            return result
        if number > state.options.limits.max_rounds:
            raise InvalidResponse(
                f"{spec.method} asked for input {number} times (limits.max_rounds)", state.origin, delivery="answered"
            )
        if time_left is None:
            time_left = TimeLeft(state, spec, began)
        answers: Mapping[str, bytes] = {}
        if interim.input_requests:
            asked = state.clock()
            answers = yield AskUser(read_questions(state, spec, interim.input_requests), time_left.for_answers)
            time_left.answers_took(state.clock() - asked)
        else:  # the server only asks to be called again
            yield Sleep(min(backoff(number, state.random()), max(0.0, time_left())))
        if (left := time_left()) < SHORTEST:
            seconds = total_of(state, spec)
            raise CallTimeout(
                f"{shown(spec)} timed out: no result within {seconds:g} s, the server asked for another round each time",
                state.origin,
                phase=spec.phase,
                delivery="maybe_sent",
                seconds=seconds,
            )
        current = msgspec.structs.replace(_again(spec, answers, interim.request_state), left=left)


class TimeLeft:
    """What is left of the time of one call. What our own handlers take does not count, up to `timeouts.input` in all."""

    __slots__ = ("_answers", "_clock", "_end", "_for_answers")

    def __init__(self, state: ClientState, spec: RequestSpec, began: float) -> None:
        self._clock = state.clock
        self._end = began + total_of(state, spec)
        self._for_answers = state.options.timeouts.input
        self._answers = 0.0

    def __call__(self) -> float:
        """Return how many seconds are left."""
        return self._end + min(self._answers, self._for_answers) - self._clock()

    @property
    def for_answers(self) -> float:
        """Seconds that are left for our handlers."""
        return max(0.0, self._for_answers - self._answers)

    def answers_took(self, seconds: float) -> None:
        """Record how long the handlers took in total."""
        self._answers += seconds


def read_interim(state: ClientState, spec: RequestSpec, result: Raw) -> _Interim | None:
    """Return the request for input in a result that mentions one, or None."""
    if state.agreement is None or not state.agreement.revision.asks_in_results:
        return None
    try:
        found = _interim.decode(result)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidResponse(
            f"invalid input requests in the result of {spec.method}: {problem}", state.origin, delivery="answered"
        ) from None
    if found.result_type != "input_required":
        return None
    if not found.input_requests and found.request_state is None:
        raise InvalidResponse(
            f"invalid response to {spec.method}: input_required with neither inputRequests nor requestState",
            state.origin,
            delivery="answered",
        )
    return found


def read_questions(
    state: ClientState, spec: RequestSpec, requests: Mapping[str, Question]
) -> Mapping[str, InputRequest]:
    """Return the questions of a server by their shapes. Raises: InvalidResponse."""
    for question in requests.values():
        if question.method not in _ASKABLE:
            raise InvalidResponse(
                f"invalid response to {spec.method}: the protocol has no input request {question.method[:80]!r}",
                state.origin,
                delivery="answered",
            )
    try:
        return {
            key: InputRequest(each.method, read_question(each.method, each.params)) for key, each in requests.items()
        }
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidResponse(
            f"invalid input request in the result of {spec.method}: {problem}", state.origin, delivery="answered"
        ) from None


def _again(spec: RequestSpec, answers: Mapping[str, bytes], request_state: str | None) -> RequestSpec:
    """Return the same request with this round's answers, and the state to the byte as it came (MRTR-C1)."""
    members = b""
    if answers:
        members += b',"inputResponses":{%b}' % b",".join(
            b"%b:%b" % (encode(key), each) for key, each in answers.items()
        )
    if request_state is not None:
        members += member(b"requestState", request_state)
    return msgspec.structs.replace(spec, params=spec.params[:-1] + members + b"}")
