"""What FastMCP gives to functions beside their arguments: the context, and the values of `Depends`."""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Union, get_args, get_origin

from linkspan_compat.fast.context import Context, current_context
from linkspan_compat.keywords import check

__all__ = [
    "CurrentAccessToken",
    "CurrentContext",
    "CurrentFastMCP",
    "CurrentHeaders",
    "CurrentRequest",
    "Depends",
    "Progress",
    "TokenClaim",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_http_request",
    "get_server",
    "injected_parameters",
    "supplied",
]


class Dependency:
    """Gives a value, as the default of a parameter: a plain or async function, generator or context manager."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def Depends(dependency: Callable[..., Any], **more: Any) -> Any:
    """Give what a function returns or yields; a context manager is entered, and left after the call."""
    check("Depends", more, "cache use_cache scope")
    return Dependency(dependency)


def get_context() -> Context:
    """Return the context of the request. Raises: RuntimeError outside of one."""
    found = current_context.get(None)
    if found is None:
        raise RuntimeError("No active context found.")
    return found


def get_server() -> Any:
    """Return the server of the request. Raises: RuntimeError outside of one."""
    return get_context().fastmcp


def get_http_request() -> Any:
    """Return the HTTP request as far as it is known. Raises: RuntimeError without one."""
    found = current_context.get(None)
    request = found.request_context.request if found is not None and found.request_context is not None else None
    if request is None:
        raise RuntimeError("No active HTTP request found.")
    return request


_HOP_BY_HOP = {
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "accept",
    "content-type",
    "upgrade",
    "te",
    "trailer",
}


def get_http_headers(include_all: bool = False, include: set[str] | None = None) -> dict[str, str]:
    """Return the HTTP headers without those of the connection and without credentials; nothing without a request."""
    try:
        headers: Mapping[str, str] = get_http_request().headers
    except RuntimeError:
        return {}
    kept = include or set()
    return {name: value for name, value in headers.items() if include_all or name in kept or name not in _HOP_BY_HOP}


def get_access_token() -> Any:
    """Return what the caller's token allows; None without one."""
    from linkspan_compat.auth import current_token

    found = current_context.get(None)
    return current_token(found.request_context) if found is not None else None


def CurrentContext() -> Any:
    """Give the context."""
    return Dependency(get_context)


def CurrentFastMCP() -> Any:
    """Give the server."""
    return Dependency(get_server)


def CurrentRequest() -> Any:
    """Give the HTTP request."""
    return Dependency(get_http_request)


def CurrentHeaders() -> Any:
    """Give the HTTP headers."""
    return Dependency(get_http_headers)


def CurrentAccessToken() -> Any:
    """Give what the caller's token allows. Raises: RuntimeError without one."""

    def found() -> Any:
        token = get_access_token()
        if token is None:
            raise RuntimeError(
                "No access token found. Ensure authentication is configured and the request is authenticated."
            )
        return token

    return Dependency(found)


def TokenClaim(name: str) -> Any:
    """Give a claim of the caller's token. Raises: RuntimeError without it."""

    def found() -> Any:
        token = get_access_token()
        if token is None or name not in token.claims:
            raise RuntimeError(f"Claim {name!r} not found in the access token.")
        return token.claims[name]

    return Dependency(found)


class Progress:
    """Counts the progress of a call, as the default of a parameter."""

    def __init__(self) -> None:
        self.current: int | None = None
        self.total: int = 1
        self.message: str | None = None

    async def set_total(self, total: int) -> None:
        """Set how much there is."""
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        """Report that more is done."""
        self.current = (self.current or 0) + amount
        await get_context().report_progress(self.current, self.total, self.message)

    async def set_message(self, message: str | None) -> None:
        """Report what is being done."""
        self.message = message
        await get_context().report_progress(self.current or 0, self.total, message)


def injected_parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters that are no arguments, and the `Dependency` that gives each."""
    found: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, parameter.annotation)
        if isinstance(parameter.default, Dependency):
            found[name] = parameter.default
        elif isinstance(parameter.default, Progress):
            found[name] = Dependency(Progress)
        elif get_origin(hint) is Annotated and any(isinstance(each, Dependency) for each in get_args(hint)):
            found[name] = next(each for each in get_args(hint) if isinstance(each, Dependency))
        elif _is_context(hint):
            found[name] = Dependency(get_context)
    return found


def _is_context(hint: Any) -> bool:
    from linkspan_compat.server.context import Context as SdkContext

    origin = get_origin(hint)
    if origin in (Annotated, Union) or origin is types.UnionType:
        return any(map(_is_context, get_args(hint)))
    return isinstance(hint, type) and issubclass(hint, Context | SdkContext)


@asynccontextmanager
async def supplied(injected: Mapping[str, Dependency]) -> AsyncIterator[dict[str, Any]]:
    """Yield the values of parameters; what was opened for them is closed afterwards."""
    async with AsyncExitStack() as stack:
        cache: dict[Any, Any] = {}
        yield {name: await _value(each.function, stack, cache) for name, each in injected.items()}


async def _value(function: Any, stack: AsyncExitStack, cache: dict[Any, Any]) -> Any:
    key = function
    if key in cache:
        return cache[key]
    keywords: dict[str, Any] = {}
    for name, each in injected_parameters(function).items():
        keywords[name] = await _value(each.function, stack, cache)
    if inspect.isasyncgenfunction(function):
        function = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        function = contextlib.contextmanager(function)
    value = function(**keywords)
    if inspect.isawaitable(value):
        value = await value
    if hasattr(value, "__aenter__"):
        value = await stack.enter_async_context(value)
    elif hasattr(value, "__enter__") and hasattr(value, "__exit__"):
        value = stack.enter_context(value)
    cache[key] = value
    return value
