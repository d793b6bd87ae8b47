"""The part of a command line that all verbs about a server share: which server, how to start it, what to show.

linkspan VERB TARGET ... [options]
linkspan VERB ... [options] -- COMMAND ARGS...
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from linkspan.client.timeouts import DEFAULT_TIMEOUTS, Timeouts

__all__ = ["CommandLine", "Options", "WrongUse", "add_output", "pairs", "seconds", "split", "timeouts_of"]

_TARGET = "a .py file (perhaps FILE.py:OBJECT), a command in quotes, mcp.json:NAME or a URL; or `-- COMMAND ARGS...` at the end"

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


class WrongUse(Exception):
    """What was typed cannot be done; the message says what can."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared options say; `own` has the verb's."""

    verb: str
    target: str | tuple[str, ...]
    own: argparse.Namespace
    era: Literal["modern", "legacy"] | None = None
    protocol_version: str | None = None
    timeout: float | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Never shown: they are how users prove who they are."""
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
        """Read it all. Exits with status 2 and a usage line if that is not possible."""
        _add_connection(self._parser)
        add_output(self._parser)
        if self._command == ():
            self._parser.error("after -- there must be a command")
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
                headers=self._headers(found.header),
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

    def _headers(self, texts: Sequence[str]) -> dict[str, str]:
        if texts and self._command is not None:
            raise WrongUse("--header is for a server at a URL; a command gets --env KEY=VALUE")
        return _named_headers(texts)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a mapping. Raises: WrongUse."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise WrongUse(f"{option} is followed by key=value, got {text!r}")
        found[key] = value
    return found


def split(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Part a command line from the command that stands behind `--`, None if there is no `--`."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _named_headers(texts: Sequence[str]) -> dict[str, str]:
    """Return NAME:VALUE texts as a mapping. What is wrong is told without the text: it may be a secret."""
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()):
            raise WrongUse("--header is followed by NAME:VALUE, such as 'Authorization: Bearer ...'")
        if not _HEADER_VALUE.fullmatch(value.strip()):
            raise WrongUse(
                f"--header {name.strip()} has a value with line breaks or characters that HTTP does not take"
            )
        found[name.strip()] = value.strip()
    return found


def _environment(texts: Sequence[str]) -> dict[str, str]:
    """Return what the server is to find in its environment; a name alone passes ours on."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise WrongUse(f"--env {name} passes on a variable that is not set here: write {name}=VALUE")
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
    """One number for all: half of it for the first question, so that there is time left for a handshake."""
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
        help="to wait for the start, and for each answer or sign of progress",
    )
    add("--env", action="append", default=[], metavar="KEY=VALUE", help="for the server; KEY alone passes ours on")
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="send this with every request to a URL (repeatable); it is never shown",
    )
    add("--inherit-env", action="store_true", help="pass our whole environment on, not only what a program needs")
    add("--cwd", metavar="DIR", help="where to start the server")
    add("--era", choices=("modern", "legacy"), help="speak only this era; otherwise it is found out")
    add("--protocol-version", metavar="DATE", help="speak only this revision")
    add("--root", action="append", default=[], metavar="DIR", help="offer this directory to the server (repeatable)")
    add("--answer", action="append", default=[], metavar="FIELD=VALUE", help="answer the server's form (repeatable)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is shown."""
    add: Any = parser.add_argument_group("what is shown").add_argument
    add("--json", action="store_true", help="one JSON document on stdout: the result, or the error with its fields")
    add("-v", "--verbose", action="store_true", help="also show the server's stderr, log messages and events")
    add("-q", "--quiet", action="store_true", help="show the result only")
    add("--no-color", action="store_true", help="no colours; NO_COLOR=1 says the same")
