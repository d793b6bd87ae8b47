"""Who makes a request, as the code around a server knows it: the identity of a user, as text."""

from __future__ import annotations

from typing import Final

_NAMES: Final = ("identity", "username")
"""What identifies a user, the first that says anything. A display name does not: others may have the same, or choose it."""
_NOTHING: Final = object()


class UnknownIdentity(TypeError):
    """A user has a shape from which no identity can be read; its text names what to set."""


def principal_of(user: object, where: str) -> str | None:
    """Return what identifies a user as text; None for None, an empty text, and one that is not authenticated.

    A user is a str, int or UUID, or an object with such an `identity` or `username`; `where` is its name in the error. Raises:
    UnknownIdentity for anything else: if treated as None, such users would share sessions.
    """
    if user is None or type(user) is str:
        return user or None
    if (found := _text(user)) is not None:
        return found or None
    if not _attribute(user, "is_authenticated", True):
        return None
    present = False
    for name in _NAMES:
        value = _attribute(user, name, _NOTHING)
        if value is _NOTHING:
            continue
        present = True
        found = "" if value is None else _text(value)
        if found is None:
            raise UnknownIdentity(f"{where}.{name} is a {type(value).__name__}: set `{name}` to a str, int or UUID")
        if found:
            return found
    if present:
        return None
    raise UnknownIdentity(
        f"{where} is a {type(user).__name__}, which identifies no user: set it to a str, int or UUID, "
        "or to an object whose attribute `identity` (or `username`) is one"
    )


def _text(value: object) -> str | None:
    """Return an identity as text; None for a value that is not of a type that identifies."""
    if isinstance(value, str | int):
        return None if isinstance(value, bool) else str(value)
    from uuid import UUID

    return str(value) if isinstance(value, UUID) else None


def _attribute(user: object, name: str, default: object) -> object:
    try:
        return getattr(user, name, default)
    except NotImplementedError:  # Starlette's own users have no identity
        return default
