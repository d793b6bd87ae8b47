"""The handshake era as an adapter: a session that answers what is about itself and sends the rest up, filled in.

What comes down is stepped down to the negotiated revision. A request for input becomes requests of ours to the client;
their answers issue the same request again, so that a handler means the same here and in the modern era.
Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Raw

from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    RemoteProtocolError,
    ResourceNotFoundError,
)
from linkspan.revisions import LATEST_LEGACY, REVISIONS
from linkspan.revisions.neutral import (
    ELICIT,
    NOTHING,
    NOTHING_SHOWN,
    Encoded,
    InputRequest,
    InputRequired,
    Outcome,
    Peer,
    Request,
    ServerFacts,
    read_implementation,
    read_only,
)
from linkspan.revisions.record import Revision
from linkspan.revisions.stepdown import step_down
from linkspan.types.base import JSON, Implementation, TextContent, is_object
from linkspan.types.messages import (
    LOG_LEVELS,
    CallToolResult,
    CancelledParams,
    ElicitParams,
    InitializeParams,
    InitializeResult,
    LoggingLevel,
    ServerCapabilities,
    SetLevelParams,
    SubscribeParams,
)
from linkspan.types.methods import FAIL_IN_RESULT, LISTED
from linkspan.wire.jsonrpc import (
    ErrorResponse,
    RequestId,
    Response,
    encode,
    encode_notification,
    encode_request,
)
from linkspan.wire.values import to_builtins

_EMPTY = Encoded(b"{}")
_DEFAULT_LOG_LEVEL: LoggingLevel = "info"


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What a handshake has agreed on, and what the client has set since: all that another process needs to go on."""

    revision: str
    capabilities: dict[str, Any]
    info: Implementation | None
    announced: tuple[str, ...]
    log_level: LoggingLevel | None
    subscriptions: tuple[str, ...]
    ready: bool

    def with_changes(self, before: Agreed, after: Agreed) -> Agreed:
        """Return this with what has changed from `before` to `after`, as another process has done it."""
        old, new = set(before.subscriptions), set(after.subscriptions)
        kept = [uri for uri in self.subscriptions if uri in new or uri not in old]
        return msgspec.structs.replace(
            self,
            log_level=self.log_level if after.log_level == before.log_level else after.log_level,
            subscriptions=tuple(dict.fromkeys([*kept, *(uri for uri in after.subscriptions if uri not in old)])),
            ready=self.ready or after.ready,
        )


class _QuestionRound(msgspec.Struct):
    """The questions that one request waits for."""

    request: Request
    state: str | None
    deadline: float
    waiting: dict[RequestId, tuple[str, str]]
    """Our request's id to the key and the method of its question."""
    holds: bool
    """The handler waits, and receives what is refused."""
    answers: dict[str, JSON] = msgspec.field(default_factory=dict[str, JSON])
    refusals: dict[str, RemoteProtocolError] = msgspec.field(default_factory=dict[str, RemoteProtocolError])


class LegacySession:
    """One handshake and what was agreed in it. Scoped to a process on stdio, to a session id over HTTP (ERA-4)."""

    def __init__(
        self,
        server: ServerFacts,
        *,
        random: Callable[[int], bytes],
        lasting: bool = True,
        question_prefix: str = "",
    ) -> None:
        """Begin before the handshake. `random(n)` gives n unguessable bytes; the ids of our requests begin with the prefix.

        A session that is not `lasting` is over with the request that it was made for: it offers nothing that needs more.
        """
        self.changes = 0
        """How often the client has changed what is agreed on."""
        self._server = server
        self._question_prefix = question_prefix
        self._lasting = lasting
        self._limits = server.profile.limits
        self._random = random
        self._asked = 0
        self._rounds: dict[RequestId, _QuestionRound] = {}  # the oldest first
        self.rounds_of: dict[RequestId, int] = {}  # of the requests that have asked, how often they did
        self._round_of_question: dict[RequestId, _QuestionRound] = {}
        self.peer = Peer(_own_revision(server))
        self.log_level: LoggingLevel | None = _DEFAULT_LOG_LEVEL if lasting else None
        self.negotiated = False
        self.ready = False
        self.subscriptions: dict[str, None] = {}  # an empty set takes three times as much
        self._announced: tuple[str, ...] = ()
        self._notifies = True

    @property
    def revision(self) -> Revision:
        """The negotiated revision; before the handshake the one that would be proposed."""
        return self.peer.revision

    def assume(self, revision: Revision) -> None:
        """Go on as if a handshake had agreed on `revision`: for a request that stands alone (HL-9)."""
        self.peer = Peer(revision)
        self.negotiated = True

    def agreed(self) -> Agreed:
        """Return what another process needs to go on with this session."""
        peer = self.peer
        return Agreed(
            revision=peer.revision.date,
            capabilities=dict(peer.capabilities),
            info=peer.info,
            announced=self._announced,
            log_level=self.log_level,
            subscriptions=tuple(self.subscriptions),
            ready=self.ready,
        )

    def restore(self, agreed: Agreed, *, notify: bool) -> None:
        """Go on with what was agreed, maybe in another process; one that does not `notify` sends no changes to the client."""
        if not self.negotiated:
            capabilities = read_only(agreed.capabilities) if agreed.capabilities else NOTHING
            self.peer = Peer(REVISIONS[agreed.revision], capabilities, agreed.info)
        self.negotiated = True
        self._announced = agreed.announced
        self.log_level = agreed.log_level
        self.subscriptions = dict.fromkeys(agreed.subscriptions)
        self.ready = agreed.ready
        self._notifies = notify

    # What the session answers itself.

    def answer(self, method: str, params: object, shown: frozenset[object] = NOTHING_SHOWN) -> Outcome:
        """Answer one of `OWN_METHODS`; `shown` is that of the request."""
        if method in _GATES and not _GATES[method](self._offered()):
            return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}", method)
        match params:
            case InitializeParams():
                return self._initialize(params)
            case SetLevelParams():
                return self._set_level(params.level)
            case SubscribeParams():
                if method == "resources/unsubscribe":
                    return self._unsubscribe(params.uri)
                return self._subscribe(params.uri, shown)
            case _:
                return _EMPTY

    def _offered(self) -> ServerCapabilities:
        """Return what is declared (SRV-2): without a lasting session no changes, subscriptions or log messages (SRV-4)."""
        offered = self._server.capabilities(self.revision)
        if self._lasting:
            return offered
        resources = offered.resources
        return msgspec.structs.replace(
            offered,
            tools=offered.tools and msgspec.structs.replace(offered.tools, list_changed=None),
            prompts=offered.prompts and msgspec.structs.replace(offered.prompts, list_changed=None),
            resources=resources and msgspec.structs.replace(resources, list_changed=None, subscribe=None),
            logging=None,
        )

    def initialized(self) -> None:
        """Receive `notifications/initialized`: the server may send requests from now on (INI-3)."""
        self.ready = self.negotiated
        self.changes += 1

    def listens_for(self, kind: str | None, uri: str | None) -> bool:
        """Return whether the client was promised notifications of a change: of a list (SRV-4), or of a resource it watches."""
        return self.ready and self._notifies and (kind in self._announced if uri is None else uri in self.subscriptions)

    def _initialize(self, params: InitializeParams) -> Outcome:
        if self.negotiated:
            return RemoteProtocolError(INVALID_REQUEST, "Invalid Request: this connection is already initialized")
        served = self._server.profile.served
        if not served.with_handshake:
            data = {"supported": served.versions, "requested": params.protocol_version}
            return RemoteProtocolError(
                INVALID_PARAMS, "Unsupported protocol version: this server has no handshake", data
            )
        revision = self._negotiate(params.protocol_version)
        capabilities = params.capabilities or {}
        self.peer = Peer(
            revision,
            read_only(capabilities) if capabilities else NOTHING,
            read_implementation(params.client_info),
        )
        self.negotiated = True
        offered = self._offered()
        changing = (each for each in LISTED if getattr(getattr(offered, each), "list_changed", False))
        self._announced = (*changing, *(self._server.added_lists(revision) if self._lasting else ()))
        return InitializeResult(
            protocol_version=revision.date,
            capabilities=offered,
            server_info=self._server.profile.implementation,
            instructions=self._server.profile.instructions,
        )

    def _negotiate(self, wanted: str) -> Revision:
        """Choose what the client asked for if it is a handshake revision, else our own; never a modern one (ERA-5, INI-1)."""
        if wanted in self._server.profile.served.with_handshake:
            return REVISIONS[wanted]
        return _own_revision(self._server)

    def _set_level(self, level: str) -> Outcome:
        if level not in LOG_LEVELS:
            return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: level must be one of {', '.join(LOG_LEVELS)}")
        chosen: LoggingLevel = level
        self.log_level = chosen
        self.changes += 1
        return _EMPTY

    def _subscribe(self, uri: str, shown: frozenset[object]) -> Outcome:
        if not self._server.knows_resource(uri, shown):
            missing = ResourceNotFoundError(uri)
            return RemoteProtocolError(RESOURCE_NOT_FOUND, missing.message, missing.data)
        if uri not in self.subscriptions and len(self.subscriptions) >= self._limits.max_subscriptions:
            return RemoteProtocolError(INVALID_PARAMS, f"More than {self._limits.max_subscriptions} subscriptions")
        self.subscriptions[uri] = None
        self.changes += 1
        return _EMPTY

    def _unsubscribe(self, uri: str) -> Outcome:
        self.subscriptions.pop(uri, None)
        self.changes += 1
        return _EMPTY

    # Requests for input: our requests to the client, whose answers issue the same request again.

    def ask(self, request: Request, outcome: InputRequired, now: float) -> list[bytes] | Outcome:
        """Begin a round: return the messages to send, or how the request ends when it has asked too often, or too many wait.

        A round without questions has nothing to send and is answered at once: look at `due`.
        """
        rounds = self.rounds_of.get(request.id, 0) + 1
        if rounds > self._limits.max_rounds:
            self.rounds_of.pop(request.id, None)
            return _failure(request, f"Gave up after {self._limits.max_rounds} rounds of questions (max_rounds)")
        if len(self._rounds) >= self._limits.max_running:
            self.rounds_of.pop(request.id, None)
            return _failure(request, f"{self._limits.max_running} requests already wait for the user (max_running)")
        self.rounds_of[request.id] = rounds
        current = _QuestionRound(request, outcome.state, now + self._limits.input_timeout, {}, outcome.holds)
        self._rounds[request.id] = current
        messages: list[bytes] = []
        for key, question in outcome.requests.items():
            self._asked += 1
            question_id = f"{self._question_prefix}{request.id}/{self._asked}"
            current.waiting[question_id] = (key, question.method)
            self._round_of_question[question_id] = current
            messages.append(encode_request(question_id, question.method, self._question(question)))
        return messages

    def _question(self, question: InputRequest) -> bytes | None:
        if question.params is None:
            return None
        params = step_down(self.revision, question.params)
        if question.method == ELICIT and isinstance(question.params, ElicitParams) and question.params.mode == "url":
            members = dict(to_builtins(question.params))
            if "elicitationId" not in members:  # the author's own, else unique per server (ELI-13)
                members["elicitationId"] = self._random(16).hex()
            return encode(members)
        return encode(params)

    def due(self, request_id: RequestId) -> Request | None:
        """Return the request to issue again once all its questions are answered, with the answers filled in."""
        current = self._rounds.get(request_id)
        if current is None or current.waiting:
            return None
        del self._rounds[request_id]
        request = current.request
        request.input_responses = Raw(encode(current.answers))
        request.request_state = current.state
        request.refusals = current.refusals
        return request

    def receive_answer(self, response: Response) -> RequestId | None:
        """Take the client's answer to one of our requests. Unknown and late ones are dropped (CAN-5)."""
        current = self._round_of_question.pop(response.id, None)
        if current is None:
            return None
        key, _ = current.waiting.pop(response.id)
        try:
            answer: JSON = msgspec.json.decode(response.result)
        except (msgspec.DecodeError, RecursionError):
            answer = None
        if is_object(answer):  # anything else is invalid, and is asked for again (MRTR-S6)
            current.answers[key] = answer
        return current.request.id

    def receive_refusal(self, response: ErrorResponse) -> tuple[Request, Outcome, list[bytes]] | RequestId | None:
        """Take the client's error for one of our requests.

        Refusing a form is a `cancel`, as in the modern era. A call that waits receives any other error. Elsewhere the request
        ends: a failure of the client does not answer, and nothing refuses sampling or roots (SAM-10). The result then is
        the request, its outcome, and the messages that withdraw its other questions.
        """
        if response.id is None or (current := self._round_of_question.get(response.id)) is None:
            return None
        key, method = current.waiting[response.id]
        request = current.request
        is_cancel = method == ELICIT and response.code != INTERNAL_ERROR  # a failure is nothing that its user said
        if is_cancel or current.holds:
            del self._round_of_question[response.id]
            del current.waiting[response.id]
            if is_cancel:
                current.answers[key] = {"action": "cancel"}
            else:
                current.refusals[key] = RemoteProtocolError(response.code, response.message, response.data)
            return request.id
        return self._give_up(
            response.id, "refused", f"The client refused {key!r}: {response.message} ({response.code})"
        )

    def receive_unreadable(
        self, response_id: RequestId | None, problem: str
    ) -> tuple[Request, Outcome, list[bytes]] | None:
        """Take an answer that could not be read: asking again would bring it again. The result is that of a refusal."""
        if response_id is None or (current := self._round_of_question.get(response_id)) is None:
            return None
        key, _ = current.waiting[response_id]
        return self._give_up(response_id, "unreadable", f"The client's answer to {key!r} cannot be read: {problem}")

    def _give_up(self, question_id: RequestId, why: str, message: str) -> tuple[Request, Outcome, list[bytes]]:
        """End the request that has asked a question, which needs no withdrawal itself."""
        current = self._round_of_question[question_id]
        key, _ = current.waiting[question_id]
        withdrawn = self.forget(current.request.id, f"{why}: {key}", spare=question_id)
        return current.request, _failure(current.request, message), withdrawn

    def forget(self, request_id: RequestId, reason: str, *, spare: RequestId | None = None) -> list[bytes]:
        """Give up the questions of a request: return the messages that tell the client (CAN-7)."""
        self.rounds_of.pop(request_id, None)
        current = self._rounds.pop(request_id, None)
        if current is None:
            return []
        messages: list[bytes] = []
        for question_id in current.waiting:
            self._round_of_question.pop(question_id, None)
            if question_id != spare:
                params = CancelledParams(request_id=question_id, reason=reason)
                messages.append(encode_notification("notifications/cancelled", encode(params)))
        return messages

    def deadline(self) -> float | None:
        """Return when the next round runs out of time: the oldest one, because all have the same time."""
        for oldest in self._rounds.values():
            return oldest.deadline
        return None

    def expire(self, now: float) -> list[tuple[Request, Outcome, list[bytes]]]:
        """End the requests whose questions were not answered in time."""
        late = [each.request for each in takewhile(lambda each: each.deadline <= now, self._rounds.values())]
        return [
            (
                request,
                _failure(request, f"No answer from the user within {self._limits.input_timeout:g} seconds"),
                self.forget(request.id, "timed out"),
            )
            for request in late
        ]


def _watches(capabilities: ServerCapabilities) -> bool:
    return capabilities.resources is not None and bool(capabilities.resources.subscribe)


_GATES: Mapping[str, Callable[[ServerCapabilities], bool]] = {
    "logging/setLevel": lambda capabilities: capabilities.logging is not None,
    "resources/subscribe": _watches,
    "resources/unsubscribe": _watches,
}
"""What must be declared for a method to be there (SRV-2)."""


def _own_revision(server: ServerFacts) -> Revision:
    """Return the revision to propose: the pinned one, unless it has no handshake, or the newest that has one."""
    pinned, dates = server.profile.pinned, server.profile.served.with_handshake
    if pinned is not None and pinned.date in dates:
        return pinned
    return REVISIONS[dates[-1]] if dates else LATEST_LEGACY


def _failure(request: Request, message: str) -> Outcome:
    if request.method in FAIL_IN_RESULT:
        return CallToolResult(content=[TextContent(message)], is_error=True)
    return RemoteProtocolError(INTERNAL_ERROR, message)
