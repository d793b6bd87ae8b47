"""Properties: whatever the type and whatever the JSON, the arguments are read or refused with a path, one way only."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from types_and_values import fitting, json_values, types

from linkspan.schema.parameters import Parameters, compile_parameters
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.schema.results import compile_result

thorough = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


def parameters_of(hint: Any, *, portable: bool = True) -> Parameters:
    def tool(x): ...

    tool.__annotations__["x"] = hint
    return compile_parameters(tool, portable=portable)


def outcome(read: Any) -> tuple[str, Any]:
    try:
        return "read", read()
    except ArgumentsInvalid as problem:
        return "refused", problem.problems


@thorough
@given(st.data())
def test_arguments_are_read_or_refused_with_a_path_and_both_ways_to_read_them_agree(data: st.DataObject) -> None:
    hint = data.draw(types())
    value = data.draw(st.one_of(json_values, fitting(hint)))
    parameters = parameters_of(hint)
    raw = msgspec.json.encode({"x": value})
    fast = outcome(lambda: parameters.decode(raw, repair=False))
    slow = outcome(lambda: parameters.decode_values(msgspec.json.decode(raw), repair=False))
    assert repr(fast) == repr(slow)
    if fast[0] == "refused":
        assert fast[1]
        assert all(each.path.startswith("x") and each.message for each in fast[1])


@thorough
@given(st.data())
def test_what_fits_the_faithful_schema_is_taken(data: st.DataObject) -> None:
    hint = data.draw(types(formatted=False))
    parameters = parameters_of(hint, portable=False)
    value = {"x": data.draw(st.one_of(json_values, fitting(hint)))}
    fits = jsonschema_rs.Draft202012Validator(parameters.json_schema).is_valid(value)
    found = outcome(lambda: parameters.decode_values(value, repair=False))
    assert not fits or found[0] == "read", found


@thorough
@given(st.data())
def test_what_is_read_without_leave_fits_the_portable_schema_but_for_null(data: st.DataObject) -> None:
    hint = data.draw(types())
    schema = parameters_of(hint).json_schema
    jsonschema_rs.meta.validate(schema)
    text = json.dumps(schema)
    assert '"prefixItems"' not in text
    assert '"const"' not in text
    assert '"$ref"' not in text
    assert '"uniqueItems"' not in text


@thorough
@given(st.data())
def test_what_is_read_can_be_returned_and_fits_the_output_schema_and_reads_back_equal(data: st.DataObject) -> None:
    hint = data.draw(types())
    parameters = parameters_of(hint)
    kind, found = outcome(lambda: parameters.decode_values({"x": data.draw(fitting(hint))}, repair=False))
    if kind == "refused":
        return
    value = found.arguments["x"]
    shape = compile_result(hint)
    body = shape.encode(value)
    if shape.json_schema is not None:
        structured = json.loads(b'{"result":%b}' % body if shape.wrapped else body)
        assert list(jsonschema_rs.Draft202012Validator(shape.json_schema).iter_errors(structured)) == []
    again = outcome(lambda: parameters.decode(b'{"x":%b}' % body, repair=False))
    assert again[0] == "read", again


@thorough
@given(types(), st.binary(max_size=20))
def test_bytes_that_are_no_json_are_refused(hint: Any, raw: bytes) -> None:
    assert outcome(lambda: parameters_of(hint).decode(raw))[0] in ("read", "refused")
    assert outcome(lambda: parameters_of(hint).decode(b'{"x":' + raw + b"}"))[0] in ("read", "refused")


def test_arguments_nested_too_deeply_are_refused() -> None:
    for hint in (Any, list[Any], dict[str, Any], int):
        for deep in (500, 900, 5_000, 200_000):
            raw = b'{"x":' + b"[" * deep + b"]" * deep + b"}"
            kind, found = outcome(lambda raw=raw, hint=hint: parameters_of(hint).decode(raw))
            assert kind == "read" or found[0].message
