"""Regular expressions in schemas: only those that can be matched in linear time by any engine that we may be given."""

from __future__ import annotations

import re

__all__ = ["why_not_linear"]

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_QUANTIFIER = re.compile(r"[*+]|\{(\d*)(,?)(\d*)\}")
_FEW = 16


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
