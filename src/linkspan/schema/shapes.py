"""What every shape is: a type that knows its JSON Schema and how to read a JSON value, collecting all problems.

The fast path does not come here: it is msgspec alone, over each shape's `native` type. A walk through shapes happens only
when msgspec refuses, or inside it through a marker, for types that msgspec does not know.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from types import NoneType
from typing import Any, Final

import msgspec

from linkspan.schema.encode import by_value, canonical
from linkspan.schema.problems import (
    TYPE_WORDS,
    Problem,
    UnknownMember,
    describe_value,
    join_choices,
    quote,
    unknown_words,
)
from linkspan.text import clip, nearest
from linkspan.types.base import JSON, UNSET, JSONObject, is_array, is_number, json_type
from linkspan.types.base import is_mapping as is_object

INVALID: Final[Any] = object()
"""What `convert` returns after it has written down a problem."""

_MOST_PROBLEMS = 100
_FEWEST_STEPS = 100_000
_STEPS_PER_VALUE = 20


class Rendering(msgspec.Struct):
    """How schemas are being written: for providers that take little (`portable`), and for results (`output`)."""

    portable: bool = True
    output: bool = False
    by_name: bool = False
    """Set when some Enum goes by its names, which msgspec does not do by itself."""
    definitions: JSONObject = msgspec.field(default_factory=dict[str, JSON])
    names: dict[int, str] = msgspec.field(default_factory=dict[int, str])

    def reference(self, target: Shape, name: str, body: Callable[[Rendering], JSONObject]) -> JSONObject:
        """Return a `$ref` to a definition, written when it is first referred to, under a name that is free."""
        if id(target) not in self.names:
            free = next(
                each for each in chain([name], map(f"{name}{{}}".format, count(2))) if each not in self.definitions
            )
            self.names[id(target)] = free
            self.definitions[free] = {}
            self.definitions[free] = body(self)
        return {"$ref": f"#/$defs/{self.names[id(target)]}"}


class TooManySteps(RecursionError):
    """A value branches so often, in a schema whose unions contain themselves, that checking it would take for ever."""


class Steps:
    """What one check may cost: a fixed amount, and more for a large value.

    Unions that contain themselves are tried again on each level: without a bound the work doubles with the depth of a value.
    """

    __slots__ = ("_is_extended", "_left", "_value")

    def __init__(self, value: JSON) -> None:
        self._value = value
        self._left = _FEWEST_STEPS
        self._is_extended = False

    def take(self, count: int) -> None:
        """Account for some steps. Raises: TooManySteps."""
        self._left -= count
        if self._left >= 0:
            return
        if not self._is_extended:
            self._is_extended = True
            waiting: list[JSON] = [self._value]
            for each in waiting:
                waiting.extend(each.values() if is_object(each) else each if is_array(each) else ())
            self._left += _STEPS_PER_VALUE * len(waiting)
        if self._left < 0:
            raise TooManySteps


class Walk:
    """One reading of one value: the problems found, the repairs made, and how strict it is.

    `repair` decodes a JSON text where an array or object is wanted, and `coerce` one where a number or a boolean is; `exact`
    keeps 1.0 from being an int (for unions); `lenient` passes over members that are not named, and takes those that may be
    null as such where they are missing, as a reader of another's answers must. `is_arguments`: the value as a whole is the
    arguments of a call, and its members are called so. `steps` bound the work; None where nothing multiplies.
    """

    __slots__ = ("coerce", "exact", "is_arguments", "lenient", "problems", "repair", "repairs", "steps")

    def __init__(
        self,
        *,
        repair: bool = False,
        coerce: bool = False,
        exact: bool = False,
        lenient: bool = False,
        is_arguments: bool = False,
        steps: Steps | None = None,
    ) -> None:
        self.repair = repair
        self.coerce = coerce
        self.exact = exact
        self.lenient = lenient
        self.is_arguments = is_arguments
        self.steps = steps
        self.problems: list[Problem] = []
        self.repairs: list[str] = []

    @property
    def is_full(self) -> bool:
        """Whether enough problems were found; looking for more would only take time."""
        return len(self.problems) >= _MOST_PROBLEMS

    def inside(self, value: JSON, *, repair: bool = False, exact: bool = False) -> Walk:
        """Return a walk for one arm of a union at this place, which counts its steps together with the other arms."""
        steps = Steps(value) if self.steps is None else self.steps
        steps.take(1)
        return Walk(
            repair=repair,
            coerce=self.coerce and not exact,
            exact=exact,
            lenient=self.lenient,
            is_arguments=self.is_arguments,
            steps=steps,
        )

    def refuse(self, path: str, message: str) -> Any:
        """Write down a problem; returns INVALID."""
        if not self.is_full:
            self.problems.append(Problem(path, message))
        return INVALID

    def refuse_value(self, path: str, words: str, value: JSON) -> Any:
        """Write down that something else is wanted; returns INVALID."""
        return self.refuse(path, f"must be {words}, got {describe_value(value)}")

    def refuse_member(self, path: str, name: str, known: Iterable[str], more: str = "") -> None:
        """Write down a member that the schema does not name, with the near miss it may be."""
        if not self.is_full:
            words = unknown_words(name, known, root=self.is_arguments and not path)
            self.problems.append(UnknownMember(path, words + more))

    def repaired(self, value: JSON, kind: type, path: str) -> JSON:
        """Decode a text that holds an array or object in JSON, where that kind is wanted; otherwise leave it."""
        opening = "[" if kind is list else "{"
        if not self.repair or not isinstance(value, str) or value.lstrip()[:1] != opening:
            return value
        try:
            found: JSON = msgspec.json.decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return value
        self.repairs.append(
            f"{path or 'the arguments'}: decoded a string into an {'array' if kind is list else 'object'}"
        )
        return found

    def coerced(self, value: JSON, kind: Any) -> JSON:
        """Return what of a kind a text spells, in JSON or in Python; otherwise the value itself."""
        if not self.coerce or not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(value.strip().lower(), type=kind)
        except (msgspec.DecodeError, ValueError):
            return value

    def absorb(self, other: Walk) -> None:
        """Take over what another walk found."""
        self.problems.extend(other.problems)
        self.repairs.extend(other.repairs)


class Shape:
    """A type as this layer sees it.

    `kinds` are the JSON types that a value may have: string, integer, number, boolean, null, array, object. `words` are what
    to call a value: `an integer`.
    """

    __slots__ = ("_native", "kinds", "words")

    def __init__(self, kinds: Iterable[str], words: str) -> None:
        self.kinds = frozenset(kinds)
        self.words = words
        self._native: Any = UNSET

    @property
    def native(self) -> Any:
        """The type that msgspec decodes, a marker where it has none. Found when it is first needed, which no list needs."""
        if self._native is UNSET:
            try:
                self._native = self.msgspec_type()
                msgspec.json.Decoder(self._native, dec_hook=from_marker)
            except (TypeError, ValueError, RuntimeError):
                self._native = _Marker("Marker", (), {"shape": self})
        return self._native

    @property
    def compared(self) -> type | None:
        """The class of values that JSON writes as texts and that have an order, such as dates."""
        return None

    def msgspec_type(self) -> Any:
        """Return the type that msgspec decodes. Raises: TypeError, ValueError, RuntimeError if it has none."""
        raise TypeError

    def schema(self, out: Rendering) -> JSONObject:
        """Return the JSON Schema, a new object each time; that of a schema written by hand is the author's."""
        return {}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the Python value, or INVALID after writing down at least one problem."""
        return value


class _Marker(type):
    """A class of which everything is an instance: msgspec hands its values to `from_marker` and takes what comes."""

    shape: Shape  # pyright: ignore[reportUninitializedInstanceVariable]

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def is_marker(native: object) -> bool:
    """Return whether a native type is a marker."""
    return isinstance(native, _Marker)


def from_marker(kind: type, value: JSON) -> Any:
    """Read a value through the shape behind a marker: msgspec's `dec_hook`. Raises: ValueError if it does not fit."""
    if not isinstance(kind, _Marker):
        raise NotImplementedError
    walk = Walk()
    found = kind.shape.convert(value, "", walk)
    if walk.problems:
        raise ValueError("does not fit")
    return found


_LONGEST_SPELLED = 64
_HUGE = 2**60
"""From here on different numbers may be chosen to have one hash."""


class _Any(Shape):
    """Anything at all."""

    __slots__ = ()

    def msgspec_type(self) -> Any:
        """Return Any."""
        return Any


ANY: Final[Shape] = _Any(TYPE_WORDS, "any value")


class _NeverShape(Shape):
    """Nothing at all: the schema `false`."""

    __slots__ = ()

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Refuse the value."""
        return walk.refuse(path, f"is not allowed, got {describe_value(value)}")


NEVER: Final[Shape] = _NeverShape((), "nothing")


class PlainShape(Shape):
    """A text, a truth value or null."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type, name: str) -> None:
        super().__init__({name}, TYPE_WORDS[name])
        self._kind = kind

    def msgspec_type(self) -> Any:
        """Return the type itself."""
        return self._kind

    def schema(self, out: Rendering) -> JSONObject:
        """Return `{"type": ...}`."""
        return {"type": next(iter(self.kinds))}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the value if it is of the type."""
        found = walk.coerced(value, bool) if self._kind is bool else value
        return found if isinstance(found, self._kind) else walk.refuse_value(path, self.words, value)


TEXT: Final = PlainShape(str, "string")
BOOLEAN: Final = PlainShape(bool, "boolean")
NULL: Final = PlainShape(NoneType, "null")


class Number(Shape):
    """An int or a float. 1.0 is an int, true is not; an int is a float. Without a `kind` the number is left as it is."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[int] | type[float] | None = None) -> None:
        name = "integer" if kind is int else "number"
        super().__init__({"integer", name}, TYPE_WORDS[name])
        self._kind = kind

    def msgspec_type(self) -> Any:
        """Return int or float, or either."""
        return int | float if self._kind is None else self._kind

    def schema(self, out: Rendering) -> JSONObject:
        """Return `{"type": ...}`."""
        return {"type": "integer" if self._kind is int else "number"}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return an int or a float."""
        if type(value) is self._kind:
            return value
        number = walk.coerced(value, int | float)
        if not is_number(number):
            return walk.refuse_value(path, self.words, value)
        if self._kind is None or isinstance(number, self._kind):
            return number
        if walk.exact or (isinstance(number, float) and not number.is_integer()):
            return walk.refuse_value(path, self.words, value)
        try:
            return self._kind(number)
        except OverflowError:
            return walk.refuse(path, "is too large a number")


INTEGER: Final = Number(int)
FLOAT: Final = Number(float)
NUMBER: Final = Number()


class Formatted(Shape):
    """A text that stands for a value of another type, such as a date or a path.

    msgspec makes the value, or `read`, which raises ValueError for a text that does not fit.
    """

    __slots__ = ("_read", "_target", "format")

    def __init__(
        self, words: str, target: Any, format: str | None = None, read: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__({"string"}, words)
        self._target = target
        self._read = read
        self.format = format

    @property
    def is_sized(self) -> bool:
        """Whether its values have a length."""
        return hasattr(self._target, "__len__")

    @property
    def compared(self) -> type | None:
        """Its type, if that is one of dates, times or durations."""
        return self._target if self._target in _TIMES else None

    def msgspec_type(self) -> Any:
        """Return the type, if msgspec makes its values."""
        return self._target if self._read is None else super().msgspec_type()

    def schema(self, out: Rendering) -> JSONObject:
        """Return a string schema with its format."""
        naive = out.output and self.format in _WITH_OFFSET  # a result may lack the offset that the format demands
        return {"type": "string"} if self.format is None or naive else {"type": "string", "format": self.format}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the value that the text stands for."""
        if isinstance(value, self._target):
            return value
        if isinstance(value, str):
            try:
                return msgspec.convert(value, self._target) if self._read is None else self._read(value)
            except (ValueError, ArithmeticError):
                pass
        return walk.refuse_value(path, self.words, value)


class _Decimal(Shape):
    """A decimal number that arithmetic can take: `int(Decimal("1e999999999"))` never ends, and NaN compares with nothing."""

    __slots__ = ()

    @property
    def compared(self) -> type | None:
        """Decimal."""
        return decimal.Decimal

    def schema(self, out: Rendering) -> JSONObject:
        """Return a string schema: numbers are taken too, but lose digits on their way."""
        return {"type": "string"}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the number, if it is finite and neither huge nor tiny."""
        try:
            found = decimal.Decimal(str(value)) if type(value) in (str, int, float) else value
        except ArithmeticError:
            return walk.refuse_value(path, self.words, value)
        if not isinstance(found, decimal.Decimal) or not found.is_finite():
            return walk.refuse_value(path, self.words, value)
        if max(found.adjusted(), -int(found.as_tuple().exponent)) > _MOST_DIGITS:
            return walk.refuse(
                path, f"must be a decimal number of at most {_MOST_DIGITS} digits on either side of the point"
            )
        return found


_MOST_DIGITS = 1000
_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
_WITH_OFFSET = ("date-time", "time")
FORMATTED: Mapping[Any, Shape] = {
    bytes: Formatted("base64 text", bytes),
    bytearray: Formatted("base64 text", bytearray),
    datetime.datetime: Formatted('a date and time such as "1999-12-31T09:30:00Z"', datetime.datetime, "date-time"),
    datetime.date: Formatted('a date such as "1999-12-31"', datetime.date, "date"),
    datetime.time: Formatted('a time such as "09:30:00"', datetime.time, "time"),
    datetime.timedelta: Formatted('a duration such as "PT90M"', datetime.timedelta, "duration"),
    uuid.UUID: Formatted("a UUID", uuid.UUID, "uuid"),
    decimal.Decimal: _Decimal({"string"}, 'a decimal number such as "12.50"'),
}


class Choice(Shape):
    """One of several JSON values, each standing for a Python value: an Enum or a Literal. `native` reads them, if it can."""

    __slots__ = ("_by_key", "_missing", "_type", "by_name", "members")

    def __init__(
        self, members: Sequence[tuple[JSON, Any]], native: Any = None, missing: type[enum.Enum] | None = None
    ) -> None:
        wires = [wire for wire, _ in members]
        spelled = [quote(wire) if isinstance(wire, str) else msgspec.json.encode(wire).decode() for wire in wires]
        super().__init__(map(json_type, wires), join_choices([clip(each, _LONGEST_SPELLED) for each in spelled]))
        self.members = tuple(members)
        self._type = native
        self._by_key = {_key(wire): value for wire, value in members}
        self._missing = missing
        self.by_name = any(isinstance(each, enum.Enum) and not by_value(type(each)) for _, each in members)

    def msgspec_type(self) -> Any:
        """Return what msgspec reads the values by, if it can."""
        return super().msgspec_type() if self._type is None else self._type

    def schema(self, out: Rendering) -> JSONObject:
        """Return an enum with its type; several types make an `anyOf` of enums."""
        out.by_name = out.by_name or self.by_name
        by_type: dict[str, list[JSON]] = {}
        for wire, _ in self.members:
            by_type.setdefault(json_type(wire), []).append(wire)
        parts: list[JSONObject] = []
        for kind, values in by_type.items():
            keyword = {"const": values[0]} if len(values) == 1 and not out.portable else {"enum": values}
            parts.append({"type": "null"} if kind == "null" else {"type": kind, **keyword})
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the Python value that the JSON value stands for."""
        try:
            found = self._by_key.get(_key(value, lax=not walk.exact), INVALID)
        except TypeError:
            return walk.refuse_value(path, self.words, value)
        if found is not INVALID:
            return found
        if self._missing is not None and json_type(value) in self.kinds:
            with suppress(Exception):  # the Enum's own `_missing_` may know better
                return self._missing(value)
        if isinstance(value, str):
            meant = nearest(value, [wire for wire, _ in self.members if isinstance(wire, str)])
            if meant is not None and len(self.members) > 8:
                return walk.refuse(path, f"must be {self.words}, got {quote(value)} (did you mean {quote(meant)}?)")
        return walk.refuse_value(path, self.words, value)


def choices_of(source: type[enum.Enum]) -> list[tuple[JSON, Any]]:
    """Return the members of an Enum under their values, or under their names if a value is neither a text nor a number."""
    if not by_value(source):
        return [(each.name, each) for each in source]
    values = [(each.value, each) for each in source]
    return [(str.__str__(value) if isinstance(value, str) else int(value), each) for value, each in values]


def _key(value: JSON, *, lax: bool = True) -> tuple[str, JSON]:
    if lax and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list | dict) or (type(value) is int and abs(value) >= _HUGE):
        return json_type(value), canonical(value)
    return json_type(value), value
