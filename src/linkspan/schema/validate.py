"""Schemas that did not come from hints: what checks them, and arguments that are checked by it.

The keywords that nearly every schema uses are compiled to shapes, as hints are. The rest needs jsonschema-rs, whose regular
expressions are linear. Nothing ever fetches a `$ref`. Checklist 1.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError, install_hint
from linkspan.schema.compile import AskParameter, Decoded
from linkspan.schema.document import DRAFT_7, check_document, dialect_of, input_schema, subschemas
from linkspan.schema.headers import header_paths
from linkspan.schema.kinds import is_object
from linkspan.schema.problems import ArgumentsInvalid, Problem, at, describe_value
from linkspan.schema.repair import repair_value
from linkspan.schema.shape import Shape, Steps, TooManySteps, Walk
from linkspan.schema.told import holder, told
from linkspan.schema.written import compile_written
from linkspan.types.base import JSON, JSONObject

__all__ = [
    "Checked",
    "RawParameters",
    "Reading",
    "Validator",
    "check_schema",
    "compile_foreign",
    "compile_raw_parameters",
    "compile_validator",
    "input_schema",
]

Checked: TypeAlias = Literal["now", "later", "never"]
"""When a schema is compiled to check arguments: at once, when a call first wants it checked, or not at all."""

_MOST_PROBLEMS = 100
_TOO_DEEP = "the schema is nested too deeply, or its references are a long chain; flatten it"


class Reading(NamedTuple):
    """A value as a schema takes it: with its repairs made, and what is wrong with it all the same."""

    value: JSON
    problems: tuple[Problem, ...] = ()
    repairs: tuple[str, ...] = ()


class Validator(Protocol):
    """A compiled schema. `left_out` names the keywords that it does not check, `advice` what would check them."""

    @property
    def left_out(self) -> tuple[str, ...]: ...
    @property
    def advice(self) -> str: ...

    def check(self, value: JSON) -> tuple[Problem, ...]:
        """Return what is wrong with a JSON value; nothing if it fits."""
        ...

    def read(self, value: JSON, *, repair: bool) -> Reading:
        """Return a JSON value as the schema takes it."""
        ...


class _Walked:
    """A schema that is a shape."""

    __slots__ = ("_is_arguments", "_shape", "advice", "left_out")

    def __init__(self, shape: Shape, left_out: tuple[str, ...], *, is_arguments: bool) -> None:
        self.advice = "" if find_spec("jsonschema_rs") else f"; to check more, {install_hint('schema')}"
        self._shape = shape
        self.left_out = left_out
        self._is_arguments = is_arguments

    def check(self, value: JSON) -> tuple[Problem, ...]:
        return self.read(value, repair=False).problems

    def read(self, value: JSON, *, repair: bool) -> Reading:
        walk = Walk(repair=repair, is_arguments=self._is_arguments, steps=Steps(value))
        try:
            found = self._shape.convert(value, "", walk)
        except TooManySteps:
            return Reading(value, (Problem("", "cannot be checked: the schema leaves too many ways to read it"),))
        except RecursionError:
            return Reading(value, (Problem("", "is nested too deeply"),))
        if walk.problems:
            return Reading(value, tuple(dict.fromkeys(walk.problems[:_MOST_PROBLEMS])))
        if not walk.repairs:
            return Reading(found)
        return Reading(found, self.check(found), tuple(walk.repairs))


class _Listed:
    """A schema that jsonschema-rs checks, and tells what is wrong."""

    __slots__ = ("_compiled", "_is_arguments", "_schema")
    left_out: tuple[str, ...] = ()
    advice = ""

    def __init__(self, compiled: Any, schema: Mapping[str, JSON], *, is_arguments: bool) -> None:
        self._compiled = compiled
        self._schema = schema
        self._is_arguments = is_arguments

    def check(self, value: JSON) -> tuple[Problem, ...]:
        try:
            if self._compiled.is_valid(value):
                return ()
            return tuple(dict.fromkeys(islice(self._told(value), _MOST_PROBLEMS)))
        except RecursionError:
            return (Problem("", "is nested too deeply"),)
        except (ValueError, OverflowError, TypeError):
            return (Problem("", "has a number or a text that cannot be checked"),)

    def read(self, value: JSON, *, repair: bool) -> Reading:
        problems = self.check(value)
        if not problems or not repair:
            return Reading(value, problems)
        repairs: list[str] = []
        mended = repair_value(value, self._schema, self._schema, "", repairs)
        return Reading(mended, self.check(mended), tuple(repairs))

    def _told(self, value: JSON) -> Iterable[Problem]:
        for each in self._compiled.iter_errors(value):
            place: list[str | int] = list(each.schema_path)
            keyword: str = each.kind.name
            if place[-1:] == ["dependentRequired"]:
                keyword = "dependentRequired"
            held = holder(self._schema, place)
            path = _path(each.instance_path)
            yield from told(
                keyword, held, self._schema, each.instance, path, each.message, is_arguments=self._is_arguments
            )


def compile_validator(schema: Mapping[str, JSON], *, is_arguments: bool = False) -> Validator:
    """Compile an author's schema of 2020-12 (the default) or draft-07. `is_arguments` says what to call its members.

    Raises: RegistrationError for a schema that is not valid, is too large, has a pattern that may take for ever, or refers
    outside itself; and for keywords that only the extra `schema` can check, where that is not installed.
    """
    walked = _walked(schema, is_arguments)
    if not walked.left_out:
        return walked
    listed = _listed(schema, is_arguments)
    if listed is None:
        raise RegistrationError(
            f"to check {_named(walked.left_out)} in a schema that is written by hand, {install_hint('schema')}; "
            "or write the schema without"
        )
    return listed


def compile_foreign(schema: Mapping[str, JSON]) -> Validator:
    """Compile a schema of somebody else's, as far as it can be checked without giving its writer power over our time.

    What is left out is named by the result. Raises: RegistrationError for a schema that is not valid, or cannot be used at all.
    """
    walked = _walked(schema, False)
    if not walked.left_out or any("$ref" in each for _, each, _ in subschemas(schema)):
        return walked  # jsonschema-rs counts no steps, and what refers to itself may need any number of them
    return _listed(schema, False) or walked


def _named(keywords: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in keywords)


def _walked(schema: Mapping[str, JSON], is_arguments: bool) -> _Walked:
    draft = dialect_of(schema)
    try:
        check_document(schema)
        written = compile_written(schema, draft_7=draft == DRAFT_7)
    except RecursionError:
        raise RegistrationError(_TOO_DEEP) from None
    return _Walked(written.shape, written.left_out, is_arguments=is_arguments)


def _listed(schema: Mapping[str, JSON], is_arguments: bool) -> _Listed | None:
    try:
        library: Any = import_module("jsonschema_rs")
    except ImportError:
        return None
    chosen = library.Draft7Validator if dialect_of(schema) == DRAFT_7 else library.Draft202012Validator
    try:
        compiled = chosen(dict(schema), retriever=_refuse, pattern_options=library.RegexOptions())
    except (library.ValidationError, library.ReferencingError, ValueError, TypeError) as problem:
        raise RegistrationError(f"the schema is not valid: {_first_line(problem)}") from None
    return _Listed(compiled, schema, is_arguments=is_arguments)


def _refuse(uri: str) -> JSON:
    raise ValueError(f"{uri} leads outside the schema")


def _path(steps: Iterable[str | int]) -> str:
    found = ""
    for step in steps:
        found = at(found, step)
    return found


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:200]


class RawParameters:
    """Arguments under a schema that was written by hand. The same face as `Parameters`."""

    __slots__ = ("_is_checked", "_validator", "asks", "context_parameter", "description", "headers", "json_schema")

    runs_code = False

    def __init__(self, schema: JSONObject, checked: Checked) -> None:
        self.json_schema = schema
        self.headers: Mapping[tuple[str, ...], str] = header_paths(schema)
        self.asks: tuple[AskParameter, ...] = ()
        self.context_parameter: str | None = None
        self.description: str | None = None
        self._is_checked = checked != "never"
        self._validator = compile_validator(schema, is_arguments=True) if checked == "now" else None

    def decode(self, raw: bytes | Raw | None, *, repair: bool = True, check: bool = True) -> Decoded:
        """Turn the arguments of a call, a JSON object in bytes, into a dictionary.

        Without `check` any object will do. Raises: ArgumentsInvalid.
        """
        try:
            values: JSON = msgspec.json.decode(raw or b"{}")
        except RecursionError:
            raise ArgumentsInvalid([Problem("", "the arguments are nested too deeply")]) from None
        except Exception:
            raise ArgumentsInvalid([Problem("", "the arguments are not valid JSON")]) from None
        return self.decode_values(values, repair=repair, check=check)

    def decode_values(self, values: Mapping[str, JSON], *, repair: bool = True, check: bool = True) -> Decoded:
        """Check arguments that are decoded JSON already. Raises: ArgumentsInvalid."""
        validator = self._compiled() if check and self._is_checked else None
        found = Reading(values) if validator is None else validator.read(values, repair=repair)
        if found.problems:
            raise ArgumentsInvalid(map(_of_arguments, found.problems))
        if not is_object(found.value):
            raise ArgumentsInvalid([Problem("", f"the arguments must be an object, got {describe_value(found.value)}")])
        return Decoded(dict(found.value), found.repairs)

    def _compiled(self) -> Validator:
        if self._validator is None:
            self._validator = compile_validator(self.json_schema, is_arguments=True)
        return self._validator


def _of_arguments(problem: Problem) -> Problem:
    """Give a problem of the whole value its subject."""
    verb, _, rest = problem.message.partition(" ")
    if problem.path or verb == "unknown":
        return problem
    return Problem("", f"the arguments {_PLURALS.get(verb, verb)} {rest}")


_PLURALS = {"is": "are", "has": "have", "does": "do"}


def compile_raw_parameters(schema: Mapping[str, JSON] | str, *, checked: Checked = "now") -> RawParameters:
    """Make parameters of an author's schema. Raises: RegistrationError."""
    try:
        return RawParameters(input_schema(schema), checked)
    except RecursionError:
        raise RegistrationError("the input schema is nested too deeply; flatten it") from None


def check_schema(schema: Mapping[str, JSON]) -> None:
    """Refuse a schema that is not valid, as far as that is known here. Raises: RegistrationError."""
    if _walked(schema, False).left_out:
        _listed(schema, False)
