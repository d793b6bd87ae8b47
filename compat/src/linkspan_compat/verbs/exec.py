"""`linkspan exec`: run a program that was written for `mcp` or FastMCP, as it is."""

from __future__ import annotations

import os
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkspan.cli.main import parser_for

__all__ = ["exec_", "run_as"]

_EPILOG = """NAME is a command that a package installed, such as mcp-server-time, or a .py file.

examples:
  linkspan exec mcp-server-time --local-timezone Europe/Oslo
  linkspan exec server.py
  linkspan exec --check mcp-server-time"""


def exec_(arguments: Sequence[str]) -> int:
    """`linkspan exec NAME [ARGS...]`: serve the modules `mcp` and `fastmcp`, and run the program."""
    parser = parser_for("linkspan exec", "Run a program that was written for mcp or FastMCP, as it is.", _EPILOG)
    parser.add_argument("--check", action="store_true", help="show what it uses that is not served, without running it")
    parser.add_argument(
        "--as",
        dest="flavour",
        metavar="FLAVOUR",
        help="mcp1, mcp2, fastmcp2, fastmcp3 or fastmcp4, if it cannot be told",
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="PACKAGE", help="use the installed mcp or fastmcp as it is"
    )
    parser.add_argument("name", metavar="NAME", help="a command, or a .py file; its arguments follow")
    own, rest = _split(arguments)
    options = parser.parse_args([*own, *rest[:1]])
    if options.check:
        from linkspan_compat.verbs.check import check

        return check(options.name)
    try:
        _prepare(options.flavour, options.keep)
    except ValueError as problem:
        parser.error(str(problem))
    return _run(options.name, rest[1:])


def run_as(arguments: Sequence[str]) -> int:
    """`linkspan run FILE --as FLAVOUR [ARGS...]`: the same for a file."""
    parser = parser_for("linkspan run", "Run a file that was written for mcp or FastMCP, as it is.", _EPILOG)
    parser.add_argument("name", metavar="FILE", help="a .py file")
    parser.add_argument(
        "--as", dest="flavour", required=True, help="mcp, mcp1, mcp2, fastmcp, fastmcp2, fastmcp3, fastmcp4"
    )
    options, rest = parser.parse_known_args(arguments)
    try:
        _prepare(options.flavour, [])
    except ValueError as problem:
        parser.error(str(problem))
    return _run(options.name, rest)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide our options from NAME and what follows it, which are the program's."""
    own: list[str] = []
    given = list(arguments)
    while given and given[0].startswith("-"):
        own.append(given.pop(0))
        if own[-1] in ("--as", "--keep") and given:
            own.append(given.pop(0))
    return own, given


def _prepare(flavour: str | None, kept: Sequence[str]) -> None:
    from linkspan_compat import flavours
    from linkspan_compat.finder import install, without
    from linkspan_compat.verbs.late import load_late

    load_late()
    install(without(kept))
    if flavour is not None:
        flavours.choose(flavour)


def _run(name: str, arguments: Sequence[str]) -> int:
    if name.endswith(".py"):
        sys.argv[:] = [name, *arguments]
        sys.path.insert(0, str(Path(name).resolve().parent))
        runpy.run_path(name, run_name="__main__")
        return 0
    script = script_of(name)
    if script is None:
        function = _entry_point(name)
        if function is None:
            sys.stderr.write(
                f"linkspan exec: there is no command {name!r} here: install its package beside linkspan-compat\n"
            )
            return 2
        sys.argv[:] = [name, *arguments]
        return _status(function())
    sys.argv[:] = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
    return 0


def script_of(name: str) -> Path | None:
    """Return the script of a command, if it is Python's: beside this interpreter, or a path."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    places = [Path(name)] if os.sep in name else [folder / name for folder in folders]
    for place in places:
        try:
            with place.open("rb") as file:
                head = file.read(512)
        except OSError:
            continue
        if head.startswith(b"#!") and b"python" in head:
            return place
    return None


def _entry_point(name: str) -> Any:
    """Return the function of a command, where its script is a program of the system's."""
    from importlib.metadata import entry_points

    found = list(entry_points(group="console_scripts", name=name))
    return found[0].load() if found else None


def _status(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    sys.stderr.write(f"{value}\n")
    return 1
