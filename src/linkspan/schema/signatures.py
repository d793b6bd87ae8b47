"""The parameters of a function, and a few questions about callables.

A plain function is read from its code object; only what is not plain loads `inspect`, which takes as long as a tenth of a
server's start.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, TypeGuard

import msgspec

__all__ = [
    "EMPTY",
    "KEYWORD_ONLY",
    "POSITIONAL_ONLY",
    "POSITIONAL_OR_KEYWORD",
    "VAR_KEYWORD",
    "VAR_POSITIONAL",
    "Parameter",
    "clean_docstring",
    "is_class",
    "is_coroutine_function",
    "is_routine",
    "parameters_of",
]

EMPTY: Final[Any] = type("EMPTY", (), {})
"""Stands for a default or an annotation that is not there."""

# The kinds of parameters, numbered as `inspect` numbers them.
POSITIONAL_ONLY: Final = 0
POSITIONAL_OR_KEYWORD: Final = 1
VAR_POSITIONAL: Final = 2
KEYWORD_ONLY: Final = 3
VAR_KEYWORD: Final = 4

_CO_VARARGS, _CO_VARKEYWORDS, _CO_COROUTINE, _CO_ITERABLE_COROUTINE = 0x04, 0x08, 0x80, 0x100
_ROUTINES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)


class Parameter(msgspec.Struct, frozen=True):
    """One parameter; `annotation` is what was written, perhaps a string."""

    name: str
    kind: int
    default: Any = EMPTY
    annotation: Any = EMPTY


def parameters_of(function: Callable[..., object]) -> list[Parameter]:
    """Return the parameters of anything that can be called. Raises: TypeError, ValueError where that cannot be known."""
    told = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    if isinstance(function, types.FunctionType) and not told:
        return _of_plain(function)
    import inspect

    def known(value: object) -> Any:
        return EMPTY if value is inspect.Parameter.empty else value

    return [
        Parameter(each.name, int(each.kind), known(each.default), known(each.annotation))
        for each in inspect.signature(function).parameters.values()
    ]


def _of_plain(function: types.FunctionType) -> list[Parameter]:
    code = function.__code__
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    defaults = function.__defaults__ or ()
    kw_defaults = function.__kwdefaults__ or {}
    hints = function.__annotations__
    without_default = positional - len(defaults)
    found: list[Parameter] = []
    for at, name in enumerate(names[:positional]):
        kind = POSITIONAL_ONLY if at < code.co_posonlyargcount else POSITIONAL_OR_KEYWORD
        default = defaults[at - without_default] if at >= without_default else EMPTY
        found.append(Parameter(name, kind, default, hints.get(name, EMPTY)))
    rest = positional + keywords
    if code.co_flags & _CO_VARARGS:
        found.append(Parameter(names[rest], VAR_POSITIONAL, EMPTY, hints.get(names[rest], EMPTY)))
        rest += 1
    for name in names[positional : positional + keywords]:
        found.append(Parameter(name, KEYWORD_ONLY, kw_defaults.get(name, EMPTY), hints.get(name, EMPTY)))
    if code.co_flags & _CO_VARKEYWORDS:
        found.append(Parameter(names[rest], VAR_KEYWORD, EMPTY, hints.get(names[rest], EMPTY)))
    return found


def is_class(value: object) -> TypeGuard[type[Any]]:
    """Tell whether a value is a class."""
    return isinstance(value, type)


def is_routine(value: object) -> bool:
    """Tell whether a value is a function or a method, built in or not."""
    return isinstance(value, _ROUTINES)


def is_coroutine_function(function: object) -> bool:
    """Tell whether calling a function or method gives a coroutine."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return isinstance(code, types.CodeType) and bool(code.co_flags & (_CO_COROUTINE | _CO_ITERABLE_COROUTINE))


def clean_docstring(doc: str) -> str:
    """Return a docstring without the indentation of the code around it."""
    first, *rest = doc.expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    lines = [first.lstrip(), *(line[margin:].rstrip() for line in rest)]
    return "\n".join(lines).strip("\n")
