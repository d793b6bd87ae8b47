"""Our reading of plain functions agrees with `inspect`, which is not loaded for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from linkspan.schema.annotations import EMPTY, clean_docstring, is_coroutine_function, parameters_of


def everything(a, /, b: int, c: str = "x", *args: int, d, e: float = 1.0, **rest: bool) -> None: ...  # type: ignore[no-untyped-def]


def nothing() -> None: ...


async def waits(a: int = 1, *, b: int) -> None: ...


@functools.wraps(everything)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


class Thing:
    def method(self, a: int) -> None: ...

    @classmethod
    def of_class(cls, a: int) -> None: ...

    def __call__(self, a: int = 2) -> None: ...


CALLABLES: list[Callable[..., object]] = [
    everything,
    nothing,
    waits,
    wrapped,
    Thing().method,
    Thing.of_class,
    Thing(),
    functools.partial(everything, 1, d=2),
    lambda a, *, b=None: None,
    lambda *args: None,
    lambda **rest: None,
]


@pytest.mark.parametrize("function", CALLABLES)
def test_parameters_are_those_that_inspect_sees(function: Callable[..., object]) -> None:
    seen = [
        (each.name, int(each.kind), each.default, each.annotation)
        for each in inspect.signature(function).parameters.values()
    ]
    read = [
        tuple(inspect.Parameter.empty if each is EMPTY else each for each in (p.name, p.kind, p.default, p.annotation))
        for p in parameters_of(function)
    ]
    assert read == seen


@pytest.mark.parametrize("function", CALLABLES)
def test_coroutine_functions_are_known(function: Callable[..., object]) -> None:
    assert is_coroutine_function(function) == inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("doc", ["", "one", "one\n\n    two\n      three\n\n", "\n\n    two\n  three", "  a\n\tb\n"])
def test_docstrings_are_cleaned_as_inspect_does(doc: str) -> None:
    assert clean_docstring(doc).rstrip() == inspect.cleandoc(doc).rstrip()
