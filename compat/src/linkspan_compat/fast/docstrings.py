"""What FastMCP takes from a docstring: the text before its first section, and the descriptions of parameters.

Docstrings in the styles of Google, NumPy and Sphinx are read, the first style that finds something counts. Version 3 counts only
parameters; version 4 any section, such as what a function returns. Version 2 takes the whole docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from linkspan_compat.flavours import fast_version

__all__ = ["ParsedDocstring", "parse_docstring"]


@dataclass(frozen=True)
class ParsedDocstring:
    """The description of a function, and those of its parameters."""

    description: str | None = None
    parameters: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class _Found:
    texts: list[str] = field(default_factory=list[str])
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    has_section: bool = False

    def add_text(self, lines: list[str]) -> None:
        if any(lines):
            self.texts.append("\n".join(lines).rstrip("\n"))


def parse_docstring(function: Callable[..., Any]) -> ParsedDocstring:
    """Read the docstring of a function."""
    text = inspect.getdoc(function)
    if not text:
        return ParsedDocstring()
    version = fast_version()
    if version == "2":
        return ParsedDocstring(text)
    lines = inspect.cleandoc(text.rstrip()).split("\n")
    for style in (_google, _numpy, _sphinx):
        found = style(lines)
        if found.parameters or (found.has_section and version == "4"):
            return ParsedDocstring(found.texts[0] if found.texts else None, found.parameters)
    return ParsedDocstring(text)


def _is_blank(lines: list[str], number: int) -> bool:
    return 0 <= number < len(lines) and not lines[number].strip()


# Google: a word and a colon, with an indented block below.

_HEADING: Final = re.compile(r"^(?P<type>[\w][\s\w-]*):(\s+(?P<title>[^\s].*))?\s*$")
_PARAMETERS: Final = ("args", "arguments", "params", "parameters")
_ITEMISED: Final = (
    *_PARAMETERS,
    *(f"{kind} {noun}" for kind in ("other", "type") for noun in _PARAMETERS),
    "keyword args", "keyword arguments", "raises", "exceptions", "returns", "yields", "receives", "attributes", "functions",
    "methods", "classes", "type aliases", "modules", "warns", "warnings",
)  # fmt: skip


def _google(lines: list[str]) -> _Found:
    found, text, number, in_code = _Found(), list[str](), 0, False
    while number < len(lines):
        line = lines[number]
        heading = None
        if line.lstrip(" ").startswith("```"):
            in_code = not in_code
        elif not in_code:
            heading = _HEADING.match(line)
        if heading is None or not _heads_a_block(lines, number):
            text.append(line)
            number += 1
            continue
        found.add_text(text)
        found.has_section, text = True, []
        kind = heading["type"].lower()
        if kind in _ITEMISED:
            items, number = _google_items(lines, number + 1)
            if kind in _PARAMETERS:
                found.parameters |= _google_parameters(items)
        else:
            number = _end_of_block(lines, number + 1)
    found.add_text(text)
    return found


def _heads_a_block(lines: list[str], number: int) -> bool:
    """Return whether an indented block follows a heading at once, and a blank line is above it."""
    if number + 1 >= len(lines) or not lines[number + 1].startswith(" ") or _is_blank(lines, number + 1):
        return False
    return number == 0 or _is_blank(lines, number - 1)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _google_items(lines: list[str], number: int) -> tuple[list[list[str]], int]:
    """Return the items of a section, and the number of the line after it."""
    indent = _indent(lines[number])
    items = [[lines[number][indent:]]]
    number += 1
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            items[-1].append("")
        elif line.startswith(" " * indent * 2):
            items[-1].append(line[indent * 2 :])
        elif line.startswith(" " * (indent + 1)):
            items[-1].append(line.lstrip())
        elif line.startswith(" " * indent):
            items.append([line[indent:]])
        else:
            break
        number += 1
    return items, number


def _google_parameters(items: list[list[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, colon, first = item[0].partition(":")
        if not colon:
            continue
        if "(" in name and name.endswith(")"):
            name = name.partition("(")[0].strip()
        found[name] = "\n".join([first.lstrip(), *item[1:]]).rstrip("\n")
    return found


def _end_of_block(lines: list[str], number: int) -> int:
    indent = _indent(lines[number])
    number += 1
    while number < len(lines) and (lines[number].startswith(" " * indent) or not lines[number].strip()):
        number += 1
    return number


# NumPy: a title with a line of dashes below.

_NUMPY_PARAMETER: Final = re.compile(
    r"(?P<names>\*{0,2}[_a-z]\w*(?:,\s\*{0,2}[_a-z]\w*)*)(?:\s:\s.*|:.*)?$", re.IGNORECASE
)


def _dashes(lines: list[str], number: int) -> bool:
    return number < len(lines) and "-" in lines[number] and not lines[number].replace("-", "").strip()


def _numpy(lines: list[str]) -> _Found:
    found, text, number, in_code = _Found(), list[str](), 0, False
    while number < len(lines):
        line = lines[number]
        if line.lstrip(" ").startswith("```"):
            in_code = not in_code
        title = line.strip().lower()
        if in_code or not title or not _dashes(lines, number + 1):
            text.append(line)
            number += 1
            continue
        found.add_text(text)
        found.has_section, text = True, []
        end = number + 2
        while end < len(lines) and not (lines[end].strip() and _dashes(lines, end + 1)):
            end += 1
        if title == "parameters":
            found.parameters |= _numpy_parameters(lines[number + 2 : end])
        number = end
    found.add_text(text)
    return found


def _numpy_parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            match = _NUMPY_PARAMETER.match(line)
            names = [each.strip() for each in match["names"].split(",")] if match is not None else []
            found |= dict.fromkeys(names, "")
        else:
            for name in names:
                found[name] += line.strip() + "\n"
    return {name: text.strip() for name, text in found.items()}


# Sphinx: fields between colons.

_FIELD: Final = re.compile(r":(?P<kind>\w+)(?P<more>[^:]*):(?P<value>.*)", re.DOTALL)
_SPHINX_PARAMETERS: Final = ("param", "parameter", "arg", "argument", "key", "keyword")
_SPHINX_SECTIONS: Final = ("var", "ivar", "cvar", "returns", "return", "raises", "raise", "except", "exception")
_SPHINX_KINDS: Final = (*_SPHINX_PARAMETERS, *_SPHINX_SECTIONS, "type", "vartype", "rtype")


def _sphinx(lines: list[str]) -> _Found:
    found, text, number = _Found(), list[str](), 0
    while number < len(lines):
        match = _FIELD.match(lines[number])
        if match is None or match["kind"] not in _SPHINX_KINDS:
            text.append(lines[number])
            number += 1
            continue
        block = [lines[number]]
        number += 1
        while number < len(lines) and not lines[number].startswith(":"):
            block.append(lines[number])
            number += 1
        match = _FIELD.match(inspect.cleandoc("\n".join(block)).rstrip("\n"))
        assert match is not None
        if match["kind"] in _SPHINX_PARAMETERS and match["more"].strip():
            found.parameters[match["more"].split()[-1]] = match["value"].strip()
            found.has_section = True
        elif match["kind"] in _SPHINX_SECTIONS:
            found.has_section = True
    found.texts.append("\n".join(text).strip("\n "))
    return found
