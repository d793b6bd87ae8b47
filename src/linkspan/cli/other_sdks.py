"""Whether an installed command needs another version of its SDK than is beside it: found by reading, not by running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["missing_module"]

_STARTS: Final = re.compile(r"^(?:from|import) (?!re\b|sys\b)(\w+)", re.MULTILINE)
_IMPORTS: Final = re.compile(r"^\s*(?:from|import) ((?:mcp|fastmcp)(?:\.\w+)*)", re.MULTILINE)
_MAX_FILES: Final = 400


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
