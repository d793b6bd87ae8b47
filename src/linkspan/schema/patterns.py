"""Regular expressions of others: refused if no linear engine could match them, and matched by such an engine only.

Python's own engine tries alternatives one after the other, holds the interpreter meanwhile, and may take for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

__all__ = ["Matcher", "linear_matcher", "why_not_linear"]

Matcher: TypeAlias = Callable[[str], bool]
"""Tells whether a text fits."""

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_QUANTIFIER = re.compile(r"[*+]|\{(\d*)(,?)(\d*)\}")
_FEW = 16


def linear_matcher(pattern: str) -> Matcher | None:
    """Return what finds a pattern anywhere in a text, in linear time; None if there is no such engine for it here."""
    try:
        library: Any = import_module("jsonschema_rs")
    except ImportError:
        return None
    try:
        compiled = library.Draft202012Validator({"pattern": pattern}, pattern_options=library.RegexOptions())
    except (library.ValidationError, ValueError):
        return None
    matches: Matcher = compiled.is_valid
    return matches


def why_not_linear(pattern: str) -> str | None:
    """Return what makes a pattern dangerous, or None: a look-around, a back-reference, or a repeat within a repeat."""
    bare = _without_classes(pattern)
    if _LOOKAROUND.search(bare):
        return "looks ahead or behind"
    if re.search(r"\\[1-9]|\\k<|\(\?P=", bare):
        return "refers back to a group"
    return "repeats within a repeat" if _nests(bare) else None


def _without_classes(pattern: str) -> str:
    """Return the pattern with `[...]` and escaped characters replaced by one plain character each."""
    found: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            following = pattern[position + 1 : position + 2]
            found.append(f"\\{following}" if following.isdigit() or following == "k" else "x")
            position += 2
        elif char == "[":
            position = _class_end(pattern, position + 1)
            found.append("x")
        else:
            found.append(char)
            position += 1
    return "".join(found)


def _class_end(pattern: str, position: int) -> int:
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1


def _nests(bare: str) -> bool:
    """Tell whether a group that repeats something is repeated itself."""
    repeats = [False]
    position = 0
    while position < len(bare):
        char = bare[position]
        if char == "(":
            repeats.append(False)
        elif char == ")" and len(repeats) > 1:
            inner = repeats.pop()
            unbounded = _is_repeat(bare, position + 1)
            if inner and unbounded:
                return True
            repeats[-1] = repeats[-1] or inner or unbounded
        elif _is_repeat(bare, position):
            repeats[-1] = True
        position += 1
    return False


def _is_repeat(bare: str, position: int) -> bool:
    """Tell whether a quantifier that repeats often or without end begins here."""
    found = _QUANTIFIER.match(bare, position)
    if found is None:
        return False
    if found[0] in "*+":
        return True
    least, comma, most = found[1], found[2], found[3]
    if not least and not most:
        return False
    return bool(comma and not most) or int(most or least or 0) > _FEW
