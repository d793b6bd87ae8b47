"""Asking the user in the middle of a request: questions, answers, and the rounds between them.

A handler runs again from the top with the answers of earlier rounds filled in, in both eras. The answers travel sealed in
`requestState`. Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Raw

from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    Declined,
    LocalProtocolError,
    RemoteProtocolError,
)
from linkspan.revisions.neutral import (
    ELICIT,
    LIST_ROOTS,
    NOTHING,
    SAMPLE,
    InputRequest,
    InputRequired,
    Outcome,
    Request,
    missing_capability,
)
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.server.observation import warn
from linkspan.types.base import JSON, UNSET, JSONObject, Wire
from linkspan.types.content import TextContent
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ListRootsResult,
    Root,
    SamplingMessage,
)
from linkspan.wire.messages import encode
from linkspan.wire.values import from_builtins, to_builtins

if TYPE_CHECKING:
    from linkspan.schema.forms import Form
    from linkspan.schema.parameters import AskParameter
    from linkspan.server.once import Chain, Chains

__all__ = [
    "NO_QUESTIONS",
    "Closed",
    "InputNeeded",
    "Round",
    "ask_form",
    "ask_form_with",
    "ask_roots",
    "ask_sampling",
    "ask_url",
    "cannot_ask",
    "collect",
    "may_ask",
    "question_digest",
    "read_responses",
    "refuse_incapable",
    "sampling_params",
]

WireT = TypeVar("WireT", bound=Wire)
_ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})


class InputNeeded(BaseException):
    """Ends a handler's run because an answer is missing. Not an Exception, so that `except Exception` lets it pass."""


class Round:
    """What is known, and what is asked, in one run of a handler."""

    __slots__ = ("_chain", "_chains", "_counters", "answers", "asked", "chain_id", "digests", "questions", "state")

    def __init__(
        self,
        chains: Chains | None = None,
        answers: Mapping[str, JSON] = NOTHING,
        digests: Mapping[str, str] = NOTHING,
        state: str | None = None,
        chain_id: str | None = None,
    ) -> None:
        """Begin with the answers so far (key to the client's result) and the state that the author kept.

        `digests` are those of the questions that were answered; `chain_id` names the chain of a request that has a state.
        """
        self.answers = answers
        self.digests = digests
        self.state = state
        self.chain_id = chain_id
        self.questions: dict[str, InputRequest] = {}
        self.asked: dict[str, InputRequest] = {}
        self._chains = chains
        self._chain: Chain | None = None
        self._counters: dict[str, int] = {}

    def form(self, key: str, form: Form, message: str) -> Any:
        """Return the user's answer, decoded. Raises: InputNeeded, or Declined."""
        question = ask_form_with(form, message)
        content = self._accepted(key, question)
        try:
            return form.decode(content)
        except ArgumentsInvalid as problem:
            self.asked[key] = question  # what is shown now differs from it, and differs again after the next mistake
            self._need(key, ask_form_with(form, f"{message} ({problem})"))

    def url(self, key: str, url: str, message: str) -> None:
        """Return once the user agreed to open `url`. Raises: InputNeeded, or Declined."""
        self._accepted(key, ask_url(url, message))

    def sample(self, key: str | None, params: CreateMessageParams) -> CreateMessageResult:
        """Return what the client's model wrote. Raises: InputNeeded."""
        key = key or self._numbered("sample")
        return self._decoded(key, InputRequest(SAMPLE, params), CreateMessageResult)

    def roots(self, key: str | None) -> list[Root]:
        """Return the client's roots. Raises: InputNeeded."""
        key = key or self._numbered("roots")
        return self._decoded(key, InputRequest(LIST_ROOTS), ListRootsResult).roots

    def once(self, key: str, function: Callable[[], object]) -> object:
        """Return what `function` returned in this chain of rounds; run it if it did not yet."""
        return self.chain.once(key, function)

    @property
    def chain(self) -> Chain:
        """What this chain of rounds has done already; made when it is first needed."""
        if self._chain is None:
            assert self._chains is not None, "this round belongs to a handler without a context"
            with self._chains.lock:
                self._chain = self._chain or self._chains.open(self.chain_id)
        return self._chain

    @property
    def has_chain(self) -> bool:
        """Whether `once` was called in this run."""
        return self._chain is not None

    def _numbered(self, kind: str) -> str:
        self._counters[kind] = count = self._counters.get(kind, 0) + 1
        return f"{kind}-{count}"

    def _accepted(self, key: str, question: InputRequest) -> Mapping[str, JSON]:
        answer: JSONObject = self._answer(key, question) or {}
        action = answer.get("action")
        if action in ("decline", "cancel"):
            raise Declined(key, action)
        if action != "accept":
            self._need(key, question)
        content: JSONObject | None = answer.get("content")
        return content if isinstance(content, dict) else {}

    def _decoded(self, key: str, question: InputRequest, kind: type[WireT]) -> WireT:
        answer = self._answer(key, question)
        if answer is None:
            self._need(key, question)
        try:
            return from_builtins(answer, kind)
        except msgspec.ValidationError:
            self._need(key, question)

    def _answer(self, key: str, question: InputRequest) -> JSON:
        """Return the client's answer to this very question, or None."""
        answer = self.answers.get(key)
        if answer is None or self.digests[key] == question_digest(question):
            return answer
        warn(
            f"the question {key!r} is not the one that was answered, so it is asked again: ask the same in each run of the "
            "handler, and take what differs between runs from ctx.once"
        )
        return None

    def _need(self, key: str, question: InputRequest) -> NoReturn:
        self.questions[key] = question
        raise InputNeeded(key)


class Closed(Round):
    """The round of a request in which the user cannot be asked: clients expect that of three methods only (MRTR-S1)."""

    __slots__ = ("_method",)

    def __init__(self, chains: Chains, method: str) -> None:
        super().__init__(chains)
        self._method = method

    def _need(self, key: str, question: InputRequest) -> NoReturn:
        raise LocalProtocolError(cannot_ask(self._method))


def cannot_ask(method: str) -> str:
    """Return what to tell the author whose handler asks where nobody can be asked."""
    return f"{method} cannot ask the user; only tools, prompts and resources can"


def may_ask(method: str) -> bool:
    """Tell whether an answer to `method` may be a question."""
    return method in _ASKING


NO_QUESTIONS: Final = Round()
"""The round of every handler that has no way to ask."""


def ask_form_with(form: Form, message: str) -> InputRequest:
    """Return a question that shows a compiled form."""
    return InputRequest(ELICIT, ElicitParams(message=message, mode="form", requested_schema=form.json_schema))


def ask_form(message: str, hint: object) -> InputRequest:
    """Return a question for `InputRequired`: a form for a type (a primitive, or a flat dataclass of primitives).

    Raises: RegistrationError if the type cannot be asked for.
    """
    from linkspan.schema.forms import compile_form

    return ask_form_with(compile_form(hint), message)


def ask_url(url: str, message: str) -> InputRequest:
    """Return a question for `InputRequired`: may the user's browser open `url`? Nothing secret belongs in it (ELI-11)."""
    return InputRequest(ELICIT, ElicitParams(message=message, mode="url", url=url))


def ask_sampling(messages: str | Sequence[SamplingMessage], *, max_tokens: int, **more: Any) -> InputRequest:
    """Return a question for `InputRequired`: what would the client's model write? `more` are `CreateMessageParams`."""
    return InputRequest(SAMPLE, sampling_params(messages, max_tokens, more))


def ask_roots() -> InputRequest:
    """Return a question for `InputRequired`: which folders may the server look at?"""
    return InputRequest(LIST_ROOTS)


def sampling_params(
    messages: str | Sequence[SamplingMessage], max_tokens: int, more: Mapping[str, Any]
) -> CreateMessageParams:
    """Build the params of a sampling request; a plain string is one message of the user."""
    if isinstance(messages, str):
        messages = [SamplingMessage(role="user", content=TextContent(messages))]
    return CreateMessageParams(messages=list(messages), max_tokens=max_tokens, **more)


def collect(asks: Sequence[AskParameter], current: Round, *, can_ask: bool) -> JSONObject:
    """Return the values of a handler's `Ask` parameters, all from one round.

    A parameter with a default takes it when the user declines, or when the client has no way to ask.
    Raises: InputNeeded with every question that is still open, or Declined.
    """
    values: JSONObject = {}
    for ask in asks:
        if ask.default is not UNSET and not can_ask:
            values[ask.name] = ask.default
            continue
        try:
            values[ask.name] = current.form(ask.name, ask.form, ask.message)
        except InputNeeded:
            continue
        except Declined:
            if ask.default is UNSET:
                raise
            values[ask.name] = ask.default
    if current.questions:
        raise InputNeeded(*current.questions)
    return values


def question_digest(question: InputRequest) -> str:
    """Return what tells one question from another: its method, its text, its schema."""
    from linkspan.server.request_state import digest

    return digest(encode([question.method, to_builtins(question.params)]))[:32]


def refuse_incapable(request: Request, outcome: InputRequired) -> Outcome | None:
    """Return the error for a client that did not declare what a question needs, naming all that is missing (MRTR-S4)."""
    required: JSONObject = {}
    for question in outcome.requests.values():
        for name, parts in (missing_capability(request.peer, question) or {}).items():
            required.setdefault(name, {}).update(parts)
    if not required:
        return None
    message = f"The client does not support what this needs: {', '.join(sorted(required))}"
    if MISSING_CLIENT_CAPABILITY in request.peer.revision.error_codes:
        return RemoteProtocolError(MISSING_CLIENT_CAPABILITY, message, {"requiredCapabilities": required})
    if request.method == "tools/call":
        return CallToolResult(content=[TextContent(message)], is_error=True)
    return RemoteProtocolError(INTERNAL_ERROR, message)


def read_responses(raw: Raw) -> JSONObject:
    """Read `inputResponses`: an object of objects, else a RemoteProtocolError (MRTR-S6)."""
    text = bytes(raw)
    if not text or text == b"null":
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, RecursionError):
        raise RemoteProtocolError(
            INVALID_PARAMS, "Invalid params: inputResponses must be an object of objects"
        ) from None
