"""Runs one call where it is. Loads neither threads nor an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

from linkspan.core.call import Call
from linkspan.events import Event

__all__ = ["LATER", "RunsCalls", "run_call"]


class RunsCalls(Protocol):
    """What a runner does with a connection: `ServerConnection` documents each method."""

    def finish(self, call: Call, value: object) -> list[Event[Call]]: ...
    def fail(self, call: Call, error: BaseException) -> list[Event[Call]]: ...
    def run_hook(self, hook: Callable[[], object]) -> list[Event[Call]]: ...
    def __hash__(self) -> int: ...


LATER: Final = object()
"""Stands for a value that is awaited elsewhere."""


def run_call(
    connection: RunsCalls,
    call: Call,
    wait: Callable[[RunsCalls, Call, Awaitable[object]], object],
    passing: tuple[type[BaseException], ...] = (),
) -> list[Event[Call]]:
    """Run a call here and now, and return what its end asks for.

    `wait` gets a value that may be awaited, and returns its result, or `LATER` if it hands that in itself. Raises: the
    exceptions of the types in `passing`, which are not the call's.
    """
    try:
        value = call.run()
        if hasattr(type(value), "__await__"):
            value = wait(connection, call, cast("Awaitable[object]", value))
            if value is LATER:
                return []
    except BaseException as error:
        if isinstance(error, passing):
            raise
        return connection.fail(call, error)
    return connection.finish(call, value)
