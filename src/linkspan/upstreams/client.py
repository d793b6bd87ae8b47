"""The client of an upstream: neither a thread nor an event loop waits for it. What it brings goes to functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import msgspec
from msgspec import structs

from linkspan.client.base import BaseClient
from linkspan.client.callbacks import Application, Callbacks
from linkspan.client.subscriptions import MemberReader
from linkspan.client.transports.base import CallbackWaiter, ClientTransport, Waiter
from linkspan.core.extension import Extension
from linkspan.core.flow import Flow, RequestSpec, Send, Sleep
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from linkspan.flows.answers import Handlers, read_question
from linkspan.flows.client_errors import ClientError
from linkspan.flows.client_extensions import names_by_method
from linkspan.flows.state import ClientState
from linkspan.revisions.neutral import InputRequest, Peer
from linkspan.runtime.reactor import reactor
from linkspan.types.base import JSONObject
from linkspan.types.messages import LoggingMessageParams, ProgressParams
from linkspan.upstreams.carrying import declared_extensions
from linkspan.wire.jsonrpc import Notification, RequestId, RpcRequest

if TYPE_CHECKING:
    import asyncio

_log_message: Final = msgspec.json.Decoder(LoggingMessageParams)


class RequestListener(Protocol):
    """Receives what an upstream sends while it serves a request."""

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer already."""
        ...

    def asked(self, transport: ClientTransport, question_id: RequestId, question: InputRequest, /) -> None:
        """Take a question of a handshake server."""
        ...

    def logged(self, message: LoggingMessageParams) -> None:
        """Take a log message."""
        ...


def declared(peer: Peer, extensions: Collection[Extension]) -> JSONObject:
    """Return the capabilities of a caller that a client may declare for it: those that are passed on.

    `extensions` are those of the server around.
    """
    found: JSONObject = {}
    modes = [each for each in ("form", "url") if peer.supports("elicitation", each)]
    if modes:
        found["elicitation"] = {each: {} for each in modes}
    if peer.supports("sampling"):
        found["sampling"] = {"tools": {}} if peer.supports("sampling", "tools") else {}
    if peer.supports("roots"):
        found["roots"] = {}
    if on := declared_extensions(peer, extensions):
        found["extensions"] = on
    return found


def _never(*_: object) -> NoReturn:
    raise AssertionError("questions of an upstream go to its caller")


class UpstreamClient(BaseClient):
    """A client whose flows are driven by what arrives."""

    def __init__(
        self,
        target: Any,
        capabilities: JSONObject,
        *,
        stored_login: bool,
        extensions: Collection[Extension],
        on_login: Callable[[], object] | None,
        **options: Any,
    ) -> None:
        """Prepare a client that declares these capabilities in a handshake. `options` are those of `Client`.

        `extensions` are those of the server around. `on_login`, which must not block, is called when a person has to log
        in, if it is given.
        """
        self._uses_stored_login = stored_login
        self._on_login = on_login
        elicitation = capabilities.get("elicitation")
        if elicitation is not None:
            options |= {"elicitation": _never, "elicitation_modes": tuple(elicitation)}
        if "sampling" in capabilities:
            options |= {"sampling": _never, "sampling_tools": "tools" in capabilities["sampling"]}
        if "roots" in capabilities:
            options["roots"] = _never
        settings: JSONObject = capabilities.get("extensions", {})
        on = [structs.replace(each, client=settings[each.id]) for each in extensions if each.id in settings]
        super().__init__(target, extensions=on, **options)
        self.state: ClientState = self._state
        """What the client knows."""
        if extensions:
            state = self._state
            state.options = structs.replace(state.options, named_by=names_by_method(extensions))

    def _make_application(self, handlers: Handlers, callbacks: Callbacks) -> Application:
        return _CallerApplication(handlers, callbacks, self._on_login)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._supervisor.idle

    def connect(self, done: Callable[[object], object]) -> None:
        """Open a connection; `done` gets it, or a ClientError, in any thread."""
        try:
            self._supervisor.submit(None, CallbackWaiter(done))
        except ClientError as error:
            done(error)

    def start(self, flow: Flow[Any], done: Callable[[Any], object], listener: RequestListener | None = None) -> None:
        """Run a flow; `done` gets what it returns or raises, in any thread."""
        _FlowRun(self, flow, done, listener).resume()

    def watch(self, uri: str, *, on: bool) -> None:
        """Subscribe to a resource, or end that. Raises: ValueError for a server that reports no changes."""
        self._supervisor.watch(uri, on=on)

    def listen(
        self, wanted: Mapping[str, tuple[str, ...]], receive: Callable[[object], object]
    ) -> MemberReader[CallbackWaiter]:
        """Listen for values of members that extensions add.

        `receive`, which must not block, gets None once the server has acknowledged that, each notification, and a ClientError.
        """
        return MemberReader(self._supervisor.listen, self._supervisor.listeners, wanted, CallbackWaiter(receive))

    def set_level(self, level: Any) -> None:
        """Ask a handshake server for log messages from a level on."""
        self._supervisor.set_level(level)

    def withdraw(self, waiter: Waiter, reason: str | None) -> None:
        """End a request; its waiter gets a `CallStopped`."""
        self._supervisor.withdraw(waiter, reason, report=True)

    def submit(self, spec: RequestSpec, waiter: Waiter) -> ClientTransport | None:
        """Send a request, see `Supervisor.submit`."""
        return self._supervisor.submit(spec, waiter)


class _FlowRun:
    """One flow on its way: each answer takes it a step further, in the thread that brings the answer, or on `loop`.

    It waits for each of them, one after the other.
    """

    __slots__ = ("_client", "_done", "_flow", "_spec", "listener", "loop", "pending_request")

    def __init__(
        self, client: UpstreamClient, flow: Flow[Any], done: Callable[[Any], object], listener: RequestListener | None
    ) -> None:
        self._client = client
        self._flow = flow
        self._done = done
        self._spec: RequestSpec | None = None
        self.listener = listener
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending_request: Any = None
        if listener is not None and (events := sys.modules.get("asyncio")) is not None:
            self.loop = events._get_running_loop()

    def resume(self, outcome: Any = None, error: ClientError | None = None) -> None:
        """Go on until something has to be waited for, or to the end."""
        flow = self._flow
        try:
            while True:
                effect = flow.send(outcome) if error is None else flow.throw(error)
                if isinstance(effect, Sleep):
                    self.loop = None  # it goes on in the thread that knows the time
                    reactor().call_later(effect.seconds, self.resume)
                    return
                assert isinstance(effect, Send)
                try:
                    self._submit(effect.spec)
                except ClientError as problem:
                    outcome, error = None, problem
                else:
                    return
        except StopIteration as stop:
            value: object = stop.value
        except Exception as problem:
            value = problem
        self._done(value)

    def _submit(self, spec: RequestSpec) -> None:
        self._spec = spec
        transport = self._client.submit(spec, self)
        if spec.stopper is not None:
            spec.stopper.attach(self._stopped)
        if transport is not None:
            transport.flush()

    def _stopped(self) -> None:
        stopper = self._spec.stopper if self._spec is not None else None
        self._client.withdraw(self, stopper.reason if stopper is not None else None)

    def put(self, item: object) -> None:
        """Take an answer, a report of progress, or an error."""
        spec = self._spec
        assert spec is not None
        if isinstance(item, ProgressParams):
            if spec.on_progress is not None:
                spec.on_progress(item)
            return
        if spec.stopper is not None:
            spec.stopper.detach(self._stopped)
        if isinstance(item, ClientError):
            self.resume(error=item)
        else:
            self.resume(item)


class _CallerApplication(Application):
    """Passes on what a server says to those whose requests it is about."""

    def __init__(self, handlers: Handlers, callbacks: Callbacks, on_login: Callable[[], object] | None) -> None:
        super().__init__(handlers, callbacks)
        self._on_login = on_login

    def person_awaited(self) -> None:
        """Pass on that a person has to log in."""
        if self._on_login is not None:
            self._on_login()

    def ask(self, transport: ClientTransport, request: RpcRequest) -> None:
        """Pass on a question to the call that it is for; where that is not said, to the oldest that has not asked yet."""
        try:
            params = read_question(request.method, request.params)
        except (msgspec.DecodeError, RecursionError):
            transport.refuse(request.id, INVALID_PARAMS, f"Invalid params for {request.method}")
            return
        with transport.lock:
            found = transport.machine.asked_for(request.id)
            owners = [found[1]] if found is not None else transport.machine.askable()
        listeners: list[RequestListener] = [
            each.listener for each in owners if isinstance(each, _FlowRun) and each.listener
        ]
        listener = next((each for each in listeners if not each.is_parked), next(iter(listeners), None))
        if listener is None or self.handlers.handler(request.method, params) is None:
            known = request.method in self.handlers.answerable()
            code = INVALID_PARAMS if known else METHOD_NOT_FOUND
            transport.refuse(request.id, code, f"This client does not support this kind of {request.method[:80]} now")
            return
        listener.asked(transport, request.id, InputRequest(request.method, params))

    def notify(self, message: Notification, owner: object) -> None:
        """Pass on a log message to the call that it belongs to; where that is not said, to the oldest."""
        if message.method != "notifications/message":
            return
        try:
            params = _log_message.decode(message.params or b"{}")
        except (msgspec.DecodeError, RecursionError):
            return
        listener: RequestListener | None = getattr(owner, "listener", None)
        if listener is not None:
            listener.logged(params)
