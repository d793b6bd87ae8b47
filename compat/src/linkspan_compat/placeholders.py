"""What stands for a name that is known and not served: it may be imported and written in hints, and fails when it is used."""

from __future__ import annotations

import sys
from typing import Any, Never

from linkspan_compat.errors import NotServed
from linkspan_compat.names import line_instead

__all__ = ["AnyGeneric", "AnyValue", "Record", "placeholder", "refused"]

AnyValue = Any
"""A type that only stands in hints."""


class AnyGeneric:
    """A generic type that only stands in hints."""

    def __class_getitem__(cls, _: object) -> Any:
        return Any


class Record:
    """A value with any members, for what programs make and pass on, and nobody reads."""

    def __init__(self, *args: object, **members: object) -> None:
        self.args = args
        vars(self).update(members)

    def __class_getitem__(cls, _: object) -> type[Record]:
        return cls

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class NotSetT:
    """The type of a value that was not given."""


NotSet = NotSetT()


class _Placeholder(type):
    """The class of placeholders: as types they may be named, and nothing else works."""

    def __call__(cls, *_: object, **__: object) -> Never:
        raise NotServed(_problem(cls))

    def __getattr__(cls, name: str) -> Never:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotServed(_problem(cls))

    def __getitem__(cls, _: object) -> Any:
        return Any

    def __or__(cls, _: object) -> Any:
        return Any

    def __ror__(cls, _: object) -> Any:
        return Any

    def __instancecheck__(cls, _: object) -> bool:
        return False


def _problem(cls: type) -> str:
    found = next((each for each in cls.__mro__ if "_where" in vars(each)), cls)
    where, source = vars(found).get("_where", ""), vars(found).get("_source", "")
    return (
        f"{source}.{found.__name__} is not served by linkspan-compat (imported at {where}); "
        f"write for Linkspan: {line_instead(found.__name__)}"
    )


def placeholder(module: str, name: str) -> Any:
    """Return what stands for a name, and remembers where it was imported."""
    return _Placeholder(name, (), {"__module__": module, "_where": _where(), "_source": module})


def refused(module: str, name: str) -> Any:
    """Return what stands for a name that protects something: a server that has it refuses to start over HTTP."""
    from linkspan_compat.auth import Refusal

    problem = f"{module}.{name} is not served by linkspan-compat (imported at {_where()}); write: {line_instead(name)}"
    return type(name, (Refusal,), {"__module__": module, "problem": problem})


def _where() -> str:
    """Return the file and the line that import a name."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("linkspan_compat", "importlib", "_frozen_importlib")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
