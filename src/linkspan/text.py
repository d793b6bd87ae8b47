"""Short forms and near misses of names and texts, and errors that name the keywords a call has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

_LONGEST_NAME = 128
"""No name is longer, and the search takes quadratic time."""


def clip(text: str, longest: int, mark: str = "…") -> str:
    """Return a text of at most `longest` characters; `mark` ends one that was cut."""
    return text if len(text) <= longest else text[: longest - len(mark)] + mark


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 tool`, `1,240 tools`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def split_object(target: str) -> tuple[str, str]:
    """Return the path and the name in FILE:OBJECT; the colon of a Windows drive belongs to the path."""
    path, _, name = target.rpartition(":")
    return (path, name) if path and "/" not in name and "\\" not in name else (target, "")


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


def no_attribute(value: object, name: str, known: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that `value` does not have: with what is `known` to be meant, or a near public name."""
    from linkspan.habits import missing

    text = missing(type(value).__name__, name, known)
    if name not in known and not name.startswith("_"):
        text += did_you_mean(name, (each for each in dir(type(value)) if not each.startswith("_")))
    return AttributeError(text, name=name)  # without the object, of which Python would offer private names, too


def unknown_keyword(call: str, given: str, known: Collection[str]) -> TypeError:
    """Return the error for a keyword that `call` does not have."""
    from linkspan.habits import KEYWORDS, missing

    if given in KEYWORDS:
        return TypeError(missing(f"{call}()", given, KEYWORDS))
    meant = nearest(given, known)
    guess = f", did you mean {meant!r}? It" if meant is not None else "; it"
    return TypeError(f"{call}() has no {given!r}{guess} takes {', '.join(known)}")


def check_keywords(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise TypeError, see `unknown_keyword`, for the first given keyword that is not known."""
    for name in given:
        if name not in known:
            raise unknown_keyword(call, name, known)
