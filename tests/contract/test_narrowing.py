"""What a change of a schema does to values, and that no old value is refused where it is said to be fine."""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

import jsonschema_rs
import pytest

from linkspan.contract.narrowing import differences, narrowed, shown


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


STRING, INTEGER, NUMBER, NULL = ({"type": each} for each in ("string", "integer", "number", "null"))


@pytest.mark.parametrize(
    ("old", "new", "verdict", "words"),
    [
        (of(a=STRING), of(a=STRING), "equal", []),
        (of(a=STRING), of(a={**STRING, "title": "A"}), "equal", []),
        (of(a={"anyOf": [STRING, NULL]}), of(a={"anyOf": [{**STRING, "maxLength": 9}, NULL]}),
         "narrower", ["a: maxLength 9 is new"]),
        (of(a=STRING), of(a={**STRING, "description": "The a."}), "equal", ["a: its description is new"]),
        (of(a={**STRING, "default": 1}), of(a={**STRING, "default": True}), "equal",
         ["a: the default 1 became the default true"]),
        (of(a=INTEGER), of(a=NUMBER), "wider", ["a: integer became number"]),
        (of(a=NUMBER), of(a=INTEGER), "narrower", ["a: number became integer"]),
        (of(a=STRING), of(a=INTEGER), "unknown", ["a: string became integer"] * 2),
        (of(a=STRING), of(a={"anyOf": [STRING, NULL]}), "wider", ["a: accepts null, too"]),
        (of(a={"anyOf": [STRING, NULL]}), of(a=STRING), "narrower", ["a: no longer accepts null"]),
        (of(a={"enum": ["x", "y"]}), of(a={"enum": ["x"]}), "narrower", ['a: no longer accepts "y"']),
        (of(a={"enum": ["x"]}), of(a=STRING), "wider", ['a: "x" became string', 'a: is no longer one of "x"'][1:]),
        (of(a={"const": 1}), of(a={"const": True}), "unknown", ["a: 1 became true"] * 2),
        (of(a={**STRING, "maxLength": 5}), of(a={**STRING, "maxLength": 9}), "wider", ["a: maxLength 5 became 9"]),
        (of(a={**INTEGER, "minimum": 0}), of(a={**INTEGER, "minimum": 1}), "narrower", ["a: minimum 0 became 1"]),
        (of(a={**INTEGER, "multipleOf": 4}), of(a={**INTEGER, "multipleOf": 2}), "wider", ["a: multipleOf 4 became 2"]),
        (of(a={**STRING, "pattern": "a"}), of(a={**STRING, "pattern": "b"}), "unknown", ['a: pattern "a" became "b"']),
        (of(a={**STRING, "pattern": "a"}), of(a=STRING), "wider", ['a: pattern "a" is gone']),
        (of(a=STRING), of(a=STRING, b=STRING), "wider", ["b: is new"]),
        (of(a=STRING), {**of(a=STRING, b=STRING), "required": ["b"]}, "unknown", ["b: is new and required"]),
        ({"properties": {}}, {"properties": {"b": {}}, "required": ["b"]}, "narrower", ["b: is new and required"]),
        (of(a=STRING), {**of(a=STRING), "required": ["a"]}, "narrower", ["a: became required"]),
        (of(a=STRING, b=STRING), of(a=STRING), "narrower", ["b: is gone"]),
        ({"properties": {"a": STRING}}, {"properties": {}}, "wider", ["a: is gone, and ignored where it is sent"]),
        ({"properties": {}}, {"properties": {"a": STRING}}, "unknown", ["a: is new"]),
        ({"properties": {}}, of(), "narrower", [": refuses members without a name here"]),
        (of(a=STRING, b=NULL), of(b=NULL, a=STRING), "equal", [": the order of its members changed"]),
        (
            of(a={"type": "array", "items": STRING}),
            of(a={"type": "array", "items": {"type": ["string", "null"]}}),
            "wider",
            ["a[]: string became string | null"],
        ),
        (
            {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(b=INTEGER)}},
            of(a=of(b={**INTEGER, "maximum": 3})),
            "narrower",
            ["a.b: maximum 3 is new"],
        ),
        (of(a={"oneOf": [STRING, NULL]}), of(a={"oneOf": [STRING]}), "unknown", None),
        (
            of(a={"anyOf": [{**STRING, "pattern": "a"}, {**INTEGER, "multipleOf": 0.2}, NULL]}),
            of(a={"anyOf": [{**STRING, "pattern": "b"}, {**INTEGER, "multipleOf": 0.3}, NULL]}),
            "unknown",
            ['a: pattern "a" became "b"', "a: multipleOf 0.2 became 0.3"],
        ),
        (of(a={"anyOf": [{"not": STRING}, NULL]}), of(a={"anyOf": [{}, NULL]}), "wider", ["a: accepts any, too"]),
        (of(a={"not": STRING}), of(a={"not": NULL}), "unknown", None),
    ],
)  # fmt: skip
def test_each_change_is_told_with_its_place(old: Any, new: Any, verdict: str, words: list[str] | None) -> None:
    assert narrowed(old, new) == verdict
    if words is not None:
        assert [f"{shown(each.path)}: {each.words}" for each in differences(old, new)] == words


def test_what_cannot_be_read_is_not_decided_and_never_raises() -> None:
    deep: Any = STRING
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    foreign = of(a={"$ref": "https://example.com/a.json"})
    for old, new in (
        ({}, foreign),
        (foreign, of(a=INTEGER)),
        (of(a=deep), of(a=STRING)),
        ({"type": 5}, []),
        (None, {"type": "array"}),
    ):
        assert narrowed(old, new) in ("unknown", "narrower")
        assert all(each.words for each in differences(old, new))


# Pairs of schemas at random, with another implementation as the judge.

NAMES = ("a", "b", "c")
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    3.5,
    -7,
    10,
    "",
    "a",
    "ab",
    "abc",
    [],
    [1],
    ["a", "a"],
    {},
    {"a": 1},
    {"b": "x"},
]


def a_schema(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.choice(
        ["string", "integer", "number", "boolean", "null", "values", "open", "array", "object", "union", "types"]
    )
    if depth > 2 and kind in ("array", "object", "union"):
        kind = "string"
    match kind:
        case "string":
            found: dict[str, Any] = {"type": "string"}
            if chance.random() < 0.4:
                found["maxLength"] = chance.randrange(4)
            if chance.random() < 0.2:
                found["pattern"] = chance.choice(["^a", "b"])
            return found
        case "integer" | "number":
            found = {"type": kind}
            for key in ("minimum", "exclusiveMaximum", "maximum"):
                if chance.random() < 0.3:
                    found[key] = chance.randrange(-8, 12)
            if chance.random() < 0.2:
                found["multipleOf"] = chance.choice([1, 2, 4])
            return found
        case "values":
            return {"enum": chance.sample(VALUES[:13], chance.randrange(1, 4))}
        case "open":
            return chance.choice([True, {}])
        case "array":
            found = {"type": "array", "items": a_schema(chance, depth + 1)}
            if chance.random() < 0.3:
                found["prefixItems"] = [a_schema(chance, depth + 1)]
            if chance.random() < 0.3:
                found["uniqueItems"] = True
            if chance.random() < 0.3:
                found["maxItems"] = chance.randrange(3)
            return found
        case "object":
            return an_object(chance, depth + 1)
        case "union":
            return {"anyOf": [a_schema(chance, depth + 1) for _ in range(chance.randrange(1, 4))]}
        case "types":
            return {"type": chance.sample(["string", "null", "integer", "number", "object"], 2)}
        case _:
            return {"type": kind}


def an_object(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object"}
    found["properties"] = {name: a_schema(chance, depth + 1) for name in NAMES if chance.random() < 0.6}
    if chance.random() < 0.4:
        found["required"] = [name for name in NAMES if chance.random() < 0.4]
    if chance.random() < 0.6:
        found["additionalProperties"] = False if chance.random() < 0.7 else a_schema(chance, depth + 1)
    return found


def changed(chance: random.Random, schema: Any) -> Any:
    """Return a schema with one or several small changes, or another one."""
    places: list[tuple[Any, Any]] = []

    def visit(part: Any) -> None:
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(each, dict | list):
                visit(each)

    found = copy.deepcopy(schema)
    visit(found)
    for _ in range(chance.randrange(1, 3)):
        part, key = chance.choice(places)
        if isinstance(part, dict) and key in part and isinstance(part[key], int) and not isinstance(part[key], bool):
            part[key] = max(
                part[key] + chance.choice([-1, 1, 2]), 1 if key == "multipleOf" else 0 if "max" in key else -9
            )
        elif (
            isinstance(part, dict)
            and key in part
            and chance.random() < 0.4
            and key not in ("properties", "anyOf", "type")
        ):
            del part[key]
        elif isinstance(part, dict) and key in ("items", *NAMES, "additionalProperties"):
            part[key] = a_schema(chance, 2)
        elif isinstance(part, dict) and key == "anyOf":
            part[key] = [*part[key], a_schema(chance, 2)]
        elif isinstance(part, dict) and key == "properties":
            part[key] = {**part[key], chance.choice(NAMES): a_schema(chance, 2)}
    return found


def values_for(chance: random.Random) -> Any:
    found: dict[str, Any] = {}
    for name in (*NAMES, "d"):
        if chance.random() < 0.5:
            found[name] = chance.choice(VALUES)
            if chance.random() < 0.2:
                found[name] = {name: chance.choice(VALUES) for name in NAMES if chance.random() < 0.6}
    return found


def check_pairs(seed: int, pairs: int) -> dict[str, int]:
    """Compare pairs of schemas; return how often each verdict came. Raises: AssertionError for one that is wrong."""
    chance, verdicts = random.Random(seed), dict.fromkeys(("equal", "wider", "narrower", "unknown"), 0)
    for _ in range(pairs):
        old = an_object(chance)
        new = changed(chance, old) if chance.random() < 0.9 else an_object(chance)
        verdict = narrowed(old, new)
        verdicts[verdict] += 1
        if verdict not in ("equal", "wider"):
            continue
        before, after = jsonschema_rs.Draft202012Validator(old), jsonschema_rs.Draft202012Validator(new)
        for value in (values_for(chance) for _ in range(40)):
            if before.is_valid(value):
                assert after.is_valid(value), json.dumps([verdict, old, new, value])
    return verdicts


def test_no_old_value_is_refused_where_the_change_is_said_to_be_wider() -> None:
    verdicts = check_pairs(20261124, int(os.environ.get("LINKSPAN_PAIRS", "5000")))
    assert min(verdicts.values()) > 100, verdicts
