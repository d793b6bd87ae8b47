from __future__ import annotations

import sys
from typing import Any

import pytest

from linkspan.errors import RegistrationError
from linkspan.schema.problems import ArgumentsInvalid, Problem
from linkspan.schema.validate import compile_raw_parameters, compile_validator, input_schema

ORDER = {
    "properties": {
        "items": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "size": {"type": "string", "enum": ["s", "l"]},
        "note": {"type": ["string", "null"], "maxLength": 3},
        "where": {"$ref": "#/$defs/place"},
    },
    "required": ["items"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}


@pytest.fixture(params=["plain install", "extra schema"])
def install(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain install":
        for name in ("jsonschema_rs", "jsonschema"):
            monkeypatch.setitem(sys.modules, name, None)
    return request.param


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("{}", {"items is missing"}),
        (
            '{"items": [0, "a"]}',
            {"items[0] must be at least 1, got 0", 'items[1] must be an integer, got the string "a"'},
        ),
        ('{"items": [], "size": "m"}', {'size must be one of "s" or "l", got the string "m"'}),
        ('{"items": [], "note": "abcd"}', {"note must have at most 3 characters, got 4"}),
        ('{"items": [], "note": 1}', {"note must be a string or null, got the number 1"}),
        ('{"items": [], "where": {}}', {"where.city is missing"}),
        ('{"items": [], "Size": "s"}', {"unknown argument Size (did you mean size?)"}),
        ("[]", {"the arguments must be an object, got an empty array"}),
        ("{", {"the arguments are not valid JSON"}),
    ],
)
def test_every_install_tells_problems_in_our_words(install: str, raw: str, words: set[str]) -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        compile_raw_parameters(ORDER).decode(raw.encode())
    assert {str(each) for each in caught.value.problems} == words


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (
            {"properties": {"a": {"not": {"type": "string"}}}},
            {"a": "x"},
            'a is a value that the schema rules out, got the string "x"',
        ),
        (
            {"properties": {"a": {"contains": {"const": 1}}}},
            {"a": [2]},
            "a must have an item that the schema asks for, got an array",
        ),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b is missing (it goes with a)"),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1, "z": 2}, "unknown argument z"),
    ],
)  # fmt: skip
def test_rarer_keywords_are_told_without_the_words_of_a_library(schema: Any, value: Any, words: str) -> None:
    assert [str(each) for each in compile_validator(schema, is_arguments=True).check(value)] == [words]


COMMON = [
        (
            {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
            {"a": "x"},
            'a must be an integer or null, got the string "x"',
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "object", "required": ["k"]}, {"type": "string"}]}}},
            {"a": {}},
            "a.k is missing",
        ),
    ({"minProperties": 1}, {}, "must have at least 1 member, got 0"),
    ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1]}, "a must have no item twice, got an array"),
    ({"properties": {"a": False}}, {"a": 1}, "a is not allowed, got the number 1"),
    (
        {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}},
        {"a": 1},
        "a must fit exactly one of the kinds in the schema (an integer or a number), got the number 1",
    ),
    ({"properties": {"a": {"allOf": [{"minimum": 2}, {"maximum": 9}]}}}, {"a": 1}, "a must be at least 2, got 1"),
    ({"properties": {"a": {"const": [1, {"b": None}]}}}, {"a": [1]}, 'a must be [1,{"b":null}], got an array'),
    (
        {"properties": {"a": {"type": "string", "format": "date"}}},
        {"a": "2026-02-30"},
        'a must be a date such as "1999-12-31", got the string "2026-02-30"',
    ),
    ({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 0.35}, "a must be a multiple of 0.1, got 0.35"),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["v"]}}},
     {"v": 1, "a": {"v": 1, "a": {}}}, "a.a.v is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "words"), COMMON)
def test_common_keywords_are_told_as_those_of_hints_are(install: str, schema: Any, value: Any, words: str) -> None:
    assert [str(each) for each in compile_validator(schema).check(value)] == [words]


def test_the_whole_value_is_called_the_arguments_where_it_is_one() -> None:
    with pytest.raises(ArgumentsInvalid, match=r"^the arguments must have at least 2 members, got 0$"):
        compile_raw_parameters({"minProperties": 2}).decode(b"{}")
    with pytest.raises(ArgumentsInvalid, match=r"^unknown argument b$"):
        compile_raw_parameters({"additionalProperties": False, "minProperties": 2}).decode(b'{"b": 1}')
    closed = compile_validator({"additionalProperties": False})
    assert [str(each) for each in closed.check({"b": 1})] == ["has no field b"]


def test_texts_are_decoded_where_the_schema_wants_arrays_or_objects(install: str) -> None:
    parameters = compile_raw_parameters(ORDER)
    assert parameters.decode(b'{"items": "[1, 2.0]", "where": "{\\"city\\": \\"Oslo\\"}"}') == (
        {"items": [1, 2], "where": {"city": "Oslo"}},
        ("items: decoded a string into an array", "where: decoded a string into an object"),
    )
    with pytest.raises(ArgumentsInvalid):
        parameters.decode(b'{"items": "[1]"}', repair=False)


EXOTIC = {
    "properties": {"a": {"pattern": "^x"}, "b": {"not": {"type": "null"}}},
    "if": {"required": ["a"]},
    "then": {"required": ["b"]},
}


def test_keywords_that_need_the_extra_are_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_raw_parameters(EXOTIC).decode(b'{"a": "x", "b": 1}').arguments == {"a": "x", "b": 1}
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(RegistrationError, match=r'to check "pattern", "not", "if", "then" .* run pip install'):
        compile_raw_parameters(EXOTIC)


def test_without_a_check_any_object_will_do() -> None:
    parameters = compile_raw_parameters(ORDER, checked="never")
    assert parameters.decode(b'{"a": 1}') == ({"a": 1}, ())
    assert (parameters.asks, parameters.context_parameter, parameters.headers) == ((), None, {})


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"properties": {"a": {}}, "required": []}, {"type": "object", "properties": {"a": {}}}),
        ('{"properties": {"a": {}}}', {"type": "object", "properties": {"a": {}}}),
        ({}, {"type": "object"}),
        ({"type": "object", "x-mine": {"$anchor": "a"}}, {"type": "object", "x-mine": {"$anchor": "a"}}),
    ],
)
def test_an_input_schema_is_kept_as_written_but_for_its_type(written: Any, found: Any) -> None:
    assert input_schema(written) == found


@pytest.mark.parametrize("written", [{"type": "array"}, "[]", "{", "null", None, [], {"properties": []}])
def test_what_is_no_input_schema_is_refused(written: Any) -> None:
    with pytest.raises(RegistrationError):
        input_schema(written)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"items": found}
    return found


def doubling(depth: int) -> dict[str, Any]:
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, depth)}
    return {"$defs": {"d0": {}, **steps}, "$ref": f"#/$defs/d{depth - 1}"}


def chain(length: int) -> dict[str, Any]:
    steps = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    return {"$defs": {**steps, f"d{length}": {}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "http://127.0.0.1:9/x"}, "points outside"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "points outside"),
        ({"$ref": "#/nowhere"}, "does not resolve"),
        ({"$ref": "#/anyOf/²", "anyOf": [{}]}, "does not resolve"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "is not supported"),
        ({"type": "text"}, "the schema is not valid"),
        ({"pattern": "(a+)+$"}, "repeats within a repeat"),
        ({"pattern": "((ab)*c){2,}"}, "repeats within a repeat"),
        ({"patternProperties": {"(?=a)": {}}}, "looks ahead or behind"),
        ({"pattern": r"(a)\1"}, "refers back to a group"),
        (nested(70), "nested more than 64 deep"),
        ({"anyOf": [{}] * 10_001}, "more than 10000 parts"),
        (doubling(40), "multiplies to more than 10000 parts"),
        (chain(5_000), "a long chain"),
    ],
)
def test_dangerous_and_broken_schemas_are_refused(install: str, schema: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        compile_validator(schema)


@pytest.mark.parametrize(
    "schema",
    [
        nested(60),
        doubling(8),
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {}},
            "items": {"$ref": "#/definitions/a"},
        },
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"child": {"$ref": "#"}, "$ref": {"type": "string"}}},
        {"$defs": {"a": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
    ],
)
def test_ordinary_schemas_are_taken(install: str, schema: dict[str, Any]) -> None:
    assert compile_validator(schema).check([]) in ((), (Problem("", "must be an object, got an empty array"),))


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": r"^[a-z]+(-[a-z]{1,3})?@\d+$"},
        {"pattern": r"^(foo|bar)*$"},
        {"pattern": r"[(+*)]+\(x\)+"},
        {"pattern": "^([0-9]{3}){2}$"},
    ],
)
def test_ordinary_patterns_are_taken_with_the_extra(schema: dict[str, Any]) -> None:
    assert compile_validator(schema).check("?") != ()


def test_a_flood_of_problems_is_bounded(install: str) -> None:
    found = compile_validator({"items": {"enum": list(range(1_000))}}).check(["x"] * 5_000)
    assert len(found) == 100
    assert found[0].message.startswith("must be one of 0, 1,")
    assert found[0].message.endswith('19 and 980 others, got the string "x"')
    with pytest.raises(RegistrationError):
        compile_raw_parameters({"properties": nested(3_000)}, checked="never")


def test_a_header_of_a_hand_written_schema_is_held_to_the_rules() -> None:
    schema = {"properties": {"a": {"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}}}}
    assert compile_raw_parameters(schema).headers == {("a", "b"): "B"}
    assert compile_raw_parameters({"properties": {"x-mcp-header": {"type": "number"}}}).headers == {}
    for bad in (
        {"type": "number"},
        {"type": "string", "x-mcp-header": ""},
        {"anyOf": [{"type": "string", "x-mcp-header": "A"}]},
    ):
        with pytest.raises(RegistrationError):
            compile_raw_parameters({"properties": {"a": {"x-mcp-header": "A", **bad}}})
