"""Calls of tools.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from linkspan.core.call import Call
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.revisions.neutral import Outcome, Request
from linkspan.schema.problems import ArgumentsInvalid, kind_of_json
from linkspan.server.asking import NO_QUESTIONS
from linkspan.server.catalogue import Registry
from linkspan.server.configuration import Settings
from linkspan.server.context import Context
from linkspan.server.features.method import ItemMethod, MethodHost, Shortcut
from linkspan.server.handlers import Run
from linkspan.server.observation import Observation, tool_error
from linkspan.types.messages import CallToolParams
from linkspan.types.methods import TOOL_CALL

if TYPE_CHECKING:
    from linkspan.server.tools import BoundTool


class CallTool(ItemMethod[CallToolParams]):
    """`tools/call`."""

    registry: Registry[BoundTool]

    def __init__(self, host: MethodHost) -> None:
        """Call the tools of `host`."""
        super().__init__(TOOL_CALL, host, host.catalogue.tools)

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Check the arguments, and return the call of the tool's function."""
        params = request.params
        assert isinstance(params, CallToolParams)
        tool = self.registry.get(params.name, request.shown)
        if tool is None:
            refusal = self.unknown(request, params.name, observation)
            is_result = settings.unknown_tools_as_results and refusal.code == INVALID_PARAMS
            return tool_error(refusal.message) if is_result else refusal
        if observation is not None:
            observation.data["tool_name"] = params.name
        if tool.when is not None and (wrong := _wrong_headers(request, params, tool)) is not None:
            return wrong
        return self.call(tool, request, settings, observation)

    def call(
        self, tool: BoundTool, request: Request, settings: Settings, observation: Observation | None
    ) -> Outcome | Call:
        """Do the same for a tool that was found."""
        params = request.params
        assert isinstance(params, CallToolParams)
        if tool.mounted is not None:
            return tool.mounted.begin(request, settings, observation, self.host.rounds, self.host.failures, params.name)
        try:
            arguments, repairs = tool.handler.parameters.decode(
                params.arguments, repair=settings.repair_arguments, check=settings.validate_tool_call_arguments
            )
        except ArgumentsInvalid as problem:
            if (kind := kind_of_json(params.arguments)) is None:  # null means none, as it does for params
                request.params = msgspec.structs.replace(params, arguments=Raw(b"{}"))
                return self.call(tool, request, settings, observation)
            if kind != "object":  # the client's mistake, and not the model's
                return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: arguments must be an object, not {kind}")
            if observation is not None:
                observation.record_error(problem.kind)
            if request.alias is not None:
                problem = problem.renamed(request.alias.renamed)
            return tool_error(f"{request.target}: {problem}")
        if repairs:
            self.host.count_repairs(request, repairs)
        conclude = tool.checked_outcome if settings.validate_tool_call_results else tool.outcome
        return self.host.run(request, settings, observation, tool.handler, arguments, conclude, params.name)

    def shortcut(self) -> Shortcut:
        """Return what begins the call of a tool that needs nothing but its arguments, and gets those."""
        return self._begin_plain

    def _begin_plain(self, request: Request, settings: Settings) -> Call | None:
        if Context.ambient is not None:
            return None
        params = request.params
        assert isinstance(params, CallToolParams)
        tool = self.registry.get(params.name)
        if tool is None:
            return None
        failures = self.host.failures
        if not tool.is_plain:
            if tool.mounted is None or (found := tool.mounted.plain(request)) is None:
                return None
            tool, settings, failures = found
        handler = tool.handler
        try:
            arguments, repairs = handler.parameters.decode(params.arguments, repair=settings.repair_arguments)
        except ArgumentsInvalid:
            return None
        if repairs:
            return None
        run: Callable[[], object] = partial(handler.function, **arguments)
        if handler.needs is not None:
            if not self.host.makes_values_plainly:
                return None
            run = self.host.bind_needs(handler, handler.needs, run, request, None)
        conclude = tool.checked_outcome if settings.validate_tool_call_results else tool.outcome
        return Run(
            request,
            run,
            handler.is_async,
            handler.inline,
            rounds=self.host.rounds,
            failures=failures,
            current=NO_QUESTIONS,
            conclude=conclude,
            target=params.name,
        )


def _wrong_headers(request: Request, params: CallToolParams, tool: BoundTool) -> RemoteProtocolError | None:
    """Compare the headers that repeat arguments, once it is known that the caller may learn that the tool exists."""
    headers, plan = request.facts.headers, tool.handler.parameters.headers
    if not plan or not headers or not request.peer.revision.repeats_in_headers:
        return None
    from linkspan.core.http_checks import compare_parameters  # loaded with HTTP alone

    return compare_parameters(headers, plan, params)


def takes(tool: BoundTool, arguments: Raw | None, settings: Settings) -> bool:
    """Return whether a tool takes arguments, as far as no code of the author's has to run for that."""
    if tool.handler.parameters.runs_code:
        return True
    try:
        tool.handler.parameters.decode(
            arguments, repair=settings.repair_arguments, check=settings.validate_tool_call_arguments
        )
    except ArgumentsInvalid:
        return False
    return True
