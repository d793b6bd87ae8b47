"""Decorators of what authors call: unknown keywords, and values of the wrong type, are refused in one sentence.

The error of such a call has the author's frames, and one of ours; with LINKSPAN_DEBUG=1 it has all, and its cause.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from linkspan.errors import LinkspanError, RegistrationError
from linkspan.text import check_keywords, clip

__all__ = ["Keywords", "bare", "check_values", "closed", "described_by", "needing", "refusing"]

if TYPE_CHECKING:
    from inspect import Signature
    from typing import TypedDict as Keywords
else:

    class Keywords:
        """What a class of keywords derives from: a TypedDict for type checkers, and at run time only its names and hints.

        A TypedDict compiles each of its hints, and costs a start more than many a module.
        """

        def __init_subclass__(cls, *, total: bool) -> None:
            own = cls.__annotations__
            cls.__annotations__ = {}
            for each in (*(base.__annotations__ for base in cls.__bases__), own):
                cls.__annotations__.update(each)


_LONGEST_VALUE = 60
_SECRET = ("auth", "store_key", "request_state_keys")

F = TypeVar("F", bound=Callable[..., object])


def refusing(function: F) -> F:
    """Decorate what authors call: an error that is a sentence for them ends in their own line."""

    @wraps(function)
    def shown(*arguments: Any, **keywords: Any) -> object:
        __tracebackhide__ = True  # pytest's word for a frame to leave out
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            if os.environ.get("LINKSPAN_DEBUG") == "1" or not _is_ours(error):
                raise
            raise error.with_traceback(None) from None

    return cast("F", shown)


def needing(*names: str, what: str, line: str) -> Callable[[F], F]:
    """Decorate a method that makes a decorator of texts, its first parameters: bare, or without one, it registers nothing.

    `what` these are; `line` is what to write, with {} for the name of the function.
    """

    def decorate(method: F) -> F:
        @wraps(method)
        def checked(self: object, *arguments: Any, **keywords: Any) -> object:
            given = {**dict(zip(names, arguments, strict=False)), **keywords}
            if not all(isinstance(given.get(each), str) for each in names):
                name = next((getattr(each, "__name__", "...") for each in arguments if callable(each)), "...")
                raise RegistrationError(f"{line.partition('(')[0]} needs {what}: write {line.format(name)}")
            return method(self, *arguments, **keywords)

        return refusing(cast("F", checked))

    return decorate


def bare(method: F) -> F:
    """Decorate a method that is a decorator itself: with parentheses it gets no function."""

    @wraps(method)
    def checked(self: object, *function: Any, **keywords: Any) -> object:
        if not function and not keywords:
            raise RegistrationError(f"@server.{method.__name__} is written without parentheses, above the function")
        return method(self, *function, **keywords)

    return refusing(cast("F", checked))


def _is_ours(error: Exception) -> bool:
    """Return whether an error was raised here, and not by code of the author that ran meanwhile."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    module = frames.tb_frame.f_globals.get("__name__", "") if frames is not None else ""
    return isinstance(error, LinkspanError | TypeError | ValueError) and module.partition(".")[0] == "linkspan"


def closed(method: F) -> F:
    """Decorate a method whose signature names all its keywords: others get our sentence instead of Python's."""
    return _checked(method, {})


def described_by(keywords: type) -> Callable[[F], F]:
    """Decorate a method `(self, ..., **described: Unpack[keywords])`: check and document those keywords too."""
    hints: dict[str, Any] = keywords.__annotations__

    def decorate(method: F) -> F:
        checked = _checked(method, hints)
        checked.__wrapped__ = _DescribedMethod(method, hints)  # type: ignore[attr-defined]
        return checked

    return decorate


class _DescribedMethod:
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
            shown.append(Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=hint))
        return Signature(shown)


def _checked(method: F, described: Mapping[str, Any]) -> F:
    code = method.__code__
    named = code.co_varnames[max(1, code.co_posonlyargcount) : code.co_argcount + code.co_kwonlyargcount]
    known = (*named, *described)
    accepted = frozenset(known)
    positional = code.co_varnames[1 : code.co_argcount]
    hints = {**method.__annotations__, **described}

    @wraps(method)
    def checked(self: object, *arguments: Any, **keywords: Any) -> object:
        call = type(self).__name__ if method.__name__ == "__init__" else method.__name__
        if not accepted.issuperset(keywords):
            check_keywords(call, keywords, known)
        check_values(call, hints, {**dict(zip(positional, arguments, strict=False)), **keywords})
        return method(self, *arguments, **keywords)

    return refusing(cast("F", checked))


# The values of keywords, by their hints.


class _Kind(msgspec.Struct, frozen=True):
    holds: Callable[[Any], bool]
    words: str
    example: str


def _of(*classes: type) -> Callable[[Any], bool]:
    """Return what tells values of these classes; True and False are no numbers."""
    return lambda value: isinstance(value, classes) and (bool in classes or not isinstance(value, bool))


def _named(name: str) -> Callable[[Any], bool]:
    """Return what tells values of a class that is not imported here."""
    return lambda value: any(each.__name__ == name for each in type(value).__mro__)


def _having(member: str) -> Callable[[Any], bool]:
    return lambda value: hasattr(value, member)


def _any_of(*kinds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: any(holds(value) for holds in kinds)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type)


_FUNCTION = _Kind(callable, "a function", "my_function")
_LIST = _Kind(_is_list, "a list", "[...]")
_MAPPING = _Kind(_of(Mapping), "a mapping", "{...}")
_PATH = _Kind(_any_of(_of(str), _having("__fspath__")), "a path", "'folder/file'")
_CLASSES = ("Annotations", "Configuration", "Implementation", "Limits", "Stopper", "ToolAnnotations")
_KINDS: Mapping[str, _Kind] = {
    "None": _Kind(_of(type(None)), "None", "None"),
    "UnsetType": _Kind(_named("UnsetType"), "UNSET", "UNSET"),
    "bool": _Kind(_of(bool), "True or False", "True"),
    "int": _Kind(_of(int), "an integer", "10"),
    "float": _Kind(_of(int, float), "a number", "5.0"),
    "str": _Kind(_of(str), "a string", "'...'"),
    "bytes": _Kind(_of(bytes), "bytes", "b'...'"),
    **dict.fromkeys(("Callable", "Function", "ElicitationHandler", "SamplingHandler", "ProgressCallback"), _FUNCTION),
    **dict.fromkeys(("Sequence", "Iterable"), _LIST),
    **dict.fromkeys(("Mapping", "Meta"), _MAPPING),
    **dict.fromkeys(("Path", "PathLike"), _PATH),
    "RootsSource": _Kind(_any_of(_is_list, callable), "a list or a function", "['/project']"),
    "ServerContext": _Kind(_any_of(_of(Mapping, type(None)), callable), "a mapping or a function", "{...}"),
    "Protection": _Kind(_having("secret_headers"), "a Protected", "Protected('https://...', issuer='https://...')"),
    "SharedState": _Kind(_having("publish"), "a Store", "'sqlite:///store.db'"),
    "TaskEngine": _Kind(_having("submit"), "an engine", "Celery(app)"),
    **{each: _Kind(_named(each), f"{'an' if each[0] in 'AI' else 'a'} {each}", f"{each}(...)") for each in _CLASSES},
}
"""What a value must be where a hint names this. Where a hint names anything else, its values are checked where they are used."""

_UNITS = {
    **dict.fromkeys(("timeout", "total", "lifespan_timeout", "request_state_ttl"), "seconds"),
    "ttl_ms": "milliseconds",
    **dict.fromkeys(("memory", "max_result", "max_cached_bytes"), "bytes"),
}


def check_values(call: str, hints: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Raise TypeError for the first value that its hint excludes, with what to write instead."""
    for name, value in given.items():
        arms = _arms(hints.get(name))
        if arms and not any(_KINDS[each].holds(value) for each in arms):
            raise _wrong_value(call, name, arms, value)


@cache
def _arms(hint: object) -> tuple[str, ...]:
    """Return the kinds that a hint names; none where it names anything else, whose values are not checked here."""
    text = str(hint)
    inner = text.count("[")
    while inner:
        text, inner = re.subn(r"\[[^\[\]]*\]", "", text)
    arms = tuple(each.strip() for each in text.split("|"))
    return arms if _KINDS.keys() >= set(arms) else ()


def _wrong_value(call: str, name: str, arms: Iterable[str], value: object) -> TypeError:
    kinds = [_KINDS[each] for each in arms if each not in ("None", "UnsetType")]
    unit = _UNITS.get(name)
    words = dict.fromkeys(f"a number of {unit}" if unit is not None else each.words for each in kinds)
    none = {"None"} & set(arms)
    shown, example = clip(repr(value), _LONGEST_VALUE), kinds[0].example
    if name in _SECRET:
        shown = f"a {type(value).__name__}"
    elif (function := getattr(value, "__name__", None)) is not None:
        shown = f"the function {function}"
        example = f"[{function}]" if kinds[0] is _LIST else example
    text = f"{call}() takes {' or '.join([*words, *none])} for {name}=, such as {name}={example}, not {shown}"
    if "Protection" in arms:
        from linkspan.habits import instead_of_auth

        text += f"; {instead_of_auth(value)}"
    return TypeError(text)
