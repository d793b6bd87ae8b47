"""Programs of other SDKs: whether one needs another version than is beside it, found by reading; and what one is called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["missing_module", "program_name"]

_STARTS: Final = re.compile(r"^(?:from|import) (?!re\b|sys\b)(\w+)", re.MULTILINE)
_IMPORTS: Final = re.compile(r"^\s*(?:from|import) ((?:mcp|fastmcp)(?:\.\w+)*)", re.MULTILINE)
_MAX_FILES: Final = 400
_SUFFIXES: Final = frozenset(
    {".py", ".pyw", ".exe", ".cmd", ".bat", ".sh", ".ps1", ".js", ".mjs", ".cjs", ".ts", ".jar"}
)
_EXEC_VALUES: Final = frozenset({"--as", "--keep"})
"""Options of `linkspan exec` that a value follows."""


def program_name(command: Sequence[str]) -> str:
    """Return what a command runs, without folder and file type; behind `linkspan exec` and `linkspan run`, their program.

    `command` has at least one word.
    """
    found = command[0]
    for number, word in enumerate(command[:-1]):
        if word in ("exec", "run") and number and Path(command[number - 1]).stem == "linkspan":
            found = _behind(command[number + 1 :]) or found
            break
    path = Path(found)
    return path.stem if path.suffix.lower() in _SUFFIXES else path.name


def _behind(arguments: Sequence[str]) -> str | None:
    """Return the first word that is no option of `linkspan exec` or `linkspan run`."""
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-"):
            return word
        if word in _EXEC_VALUES:
            next(rest, None)
    return None


def missing_module(command: str) -> str | None:
    """Return the first module of an SDK that a command imports and that is not installed where it runs; None if none is known.

    `command` is the path of a script that an installer of Python packages wrote; any other has no module that is missing.
    """
    try:
        with open(command, "rb") as file:
            head = file.read(4096).decode("utf-8", errors="replace")
    except OSError:
        return None
    interpreter = re.match(r"#!\s*(\S*python[\d.]*)\s*\n", head)
    started = _STARTS.search(head)
    if interpreter is None or started is None:
        return None
    for site in Path(interpreter[1]).parent.parent.glob("lib/python3*/site-packages"):
        if not (site / "mcp").is_dir():
            continue
        for module in _imported(site / started[1]):
            place = site.joinpath(*module.split("."))
            if (site / module.partition(".")[0]).is_dir() and not (
                place.is_dir() or place.with_suffix(".py").is_file()
            ):
                return module
    return None


def _imported(package: Path) -> Iterator[str]:
    """Yield the modules of the SDKs that the sources of a package import."""
    files = sorted(package.rglob("*.py"))[:_MAX_FILES] if package.is_dir() else [package.with_suffix(".py")]
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        yield from _IMPORTS.findall(text)
