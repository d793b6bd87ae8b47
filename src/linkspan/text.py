"""Short forms and near misses of names and texts, and errors that name the keywords a call has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from inspect import Signature

__all__ = ["check_keywords", "clip", "closed", "described_by", "did_you_mean", "nearest", "unknown_keyword"]

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


F = TypeVar("F", bound=Callable[..., object])


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


def closed(method: F) -> F:
    """Decorate a method whose signature names all its keywords: others get our sentence instead of Python's."""
    return _checked(method, _named(method))


def described_by(keywords: type) -> Callable[[F], F]:
    """Decorate a method `(self, ..., **described: Unpack[keywords])`: check and document the keywords of that TypedDict too."""
    hints: dict[str, Any] = keywords.__annotations__

    def decorate(method: F) -> F:
        checked = _checked(method, (*_named(method), *hints))
        checked.__wrapped__ = _Described(method, hints)  # type: ignore[attr-defined]
        return checked

    return decorate


class _Described:
    """A method between its wrapper and itself, for `inspect`, which takes long to load and so is loaded by who asks only."""

    def __init__(self, method: Callable[..., object], hints: dict[str, Any]) -> None:
        self.__wrapped__ = method
        self._hints = hints

    @property
    def __signature__(self) -> Signature:
        """The signature with the keywords written out; `*function` stands for one function that may be left out."""
        from inspect import Parameter, Signature, signature

        shown: list[Parameter] = []
        for each in signature(self.__wrapped__).parameters.values():
            if each.kind is Parameter.VAR_POSITIONAL:
                shown = [earlier.replace(kind=Parameter.POSITIONAL_ONLY) for earlier in shown]
                shown.append(Parameter(each.name, Parameter.POSITIONAL_ONLY, default=None))
            elif each.kind is not Parameter.VAR_KEYWORD:
                shown.append(each)
        for name, hint in self._hints.items():
            annotation = getattr(hint, "__forward_arg__", hint)
            shown.append(Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=annotation))
        return Signature(shown)


def _named(method: Callable[..., object]) -> tuple[str, ...]:
    code = method.__code__
    return code.co_varnames[max(1, code.co_posonlyargcount) : code.co_argcount + code.co_kwonlyargcount]


def _checked(method: F, known: tuple[str, ...]) -> F:
    accepted = frozenset(known)

    @wraps(method)
    def checked(self: object, *arguments: Any, **keywords: Any) -> object:
        if not accepted.issuperset(keywords):
            call = type(self).__name__ if method.__name__ == "__init__" else method.__name__
            check_keywords(call, keywords, known)
        return method(self, *arguments, **keywords)

    return cast("F", checked)
