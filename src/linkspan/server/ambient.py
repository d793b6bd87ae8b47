"""`current_context`, for code that a handler calls without passing its `Context` on.

Law: a call carries its context from here only once this module has been loaded, so that it costs nothing before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeAlias, cast

from linkspan.server.context import Context

_Made: TypeAlias = Context[Any] | Callable[[], Context[Any]]
"""A context, or what makes it when it is needed."""

_current: ContextVar[_Made] = ContextVar("linkspan-context")


def current_context() -> Context[Any]:
    """Return the `Context` of the call that this code runs for: in its thread, `asyncio.to_thread`, or a task that it started.

    Import it where a module begins: calls that have begun earlier have no current context. A thread that you start needs
    `contextvars.copy_context().run`. Raises: RuntimeError outside a call.
    """
    found = _current.get(None)
    if found is None:
        raise RuntimeError(
            "current_context() is not called by a handler here; in a thread of your own, run the function with "
            "contextvars.copy_context().run, made in the handler"
        )
    return found() if callable(found) else found


def run_with(made: _Made, run: Callable[[], object]) -> object:
    """Run a function of the author with a current context, which an awaitable that it returns has, too."""
    token = _current.set(made)
    try:
        value = run()
    finally:
        _current.reset(token)
    if hasattr(type(value), "__await__"):
        return _WithCurrent(made, cast("Awaitable[object]", value))
    return value


class _WithCurrent:
    """An awaitable that has a current context. One that is never awaited is closed as a coroutine is."""

    __slots__ = ("_awaitable", "_made")

    def __init__(self, made: _Made, awaitable: Awaitable[object]) -> None:
        self._made = made
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, object]:
        token = _current.set(self._made)
        try:
            return (yield from self._awaitable.__await__())
        finally:
            with suppress(ValueError):  # closed after its event loop has ended, in another context
                _current.reset(token)

    def close(self) -> None:
        """Close the awaitable."""
        getattr(self._awaitable, "close", bool)()


Context.ambient = run_with
