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

from linkspan.cli.main import parser_for
from linkspan.flows.state import DEFAULT_TIMEOUTS, Timeouts
from linkspan.schema.summary import properties_of, required_of, type_words, types_of
from linkspan.text import nearest
from linkspan.types.base import JSON, JSONObject, is_number, is_object, json_type
from linkspan.wire.redaction import one_line

_TARGET = (
    "a .py file (or FILE.py:OBJECT), a command in quotes, mcp.json:NAME or a URL; or `-- COMMAND ARGS...` at the end"
)

REPEATABLE: Final[Mapping[str, Any]] = {"action": "append", "default": []}
"""What `add_argument` takes for an option that may be given several times."""


class WrongUse(Exception):
    """The command line is wrong; the message states what to change."""


class Options(argparse.Namespace):
    """The values of the shared options, beside the arguments of the verb."""

    verb: str
    target: str | tuple[str, ...]
    era: Literal["modern", "legacy"] | None
    protocol_version: str | None
    timeout: float | None
    env: list[tuple[str, str]]
    header: list[tuple[str, str]]
    """Never shown: they may contain credentials."""
    cwd: str | None
    inherit_env: bool
    root: list[str]
    answer: list[tuple[str, str]]
    json: bool
    verbose: bool
    quiet: bool
    no_color: bool
    task: bool = False
    """Whether calls of tools may become tasks."""


class ChatOptions(argparse.Namespace):
    """The options of a chat."""

    prompt: str | None
    """A single question, instead of a dialogue."""
    system: str | None
    load: str | None
    resume: str | None
    continue_: bool
    sessions: bool
    private: bool
    save: str | None
    config: list[str]
    allow: list[str]
    deny: list[str]
    trust: list[str]
    yes: bool
    max_rounds: int | None
    timeout: float | None
    root: list[str]
    json: bool
    verbose: bool
    quiet: bool
    no_color: bool


class CommandLine:
    """One verb's command line. Add the verb's own arguments, then `parse`."""

    def __init__(
        self,
        verb: str,
        arguments: Sequence[str],
        description: str,
        examples: str = "",
        actions: Mapping[str, str] | None = None,
        *,
        finds_target: bool = False,
    ) -> None:
        """`actions` are words of which one comes first, and what each does.

        With `finds_target` the target may be left out; it is an empty string then.
        """
        self._verb = verb
        self._given, self._command = split(list(arguments))
        self._parser = parser_for(f"linkspan {verb}", description, examples, allow_abbrev=False)
        self.add = self._parser.add_argument
        if actions is not None:
            listed = "; ".join(f"{name}: {what}" for name, what in actions.items())
            self.add("action", metavar="ACTION", choices=list(actions), help=listed)
        if self._command is None:
            optional: Any = {"nargs": "?", "default": ""} if finds_target else {}
            self.add("target", metavar="TARGET", help=_TARGET, **optional)

    def parse(self) -> Options:
        """Return all options. Exits with status 2 and a usage line if the command line is wrong."""
        if self._command == ():
            self._parser.error("a command must follow --")
        server: Any = self._parser.add_argument_group("the server").add_argument
        by_seconds = "deadline for the start, and for each response or sign of progress"
        server("--timeout", type=seconds, metavar="SECONDS", help=by_seconds)
        passed = "set a variable of the server; KEY alone passes on that of the shell (repeatable)"
        server("-e", "--env", type=variable, metavar="KEY=VALUE", help=passed, **REPEATABLE)
        sent = "send this with every request to a URL (repeatable); it is never shown"
        server("-H", "--header", type=header, metavar="NAME:VALUE", help=sent, **REPEATABLE)
        whole = "pass on the whole environment, not only what most programs need"
        server("--inherit-env", action="store_true", help=whole)
        server("--cwd", metavar="DIR", help="working directory of the server")
        server("--era", choices=("modern", "legacy"), help="use this era only (default: negotiated)")
        server("--protocol-version", metavar="DATE", help="use this revision only")
        server("--root", metavar="DIR", help="offer this directory to the server (repeatable)", **REPEATABLE)
        server(
            "--answer", type=_answer, metavar="FIELD=VALUE", help="answer the server's form (repeatable)", **REPEATABLE
        )
        add_output(self._parser)
        try:
            options = self._parser.parse_intermixed_args(self._given, Options(verb=self._verb))
        except WrongUse as problem:
            self._parser.error(str(problem))
        if self._command:
            options.target = self._command
        return options


def split(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Split a command line from the command after `--`, None without a `--`."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


# The types of options. What a type raises is shown as it is; argparse would quote the value, which may be a secret.


def _answer(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise WrongUse(f"--answer must be followed by key=value, got {text!r}")
    return key, value


def header(text: str) -> tuple[str, str]:
    """Return the name and the value of a header. Raises: WrongUse."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise WrongUse("--header must be followed by NAME:VALUE, such as 'Authorization: Bearer ...'")
    if not re.fullmatch(r"[\t\x20-\x7e\xa0-\xff]*", value):
        raise WrongUse(f"--header {name} has a value with line breaks or characters that HTTP does not allow")
    return name, value


def variable(text: str) -> tuple[str, str]:
    """Return a variable for the server's environment; a name alone passes ours on. Raises: WrongUse."""
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise WrongUse(f"--env {name} passes on a variable that is not set here: set it, or write --env {name}=VALUE")
    return name, value if equals else os.environ[name]


def named_call(text: str) -> tuple[str, JSONObject]:
    """Read `NAME=JSON`, a tool and its arguments. Raises: WrongUse."""
    name, equals, arguments = text.partition("=")
    try:
        found: JSON = json.loads(arguments) if equals else {}
    except (ValueError, RecursionError):
        found = None
    if not name or not is_object(found):
        raise WrongUse('--call must be followed by NAME or NAME=JSON, such as \'search={"query": "ferry"}\'')
    return name, found


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


def parsed(parser: argparse.ArgumentParser, given: Sequence[str]) -> Any:
    """Return the options of a command line; end with status 2 and what to change for a wrong one."""
    try:
        return parser.parse_args(given)
    except WrongUse as problem:
        parser.error(str(problem))


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of the output."""
    add: Any = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="one JSON document on stdout: the result, or the error with its fields")
    add("-v", "--verbose", action="store_true", help="also show the server's stderr, log messages and events")
    add("-q", "--quiet", action="store_true", help="show the result only")
    add("--no-color", action="store_true", help="no colours; the same as NO_COLOR=1")


_MANY = 30
_WRITTEN: Final = {"array": """'["a", "b"]'""", "boolean": "true or KEY=false", "object": """'{"a": 1}'"""}
"""How a value of a type is written after `KEY=`."""


class Typed(msgspec.Struct):
    """Arguments as typed: one JSON object, or a text for each key."""

    whole: JSONObject | None = None
    single: dict[str, tuple[str, bool]] = {}
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
        return Typed(found)
    single: dict[str, tuple[str, bool]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or key == ":":
            raise WrongUse(f"arguments are key=value, or one JSON object, got {word!r}")
        forced = key.endswith(":")
        key = key.removesuffix(":")
        if key in single:
            raise WrongUse(f"the argument {key!r} is given twice; a list is written as JSON, as in {key}='[1, 2]'")
        if text.startswith("@"):
            try:
                text = Path(text[1:]).read_text("utf-8")
            except OSError as problem:
                other = f"@ begins the name of a file; write {key}:='\"@...\"' for a text"
                raise WrongUse(f"{word}: {problem.strerror or problem} ({other})") from None
            except UnicodeDecodeError:
                raise WrongUse(f"{word}: the file is not UTF-8") from None
        single[key] = text, forced
    return Typed(single=single)


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
    known, found = properties_of(schema), dict[str, JSON]()
    for key, (text, forced) in typed.single.items():
        if forced:
            found[key] = _json(text, f"{key}:=")
            continue
        found[key] = text
        part = known.get(key)
        allowed = types_of(part, schema)
        if allowed == frozenset({"string"}):
            continue
        try:
            value: JSON = json.loads(text)
        except ValueError:
            if "string" in allowed or not checked:
                continue
            example = next((f" (write {key}={each})" for kind, each in _WRITTEN.items() if kind in allowed), "")
            words = one_line(type_words(part, schema), 120)
            problem = f"{key} must be JSON ({words}); got {one_line(text, 60)!r}{example}"
            raise WrongUse(problem.replace("KEY", key)) from None
        kinds = {"integer", "number"} if is_number(value) else {json_type(value)} - {"string", "null"}
        if part is None or "string" not in allowed or kinds & allowed:
            found[key] = value
    return found


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


def _json(text: str, where: str) -> JSON:
    try:
        return json.loads(text)
    except RecursionError:
        raise WrongUse(f"{where}: nested too deeply") from None
    except ValueError as problem:
        raise WrongUse(f"{where}: not valid JSON: {problem}") from None
