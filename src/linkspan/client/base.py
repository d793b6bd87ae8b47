"""What both clients share: how they are made, and what they know. The faces add the way to wait."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

import msgspec

from linkspan._version import __version__
from linkspan.client.callbacks import Application, Callbacks
from linkspan.client.subscriptions import Filter, Kind
from linkspan.client.supervisor import Supervisor, find_telemetry
from linkspan.client.targets import ServerTarget, Target, resolve
from linkspan.client.transports.base import ClientTransport, Recorder, Waiter
from linkspan.core.flow import ProgressCallback, Stopper
from linkspan.errors import UnsupportedProtocolVersion, import_hint
from linkspan.flows.answers import ElicitationHandler, Handlers, RootsSource, SamplingHandler, encode_answer, failed
from linkspan.flows.client_errors import Change, ClientError, ClientEvent, ServerOrigin
from linkspan.flows.operations import DEFAULT_CALL, CallOptions
from linkspan.flows.state import (
    CLIENT_LIMITS,
    DEFAULT_TIMEOUTS,
    Auth,
    ClientOptions,
    ClientState,
    OutputPolicy,
    ResponseCache,
    Retry,
    Surround,
    Timeouts,
    bearer,
)
from linkspan.keywords import Keywords, check_values, closed
from linkspan.revisions import REVISIONS, Revision, supported_versions
from linkspan.revisions.agreement import ClientProfile
from linkspan.revisions.neutral import InputRequest
from linkspan.text import check_keywords
from linkspan.types.base import JSON, Implementation
from linkspan.types.messages import LoggingMessageParams, ServerCapabilities
from linkspan.wire.reports import Report
from linkspan.wire.values import Limits

if TYPE_CHECKING:
    from ssl import SSLContext

    from linkspan.auth.identities import Identity
    from linkspan.core.extension import Extension, MakesExtension
    from linkspan.flows.client_middleware import ClientMiddleware
    from linkspan.flows.http_messages import HttpHop


class BaseClient:
    """A client of one server. Nothing is started before the first call, or `connect`."""

    _awaits = False
    """Whether its middleware may be coroutine functions."""
    _uses_stored_login = True
    """Whether the login of this user that is stored for a URL is used, where no other one is given."""

    @closed
    def __init__(
        self,
        target: ServerTarget,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        inherit_env: bool = False,
        headers: Mapping[str, str] | None = None,
        auth: Auth | Identity | None = None,
        ssl: SSLContext | None = None,
        era: Literal["modern", "legacy"] | None = None,
        protocol_version: str | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        limits: Limits = CLIENT_LIMITS,
        retry: Retry = "safe",
        check_output: OutputPolicy = "lenient",
        max_cached_bytes: int = 8 * 1024 * 1024,
        max_pages: int = 1000,
        trace_context: Callable[[], Mapping[str, str]] | None = None,
        middleware: Sequence[ClientMiddleware] = (),
        elicitation: ElicitationHandler | None = None,
        elicitation_modes: tuple[Literal["form", "url"], ...] = ("form", "url"),
        sampling: SamplingHandler | None = None,
        sampling_tools: bool = False,
        roots: RootsSource | None = None,
        on_log: Callable[[LoggingMessageParams], Any] | None = None,
        on_change: Callable[[Change], Any] | None = None,
        on_event: Callable[[ClientEvent], Any] | None = None,
        on_notification: Callable[[str, Any], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_report: Callable[[Report], Any] | None = None,
        on_http: Callable[[HttpHop], Any] | None = None,
        recorder: Recorder | None = None,
        info: Implementation | None = None,
        extensions: Sequence[Extension | MakesExtension] = (),
    ) -> None:
        """Prepare a client of `target`: a Server, a command (a list or one line), a .py file, an entry of an mcp.json,
        a URL, or a function that opens a channel.

        `name` is what errors call the server. A process gets a small environment and `env`, or all of ours with
        `inherit_env`, and starts in `cwd`. A URL gets `headers` with every request, `auth` (a bearer token, a function
        that returns one, or a value of `linkspan.auth` such as `OAuth()`) identifies the caller, and `ssl` is for its
        certificates. Without `auth`, the login that `linkspan login` stored is used.
        `era` and `protocol_version` pin what is otherwise negotiated.
        `retry` selects when a call whose server was lost is repeated automatically: "never", "safe" (it was not sent,
        it only reads, or its tool is marked read-only or idempotent), "always". `check_output` selects what happens to
        structured output that does not match its schema: "strict" raises, "lenient" lists it in `result.problems`,
        "off" does not check.
        `max_cached_bytes` bounds the answers that are kept because their server allows it (`ttlMs`); 0 keeps none.
        `max_pages` bounds the pages of one list: a list with more raises InvalidResponse.
        `trace_context` returns `traceparent` (and `tracestate`, `baggage`) for each request's `_meta`.
        `middleware` are functions around operations, the outermost first: generator functions `(call)`, or for `Client`
        coroutine functions `(call, call_next)`.
        `elicitation`, `sampling` and `roots` answer the server; what is not given is not declared. `on_log`, `on_change`,
        `on_event`, `on_notification` (method, params) and `on_stderr` (what a process prints, also by mistake on
        stdout) are called for what the server sends and for events of the connection. `on_report` is called with the log
        records of a server that is a .py file with a Linkspan server; without it, and without `on_stderr`, its crashes are
        logged under `linkspan.client`, with the frames of its author. `on_http` is called with each request over HTTP and the
        headers of its response: redirects, logins and retries too, without secrets. All may be coroutine functions.
        `extensions` are the extensions of the protocol that are on, such as `Tasks()`.
        `recorder` records all messages, as `linkspan.testing.TranscriptWriter` does.
        Raises: ValueError for an invalid target or option, TypeError for a keyword that does not exist, or a value of the
        wrong type.
        """
        self._target = resolve(target, name=name, env=env, cwd=cwd, inherit_env=inherit_env)
        if headers:
            self._target = msgspec.structs.replace(self._target, headers={**self._target.headers, **headers})
        if auth is not None:
            _is_token(auth)
        self._answering: set[object] = set()
        handlers = Handlers(elicitation, elicitation_modes, sampling, sampling_tools, roots)
        profile = ClientProfile(info or Implementation("linkspan", __version__), handlers.capabilities())
        _one_of("era", era, (None, "modern", "legacy"))
        _one_of("retry", retry, ("never", "safe", "always"))
        _one_of("check_output", check_output, ("strict", "lenient", "off"))
        if max_pages < 1:
            raise ValueError(f"max_pages must be a whole number, 1 or more, got {max_pages!r}")
        options = ClientOptions(
            profile=profile,
            era=era,
            revision=_revision(protocol_version),
            timeouts=_deadlines(timeouts, self._target),
            limits=limits,
            retry=retry,
            max_pages=max_pages,
            check_output=check_output,
            trace_context=trace_context,
        )
        if extensions:
            from linkspan.flows.client_extensions import extended

            options = extended(options, extensions)
        options = msgspec.structs.replace(options, stored_login=self._uses_stored_login)
        cache = ResponseCache(time.monotonic, max_bytes=max_cached_bytes)
        fixed = any(name.lower() == "authorization" for name in headers or ())
        who_asks = partial(bearer, auth) if callable(auth) and not fixed else None
        surround: Surround | None = None
        if middleware:
            from linkspan.flows.client_middleware import compile_middleware

            surround = compile_middleware(middleware, awaits=self._awaits)
        self._state = ClientState(
            self._target.origin,
            options,
            _chance,
            cache,
            time.monotonic,
            who_asks,
            find_telemetry=find_telemetry,
            surround=surround,
        )
        if self._target.command is not None and self._target.command.is_ours:
            self._state.era = "modern"  # its death is that of its author's code: a handshake would run into the same
        callbacks = Callbacks(on_log, on_change, on_event, on_notification, on_stderr, on_report, recorder, on_http)
        self._application = self._make_application(handlers, callbacks)
        self._supervisor = Supervisor(self._state, _opener(self._target, ssl, auth), self._application)
        weakref.finalize(self, _close_soon, self._supervisor).atexit = False

    def _make_application(self, handlers: Handlers, callbacks: Callbacks) -> Application:
        """Return whom the client serves."""
        return Application(handlers, callbacks)

    def __repr__(self) -> str:
        """Return the name of the server and the state of the connection."""
        state = "closed" if self._supervisor.closed else "connected" if self._supervisor.connected else "not connected"
        return f"<{type(self).__name__} of {self.name}: {state}>"

    @property
    def name(self) -> str:
        """What errors call the server."""
        return self._state.origin.server

    @property
    def directory(self) -> str | None:
        """Where the server's process is started; None for a server that is no process of ours."""
        command = self._target.command
        return (command.cwd or os.getcwd()) if command is not None else None

    @property
    def reports(self) -> bool:
        """Whether the server is a process of ours that reports its log: see `on_report`."""
        return self._target.command is not None and self._target.command.reports

    @property
    def environment(self) -> Mapping[str, str]:
        """What `env=` or the configuration adds to the environment of the server's process; it may hold secrets."""
        return self._target.environment

    @property
    def origin(self) -> ServerOrigin:
        """The server's name, and its command or URL, redacted."""
        return self._state.origin

    @property
    def connected(self) -> bool:
        """Whether there is a connection now. Not having one is no problem: the next call makes one."""
        return self._supervisor.connected

    @property
    def protocol_version(self) -> str | None:
        """The revision that was agreed on; None before the first connection."""
        agreement = self._state.agreement
        return agreement.revision.date if agreement is not None else None

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version, for display."""
        return self._state.agreement.server_info if self._state.agreement is not None else None

    @property
    def server_capabilities(self) -> ServerCapabilities | None:
        """What the server offers; None before the first connection."""
        return self._state.agreement.capabilities if self._state.agreement is not None else None

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._state.agreement.instructions if self._state.agreement is not None else None

    def close_now(self) -> None:
        """Close without an event loop: in a plain function, a signal handler, at exit. Blocks until the server is gone."""
        self._supervisor.close()

    def _encoded(self, request: InputRequest, value: object) -> bytes:
        """Return a handler's value as the answer that the server gets. Raises: InputUnavailable."""
        agreement = self._state.agreement
        assert agreement is not None
        try:
            return encode_answer(agreement.revision, request.method, request.params, value)
        except Exception as error:  # there is no end to what a handler may return
            raise failed(request.method, self.origin, error) from error

    def _attach(self, stopper: Stopper, waiter: Waiter) -> Callable[[], None]:
        """Let the stopper of a call end its wait; return what detaches it."""

        def stop() -> None:
            self._supervisor.withdraw(waiter, stopper.reason, report=True)

        stopper.attach(stop)
        return partial(stopper.detach, stop)

    def notify_roots_changed(self) -> None:
        """Tell the server that the roots are others now, where its revision wants to know."""
        self._supervisor.roots_changed()


def _chance() -> float:
    """Return a random number below 1."""
    import random  # few clients ever wait, and it takes long to load

    return random.random()


class ListKeywords(Keywords, total=False):
    """What every call takes: who asks, over HTTP."""

    headers: Mapping[str, str] | None
    auth: Auth | Identity | None


class RequestKeywords(ListKeywords, total=False):
    """What a call with a deadline of its own takes; seconds."""

    timeout: float | None


class CallKeywords(RequestKeywords, total=False):
    """What a call that may run for long takes; seconds."""

    total: float | None
    on_progress: ProgressCallback | None
    stopper: Stopper | None
    meta: Mapping[str, JSON] | None


_TAKES: Mapping[str, type[Any]] = {
    "call_tool": CallKeywords,
    "start_tool": CallKeywords,
    "read_resource": CallKeywords,
    "get_prompt": CallKeywords,
    "ping": RequestKeywords,
    "request": RequestKeywords,
}
"""The keywords of the methods of the clients; all others take `ListKeywords`."""


def call_options(call: str, given: Mapping[str, Any]) -> CallOptions:
    """Return the options of one call from the keywords that the method `call` was given.

    Raises: TypeError for a keyword that the method does not have, ValueError for an invalid token.
    """
    if not given:
        return DEFAULT_CALL
    hints = _TAKES.get(call, ListKeywords).__annotations__
    check_keywords(call, given, hints)
    check_values(call, hints, given)
    fields = {name: value for name, value in given.items() if name != "auth"}
    if (auth := given.get("auth")) is not None:
        given_headers: Mapping[str, str] = fields.get("headers") or {}
        headers = {name: value for name, value in given_headers.items() if name.lower() != "authorization"}
        if _is_token(auth):
            fields["headers"] = {**headers, **bearer(auth)}
        else:
            fields |= {"headers": headers or None, "identity": auth}
    return CallOptions(**fields)


def _is_token(auth: Auth | Identity) -> TypeGuard[Auth]:
    """Return whether `auth` is a token, or a function for one, and not an identity that gets its own. Raises: ValueError."""
    if isinstance(auth, str) or callable(auth):
        return True
    from linkspan.auth.identities import Identity

    if not isinstance(auth, Identity):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("auth= must be a bearer token, a function that returns one, or a value such as OAuth()")
    return False


def filter_of(*, tools: bool, prompts: bool, resources: bool, uris: tuple[str, ...]) -> Filter:
    """Gather what to listen for."""
    chosen: dict[Kind, bool] = {"tools": tools, "prompts": prompts, "resources": resources}
    return Filter(frozenset(kind for kind, wanted in chosen.items() if wanted), frozenset(uris))


def _opener(
    target: Target, ssl: SSLContext | None, auth: Auth | Identity | None
) -> Callable[[Supervisor], ClientTransport]:
    def open_transport(supervisor: Supervisor) -> ClientTransport:
        if target.command is not None:
            from linkspan.client.transports.stdio import StdioClientTransport

            return StdioClientTransport(supervisor, supervisor.state, target.command)
        if target.server is not None:
            from linkspan.client.transports.memory import MemoryClientTransport

            return MemoryClientTransport(
                supervisor, supervisor.state, target.server, lambda: supervisor.application.queue.loop
            )
        if target.channel is not None:
            from linkspan.client.transports.channel import open_channel_transport

            return open_channel_transport(
                supervisor, supervisor.state, target.channel, lambda: supervisor.application.queue.loop
            )
        try:
            from linkspan.client.transports.http import HttpClientTransport
        except ImportError as error:
            problem = "HTTP needs httptools"
            raise ClientError(problem, target.origin, phase="connect", hint=import_hint("http", error)) from None

        assert target.url is not None
        who = supervisor.state.principal
        headers = {name.lower(): value for name, value in target.headers.items()}
        if who.identity is not None:
            headers.pop("authorization", None)
        return HttpClientTransport(
            supervisor,
            supervisor.state,
            target.url,
            headers | dict(who.headers),
            ssl,
            auth if who.identity is None else cast("Identity", who.identity),
            target.secrets,
            target.login,
        )

    return open_transport


def _deadlines(timeouts: Timeouts, target: Target) -> Timeouts:
    """Return the deadlines that the caller chose; where none were chosen, those of the server's configuration."""
    if not isinstance(timeouts, Timeouts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"timeouts must be Timeouts, such as Timeouts(call=5.0), got {timeouts!r}")
    if timeouts is not DEFAULT_TIMEOUTS or not target.timeouts:
        return timeouts
    found = msgspec.structs.replace(timeouts, **target.timeouts)
    return msgspec.structs.replace(found, total=max(found.total, found.call))


def _close_soon(supervisor: Supervisor) -> None:
    """Close in another thread: a client that is no longer referenced leaves no server behind."""
    if not supervisor.closed:
        threading.Thread(target=supervisor.close, name="linkspan-close", daemon=True).start()


def _revision(version: str | None) -> Revision | None:
    if version is None:
        return None
    if version not in REVISIONS:
        raise UnsupportedProtocolVersion(
            f"protocol_version {version!r} is not supported; choose one of {', '.join(supported_versions())}"
        )
    return REVISIONS[version]


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
