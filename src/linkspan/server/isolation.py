"""Apply the limits of tools: which ones make sense, and how a tool runs in a process of its own.

Arguments are checked here and cross as the client sent them; the process decodes them again, by the same hints, and its result
comes back as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from linkspan.errors import LinkspanError, RegistrationError, ToolError
from linkspan.schema.parameters import Decoded, Parameters
from linkspan.server.context import Context
from linkspan.server.handlers import Function, Handler, describe
from linkspan.server.limits import CallLimits, IsolatedCall, Isolation
from linkspan.server.tools import MAX_WAITING, BoundTool, ToolInfo
from linkspan.types.base import UNSET
from linkspan.types.messages import CallToolResult

if TYPE_CHECKING:
    from linkspan.server.dependencies import DependencyProvider
    from linkspan.server.ports import System


class IsolatedFailure(LinkspanError):
    """A function failed in its process; the text is its traceback there."""


def within_limits(
    tool: BoundTool, info: ToolInfo, *, system: Callable[[], System], structured_text: bool, coerce: bool
) -> BoundTool:
    """Let a tool run within its limits, in this process or in one of its own. Raises: RegistrationError."""
    _check_limits(tool.spec.name, info)
    if info.isolated:
        return _isolated(tool, info, system().isolate, structured_text=structured_text, coerce=coerce)
    handler = tool.handler
    limits = CallLimits(tool.spec.name, not handler.is_async, info.timeout, info.concurrency, info.max_waiting)
    limited = msgspec.structs.replace(handler, is_async=True, limited=system().limited(limits))
    return msgspec.structs.replace(tool, handler=limited, is_plain=False)


def _check_limits(name: str, info: ToolInfo) -> None:
    problem: str | None = None
    if info.timeout is not None and info.timeout <= 0:
        problem = f"timeout={info.timeout!r} leaves no time: write the seconds a call may take, or None"
    elif info.concurrency is not None and info.concurrency < 1:
        problem = f"concurrency={info.concurrency!r} lets no call run: write at least 1, or None"
    elif info.processes < 1:
        problem = f"processes={info.processes!r} lets no call run: write at least 1"
    elif info.inline and (info.timeout is not None or info.concurrency is not None or info.isolated):
        problem = "inline=True runs it where the transport is, which cannot stop or delay it: leave inline=True out"
    elif not info.isolated and (info.memory is not None or info.processes != 1):
        problem = "memory= and processes= are limits of a process of its own: add isolated=True"
    elif info.isolated and info.concurrency is not None:
        problem = (
            "isolated=True runs as many calls at once as there are processes: write processes= in place of concurrency="
        )
    elif info.isolated and info.max_waiting != MAX_WAITING:
        problem = "max_waiting= does not bound the calls that wait for a process: leave max_waiting= out"
    elif info.concurrency is None and info.max_waiting != MAX_WAITING:
        problem = "max_waiting= bounds the calls that wait for their turn: add concurrency="
    if problem is not None:
        raise RegistrationError(f"{name}: {problem}")


def _isolated(
    tool: BoundTool,
    info: ToolInfo,
    isolate: Callable[[Isolation], IsolatedCall],
    *,
    structured_text: bool,
    coerce: bool,
) -> BoundTool:
    """Let a tool run in a process of its own. Raises: RegistrationError if its function cannot be found or needs this process."""
    handler = tool.handler
    _check_parameters(handler)
    module, path = _home(handler.function)
    written = info.output_schema
    call = isolate(
        Isolation(
            tool=tool.spec.name,
            function=cast("Any", handler.function).__qualname__,
            module=module,
            path=path,
            structured=info.structured,
            output_schema=written if written is not UNSET else None,
            derives_output_schema=written is UNSET,
            structured_text=structured_text,
            coerce=coerce,
            processes=info.processes,
            timeout=info.timeout,
            memory=info.memory,
        )
    )

    def run(arguments: bytes, repair: bool, ctx: Context) -> CallToolResult:
        reply = call(arguments, repair=repair, cancelled=lambda: ctx.cancelled)
        if reply.refused is not None:
            raise ToolError(reply.refused)
        if reply.result is None:
            raise IsolatedFailure(reply.failed)
        return reply.result

    parameters = cast("Parameters", _Unread(handler.parameters))
    handler = Handler(run, parameters, is_async=False, inline=False, context_parameter="ctx")
    return msgspec.structs.replace(tool, handler=handler, is_plain=False)


def _check_parameters(handler: Handler) -> None:
    name = describe(handler.function)
    if handler.context_parameter is not None or handler.parameters.asks or handler.provided:
        raise RegistrationError(
            f"{name} runs in a process of its own (isolated=True), which has no Context, no lifespan and no user to ask: "
            "remove the parameter, or isolated=True"
        )
    if handler.needs is not None and (handler.needs.is_async or _takes_context(handler.needs.providers)):
        raise RegistrationError(
            f"{name} runs in a process of its own (isolated=True): its dependencies are made there, once for the process, "
            "and must be plain functions without a Context and without what a lifespan yields"
        )


def _takes_context(providers: Mapping[str, DependencyProvider]) -> bool:
    return any(
        each.context_parameter is not None or each.provided or _takes_context(each.needs) for each in providers.values()
    )


def _home(function: Function) -> tuple[str | None, str | None]:
    """Return the module that has a function, or the path of its file. Raises: RegistrationError."""
    name = describe(function)
    advice = "write a function with `def` at the top level of a file"
    if not isinstance(function, FunctionType) or "<" in function.__qualname__ or "." in function.__qualname__:
        raise RegistrationError(f"{name} cannot run in a process of its own, which finds functions by name: {advice}")
    module = sys.modules.get(function.__module__)
    path: str | None = getattr(module, "__file__", None)
    if path is None:
        raise RegistrationError(f"{name} was typed into an interpreter; a process of its own cannot find it: {advice}")
    if function.__module__ != "__main__" and not _is_loaded(function.__module__):
        from importlib.util import find_spec

        try:
            spec = find_spec(function.__module__)
        except (ImportError, ValueError):
            spec = None
        if spec is not None and spec.origin == path:
            return function.__module__, None
    return None, path


def _is_loaded(module: str) -> bool:
    """Return whether a module is from `Server.load`, whose packages have no spec: no other process can import it by name."""
    package = sys.modules.get(module.partition(".")[0])
    return package is None or package.__spec__ is None


class _Unread:
    """Parameters that check arguments, and pass them on as they came."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parameters, name)

    def decode(self, raw: bytes | Raw | None, *, repair: bool = True, check: bool = True) -> Decoded:
        """Check the arguments of a call. Raises: ArgumentsInvalid."""
        repairs = self._parameters.decode(raw, repair=repair, check=check).repairs
        return Decoded({"arguments": bytes(raw or b"{}"), "repair": repair}, repairs)
