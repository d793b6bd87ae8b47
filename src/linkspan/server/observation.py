"""What the application hears of its server's requests: instrumentation, exceptions, logs. It can never change an answer.

A hook may raise whatever it likes, SystemExit too: that would end a worker thread, or the loop, instead of the hook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    RemoteProtocolError,
)
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.server.configuration import InstrumentationData, Settings
from linkspan.server.profile import Profile

__all__ = ["Observation", "around", "log_failure", "observe", "report", "tell", "warn"]


class Observation:
    """The instrumentation of one request. The first error that is noted stays."""

    __slots__ = ("_callback", "_clock", "_started", "data")

    def __init__(
        self, method: str, callback: Callable[[InstrumentationData], object] | None, clock: Callable[[], float]
    ):
        self._callback = callback
        self._clock = clock
        self._started = clock()
        self.data: InstrumentationData = {"method": method}

    def note_error(self, error: str) -> None:
        """Note why the request failed, unless that is known already."""
        self.data.setdefault("error", error)

    def end(self, request: Request, outcome: Outcome) -> None:
        """Tell the callback what became of the request, once: what asks a handshake client has not ended yet."""
        if type(outcome) is InputRequired and request.peer.revision.era == "legacy":
            request.observer = self
            return
        if request.cancelled:
            self.note_error("cancelled")
        elif isinstance(outcome, RemoteProtocolError):
            self.note_error(_name_of(outcome))
        if self._callback is not None:
            self.data["duration"] = self._clock() - self._started
            _call(self._callback, cast(InstrumentationData, dict(self.data)))


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


def observe(request: Request, settings: Settings, profile: Profile, clock: Callable[[], float]) -> Observation:
    """Begin to observe a request, or go on if it is issued again."""
    if isinstance(earlier := request.observer, Observation):
        request.observer = None
        return earlier
    found = Observation(request.method, settings.instrumentation_callback, clock)
    if settings.instrument_server_context:
        found.data["server_context"] = profile.context_of(request)
    return found


def tell(
    callback: Callable[[InstrumentationData], object],
    method: str | None,
    error: RemoteProtocolError | None,
    duration: float,
) -> None:
    """Tell of a request that ran no handler. What is no method (None) has one name, lest clients make up names without end."""
    if error is not None and error.code == METHOD_NOT_FOUND:
        method = None
    data: InstrumentationData = {"method": method or "unsupported_method", "duration": duration}
    if error is not None:
        data["error"] = _name_of(error)
    _call(callback, data)


def _call(callback: Callable[[InstrumentationData], object], data: InstrumentationData) -> None:
    try:
        callback(data)
    except BaseException as problem:
        warn("the instrumentation callback failed", problem)


def around(
    run: Callable[[], object],
    open_around: Callable[[InstrumentationData], AbstractContextManager[object]],
    observation: Observation,
) -> Callable[[], object]:
    """Return `run` inside the author's context manager, whatever that does; for coroutines it stays open until the end."""

    def inside() -> object:
        manager = _entered(open_around, observation)
        try:
            value = run()
        except BaseException as error:
            _exited(manager, error)
            raise
        if hasattr(value, "__await__"):
            return _awaiting(value, manager)
        _exited(manager, None)
        return value

    return inside


async def _awaiting(value: Any, manager: AbstractContextManager[object] | None) -> object:
    try:
        result: object = await value
    except BaseException as error:
        _exited(manager, error)
        raise
    _exited(manager, None)
    return result


def _entered(
    open_around: Callable[[InstrumentationData], AbstractContextManager[object]], observation: Observation
) -> AbstractContextManager[object] | None:
    try:
        manager = open_around(observation.data)
        manager.__enter__()
    except BaseException as problem:
        warn("around_request failed before the request", problem)
        return None
    return manager


def _exited(manager: AbstractContextManager[object] | None, error: BaseException | None) -> None:
    if manager is None:
        return
    try:
        manager.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except BaseException as problem:
        if problem is not error:
            warn("around_request failed after the request", problem)


def report(
    settings: Settings,
    error: BaseException,
    context: Callable[[], Mapping[str, Any]],
    later: Callable[[Awaitable[object]], object],
) -> None:
    """Tell the exception reporter. One that is a coroutine function is handed to `later`: nobody waits for it."""
    if settings.exception_reporter is None:
        return
    try:
        told = settings.exception_reporter(error, context())
        if hasattr(type(told), "__await__"):
            later(_reported(cast("Awaitable[object]", told)))
    except BaseException as problem:
        warn("the exception reporter failed", problem)


async def _reported(report: Awaitable[object]) -> None:
    try:
        await report
    except BaseException as problem:
        warn("the exception reporter failed", problem)


def log_failure(what: str, incident: str, error: BaseException) -> None:
    """Log an author's exception, with the incident id that the client was told."""
    from logging import getLogger

    getLogger("linkspan.server").error("%s failed (incident %s)", what, incident, exc_info=error)


def warn(message: str, error: BaseException | None = None) -> None:
    """Log something that the author should look at."""
    from logging import getLogger

    getLogger("linkspan.server").warning("%s", message, exc_info=error)
