"""What authors write: `Annotated[...]`, signatures and docstrings, and how their hints are looked up.

Names and scopes only: JSON Schema begins in `schema/build.py`.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final, TypeGuard

import msgspec

from linkspan.errors import RegistrationError

_MOST_LOOKUPS = 50
_WRAPPERS = (typing.Required, typing.NotRequired, typing.Final)


HEADER_KEYWORD: Final = "x-mcp-header"


class Ask(msgspec.Struct, frozen=True):
    """Have the user fill in a parameter, never the model: `seats: Annotated[int, Ask("How many seats?")]`."""

    message: str


class Dependency(msgspec.Struct, frozen=True):
    """What `Depends` returns: a parameter with it is filled in by the function, and is not in the schema."""

    function: Callable[..., object]
    inline: bool = False
    """A plain function blocks so little that it needs no thread beside an event loop."""


T = typing.TypeVar("T")


@typing.overload
def Depends(function: Callable[..., AsyncIterator[T]], *, inline: bool = False) -> T: ...
@typing.overload
def Depends(function: Callable[..., Iterator[T]], *, inline: bool = False) -> T: ...
@typing.overload
def Depends(function: Callable[..., Awaitable[T]], *, inline: bool = False) -> T: ...
@typing.overload
def Depends(function: Callable[..., T], *, inline: bool = False) -> T: ...
def Depends(function: Callable[..., Any], *, inline: bool = False) -> Any:
    """Fill in a parameter with what `function` returns or yields: `pool: Annotated[Pool, Depends(get_pool)]`, or as a default.

    It runs once for each run of the handler that needs it, whatever number of parameters do. A generator function yields the
    value and goes on when the handler has ended, failed or been cancelled. Parameters of it may be a `Context` and further
    dependencies. For an `async def` handler a plain function runs in a thread, with `inline=True` on the event loop, where it
    must not block. Raises: TypeError for what cannot be called.
    """
    if not callable(function):
        raise TypeError(f"Depends takes the function that makes the value, not {function!r}: leave out the parentheses")
    return Dependency(function, inline)


class Header(msgspec.Struct, frozen=True):
    """Mirror a parameter into the HTTP header `Mcp-Param-<name>`: `region: Annotated[str, Header("Region")]` (XH-1)."""

    name: str


class Format(msgspec.Struct, frozen=True):
    """Name the format of a text: `Annotated[str, Format("email")]`; forms know email, uri, date and date-time (ELI-4)."""

    name: str


def name_of(thing: object) -> str:
    """Return how to name a function or class in a message to its author."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    name: str | None = getattr(thing, "__qualname__", None) or getattr(type(thing), "__qualname__", None)
    return (name or repr(thing)).rpartition("<locals>.")[2]


def underlying(function: Callable[..., object]) -> Any:
    """Return the function that bears the hints: below partials, wrappers, bound methods and callable objects."""
    found: Any = function
    while True:
        if isinstance(found, functools.partial):
            found = found.func
        elif hasattr(found, "__wrapped__") and not is_class(found):
            found = found.__wrapped__
        elif isinstance(found, types.MethodType):
            found = found.__func__
        elif is_class(found):
            return found.__init__
        elif not is_routine(found) and isinstance(getattr(found, "__call__", None), types.MethodType):  # noqa: B004
            found = found.__call__
        else:
            return found


def bound_names(function: Callable[..., object]) -> frozenset[str]:
    """Return the keywords that a partial has fixed: they are the author's, and may be secrets."""
    names: set[str] = set()
    found: Any = function
    while type(found) is functools.partial:
        names.update(found.keywords)
        found = found.func
    return frozenset(names)


class _Holder:
    """Something with `__annotations__`, so that `typing.get_type_hints` looks at one hint alone."""

    def __init__(self, hint: object) -> None:
        self.__annotations__ = {"hint": hint}


def resolve(hint: object, function: Callable[..., object]) -> Any:
    """Return a hint of `function` with its strings evaluated where the function was written.

    Raises: NameError for a name that is not there, TypeError or SyntaxError for a string that is no type.
    """
    if isinstance(hint, type):
        return hint
    bearer = underlying(function)
    scope: dict[str, Any] = getattr(bearer, "__globals__", {})
    closure = _closure(bearer)
    if isinstance(hint, str):  # the name of a class, as most strings are, needs no evaluation
        found = closure.get(hint, scope.get(hint, getattr(builtins, hint, None)))
        if isinstance(found, type):
            return found
    return _resolved(lambda names: typing.get_type_hints(_Holder(hint), scope, names, True)["hint"], closure)


def class_hints(source: type) -> dict[str, Any]:
    """Return the hints of a class, inherited ones too. Raises: RegistrationError for a name that is not there."""
    try:
        found: dict[str, Any] = _resolved(
            lambda names: typing.get_type_hints(source, None, names, include_extras=True), {source.__name__: source}
        )
        return found
    except NameError as problem:
        raise RegistrationError(_unresolved(f"{name_of(source)}: the name {problem.name!r} in its hints")) from None
    except (TypeError, SyntaxError) as problem:
        raise RegistrationError(f"{name_of(source)}: a hint cannot be evaluated ({problem})") from None


def return_hint(function: Callable[..., object]) -> Any:
    """Return what `function` says it returns; Any where it says nothing. Raises: RegistrationError."""
    if isinstance(function, type):
        return function
    annotation: Any = getattr(underlying(function), "__annotations__", {}).get("return", Any)
    try:
        return resolve(annotation, function)
    except NameError as problem:
        raise RegistrationError(
            _unresolved(f"{name_of(function)}: the name {problem.name!r} in its return type")
        ) from None
    except (TypeError, SyntaxError, AttributeError) as problem:
        raise RegistrationError(f"{name_of(function)}: its return type cannot be evaluated ({problem})") from None


def _unresolved(what: str) -> str:
    return f"{what} cannot be resolved; define or import it at module level (not only under TYPE_CHECKING) [LS-701]"


def peel(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a hint without `Annotated`, `NewType`, `Required` and `Final`, and the metadata that it carried."""
    notes: tuple[Any, ...] = ()
    while not isinstance(hint, type):
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            notes = (*hint.__metadata__, *notes)
            hint = hint.__origin__
        elif origin in _WRAPPERS or getattr(origin, "_name", None) == "ReadOnly":
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            break
    return hint, notes


def _resolved(evaluate: Callable[[dict[str, Any]], Any], names: dict[str, Any]) -> Any:
    """Evaluate, and where a name is missing, look for it in the functions that are being run."""
    for _ in range(_MOST_LOOKUPS):
        try:
            return evaluate(names)
        except NameError as problem:
            named = re.search(r"'([^']+)'", str(problem))
            missing = problem.name or (named[1] if named else str(problem))
            found = [frame[missing] for frame in _frames() if missing in frame]
            if missing in names or not found:
                raise NameError(str(problem), name=missing) from None
            names[missing] = found[0]
    raise NameError("too many names", name="?")


def _frames() -> Iterator[Mapping[str, Any]]:
    """Yield the local names of the functions that are being run, ours left out."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("linkspan."):
            yield frame.f_locals
        frame = frame.f_back


def _closure(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    for parameter in getattr(function, "__type_params__", ()):
        names[parameter.__name__] = parameter
    return names


EMPTY: Final[Any] = type("EMPTY", (), {})
"""Stands for a default or an annotation that is not there."""

# The kinds of parameters, numbered as `inspect` numbers them.
POSITIONAL_ONLY: Final = 0
POSITIONAL_OR_KEYWORD: Final = 1
VAR_POSITIONAL: Final = 2
KEYWORD_ONLY: Final = 3
VAR_KEYWORD: Final = 4

_CO_VARARGS, _CO_VARKEYWORDS, _CO_GENERATOR, _CO_ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x200
_CO_COROUTINE, _CO_ITERABLE_COROUTINE = 0x80, 0x100
_ROUTINES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)


class Parameter(msgspec.Struct, frozen=True):
    """One parameter; `annotation` is what was written, perhaps a string."""

    name: str
    kind: int
    default: Any = EMPTY
    annotation: Any = EMPTY


def parameters_of(function: Callable[..., object]) -> list[Parameter]:
    """Return the parameters of anything that can be called. Raises: TypeError, ValueError where that cannot be known."""
    reported = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    if isinstance(function, types.FunctionType) and not reported:
        return _of_plain(function)
    import inspect

    def known(value: object) -> Any:
        return EMPTY if value is inspect.Parameter.empty else value

    return [
        Parameter(each.name, int(each.kind), known(each.default), known(each.annotation))
        for each in inspect.signature(function).parameters.values()
    ]


def dependency_of(parameter: Parameter, function: Callable[..., object]) -> Dependency | None:
    """Return what fills in a parameter of `function`: from its default, or from its hint if that can be resolved."""
    if isinstance(parameter.default, Dependency):
        return parameter.default
    if parameter.annotation is EMPTY:
        return None
    try:
        notes = peel(resolve(parameter.annotation, function))[1]
    except (NameError, TypeError, SyntaxError, AttributeError):
        return None
    return next((each for each in notes if isinstance(each, Dependency)), None)


def is_context_hint(hint: Any, contexts: Sequence[type], where: str) -> bool:
    """Return whether a hint, without its metadata, is a context, or one that may be None; `where` names the parameter.

    Raises: RegistrationError for a subclass of a context: nothing would make one.
    """
    arms = typing.get_args(hint)
    for arm in arms if type(None) in arms else (hint,):
        kind = peel(arm)[0]
        kind = typing.get_origin(kind) or kind
        if kind in contexts:
            return True
        if is_class(kind) and kind is not object and issubclass(kind, tuple(contexts)):
            context = contexts[0].__name__
            raise RegistrationError(
                f"{where} has the type {name_of(kind)}, but it gets a {context}: annotate it with {context}, and write what "
                f"{name_of(kind)} adds as functions or dependencies"
            )
    return False


def provided_by(hint: Any, provided: Sequence[type]) -> type | None:
    """Return the class, of those whose values the server provides, that a hint without its metadata is."""
    kind = typing.get_origin(hint) or hint
    return next((each for each in provided if each is kind), None)


def takes_provided(parameter: Parameter, function: Callable[..., object], provided: Sequence[type]) -> type | None:
    """Return the class whose value a parameter of `function` takes from the server, by its hint if that can be resolved."""
    if not provided or parameter.annotation is EMPTY:
        return None
    try:
        return provided_by(peel(resolve(parameter.annotation, function))[0], provided)
    except (NameError, TypeError, SyntaxError, AttributeError):
        return None


def _of_plain(function: types.FunctionType) -> list[Parameter]:
    code = function.__code__
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    defaults = function.__defaults__ or ()
    kw_defaults = function.__kwdefaults__ or {}
    hints = function.__annotations__
    without_default = positional - len(defaults)
    found: list[Parameter] = []
    for at, name in enumerate(names[:positional]):
        kind = POSITIONAL_ONLY if at < code.co_posonlyargcount else POSITIONAL_OR_KEYWORD
        default = defaults[at - without_default] if at >= without_default else EMPTY
        found.append(Parameter(name, kind, default, hints.get(name, EMPTY)))
    rest = positional + keywords
    if code.co_flags & _CO_VARARGS:
        found.append(Parameter(names[rest], VAR_POSITIONAL, EMPTY, hints.get(names[rest], EMPTY)))
        rest += 1
    for name in names[positional : positional + keywords]:
        found.append(Parameter(name, KEYWORD_ONLY, kw_defaults.get(name, EMPTY), hints.get(name, EMPTY)))
    if code.co_flags & _CO_VARKEYWORDS:
        found.append(Parameter(names[rest], VAR_KEYWORD, EMPTY, hints.get(names[rest], EMPTY)))
    return found


def is_class(value: object) -> TypeGuard[type[Any]]:
    """Return whether a value is a class."""
    return isinstance(value, type)


def is_routine(value: object) -> bool:
    """Return whether a value is a function or a method, built in or not."""
    return isinstance(value, _ROUTINES)


def is_coroutine_function(function: object) -> bool:
    """Return whether calling a function or method gives a coroutine."""
    return _has_flag(function, _CO_COROUTINE | _CO_ITERABLE_COROUTINE)


def is_generator_function(function: object) -> bool:
    """Return whether calling a function or method gives a generator."""
    return _has_flag(function, _CO_GENERATOR)


def is_async_generator_function(function: object) -> bool:
    """Return whether calling a function or method gives an async generator."""
    return _has_flag(function, _CO_ASYNC_GENERATOR)


def _has_flag(function: object, flag: int) -> bool:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return isinstance(code, types.CodeType) and bool(code.co_flags & flag)


def clean_docstring(doc: str) -> str:
    """Return a docstring without the indentation of the code around it."""
    first, *rest = doc.expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    lines = [first.lstrip(), *(line[margin:].rstrip() for line in rest)]
    return "\n".join(lines).strip("\n")


_ABOUT_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes"}
)
_LEFT_OUT = frozenset(
    {
        "returns", "return", "raises", "raise", "yields", "yield", "except", "exceptions", "receives", "warns", "see also",
        "references", "methods", "todo",
    }
)  # fmt: skip
_HEADING = r"([A-Za-z][A-Za-z ]*?)\s*:\s*"
_GOOGLE = r"\*{0,2}([A-Za-z_]\w*)\s*(?:\([^)]*\))?\s*:\s*(.*)"
_NUMPY = r"(\*{0,2}[A-Za-z_]\w*(?:\s*,\s*\*{0,2}[A-Za-z_]\w*)*)\s*(?::.*)?()"
_SPHINX = r":(\w+)((?:\s+[^:\s]+)*)\s*:\s*(.*)"
_SPHINX_PARAMETER = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var", "cvar"})
_SPHINX_LEFT_OUT = frozenset(
    {
        "type", "kwtype", "vartype", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield",
        "yields",
    }
)  # fmt: skip


class Docstring(msgspec.Struct, frozen=True):
    """What a docstring says: the description without its sections, and a text for each parameter."""

    description: str | None = None
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def parse_docstring(doc: str | None) -> Docstring:
    """Read a docstring in Google, NumPy or Sphinx style; a style it does not know is all description.

    Sections about parameters are taken out of the description, so are returns and raises: they help the author, not the
    model. Notes and examples stay.
    """
    if not doc or not doc.strip():
        return Docstring()
    lines = clean_docstring(doc).splitlines()
    if ":" not in doc and "---" not in doc:
        return Docstring(_joined(lines))
    kept: list[str] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(lines):
        position = _one_part(lines, position, kept, parameters)
    return Docstring(_joined(kept), {name: text for name, text in parameters.items() if text})


def _one_part(lines: Sequence[str], position: int, kept: list[str], parameters: dict[str, str]) -> int:
    """Read one line, field or section at `position`; return where the next begins."""
    line, following = lines[position], lines[position + 1 : position + 2]
    found = re.fullmatch(_SPHINX, line) if line.startswith(":") else None
    if found and found[1] in _SPHINX_PARAMETER | _SPHINX_LEFT_OUT:
        end = _indented_end(lines, position + 1)
        if found[1] in _SPHINX_PARAMETER and (words := found[2].split()):
            texts = [each.strip() for each in (found[3], *lines[position + 1 : end])]
            parameters[words[-1].lstrip("*")] = " ".join(filter(None, texts))
        return end
    heading = re.fullmatch(_HEADING, line) if line.rstrip().endswith(":") and not line.startswith(" ") else None
    if line.strip() and _is_rule(*following):
        later = range(position + 2, len(lines) - 1)
        end = next((each for each in later if lines[each].strip() and _is_rule(lines[each + 1])), len(lines))
        name, body, pattern = line, lines[position + 2 : end], _NUMPY
    elif heading and (end := _indented_end(lines, position + 1)) > position + 1:
        name, body, pattern = (
            heading[1],
            clean_docstring("\n".join(["", *lines[position + 1 : end]])).splitlines(),
            _GOOGLE,
        )
    else:
        kept.append(line)
        return position + 1
    if name.strip().lower() in _ABOUT_PARAMETERS:
        _read_parameters(body, pattern, parameters)
    elif name.strip().lower() not in _LEFT_OUT:
        kept.extend(lines[position:end])
    return end


def _read_parameters(lines: Sequence[str], pattern: str, parameters: dict[str, str]) -> None:
    names: list[str] = []
    for line in lines:
        found = None if line.startswith(" ") else re.fullmatch(pattern, line)
        if found:
            names = [each.strip().lstrip("*") for each in found[1].split(",")]
            parameters.update(dict.fromkeys(names, found[2].strip()))
        elif line.strip():
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _indented_end(lines: Sequence[str], position: int) -> int:
    """Return where the indented lines from `position` on end (blank lines within belong to them)."""
    end = position
    for index in range(position, len(lines)):
        if lines[index].startswith(" "):
            end = index + 1
        elif lines[index].strip():
            break
    return end


def _is_rule(line: str = "") -> bool:
    return len(line.strip()) > 2 and set(line.strip()) == {"-"}


def _joined(lines: Sequence[str]) -> str | None:
    text = "\n".join(lines)
    return (re.sub(r"\n{3,}", "\n\n", text) if "\n\n\n" in text else text).strip() or None
