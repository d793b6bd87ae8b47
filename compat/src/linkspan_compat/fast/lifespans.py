"""Lifespans of FastMCP: functions that yield once, which may be joined with `|`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

__all__ = ["ComposedLifespan", "ContextManagerLifespan", "Lifespan", "combine_lifespans", "lifespan"]


class Lifespan:
    """A function that yields what it opened."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, server: Any) -> Any:
        """Open it."""
        made = self.function
        return made(server) if not inspect.isasyncgenfunction(made) else asynccontextmanager(made)(server)

    def __or__(self, other: Any) -> ComposedLifespan:
        return ComposedLifespan(self, other if isinstance(other, Lifespan) else Lifespan(other))


class ContextManagerLifespan(Lifespan):
    """A function that returns a context manager."""


class ComposedLifespan(Lifespan):
    """Two lifespans, whose mappings are joined."""

    def __init__(self, first: Lifespan, second: Lifespan) -> None:
        super().__init__(combine_lifespans(first, second))


def lifespan(function: Callable[..., Any]) -> Lifespan:
    """Make a lifespan of a function that yields once."""
    return Lifespan(function)


def combine_lifespans(*lifespans: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lifespan that opens all of these, and joins what they yield."""

    @asynccontextmanager
    async def opened(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            found: dict[str, Any] = {}
            for each in lifespans:
                found |= await stack.enter_async_context(each(app)) or {}
            yield found

    return opened
