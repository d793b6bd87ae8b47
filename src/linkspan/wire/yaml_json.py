"""YAML as JSON: the core schema of YAML 1.2, in which `2026-01-02`, `yes` and `1:30` are texts. PyYAML parses.

Law: aliases, depth, values and repeated keys are bounded or refused, and no tag makes a value of another kind.
Spec: https://yaml.org/spec/1.2.2, section 10.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from linkspan.types.base import JSON, JSONObject

_TAG: Final = "tag:yaml.org,2002:"
_MAX_DIGITS: Final = 300
"""Of a number. Readers of JSON read longer ones differently."""


class YamlBounds(msgspec.Struct, frozen=True):
    """What one document may hold."""

    depth: int
    values: int
    """Those that aliases repeat count each time."""
    aliases: int = 100
    first_line: int = 1
    """The number of its first line, in the file that it comes from."""
    plain_keys: bool = False
    """Whether a key such as 200 or true is the text that stands there, instead of being refused."""


class YamlProblem(ValueError):
    """A text is not valid YAML, or not JSON, or holds too much. The message follows the name of the text: "has more than ..."."""


def has_yaml() -> bool:
    """Return whether PyYAML is installed."""
    return find_spec("yaml") is not None


def read_yaml(text: str, bounds: YamlBounds) -> JSON:
    """Return the value of a text with one document. Raises: YamlProblem."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parse: Callable[..., Iterator[Any]] = yaml.parse  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    try:
        return _JsonReader(parse(text, Loader=loader), bounds).document()
    except yaml.YAMLError as problem:
        mark: Any = getattr(problem, "problem_mark", None)
        where = f" in line {mark.line + bounds.first_line}" if mark is not None else ""
        said = getattr(problem, "problem", None) or type(problem).__name__
        raise YamlProblem(f"is not valid YAML{where}: {said}") from None
    except RecursionError:
        raise YamlProblem("is nested too deeply") from None


class _JsonReader:
    """Makes JSON of the events of one document. PyYAML parses them without recursion; the depth here is bounded."""

    def __init__(self, events: Iterator[Any], bounds: YamlBounds) -> None:
        self._events = events
        self._bounds = bounds
        self._anchors: dict[str, tuple[JSON, int]] = {}
        self._aliases = self._values = 0

    def document(self) -> JSON:
        """Return the value of the one document that there is. Raises: YamlProblem, yaml.YAMLError."""
        event = self._next()
        while type(event).__name__ in ("StreamStartEvent", "DocumentStartEvent"):
            event = self._next()
        if type(event).__name__ == "StreamEndEvent":
            return None
        value = self._value(event, 0)
        if [type(each).__name__ for each in (self._next(), self._next())] != ["DocumentEndEvent", "StreamEndEvent"]:
            raise YamlProblem("has several YAML documents")
        return value

    def _next(self) -> Any:
        return next(self._events)

    def _value(self, event: Any, depth: int) -> JSON:
        if depth > self._bounds.depth:
            raise YamlProblem(f"is more than {self._bounds.depth} levels deep")
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._repeated(event)
        before = self._values
        self._count(1)
        if kind == "ScalarEvent":
            value: JSON = self._scalar(event)
        elif kind == "SequenceStartEvent":
            self._check_tag(event, "seq")
            value = [self._value(each, depth + 1) for each in self._until("SequenceEndEvent")]
        else:
            self._check_tag(event, "map")
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._values - before
        return value

    def _mapping(self, depth: int) -> JSONObject:
        found: JSONObject = {}
        for event in self._until("MappingEndEvent"):
            key = self._key(event)
            if key in found:
                raise self._at(event, f"the key {key[:50]!r} twice")
            found[key] = self._value(self._next(), depth + 1)
        return found

    def _key(self, event: Any) -> str:
        if type(event).__name__ == "ScalarEvent":
            key = event.value if self._bounds.plain_keys else self._scalar(event)
            if isinstance(key, str):
                return key
        raise self._at(event, "a key that is not a text: put it in quotes")

    def _until(self, end: str) -> Iterator[Any]:
        while type(event := self._next()).__name__ != end:
            yield event

    def _repeated(self, event: Any) -> JSON:
        """Return the value of an alias: one that is complete, so that nothing contains itself."""
        self._aliases += 1
        if self._aliases > self._bounds.aliases:
            raise YamlProblem(f"has more than {self._bounds.aliases} aliases")
        if event.anchor not in self._anchors:
            raise self._at(event, f"the alias *{event.anchor[:50]} of nothing before it")
        value, size = self._anchors[event.anchor]
        self._count(size)
        return value

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > self._bounds.values:
            raise YamlProblem(f"has more than {self._bounds.values} values")

    def _at(self, event: Any, problem: str) -> YamlProblem:
        return YamlProblem(f"has, in line {event.start_mark.line + self._bounds.first_line}, {problem}")

    def _check_tag(self, event: Any, usual: str) -> None:
        if event.tag not in (None, "!", _TAG + usual):
            raise self._at(event, f"the tag {event.tag[:80]!r}, which JSON has no value for")

    def _scalar(self, event: Any) -> JSON:
        """Return the value of a scalar: a quoted one is a text. Raises: YamlProblem for a number that JSON does not have."""
        text: str = event.value
        if event.tag in (_TAG + "str", "!") or (event.tag is None and not event.implicit[0]):
            return text
        if event.tag is not None:
            self._check_tag(event, "str")
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        for pattern, read in _NUMBERS:
            if pattern.fullmatch(text):
                try:
                    return read(text)
                except ValueError:
                    raise self._at(event, f"the number {text[:50]}: put it in quotes") from None
        return text


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _number(text: str) -> float:
    value = float(text)
    if len(text) > _MAX_DIGITS or not math.isfinite(value):
        raise ValueError
    return value


def _no_number(text: str) -> float:
    raise ValueError


_CONSTANTS: Final[Mapping[str, JSON]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], JSON]], ...]] = (
    (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), _integer),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), _number),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _no_number),
)
"""The core schema, section 10.3.2 of YAML 1.2.2."""
