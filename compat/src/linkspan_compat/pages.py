"""The part of the coming-from pages that is made of the table of names: `python -m linkspan_compat.pages docs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from linkspan_compat.names import modules, named_line

__all__ = ["PAGES", "page_with_names", "part_for"]

PAGES: Final = {"coming-from-mcp.md": "mcp", "coming-from-fastmcp.md": "fastmcp"}
"""The pages, and the packages that they are about."""

_BEGIN: Final = "<!-- from the names of linkspan-compat: python -m linkspan_compat.pages docs -->"
_END: Final = "<!-- end of the names of linkspan-compat -->"
_HEAD: Final = """## Names that linkspan-compat does not serve

With the distribution `linkspan-compat`, [programs run unchanged](other-sdks.md), except for what uses one of these names. Each
may be imported; what uses it raises an error with the same line."""


def part_for(package: str) -> str:
    """Return the part of the page about `mcp` or `fastmcp`, as Markdown between its two marks."""
    lines: dict[str, list[str]] = {}
    refused: dict[str, list[str]] = {}
    unnamed: list[str] = []
    closed: list[str] = []
    for module in modules().values():
        if module.name.partition(".")[0].partition("_")[0] != package:
            continue
        if module.is_open and not module.names:
            closed.append(module.name)
        for name, served in module.names.items():
            if served.kind not in ("placeholder", "refused"):
                continue
            line = named_line(name)
            group = unnamed if line is None else (refused if served.kind == "refused" else lines).setdefault(line, [])
            if name not in group:
                group.append(name)
    parts = [_HEAD, *_listed(lines)]
    if unnamed:
        parts.append(_filled("Without a line of their own: ", sorted(unnamed)))
    if closed:
        parts.append(_filled("Nothing is served of these modules: ", sorted(closed)))
    if refused:
        parts.append("A server that is protected by one of these does not start over HTTP:")
        parts += _listed(refused)
    return "\n".join([_BEGIN, "\n\n".join(parts), _END])


def _listed(lines: dict[str, list[str]]) -> Iterator[str]:
    if lines:
        rows = sorted((sorted(names), line) for line, names in lines.items())
        yield "\n".join(
            "\n  ".join(wrap(f"- {_coded(names)}: {_written(line)}", 126, break_long_words=False))
            for names, line in rows
        )


_PROSE: Final = re.compile(r"(?P<code>.+?)(?P<prose>(?:, (?:with|which|where|without|a|and|whose)| with an) .*)?")


def _written(line: str) -> str:
    """Return a line with its code as code."""
    found = _PROSE.fullmatch(line)
    assert found is not None
    return line if line.startswith("leave it out") else f"`{found['code']}`{found['prose'] or ''}"


def _filled(head: str, names: Sequence[str]) -> str:
    return "\n".join(wrap(f"{head}{_coded(names)}.", 128, break_long_words=False))


def _coded(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page_with_names(text: str, package: str) -> str:
    """Return a page with its part made anew; at its end where it has none."""
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before.rstrip()}\n\n{part_for(package)}\n{after.lstrip()}"


if __name__ == "__main__":
    for name, package in PAGES.items():
        page = Path(sys.argv[1]) / name
        page.write_text(page_with_names(page.read_text(encoding="utf-8"), package), encoding="utf-8")
