from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import math
import uuid
from collections.abc import Awaitable, Iterator
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import return_hint
from linkspan.schema.results import ResultShape, compile_result, encode_json


class Content:
    """Stands for a content block."""


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


@dataclasses.dataclass
class Node:
    children: list[Node]


class Movie(TypedDict, total=False):
    year: int


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.Enum):
    RED = "red"


class Odd(enum.Enum):
    PAIR = (1, 2)


class Struct(msgspec.Struct, rename="camel", omit_defaults=True):
    first_name: str
    age: int = 3


@attrs.define
class Shelf:
    size: int


class Model(pydantic.BaseModel):
    a: int = pydantic.Field(alias="A")


INTEGER = {"type": "integer"}


def wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    }


@pytest.mark.parametrize(
    ("hint", "schema", "is_wrapped"),
    [
        (str, wrapped({"type": "string"}), True),
        (str | None, wrapped({"anyOf": [{"type": "string"}, {"type": "null"}]}), True),
        (None, None, False),
        (Any, None, False),
        (bytes, None, False),
        (bytes | str | None, None, False),
        (Content, None, False),
        (list[Content], None, False),
        (Content | str, None, False),
        (list[Content | str], None, False),
        (tuple[Content, ...], None, False),
        (Content | Point, None, False),
        (int, wrapped(INTEGER), True),
        (list[int], wrapped({"type": "array", "items": INTEGER}), True),
        (int | None, wrapped({"anyOf": [INTEGER, {"type": "null"}]}), True),
        (Literal["a", "b"], wrapped({"type": "string", "enum": ["a", "b"]}), True),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}, False),
        (dict, {"type": "object"}, False),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": INTEGER, "label": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["x"],
            },
            False,
        ),
        (Movie, {"type": "object", "properties": {"year": INTEGER}}, False),
        (
            Node,
            {
                "type": "object",
                "$ref": "#/$defs/Node",
                "$defs": {
                    "Node": {
                        "type": "object",
                        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                        "required": ["children"],
                    }
                },
            },
            False,
        ),
        (Awaitable[int], wrapped(INTEGER), True),
    ],
)
def test_a_return_type_has_an_output_schema_whose_root_is_an_object(hint: Any, schema: Any, is_wrapped: bool) -> None:
    shape = compile_result(hint, passthrough=(Content,))
    assert (shape.json_schema, shape.wrapped) == (schema, is_wrapped)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Iterator[int], "t: the return type has the type Iterator, which JSON cannot carry; use list[...]"),
        (Content, "t: the return type has the type Content, which JSON cannot carry; use a dataclass"),
        (ValueError, "t: the return type is an exception; raise it instead of returning it"),
    ],
)
def test_a_return_type_that_json_cannot_carry_is_refused(hint: Any, words: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        compile_result(hint, name="t")
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (Point(1), '{"x":1,"label":null}'),
        (Pair(1, "a"), '[1,"a"]'),
        (Struct("a"), '{"firstName":"a"}'),
        (Shelf(1), '{"size":1}'),
        (Model(A=1), '{"A":1}'),
        ([Model(A=1)], '[{"A":1}]'),
        (Colour.RED, '"red"'),
        (datetime.date(2026, 7, 28), '"2026-07-28"'),
        (datetime.timedelta(hours=1), '"PT3600S"'),
        (uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (Decimal("1.50"), '"1.50"'),
        (Path("/tmp"), '"/tmp"'),
        (b"a", '"YQ=="'),
        ({1}, "[1]"),
        (collections.deque([1]), "[1]"),
        (range(2), "[0,1]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (ipaddress.ip_address("127.0.0.1"), '"127.0.0.1"'),
        ({1: "a", None: "b", (1, 2): "d", Colour.RED: "e"}, '{"1":"a","null":"b","1,2":"d","red":"e"}'),
        ({datetime.date(2026, 7, 28): Point(1)}, '{"2026-07-28":{"x":1,"label":null}}'),
        (2**70, "1180591620717411303424"),
        ("å", '"å"'),
    ],
)
def test_whatever_a_handler_returns_is_written_as_json(value: Any, body: str) -> None:
    assert encode_json(value).decode() == body


def test_what_json_cannot_carry_is_named() -> None:
    circle: list[Any] = []
    circle.append(circle)
    cases: list[tuple[Any, type[Exception], str]] = [
        (math.nan, ValueError, "JSON has no nan; return None or a string instead"),
        ([None, {"a": Point(math.inf)}], ValueError, "JSON has no inf; return None or a string instead"),  # type: ignore[arg-type]
        ("\ud800", ValueError, "a string in the value has lone surrogates, which UTF-8 cannot encode"),
        (circle, ValueError, "the value is nested too deeply for JSON, or contains itself"),
        (
            1j,
            TypeError,
            "a value of the type complex cannot be written as JSON; return a dict, a list, a dataclass or a string",
        ),
        ({Path: 1}, TypeError, "a key of the type type cannot be written as JSON; use strings as keys"),
        (
            Path,
            TypeError,
            "a value of the type type cannot be written as JSON; return a dict, a list, a dataclass or a string",
        ),
    ]
    for value, kind, words in cases:
        with pytest.raises(kind) as caught:
            encode_json(value)
        assert str(caught.value) == words


def test_a_result_that_breaks_the_promise_of_its_type_is_named() -> None:
    cases = [
        (int, "x", 'the value does not match the return type: result must be an integer, got the string "x"'),
        (list[int], [1, None], "the value does not match the return type: result[1] must be an integer, got null"),
        (Point, None, "the return type promises an object, but the function returned null"),
    ]
    for hint, value, words in cases:
        with pytest.raises(TypeError) as caught:
            compile_result(hint).encode(value)
        assert str(caught.value) == words
    assert compile_result(float).encode(1) == b"1"
    assert compile_result(int).encode(1.0) == b"1.0"
    assert compile_result(Odd).encode(Odd.PAIR) == b'"PAIR"'


def test_the_return_hint_is_found_below_wrappers_and_in_its_own_scope() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    def tool() -> Local: ...

    def silent(): ...

    def unknown() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert return_hint(tool) is Local
    assert compile_result(return_hint(silent)) == ResultShape()
    with pytest.raises(RegistrationError, match="the name 'Nowhere' in its return type cannot be resolved"):
        return_hint(unknown)
