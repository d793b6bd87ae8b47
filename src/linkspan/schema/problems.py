"""What is wrong with a value, where, in words that a model can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from linkspan.types.base import JSON

__all__ = ["ArgumentsInvalid", "Problem", "Problems", "show", "unknown_argument"]

_MAX_SHOWN = 60
_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `path` is like `items[2].price`, empty for the whole value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"`{self.path}` {self.message}" if self.path else self.message


class ArgumentsInvalid(Exception):
    """A value does not fit. `str()` of it names every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        shown = [str(each) for each in problems[:_MAX_PROBLEMS]]
        if len(problems) > _MAX_PROBLEMS:
            shown.append(f"and {len(problems) - _MAX_PROBLEMS} more")
        super().__init__("; ".join(shown))
        self.problems = tuple(problems)


class Problems:
    """Collects problems, and the repairs that made others go away."""

    __slots__ = ("found", "repair", "repairs")

    def __init__(self, *, repair: bool = False) -> None:
        """`repair` allows decoding a JSON text where an array or an object is wanted."""
        self.found: list[Problem] = []
        self.repairs: list[str] = []
        self.repair = repair

    def add(self, path: str, message: str) -> None:
        """Note a problem."""
        self.found.append(Problem(path, message))

    def mistyped(self, path: str, wanted: str, value: JSON) -> None:
        """Note that a value is of the wrong kind."""
        self.add(path, f"must be {wanted}, got {show(value)}")

    def repaired(self, path: str, value: JSON, opening: str) -> JSON:
        """Return what a JSON text says if it says an array or object (`opening` is its bracket); else the text itself."""
        if not self.repair or not isinstance(value, str) or not value.lstrip().startswith(opening):
            return value
        try:
            decoded: JSON = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
        self.repairs.append(f"`{path}` was a JSON text instead of {'an array' if opening == '[' else 'an object'}")
        return decoded


def show(value: JSON) -> str:
    """Say a value, clipped, with its kind: `the string "x"`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {_clipped(msgspec.json.encode(value.encode(errors='replace').decode()).decode())}"
        case int() | float():
            return _clipped(str(value))
        case list():
            return "an array"  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return "an object"  # pyright: ignore[reportUnknownVariableType]
        case _:
            return type(value).__name__


def unknown_argument(name: str, known: Iterable[str]) -> str:
    """Say that there is no such member, and which one was probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f", did you mean `{close[0]}`?" if close else ""
    return f"unknown argument `{_clipped(name)}`{hint}"


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
