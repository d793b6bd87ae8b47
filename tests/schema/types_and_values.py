"""Hypothesis strategies: types an author may write, JSON values a model may send, and values that fit a type."""

from __future__ import annotations

import datetime
import enum
import typing
import uuid
from dataclasses import field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Optional, TypedDict, Union

import msgspec
from hypothesis import strategies as st


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    HALF = 0.5


PLAIN: list[Any] = [
    int,
    float,
    bool,
    str,
    type(None),
    Any,
    Colour,
    Level,
    Odd,
    Literal["a", "b"],
    Literal[1, "x", None],
    Literal[True],
]
FORMATTED: list[Any] = [
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    Decimal,
    bytes,
    Path,
]
NAMES = st.sampled_from(["a", "b", "tags", "price", "user_name"])
_count = 0


def _name() -> str:
    global _count
    _count += 1
    return f"Made{_count}"


def _dataclass(fields: dict[str, Any], optional: bool) -> Any:
    made = list(fields.items())
    extra = [("extra", list[int], field(default_factory=list))] if optional else []
    return make_dataclass(_name(), [*made, *extra])


def _struct(fields: dict[str, Any], renamed: bool) -> Any:
    return msgspec.defstruct(_name(), list(fields.items()), rename="camel" if renamed else None)


def _typed_dict(fields: dict[str, Any], total: bool) -> Any:
    return TypedDict(_name(), fields, total=total)  # type: ignore[operator]


def _named_tuple(fields: dict[str, Any]) -> Any:
    return typing.NamedTuple(_name(), list(fields.items()))  # type: ignore[misc]


def types(*, formatted: bool = True, sets: bool = True) -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(PLAIN + (FORMATTED if formatted else []))

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
        found = [
            inner.map(lambda item: list[item]),
            inner.map(lambda item: dict[str, item]),
            inner.map(lambda item: dict[int, item]),
            inner.map(lambda item: tuple[item, ...]),
            st.lists(inner, min_size=1, max_size=3).map(lambda items: tuple[tuple(items)]),
            inner.map(lambda item: Optional[item]),  # noqa: UP045
            st.lists(inner, min_size=2, max_size=3).map(lambda items: Union[tuple(items)]),  # noqa: UP007
            st.builds(_dataclass, fields, st.booleans()),
            st.builds(_struct, fields, st.booleans()),
            st.builds(_typed_dict, fields, st.booleans()),
            st.builds(_named_tuple, fields),
        ]
        if sets:
            found.append(st.sampled_from([set[int], frozenset[str], set[Literal["a", "b"]]]))
        return st.one_of(found)

    return st.recursive(leaves, containers, max_leaves=6)


texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        ["red", "a", "x", "1", "[1]", '{"a": 1}', "2026-07-28", "2026-07-28T00:00:00Z", "PT1H", "YQ==", "10:00:00"]
    ),
    st.uuids().map(str),
)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.integers(),
        st.integers(-3, 3).map(float),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(NAMES, st.sampled_from(["userName", "1", "2"]), st.text(max_size=3)), inner, max_size=3
        ),
    ),
    max_leaves=8,
)


def fitting(hint: Any) -> st.SearchStrategy[Any]:
    """JSON values that a type should take, mostly."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Union:
        return st.one_of([fitting(each) for each in arguments])
    if origin in (list, set, frozenset):
        return st.lists(fitting(arguments[0]), max_size=3)
    if origin is dict:
        keys = st.integers(-9, 9).map(str) if arguments[0] is int else NAMES
        return st.dictionaries(keys, fitting(arguments[1]), max_size=2)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(fitting(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*(fitting(each) for each in arguments)).map(list)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return st.fixed_dictionaries({each.encode_name: fitting(each.type) for each in msgspec.structs.fields(hint)})
    return st.fixed_dictionaries({name: fitting(each) for name, each in typing.get_type_hints(hint).items()})


_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**60), 2**60),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: texts,
    type(None): st.none(),
    Any: json_values,
    Colour: st.sampled_from(["red", "green"]),
    Level: st.sampled_from([1, 2]),
    Odd: st.sampled_from(["PAIR", 0.5, "HALF"]),
    datetime.date: st.dates().map(str),
    datetime.datetime: st.datetimes().map(lambda each: each.isoformat() + "Z"),
    datetime.time: st.times().map(str),
    datetime.timedelta: st.sampled_from(["PT1H", "P1D", "-PT3S"]),
    uuid.UUID: st.uuids().map(str),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False).map(str),
    bytes: st.sampled_from(["YQ==", ""]),
    Path: texts,
}
