"""What a client is told of a failure: no more than its author chose to say (decision 6, C1)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from linkspan.errors import (
    INTERNAL_ERROR,
    RemoteProtocolError,
    RequestHandlerError,
    ResourceNotFoundError,
    ToolError,
)
from linkspan.revisions.neutral import Outcome, Request, unsayable
from linkspan.server import observation as observing
from linkspan.server.configuration import SettingsSource
from linkspan.server.observation import Observation
from linkspan.server.profile import Profile, System
from linkspan.types.content import TextContent
from linkspan.types.messages import CallToolParams, CallToolResult
from linkspan.wire.values import to_builtins

__all__ = ["Failures", "tool_error"]


def tool_error(text: str) -> CallToolResult:
    """Return a result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(text)], is_error=True)


class Failures:
    """Turns the exceptions of one server's handlers into outcomes."""

    def __init__(self, profile: Profile, settings: SettingsSource, system: System) -> None:
        """Report and answer as `settings` say."""
        self._profile = profile
        self._settings = settings
        self._system = system

    def outcome(self, request: Request, observation: Observation | None, error: BaseException) -> Outcome:
        """Return what the client is told of `error`."""
        request.failure = error
        is_tool = request.method == "tools/call"
        match error:
            case ResourceNotFoundError():
                return RemoteProtocolError(request.peer.revision.resource_not_found, error.message, error.data)
            case RemoteProtocolError():
                problem = unsayable(request.peer.revision, error)
                return self._unforeseen(request, observation, problem, is_tool) if problem else error
            case ToolError():
                return tool_error(_text(error)) if is_tool else RemoteProtocolError(INTERNAL_ERROR, _text(error))
            case _ if request.cancelled:
                return RemoteProtocolError(INTERNAL_ERROR, "cancelled")
            case _:
                return self._unforeseen(request, observation, error, is_tool)

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Return what the client is told of a result that is no JSON."""
        request.failure = error
        incident = self._incident(request, error, request.method == "tools/call")
        return RemoteProtocolError(INTERNAL_ERROR, f"Internal error (incident {incident})")

    def _incident(self, request: Request, error: BaseException, is_tool: bool) -> str:
        incident = self._system.random(3).hex().upper()
        self._report(request, error, incident, is_tool)
        return incident

    def _unforeseen(
        self, request: Request, observation: Observation | None, error: BaseException, is_tool: bool
    ) -> Outcome:
        if observation is not None:
            observation.note_error("internal_error")
        incident = self._incident(request, error, is_tool)
        mode = self._settings.current.tool_error_mode
        if not is_tool or mode == "protocol":
            return RemoteProtocolError(INTERNAL_ERROR, f"Internal error (incident {incident})")
        if mode == "message":
            return tool_error(_text(error))
        return tool_error(f"Internal error occurred (incident {incident})")

    def _report(self, request: Request, error: BaseException, incident: str, is_tool: bool) -> None:
        what = f"tool {request.params.name!r}" if isinstance(request.params, CallToolParams) else request.method
        observing.log_failure(what, incident, error)
        reported = error
        if not is_tool:
            reported = RequestHandlerError(request.method)
            reported.__cause__ = error
        observing.report(self._settings.current, reported, lambda: self._context(request), self._system)

    def _context(self, request: Request) -> dict[str, Any]:
        """Say where it happened: the keys of the source documents, and the author's own context (C2, C3)."""
        raw = request.params
        params: Any = _decoded(raw) if isinstance(raw, Raw) else to_builtins(raw)
        context: dict[str, Any] = {"request": {"id": request.id, "method": request.method, "params": params}}
        if isinstance(raw, CallToolParams):
            context |= {"tool_name": raw.name, "arguments": params.get("arguments") or {}}
        context["server_context"] = self._profile.context_of(request)
        return context


def _decoded(raw: Raw) -> Any:
    text = bytes(memoryview(raw))
    return msgspec.json.decode(text) if text else {}


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
