"""Keywords that a public call does not have: an error that names those it has, and the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar, cast

from linkspan.text import nearest

__all__ = ["check_keywords", "closed", "described_by", "unknown_keyword"]

F = TypeVar("F", bound=Callable[..., object])


def unknown_keyword(call: str, given: str, known: Collection[str]) -> TypeError:
    """Return the error for a keyword that `call` does not have."""
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
    code = method.__code__
    known: tuple[str, ...] = code.co_varnames[
        max(1, code.co_posonlyargcount) : code.co_argcount + code.co_kwonlyargcount
    ]
    accepted = frozenset(known)

    @wraps(method)
    def checked(self: object, *arguments: Any, **keywords: Any) -> object:
        if not accepted.issuperset(keywords):
            call = type(self).__name__ if method.__name__ == "__init__" else method.__name__
            check_keywords(call, keywords, known)
        return method(self, *arguments, **keywords)

    return cast("F", checked)


def described_by(keywords: type) -> Callable[[F], F]:
    """Decorate a method `(self, *function, **keywords)` whose keywords are those of a TypedDict: check and document them."""
    from inspect import Parameter, Signature

    hints: dict[str, Any] = keywords.__annotations__
    shown = [
        Parameter("self", Parameter.POSITIONAL_ONLY),
        Parameter("function", Parameter.POSITIONAL_ONLY, default=None),
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=getattr(hint, "__forward_arg__", hint))
            for name, hint in hints.items()
        ),
    ]

    def decorate(method: F) -> F:
        @wraps(method)
        def checked(self: object, *function: Any, **given: Any) -> object:
            check_keywords(method.__name__, given, hints)
            return method(self, *function, **given)

        checked.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        return cast("F", checked)

    return decorate
