"""Arguments as people type them: `key=value`, `key=@file`, `key:=json`, one JSON object, or `-` for one on stdin.

The schema of the tool says which values are texts and which are JSON; with it, what the tool does not know is found before
anything is sent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from linkspan.cli.target import WrongUse
from linkspan.schema.summary import properties_of, required_of, type_words, types_of
from linkspan.text import nearest
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.plain import one_line

__all__ = ["Typed", "check_names", "listed", "near", "parse", "texts", "values"]

_MANY = 30


class Typed:
    """What was typed: one JSON object, or a text for each key."""

    def __init__(self, whole: JSONObject | None, single: Mapping[str, tuple[str, bool]]) -> None:
        self.whole = whole
        self.single = single
        """For each key its text, and whether that is JSON for sure."""


def parse(words: Sequence[str]) -> Typed:
    """Take the words of a command line apart. Raises: WrongUse."""
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        text = _stdin() if words[0] == "-" else words[0]
        found = _json(text, "the arguments on stdin" if words[0] == "-" else "the arguments")
        if not is_object(found):
            raise WrongUse(f"the arguments must be one JSON object, got {one_line(text, 60)}")
        return Typed(found, {})
    single: dict[str, tuple[str, bool]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or key == ":":
            raise WrongUse(f"arguments are key=value, or one JSON object, got {word!r}")
        forced = key.endswith(":")
        key = key.removesuffix(":")
        if key in single:
            raise WrongUse(f"the argument {key!r} is given twice; a list is written as JSON, as in {key}='[1, 2]'")
        single[key] = (_read(key, text[1:]) if text.startswith("@") else text, forced)
    return Typed(None, single)


def texts(typed: Typed) -> dict[str, str]:
    """Return the arguments of a prompt, which are all texts. Raises: WrongUse."""
    if typed.whole is not None:
        wrong = [key for key, value in typed.whole.items() if not isinstance(value, str)]
        if wrong:
            raise WrongUse(f"a prompt's arguments must be strings; {wrong[0]!r} is not")
        return typed.whole
    return {key: text for key, (text, _) in typed.single.items()}


def values(typed: Typed, schema: JSON, *, checked: bool = True) -> JSONObject:
    """Return the arguments of a tool; `schema` is its input schema, None if that is not known.

    A text where the schema wants something else goes as it is if not `checked`. Raises: WrongUse.
    """
    if typed.whole is not None:
        return typed.whole
    known = properties_of(schema)
    return {
        key: _json(text, f"{key}:=") if forced else _value(key, text, known.get(key), schema, checked=checked)
        for key, (text, forced) in typed.single.items()
    }


def check_names(what: str, given: Iterable[str], schema: JSON) -> None:
    """Refuse arguments that are not in the schema, and miss those that must be there. Raises: WrongUse."""
    known = list(properties_of(schema))
    open_ended = (
        bool(schema.get("additionalProperties") or schema.get("patternProperties")) if is_object(schema) else True
    )
    if known or (is_object(schema) and schema.get("additionalProperties") is False):
        unknown = [] if open_ended else [each for each in given if each not in known]
        if unknown:
            takes = f"it takes {listed(known)}" if known else "it takes none"
            raise WrongUse(f"{what} has no argument {unknown[0]!r}{near(unknown[0], known)}; {takes}")
    missing = [each for each in required_of(schema) if each not in set(given)]
    if missing:
        example = f"{missing[0]}=..."
        raise WrongUse(f"{what} needs the argument{'s' * (len(missing) > 1)} {listed(missing)}: write {example}")


def near(name: str, known: Collection[str]) -> str:
    """Return ` (did you mean 'roll'?)`, or nothing."""
    meant = nearest(name, known)
    return f" (did you mean {one_line(meant)!r}?)" if meant is not None else ""


def listed(names: Sequence[str]) -> str:
    shown = [one_line(each, 60) for each in names[:_MANY]]
    return ", ".join(shown) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")


def _value(key: str, text: str, schema: JSON, root: JSON, *, checked: bool) -> JSON:
    """Read a text as what the schema wants: a text where that may be one, JSON where it must be something else."""
    allowed = types_of(schema, root)
    if allowed == frozenset({"string"}):
        return text
    try:
        found: JSON = json.loads(text)
    except ValueError:
        if "string" in allowed or not checked:
            return text
        words = one_line(type_words(schema, root), 120)
        raise WrongUse(f"{key} must be JSON for: {words}; got {one_line(text, 60)!r}{_example(key, allowed)}") from None
    if schema is None:
        return found
    return (
        text
        if "string" in allowed and (found is None or isinstance(found, str) or not _fits(found, allowed))
        else found
    )


def _fits(value: JSON, allowed: Collection[str]) -> bool:
    match value:
        case bool():
            return "boolean" in allowed
        case int() | float():
            return bool({"integer", "number"} & set(allowed))
        case list():
            return "array" in allowed
        case _:
            return "object" in allowed


def _example(key: str, allowed: Collection[str]) -> str:
    if "array" in allowed:
        return f""" (write {key}='["a", "b"]')"""
    if "boolean" in allowed:
        return f" (write {key}=true or {key}=false)"
    return f""" (write {key}='{{"a": 1}}')""" if "object" in allowed else ""


def _json(text: str, where: str) -> JSON:
    try:
        return json.loads(text)
    except RecursionError:
        raise WrongUse(f"{where}: nested too deeply") from None
    except ValueError as problem:
        raise WrongUse(f"{where}: not valid JSON: {problem}") from None


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise WrongUse("the arguments on stdin are not UTF-8 text") from None


def _read(key: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise WrongUse(
            f"{key}=@{path}: {reason} (a value that begins with @ is the name of a file; write {key}:='\"@...\"' for a text)"
        ) from None
    except UnicodeDecodeError:
        raise WrongUse(f"{key}=@{path}: the file is not UTF-8") from None
