"""The command line after a verb: the options that all verbs about a server share, and the arguments of tools and prompts.

linkspan VERB TARGET ... [options]
linkspan VERB ... [options] -- COMMAND ARGS...

Arguments are `key=value`, `key=@file`, `key:=json`, one JSON object, or `-` for one on stdin. The tool's schema decides which
values are strings and which are JSON; mistakes that it reveals are reported before anything is sent.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from linkspan.flows.state import DEFAULT_TIMEOUTS, Timeouts
from linkspan.schema.summary import properties_of, required_of, type_words, types_of
from linkspan.text import nearest
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.redaction import one_line

__all__ = [
    "CommandLine",
    "Options",
    "Typed",
    "WrongUse",
    "add_output",
    "check_names",
    "listed",
    "near",
    "parse",
    "seconds",
    "split",
    "texts",
    "timeouts_of",
    "values",
]

_TARGET = (
    "a .py file (or FILE.py:OBJECT), a command in quotes, mcp.json:NAME or a URL; or `-- COMMAND ARGS...` at the end"
)

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


class WrongUse(Exception):
    """The command line is wrong; the message states what to change."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the shared options; `own` has those of the verb."""

    verb: str
    target: str | tuple[str, ...]
    own: argparse.Namespace
    era: Literal["modern", "legacy"] | None = None
    protocol_version: str | None = None
    timeout: float | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Never shown: they may contain credentials."""
    cwd: str | None = None
    inherit_env: bool = False
    roots: tuple[str, ...] = ()
    answers: Mapping[str, str] = {}
    as_json: bool = False
    verbose: bool = False
    quiet: bool = False
    color: bool = True


class CommandLine:
    """One verb's command line. Add the verb's own arguments, then `parse`."""

    def __init__(self, verb: str, arguments: Sequence[str], description: str, examples: str = "") -> None:
        self._verb = verb
        self._given, self._command = split(list(arguments))
        self._parser = argparse.ArgumentParser(
            prog=f"linkspan {verb}",
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add = self._parser.add_argument
        if self._command is None:
            self.add("target", metavar="TARGET", help=_TARGET)

    def parse(self) -> Options:
        """Return all options. Exits with status 2 and a usage line if the command line is wrong."""
        _add_connection(self._parser)
        add_output(self._parser)
        if self._command == ():
            self._parser.error("a command must follow --")
        found = self._parser.parse_intermixed_args(self._given)
        try:
            return Options(
                verb=self._verb,
                target=self._command or found.target,
                own=found,
                era=found.era,
                protocol_version=found.protocol_version,
                timeout=found.timeout,
                env=_environment(found.env),
                headers=_headers(found.header, is_command=self._command is not None),
                cwd=found.cwd,
                inherit_env=found.inherit_env,
                roots=tuple(found.root),
                answers=pairs("--answer", found.answer),
                as_json=found.json,
                verbose=found.verbose,
                quiet=found.quiet,
                color=not found.no_color,
            )
        except WrongUse as problem:
            self._parser.error(str(problem))


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a mapping. Raises: WrongUse."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise WrongUse(f"{option} must be followed by key=value, got {text!r}")
        found[key] = value
    return found


def split(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Split a command line from the command after `--`, None without a `--`."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _headers(texts: Sequence[str], *, is_command: bool) -> dict[str, str]:
    """Return NAME:VALUE texts as a mapping. An error does not quote the text: it may be a secret."""
    if texts and is_command:
        raise WrongUse("--header is for a server at a URL; a command gets --env KEY=VALUE")
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()):
            raise WrongUse("--header must be followed by NAME:VALUE, such as 'Authorization: Bearer ...'")
        if not _HEADER_VALUE.fullmatch(value.strip()):
            raise WrongUse(
                f"--header {name.strip()} has a value with line breaks or characters that HTTP does not allow"
            )
        found[name.strip()] = value.strip()
    return found


def _environment(texts: Sequence[str]) -> dict[str, str]:
    """Return the variables for the server's environment; a name alone passes ours on."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise WrongUse(
                f"--env {name} passes on a variable that is not set here: set it, or write --env {name}=VALUE"
            )
        found[name] = value if equals else os.environ[name]
    return found


def seconds(text: str) -> float:
    """Read a duration. Raises: argparse.ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return found


def timeouts_of(seconds: float | None) -> Timeouts:
    """Return deadlines from one number: half of it for the first request, which leaves time for a handshake."""
    if seconds is None:
        return DEFAULT_TIMEOUTS
    probe = min(DEFAULT_TIMEOUTS.probe, seconds / 2)
    return Timeouts(
        connect=seconds, probe=probe, list=seconds, call=seconds, total=max(seconds, DEFAULT_TIMEOUTS.total)
    )


def _add_connection(parser: argparse.ArgumentParser) -> None:
    add: Any = parser.add_argument_group("the server").add_argument
    add(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="deadline for the start, and for each response or sign of progress",
    )
    add(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a variable of the server; KEY alone passes on that of the shell (repeatable)",
    )
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="send this with every request to a URL (repeatable); it is never shown",
    )
    add("--inherit-env", action="store_true", help="pass on the whole environment, not only what most programs need")
    add("--cwd", metavar="DIR", help="working directory of the server")
    add("--era", choices=("modern", "legacy"), help="use this era only (default: negotiated)")
    add("--protocol-version", metavar="DATE", help="use this revision only")
    add("--root", action="append", default=[], metavar="DIR", help="offer this directory to the server (repeatable)")
    add("--answer", action="append", default=[], metavar="FIELD=VALUE", help="answer the server's form (repeatable)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of the output."""
    add: Any = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="one JSON document on stdout: the result, or the error with its fields")
    add("-v", "--verbose", action="store_true", help="also show the server's stderr, log messages and events")
    add("-q", "--quiet", action="store_true", help="show the result only")
    add("--no-color", action="store_true", help="no colours; the same as NO_COLOR=1")


_MANY = 30


class Typed:
    """Arguments as typed: one JSON object, or a text for each key."""

    def __init__(self, whole: JSONObject | None, single: Mapping[str, tuple[str, bool]]) -> None:
        self.whole = whole
        self.single = single
        """For each key its text, and whether that must be JSON."""


def parse(words: Sequence[str]) -> Typed:
    """Return the arguments in the words of a command line. Raises: WrongUse."""
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        text, where = words[0], "the arguments"
        if text == "-":
            where = "the arguments on stdin"
            try:
                text = sys.stdin.read()
            except UnicodeDecodeError:
                raise WrongUse(f"{where} are not UTF-8 text") from None
        found = _json(text, where)
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
    """Return the arguments of a prompt, which are all strings. Raises: WrongUse."""
    if typed.whole is not None:
        wrong = [key for key, value in typed.whole.items() if not isinstance(value, str)]
        if wrong:
            raise WrongUse(f"a prompt's arguments must be strings; {wrong[0]!r} is not")
        return typed.whole
    return {key: text for key, (text, _) in typed.single.items()}


def values(typed: Typed, schema: JSON, *, checked: bool = True) -> JSONObject:
    """Return the arguments of a tool; `schema` is its input schema, None if that is unknown.

    If not `checked`, a text is sent unchanged where the schema requires something else. Raises: WrongUse.
    """
    if typed.whole is not None:
        return typed.whole
    known = properties_of(schema)
    return {
        key: _json(text, f"{key}:=") if forced else _value(key, text, known.get(key), schema, checked=checked)
        for key, (text, forced) in typed.single.items()
    }


def check_names(what: str, given: Iterable[str], schema: JSON) -> None:
    """Check that all arguments are in the schema, and that none is missing. Raises: WrongUse."""
    known = list(properties_of(schema))
    if is_object(schema) and not (schema.get("additionalProperties") or schema.get("patternProperties")):
        unknown = [each for each in given if each not in known]
        if unknown and (known or schema.get("additionalProperties") is False):
            takes = f"it takes {listed(known)}" if known else "it takes none"
            raise WrongUse(f"{what} has no argument {unknown[0]!r}{near(unknown[0], known)}; {takes}")
    missing = [each for each in required_of(schema) if each not in set(given)]
    if missing:
        example = f"{missing[0]}=..."
        raise WrongUse(f"{what} needs the argument{'s' * (len(missing) > 1)} {listed(missing)}: write {example}")


def near(name: str, known: Collection[str]) -> str:
    """Return ` (did you mean 'roll'?)`, or an empty text."""
    meant = nearest(name, known)
    return f" (did you mean {one_line(meant)!r}?)" if meant is not None else ""


def listed(names: Sequence[str]) -> str:
    """Return names in a row; a long list is cut."""
    shown = [one_line(each, 60) for each in names[:_MANY]]
    return ", ".join(shown) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")


def _value(key: str, text: str, schema: JSON, root: JSON, *, checked: bool) -> JSON:
    """Read a text by the schema: a string where one is allowed, else JSON."""
    allowed = types_of(schema, root)
    if allowed == frozenset({"string"}):
        return text
    try:
        found: JSON = json.loads(text)
    except ValueError:
        if "string" in allowed or not checked:
            return text
        words = one_line(type_words(schema, root), 120)
        raise WrongUse(f"{key} must be JSON ({words}); got {one_line(text, 60)!r}{_example(key, allowed)}") from None
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


def _read(key: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise WrongUse(
            f"{key}=@{path}: {reason} (@ begins the name of a file; write {key}:='\"@...\"' for a text)"
        ) from None
    except UnicodeDecodeError:
        raise WrongUse(f"{key}=@{path}: the file is not UTF-8") from None
