"""Where the tools of a Python file are written, and which rules their authors ignore there. The file is read, not run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

_IGNORED: Final = re.compile(r"#\s*linkspan:\s*ignore\[([A-Z0-9, ]+)\]")


class SourceLocation(msgspec.Struct, frozen=True):
    """Where a tool is defined."""

    line: int
    ignored: frozenset[str] = frozenset()
    """The codes in `# linkspan: ignore[L07, L21]` on its decorators or its `def`."""


def places(source: str) -> Mapping[str, SourceLocation]:
    """Return the places of functions that are decorated with `@....tool`, by the names of the tools; of a file that cannot be
    parsed, nothing."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lines = source.splitlines()
    found: dict[str, SourceLocation] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in _names(node):
                first = min(each.lineno for each in (node, *node.decorator_list))
                head = "\n".join(lines[first - 1 : node.body[0].lineno])
                codes = [each.strip() for text in _IGNORED.findall(head) for each in text.split(",")]
                found.setdefault(name, SourceLocation(node.lineno, frozenset(codes)))
    return found


def _names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names of the tools that a function is."""
    for each in node.decorator_list:
        call = each if isinstance(each, ast.Call) else None
        called = call.func if call is not None else each
        if not (isinstance(called, ast.Attribute) and called.attr == "tool"):
            continue
        given = [] if call is None else [*call.args[:1], *(one.value for one in call.keywords if one.arg == "name")]
        texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        yield texts[0] if texts else node.name
