"""The author's functions around and inside one call, as steps that run with or without an event loop.

A generator yields the next step and receives what it returned, or raised. `run_steps` takes the steps in the thread that calls
it, and goes on as a coroutine from the first value that must be awaited; `await_steps` takes them on an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One function to run."""

    run: Callable[[], object]
    """Returns a value, or an awaitable of it."""
    blocking: bool = False
    """It may take long: on an event loop it runs in a thread."""


Steps: TypeAlias = Generator[Step, Any, object]


class Offloads(Protocol):
    """Has threads for functions that would block an event loop: `System` documents it."""

    def in_thread(self, function: Callable[[], object]) -> Awaitable[object]: ...


def driven(steps: Steps, system: Offloads, *, is_async: bool) -> Callable[[], object]:
    """Return what takes steps to their end: on an event loop, or from the thread that calls it."""
    return partial(await_steps if is_async else run_steps, steps, system)


def run_steps(steps: Steps, system: Offloads) -> object:
    """Take steps here and return the value of the last; an awaitable of it once one of them returns an awaitable.

    Raises: what the steps let through.
    """
    value: object = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        error = None
        try:
            value = step.run()
        except BaseException as problem:
            error = problem
        else:
            if hasattr(type(value), "__await__"):
                return await_steps(steps, system, cast("Awaitable[object]", value))


async def await_steps(steps: Steps, system: Offloads, pending: Awaitable[object] | None = None) -> object:
    """Take steps on the event loop, those that may block in a thread, and return the value of the last.

    `pending` is what the step before returned. Raises: what the steps let through.
    """
    value: object = None
    error: BaseException | None = None
    while True:
        try:
            value = await pending if pending is not None else None
        except GeneratorExit:  # the loop is over: nothing can be awaited any more
            steps.close()
            raise
        except BaseException as problem:
            error = problem
        try:
            step = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        error = None
        pending = _taken(step, system)


async def _taken(step: Step, system: Offloads) -> object:
    value = await system.in_thread(step.run) if step.blocking else step.run()
    return await cast("Awaitable[object]", value) if hasattr(type(value), "__await__") else value
