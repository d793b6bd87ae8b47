"""Schemas written by hand, by the walk: the same verdicts as two other validators give, in bounded time."""

from __future__ import annotations

import sys
import time
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkspan.errors import RegistrationError
from linkspan.schema.document import linear_matcher
from linkspan.schema.validate import compile_foreign, compile_raw_parameters, compile_validator

# Small alphabets, so that values and schemas meet.
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, 1.0, 2.5, 0.1, 0.3, -0.0, 1e308, 2**53, 2**53 + 1, 10**30])
TEXTS = st.sampled_from(["", "a", "b", "ab", "é😀", "1"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
NAMES = st.sampled_from(["a", "b", "c", "é", "a b"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
COUNTS = st.sampled_from([0, 1, 2, 3, 2.0])
REFERENCES = st.sampled_from(["#/$defs/one", "#/$defs/two", "#/$defs/tw%6F"]).map(lambda each: {"$ref": each})


def node(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas whose parts come from `inner`."""
    several = st.lists(inner, min_size=1, max_size=3)
    some_kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True)
    values: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(KINDS) | some_kinds,
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
        "multipleOf": st.sampled_from([1, 2, 0.5, 1.0]),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNTS),
        "uniqueItems": st.booleans(),
        **dict.fromkeys(("items", "additionalProperties"), inner),
        **dict.fromkeys(("prefixItems", "anyOf", "oneOf", "allOf"), several),
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        **dict.fromkeys(("default", "x-mine", "examples"), VALUES.map(lambda each: [each])),
        **dict.fromkeys(("title", "$comment", "format"), st.just("whatever")),
    }
    keywords = st.sampled_from(sorted(values)).flatmap(lambda name: st.tuples(st.just(name), values[name]))
    return st.lists(keywords, max_size=4).map(dict)


PARTS = st.recursive(st.booleans() | REFERENCES | node(st.booleans()), node, max_leaves=5)
DOCUMENTS = st.builds(
    lambda root, one, two: {**root, "$defs": {"one": one, "two": two}}, node(PARTS), node(PARTS), node(PARTS)
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, st.lists(VALUES, min_size=1, max_size=6))
def test_verdicts_are_those_of_two_other_validators(schema: dict[str, Any], values: list[Any]) -> None:
    try:
        ours = compile_validator(schema)
    except RegistrationError as problem:
        if "leads back to itself" not in str(problem):
            raise
        return
    assert ours.left_out == ()
    theirs = jsonschema.Draft202012Validator(schema)
    rust = jsonschema_rs.Draft202012Validator(schema)
    for value in values:
        verdict = ours.check(value) == ()
        assert verdict == rust.is_valid(value), (schema, value)
        assert verdict == theirs.is_valid(value), (schema, value)
        assert ours.read(value, repair=True).problems == () or not verdict


CASES: list[tuple[dict[str, Any], Any, bool]] = [
    # From the official test suite: what the two above see differently, or what chance seldom finds.
    ({"type": "integer"}, 1.0, True),
    ({"type": "integer"}, 1e308, True),
    ({"type": "number"}, True, False),
    ({"const": 1}, True, False),
    ({"const": False}, 0, False),
    ({"const": [False]}, [0], False),
    ({"const": {"a": [1.0]}}, {"a": [1]}, True),
    ({"enum": [{"foo": False}]}, {"foo": 0}, False),
    ({"const": 9007199254740992}, 9007199254740992.0, True),
    ({"const": 9007199254740992}, 9007199254740993, False),
    ({"multipleOf": 0.0001}, 0.0075, True),
    ({"multipleOf": 0.0001}, 0.00751, False),
    ({"type": "integer", "multipleOf": 0.123456789}, 1e308, False),
    ({"type": "integer", "multipleOf": 1e-8}, 12391239123, True),
    ({"multipleOf": 0.01}, 19.99, True),
    ({"maxLength": 2}, "\U0001f4a9\U0001f4a9", True),
    ({"uniqueItems": True}, [1, True], True),
    ({"uniqueItems": True}, [[1], [True]], True),
    ({"uniqueItems": True}, [1.0, 1.00, 1], False),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
    ({"uniqueItems": True}, [{"a": False}, {"a": 0}], True),
    ({"required": ["__proto__"]}, {}, False),
    ({"properties": {"$ref": {"type": "string"}}}, {"$ref": 2}, False),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, 1, False),
    ({"$ref": "#/$defs/a%25b", "$defs": {"a%b": {"type": "null"}}}, 1, False),
    ({"$ref": "#there", "$defs": {"x": {"$anchor": "there", "type": "null"}}}, 1, False),
    ({"$id": "http://x/y", "$ref": "http://x/y#/$defs/n", "$defs": {"n": {"type": "null"}}}, 1, False),
    ({"$ref": "#/$defs/n", "maxItems": 1, "$defs": {"n": {"type": "array"}}}, [1, 2], False),
    ({"format": "no-such-format"}, "x", True),
    ({"format": "date"}, 5, True),
    ({"format": "date"}, "2024-02-29", True),
    ({"format": "date"}, "20240229", False),
    ({"format": "date-time"}, "1990-12-31T23:59:60Z", True),
    ({"format": "date-time"}, "1990-12-31T24:00:00Z", False),
    ({"format": "time"}, "08:30:06.283185Z", True),
    ({"format": "duration"}, "P4Y", True),
    ({"format": "duration"}, "PT", False),
    ({"format": "duration"}, "P1D", True),
    ({"format": "uuid"}, "2EB8AA08-aa98-11ea-b4aa-73b441d16380", True),
    ({"format": "uuid"}, "2eb8aa08aa9811eab4aa73b441d16380", False),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"t": {"type": "string"}},
            "$ref": "#/definitions/t",
            "maxLength": 1,
        },
        "long",
        True,  # beside a $ref the other keywords of draft 7 say nothing
    ),
]


@pytest.mark.parametrize(("schema", "value", "fits"), CASES)
def test_single_cases_have_the_verdict_of_the_specification(schema: Any, value: Any, fits: bool) -> None:
    validator = compile_validator(schema)
    assert (validator.check(value) == (), validator.left_out) == (fits, ())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "text"}, "type at # must be one or several of string, integer"),
        ({"type": []}, "type at #"),
        ({"properties": {"a": {"minLength": -1}}}, "minLength at #/properties/a must be a whole number, 0 or more"),
        ({"minItems": 1.5}, "minItems at #"),
        ({"minimum": "1"}, "minimum at # must be a number"),
        ({"minimum": True}, "minimum at #"),
        ({"multipleOf": 0}, "multipleOf at # must be a number above 0"),
        ({"required": "a"}, "required at # must be a list of names, each once"),
        ({"required": ["a", "a"]}, "required at #"),
        ({"enum": "a"}, "enum at #"),
        ({"anyOf": []}, "anyOf at # must be a list of schemas"),
        ({"oneOf": [5]}, "#/oneOf/0 must be a schema"),
        ({"items": [{}]}, "#/items must be a schema"),
        ({"properties": {"a": "string"}}, "#/properties/a must be a schema"),
        ({"uniqueItems": 1}, "uniqueItems at #"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum at # must be a number"),
    ],
)
def test_a_schema_that_is_not_valid_is_refused_with_its_place(schema: Any, words: str) -> None:
    """JS-2."""
    with pytest.raises(RegistrationError) as caught:
        compile_validator(schema)
    assert str(caught.value).startswith("the schema is not valid: ")
    assert words in str(caught.value)


def test_a_value_is_left_as_it_is_but_for_whole_numbers_and_decoded_texts() -> None:
    schema = {
        "properties": {
            "n": {"type": "number"},
            "i": {"type": "integer"},
            "d": {"type": "string", "format": "date"},
            "e": {"enum": [1, "x"]},
            "l": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
            "s": {"anyOf": [{"type": "array"}, {"type": "string"}]},
        }
    }
    given = b'{"n": 5, "i": 2.0, "d": "2026-07-28", "e": 1, "l": "[1, 2]", "s": "[1]", "other": {"deep": "[]"}}'
    found = compile_raw_parameters(schema).decode(given)
    wanted = {"n": 5, "i": 2, "d": "2026-07-28", "e": 1, "l": [1, 2], "s": "[1]", "other": {"deep": "[]"}}
    assert found.arguments == wanted
    assert [type(found.arguments[name]) for name in ("n", "i", "e")] == [int, int, int]
    assert found.repairs == ("l: decoded a string into an array",)


def test_what_a_repair_brings_to_light_is_checked_too() -> None:
    schema = {"properties": {"a": {"allOf": [{"minItems": 2}, {"type": "array"}]}}}
    reading = compile_validator(schema).read({"a": "[1]"}, repair=True)
    assert [str(each) for each in reading.problems] == ["a must have at least 2 items, got 1"]


def tree(depth: int) -> Any:
    found: Any = {"wrong": 1}
    for _ in range(depth):
        found = {"next": found}
    return found


ARM = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}
DOUBLING = {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [ARM, {**ARM, "title": "again"}]}}}


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    before = time.process_time()
    found = function(*arguments)
    return time.process_time() - before, found


def test_unions_that_contain_themselves_end_after_a_bounded_number_of_steps() -> None:
    """JS-4: each level of the value doubles the ways to read it."""
    for compiled in (compile_validator(DOUBLING), compile_foreign({**DOUBLING, "not": {"type": "null"}})):
        seconds, problems = timed(compiled.check, tree(60))
        assert [str(each) for each in problems] == ["cannot be checked: the schema leaves too many ways to read it"]
        assert seconds < 10  # 2**60 steps would never end
    assert compile_validator(DOUBLING).check(tree(3)) != ()


def test_a_large_value_has_its_steps() -> None:
    items = {"items": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}}
    assert compile_validator(items).check(list(range(50_000))) == ()


@pytest.mark.parametrize(
    "values",
    [
        [number * (2**61 - 1) for number in range(30_000)],  # Python gives them all the same hash
        [[number] for number in range(30_000)],
        [{"a": {"b": number}} for number in range(30_000)],
    ],
    ids=["numbers", "arrays", "objects"],
)
def test_unique_items_are_found_in_linear_time(values: list[Any]) -> None:
    validator = compile_validator({"uniqueItems": True})
    seconds, problems = timed(validator.check, values)
    assert problems == ()
    assert seconds < 5  # each with each would be 450 million comparisons
    assert validator.check([*values, values[0]]) != ()


def test_unknown_members_are_looked_up_until_there_are_enough_problems() -> None:
    schema = {"properties": {f"name{n}": {} for n in range(100)}, "additionalProperties": False}
    seconds, problems = timed(compile_validator(schema).check, {f"nam{n}x": 1 for n in range(20_000)})
    assert len(problems) == 100
    assert seconds < 10  # a near miss costs about a millisecond


EVIL = [(r"^(a?){30}(a){30}$", "a" * 25), ("(.*,.*,.*,.*,.*)x$", "," * 5_000), (r"\s+$", " " * 50_000 + "x")]


@pytest.mark.parametrize(("pattern", "text"), EVIL)
def test_a_pattern_is_matched_in_linear_time_or_not_at_all(
    pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = linear_matcher(pattern)
    assert matches is not None
    seconds, found = timed(matches, text)
    assert not found
    assert seconds < 10
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    assert linear_matcher(pattern) is None


def test_what_a_foreign_schema_leaves_out_makes_it_wider_never_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "properties": {
            "a": {"type": "string", "pattern": "^x"},
            "b": {"oneOf": [{"type": "string", "pattern": "^x"}, {"type": "string", "pattern": "^y"}]},
        },
        "patternProperties": {"^z": {}},
        "additionalProperties": False,
    }
    full = compile_foreign(schema)
    assert full.left_out == ()
    assert full.check({"a": "x", "b": "y", "z": 1}) == ()
    assert full.check({"a": "y"}) != ()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    wide = compile_foreign(schema)
    assert set(wide.left_out) == {"pattern", "patternProperties"}
    assert wide.check({"a": "y", "b": "y", "z": 1}) == ()
    assert [str(each) for each in wide.check({"a": 5})] == ["a must be a string, got the number 5"]
