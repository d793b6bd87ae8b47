"""`linkspan exec --check`: what a program uses that is not served, found by reading its sources. Nothing of it is run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from linkspan_compat.finder import TOP
from linkspan_compat.names import SourceModule, line_instead, modules

__all__ = ["Use", "check", "uses_in"]

_MAX_FILES = 2000


@dataclass(frozen=True)
class Use:
    """A name that a program imports from an SDK."""

    file: Path
    line: int
    module: str
    name: str
    problem: str = ""
    """Why it is not served; empty if it is."""


def check(name: str) -> int:
    """Print what a command or a file uses that is not served; return 0 if there is nothing, else 1, 2 for no such program."""
    files = sources_of(name)
    if not files:
        sys.stderr.write(f"linkspan exec --check: there is no command {name!r} here, and no file\n")
        return 2
    found = [use for file in files for use in uses_in(file)]
    wrong = [use for use in found if use.problem]
    top = files[0].parent
    for use in wrong:
        place = use.file.relative_to(top) if use.file.is_relative_to(top) else use.file
        print(f"{place}:{use.line}  {use.module}.{use.name}: {use.problem}")
    names = {(use.module, use.name) for use in found}
    missing = len({(use.module, use.name) for use in wrong})
    print(
        f"{name}: {len(names)} names of mcp and FastMCP in {len(files)} files, {missing or 'none'} of them not served"
    )
    return 1 if wrong else 0


def sources_of(name: str) -> list[Path]:
    """Return the files of a program: a file, or the package that a command starts."""
    if name.endswith(".py"):
        return [Path(name)] if Path(name).is_file() else []
    from linkspan_compat.verbs.exec import script_of

    script = script_of(name)
    if script is None:
        return []
    started = re.search(
        r"^from ([\w.]+) import|^import ([\w.]+)$",
        re.sub(r"^(import|from) (re|sys)\b.*$", "", script.read_text(), flags=re.M),
        re.M,
    )
    if started is None:
        return [script]
    spec = find_spec((started[1] or started[2]).partition(".")[0])
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    if origin.name != "__init__.py":
        return [origin]
    return [origin, *(each for each in sorted(origin.parent.rglob("*.py"))[:_MAX_FILES] if each != origin)]


def uses_in(file: Path) -> Iterator[Use]:
    """Yield the names of the SDKs that a file imports."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_ours(node.module):
            for alias in node.names:
                yield _use(file, node.lineno, str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    above, _, last = alias.name.rpartition(".")
                    yield _use(file, node.lineno, above or alias.name, last if above else "")


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in TOP


def _use(file: Path, line: int, module: str, name: str) -> Use:
    return Use(file, line, module, name, _problem(module, name))


def _problem(module: str, name: str) -> str:
    table: SourceModule | None = modules().get(module)
    if table is None:
        above = module
        while above and above not in modules():
            above = above.rpartition(".")[0]
        if above and modules()[above].is_open:
            return f"not served; write for Linkspan: {line_instead(name)}"
        return "there is no such module in mcp or FastMCP"
    if not name or name == "*" or f"{module}.{name}" in modules():
        return ""
    found = table.names.get(name)
    if found is not None:
        if found.kind == "refused":
            return f"a server with it refuses to start over HTTP; write for Linkspan: {line_instead(name)}"
        return f"not served; write for Linkspan: {line_instead(name)}" if found.kind == "placeholder" else ""
    if table.has_all_types:
        from linkspan_compat.protocol.types import types_of

        return "" if name in types_of("1") or name in types_of("2") else "there is no such name in mcp"
    return (
        f"not served; write for Linkspan: {line_instead(name)}"
        if table.is_open
        else "there is no such name in the module"
    )
