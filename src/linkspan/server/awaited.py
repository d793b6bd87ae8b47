"""Values that a handler may await, though they are there at once: `await ctx.ask(...)` beside `ctx.ask(...)`.

An answer may be any value, also True or None, which cannot have an `__await__` of its own. So what decides is the call itself:
the instruction after it shows whether the caller awaits what it returns.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import FrameType
from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")


class AtOnce(Generic[T]):
    """A value to await that is there already. Not a coroutine, of which one that is not awaited warns."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self._value


DONE: Final = AtOnce(None)
"""What has happened already: may be awaited, and need not be."""


def as_awaited(value: T) -> T:
    """Return `value` to the caller of the calling function, in a form to await if that call is awaited directly."""
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    return cast("T", AtOnce(value)) if _is_awaited(caller) else value


def _is_awaited(frame: FrameType) -> bool:
    from opcode import opmap  # not before a handler asks: it costs a start 1 %

    code = frame.f_code.co_code
    place = frame.f_lasti + 2
    while place < len(code) and code[place] == opmap["CACHE"]:  # room that the interpreter keeps behind the call
        place += 2
    return place < len(code) and code[place] == opmap["GET_AWAITABLE"]
