"""What is wrong with arguments, in plain words. The reader is a model, or the person who answers a form.

No names of libraries, no URLs; long values are clipped; paths read like `items[2].price`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from linkspan.errors import LinkspanError
from linkspan.text import clip, nearest
from linkspan.types.base import JSON

TYPE_WORDS: Final[Mapping[str, str]] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
"""The types of JSON Schema, as error texts name them."""


_LONGEST_VALUE = 60
_MOST_PROBLEMS = 20
_MOST_CHOICES = 20


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: where (`items[2].price`, empty for the whole value) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}" if self.path else self.message


class UnknownMember(Problem, frozen=True):
    """A member that the schema does not name."""


class ArgumentsInvalid(LinkspanError):
    """The arguments do not fit; the text names every problem and is written for their sender (TOOL-6)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        reported = [str(each) for each in self.problems[:_MOST_PROBLEMS]]
        more = len(self.problems) - len(reported)
        super().__init__("; ".join(reported) + (f"; and {more} more" if more > 0 else ""))

    def renamed(self, names: Mapping[str, str]) -> ArgumentsInvalid:
        """Return the same of arguments that their sender calls by other names."""
        return ArgumentsInvalid(_renamed(each, names) for each in self.problems) if names else self

    @property
    def kind(self) -> str:
        """What is wrong, for instrumentation."""
        missing = all(each.message == "is missing" for each in self.problems)
        return "missing_required_arguments" if missing else "invalid_arguments"


def _renamed(problem: Problem, names: Mapping[str, str]) -> Problem:
    for own, name in names.items():
        if problem.path == own or problem.path.startswith((f"{own}.", f"{own}[")):
            return msgspec.structs.replace(problem, path=name + problem.path[len(own) :])
    return problem


def kind_of_json(raw: msgspec.Raw) -> str | None:
    """Return what a JSON value is, by its first character; None for null. What is absent is an object."""
    first = bytes(memoryview(raw)[:1])
    return {b"": "object", b"{": "object", b"[": "an array", b'"': "a string", b"n": None}.get(
        first, "a boolean" if first in (b"t", b"f") else "a number"
    )


def at(path: str, step: str | int) -> str:
    """Return the path of a member (a name) or an item (an index) of what `path` names."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    plain = step.isidentifier() or step.replace("_", "a").replace("-", "a").replace("$", "a").isalnum()
    if not plain or len(step) > _LONGEST_VALUE:
        return f"{path}[{quote(step)}]"
    return f"{path}.{step}" if path else step


def quote(text: str) -> str:
    """Return a text in double quotes, clipped."""
    return msgspec.json.encode(clip(text, _LONGEST_VALUE).encode("utf-8", "replace").decode()).decode()


def describe_value(value: JSON) -> str:
    """Return what a JSON value is: `the string "x"`, `the number 1.5`, `null`, `an array`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quote(value)}"
        case int() | float():
            return f"the number {_number(value)}"
        case list() | tuple():
            return "an array" if value else "an empty array"
        case Mapping():
            return "an object" if value else "an empty object"
        case _:
            return f"a {type(value).__name__}"


def _number(value: int | float) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return "with too many digits"
    return repr(value)


def first_line(problem: Exception) -> str:
    """Return the first line of another library's error."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def join_words(words: Sequence[str], last: str = "or") -> str:
    """Return `a, b or c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def join_choices(choices: Sequence[str]) -> str:
    """Return `one of a, b or c`; of a great many only the first are listed."""
    if len(choices) == 1:
        return choices[0]
    if len(choices) > _MOST_CHOICES:
        return f"one of {', '.join(choices[:_MOST_CHOICES])} and {len(choices) - _MOST_CHOICES} others"
    return f"one of {join_words(choices)}"


def unknown_words(name: str, known: Iterable[str], *, root: bool) -> str:
    """Return the message for a member that the schema does not name, with the near miss it may be."""
    meant = nearest(name, known)
    shown = name if name.isidentifier() and len(name) <= _LONGEST_VALUE else quote(name)
    hint = f" (did you mean {meant}?)" if meant is not None else ""
    return f"unknown argument {shown}{hint}" if root else f"has no field {shown}{hint}"
