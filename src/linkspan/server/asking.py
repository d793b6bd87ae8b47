"""Ask the user while a handler runs: questions, the rounds that bring answers, and steps that run once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import msgspec
from msgspec import Raw

from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    Declined,
    LinkspanError,
    LocalProtocolError,
    QuestionRefused,
    RemoteProtocolError,
)
from linkspan.revisions.neutral import (
    ELICIT,
    LIST_ROOTS,
    NOTHING,
    NOTHING_REFUSED,
    PING,
    SAMPLE,
    InputRequest,
    InputRequired,
    Outcome,
    Request,
    missing_capability,
)
from linkspan.schema.annotations import is_coroutine_function, underlying
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.server.configuration import Profile
from linkspan.server.observation import warn
from linkspan.types.base import ABSENT, JSON, UNSET, JSONObject, TextContent, Wire
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ListRootsResult,
    Root,
    SamplingMessage,
)
from linkspan.types.methods import FAIL_IN_RESULT, MAY_ASK
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import from_builtins, to_builtins

if TYPE_CHECKING:
    from linkspan.schema.forms import Form
    from linkspan.schema.parameters import AskParameter
    from linkspan.server.ports import OnceValue, System
    from linkspan.server.request_state import Binding, RequestStateKeys

WireT = TypeVar("WireT", bound=Wire)
MAX_TOKENS: Final = 1024
"""What a model may write where the author sets no bound; the protocol requires one."""


class InputNeeded(BaseException):
    """Ends a handler's run because an answer is missing. Not an Exception, so that `except Exception` lets it pass."""


class Round:
    """What is known, and what is asked, in one run of a handler."""

    __slots__ = (
        "_chain",
        "_counters",
        "_request",
        "answers",
        "asked",
        "chain_id",
        "chains",
        "digests",
        "fresh",
        "held",
        "number",
        "questions",
        "refusals",
        "state",
    )

    def __init__(
        self,
        chains: Chains | None = None,
        answers: Mapping[str, JSON] = NOTHING,
        digests: Mapping[str, str] = NOTHING,
        state: str | None = None,
        chain_id: str | None = None,
        number: int = 1,
        request: Request | None = None,
        held: str | None = None,
    ) -> None:
        """Begin with the answers so far (key to the client's result) and the state that the author kept.

        `digests` are those of the questions that were answered; `chain_id` names the chain of a request that has a state;
        `number` is 1 in the first run; `request` is what the log names; `held` names the call that waits for the answers.
        """
        self.answers = answers
        self.digests = digests
        self.fresh: Mapping[str, JSON] = NOTHING
        """The answers that this very request has brought."""
        self.state = state
        self.chain_id = chain_id
        self.number = number
        self.held = held
        self.refusals = NOTHING_REFUSED if request is None else request.refusals
        self._request = request
        self.questions: dict[str, InputRequest] = {}
        self.asked: dict[str, InputRequest] = {}
        self.chains = chains
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

    def question(self, key: str, question: InputRequest) -> Mapping[str, JSON]:
        """Return the client's answer as it came. Raises: InputNeeded."""
        answer: JSONObject | None = self._answer(key, question)
        if answer is None:
            self._need(key, question)
        return answer

    def ping(self, key: str | None) -> None:
        """Return once the client has answered. Raises: InputNeeded."""
        key, question = key or self._numbered("ping"), InputRequest(PING)
        if self._answer(key, question) is None:
            self._need(key, question)

    def forget(self, key: str | None) -> None:
        """Let the next question under a key be another one."""
        if key in self.answers or key in self.refusals:
            self.answers = {name: each for name, each in self.answers.items() if name != key}
            self.refusals = {name: each for name, each in self.refusals.items() if name != key}

    def once(self, key: str, function: Callable[[], object]) -> object:
        """Return what `function` returned in this chain of rounds; run it if it did not yet."""
        return self.chain.once(key, function)

    @property
    def chain(self) -> Chain:
        """What this chain of rounds has done already; made when it is first needed."""
        if self._chain is None:
            assert self.chains is not None, "this round belongs to a handler without a context"
            with self.chains.lock:
                if self.chains.are_shared and self.chain_id is None:
                    self.chain_id = self.chains.new_id()
                self._chain = self._chain or self.chains.open(self.chain_id)
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
        """Return the client's answer to this very question, or None. Raises: QuestionRefused."""
        if (refusal := self.refusals.get(key)) is not None:
            raise QuestionRefused(key, refusal.code, refusal.message, refusal.data)
        answer = self.answers.get(key)
        if answer is None or self.digests[key] == question_digest(question):
            return answer
        warn(
            f"the question {key!r} is not the one that was answered, so it is asked again: ask the same in each run of the "
            "handler, and take what differs between runs from ctx.once",
            request=self._request,
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
    """Return the error for a handler that asks where the user cannot be asked."""
    return f"{method} cannot ask the user; only tools, prompts and resources can"


def may_ask(method: str) -> bool:
    """Return whether an answer to `method` may be a question."""
    return method in MAY_ASK


NO_QUESTIONS: Final = Round()
"""The round of every handler that has no way to ask."""


def written_question(method: str, params: Mapping[str, JSON]) -> InputRequest:
    """Return a question whose params are in wire form. Raises: ValueError for other methods and wrong params."""
    shapes: Mapping[str, type[Wire]] = {ELICIT: ElicitParams, SAMPLE: CreateMessageParams}
    try:
        return InputRequest(method, from_builtins(dict(params), shapes[method]) if method in shapes else None)
    except msgspec.ValidationError as problem:
        raise ValueError(f"the params of {method} are wrong: {problem}") from None


def ask_form_with(form: Form, message: str) -> InputRequest:
    """Return a question that shows a compiled form."""
    return InputRequest(ELICIT, ElicitParams(message=message, mode="form", requested_schema=form.json_schema))


def ask_form(message: str, hint: object, *, name: str = "value") -> InputRequest:
    """Return a question for `InputRequired`: a form for a type (a primitive, or a flat dataclass of primitives).

    `name` is what the user sees a primitive called, and its member in the answer. Raises: RegistrationError if the type cannot
    be asked for.
    """
    from linkspan.schema.forms import compile_form

    return ask_form_with(compile_form(hint, field=name), message)


def ask_url(url: str, message: str) -> InputRequest:
    """Return a question for `InputRequired`: may the user's browser open `url`? Nothing secret belongs in it (ELI-11)."""
    return InputRequest(ELICIT, ElicitParams(message=message, mode="url", url=url))


def ask_sampling(
    messages: str | Sequence[SamplingMessage], *, max_tokens: int = MAX_TOKENS, **more: Any
) -> InputRequest:
    """Return a question for `InputRequired`: what would the client's model write? `more` are `CreateMessageParams`."""
    return InputRequest(SAMPLE, sampling_params(messages, max_tokens, more))


def ask_question(method: str, params: Mapping[str, JSON] | None = None) -> InputRequest:
    """Return a question for `InputRequired` in wire form, as `ctx.question` takes it. Raises: ValueError."""
    return written_question(method, params or {})


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


def asks_first(asks: Sequence[AskParameter], rounds: Rounds, request: Request, target: str) -> bool:
    """Return whether the client has to answer before a handler can run. Raises: RemoteProtocolError for malformed answers."""
    try:
        collect(asks, rounds.open(request, target), can_ask=request.peer.supports("elicitation", "form"))
    except (InputNeeded, Declined):
        return True
    return False


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
    if request.method in FAIL_IN_RESULT:
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


class _StateContent(msgspec.Struct, array_like=True):
    """What a state carries."""

    chain_id: str
    asked: dict[str, str]
    """The key of each open question, and the question's digest: answers to others are ignored."""
    answers: dict[str, tuple[str, Any]]
    """What was answered so far, each with the digest of its question."""
    state: str | None = None
    number: int = 1
    """Which round it ended."""
    held: str | None = None
    """Names the call that waits for the answers."""


class Rounds:
    """Opens and closes the rounds of one server's requests."""

    def __init__(self, profile: Profile, system: System) -> None:
        """Seal with the keys of `profile`."""
        self._profile = profile
        self._system = system
        self._made: dict[str, RequestStateKeys] = {}
        self._chains = Chains(profile, system)

    def open(self, request: Request, target: str, *, at: float | None = None) -> Round:
        """Return what is known when a request begins; where the user cannot be asked, a round that refuses questions.

        `at` is when the client answered, if that was not just now.
        Only what the state says was asked can have been answered: without a state, nothing.
        Raises: RemoteProtocolError for a state that was changed, belongs elsewhere or has expired, and for malformed answers.
        """
        if isinstance(request.round, Round):
            return request.round
        if not may_ask(request.method):
            return self.closed(request.method)
        if request.input_responses is ABSENT and request.request_state is None:
            return Round(self._chains)
        responses = read_responses(request.input_responses)
        if request.request_state is None:
            return Round(self._chains)
        from linkspan.server.request_state import unseal

        binding = self._binding(request, target)
        now, limit = at or self._system.wall_clock(), self._profile.limits.max_request_state_bytes
        kept = unseal(self.keys(), request.request_state, binding, now=now, limit=limit)
        earlier = _read(kept)
        known = earlier.answers | {
            key: (asked, responses[key]) for key, asked in earlier.asked.items() if key in responses
        }
        answers = {key: answer for key, (_, answer) in known.items()}
        digests = {key: asked for key, (asked, _) in known.items()}
        found = Round(
            self._chains, answers, digests, earlier.state, earlier.chain_id, earlier.number + 1, request, earlier.held
        )
        found.fresh = {key: responses[key] for key in earlier.asked if key in responses}
        return found

    def adopt(self, current: Round) -> None:
        """Keep here what runs once in a round that another server has opened, and in which nothing has run yet."""
        current.chains = self._chains

    def closed(self, what: str) -> Round:
        """Return a round for code in which the user cannot be asked; `what` names it in the error."""
        return Closed(self._chains, what)

    def close(self, request: Request, current: Round, outcome: InputRequired, target: str) -> Outcome:
        """Return the interim result, with all that this round knows sealed in; or why the client cannot be asked."""
        refusal = refuse_incapable(request, outcome)
        if refusal is not None:
            return refusal
        if not outcome.requests and outcome.state is None:
            return RemoteProtocolError(INTERNAL_ERROR, "Internal error: InputRequired needs requests or a state")
        from linkspan.server.request_state import seal

        try:
            state = seal(
                self.keys(),
                self._binding(request, target),
                encode(self._kept(current, outcome)),
                now=self._system.wall_clock(),
                ttl=self._profile.request_state_ttl,
                random=self._system.random,
                limit=self._profile.limits.max_request_state_bytes,
            )
        except RemoteProtocolError as error:
            return error
        return InputRequired(outcome.requests, state, current.held is not None)

    def _kept(self, current: Round, outcome: InputRequired) -> _StateContent:
        chain_id = current.chain_id or self._chains.new_id()
        if current.has_chain:
            self._chains.keep(chain_id, current.chain)
        return _StateContent(
            chain_id,
            {key: question_digest(current.asked.get(key, question)) for key, question in outcome.requests.items()},
            {
                key: (current.digests[key], answer)
                for key, answer in current.answers.items()
                if key not in outcome.requests
            },
            outcome.state,
            current.number,
            current.held,
        )

    def keys(self) -> RequestStateKeys:
        """Return the author's keys, those of the store, or keys that live as long as this process.

        Raises: RemoteProtocolError if the store cannot be reached.
        """
        given = self._profile.request_state_keys or self._made.get("keys")
        if given is not None:
            return given
        if self._profile.sharing is not None:
            return self._profile.sharing.keys()
        from linkspan.server.request_state import RequestStateKeys

        # One step, so that threads that come here at the same time get the same keys: what one seals, the other must open.
        return self._made.setdefault("keys", RequestStateKeys.ephemeral(self._system.random))

    def _binding(self, request: Request, target: str) -> Binding:
        from linkspan.server.request_state import Binding, digest

        arguments = getattr(request.params, "arguments", None)
        raw = bytes(memoryview(arguments)) if isinstance(arguments, Raw) else encode(arguments)
        return Binding(request.method, target, digest(raw), request.facts.principal, self._profile.shared_name)


def _read(kept: bytes) -> _StateContent:
    """Read what was sealed. Raises: RequestStateInvalid for a state of an older version that had the same keys."""
    try:
        return msgspec.json.decode(kept, type=_StateContent)
    except msgspec.DecodeError:
        from linkspan.server.request_state import RequestStateInvalid

        raise RequestStateInvalid("it was sealed by another version") from None


class Chain:
    """The values of one chain of rounds: of one request of a client, however often it comes back for the next round."""

    __slots__ = ("_claim", "_lock", "_made", "_running", "_system", "_values")

    def __init__(self, system: System, claim: Callable[[str], OnceValue] | None = None) -> None:
        """Begin without values; `claim(key)` gets those of other processes, or the right to make one."""
        self._system = system
        self._claim = claim
        self._lock = system.lock()
        self._values: dict[str, object] = {}
        self._made: list[OnceValue] = []
        self._running: set[str] = set()

    def forget(self) -> None:
        """Delete what this process has stored of the values."""
        for each in self._made:
            _give_up(each)

    def once(self, key: str, function: Callable[[], object]) -> object:
        """Return the value that `function` gave for `key` in this chain; run it if it has not returned one yet.

        A concurrent replay waits for it. Where it returns an awaitable, that runs in a task of its own, and the value is an
        awaitable too, for each caller. What raises is not remembered. Raises: LocalProtocolError for a call within itself.
        """
        with self._lock:  # held while a plain function runs: another thread with the same state waits here
            if key in self._values:
                return self._values[key]
            if key in self._running:
                raise LocalProtocolError(f"ctx.once({key!r}) is called by its own function: use another key in there")
            self._running.add(key)
            try:
                if self._claim is None:
                    value = function()
                elif is_coroutine_function(underlying(function)):
                    value = self._claimed_later(self._claim, key, cast("Callable[[], Awaitable[object]]", function))
                else:
                    value = self._claimed(self._claim, key, function)
            finally:
                self._running.discard(key)
            if hasattr(type(value), "__await__"):
                return self._share(key, value)
            self._values[key] = value
            return value

    def _claimed(self, claim: Callable[[str], OnceValue], key: str, function: Callable[[], object]) -> object:
        """Return the value of another process; run the function if there is none, and keep its value for the others."""
        stored = claim(key)
        if stored.is_there:
            return stored.value
        try:
            value = function()
        except BaseException:
            _give_up(stored)
            raise
        if hasattr(type(value), "__await__"):
            return self._ended(stored, key, cast("Awaitable[object]", value))
        self._keep(stored, key, value)
        return value

    async def _claimed_later(
        self, claim: Callable[[str], OnceValue], key: str, function: Callable[[], Awaitable[object]]
    ) -> object:
        stored = cast("OnceValue", await self._system.in_thread(partial(claim, key)))
        return stored.value if stored.is_there else await self._ended(stored, key, function())

    async def _ended(self, stored: OnceValue, key: str, awaitable: Awaitable[object]) -> object:
        try:
            value = await awaitable
        except BaseException:
            await self._system.in_thread(partial(_give_up, stored))
            raise
        await self._system.in_thread(partial(self._keep, stored, key, value))
        return value

    def _keep(self, stored: OnceValue, key: str, value: object) -> None:
        """Keep a value for other processes. It has been made, so what fails here must not fail the request."""
        self._made.append(stored)
        try:
            if not stored.keep(value):
                warn(
                    f"ctx.once({key!r}) returned a {type(value).__name__}, which other processes cannot have: return text, "
                    "numbers, lists or mappings"
                )
        except LinkspanError as problem:
            warn(f"the value of ctx.once({key!r}) could not be stored: other processes refuse to run it again", problem)

    def _share(self, key: str, awaitable: Any) -> object:
        shared = _Shared()
        self._values[key] = shared
        kept = self._kept(key, awaitable)
        try:
            shared.outcome = self._system.share(kept)
        except RuntimeError:
            del self._values[key]
            for each in (kept, awaitable):
                getattr(each, "close", _nothing)()
            raise LocalProtocolError(
                f"ctx.once({key!r}) got an async function where no event loop runs: make the handler async too"
            ) from None
        return shared

    async def _kept(self, key: str, awaitable: Awaitable[object]) -> object:
        try:
            return await awaitable
        except BaseException:
            with self._lock:
                self._values.pop(key, None)
            raise


def _give_up(stored: OnceValue) -> None:
    with suppress(LinkspanError):
        stored.give_up()


class _Shared:
    """A value that is on its way; any number of callers may await it, on any event loop."""

    __slots__ = ("outcome",)

    outcome: Callable[[], Awaitable[object]]

    def __await__(self) -> Generator[Any, Any, object]:
        return self.outcome().__await__()


class Chains:
    """The chains of one server, the one that was used longest ago first."""

    def __init__(self, profile: Profile, system: System) -> None:
        """Keep as many as the limits of `profile` allow, each as long as its states are valid.

        Where processes share a store, each keeps what it has made there, too.
        """
        self._profile = profile
        self._system = system
        self.lock = system.lock()
        self._chains: dict[str, tuple[float, Chain]] = {}
        self._warned: set[str] = set()

    def open(self, chain_id: str | None) -> Chain:
        """Return the chain that a state names, or a new one for a request without a state."""
        return Chain(self._system) if chain_id is None else self.keep(chain_id)

    @property
    def are_shared(self) -> bool:
        """Whether other processes have the values, too: a replay may reach any of them."""
        return self._profile.sharing is not None

    def new_id(self) -> str:
        """Return the name of a new chain."""
        return self._system.random(16).hex()

    def _new(self, chain_id: str) -> Chain:
        sharing = self._profile.sharing
        return Chain(self._system, None if sharing is None else partial(sharing.claim_value, chain_id))

    def keep(self, chain_id: str, chain: Chain | None = None) -> Chain:
        """Remember a chain until the states that name it have expired, and return the one that is remembered."""
        now = self._system.wall_clock()
        with self.lock:
            _, kept = self._chains.pop(chain_id, (0.0, chain or self._new(chain_id)))
            self._chains[chain_id] = now + self._profile.request_state_ttl, kept
            while (oldest := next(iter(self._chains.items())))[1][0] <= now and oldest[0] != chain_id:
                del self._chains[oldest[0]]
            if len(self._chains) > self._profile.limits.max_once:
                del self._chains[oldest[0]]
                if self.are_shared:
                    self._system.off_the_loop(oldest[1][1].forget)
                self._warn_once(
                    "ctx.once forgot its oldest values before their time: more requests than max_once have used it"
                )
        return kept

    def __len__(self) -> int:
        return len(self._chains)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)


def _nothing() -> None:
    """Stand in for the `close` that an awaitable does not have."""
