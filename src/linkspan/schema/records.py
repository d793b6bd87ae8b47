"""Classes with named fields: dataclasses, msgspec Structs, TypedDicts, NamedTuples, attrs. One reader for each kind."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import structs

from linkspan.errors import RegistrationError
from linkspan.schema.docstrings import parse_docstring
from linkspan.schema.hints import class_hints
from linkspan.schema.objects import Field, ObjectShape
from linkspan.schema.scalars import Choice
from linkspan.schema.shape import Shape
from linkspan.types.base import UNSET

if TYPE_CHECKING:
    import dataclasses

__all__ = ["is_record", "read_record"]

_Look: TypeAlias = Callable[[Any], Shape]


def is_record(target: object) -> bool:
    """Tell whether a class has fields that this module can read."""
    return isinstance(target, type) and _kind(target) is not None


def read_record(target: type, look: _Look, where: str) -> ObjectShape:
    """Return the shape of a class with fields; `look` gives the shapes of their hints. Raises: RegistrationError."""
    read = _kind(target)
    if read is None:
        raise RegistrationError(f"{where}: {target.__name__} has no fields to read; use a dataclass")
    said = parse_docstring(_own_docstring(target))
    shape = read(target, look)
    shape.description = said.description
    shape.fields = [_described(each, said.parameters) for each in shape.fields]
    shape.close()
    return shape


def _described(each: Field, texts: dict[str, str]) -> Field:
    text = texts.get(each.name)
    return structs.replace(each, description=text) if text and each.description is None else each


def _own_docstring(target: type) -> str | None:
    """Return what the author wrote, not what `dataclass` or `NamedTuple` make up."""
    doc = vars(target).get("__doc__")
    if not isinstance(doc, str) or doc.startswith(f"{target.__name__}("):
        return None
    return doc


def _kind(target: Any) -> Callable[[type, _Look], ObjectShape] | None:
    for mark, read in _KINDS.items():
        if hasattr(target, mark):
            return read
    return _typed_dict if typing.is_typeddict(target) else None


def _dataclass(target: type, look: _Look) -> ObjectShape:
    from dataclasses import MISSING

    hints = class_hints(target)
    fields: list[Field] = []
    for each in _dataclass_fields(target):
        hint: Any = hints.get(each.name, Any)
        init_only = type(hint).__name__ == "InitVar"
        required = each.default is MISSING and each.default_factory is MISSING
        fields.append(
            Field(
                each.name,
                each.name,
                look(hint.type if init_only else hint),
                required=required if each.init else True,
                default=_default(each.default, each.default_factory, MISSING),
                description=_field_text(each.metadata),
                written=not init_only,
                taken=each.init,
            )
        )
    return ObjectShape(target.__name__, fields, lambda taken: target(**taken))


def _dataclass_fields(target: Any) -> Sequence[dataclasses.Field[Any]]:
    """Return the fields and the `InitVar`s, without the class variables."""
    every: dict[str, dataclasses.Field[Any]] = target.__dataclass_fields__
    return [each for each in every.values() if str(getattr(each, "_field_type", "")) != "_FIELD_CLASSVAR"]


def _field_text(metadata: Any) -> str | None:
    text = metadata.get("description")
    return text if isinstance(text, str) else None


def _struct(target: Any, look: _Look) -> ObjectShape:
    class_hints(target)
    fields = [
        Field(
            each.name,
            each.encode_name,
            look(each.type),
            required=each.required,
            default=_default(each.default, each.default_factory, msgspec.NODEFAULT),
        )
        for each in msgspec.structs.fields(target)
    ]
    config: Any = target.__struct_config__
    dropped: frozenset[str] = frozenset()
    if config.tag_field is not None:
        tag = Choice([(config.tag, config.tag)], typing.Literal[config.tag])
        fields.insert(0, Field(config.tag_field, config.tag_field, tag))
        dropped = frozenset({config.tag_field})
    return ObjectShape(
        target.__name__, fields, lambda taken: target(**taken), dropped=dropped, as_array=config.array_like
    )


def _typed_dict(target: Any, look: _Look) -> ObjectShape:
    fields: list[Field] = []
    required_keys: frozenset[str] = target.__required_keys__
    for name, hint in class_hints(target).items():
        marks = _marks(hint)
        required = name in required_keys
        if typing.Required in marks or typing.NotRequired in marks:
            required = typing.Required in marks
        fields.append(Field(name, name, look(hint), required=required))
    return ObjectShape(target.__name__, fields, dict)


def _marks(hint: Any) -> set[Any]:
    """Return `Required` and `NotRequired` where they stand around a hint."""
    found: set[Any] = set()
    while (origin := typing.get_origin(hint)) in (typing.Required, typing.NotRequired, typing.Annotated):
        found.add(origin)
        hint = typing.get_args(hint)[0]
    return found


def _named_tuple(target: Any, look: _Look) -> ObjectShape:
    hints = class_hints(target)
    names: Sequence[str] = target._fields
    defaults: dict[str, Any] = target._field_defaults
    fields = [
        Field(name, name, look(hints.get(name, Any)), required=name not in defaults, default=defaults.get(name, UNSET))
        for name in names
    ]
    return ObjectShape(target.__name__, fields, lambda taken: target(**taken), as_array=True)


def _attrs(target: Any, look: _Look) -> ObjectShape:
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
                look(hints.get(each.name, Any if each.type is None else each.type)),
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
    return ObjectShape(target.__name__, fields, lambda taken: target(**taken))


def _default(value: Any, factory: Any, absent: Any) -> Any:
    """Return the default to show in the schema: a factory is asked once, if it is one of the harmless ones."""
    if value is not absent:
        return value
    harmless: tuple[Any, ...] = (list, dict, set, frozenset, tuple, str, int, float, bool)
    return factory() if factory in harmless else UNSET


_KINDS: Mapping[str, Callable[[type, _Look], ObjectShape]] = {
    "__struct_config__": _struct,
    "__dataclass_fields__": _dataclass,
    "_field_defaults": _named_tuple,
    "__attrs_attrs__": _attrs,
}
