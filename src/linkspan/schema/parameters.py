"""A function's parameters, looked at once: the input schema, and a decoder from bytes to keyword arguments.

The fast path is one msgspec decoder over all parameters. What it refuses is walked through our own shapes, which find every
problem, take 1.0 for an int, and repair what is safe to repair.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import (
    EMPTY,
    HEADER_KEYWORD,
    KEYWORD_ONLY,
    POSITIONAL_ONLY,
    POSITIONAL_OR_KEYWORD,
    VAR_KEYWORD,
    VAR_POSITIONAL,
    Ask,
    Dependency,
    Parameter,
    bound_names,
    is_context_hint,
    is_routine,
    name_of,
    parameters_of,
    parse_docstring,
    peel,
    provided_by,
    resolve,
    underlying,
)
from linkspan.schema.build import build, rendered, runs_author_code
from linkspan.schema.containers import Field, ObjectShape, fresh
from linkspan.schema.problems import ArgumentsInvalid, Problem
from linkspan.schema.shapes import Rendering, Walk, from_marker
from linkspan.types.base import JSON, UNSET

if TYPE_CHECKING:
    from linkspan.schema.forms import Form

T = TypeVar("T")
CONTEXT_NAMES = ("ctx", "server_context")
_KEYWORD = (POSITIONAL_OR_KEYWORD, KEYWORD_ONLY)
_BESIDE_CONTEXT = {"None", "Optional", "Union", "typing", "linkspan"}
_DEPENDS = ("Depends", "Security")
"""What frameworks call a parameter that a function fills in. Ours is a `Dependency`."""
_IF_PROVIDED = "; if a lifespan yields it, register the lifespan first, or take it as ctx.lifespan"
_IMMUTABLE = (str, int, float, bool, bytes, type(None))


class Decoded(NamedTuple):
    """Keyword arguments for the function, and what was repaired to get them."""

    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()


class AskParameter(msgspec.Struct, frozen=True):
    """A parameter that the user fills in: the question, its form, and the default (UNSET if there is none)."""

    name: str
    message: str
    form: Form
    default: Any = UNSET


_decoded: Callable[[Any, tuple[dict[str, Any], tuple[str, ...]]], Decoded] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_asdict = msgspec.structs.asdict


class Parameters:
    """What a function takes.

    `json_schema` is the input schema, without the context, dependencies, and what is asked of the user; `headers` are the paths
    that go into HTTP headers; `description` is the docstring's, without its sections. `provided` are the parameters that take
    a value which the server provides, with its class. `runs_code`: decoding runs the author's code, such as validators.
    """

    __slots__ = (
        "_coerce",
        "_decode",
        "_shape",
        "asks",
        "context_parameter",
        "dependencies",
        "description",
        "headers",
        "json_schema",
        "provided",
        "runs_code",
    )

    def __init__(
        self,
        shape: ObjectShape,
        *,
        portable: bool = True,
        coerce: bool = False,
        asks: Sequence[AskParameter] = (),
        dependencies: Mapping[str, Dependency] = {},
        provided: Mapping[str, type] = {},
        context_parameter: str | None = None,
        description: str | None = None,
        runs_code: bool = False,
    ) -> None:
        self._shape = shape
        self._coerce = coerce
        self.runs_code = runs_code
        self.asks = tuple(asks)
        self.dependencies = dependencies
        self.provided = provided
        self.context_parameter = context_parameter
        self.description = description
        self.json_schema = rendered(shape, Rendering(portable=portable))
        self.json_schema.pop("description", None)
        self.headers: Mapping[tuple[str, ...], str] = {}
        if HEADER_KEYWORD in repr(self.json_schema):
            from linkspan.schema.document import header_paths

            self.headers = header_paths(self.json_schema, shape.name)
        self._decode: Callable[[bytes | Raw], Any] | None = None  # compiled for the first call: many tools get none

    def decode(self, raw: bytes | Raw | None, *, repair: bool = True, check: bool = True) -> Decoded:
        """Turn the arguments of a call, a JSON object in bytes, into keyword arguments (None means none).

        A text that holds JSON is decoded where an array or object is wanted, if `repair`. What follows from hints is always
        checked; `check` is for the other kind of parameters. Raises: ArgumentsInvalid.
        """
        decode = self._decode
        if decode is None:
            decode = self._decode = _fast_decoder(self._shape)
        try:
            return _decoded(Decoded, (_asdict(decode(raw or b"{}")), ()))
        except Exception:
            return self.decode_values(read_arguments(raw), repair=repair)

    def decode_values(self, values: Mapping[str, JSON], *, repair: bool = True) -> Decoded:
        """Turn arguments that are decoded JSON already into keyword arguments. Raises: ArgumentsInvalid."""
        walk = Walk(repair=repair, coerce=self._coerce, is_arguments=True)
        try:
            found = self._shape.convert(values, "", walk)
        except RecursionError:
            raise ArgumentsInvalid([Problem("", "the arguments are nested too deeply")]) from None
        if walk.problems:
            raise ArgumentsInvalid(walk.problems)
        return Decoded(found, tuple(walk.repairs))


def read_arguments(raw: bytes | Raw | None) -> JSON:
    """Return the arguments of a call as decoded JSON. Raises: ArgumentsInvalid."""
    try:
        return msgspec.json.decode(raw or b"{}")
    except RecursionError:
        raise ArgumentsInvalid([Problem("", "the arguments are nested too deeply")]) from None
    except Exception:
        raise ArgumentsInvalid([Problem("", "the arguments are not valid JSON")]) from None


def _fast_decoder(shape: ObjectShape) -> Callable[[bytes | Raw], Any]:
    fields: list[tuple[str, Any, Any]] = []
    for each in shape.fields:
        field: Any = msgspec.field()
        if isinstance(each.default, _IMMUTABLE):
            field = msgspec.field(default=each.default)
        elif each.default is not UNSET:
            field = msgspec.field(default_factory=partial(fresh, each.default))
        elif not each.required:
            field = msgspec.field(default=None)
        fields.append((each.name, each.shape.native, field))
    struct = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False)
    return msgspec.json.Decoder(struct, dec_hook=from_marker).decode


def compile_parameters(
    function: Callable[..., object],
    *,
    context_types: tuple[type, ...] = (),
    context_names: tuple[str, ...] = CONTEXT_NAMES,
    portable: bool = True,
    coerce: bool = False,
    name: str | None = None,
    provided: Sequence[type] = (),
) -> Parameters:
    """Look at a function's parameters once.

    The parameter hinted with one of `context_types`, or without a hint and named in `context_names`, is left out of the
    schema, and so are those hinted with `provided`. `portable` writes the subset of JSON Schema that every model provider
    takes; `coerce` reads texts where numbers and booleans are wanted. Raises: RegistrationError.
    """
    name = name or name_of(function)
    return _ParameterCompiler(function, context_types, context_names, portable, coerce, name, provided).parameters()


def refuse_foreign_depends(name: str, parameter: Parameter, notes: Sequence[object] = ()) -> None:
    """Raise RegistrationError for a parameter of `name` that another library would fill in."""
    default: object = parameter.default
    for kind in map(type, (default, *notes)):
        if kind.__name__ in _DEPENDS:
            library = kind.__module__.partition(".")[0]
            raise RegistrationError(
                f"{name}: parameter {parameter.name} has the {kind.__name__} of {library}, which nothing calls here: write "
                "`from linkspan import Depends`"
            )


class _ParameterCompiler(msgspec.Struct, frozen=True):
    function: Callable[..., object]
    context_types: tuple[type, ...]
    context_names: tuple[str, ...]
    portable: bool
    coerce: bool
    name: str
    provided: Sequence[type]

    def parameters(self) -> Parameters:
        doc = parse_docstring(_docstring(self.function))
        fields: list[Field] = []
        asks: list[AskParameter] = []
        dependencies: dict[str, Dependency] = {}
        provided: dict[str, type] = {}
        context: str | None = None
        runs_code = False
        for parameter in self._signature():
            self._check_kind(parameter)
            hint = self._hint(parameter)
            bare, notes = peel(hint)
            self._check_filled(parameter, notes)
            if (dependency := _first((parameter.default, *notes), Dependency)) is not None:
                dependencies[parameter.name] = dependency
                continue
            if (kind := provided_by(bare, self.provided)) is not None:
                provided[parameter.name] = kind
                continue
            runs_code = runs_code or runs_author_code(hint)
            if self._is_context(parameter, bare):
                if context is not None:
                    raise RegistrationError(
                        f"{self.name}: both {context} and {parameter.name} are the context; keep one"
                    )
                context = parameter.name
            elif (ask := _first(notes, Ask)) is not None:
                asks.append(self._ask(parameter, bare, notes, ask))
            else:
                fields.append(self._field(parameter, hint, doc.parameters.get(parameter.name)))
        shape = ObjectShape(self.name, fields, partial(_with_defaults, fields), root=True)
        return Parameters(
            shape,
            portable=self.portable,
            coerce=self.coerce,
            asks=asks,
            dependencies=dependencies,
            provided=provided,
            context_parameter=context,
            description=doc.description,
            runs_code=runs_code,
        )

    def _signature(self) -> list[Parameter]:
        try:
            parameters = parameters_of(self.function)
        except (TypeError, ValueError):
            raise RegistrationError(f"{self.name} has no signature; wrap it in a function that has one") from None
        fixed = bound_names(self.function)
        return [each for each in parameters if each.name not in fixed]

    def _check_kind(self, parameter: Parameter) -> None:
        if parameter.kind in _KEYWORD:
            return
        shown = {
            VAR_POSITIONAL: f"*{parameter.name} cannot be described by a schema; use a parameter such as "
            f"{parameter.name}: list[str]",
            VAR_KEYWORD: f"**{parameter.name} cannot be described by a schema; use a parameter such as "
            f"{parameter.name}: dict[str, str]",
            POSITIONAL_ONLY: f"the parameter {parameter.name} is positional-only, but arguments have names; "
            "remove the `/`",
        }
        raise RegistrationError(f"{self.name}: {shown[parameter.kind]} [LS-703]")

    def _check_filled(self, parameter: Parameter, notes: Sequence[object]) -> None:
        """Refuse what was meant to be called, here or by another library, to fill a parameter in."""
        refuse_foreign_depends(self.name, parameter, notes)
        if is_routine(parameter.default):
            function = name_of(parameter.default)
            raise RegistrationError(
                f"{self.name}: the default of parameter {parameter.name} is the function {function}, which nothing calls: write "
                f"Depends({function}) to call it for each call, or {function}() for one value"
            )
        if isinstance(parameter.default, type) and parameter.default is not EMPTY:
            made = name_of(parameter.default)
            raise RegistrationError(
                f"{self.name}: the default of parameter {parameter.name} is the class {made}, which nothing calls: write "
                f"{made}() for a value of it"
            )

    def _hint(self, parameter: Parameter) -> Any:
        if parameter.annotation is EMPTY:
            return Any
        try:
            return resolve(parameter.annotation, self.function)
        except NameError as problem:
            words = set(re.findall(r"\w+", str(parameter.annotation))) - _BESIDE_CONTEXT
            if words and words <= {each.__name__ for each in self.context_types}:
                return self.context_types[0]  # it is imported for type checkers only
            raise RegistrationError(
                f"{self.name}: the name {problem.name!r} in the hint of parameter {parameter.name} cannot be resolved; "
                "define or import it at module level (not only under TYPE_CHECKING) [LS-701]"
            ) from None
        except (TypeError, SyntaxError, AttributeError) as problem:
            raise RegistrationError(
                f"{self.name}: the hint of parameter {parameter.name} cannot be evaluated ({problem})"
            ) from None

    def _is_context(self, parameter: Parameter, bare: Any) -> bool:
        if parameter.annotation is EMPTY:
            return parameter.name in self.context_names
        return is_context_hint(bare, self.context_types, f"{self.name}: parameter {parameter.name}")

    def _ask(self, parameter: Parameter, bare: Any, notes: Sequence[Any], ask: Ask) -> AskParameter:
        from linkspan.schema.forms import compile_form

        default = UNSET if parameter.default is EMPTY else parameter.default
        rest = tuple(each for each in notes if not isinstance(each, Ask))
        hint = typing.Annotated[bare, *rest] if rest else bare
        where = f"{self.name}: parameter {parameter.name}"
        form = compile_form(hint, default=default, name=where, field=parameter.name)
        return AskParameter(parameter.name, ask.message, form, default)

    def _field(self, parameter: Parameter, hint: Any, description: str | None) -> Field:
        default, notes = _default_of(parameter)
        if default is None and hint is not Any:
            hint = typing.Optional[hint]  # noqa: UP045
        if notes:
            hint = typing.Annotated[hint, *notes]
        shape = build(hint, f"{self.name}: parameter {parameter.name}", _IF_PROVIDED)
        return Field(
            parameter.name, parameter.name, shape, required=default is UNSET, default=default, description=description
        )


def _with_defaults(fields: Sequence[Field], taken: dict[str, Any]) -> dict[str, Any]:
    for each in fields:
        if each.default is not UNSET and each.name not in taken:
            taken[each.name] = fresh(each.default)
    return taken


def _docstring(function: Callable[..., object]) -> str | None:
    own: str | None = getattr(function, "__doc__", None)
    if is_routine(function) or isinstance(function, type):
        return own
    inner: str | None = getattr(underlying(function), "__doc__", None)
    return inner if type(function) is partial else inner or own


def _first(notes: Iterable[object], kind: type[T]) -> T | None:
    return next((each for each in notes if isinstance(each, kind)), None)


def _default_of(parameter: Parameter) -> tuple[Any, tuple[Any, ...]]:
    """Return the default, and what pydantic's `Field(...)` or a dataclass `field()` in its place has to say."""
    default = parameter.default
    if default is EMPTY:
        return UNSET, ()
    factory = getattr(default, "default_factory", None)
    if type(default).__name__ not in ("FieldInfo", "Field"):
        return default, ()
    inner = getattr(default, "default", UNSET)
    if callable(factory):
        inner = factory()
    elif inner is ... or type(inner).__name__ in ("PydanticUndefinedType", "_MISSING_TYPE"):
        inner = UNSET
    return inner, (default,)
