"""One request on its way to an upstream: with its questions, its progress and its end, and never sent twice for an answer.

A modern server's question ends the request here as it did there: what the server wants back is sealed in our own state. A
handshake server waits meanwhile: its call is parked, and the answer resumes it.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, structs

from linkspan.core.flow import Flow, ProgressCallback, RequestSpec, Stopper
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    RemoteProtocolError,
    ResourceNotFoundError,
)
from linkspan.flows.client_errors import ClientError, ServerError
from linkspan.flows.requesting import Repeatable, read_interim, read_questions, request
from linkspan.revisions import LATEST
from linkspan.revisions.modern import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SERVER_INFO
from linkspan.revisions.neutral import InputRequest, InputRequired, Outcome, Request
from linkspan.runtime.deferred import Deferred
from linkspan.runtime.reactor import reactor
from linkspan.server.asking import may_ask
from linkspan.types.base import ABSENT, JSON, JSONObject, TextContent, is_object
from linkspan.types.messages import (
    LOG_LEVELS,
    CallToolParams,
    CallToolResult,
    CompleteParams,
    GetPromptParams,
    LoggingMessageParams,
    ProgressParams,
    PromptReference,
    ReadResourceParams,
    ReadResourceResult,
)
from linkspan.types.methods import FAIL_IN_RESULT, METHODS, TOOL_CALL
from linkspan.upstreams.client import UpstreamClient
from linkspan.upstreams.counting import UpstreamCounts
from linkspan.upstreams.logins import LoginReplier, login_question
from linkspan.upstreams.states import LARGEST_SEALED, LargeStates
from linkspan.wire.jsonrpc import RequestId, Response, encode
from linkspan.wire.values import from_builtins, to_builtins

ASKED: Final = "asked:"
"""Begins the state of a round that a modern server has ended; what that wants back follows."""
PARKED: Final = "parked:"
"""Begins the state of a round for which a handshake server waits; what the call is parked under follows."""

KEPT: Final = "kept:"
"""Begins the state of a round whose server wants back more than fits into a state; what that is kept under follows."""

_OF_CONNECTIONS: Final = frozenset({PROTOCOL_VERSION, CAPABILITIES, CLIENT_INFO, LOG_LEVEL, "progressToken"})
"""The members of `_meta` that belong to one connection."""
_REMEMBERED: Final = 2048
"""Bytes of a `_meta` for which it is remembered what goes upstream: clients repeat theirs."""
_TOKEN: Final = re.compile(rb'(?<=^\{)"progressToken":\d+,|,"progressToken":\d+(?=\}$)')
"""A progress token at the beginning or the end of a `_meta`, where it cannot be a member of a member."""
_TOGETHER: Final = 0.01
"""Seconds after the first of several questions in which the others come."""


class Replier(Protocol):
    """Takes the answer to a question: the connection that it came from, for instance."""

    def answer(self, request_id: RequestId, result: bytes) -> None: ...


class RelayCaller(Protocol):
    """Whose request it is."""

    @property
    def name(self) -> str:
        """What errors call the upstream."""
        ...

    @property
    def client(self) -> UpstreamClient: ...
    @property
    def under_way(self) -> set[RelayedRequest]:
        """Its requests that the server has not answered yet."""
        ...

    @property
    def counts(self) -> UpstreamCounts:
        """The numbers of its upstream."""
        ...

    @property
    def states(self) -> LargeStates:
        """What keeps large states of modern servers."""
        ...

    def passed(self, request: Request, raw: Raw) -> Raw | None:
        """Return what an extension makes of a result of its type; None for other results."""
        ...

    def is_cached(self, method: str) -> bool:
        """Return whether clients may keep the results of a method of an extension."""
        ...

    def call_of(self, kept_under: str) -> RelayedRequest | None:
        """Return the call that is parked under an id, once."""
        ...

    def park(self, relay: RelayedRequest) -> str | None:
        """Keep a call that waits for an answer; return what it is kept under, or None where too many wait."""
        ...


class Marked(Repeatable, frozen=True):
    """A call of a tool, which may be sent again if the tool only reads or is idempotent."""

    is_safe: bool = False

    def decide(self, state: Any) -> Flow[bool]:
        """Return whether the tool may run again."""
        return self.is_safe
        yield  # a flow, though this one has no effects


def passed_on(meta: Raw) -> bytes:
    """Return the members of the `_meta` of a request that go upstream, encoded, without braces."""
    text = bytes(meta)
    if not text or text == b"null":
        return b""
    if b'"progressToken"' in text:
        text = _TOKEN.sub(b"", text, count=1)
    is_repeated = len(text) <= _REMEMBERED and b'"progressToken"' not in text
    return _remembered_members(text) if is_repeated else _members_passed_on(text)


def _members_passed_on(text: bytes) -> bytes:
    members: JSON = msgspec.json.decode(text)
    found = {key: each for key, each in members.items() if key not in _OF_CONNECTIONS} if is_object(members) else {}
    return encode(found)[1:-1] if found else b""


_remembered_members = lru_cache(maxsize=256)(_members_passed_on)


class RelayedRequest:
    """One request upstream. It serves one request of the caller after the other: each round of answers comes in a new one."""

    def __init__(
        self, caller: RelayCaller, request: Request, *, typed: bool, read: Callable[[Raw], Raw] | None = None
    ) -> None:
        """Serve `request`; with `typed`, its result is a shape that middleware can read. `read` makes one of what came."""
        self._caller = caller
        self._request = request
        self._typed = typed
        self._made_by = read
        self.stopper = Stopper()
        """Ends it upstream."""
        self._deferred: Deferred | None = None
        self._outcome: Outcome | None = None
        self._questions: dict[str, tuple[Replier, RequestId, InputRequest]] = {}
        """Those of a handshake server that are not answered yet, by the keys that its caller sees."""
        self._asked = 0
        self._is_gathering = False
        self._parked_under: str | None = None
        self._began = time.monotonic()

    @property
    def on_progress(self) -> ProgressCallback | None:
        """What receives the progress of the request; None where its caller does not."""
        return self._progressed if self._request.progress_token is not None else None

    def begin(self, spec: RequestSpec, repeatable: Repeatable) -> Deferred:
        """Send the request, whose `spec` has its `stopper` and its `on_progress`."""
        deferred = self._attach(self._request)
        client = self._caller.client
        self._caller.under_way.add(self)
        client.start(request(client.state, spec, repeatable), self._ended, self)
        return deferred

    def resume(self, request: Request, answers: Mapping[str, JSON]) -> Deferred:
        """Go on with the next round of the request, which brings the answer that the server waits for."""
        deferred = self._attach(request)
        self._parked_under = None
        for key in self._questions.keys() & answers.keys():
            replier, question_id, _ = self._questions.pop(key)
            replier.answer(question_id, encode(answers[key]))
        if self._outcome is not None:
            request.on_stop = None
            self._settle(self._outcome)
        elif self._questions:
            self._ask()
        return deferred

    def abandon(self, reason: str | None) -> None:
        """End the call upstream: its result is not wanted any more."""
        if self._parked_under is not None:
            self._caller.call_of(self._parked_under)  # no answer is waited for any more
        self.stopper.stop(reason)

    def _attach(self, request: Request) -> Deferred:
        self._request = request
        self._deferred = deferred = Deferred()
        request.on_stop = self._stop_soon
        return deferred

    def _stop_soon(self, reason: str | None) -> None:
        reactor().call(partial(self.abandon, reason))

    def _settle(self, outcome: Outcome) -> None:
        deferred, self._deferred = self._deferred, None
        if deferred is None:
            self._outcome = outcome
        else:
            deferred.put(outcome)

    # What comes from the upstream.

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer already."""
        return self._deferred is None or bool(self._questions)

    def asked(self, replier: Replier, question_id: RequestId, question: InputRequest, /) -> None:
        """Take a question that waits for its answer; those that come together end one round."""
        self._asked += 1
        self._questions[f"question-{self._asked}"] = replier, question_id, question
        if self._deferred is not None and not self._is_gathering:
            self._is_gathering = True
            reactor().call_later(_TOGETHER, self._ask)

    def _ask(self) -> None:
        self._is_gathering = False
        if self._deferred is None:  # the call has ended meanwhile
            return
        parked = self._caller.park(self)
        if parked is None:
            self._settle(_failure(self._request, f"{self._caller.name}: too many calls wait for an answer already"))
            self.abandon("too many questions are open")
            return
        questions = {key: question for key, (_, _, question) in list(self._questions.items())}
        self._parked_under = parked
        self._settle(InputRequired(questions, PARKED + parked))

    def ask_to_log_in(self, url: str) -> bool:
        """Ask the user to open the URL of a login, for which this request waits; return whether its client can be asked."""
        request = self._request
        if not may_ask(request.method) or not request.peer.supports("elicitation", "url") or self.is_parked:
            return False
        refuse = partial(self.abandon, "the user does not want to log in")
        self.asked(LoginReplier(refuse), 0, login_question(self._caller.name, url))
        return True

    def logged(self, message: LoggingMessageParams) -> None:
        """Pass on a log message, if the caller wants it."""
        request = self._request
        least = request.log_level
        if self._deferred is None or least is None or message.level not in LOG_LEVELS:
            return
        if LOG_LEVELS.index(message.level) >= LOG_LEVELS.index(least):
            request.emit(request, "notifications/message", message)

    def _progressed(self, progress: ProgressParams) -> None:
        request = self._request
        token, last = request.progress_token, request.progress
        if self._deferred is None or token is None or (last is not None and progress.progress <= last):
            return
        request.progress = progress.progress
        request.emit(request, "notifications/progress", structs.replace(progress, progress_token=token))

    def _ended(self, found: Response | Exception) -> None:
        self._caller.under_way.discard(self)
        self._request.on_stop = None  # which would keep both of them
        self._caller.counts.ended(self._request.method, time.monotonic() - self._began, found)
        try:
            outcome = self._outcome_of(found)
        except (ClientError, msgspec.DecodeError, RecursionError) as error:
            outcome = self._failed(error)
        except RemoteProtocolError as error:
            outcome = error
        if isinstance(outcome, InputRequired) and len(outcome.state or "") > LARGEST_SEALED:
            keep = partial(self._keep_state, outcome)  # a store may take a while, and nothing may block here
            threading.Thread(target=keep, name="linkspan-state", daemon=True).start()
        else:
            self._settle(outcome)

    # Its end.

    def _keep_state(self, outcome: InputRequired) -> None:
        state = (outcome.state or "").removeprefix(f"{ASKED}=")
        try:
            handle = self._caller.states.keep(state)
        except RemoteProtocolError as error:
            self._settle(_failure(self._request, f"{self._caller.name}: {error}"))
        else:
            self._settle(InputRequired(outcome.requests, KEPT + handle))

    def _outcome_of(self, found: Response | Exception) -> Outcome:
        if isinstance(found, Exception):
            raise found
        request, client = self._request, self._caller.client
        raw, agreement = found.result, client.state.agreement
        assert agreement is not None
        if b'"input_required"' in bytes(raw):
            spec = RequestSpec(request.method)
            interim = read_interim(client.state, spec, raw)
            if interim is not None:
                questions = read_questions(client.state, spec, interim.input_requests or {})
                state = "" if interim.request_state is None else f"={interim.request_state}"
                return InputRequired(questions, ASKED + state)
        if self._made_by is not None:
            return self._made_by(raw)
        if request.method == TOOL_CALL.name and (passed := self._caller.passed(request, raw)) is not None:
            return passed
        revision = agreement.revision
        as_it_came = request.peer.revision is revision or (
            request.peer.revision is LATEST and isinstance(request.params, CallToolParams)
        )
        if as_it_came and not self._typed:
            return raw
        return self._read(raw)

    def _read(self, raw: Raw) -> Outcome:
        """Return a result by its shape, without what it said to our client alone. Raises: msgspec.DecodeError."""
        request = self._request
        members: JSON = msgspec.json.decode(raw)
        if is_object(members):
            members.pop("resultType", None)
            meta = members.get("_meta")
            if is_object(meta) and meta.pop(SERVER_INFO, None) is not None and not meta:
                del members["_meta"]
        spec = METHODS.get(request.method)
        if spec is None:
            return self._of_extension(members)
        shape = spec.result
        assert shape is not None
        result = from_builtins(members, shape)
        if isinstance(result, ReadResourceResult) and result.ttl_ms is None:
            return structs.replace(result, ttl_ms=0, cache_scope="private")
        return result

    def _of_extension(self, members: JSON) -> Raw:
        """Return a result of an extension, with hints for caches where results of the caller's revision have these."""
        request = self._request
        if is_object(members) and not request.peer.revision.caches_results:
            members = {name: each for name, each in members.items() if name not in _NOT_KEPT}
        elif is_object(members) and self._caller.is_cached(request.method):
            members = _NOT_KEPT | members
        return Raw(encode(members))

    def _failed(self, error: Exception) -> Outcome:
        """Return what the caller receives for an error: that of the server, or why there is none."""
        request, name = self._request, self._caller.name
        if isinstance(error, ServerError) and error.code is not None:
            return _as_said(request, error)
        if not isinstance(error, ClientError):
            return _failure(request, f"{name}: its result is not valid")
        if error.phase == "authorize":
            return _failure(request, f"{name}: it needs a login: run `linkspan login {error.url or name}`")
        ran = " It may have run." if error.delivery == "maybe_sent" and request.method in FAIL_IN_RESULT else ""
        return _failure(request, f"{name}: {error.problem}.{ran}")


def _as_said(request: Request, error: ServerError) -> RemoteProtocolError:
    """Return the JSON-RPC error of the server in the words of the caller's revision."""
    code, message = error.code or INTERNAL_ERROR, error.message or "Internal error"
    is_read = isinstance(request.params, ReadResourceParams)
    if is_read and (code == RESOURCE_NOT_FOUND or (code == INVALID_PARAMS and _names_uri(error.data))):
        return ResourceNotFoundError(request.target or "")
    if code in _OF_OUR_REQUESTS and code not in request.peer.revision.error_codes:
        return RemoteProtocolError(INTERNAL_ERROR, message)
    return RemoteProtocolError(code, message, error.data)


_NOT_KEPT: Final[JSONObject] = {"ttlMs": 0, "cacheScope": "private"}
"""The members of a result that no client may keep."""
_OF_OUR_REQUESTS: Final = range(-32099, -32001)
"""Codes that revisions define for what is wrong with a request, as it was sent to the upstream: the caller sent another one."""


def _names_uri(data: object) -> bool:
    return isinstance(data, dict) and "uri" in data


def _failure(request: Request, problem: str) -> Outcome:
    if request.method in FAIL_IN_RESULT:
        return CallToolResult(content=[TextContent(problem)], is_error=True)
    return RemoteProtocolError(INTERNAL_ERROR, problem)


def params_of(request: Request, key: str) -> bytes:
    """Return the params of a request about the item that its own server calls `key`, encoded, without answers."""
    params: Any = request.params
    if isinstance(params, CallToolParams):
        return params_of_call(params, encode(key))
    if isinstance(params, ReadResourceParams):
        return encode({"uri": params.uri})
    if isinstance(params, GetPromptParams):
        return encode({"name": key} | ({} if params.arguments is None else {"arguments": params.arguments}))
    if isinstance(params, CompleteParams):
        ref = structs.replace(params.ref, name=key) if isinstance(params.ref, PromptReference) else params.ref
        return encode(to_builtins(structs.replace(params, ref=ref, meta=ABSENT)))
    return encode(to_builtins(structs.replace(params, meta=ABSENT, **{params.named_by: key})))


def params_of_call(params: CallToolParams, name: bytes) -> bytes:
    """Return the params of a call of the tool that its own server calls `name`, which is encoded already."""
    arguments = params.arguments
    if arguments is ABSENT or not bytes(arguments):
        return b'{"name":%b}' % name
    return b'{"name":%b,"arguments":%b}' % (name, arguments)


def with_answers(params: bytes, answers: Mapping[str, JSON], state: str) -> bytes:
    """Return params with the answers of this round, and with what the server wants back, to the byte (MRTR-C1)."""
    members = b',"inputResponses":%b' % encode(dict(answers)) if answers else b""
    if state.startswith("="):
        members += b',"requestState":%b' % encode(state[1:])
    return params[:-1] + members + b"}"
