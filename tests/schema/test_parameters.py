from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import annotated_types
import attrs
import msgspec
import pydantic
import pytest

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import Ask, Header
from linkspan.schema.parameters import Decoded, compile_parameters
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.schema.results import compile_result

if TYPE_CHECKING:
    from nowhere import Missing, Request

T = TypeVar("T")
UserId = NewType("UserId", int)


class Context:
    """Stands for the server's context."""


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: How far to the right.
    """

    x: int
    y: float = 2.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    next: str | None = None


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n must be even")


@dataclasses.dataclass
class Cat:
    name: str
    lives: int


@dataclasses.dataclass
class Dog:
    name: str
    tricks: list[str]


class Movie(TypedDict, total=False):
    title: str
    year: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Camel(msgspec.Struct, rename="camel"):
    first_name: str
    last_name: str | None = None


@attrs.define
class Shelf:
    size: int
    _label: str = "x"


class Answer(TypedDict):
    given: str | None
    note: NotRequired[str | None]


@dataclasses.dataclass
class Given:
    given: str | None
    note: str | None = None


class Reply(pydantic.BaseModel):
    given: str | None
    note: str | None = None


class Model(pydantic.BaseModel):
    a: int = pydantic.Field(ge=0, description="A count")
    b: list[str] = []


def parameters_of(hint: Any, *, default: Any = ..., **options: Any):
    def tool(x): ...

    if default is not ...:
        tool.__defaults__ = (default,)
    tool.__annotations__["x"] = hint
    return compile_parameters(tool, **options)


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return {**found, "additionalProperties": False}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}
POINT = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "x": {"type": "integer", "description": "How far to the right."},
        "y": {"type": "number", "default": 2.0},
        "tags": {"type": "array", "items": STRING, "default": []},
    },
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, INTEGER),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (Sequence[int], {"type": "array", "items": INTEGER}),
        (set[int], {"type": "array", "items": INTEGER}),
        (tuple[int, str], {"type": "array", "items": {"anyOf": [INTEGER, STRING]}, "minItems": 2, "maxItems": 2}),
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (str | None, {"anyOf": [STRING, NULL]}),
        (list[str | None], {"type": "array", "items": {"anyOf": [STRING, NULL]}}),
        (Literal["a", None], {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}),
        (int | str, {"anyOf": [INTEGER, STRING]}),
        (int | float, {"type": "number"}),
        (Colour, {"type": "string", "enum": ["red", "green"]}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Literal[1, "a"], {"anyOf": [{"type": "integer", "enum": [1]}, {"type": "string", "enum": ["a"]}]}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (Path, STRING),
        (bytes, STRING),
        (UserId, INTEGER),
        (Annotated[str, "The name"], {"type": "string", "description": "The name"}),
        (
            Annotated[int, annotated_types.Ge(1), annotated_types.Lt(9)],
            {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
        ),
        (
            Annotated[str, msgspec.Meta(pattern="^a", description="d")],
            {"type": "string", "pattern": "^a", "description": "d"},
        ),
        (
            Annotated[str | None, annotated_types.Len(1, 3), "A name"],
            {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 3}, NULL], "description": "A name"},
        ),
        (Answer, closed({"given": {"anyOf": [STRING, NULL]}, "note": STRING}, "given")),
        (Reply, closed({"given": {"anyOf": [STRING, NULL]}, "note": STRING}, "given")),
        (Annotated[list[int], pydantic.Field(max_length=3)], {"type": "array", "items": INTEGER, "maxItems": 3}),
        (Point, POINT),
        (Page[int], closed({"items": {"type": "array", "items": INTEGER}, "next": STRING}, "items")),
        (Movie, closed({"title": STRING, "year": INTEGER})),
        (Pair, closed({"left": INTEGER, "right": {"type": "string", "default": "r"}}, "left")),
        (Camel, closed({"firstName": STRING, "lastName": STRING}, "firstName")),
        (Shelf, closed({"size": INTEGER, "label": {"type": "string", "default": "x"}}, "size")),
        (
            Model,
            closed(
                {
                    "a": {"type": "integer", "minimum": 0, "description": "A count"},
                    "b": {"type": "array", "items": STRING, "default": []},
                },
                "a",
            ),
        ),
    ],
)
def test_each_type_has_a_portable_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert parameters_of(hint).json_schema["properties"]["x"] == schema


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str | None, {"anyOf": [STRING, {"type": "null"}]}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2, "maxItems": 2},
        ),
        (Literal["a"], {"type": "string", "const": "a"}),
        (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
        (Point, {"$ref": "#/$defs/Point"}),
    ],
)
def test_a_faithful_schema_says_it_all(hint: Any, schema: dict[str, Any]) -> None:
    assert parameters_of(hint, portable=False).json_schema["properties"]["x"] == schema


def test_a_recursive_type_is_referred_to() -> None:
    node = closed(
        {"name": STRING, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []}}, "name"
    )
    assert parameters_of(Node).json_schema == {**closed({"x": {"$ref": "#/$defs/Node"}}, "x"), "$defs": {"Node": node}}
    found = parameters_of(Node).decode(b'{"x": {"name": "a", "children": [{"name": "b"}]}}')
    assert found == Decoded({"x": Node("a", [Node("b")])})


@pytest.mark.parametrize(
    ("hint", "value", "found"),
    [
        (int, "1.0", 1),
        (float, "1", 1.0),
        (int | float, "1.0", 1.0),
        (datetime.date, '"2026-07-28"', datetime.date(2026, 7, 28)),
        (bytes, '"YQ=="', b"a"),
        (Path, '"/tmp"', Path("/tmp")),
        (set[int], "[1, 1]", {1}),
        (frozenset[str], '["a"]', frozenset({"a"})),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dict[int, str], '{"1": "a"}', {1: "a"}),
        (collections.OrderedDict[str, int], '{"a": 1}', collections.OrderedDict(a=1)),
        (collections.deque[int], "[1]", collections.deque([1])),
        (Colour, '"red"', Colour.RED),
        (datetime.date | str, '"2026-07-28"', datetime.date(2026, 7, 28)),
        (str | datetime.date, '"soon"', "soon"),
        (Cat | Dog, '{"name": "a", "tricks": []}', Dog("a", [])),
        (Point, '{"x": 1}', Point(1)),
        (Movie, '{"year": 1}', {"year": 1}),
        (Pair, '{"left": 1}', Pair(1)),
        (Pair, '[1, "b"]', Pair(1, "b")),
        (Camel, '{"firstName": "a"}', Camel("a")),
        (Shelf, '{"size": 1, "label": "y"}', Shelf(1, "y")),
        (Model, '{"a": 1, "b": ["c"]}', Model(a=1, b=["c"])),
        (str | None, "null", None),
    ],
)
def test_each_type_is_read(hint: Any, value: str, found: Any) -> None:
    result = parameters_of(hint).decode(b'{"x": %b}' % value.encode(), repair=False)
    assert result == Decoded({"x": found})
    assert type(result.arguments["x"]) is type(found)


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, '"1"', 'x must be an integer, got the string "1"'),
        (int, "true", "x must be an integer, got true"),
        (int, "1.5", "x must be an integer, got the number 1.5"),
        (int, "null", "x must be an integer, got null"),
        (bool, "1", "x must be true or false, got the number 1"),
        (str, f'"{"a" * 100}"', None),
        (list[int], '[1, "2", null]', 'x[1] must be an integer, got the string "2"; x[2] must be an integer, got null'),
        (list[int], '"1"', 'x must be an array, got the string "1"'),
        (list[int], '"[1"', 'x must be an array, got the string "[1"'),
        (Colour, '"rod"', 'x must be one of "red" or "green", got the string "rod"'),
        (
            Point,
            '{"y": "a", "tag": 1}',
            'x.x is missing; x.y must be a number, got the string "a"; x has no field tag (did you mean tags?)',
        ),
        (list[Point], '[{"x": "1"}]', 'x[0].x must be an integer, got the string "1"'),
        (dict[str, int], '{"a b": "c"}', 'x["a b"] must be an integer, got the string "c"'),
        (Cat | Dog, '{"name": "a", "tricks": [1]}', "x.tricks[0] must be a string, got the number 1"),
        (Cat | Dog, "3", "x must be an object, got the number 3"),
        (int | str, "[]", "x must be an integer or a string, got an empty array"),
        (datetime.date, '"soon"', 'x must be a date such as "1999-12-31", got the string "soon"'),
        (Annotated[int, annotated_types.Ge(1)], "0", "x must be at least 1, got 0"),
        (Annotated[list[int], annotated_types.MinLen(1)], "[]", "x must have at least 1 item, got 0"),
        (tuple[int, int], "[1]", "x must be an array of 2 items, got 1"),
        (Even, '{"n": 1}', "x is not accepted: n must be even"),
        (Model, '{"a": -1, "c": 1}', "x.a must be at least 0, got -1; x has no field c"),
        (Model, '{"a": -1, "b": [1]}', "x.a must be at least 0, got -1; x.b[0] must be a string, got the number 1"),
    ],
)
def test_every_problem_is_told_in_plain_words(hint: Any, value: str, words: str | None) -> None:
    parameters = parameters_of(hint)
    raw = b'{"x": %b}' % value.encode()
    if words is None:
        parameters.decode(raw)
        return
    with pytest.raises(ArgumentsInvalid) as caught:
        parameters.decode(raw)
    assert str(caught.value) == words


def search(query: str, limit: int = 10, tags: list[str] = [], *, where: Point | None = None) -> None:  # noqa: B006
    """Search the shop.

    Looks everywhere.

    Args:
        query: What to look for,
            in any language.
        limit: How many to find.

    Returns:
        Nothing.
    """


def test_a_function_gives_the_schema_the_descriptions_and_the_defaults() -> None:
    parameters = compile_parameters(search)
    assert parameters.description == "Search the shop.\n\nLooks everywhere."
    assert parameters.json_schema == closed(
        {
            "query": {"type": "string", "description": "What to look for, in any language."},
            "limit": {"type": "integer", "description": "How many to find.", "default": 10},
            "tags": {"type": "array", "items": STRING, "default": []},
            "where": POINT,
        },
        "query",
    )
    expected = {"query": "a", "limit": 10, "tags": [], "where": None}
    assert parameters.decode(b'{"query": "a"}') == (expected, ())
    assert parameters.decode_values({"query": "a"}) == (expected, ())


def test_all_problems_of_a_call_are_told_at_once() -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        compile_parameters(search).decode(b'{"limit": "x", "Tags": [], "colour": 1}')
    assert str(caught.value) == (
        'query is missing; limit must be an integer, got the string "x"; unknown argument Tags (did you mean tags?); '
        "unknown argument colour"
    )


@pytest.mark.parametrize("hint", [str | None, Literal["a", None], Answer | None, Reply | None, Any | None])
def test_what_may_be_null_is_required_unless_it_has_a_default(hint: Any) -> None:
    required, optional = parameters_of(hint), parameters_of(hint, default=None)
    assert required.json_schema["required"] == ["x"]
    assert "null" in repr(required.json_schema["properties"]["x"]) or hint == Any | None
    assert required.decode(b'{"x": null}').arguments == {"x": None}
    with pytest.raises(ArgumentsInvalid, match="x is missing"):
        required.decode(b"{}")
    assert "required" not in optional.json_schema
    assert optional.decode(b"{}").arguments == optional.decode(b'{"x": null}').arguments == {"x": None}


def test_an_annotated_parameter_that_may_be_left_out_has_one_type_in_its_schema() -> None:
    parameters = parameters_of(Annotated[bool | None, msgspec.Meta(description="dry run")], default=None)
    assert parameters.json_schema["properties"]["x"] == {"type": "boolean", "description": "dry run"}


@pytest.mark.parametrize("hint", [Answer, Reply, Given])
def test_what_may_be_null_is_required_inside_of_an_argument(hint: Any) -> None:
    parameters = parameters_of(hint)
    with pytest.raises(ArgumentsInvalid, match=r"x\.given is missing"):
        parameters.decode(b'{"x": {"note": null}}')
    parameters.decode(b'{"x": {"given": null}}')


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    parameters = compile_parameters(search)
    for read in (lambda: parameters.decode(b'{"query": "a"}'), lambda: parameters.decode_values({"query": "a"})):
        read().arguments["tags"].append("x")
        assert read().arguments["tags"] == []
    assert search.__defaults__ == (10, [])


@pytest.mark.parametrize(
    ("hint", "value", "found", "repairs"),
    [
        (list[int], '"[1, 2]"', [1, 2], ("x: decoded a string into an array",)),
        (Point, r'"{\"x\": 1}"', Point(1), ("x: decoded a string into an object",)),
        (list[list[int]], '["[1]"]', [[1]], ("x[0]: decoded a string into an array",)),
        (list[int] | None, '"[1]"', [1], ("x: decoded a string into an array",)),
        (list[int] | str, '"[1]"', "[1]", ()),
        (str, '"[1]"', "[1]", ()),
        (Any, '"[1]"', "[1]", ()),
        (
            Model,
            r'"{\"a\": 1, \"b\": \"[]\"}"',
            Model(a=1),
            (
                "x: decoded a string into an object",
                "x.b: decoded a string into an array",
            ),
        ),
    ],
)
def test_a_text_is_decoded_only_where_an_array_or_object_is_wanted(
    hint: Any, value: str, found: Any, repairs: Any
) -> None:
    raw = b'{"x": %b}' % value.encode()
    assert parameters_of(hint).decode(raw) == ({"x": found}, repairs)
    if repairs:
        with pytest.raises(ArgumentsInvalid):
            parameters_of(hint).decode(raw, repair=False)


def test_the_context_is_left_out_of_the_schema() -> None:
    def hinted(a: int, context: Context): ...
    def optional(a: int, context: Context | None = None): ...
    def named(a: int, ctx): ...
    def imported_for_checkers(a: int, request: Request): ...

    for function, name in ((hinted, "context"), (optional, "context"), (named, "ctx")):
        parameters = compile_parameters(function, context_types=(Context,))
        assert (parameters.context_parameter, parameters.json_schema) == (name, closed({"a": INTEGER}, "a"))
        assert parameters.decode(b'{"a": 1}').arguments == {"a": 1}

    class Request: ...

    del Request
    other = type("Request", (), {})
    assert compile_parameters(imported_for_checkers, context_types=(other,)).context_parameter == "request"


def test_what_is_asked_of_the_user_is_left_out_of_the_schema() -> None:
    def book(date: str, seats: Annotated[int, Ask("How many seats?"), annotated_types.Ge(1)] = 2): ...

    parameters = compile_parameters(book)
    [ask] = parameters.asks
    assert parameters.json_schema == closed({"date": STRING}, "date")
    assert (ask.name, ask.message, ask.default) == ("seats", "How many seats?", 2)
    assert ask.form.json_schema == {
        "type": "object",
        "properties": {"seats": {"type": "integer", "minimum": 1, "default": 2}},
    }
    with pytest.raises(ArgumentsInvalid, match="unknown argument seats"):
        parameters.decode(b'{"date": "x", "seats": 3}')


def test_headers_are_found_by_path() -> None:
    @dataclasses.dataclass
    class Where:
        region: Annotated[str, Header("Region")]

    def tool(where: Where, tenant: Annotated[int, Header("Tenant")] | None = None): ...

    assert compile_parameters(tool).headers == {("where", "region"): "Region", ("tenant",): "Tenant"}


def test_what_a_partial_has_fixed_is_neither_shown_nor_taken() -> None:
    def call(key: str, a: int): ...

    parameters = compile_parameters(functools.partial(call, key="secret"))
    assert parameters.json_schema == closed({"a": INTEGER}, "a")


def test_methods_callable_objects_and_wrapped_functions_work() -> None:
    class Tools:
        def method(self, a: int): ...

        @classmethod
        def of_class(cls, a: int): ...

        @staticmethod
        def static(a: int): ...

        def __call__(self, a: int): ...

    @functools.wraps(Tools.static)
    def wrapped(*args: Any, **kwargs: Any): ...

    for function in (Tools().method, Tools.of_class, Tools.static, Tools(), wrapped):
        assert compile_parameters(function).json_schema == closed({"a": INTEGER}, "a")


def variadic(*names: str): ...
def keywords(**options: str): ...
def positional(a: int, /): ...
def unresolved(a: Missing): ...
def connection(a: Context): ...
def function(a: Callable[[int], int]): ...
def stream(a: Iterator[int]): ...
def bound(a: Annotated[str, annotated_types.Ge(3)]): ...
def inner_ask(a: list[Annotated[int, Ask("?")]]): ...
def two_contexts(ctx, server_context): ...
def array_header(a: Annotated[list[int], Header("A")]): ...
def item_header(a: list[Annotated[int, Header("A")]]): ...
def bad_header(a: Annotated[int, Header("A B")]): ...
def same_header(a: Annotated[int, Header("A")], b: Annotated[int, Header("a")]): ...
def nested_form(a: Annotated[Node, Ask("?")]): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            variadic,
            "variadic: *names cannot be described by a schema; use a parameter such as names: list[str] [LS-703]",
        ),
        (
            keywords,
            "keywords: **options cannot be described by a schema; use a parameter such as options: dict[str, str] [LS-703]",
        ),
        (
            positional,
            "positional: the parameter a is positional-only, but arguments have names; remove the `/` [LS-703]",
        ),
        (unresolved, "unresolved: the name 'Missing' in the hint of parameter a cannot be resolved"),
        (connection, "connection: parameter a has the type Context, which JSON cannot carry; use a dataclass"),
        (function, "function: parameter a has the type Callable, which JSON cannot carry"),
        (stream, "stream: parameter a has the type Iterator, which JSON cannot carry; use list[...]"),
        (bound, "bound: parameter a: the bound ge does not apply to a string"),
        (inner_ask, "inner_ask: parameter a: Ask belongs on a parameter itself"),
        (two_contexts, "two_contexts: both ctx and server_context are the context; keep one"),
        (array_header, "array_header: a: only a string, an integer or a boolean can go into the header 'A'"),
        (item_header, "item_header: a.items: only a plain argument or a field of a nested object"),
        (bad_header, "bad_header: a: 'A B' cannot be part of a header name"),
        (same_header, "same_header: a: another argument has the header 'A' too"),
        (nested_form, "nested_form: parameter a: Node.children: a form asks for plain values only"),
    ],
)
def test_what_cannot_be_offered_is_refused_at_registration_with_advice(function: Any, words: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        compile_parameters(function)
    assert str(caught.value).startswith(words)


def test_no_arguments_are_an_empty_object() -> None:
    def nothing(): ...

    parameters = compile_parameters(nothing)
    assert parameters.json_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    with pytest.raises(ArgumentsInvalid, match=r"unknown argument a \(none are taken\)"):
        parameters.decode(b'{"a": 1}')
    for raw in (None, b"", b"{}", msgspec.Raw(), msgspec.Raw(b"{}")):
        assert parameters.decode(raw) == ({}, ())
    for raw, words in (
        (b"[]", "the arguments must be an object, got an empty array"),
        (b"{", "the arguments are not valid JSON"),
    ):
        with pytest.raises(ArgumentsInvalid) as caught:
            parameters.decode(raw)
        assert str(caught.value) == words


def test_nothing_is_compiled_for_msgspec_until_arguments_come(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> object:
        raise AssertionError("compiled")

    def move(points: list[Point], colour: Colour | None = None) -> dict[str, Point]:
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(msgspec, "defstruct", refused)
        patch.setattr(msgspec.json, "Decoder", refused)
        parameters = compile_parameters(move)
        result = compile_result(dict[str, Point])
    assert parameters.json_schema["required"] == ["points"]
    assert parameters.decode(b'{"points": []}') == ({"points": [], "colour": None}, ())
    assert result.encode({"a": Point(1, 2)}) == b'{"a":{"x":1,"y":2,"tags":[]}}'
