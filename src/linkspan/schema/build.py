"""From a hint to a shape. One table from classes to builders; what is not in it is refused with a sentence."""

from __future__ import annotations

import collections
import collections.abc as abc
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from linkspan.errors import RegistrationError
from linkspan.schema.containers import ArrayShape, DictShape, TupleShape, UnionShape, most_specific_first
from linkspan.schema.encode import to_json
from linkspan.schema.foreign import ForeignShape, is_foreign
from linkspan.schema.hints import Ask, peel
from linkspan.schema.notes import annotate
from linkspan.schema.objects import ObjectShape, RecursiveShape
from linkspan.schema.records import is_record, read_record
from linkspan.schema.scalars import FORMATTED, AnyShape, Choice, NoneShape, Number, Plain, choices_of, path_shape
from linkspan.schema.shape import Rendering, Shape
from linkspan.schema.signatures import EMPTY
from linkspan.types.base import JSONObject

__all__ = ["build", "rendered"]


def _of(generic: Any, item: Any) -> Any:
    """Return a generic type of an item's native type."""
    return generic[item]


def _of_any_length(item: Any) -> Any:
    return _of(tuple, (item, ...))


_ARRAYS: Mapping[Any, tuple[Callable[[Iterable[Any]], Any], Callable[[Any], Any] | None]] = {
    list: (list, partial(_of, list)),
    abc.Sequence: (list, partial(_of, list)),
    abc.MutableSequence: (list, partial(_of, list)),
    abc.Collection: (list, partial(_of, list)),
    abc.Iterable: (list, partial(_of, list)),
    abc.Container: (list, partial(_of, list)),
    abc.Reversible: (list, partial(_of, list)),
    set: (set, partial(_of, set)),
    abc.Set: (set, partial(_of, set)),
    abc.MutableSet: (set, partial(_of, set)),
    frozenset: (frozenset, partial(_of, frozenset)),
    collections.deque: (collections.deque, None),
}
_DICTS: Mapping[Any, Callable[[dict[Any, Any]], Any] | None] = {
    dict: None,
    abc.Mapping: None,
    abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
    collections.Counter: collections.Counter,
}
_STREAMS = (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator)


def build(hint: Any, where: str) -> Shape:
    """Return the shape of a hint whose strings are evaluated already.

    `where` opens the message of an error, for example `add: parameter a`. Raises: RegistrationError for a type that JSON
    cannot carry.
    """
    return _Builder(where).shape(hint)


def rendered(shape: Shape, out: Rendering) -> JSONObject:
    """Return a shape's whole schema, with `$defs` where it needs them."""
    found = shape.schema(out)
    if out.definitions:
        found["$defs"] = out.definitions
    return found


class _Builder:
    """One hint on its way to a shape: what is being looked at (for recursive types) and what type variables mean."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._open: dict[Any, RecursiveShape] = {}
        self._met: set[Any] = set()
        self._done: dict[Any, Shape] = {}
        self._variables: Mapping[Any, Any] = {}

    def shape(self, hint: Any) -> Shape:
        bare, notes = peel(hint)
        if any(isinstance(each, Ask) for each in notes):
            raise RegistrationError(f"{self.where}: Ask belongs on a parameter itself, not inside its type")
        if is_foreign(bare, notes):
            return annotate(
                ForeignShape(hint, self.where), [each for each in notes if isinstance(each, str)], self.where
            )
        found = self._alias(bare) if hasattr(bare, "__value__") else self._bare(bare)
        return annotate(found, notes, self.where) if notes else found

    def _bare(self, hint: Any) -> Shape:
        if hint is Any or hint is object or hint is EMPTY:
            return AnyShape()
        if hint is None or hint is type(None):
            return NoneShape()
        if isinstance(hint, typing.TypeVar):
            return self._variable(hint)
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return self._literal(arguments)
        target = origin or hint
        if is_record(target):
            return self._record(hint, target, arguments)
        if target is tuple:
            return self._tuple(hint, arguments)
        if target in _ARRAYS:
            make, native = _ARRAYS[target]
            return ArrayShape(self.shape(arguments[0] if arguments else Any), make, native)
        if target in _DICTS:
            key, item = (
                arguments if len(arguments) == 2 else (arguments[0] if arguments else str, int if arguments else Any)
            )
            return DictShape(self.shape(key), self.shape(item), _DICTS[target])
        if target is collections.defaultdict:
            return self._defaults(arguments)
        return self._single(hint)

    def _single(self, hint: Any) -> Shape:
        if hint is str or hint is bool:
            return Plain(hint)
        if hint is int or hint is float:
            return Number(hint)
        if hint in FORMATTED:
            return FORMATTED[hint]
        if hint is typing.LiteralString:
            return Plain(str)
        if isinstance(hint, type):
            return self._class(hint)
        raise self._refused(hint)

    def _class(self, hint: type) -> Shape:
        if issubclass(hint, enum.Enum):
            return self._enum(hint)
        if hint.__module__.partition(".")[0] == "pathlib" or hint.__qualname__ == "PathLike":
            import pathlib

            return path_shape(hint if issubclass(hint, pathlib.PurePath) else pathlib.Path)
        raise self._refused(hint)

    def _enum(self, hint: type[enum.Enum]) -> Shape:
        members = choices_of(hint)
        if not members:
            raise RegistrationError(f"{self.where}: {hint.__name__} has no members; give it some")
        kinds = {isinstance(wire, str) for wire, _ in members}
        by_value = all(wire == each.value for wire, each in members) and len(kinds) == 1
        missing = hint if "_missing_" in vars(hint) or issubclass(hint, enum.Flag) else None
        return Choice(members, hint if by_value and missing is None else None, missing)

    def _literal(self, values: Sequence[Any]) -> Shape:
        members = [(to_json(each) if isinstance(each, enum.Enum) else each, each) for each in values]
        if any(isinstance(wire, bytes) for wire, _ in members):
            raise RegistrationError(f"{self.where}: Literal of bytes cannot be said in JSON; use texts")
        plain = all(type(each) in (str, int) or each is None for each in values)
        return Choice(members, typing.Literal[tuple(values)] if plain else None)

    def _union(self, arguments: Sequence[Any]) -> Shape:
        members = [self.shape(each) for each in arguments]
        if any(isinstance(each, AnyShape) for each in members):
            return AnyShape()
        return UnionShape(most_specific_first(members))

    def _tuple(self, hint: Any, arguments: Sequence[Any]) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return ArrayShape(self.shape(arguments[0]), tuple, _of_any_length)
        if hint is tuple or hint is typing.Tuple:  # noqa: UP006
            return ArrayShape(AnyShape(), tuple, _of_any_length)
        return TupleShape([self.shape(each) for each in arguments])

    def _defaults(self, arguments: Sequence[Any]) -> Shape:
        key, item = arguments if len(arguments) == 2 else (str, Any)
        bare = typing.get_origin(item) or item
        factory = bare if isinstance(bare, type) else None
        return DictShape(self.shape(key), self.shape(item), lambda found: collections.defaultdict(factory, found))

    def _variable(self, hint: Any) -> Shape:
        if hint in self._variables:
            return self.shape(self._variables[hint])
        if hint.__constraints__:
            return self._union(hint.__constraints__)
        return self.shape(Any if hint.__bound__ is None else hint.__bound__)

    def _record(self, hint: Any, target: type, arguments: Sequence[Any]) -> Shape:
        return self._once(hint, target.__name__, lambda: self._fields(target, arguments))

    def _fields(self, target: type, arguments: Sequence[Any]) -> Shape:
        before = self._variables
        parameters: Sequence[Any] = getattr(target, "__parameters__", ())
        self._variables = {**before, **dict(zip(parameters, map(self._meant, arguments), strict=False))}
        try:
            return read_record(target, self.shape, self.where)
        finally:
            self._variables = before

    def _meant(self, hint: Any) -> Any:
        return self._variables.get(hint, hint) if isinstance(hint, typing.TypeVar) else hint

    def _alias(self, hint: Any) -> Shape:
        return self._once(hint, hint.__name__, lambda: self.shape(hint.__value__))

    def _once(self, hint: Any, name: str, look: Callable[[], Shape]) -> Shape:
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
            found = look()
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
        else:
            advice = "use str, int, float, bool, list, dict, a dataclass or a TypedDict"
        return RegistrationError(f"{self.where} has the type {shown}, which JSON cannot carry; {advice}")
