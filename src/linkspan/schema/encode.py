"""Any value that a handler may return, as JSON. msgspec does the work; what it does not know is made plain first."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeGuard

import msgspec

from linkspan.types.base import JSON
from linkspan.types.base import is_mapping as is_object


def encode_json(value: Any) -> bytes:
    """Return a value as JSON.

    Takes dataclasses, attrs, msgspec Structs, pydantic models, named tuples, Enums, dates, UUIDs, Decimals, paths, sets,
    bytes (base64), numpy scalars and arrays, and dictionaries with keys that are not texts. Raises: TypeError for a type
    that JSON cannot carry, ValueError for NaN and infinity, lone surrogates, or a value that contains itself.
    """
    try:
        found = _encoder.encode(value)
    except TypeError:
        return _encoder.encode(to_json(value))
    except UnicodeEncodeError:
        raise ValueError("a string in the value has lone surrogates, which UTF-8 cannot encode") from None
    except (RecursionError, OverflowError):
        raise ValueError("the value is nested too deeply for JSON, or contains itself") from None
    if b"null" in found:
        _refuse_nan(value)
    return found


def to_json(value: Any) -> JSON:
    """Return a value as plain dictionaries, lists, texts and numbers. Raises: TypeError, ValueError."""
    try:
        return _plain(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply for JSON, or contains itself") from None


def _plain(value: Any) -> JSON:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _enum(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(value)
    if is_object(value):
        return {_key(key): _plain(each) for key, each in value.items()}
    if is_collection(value):
        return [_plain(each) for each in value]
    return _plain(_one_level(value))


def _one_level(value: Any) -> Any:
    """Return the next plainer form of a value: an object's fields, or what stands for it in JSON."""
    if isinstance(value, msgspec.Struct):
        return _struct_fields(value)
    fields = _fields(value)
    if fields is not None:
        return fields
    try:
        return msgspec.to_builtins(value)
    except (TypeError, msgspec.ValidationError):
        return _unknown(value)


def _fields(value: Any) -> dict[str, Any] | None:
    names: list[str] | None = None
    if hasattr(value, "__dataclass_fields__") and not _is_model(value):
        every: Mapping[str, Any] = value.__dataclass_fields__
        names = [name for name, each in every.items() if str(each._field_type) == "_FIELD"]
    elif hasattr(value, "__attrs_attrs__"):
        names = [each.name for each in value.__attrs_attrs__ if each.name[0] != "_"]
    return None if names is None or isinstance(value, type) else {name: getattr(value, name) for name in names}


def _struct_fields(value: Any) -> Any:
    config: Any = value.__struct_config__
    items = {
        each.encode_name: getattr(value, each.name)
        for each in msgspec.structs.fields(value)
        if getattr(value, each.name) is not msgspec.UNSET and not (config.omit_defaults and _is_default(value, each))
    }
    tagged = items if config.tag_field is None else {config.tag_field: config.tag, **items}
    return list(tagged.values()) if config.array_like else tagged


def _is_default(value: Any, field: msgspec.structs.FieldInfo) -> bool:
    found = getattr(value, field.name)
    if field.default_factory is not msgspec.NODEFAULT:
        return type(found) is field.default_factory and not found
    return found is field.default or (type(found) is type(field.default) and found == field.default)


@cache
def by_value(source: type[Enum]) -> bool:
    """Return whether an Enum's members go by their values in JSON; by their names, if a value is neither a text nor an int."""
    return all(isinstance(each.value, str | int) and not isinstance(each.value, bool) for each in source)


def _enum(value: Enum) -> JSON:
    return _plain(value.value) if by_value(type(value)) else value.name


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {float(value)!r}; return None or a string instead")
    return float(value)


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        return _key(_enum(key))
    if isinstance(key, str):
        return str.__str__(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return repr(key)
    if is_items(key):
        return ",".join(map(_key, key))
    try:
        found = msgspec.to_builtins(key, enc_hook=_unknown)
    except TypeError:
        found = None
    if not isinstance(found, str):
        raise TypeError(f"a key of the type {type(key).__name__} cannot be written as JSON; use strings as keys")
    return found


def _unknown(value: Any) -> Any:
    """Return something plainer for a value that msgspec does not know: its `enc_hook`. Raises: TypeError."""
    if isinstance(value, type):
        raise _not_json(value)
    if isinstance(value, Enum):
        return _enum(value)
    if _is_model(value):
        # As its own serializer writes it.
        return value.__pydantic_serializer__.to_python(value, mode="json", by_alias=True)
    if is_object(value):
        return dict(value)
    if hasattr(value, "__fspath__") or type(value).__module__ in _AS_TEXT:
        return str(value)
    for method in ("tolist", "item", "to_dict", "isoformat"):
        found = getattr(value, method, None)
        if callable(found):
            return found()
    if _is_iterable(value):
        return list(value)
    raise _not_json(value)


def _not_json(value: Any) -> TypeError:
    return TypeError(
        f"a value of the type {type(value).__name__} cannot be written as JSON; "
        "return a dict, a list, a dataclass or a string"
    )


_AS_TEXT = frozenset(
    {"ipaddress", "fractions", "pydantic.networks", "pydantic_core", "pydantic_core._pydantic_core", "yarl"}
)


def _is_iterable(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, Collection)


def _is_model(value: Any) -> bool:
    return "pydantic" in sys.modules and hasattr(value, "__pydantic_serializer__")


def _refuse_nan(value: Any) -> None:
    """Look for NaN and infinity, which msgspec writes as null. Raises: ValueError."""
    pending: list[Any] = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, float):
            _finite(found)
        elif is_object(found):
            pending.extend(found.values())
        elif is_collection(found):
            pending.extend(found)
        elif not isinstance(found, str | int | bytes | None):
            pending.append(_one_level(found))


_encoder = msgspec.json.Encoder(enc_hook=_unknown)


_deterministic = msgspec.json.Encoder(order="deterministic")


def canonical(value: JSON) -> str | bytes:
    """Return a text for itself, and the canonical bytes of anything else.

    Both are hashed with a secret of this process, so that values cannot be chosen to collide, as numbers can.
    """
    return value if isinstance(value, str) else _deterministic.encode(_settled(value))


def _settled(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _settled(each) for name, each in value.items()}
    if is_items(value):
        return [_settled(each) for each in value]
    return value


def is_items(value: JSON) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is an array, or what a caller in this process may give instead of one."""
    return isinstance(value, list | tuple)


def is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    """Return whether a value is a list, a tuple or a set."""
    return isinstance(value, list | tuple | set | frozenset)
