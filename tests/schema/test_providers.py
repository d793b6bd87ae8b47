"""Schemas of foreign servers as each provider takes them (users.md 17): what comes out, and what is said to be lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linkspan.schema.provider_schemas import FORMATS, KEYWORDS, Provider, convert, refused_names

PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic", "gemini")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def converted(schema: Any, provider: Provider) -> dict[str, Any]:
    found, losses = convert(schema, provider)
    assert losses == []
    return found


# What each provider refuses, as a checker.


def refusals(schema: Any, provider: Provider) -> list[str]:
    found = [f"root has {key}" for key in ("anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref") if key in schema]
    found += [] if schema.get("type") == "object" else ["root is no object"]
    json.dumps(schema, allow_nan=False)
    if provider == "gemini":
        return found + list(gemini_refusals(schema))
    jsonschema.Draft202012Validator.check_schema(schema)
    found += [] if isinstance(schema.get("properties"), dict) else ["root without properties"]
    return found + list(other_refusals(schema, provider))


def gemini_refusals(schema: Any) -> Iterator[str]:
    if "anyOf" in schema:
        assert schema.keys() == {"anyOf"}, "beside anyOf, nothing"
        for each in schema["anyOf"]:
            yield from gemini_refusals(each)
        return
    kind = schema["type"]
    yield from (f"{kind} with {key}" for key in schema if key not in KEYWORDS[kind])
    if "enum" in schema and not (schema["enum"] and all(isinstance(each, str) and each for each in schema["enum"])):
        yield "enum of other than texts"
    if "format" in schema and schema["format"] not in FORMATS[kind]:
        yield f"format {schema['format']}"
    if kind == "array":
        yield from gemini_refusals(schema["items"])
    members = schema.get("properties", {})
    if (not members and "properties" in schema) or not set(schema.get("required", ())) <= set(members):
        yield "no or unknown members"
    for each in members.values():
        yield from gemini_refusals(each)


def other_refusals(schema: Any, provider: Provider) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from other_refusals(each, provider)
    if not isinstance(schema, dict):
        return
    yield from (key for key in ("$ref", "$schema", "$defs", "allOf") if key in schema)
    if "array" in schema.get("type", ()) and "items" not in schema:
        yield "array without items"
    for key, each in schema.items():
        if key in ("properties", "patternProperties", "dependentSchemas"):
            for one in each.values():
                yield from other_refusals(one, provider)
        elif key not in ("enum", "const", "default", "examples", "dependentRequired"):
            yield from other_refusals(each, provider)


# What comes out.

ANYTHING = [{"type": each} for each in ("number", "boolean", "object")]


@every_provider
def test_a_plain_schema_goes_through_as_it_is(provider: Provider) -> None:
    plain = {
        "type": "object",
        "properties": {
            "sides": {"type": "integer", "minimum": 1, "description": "Faces on each die."},
            "kind": {"type": "string", "enum": ["fair", "loaded"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "required": ["sides"],
    }
    assert converted(plain, provider) == plain


@every_provider
def test_references_and_all_of_are_put_in_place(provider: Provider) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"from": {"$ref": "#/definitions/place"}, "to": {"allOf": [{"$ref": "#/definitions/place"}]}},
        "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    }
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert converted(schema, provider) == arguments(**{"from": place, "to": place})


@every_provider
def test_a_schema_within_itself_is_cut_where_it_repeats(provider: Provider) -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
    found, losses = convert({**arguments(head={"$ref": "#/$defs/node"}), "$defs": {"node": node}}, provider)
    assert losses == [
        "/head/next/next/next: the schema contains itself; from here on its members are not described",
    ]
    assert refusals(found, provider) == []
    assert found["properties"]["head"]["properties"]["next"]["properties"]["next"]["properties"]["next"] == {
        "type": "object"
    }


@every_provider
@pytest.mark.parametrize("reference", ["https://example.com/x.json", "#/$defs/none", "#nowhere", "#/required/²", 7])
def test_a_reference_that_leads_nowhere_is_said_and_never_followed(provider: Provider, reference: Any) -> None:
    found, losses = convert({**arguments(x={"$ref": reference, "type": "string"}), "required": ["x"]}, provider)
    assert found == {**arguments(x={"type": "string"}), "required": ["x"]}
    assert losses == ["/x: its $ref does not resolve within the schema; anything is offered"]


@every_provider
@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_a_union_at_the_root_becomes_one_object(provider: Provider, union: str) -> None:
    schema = {
        "type": "object",
        "properties": {"unit": {"type": "string"}},
        union: [
            {"properties": {"kind": {"const": "city"}, "name": {"type": "string"}}, "required": ["kind", "name"]},
            {"properties": {"kind": {"const": "zip"}, "name": {"type": "integer"}}, "required": ["kind"]},
        ],
    }
    found, losses = convert(schema, provider)
    kind = {"enum": ["city", "zip"]}
    assert found == {
        **arguments(
            unit={"type": "string"},
            kind={"type": "string", **kind} if provider == "gemini" else kind,
            name={"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        "required": ["kind"],
    }
    assert losses == [f"the arguments: {union} became one object: the server still checks which arguments go together"]


def test_openai_and_anthropic_keep_what_json_schema_can_say() -> None:
    schema = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^a+$", "minLength": 2, "format": "uri"},
            "size": {"oneOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "default": 1},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {}},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "name": {"not": {"const": "x"}},
        },
        "additionalProperties": False,
        "if": {"required": ["code"]},
        "then": {"required": ["size"]},
    }
    for provider in ("openai", "anthropic"):
        assert converted(schema, provider) == schema


def test_gemini_is_told_in_the_description_what_it_does_not_check() -> None:
    schema = arguments(
        code={"type": "string", "description": "A code.", "pattern": "^a+$", "format": "uri"},
        size={"type": ["integer", "null"], "exclusiveMinimum": 0, "default": 1},
        kind={"oneOf": [{"type": "string", "description": "A name."}, {"type": "number"}], "title": "Kind"},
        page={"type": "integer", "enum": [10, 20]},
        pair={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        map={"type": "object", "additionalProperties": {"type": "boolean"}},
        on={"const": "yes"},
    )
    found, losses = convert(schema, "gemini")
    assert found == arguments(
        code={"type": "string", "description": "A code. (pattern: ^a+$; format: uri)"},
        size={"type": "integer", "minimum": 1, "nullable": True, "description": "(default: 1)"},
        kind={"anyOf": [{"type": "string", "description": "A name."}, {"type": "number", "description": "Kind"}]},
        page={"type": "integer", "description": "(one of [10, 20])"},
        pair={"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}, *ANYTHING]}},
        map={"type": "object", "description": '(other members: {"type": "boolean"})'},
        on={"type": "string", "enum": ["yes"]},
    )
    assert losses == [
        "/code: pattern dropped: Gemini does not accept it, the server still checks it",
        "/kind: oneOf became anyOf",
        "/page: its values moved into the description: Gemini takes an enum of texts only",
        "/pair/*: anything is allowed here; Gemini is offered all but arrays and null",
        "/pair: prefixItems dropped: Gemini does not accept it, the server still checks it",
        "/map: what other members look like moved into the description: Gemini takes named ones only",
    ]


@every_provider
def test_spellings_of_older_drafts_are_understood(provider: Provider) -> None:
    schema = arguments(n={"type": "integer", "minimum": 0, "exclusiveMinimum": True}, m={"type": "array"})
    bound = {"minimum": 1} if provider == "gemini" else {"exclusiveMinimum": 0}
    items = {"anyOf": [{"type": "string"}, *ANYTHING]} if provider == "gemini" else {}
    found, _ = convert(schema, provider)
    assert found == arguments(n={"type": "integer", **bound}, m={"type": "array", "items": items})


@pytest.mark.parametrize(
    ("provider", "left"), [("openai", ["a b", "$x", "c.d"]), ("anthropic", ["c.d"]), ("gemini", [])]
)
def test_an_optional_member_whose_name_is_refused_is_left_out(provider: Provider, left: list[str]) -> None:
    names = ["a b", "$x", "c.d"]
    found, losses = convert(arguments(**{name: {"type": "string"} for name in names}), provider)
    assert list(found.get("properties", ())) == left
    assert len(losses) == len(names) - len(left)
    assert refused_names(found, provider) == []


def test_a_required_member_whose_name_is_refused_stays_and_is_reported() -> None:
    schema = arguments(where={**arguments(**{"a b": {"type": "string"}}), "required": ["a b"]})
    found, losses = convert(schema, "anthropic")
    assert found == schema
    assert losses == ['/where/"a b": Anthropic refuses this name, and it is required: leave the tool out']
    assert refused_names(found, "anthropic") == ['/where/"a b"']


@every_provider
def test_a_schema_that_multiplies_stays_small(provider: Provider) -> None:
    levels = {f"l{n}": arguments(**{f"p{m}": {"$ref": f"#/$defs/l{n + 1}"} for m in range(8)}) for n in range(12)}
    schema = {**arguments(x={"$ref": "#/$defs/l0"}), "$defs": {**levels, "l12": {"description": "x" * 10_000}}}
    found, losses = convert(schema, provider)
    assert len(json.dumps(found)) < 1_000_000
    assert any("the schema is too large" in each for each in losses)


@every_provider
def test_a_schema_that_is_nested_without_end_is_cut(provider: Provider) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(2_000):
        schema = {"allOf": [arguments(x=schema)]}
    found, losses = convert(schema, provider)
    assert refusals(found, provider) == []
    assert losses != []


# Whatever a server sends.

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab$ ", max_size=3)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
names = st.sampled_from(["a", "b", "c", "d e"])
references = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#anchor", "http://x/y"])


def few() -> st.SearchStrategy[Any]:
    return st.integers(0, 3)


def some(strategy: Any, least: int = 1, most: int = 3) -> Any:
    return lambda inner: st.lists(strategy(inner), min_size=least, max_size=most)


SOUND: dict[str, Any] = {
    "type": lambda inner: kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
    "enum": some(lambda inner: scalars),
    "const": lambda inner: scalars,
    "minimum": lambda inner: few(),
    "exclusiveMaximum": lambda inner: few(),
    "multipleOf": lambda inner: st.integers(1, 3),
    "minLength": lambda inner: few(),
    "pattern": lambda inner: st.sampled_from(["^a", "b$"]),
    "format": lambda inner: st.sampled_from(["date-time", "uri", "int32"]),
    "items": lambda inner: inner,
    "prefixItems": some(lambda inner: inner, most=2),
    "maxItems": lambda inner: few(),
    "uniqueItems": lambda inner: st.booleans(),
    "contains": lambda inner: inner,
    "properties": lambda inner: st.dictionaries(names, inner, max_size=3),
    "required": lambda inner: st.lists(names, max_size=2, unique=True),
    "additionalProperties": lambda inner: inner,
    "patternProperties": lambda inner: st.dictionaries(st.just("^a"), inner, max_size=1),
    "dependentRequired": lambda inner: st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=1),
    "anyOf": some(lambda inner: inner),
    "oneOf": some(lambda inner: inner),
    "allOf": some(lambda inner: inner),
    "not": lambda inner: inner,
    "if": lambda inner: inner,
    "then": lambda inner: inner,
    "else": lambda inner: inner,
    "description": lambda inner: st.text("ab", max_size=3),
    "default": lambda inner: scalars,
}
FOR_GEMINI = ("minimum", "exclusiveMaximum", "items", "maxItems", "properties", "required", "anyOf", "allOf", "default")


def sound(keys: Iterable[str], most: int, always: Iterable[str] = ()) -> Any:
    """Return schemas with a few keywords, each as it should be."""
    chosen = st.lists(st.sampled_from(sorted(keys)), max_size=most, unique=True)

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return chosen.flatmap(lambda all_: st.fixed_dictionaries({key: SOUND[key](inner) for key in (*always, *all_)}))

    return st.recursive(st.booleans() | extend(st.booleans()), extend, max_leaves=6)


schemas = sound(SOUND, 12)
simple = sound(SOUND, 3)
simplest = sound(FOR_GEMINI, 3, always=("type",))
keywords = st.sampled_from([
    "$ref", "$defs", "definitions", "$anchor", "type", "enum", "items", "properties", "required", "anyOf", "oneOf", "allOf",
    "not", "if", "then", "const", "minimum", "exclusiveMinimum", "maxItems", "pattern", "dependencies", "nullable", "format",
])  # fmt: skip
anything = st.recursive(
    scalars | references | kinds | st.lists(kinds, max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | names, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(
    schemas.filter(lambda each: isinstance(each, dict)) | anything,
    st.dictionaries(st.sampled_from("ab"), schemas | anything),
    st.sampled_from(PROVIDERS),
)
def test_what_comes_out_is_never_refused(schema: Any, definitions: Any, provider: Provider) -> None:
    document = {"$defs": definitions, **schema} if isinstance(schema, dict) else schema
    before = json.dumps(document)
    found, losses = convert(document, provider)
    assert json.dumps(document) == before, "what was given stays as it is"
    assert refusals(found, provider) == []
    assert all(isinstance(each, str) for each in losses)
    for place in refused_names(found, provider):
        assert any(each.startswith(f"{place}: ") for each in losses) or len(losses) > 50


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(names, simple, max_size=3), st.lists(names, max_size=1), st.data())
def test_without_a_loss_the_same_arguments_fit(properties: Any, required: Any, data: st.DataObject) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    found, losses = convert(schema, "openai")
    if losses:
        return
    given_to_it = data.draw(st.dictionaries(names, values, max_size=3))
    assert fits(found, given_to_it) == fits(schema, given_to_it)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), simplest, min_size=1, max_size=3), st.data())
def test_without_a_loss_what_gemini_may_send_fits(properties: Any, data: st.DataObject) -> None:
    schema = {"type": "object", "properties": properties}
    found, losses = convert(schema, "gemini")
    sent = data.draw(sendable(found))
    if not losses:
        assert fits(schema, sent)


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def sendable(schema: Any) -> st.SearchStrategy[Any]:
    """Return what a model may send that keeps to a schema of Gemini's: members that are named, and no others."""
    if "anyOf" in schema:
        return st.one_of(*map(sendable, schema["anyOf"]))
    found: st.SearchStrategy[Any]
    match schema["type"]:
        case "string":
            found = st.sampled_from(schema["enum"]) if "enum" in schema else st.text("ab", max_size=4)
        case "integer" | "number":
            low = schema.get("minimum", -5)
            high = schema.get("maximum", low + 20)
            assume(low <= high)
            found = st.integers(int(low), int(high))
        case "boolean":
            found = st.booleans()
        case "array":
            most = schema.get("maxItems", 3)
            found = st.lists(sendable(schema["items"]), min_size=min(most, schema.get("minItems", 0)), max_size=most)
        case _:
            members = {name: sendable(each) for name, each in schema.get("properties", {}).items()}
            required = {name: members.pop(name) for name in schema.get("required", ())}
            found = st.fixed_dictionaries(required, optional=members)
    return found | st.none() if schema.get("nullable") else found
