"""Docstrings in Google, NumPy and Sphinx style: the description, and what is said about each parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from linkspan.schema.signatures import clean_docstring

__all__ = ["Docstring", "parse_docstring"]

_ABOUT_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes"}
)
_LEFT_OUT = frozenset(
    {
        "returns", "return", "raises", "raise", "yields", "yield", "except", "exceptions", "receives", "warns", "see also",
        "references", "methods", "todo",
    }
)  # fmt: skip
_HEADING = re.compile(r"([A-Za-z][A-Za-z ]*?)\s*:\s*")
_GOOGLE = re.compile(r"\*{0,2}([A-Za-z_]\w*)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\*{0,2}[A-Za-z_]\w*(?:\s*,\s*\*{0,2}[A-Za-z_]\w*)*)\s*(?::.*)?")
_SPHINX = re.compile(r":(\w+)((?:\s+[^:\s]+)*)\s*:\s*(.*)")
_SPHINX_PARAMETER = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var", "cvar"})
_SPHINX_LEFT_OUT = frozenset(
    {
        "type",
        "kwtype",
        "vartype",
        "return",
        "returns",
        "rtype",
        "raise",
        "raises",
        "except",
        "exception",
        "yield",
        "yields",
    }
)


class _Reader(Protocol):
    def __call__(self, lines: Sequence[str], parameters: dict[str, str], /) -> None: ...


class Docstring(msgspec.Struct, frozen=True):
    """What a docstring says: the description without its sections, and a text for each parameter."""

    description: str | None = None
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def parse_docstring(doc: str | None) -> Docstring:
    """Read a docstring in Google, NumPy or Sphinx style; a style it does not know is all description.

    Sections about parameters are taken out of the description, so are returns and raises: they help the author, not the
    model. Notes and examples stay.
    """
    if not doc or not doc.strip():
        return Docstring()
    lines = clean_docstring(doc).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(lines):
        position = _one_part(lines, position, kept, parameters)
    return Docstring(_joined(kept), {name: text for name, text in parameters.items() if text})


def _one_part(lines: Sequence[str], position: int, kept: list[str], parameters: dict[str, str]) -> int:
    """Read one line, field or section at `position`; return where the next begins."""
    line = lines[position]
    if (found := _SPHINX.fullmatch(line)) and found[1] in _SPHINX_PARAMETER | _SPHINX_LEFT_OUT:
        end = _indented_end(lines, position + 1)
        _sphinx(found, lines[position + 1 : end], parameters)
        return end
    following = lines[position + 1] if position + 1 < len(lines) else ""
    if line.strip() and _is_rule(following):
        return _section(line, lines[position : _numpy_end(lines, position + 2)], 2, _numpy, kept, parameters) + position
    heading = _HEADING.fullmatch(line)
    if heading and not line.startswith(" "):
        end = _indented_end(lines, position + 1)
        if end > position + 1:
            return _section(heading[1], lines[position:end], 1, _google, kept, parameters) + position
    kept.append(line)
    return position + 1


def _section(
    name: str, lines: Sequence[str], skip: int, read: _Reader, kept: list[str], parameters: dict[str, str]
) -> int:
    """Read or keep one section; return how many lines it has."""
    if name.strip().lower() in _ABOUT_PARAMETERS:
        read(lines[skip:], parameters)
    elif name.strip().lower() not in _LEFT_OUT:
        kept.extend(lines)
    return len(lines)


def _google(lines: Sequence[str], parameters: dict[str, str]) -> None:
    name = ""
    for line in clean_docstring("\n" + "\n".join(lines)).splitlines():
        found = _GOOGLE.fullmatch(line)
        if found and not line.startswith(" "):
            name = found[1]
            parameters[name] = found[2].strip()
        elif name and line.strip():
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _numpy(lines: Sequence[str], parameters: dict[str, str]) -> None:
    names: list[str] = []
    for line in lines:
        found = _NUMPY.fullmatch(line)
        if found and not line.startswith(" "):
            names = [each.strip().lstrip("*") for each in found[1].split(",")]
            parameters.update(dict.fromkeys(names, ""))
        elif line.strip():
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _sphinx(found: re.Match[str], rest: Sequence[str], parameters: dict[str, str]) -> None:
    words = found[2].split()
    if found[1] in _SPHINX_PARAMETER and words:
        parameters[words[-1].lstrip("*")] = " ".join(
            [found[3].strip(), *(each.strip() for each in rest if each.strip())]
        )


def _indented_end(lines: Sequence[str], position: int) -> int:
    """Return where the indented lines from `position` on end (blank lines within belong to them)."""
    end = position
    for index in range(position, len(lines)):
        if lines[index].startswith(" "):
            end = index + 1
        elif lines[index].strip():
            break
    return end


def _numpy_end(lines: Sequence[str], position: int) -> int:
    for index in range(position, len(lines) - 1):
        if lines[index].strip() and _is_rule(lines[index + 1]):
            return index
    return len(lines)


def _is_rule(line: str) -> bool:
    return len(line.strip()) > 2 and set(line.strip()) == {"-"}


def _joined(lines: Sequence[str]) -> str | None:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() or None
