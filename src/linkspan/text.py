"""Short forms and near misses of the names and texts that messages repeat."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["clip", "did_you_mean", "nearest"]

_LONGEST_NAME = 128
"""No name is longer, and the search takes quadratic time."""


def clip(text: str, longest: int, mark: str = "…") -> str:
    """Return a text of at most `longest` characters; `mark` ends one that was cut."""
    return text if len(text) <= longest else text[: longest - len(mark)] + mark


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was probably meant to be, or None."""
    if len(name) > _LONGEST_NAME:
        return None
    names = list(known)
    bare = _bare(name)
    for each in names:
        if _bare(each) == bare:
            return each
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, names, n=1)), None)


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing if no known name is near."""
    meant = nearest(name, known)
    return f"; did you mean {meant!r}?" if meant is not None else ""
