"""Descriptions from docstrings: Google, NumPy and Sphinx styles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from inspect import cleandoc

__all__ = ["Docstring", "parse_docstring"]

_GOOGLE = re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*$")
_OTHER_GOOGLE = re.compile(r"^(Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?|Todo|References):\s*$")
_GOOGLE_ITEM = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ITEM = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_SPHINX_OTHER = re.compile(r"^:(type|returns?|rtype|raises?|yields?|var|ivar|cvar)\b.*:")


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says of the whole, and of each parameter."""

    description: str | None = None
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(doc: str | None) -> Docstring:
    """Take a docstring apart. What is in no known style stays in the description."""
    if not doc or not doc.strip():
        return Docstring()
    body: list[str] = []
    parameters: dict[str, str] = {}
    lines = cleandoc(doc).splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.match(line):
            at = _google(lines, at + 1, parameters)
        elif _is_numpy(lines, at, "Parameters", "Other Parameters"):
            at = _numpy(lines, at + 2, parameters)
        elif found := _SPHINX.match(line):
            at = _sphinx(lines, at, found, parameters)
        elif _OTHER_GOOGLE.match(line):
            at = _skip_indented(lines, at + 1)
        elif _SPHINX_OTHER.match(line):
            at = _skip_indented(lines, at + 1)
        elif _is_numpy(lines, at):
            at = _skip_numpy(lines, at + 2)
        else:
            body.append(line)
            at += 1
    return Docstring("\n".join(body).strip() or None, {name: text for name, text in parameters.items() if text})


def _google(lines: list[str], at: int, parameters: dict[str, str]) -> int:
    name, indent = "", None
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        found = _GOOGLE_ITEM.match(lines[at])
        if found and (indent is None or len(found[1]) <= indent):
            indent, name = len(found[1]), found[2]
            parameters[name] = found[3].strip()
        elif name and lines[at].strip():
            parameters[name] = f"{parameters[name]} {lines[at].strip()}".strip()
        at += 1
    return at


def _is_numpy(lines: list[str], at: int, *titles: str) -> bool:
    title = lines[at].strip()
    underlined = at + 1 < len(lines) and bool(re.fullmatch(r"\s*-{3,}\s*", lines[at + 1]))
    return underlined and bool(title) and (not titles or title in titles)


def _numpy(lines: list[str], at: int, parameters: dict[str, str]) -> int:
    names: list[str] = []
    while at < len(lines) and not _is_numpy(lines, at):
        line = lines[at]
        if line.strip() and not line[0].isspace():
            found = _NUMPY_ITEM.match(line)
            names = [each.strip() for each in found[1].split(",")] if found else []
            parameters |= dict.fromkeys(names, "")
        else:
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
        at += 1
    return at


def _skip_numpy(lines: list[str], at: int) -> int:
    while at < len(lines) and not _is_numpy(lines, at):
        at += 1
    return at


def _sphinx(lines: list[str], at: int, found: re.Match[str], parameters: dict[str, str]) -> int:
    end = _skip_indented(lines, at + 1, blank=False)
    rest = [line.strip() for line in lines[at + 1 : end]]
    parameters[found[1]] = " ".join([found[2].strip(), *rest]).strip()
    return end


def _skip_indented(lines: list[str], at: int, *, blank: bool = True) -> int:
    while at < len(lines) and ((blank and not lines[at].strip()) or lines[at][:1].isspace()):
        at += 1
    return at
