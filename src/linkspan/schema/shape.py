"""What every shape is: a type that knows its JSON Schema and how to read a JSON value, collecting all problems.

The fast path does not come here: it is msgspec alone, over each shape's `native` type. A walk through shapes happens only
when msgspec refuses, or inside it through a marker, for types that msgspec does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from linkspan.schema.kinds import is_array, is_object
from linkspan.schema.problems import Problem, describe_value
from linkspan.types.base import JSON, JSONObject

__all__ = [
    "INVALID",
    "Rendering",
    "Shape",
    "Steps",
    "TooManySteps",
    "Walk",
    "from_marker",
    "is_marker",
    "marker",
    "usable",
]

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
            self._left += _STEPS_PER_VALUE * _size(self._value)
        if self._left < 0:
            raise TooManySteps


def _size(value: JSON) -> int:
    found = 0
    waiting: list[JSON] = [value]
    while waiting:
        each = waiting.pop()
        found += 1
        if is_object(each):
            waiting.extend(each.values())
        elif is_array(each):
            waiting.extend(each)
    return found


class Walk:
    """One reading of one value: the problems found, the repairs made, and how strict it is.

    `repair` decodes a JSON text where an array or object is wanted; `exact` keeps 1.0 from being an int (for unions);
    `lenient` passes over members that nobody knows, as a reader of another's answers must. `is_arguments`: the value as a
    whole is the arguments of a call, and its members are called so. `steps` bound the work; None where nothing multiplies.
    """

    __slots__ = ("exact", "is_arguments", "lenient", "problems", "repair", "repairs", "steps")

    def __init__(
        self,
        *,
        repair: bool = False,
        exact: bool = False,
        lenient: bool = False,
        is_arguments: bool = False,
        steps: Steps | None = None,
    ) -> None:
        self.repair = repair
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

    def step(self, count: int) -> None:
        """Account for work on this value. Raises: TooManySteps."""
        if self.steps is not None:
            self.steps.take(count)

    def inside(self, value: JSON, *, repair: bool = False, exact: bool = False) -> Walk:
        """Return a walk for one arm of a union at this place, which counts its steps together with the other arms."""
        steps = Steps(value) if self.steps is None else self.steps
        steps.take(1)
        return Walk(repair=repair, exact=exact, lenient=self.lenient, is_arguments=self.is_arguments, steps=steps)

    def refuse(self, path: str, message: str) -> Any:
        """Write down a problem; returns INVALID."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(path, message))
        return INVALID

    def refuse_value(self, path: str, words: str, value: JSON) -> Any:
        """Write down that something else is wanted; returns INVALID."""
        return self.refuse(path, f"must be {words}, got {describe_value(value)}")

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

    def absorb(self, other: Walk) -> None:
        """Take over what another walk found."""
        self.problems.extend(other.problems)
        self.repairs.extend(other.repairs)


class Shape(Protocol):
    """A type as this layer sees it."""

    @property
    def native(self) -> Any:
        """The type that msgspec decodes, a marker where it has none."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types a value may have: string, integer, number, boolean, null, array, object."""
        ...

    @property
    def words(self) -> str:
        """What to call a value of it: `an integer`."""
        ...

    def schema(self, out: Rendering) -> JSONObject:
        """Return the JSON Schema, a new object each time."""
        ...

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the Python value, or INVALID after writing down at least one problem."""
        ...


class _Marker(type):
    """A class of which everything is an instance: msgspec hands its values to `from_marker` and takes what comes."""

    shape: Shape  # pyright: ignore[reportUninitializedInstanceVariable]

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def marker(shape: Shape) -> Any:
    """Return a type for msgspec that stands for a shape."""
    return _Marker("Marker", (), {"shape": shape})


def is_marker(native: object) -> bool:
    """Tell whether a native type is a marker."""
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


def usable(native: Callable[[], Any], shape: Shape) -> Any:
    """Return a native type if msgspec takes it, else a marker for the shape."""
    try:
        found = native()
        msgspec.json.Decoder(found, dec_hook=from_marker)
    except (TypeError, ValueError, RuntimeError):
        return marker(shape)
    return found
