"""Schemas that did not come from hints: what checks them, and arguments that are checked by it.

The keywords that nearly every schema uses are compiled to shapes, as hints are. The rest needs jsonschema-rs, whose regular
expressions are linear. Nothing ever fetches a `$ref` (JS-1 to JS-5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Raw

from linkspan.errors import RegistrationError, install_hint
from linkspan.schema.document import DRAFT_7, check_document, dialect_of, header_paths, input_schema, subschemas
from linkspan.schema.parameters import AskParameter, Decoded, read_arguments
from linkspan.schema.problems import (
    ArgumentsInvalid,
    Problem,
    UnknownMember,
    at,
    describe_value,
    first_line,
    quote,
    unknown_words,
)
from linkspan.schema.shapes import Shape, Steps, TooManySteps, Walk
from linkspan.schema.summary import local_target
from linkspan.schema.written import WrittenCompiler, compile_written
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = [
    "Checked",
    "RawParameters",
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

    def read(self, value: JSON, *, repair: bool, coerce: bool = False) -> Reading:
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

    def read(self, value: JSON, *, repair: bool, coerce: bool = False) -> Reading:
        walk = Walk(repair=repair, coerce=coerce, is_arguments=self._is_arguments, steps=Steps(value))
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


class _CheckedByRust:
    """A schema that jsonschema-rs checks. What it refuses is explained by the walk, but for those that the walk lacks."""

    __slots__ = ("_compiled", "_compiler", "_is_arguments", "_schema", "_walked")
    left_out: tuple[str, ...] = ()
    advice = ""

    def __init__(self, compiled: Any, schema: Mapping[str, JSON], *, is_arguments: bool) -> None:
        self._compiled = compiled
        self._schema = schema
        self._is_arguments = is_arguments
        self._compiler = WrittenCompiler(schema, dialect_of(schema) == DRAFT_7, wide=True)
        self._walked = _Walked(self._compiler.shape(schema, "#"), (), is_arguments=is_arguments)

    def check(self, value: JSON) -> tuple[Problem, ...]:
        return self.read(value, repair=False).problems

    def read(self, value: JSON, *, repair: bool, coerce: bool = False) -> Reading:
        try:
            if self._compiled.is_valid(value):
                return Reading(value)
            found = self._walked.read(value, repair=repair, coerce=coerce)
            if not found.problems and self._compiled.is_valid(found.value):
                return found
            problems = dict.fromkeys((*found.problems, *islice(self._reported(found.value, repair), _MOST_PROBLEMS)))
            reported = tuple(problems)[:_MOST_PROBLEMS] or (Problem("", "does not fit the schema"),)
            return Reading(found.value, reported, found.repairs)
        except RecursionError:
            return Reading(value, (Problem("", "is nested too deeply"),))
        except (ValueError, OverflowError, TypeError):
            return Reading(value, (Problem("", "has a number or a string that cannot be checked"),))

    def _reported(self, value: JSON, repair: bool) -> Iterator[Problem]:
        for each in self._compiled.iter_errors(value):
            place: list[str | int] = list(each.schema_path)
            keyword = "dependentRequired" if place[-1:] == ["dependentRequired"] else each.kind.name
            held = _holder(self._schema, place)
            path = reduce(at, each.instance_path, "")
            if keyword in _OTHERS:
                yield Problem(path, f"{_OTHERS[keyword]}, got {describe_value(each.instance)}")
            elif keyword == "dependentRequired":
                pairs = ((name, key) for key, names in held[keyword].items() if key in each.instance for name in names)
                missing = (pair for pair in pairs if pair[0] not in each.instance)
                yield from (Problem(at(path, name), f"is missing (it goes with {key})") for name, key in missing)
            elif keyword in ("additionalProperties", "unevaluatedProperties"):
                known: Mapping[str, JSON] = held.get("properties") or {}
                root = self._is_arguments and not path
                strays = (key for key in each.instance if key not in known and _is_spelled_in(key, each.message))
                yield from (UnknownMember(path, unknown_words(key, known, root=root)) for key in strays)
            else:
                walk = Walk(repair=repair, is_arguments=self._is_arguments, steps=Steps(each.instance))
                self._compiler.shape(held, "#").convert(each.instance, path, walk)
                yield from walk.problems


def compile_validator(schema: Mapping[str, JSON], *, is_arguments: bool = False) -> Validator:
    """Compile an author's schema of 2020-12 (the default) or draft-07. If `is_arguments`, its members are called arguments.

    Raises: RegistrationError for a schema that is not valid, is too large, has a pattern that may take for ever, or refers
    outside itself; and for keywords that only the extra `schema` can check, where that is not installed.
    """
    walked = _walked(schema, is_arguments)
    if not walked.left_out:
        return walked
    listed = _listed(schema, is_arguments)
    if listed is None:
        named = ", ".join(f'"{each}"' for each in walked.left_out)
        raise RegistrationError(
            f"to check {named} in a schema that is written by hand, {install_hint('schema')}; "
            "or write the schema without"
        )
    return listed


def compile_foreign(schema: Mapping[str, JSON]) -> Validator:
    """Compile an untrusted schema, as far as it can be checked without giving its writer power over our time.

    What is left out is named by the result. Raises: RegistrationError for a schema that is not valid, or cannot be used at all.
    """
    walked = _walked(schema, False)
    if not walked.left_out or any("$ref" in each for _, each, _ in subschemas(schema)):
        return walked  # jsonschema-rs counts no steps, and what refers to itself may need any number of them
    return _listed(schema, False) or walked


def _walked(schema: Mapping[str, JSON], is_arguments: bool) -> _Walked:
    draft = dialect_of(schema)
    try:
        check_document(schema)
        written = compile_written(schema, draft_7=draft == DRAFT_7)
    except RecursionError:
        raise RegistrationError(_TOO_DEEP) from None
    return _Walked(written.shape, written.left_out, is_arguments=is_arguments)


def _listed(schema: Mapping[str, JSON], is_arguments: bool) -> _CheckedByRust | None:
    try:
        library: Any = import_module("jsonschema_rs")
    except ImportError:
        return None
    chosen = library.Draft7Validator if dialect_of(schema) == DRAFT_7 else library.Draft202012Validator
    try:
        compiled = chosen(dict(schema), retriever=_refuse, pattern_options=library.RegexOptions())
    except (library.ValidationError, library.ReferencingError, ValueError, TypeError) as problem:
        raise RegistrationError(f"the schema is not valid: {first_line(problem)[:200]}") from None
    return _CheckedByRust(compiled, schema, is_arguments=is_arguments)


def _refuse(uri: str) -> JSON:
    raise ValueError(f"{uri} points outside the schema")


class RawParameters:
    """Arguments under a schema that was written by hand. The same face as `Parameters`."""

    __slots__ = (
        "_coerce",
        "_is_checked",
        "_validator",
        "asks",
        "context_parameter",
        "description",
        "headers",
        "json_schema",
    )

    runs_code = False

    def __init__(self, schema: JSONObject, checked: Checked, *, coerce: bool) -> None:
        self._coerce = coerce
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
        return self.decode_values(read_arguments(raw), repair=repair, check=check)

    def decode_values(self, values: Mapping[str, JSON], *, repair: bool = True, check: bool = True) -> Decoded:
        """Check arguments that are decoded JSON already. Raises: ArgumentsInvalid."""
        validator = self._compiled() if check and self._is_checked else None
        found = Reading(values) if validator is None else validator.read(values, repair=repair, coerce=self._coerce)
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


def compile_raw_parameters(
    schema: Mapping[str, JSON] | str, *, checked: Checked = "now", coerce: bool = False
) -> RawParameters:
    """Make parameters of an author's schema; `coerce` reads texts where numbers and booleans are wanted.

    Raises: RegistrationError.
    """
    try:
        return RawParameters(input_schema(schema), checked, coerce=coerce)
    except RecursionError:
        raise RegistrationError("the input schema is nested too deeply; flatten it") from None


def check_schema(schema: Mapping[str, JSON]) -> None:
    """Refuse a schema that is not valid, as far as that is known here. Raises: RegistrationError."""
    if _walked(schema, False).left_out:
        _listed(schema, False)


def _holder(root: Mapping[str, JSON], place: Sequence[str | int]) -> Mapping[str, JSON]:
    """Return the schema that holds the failed keyword, by its path; references are followed."""
    found: JSON = root
    for step in place[:-1]:
        found = _step(found, step, root)
    return found if is_object(found) else {}


def _step(found: JSON, step: str | int, root: Mapping[str, JSON]) -> JSON:
    if step == "$ref" and is_object(found):
        return local_target(found.get("$ref"), root)
    if is_object(found):
        return found.get(str(step))
    if is_array(found) and str(step).isdigit():
        return found[int(step)] if int(step) < len(found) else None
    return None


def _is_spelled_in(key: str, message: str) -> bool:
    """Return whether a library's message names a key: patterns and other schemas may have allowed it."""
    return repr(key) in message or quote(key) in message or f"'{key}'" in message


_OTHERS: Mapping[str, str] = {
    "falseSchema": "is not allowed",
    "not": "is a value that the schema rules out",
    "contains": "must have an item that the schema asks for",
    "propertyNames": "has a name that is not allowed",
    "unevaluatedItems": "has items that are not allowed",
    "items": "has more items than are allowed",
}
