"""`linkspan check`: whether a server does what the protocol requires, looked at from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.checks.peer import PeerUnreachable
from linkspan.checks.requirement import REQUIREMENTS, CheckOutcome
from linkspan.checks.running import LEVELS, counts, run
from linkspan.checks.targets import opener
from linkspan.cli.login import with_login
from linkspan.cli.main import parser_for
from linkspan.cli.options import (
    REPEATABLE,
    WrongUse,
    add_output,
    header,
    listed,
    named_call,
    near,
    parsed,
    split,
    variable,
)
from linkspan.cli.session import REFUSED, UNREACHABLE, WRONG_USE
from linkspan.cli.terminal import Style, Terminal, dump
from linkspan.client.targets import UnusableTarget, resolve
from linkspan.text import split_object

_EXAMPLES: Final = """TARGET is a URL, a .py file, a command in quotes, or mcp.json:NAME, in any language and of any SDK.
A tool is called only if it has readOnlyHint and needs no arguments, or if --call names it.
Ids such as MSG-11 name requirements; docs/requirements.md explains each of them, with its place in the specification.

examples:
  linkspan check server.py
  linkspan check https://mcp.example.com/mcp --header "Authorization: Bearer $TOKEN"
  linkspan check --call 'search={"query": "ferry"}' -- npx -y some-server
  linkspan check --only META-3,H5-8 http://127.0.0.1:8000/mcp

exit status: 0 nothing failed, 1 a requirement is not met, 2 the command line is wrong, 3 the server could not be reached"""


def main(arguments: Sequence[str]) -> int:
    """Check a server, and return the exit status."""
    given, after = split(list(arguments))
    about = "Check that a server does what the protocol requires, in both of its eras."
    parser = parser_for("linkspan check", about, _EXAMPLES, allow_abbrev=False)
    parser.add_argument("target", metavar="TARGET", nargs="?", help="the server; see below")
    parser.add_argument("--only", metavar="IDS", help="these requirements only, such as MSG-11,TOOL-5")
    parser.add_argument(
        "--call",
        type=named_call,
        metavar="NAME=JSON",
        help="call this tool, too, with arguments (repeatable)",
        **REPEATABLE,
    )
    parser.add_argument(
        "--header", type=header, metavar="NAME:VALUE", help="send this to a URL (repeatable)", **REPEATABLE
    )
    parser.add_argument(
        "--env", type=variable, metavar="KEY=VALUE", help="set this for a command (repeatable)", **REPEATABLE
    )
    parser.add_argument("--cwd", metavar="DIR", help="the directory of a command")
    parser.add_argument("--strict", action="store_true", help="fail for what the protocol only recommends, too")
    parser.add_argument("--markdown", action="store_true", help="a report to paste into an issue")
    add_output(parser)
    options: Any = parsed(parser, given)
    terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
    try:
        return _checked(options, after or options.target, terminal)
    except (WrongUse, UnusableTarget) as problem:
        terminal.fail(f"linkspan check: {problem}")
        return WRONG_USE
    except PeerUnreachable as problem:
        terminal.fail(f"linkspan check: the server could not be reached: {problem}")
        return UNREACHABLE


def _checked(options: Any, target: str | tuple[str, ...] | None, terminal: Terminal) -> int:
    """Run the checks and print the report; return the exit status."""
    if target is None:
        raise WrongUse("name the server, such as `linkspan check server.py`")
    if isinstance(target, str) and (file := Path(split_object(target)[0])).suffix == ".py" and file.is_file():
        target = str(file.resolve()) + target[len(split_object(target)[0]) :]
    resolved = resolve(target, env=dict(options.env), cwd=options.cwd)
    only = _ids(options.only)
    found: list[CheckOutcome] = []
    headers: Mapping[str, str] = dict(options.header)
    if resolved.url is not None:
        headers = with_login(resolved.url, {**resolved.headers, **headers})
    for each in run(opener(resolved, headers, dict(options.call)), only):
        found.append(each)
        if not (options.json or options.markdown) and (each.level in ("fail", "warn") or terminal.verbose):
            terminal.emit(_line(each, terminal.out))
    title = resolved.origin.server
    if options.json:
        terminal.emit(dump({"target": title, "outcomes": [msgspec.to_builtins(each) for each in found]}))
    elif options.markdown:
        terminal.emit(_markdown(title, found))
    else:
        spoken = ", ".join(dict.fromkeys(each.revision for each in found))
        terminal.emit(f"{terminal.out.bold(title)} in {spoken}: {counts(found)}")
    failing = ("fail", "warn") if options.strict else ("fail",)
    return REFUSED if any(each.level in failing for each in found) else 0


_WORDS: Final[Mapping[str, str]] = {"fail": "FAIL", "warn": "warn", "skip": "skip", "pass": "pass"}


def _line(found: CheckOutcome, style: Style) -> str:
    paint = {"fail": style.red, "warn": style.yellow, "skip": style.dim, "pass": style.dim}[found.level]
    head = f"{_WORDS[found.level]}  {found.id} ({found.revision})  {found.words}"
    lines = [paint(head), f"        {found.evidence}" if found.evidence else ""]
    return "\n".join(each for each in [*lines, f"        {found.source}" if found.level == "fail" else ""] if each)


def _markdown(title: str, found: Sequence[CheckOutcome]) -> str:
    lines = [
        f"### {_cell(title)}",
        "",
        counts(found),
        "",
        "| | requirement | revision | evidence |",
        "|---|---|---|---|",
    ]
    for each in sorted(found, key=lambda each: LEVELS.index(each.level)):
        if each.level in ("fail", "warn"):
            words = f"[{each.id}]({each.source}): {_cell(each.words)}"
            lines.append(f"| {each.level} | {words} | {each.revision} | {_cell(each.evidence)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\`*_[]<>|@" else each for each in text)


def _ids(given: str | None) -> frozenset[str]:
    """Return the ids of an option. Raises: WrongUse."""
    known = {each.id for each in REQUIREMENTS}
    found = frozenset(each.strip().upper() for each in given.split(",")) if given is not None else frozenset[str]()
    for each in found - known:
        raise WrongUse(
            f"--only: there is no requirement {each!r}{near(each, known)}; choose from {listed(sorted(known))}"
        )
    return found
