"""Schemas that did not come from hints: a validator for them, and arguments that are checked by one.

jsonschema-rs if it is installed, else jsonschema; neither ever fetches a `$ref`. Checklist 1.11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError, install_hint
from linkspan.schema.compile import AskParameter, Decoded
from linkspan.schema.document import DRAFT_7, check_document, dialect_of, input_schema
from linkspan.schema.headers import header_paths
from linkspan.schema.kinds import is_object
from linkspan.schema.problems import ArgumentsInvalid, Problem, at
from linkspan.schema.repair import repair_value
from linkspan.schema.told import holder, told
from linkspan.types.base import JSON, JSONObject

__all__ = [
    "Checked",
    "RawParameters",
    "Validator",
    "check_schema",
    "compile_raw_parameters",
    "compile_validator",
    "input_schema",
]

Checked: TypeAlias = Literal["now", "later", "never"]
"""When a schema is compiled to check arguments: at once, when a call first wants it checked, or not at all."""

_MOST_PROBLEMS = 100


class Validator:
    """A compiled schema."""

    __slots__ = ("_errors", "_is_valid")

    def __init__(self, is_valid: Callable[[JSON], bool], errors: Callable[[JSON], Iterable[Problem]]) -> None:
        self._is_valid = is_valid
        self._errors = errors

    def check(self, value: JSON) -> tuple[Problem, ...]:
        """Return what is wrong with a JSON value; nothing if it fits."""
        try:
            if self._is_valid(value):
                return ()
        except (ValueError, OverflowError, TypeError):
            return (Problem("", "has a number or a text that cannot be checked"),)
        return tuple(dict.fromkeys(islice(self._errors(value), _MOST_PROBLEMS)))


def compile_validator(schema: Mapping[str, JSON]) -> Validator:
    """Compile a schema of 2020-12 (the default) or draft-07.

    Raises: RegistrationError for a schema that is not valid, is too large, has a pattern that may take for ever, or refers
    outside itself; and where no library for schemas is installed.
    """
    draft = dialect_of(schema)
    try:
        check_document(schema)
    except RecursionError:
        raise RegistrationError(
            "the schema is nested too deeply, or its references are a long chain; flatten it"
        ) from None
    try:
        library: Any = import_module("jsonschema_rs")
    except ImportError:
        return _with_jsonschema(schema, draft)
    return _with_jsonschema_rs(library, schema, draft)


def _with_jsonschema_rs(library: Any, schema: Mapping[str, JSON], draft: str) -> Validator:
    chosen = library.Draft7Validator if draft == DRAFT_7 else library.Draft202012Validator
    try:
        compiled = chosen(dict(schema), retriever=_refuse, pattern_options=library.RegexOptions())
    except (library.ValidationError, library.ReferencingError, ValueError, TypeError) as problem:
        raise RegistrationError(f"the schema is not valid: {_first_line(problem)}") from None

    def errors(value: JSON) -> Iterable[Problem]:
        for each in compiled.iter_errors(value):
            place: list[str | int] = list(each.schema_path)
            keyword: str = each.kind.name
            if place[-1:] == ["dependentRequired"]:
                keyword = "dependentRequired"
            held = holder(schema, place)
            yield from told(keyword, held, schema, each.instance, _path(each.instance_path), each.message)

    return Validator(compiled.is_valid, errors)


def _with_jsonschema(schema: Mapping[str, JSON], draft: str) -> Validator:
    try:
        jsonschema: Any = import_module("jsonschema")
        referencing: Any = import_module("referencing")
    except ImportError:
        raise RegistrationError(
            f"a schema that is written by hand needs a library to check it: {install_hint('schema')}"
        ) from None
    chosen: Any = jsonschema.Draft7Validator if draft == DRAFT_7 else jsonschema.Draft202012Validator
    try:
        chosen.check_schema(dict(schema))
    except jsonschema.SchemaError as problem:
        raise RegistrationError(f"the schema is not valid: {_first_line(problem)}") from None
    compiled = chosen(dict(schema), registry=referencing.Registry())

    def errors(value: JSON) -> Iterable[Problem]:
        for each in compiled.iter_errors(value):
            path = _path(each.absolute_path)
            yield from told(
                each.validator or "falseSchema", _members(each.schema), schema, each.instance, path, each.message
            )

    return Validator(compiled.is_valid, errors)


def _members(schema: JSON) -> Mapping[str, JSON]:
    return schema if is_object(schema) else {}


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

    def __init__(self, schema: JSONObject, checked: Checked) -> None:
        self.json_schema = schema
        self.headers: Mapping[tuple[str, ...], str] = header_paths(schema)
        self.asks: tuple[AskParameter, ...] = ()
        self.context_parameter: str | None = None
        self.description: str | None = None
        self._is_checked = checked != "never"
        self._validator = compile_validator(schema) if checked == "now" else None

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
        given: JSON = values
        repairs: list[str] = []
        validator = self._compiled() if check and self._is_checked else None
        problems = _problems(validator, given)
        if problems and repair:
            mended = repair_value(given, self.json_schema, self.json_schema, "", repairs)
            problems = _problems(validator, mended)
            given = mended
        if problems:
            raise ArgumentsInvalid(problems)
        members: dict[str, JSON] = given
        return Decoded(dict(members), tuple(repairs))

    def _compiled(self) -> Validator:
        if self._validator is None:
            self._validator = compile_validator(self.json_schema)
        return self._validator


def _problems(validator: Validator | None, given: JSON) -> tuple[Problem, ...]:
    if validator is not None:
        try:
            found = validator.check(given)
        except RecursionError:
            return (Problem("", "the arguments are nested too deeply"),)
        if found:
            return found
    if not is_object(given):
        from linkspan.schema.problems import describe_value

        return (Problem("", f"the arguments must be an object, got {describe_value(given)}"),)
    return ()


def compile_raw_parameters(schema: Mapping[str, JSON] | str, *, checked: Checked = "now") -> RawParameters:
    """Make parameters of an author's schema. Raises: RegistrationError."""
    try:
        return RawParameters(input_schema(schema), checked)
    except RecursionError:
        raise RegistrationError("the input schema is nested too deeply; flatten it") from None


def check_schema(schema: Mapping[str, JSON]) -> None:
    """Refuse a schema that is not valid, if a library is installed that can tell. Raises: RegistrationError."""
    if any(find_spec(library) is not None for library in ("jsonschema_rs", "jsonschema")):
        compile_validator(schema)
