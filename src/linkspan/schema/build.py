"""From a hint to a shape: one table from classes to builders. What is not in it is refused with a sentence."""

from __future__ import annotations

import collections
import collections.abc as abc
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import structs

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import EMPTY, Ask, class_hints, is_class, parse_docstring, peel
from linkspan.schema.constraints import annotate
from linkspan.schema.containers import (
    ArrayShape,
    DictShape,
    Field,
    ObjectShape,
    RecursiveShape,
    UnionShape,
    most_specific_first,
)
from linkspan.schema.encode import to_json
from linkspan.schema.shapes import (
    ANY,
    BOOLEAN,
    FLOAT,
    FORMATTED,
    INTEGER,
    NULL,
    TEXT,
    Choice,
    Formatted,
    Rendering,
    Shape,
    choices_of,
)
from linkspan.types.base import UNSET, JSONObject

if TYPE_CHECKING:
    import dataclasses


_LISTS = (
    list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable, abc.Container, abc.Reversible,
)  # fmt: skip
_ARRAYS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys(_LISTS, list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    frozenset: frozenset,
    collections.deque: collections.deque,
}
_DICTS: Mapping[Any, Callable[[dict[Any, Any]], Any] | None] = {
    dict: None,
    abc.Mapping: None,
    abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
    collections.Counter: collections.Counter,
}
_SINGLE: Mapping[Any, Shape] = {
    **FORMATTED,
    **dict.fromkeys((Any, object, EMPTY), ANY),
    **dict.fromkeys((None, type(None)), NULL),
    **dict.fromkeys((str, typing.LiteralString), TEXT),
    bool: BOOLEAN,
    int: INTEGER,
    float: FLOAT,
}
_HOOK = "__get_pydantic_core_schema__"
_STREAMS = (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator)


def build(hint: Any, where: str, otherwise: str = "") -> Shape:
    """Return the shape of a hint whose strings are evaluated already.

    `where` opens the message of an error, for example `add: parameter a`, and `otherwise` ends the one about a class.
    Raises: RegistrationError for a type that JSON cannot carry.
    """
    return _Builder(where, otherwise).shape(hint)


def rendered(shape: Shape, out: Rendering) -> JSONObject:
    """Return a shape's whole schema, with `$defs` where it needs them."""
    found = shape.schema(out)
    if out.definitions:
        found["$defs"] = out.definitions
    return found


class _Builder:
    """One hint on its way to a shape: what is being looked at (for recursive types) and what type variables mean."""

    def __init__(self, where: str, otherwise: str) -> None:
        self.where = where
        self._otherwise = otherwise
        self._open: dict[Any, RecursiveShape] = {}
        self._met: set[Any] = set()
        self._done: dict[Any, Shape] = {}
        self._variables: Mapping[Any, Any] = {}

    def shape(self, hint: Any) -> Shape:
        if type(hint) is type and hint in _SINGLE:  # most hints are: the way below takes ten times as long
            return _SINGLE[hint]
        bare, notes = peel(hint)
        if any(isinstance(each, Ask) for each in notes):
            raise RegistrationError(f"{self.where}: Ask belongs on a parameter itself, not inside its type")
        if is_foreign(bare, notes):
            from linkspan.schema.pydantic_types import ForeignShape

            return annotate(
                ForeignShape(hint, self.where), [each for each in notes if isinstance(each, str)], self.where
            )
        is_alias = hasattr(bare, "__value__")
        found = self._once(bare, bare.__name__, lambda: self.shape(bare.__value__)) if is_alias else self._bare(bare)
        return annotate(found, notes, self.where) if notes else found

    def _bare(self, hint: Any) -> Shape:
        if isinstance(hint, typing.TypeVar):
            if hint in self._variables:
                return self.shape(self._variables[hint])
            if hint.__constraints__:
                return self._union(hint.__constraints__)
            return self.shape(Any if hint.__bound__ is None else hint.__bound__)
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is None and hint.__hash__ is not None and hint in _SINGLE:
            return _SINGLE[hint]
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return self._literal(arguments)
        target = origin or hint
        if is_record(target):
            return self._once(hint, target.__name__, lambda: self._fields(target, arguments))
        if target is tuple:
            if hint is tuple or hint is typing.Tuple:  # noqa: UP006
                return ArrayShape(ANY, tuple)
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return ArrayShape(self.shape(arguments[0]), tuple)
            return ArrayShape(None, tuple, first=[self.shape(each) for each in arguments])
        if target in _ARRAYS:
            return ArrayShape(self.shape(arguments[0] if arguments else Any), _ARRAYS[target])
        if target in _DICTS:
            key, item = (
                arguments if len(arguments) == 2 else (arguments[0] if arguments else str, int if arguments else Any)
            )
            return DictShape(self.shape(key), self.shape(item), _DICTS[target])
        if target is collections.defaultdict:
            key, item = arguments if len(arguments) == 2 else (str, Any)
            bare = typing.get_origin(item) or item
            factory = bare if isinstance(bare, type) else None
            return DictShape(self.shape(key), self.shape(item), lambda found: collections.defaultdict(factory, found))
        return self._class(hint)

    def _class(self, hint: Any) -> Shape:
        if not isinstance(hint, type):
            raise self._refused(hint)
        if issubclass(hint, enum.Enum):
            members = choices_of(hint)
            if not members:
                raise RegistrationError(f"{self.where}: {hint.__name__} has no members; add some")
            kinds = {isinstance(wire, str) for wire, _ in members}
            by_value = all(wire == each.value for wire, each in members) and len(kinds) == 1
            missing = hint if "_missing_" in vars(hint) or issubclass(hint, enum.Flag) else None
            return Choice(members, hint if by_value and missing is None else None, missing)
        if hint.__module__.partition(".")[0] == "pathlib" or hint.__qualname__ == "PathLike":
            import pathlib

            target = hint if issubclass(hint, pathlib.PurePath) else pathlib.Path
            return Formatted("a path", target, read=target)
        raise self._refused(hint)

    def _literal(self, values: Sequence[Any]) -> Shape:
        members = [(to_json(each) if isinstance(each, enum.Enum) else each, each) for each in values]
        if any(isinstance(wire, bytes) for wire, _ in members):
            raise RegistrationError(f"{self.where}: a Literal of bytes cannot be written in JSON; use strings")
        plain = all(type(each) in (str, int) or each is None for each in values)
        return Choice(members, typing.Literal[tuple(values)] if plain else None)

    def _union(self, arguments: Sequence[Any]) -> Shape:
        members = [self.shape(each) for each in arguments]
        if ANY in members:
            return ANY
        return UnionShape(most_specific_first(members))

    def _fields(self, target: type, arguments: Sequence[Any]) -> Shape:
        before = self._variables
        parameters: Sequence[Any] = getattr(target, "__parameters__", ())
        meant = [before.get(each, each) if isinstance(each, typing.TypeVar) else each for each in arguments]
        self._variables = {**before, **dict(zip(parameters, meant, strict=False))}
        try:
            return read_record(target, self.shape, self.where)
        finally:
            self._variables = before

    def _once(self, hint: Any, name: str, resolve: Callable[[], Shape]) -> Shape:
        """Look at a type once; where it is met again while being looked at, it is recursive."""
        key = (hint, tuple(self._variables.items()) if self._variables else ())
        if key in self._done:
            return self._done[key]
        if key in self._open:
            self._met.add(key)
            return self._open[key]
        recursive = RecursiveShape(name)
        self._open[key] = recursive
        try:
            found = resolve()
        finally:
            del self._open[key]
        self._done[key] = found
        if key in self._met:
            recursive.target = found
            recursive.kinds = found.kinds
            recursive.words = found.words
            if isinstance(found, ObjectShape):
                found.recursive = True
            else:
                return recursive
        return found

    def _refused(self, hint: Any) -> RegistrationError:
        shown = getattr(hint, "__name__", None) or str(hint)
        if (typing.get_origin(hint) or hint) in _STREAMS:
            advice = "use list[...]"
        elif isinstance(hint, str | typing.ForwardRef):
            advice = "define that name at module level"
        elif isinstance(hint, type) and not hasattr(hint, "__dataclass_fields__"):
            advice = "use a dataclass, a TypedDict, or a type made of str, int, float, bool, list and dict"
            advice += self._otherwise
        else:
            advice = "use str, int, float, bool, list, dict, a dataclass or a TypedDict"
        return RegistrationError(f"{self.where} has the type {shown}, which JSON cannot carry; {advice} [LS-702]")


_Resolve: TypeAlias = Callable[[Any], Shape]
_Reader: TypeAlias = Callable[[type, _Resolve], Sequence[Field]]


def is_record(target: object) -> bool:
    """Return whether a class has fields that this module can read."""
    return isinstance(target, type) and _kind(target) is not None


def read_record(target: type[Any], resolve: _Resolve, where: str) -> ObjectShape:
    """Return the shape of a class with fields; `resolve` gives the shapes of their hints. Raises: RegistrationError."""
    read = _kind(target)
    if read is None:
        raise RegistrationError(f"{where}: {target.__name__} has no fields to read; use a dataclass")
    doc: Any = vars(target).get("__doc__")
    if not isinstance(doc, str) or doc.startswith(f"{target.__name__}("):
        doc = None  # what `dataclass` or `NamedTuple` make up
    said = parse_docstring(doc)
    fields = read(target, resolve)
    texts = [each.description or said.parameters.get(each.name) for each in fields]
    config = getattr(target, "__struct_config__", None)
    return ObjectShape(
        target.__name__,
        [structs.replace(each, description=text) for each, text in zip(fields, texts, strict=True)],
        dict if read is _typed_dict else lambda taken: target(**taken),
        description=said.description,
        dropped=[config.tag_field] if config is not None and config.tag_field is not None else (),
        as_array=read is _named_tuple or (config is not None and config.array_like),
    )


def _kind(target: Any) -> _Reader | None:
    for mark, read in _KINDS.items():
        if hasattr(target, mark):
            return read
    return _typed_dict if typing.is_typeddict(target) else None


def _dataclass(target: Any, resolve: _Resolve) -> Sequence[Field]:
    from dataclasses import MISSING

    hints = class_hints(target)
    fields: list[Field] = []
    every: dict[str, dataclasses.Field[Any]] = target.__dataclass_fields__
    for each in every.values():
        if str(getattr(each, "_field_type", "")) == "_FIELD_CLASSVAR":
            continue  # what is left are the fields and the `InitVar`s
        hint: Any = hints.get(each.name, Any)
        init_only = type(hint).__name__ == "InitVar"
        required = each.default is MISSING and each.default_factory is MISSING
        fields.append(
            Field(
                each.name,
                each.name,
                resolve(hint.type if init_only else hint),
                required=required if each.init else True,
                default=_default(each.default, each.default_factory, MISSING),
                description=_field_text(each.metadata),
                written=not init_only,
                taken=each.init,
            )
        )
    return fields


def _field_text(metadata: Any) -> str | None:
    text = metadata.get("description")
    return text if isinstance(text, str) else None


def _struct(target: Any, resolve: _Resolve) -> Sequence[Field]:
    class_hints(target)
    fields = [
        Field(
            each.name,
            each.encode_name,
            resolve(each.type),
            required=each.required,
            default=_default(each.default, each.default_factory, msgspec.NODEFAULT),
        )
        for each in msgspec.structs.fields(target)
    ]
    config: Any = target.__struct_config__
    if config.tag_field is not None:
        tag = Choice([(config.tag, config.tag)], typing.Literal[config.tag])
        fields.insert(0, Field(config.tag_field, config.tag_field, tag))
    return fields


def _typed_dict(target: Any, resolve: _Resolve) -> Sequence[Field]:
    fields: list[Field] = []
    required_keys: frozenset[str] = target.__required_keys__
    for name, hint in class_hints(target).items():
        required = name in required_keys
        bare = hint
        while (origin := typing.get_origin(bare)) in (typing.Required, typing.NotRequired, typing.Annotated):
            required = origin is typing.Required or (required and origin is typing.Annotated)
            bare = typing.get_args(bare)[0]
        fields.append(Field(name, name, resolve(hint), required=required))
    return fields


def _named_tuple(target: Any, resolve: _Resolve) -> Sequence[Field]:
    hints = class_hints(target)
    names: Sequence[str] = target._fields
    defaults: dict[str, Any] = target._field_defaults
    return [
        Field(
            name, name, resolve(hints.get(name, Any)), required=name not in defaults, default=defaults.get(name, UNSET)
        )
        for name in names
    ]


def _attrs(target: Any, resolve: _Resolve) -> Sequence[Field]:
    hints = class_hints(target)
    fields: list[Field] = []
    for each in target.__attrs_attrs__:
        factory = getattr(each.default, "factory", None)
        absent = type(each.default).__name__ == "_Nothing" or repr(each.default) == "NOTHING"
        alias: str = getattr(each, "alias", None) or each.name.lstrip("_")
        fields.append(
            Field(
                alias,
                alias,
                resolve(hints.get(each.name, Any if each.type is None else each.type)),
                required=absent,
                default=UNSET
                if absent or getattr(each.default, "takes_self", False)
                else factory()
                if factory
                else each.default,
                description=_field_text(each.metadata),
                written=not each.name.startswith("_"),
                taken=each.init,
            )
        )
    return fields


_HARMLESS: tuple[Any, ...] = (list, dict, set, frozenset, tuple, str, int, float, bool)


def _default(value: Any, factory: Any, absent: Any) -> Any:
    """Return the default to show in the schema: a factory is asked once, if it is one of the harmless ones."""
    if value is not absent:
        return value
    return factory() if factory in _HARMLESS else UNSET


_KINDS: Mapping[str, _Reader] = {
    "__struct_config__": _struct,
    "__dataclass_fields__": _dataclass,
    "_field_defaults": _named_tuple,
    "__attrs_attrs__": _attrs,
}


def is_foreign(hint: Any, notes: Sequence[Any]) -> bool:
    """Return whether a hint has to be read by pydantic."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(hint, type) and (hasattr(hint, _HOOK) or "__pydantic_core_schema__" in vars(hint)):
        return True
    return any(hasattr(each, _HOOK) for each in notes)


def runs_author_code(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether the author's code runs when a value of this type is read. When in doubt it does."""
    bare, notes = peel(hint)
    if not notes and bare in _HARMLESS:
        return False
    if is_foreign(bare, notes):
        return True
    target: Any = typing.get_origin(bare) or bare
    if any(runs_author_code(each, seen) for each in typing.get_args(bare) if not isinstance(each, str | int | list)):
        return True
    if not is_class(target) or target in seen or target.__module__ in ("builtins", "typing", "datetime"):
        return False
    if issubclass(target, enum.Enum):
        return "_missing_" in {name for each in target.__mro__[:-1] for name in vars(each) if each is not enum.Enum}
    if hasattr(target, "__attrs_attrs__") or hasattr(target, "__post_init__"):
        return True
    if not getattr(getattr(target, "__dataclass_params__", None), "init", True):
        return True  # it has a constructor of its own
    fields: Any = getattr(target, "__dataclass_fields__", {}).values()
    if any(callable(each.default_factory) and each.default_factory not in _HARMLESS for each in fields):
        return True
    marks = ("__struct_config__", "__dataclass_fields__", "_field_defaults")
    if not typing.is_typeddict(target) and not any(hasattr(target, mark) for mark in marks):
        return False
    return any(runs_author_code(each, seen | {target}) for each in class_hints(target).values())
