"""What happened to a request, for the client that made it and for the application: instrumentation, failures, reports, logs.

No hook changes a response, except `around_request`, which is a part of the function that it surrounds. A hook may raise any
exception; SystemExit would otherwise end a worker thread, or the loop, instead of the hook.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec import Raw

from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    RemoteProtocolError,
    RequestHandlerError,
    ResourceNotFoundError,
    ToolError,
)
from linkspan.revisions.neutral import InputRequired, Outcome, Request, log_facts, unsayable
from linkspan.server.configuration import Profile, Settings, SettingsSource
from linkspan.types.base import Meta, TextContent
from linkspan.types.messages import CallToolParams, CallToolResult
from linkspan.types.methods import FAIL_IN_RESULT
from linkspan.wire.values import to_builtins

if TYPE_CHECKING:
    from linkspan.server.ports import InstrumentationData, System
    from linkspan.server.telemetry import KnownNames, Telemetry


class Observation:
    """The instrumentation of one request. The first error that is noted stays."""

    __slots__ = ("_callback", "_clock", "_started", "data")

    def __init__(
        self,
        method: str,
        callback: Callable[[InstrumentationData], object] | None,
        clock: Callable[[], float],
        started: float,
    ):
        self._callback = callback
        self._clock = clock
        self._started = started
        self.data: InstrumentationData = {"method": method}

    def record_error(self, error: str) -> None:
        """Note why the request failed, unless that is known already."""
        self.data.setdefault("error", error)

    def end(self, request: Request, outcome: Outcome) -> None:
        """Pass the outcome of the request to the callback, once: a question to a handshake client has not ended it yet."""
        if type(outcome) is InputRequired and not request.peer.revision.asks_in_results:
            request.observer = self
            return
        if request.cancelled:
            self.record_error("cancelled")
        elif isinstance(outcome, RemoteProtocolError):
            self.record_error(_name_of(outcome))
        if self._callback is not None:
            self.data["duration"] = self._clock() - self._started
            _call(self._callback, cast("InstrumentationData", dict(self.data)), request)


_ERROR_NAMES = {
    PARSE_ERROR: "parse_error",
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    INVALID_PARAMS: "invalid_params",
    INTERNAL_ERROR: "internal_error",
    RESOURCE_NOT_FOUND: "resource_not_found",
}


def _name_of(error: RemoteProtocolError) -> str:
    code = getattr(error, "code", None)  # an author's own class may have anything there, or nothing
    return _ERROR_NAMES.get(code, "error") if isinstance(code, int) else "error"


def observe(
    request: Request, settings: Settings, profile: Profile, clock: Callable[[], float], started: float
) -> Observation:
    """Begin to observe a request that came at `started`, or go on if it is issued again."""
    if isinstance(earlier := request.observer, Observation):
        request.observer = None
        return earlier
    found = Observation(request.method, settings.instrumentation_callback, clock, started)
    if settings.instrument_server_context:
        found.data["server_context"] = profile.context_of(request)
    return found


def instrument(
    callback: Callable[[InstrumentationData], object],
    request: Request,
    method: str | None,
    error: RemoteProtocolError | None,
    duration: float,
) -> None:
    """Pass a request that ran no handler to the callback. All unknown methods (None) share one name: clients can invent many."""
    if error is not None and error.code == METHOD_NOT_FOUND:
        method = None
    data: InstrumentationData = {"method": method or "unsupported_method", "duration": duration}
    if error is not None:
        data["error"] = _name_of(error)
    _call(callback, data, request)


def report_answered(
    callback: Callable[[InstrumentationData], object] | None,
    watchers: Sequence[Telemetry],
    names: KnownNames,
    request: Request,
    error: RemoteProtocolError | None,
    duration: float,
) -> None:
    """Report a request that a connection answered by itself."""
    if callback is not None:
        known = names.knows_method(request.method)
        instrument(callback, request, request.method if known else None, error, duration)
    if watchers:
        from linkspan.server.telemetry import watch_answered

        watch_answered(watchers, names, request, error, duration)


def _call(callback: Callable[[InstrumentationData], object], data: InstrumentationData, request: Request) -> None:
    try:
        callback(data)
    except BaseException as problem:
        warn("the instrumentation callback failed", problem, request)


class Around:
    """A function inside the author's context manager. What that raises ends the request as the function's exception would.

    Both run in a context (`contextvars`) of their own, so that the manager can take back what it has set, in whatever thread it
    is left: around a coroutine it stays open until `leave`.
    """

    __slots__ = ("_context", "_data", "_manager", "_open_around", "_run")

    def __init__(
        self,
        run: Callable[[], object],
        open_around: Callable[[InstrumentationData], AbstractContextManager[object]],
        data: InstrumentationData,
    ) -> None:
        """Nothing is open yet."""
        self._run = run
        self._open_around = open_around
        self._data = data
        self._context = copy_context()
        self._manager: AbstractContextManager[object] | None = None

    def __call__(self) -> object:
        """Open the manager and run the function. Raises: what either raises."""
        value = self._context.run(self._inside)
        if hasattr(type(value), "__await__"):
            return _StepsInContext(cast("Awaitable[object]", value), self._context)
        return value

    def _inside(self) -> object:
        manager = self._open_around(self._data)
        manager.__enter__()
        self._manager = manager
        return self._run()

    def leave(self, error: BaseException | None) -> None:
        """Close the manager, if it is open. Raises: what it raises but `error`."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        try:
            trace = error.__traceback__ if error is not None else None
            self._context.run(manager.__exit__, type(error) if error is not None else None, error, trace)
        except BaseException as problem:
            if problem is not error:
                raise

    def left(self, error: BaseException, report: Report) -> BaseException:
        """Close the manager after an exception; return that, or what the manager chose to raise instead."""
        try:
            self.leave(error)
        except BaseException as problem:
            if not hides(problem, error):
                return problem
            report(problem, "around_request")
        return error


class _StepsInContext:
    """A coroutine each of whose steps runs in one context."""

    __slots__ = ("_awaitable", "_context")

    def __init__(self, awaitable: Awaitable[object], context: Context) -> None:
        self._awaitable = awaitable
        self._context = context

    def __await__(self) -> Generator[Any, Any, object]:
        run = self._context.run
        steps: Any = run(self._awaitable.__await__)
        step: Callable[..., Any] = steps.__next__
        given: tuple[object, ...] = ()
        while True:
            try:
                waited_for = run(step, *given)
            except StopIteration as end:
                return end.value
            try:
                sent = yield waited_for
                step, given = (steps.__next__, ()) if sent is None else (steps.send, (sent,))
            except GeneratorExit:
                run(steps.close)
                raise
            except BaseException as error:
                step, given = steps.throw, (error,)


Report: TypeAlias = Callable[[BaseException, str], object]
"""Logs and reports an exception of the author's code, and what has failed."""


def hides(later: BaseException, error: BaseException | None) -> bool:
    """Return whether `later`, which was raised while `error` passed, would keep the client from what that says by accident.

    What is raised `from` the first exception, or chooses the answer itself, is meant to take its place.
    """
    if later is error or not (isinstance(later, Exception) and isinstance(error, Exception)):
        return False
    return later.__cause__ is not error and not isinstance(later, ToolError | RemoteProtocolError)


RETRY_AFTER: Final = "linkspan/retryAfter"
"""The key in `_meta` that has the seconds until a call may be tried again."""


def tool_error(text: str, meta: Meta | None = None) -> CallToolResult:
    """Return a result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(text)], is_error=True, meta=meta)


class Failures:
    """Turns the exceptions of one server's handlers into outcomes, which reveal what their author chose to (decision 6, C1)."""

    def __init__(self, profile: Profile, settings: SettingsSource, system: System) -> None:
        """Report and answer according to `settings`."""
        self._profile = profile
        self._settings = settings
        self._system = system

    def outcome(self, request: Request, observation: Observation | None, error: BaseException) -> Outcome:
        """Return the outcome for a client whose request raised `error`."""
        request.failure = error
        fails_in_result = request.method in FAIL_IN_RESULT
        match error:
            case ResourceNotFoundError():
                return RemoteProtocolError(request.peer.revision.resource_not_found, error.message, error.data)
            case RemoteProtocolError():
                if (problem := unsayable(request.peer.revision, error)) is None:
                    return error
                error = problem
            case ToolError():
                again = {RETRY_AFTER: math.ceil(error.retry_after)} if error.retry_after is not None else None
                if fails_in_result:
                    return tool_error(_text(error), again)
                return RemoteProtocolError(INTERNAL_ERROR, _text(error), again)
            case _ if request.cancelled:
                return RemoteProtocolError(INTERNAL_ERROR, "cancelled")
            case _:
                pass
        if observation is not None:
            observation.record_error("internal_error")
        incident = self.report(request, error)
        mode = self._settings.current.tool_error_mode
        if not fails_in_result or mode == "protocol":
            return RemoteProtocolError(INTERNAL_ERROR, f"Internal error (incident {incident})")
        return tool_error(_text(error) if mode == "message" else f"Internal error occurred (incident {incident})")

    def refusal(self, error: BaseException) -> str:
        """Log and report an exception of the lifespan; return the error of every caller if it could not be entered."""
        from logging import getLogger

        incident = self._system.random(3).hex().upper()
        facts = {**log_facts(), "incident": incident, "stage": "lifespan"}
        getLogger("linkspan.server").error("the lifespan failed (incident %s)", incident, exc_info=error, extra=facts)
        report(self._settings.current, error, lambda: {"incident": incident}, self._system)
        reason = f": {_text(error)}" if isinstance(error, ToolError) else f" (incident {incident})"
        return f"The server could not start{reason}"

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Return the outcome for a client whose result could not be encoded."""
        request.failure = error
        return RemoteProtocolError(INTERNAL_ERROR, f"Internal error (incident {self.report(request, error)})")

    def report(self, request: Request, error: BaseException, what: str | None = None) -> str:
        """Log and report an exception of the author's code; return the incident id that the client receives too.

        `what` failed: the handler, unless it is named.
        """
        from logging import getLogger

        incident = self._system.random(3).hex().upper()
        if what is None:
            request.incident = incident
            what = f"tool {request.target!r}" if isinstance(request.params, CallToolParams) else request.method
        getLogger("linkspan.server").error(
            "%s failed (incident %s)", what, incident, exc_info=error, extra=log_facts(request)
        )
        reported = error
        if request.method not in FAIL_IN_RESULT:
            reported = RequestHandlerError(request.method)
            reported.__cause__ = error
        report(self._settings.current, reported, lambda: self._context(request), self._system, request)
        return incident

    def _context(self, request: Request) -> dict[str, Any]:
        """Return where it happened: the keys of the source documents, and the author's own context (C2, C3)."""
        raw = request.params
        params: Any = msgspec.json.decode(bytes(raw) or b"{}") if isinstance(raw, Raw) else to_builtins(raw)
        context: dict[str, Any] = {"request": {"id": request.id, "method": request.method, "params": params}}
        if isinstance(raw, CallToolParams):
            context |= {"tool_name": request.target, "arguments": params.get("arguments") or {}}
        context["server_context"] = self._profile.context_of(request)
        return context


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def report(
    settings: Settings,
    error: BaseException,
    context: Callable[[], Mapping[str, Any]],
    system: System,
    request: Request | None = None,
) -> None:
    """Call the exception reporter, off the event loop. No request waits for one that is a coroutine function."""
    reporter = settings.exception_reporter
    if reporter is None:
        return

    def call() -> None:
        try:
            value = reporter(error, context())
            if hasattr(type(value), "__await__"):
                system.later(_reported(cast("Awaitable[object]", value), request))
        except BaseException as problem:
            warn("the exception reporter failed", problem, request)

    system.off_the_loop(call)


async def _reported(report: Awaitable[object], request: Request | None) -> None:
    try:
        await report
    except BaseException as problem:
        warn("the exception reporter failed", problem, request)


def warn(message: str, error: BaseException | None = None, request: Request | None = None) -> None:
    """Log a warning for the author, about a request if it is about one."""
    from logging import getLogger

    getLogger("linkspan.server").warning("%s", message, exc_info=error, extra=log_facts(request))
