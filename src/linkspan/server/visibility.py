"""Who sees what: conditions that depend on the caller (`when=`), and switches that are the same for all (`disable`, `enable`).

Law: an item with a condition does not exist for a request until the condition was asked for that request, and held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import (
    EMPTY,
    POSITIONAL_ONLY,
    POSITIONAL_OR_KEYWORD,
    VAR_KEYWORD,
    VAR_POSITIONAL,
    is_async_generator_function,
    is_coroutine_function,
    is_generator_function,
    name_of,
    parameters_of,
    underlying,
)
from linkspan.server.steps import Step

if TYPE_CHECKING:
    from linkspan.revisions.neutral import Request
    from linkspan.server.context import Context

When: TypeAlias = "Callable[[Context], object] | Callable[[], object]"
"""Returns whether an item exists for a caller, or an awaitable of that; takes the `Context`, or nothing."""

Kind: TypeAlias = Literal["tool", "prompt", "resource", "template"]
KINDS: Final[tuple[Kind, ...]] = ("tool", "prompt", "resource", "template")


class Condition(msgspec.Struct, frozen=True, eq=False):
    """A `when`, looked at once."""

    function: When
    takes_context: bool
    is_async: bool
    before: Condition | None = None
    """One that has to hold before this one is asked: that of the mount whose item this one is of."""

    def holds(self, make_context: Callable[[], Context], request: Request) -> object:
        """Ask the function about a request; returns what it returns. Raises: what it, or making its context, raises."""
        function: Callable[..., object] = self.function
        return function(make_context()) if self.takes_context else function()


def compile_condition(function: object, name: str) -> Condition | None:
    """Look at the `when` of the item `name`. Raises: RegistrationError for what cannot be asked."""
    if function is None:
        return None
    if not callable(function):
        raise RegistrationError(
            f"{name}: when= takes a function, such as lambda ctx: ctx.principal == 'admin', not {function!r}"
        )
    body = underlying(function)
    if is_generator_function(body) or is_async_generator_function(body):
        raise RegistrationError(f"{name}: when={name_of(function)} yields: return whether the caller sees the item")
    return Condition(function, _takes_context(function, name), is_coroutine_function(body))


def _takes_context(function: Callable[..., object], name: str) -> bool:
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError):
        raise RegistrationError(
            f"{name}: when={name_of(function)} has no signature: wrap it, as in lambda ctx: ..."
        ) from None
    positional = [each for each in parameters if each.kind in (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD, VAR_POSITIONAL)]
    required = [each for each in parameters if each.default is EMPTY and each.kind not in (VAR_POSITIONAL, VAR_KEYWORD)]
    if [each for each in required if each not in positional[:1]]:
        raise RegistrationError(
            f"{name}: when={name_of(function)} may take the context, and nothing else that is required"
        )
    return bool(positional)


def check_tags(tags: object, name: str) -> frozenset[str]:
    """Return the tags of the item `name` as a set. Raises: RegistrationError for anything but a collection of texts."""
    found = cast("Collection[object]", tags) if isinstance(tags, Collection) and not isinstance(tags, str) else (None,)
    texts = [tag for tag in found if isinstance(tag, str)]
    if len(texts) < len(found):
        raise RegistrationError(f"{name}: tags= takes a set of strings, such as {{'beta'}}, not {tags!r}")
    return frozenset(texts)


def check_scopes(scopes: object, name: str) -> tuple[str, ...]:
    """Return the scopes that a call of the item `name` needs. Raises: RegistrationError for anything but a list of scopes."""
    if not scopes:
        return ()
    from linkspan.wire.challenges import is_scope

    found = (
        cast("Collection[object]", scopes) if isinstance(scopes, Collection) and not isinstance(scopes, str) else ("",)
    )
    names = [each for each in found if isinstance(each, str) and is_scope(each)]
    if len(names) < len(found):
        raise RegistrationError(f"{name}: scopes= takes a list of names, such as ['files:write'], not {scopes!r}")
    return tuple(dict.fromkeys(names))


def judge(
    wanted: Sequence[Condition],
    others: Sequence[Condition],
    ask: Callable[[Condition], object],
    report: Callable[[Condition, Exception], object],
) -> Generator[Step, Any, frozenset[Condition]]:
    """Yield the steps that ask conditions, each function once; return the conditions that hold.

    `ask` returns what a condition returns. `others` are asked if one of `wanted` does not hold. One that raises does not hold
    either, and is reported.
    """
    answers: dict[int, bool] = {}
    held: set[Condition] = set()

    def answered(each: Condition) -> Generator[Step, Any, bool]:
        if each.before is not None and not (yield from answered(each.before)):
            return False
        key = id(each.function)
        if key not in answers:
            try:
                answers[key] = bool((yield Step(partial(ask, each))))
            except Exception as error:
                answers[key] = False
                report(each, error)
        return answers[key]

    for conditions in (wanted, others):
        for each in conditions:
            if (yield from answered(each)):
                held.add(each)
        if held.issuperset(wanted):
            break
    return frozenset(held)


class Switches:
    """What the author has switched off, by name or tag. Of the calls that an item is meant by, the last one decides."""

    def __init__(self) -> None:
        """Begin with everything on."""
        self.calls: dict[tuple[str, str | None], bool] = {}

    def turn(self, name_or_tag: str, kind: str | None, *, on: bool) -> None:
        """Remember a call: it means all items of `kind`, or of every kind, with this name or this tag."""
        self.calls.pop((name_or_tag, kind), None)
        self.calls[name_or_tag, kind] = on

    def forget(self, name: str) -> None:
        """Forget the calls that meant a name."""
        for key in [each for each in self.calls if each[0] == name]:
            del self.calls[key]

    def is_on(self, kind: str, name: str, tags: Iterable[str]) -> bool:
        """Return whether an item is on."""
        if not self.calls:
            return True
        meant = {name, *tags}
        calls = [on for (said, only), on in list(self.calls.items()) if said in meant and only in (None, kind)]
        return calls[-1] if calls else True
