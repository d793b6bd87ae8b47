"""Functions whose hints are plain: their schemas as pydantic writes them, and their arguments and results where they fit exactly.

Most tools take texts, numbers and lists of them. For these nothing of pydantic is loaded until an argument does not fit: what
pydantic converts or refuses goes to `signatures`, which gives the same schemas.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, Union, get_args, get_origin

__all__ = ["Misfit", "PlainSignature", "find_context_parameter"]

_TYPES: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LARGEST: Final = 2**53
"""The largest whole number that becomes a float as it is."""
_OF_MODELS: Final = frozenset(
    {"construct", "copy", "dict", "from_orm", "json", "parse_file", "parse_obj", "parse_raw", "schema", "schema_json"}
    | {"update_forward_refs", "validate"}
)
"""Methods of models, whose names a parameter cannot have as it is."""


class Misfit(Exception):
    """A value is not exactly of its type: pydantic converts or refuses it."""


def _schema(hint: Any) -> dict[str, Any] | None:
    """Return the schema of a hint without its title; None for one that is not plain."""
    if hint is Any:
        return {}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if hint is type(None):
        return {"type": "null"}
    if hint is dict or hint == dict[str, Any]:
        return {"additionalProperties": True, "type": "object"}
    if hint is list:
        return {"items": {}, "type": "array"}
    if get_origin(hint) is list:
        inner = _schema(get_args(hint)[0])
        return {"items": inner, "type": "array"} if inner is not None else None
    if get_origin(hint) in (Union, types.UnionType):
        forms = [_schema(each) for each in get_args(hint)]
        if len(forms) == 2 and forms[1] == {"type": "null"} and forms[0]:
            return {"anyOf": forms}
    return None


def _exact(hint: Any, value: Any) -> Any:
    """Return a value that is exactly of its hint. Raises: Misfit."""
    if hint is Any:
        return value
    if hint in (str, int, bool, dict, list) or hint is type(None) or hint == dict[str, Any]:
        if type(value) is (get_origin(hint) or hint):
            return value
        raise Misfit
    if hint is float:
        if type(value) is float and math.isfinite(value):
            return value
        if type(value) is int and abs(value) <= _LARGEST:
            return float(value)
        raise Misfit
    if get_origin(hint) is list:
        if type(value) is not list:
            raise Misfit
        inner = get_args(hint)[0]
        return [_exact(inner, each) for each in value]
    return None if value is None else _exact(get_args(hint)[0], value)


class PlainSignature:
    """What the hints of a function say, if they are plain; `of` returns None where they are not."""

    def __init__(self, name: str, parameters: Sequence[inspect.Parameter], returned: Any) -> None:
        """`returned` is the hint of a structured result, Parameter.empty for none."""
        self._hints = {each.name: each.annotation for each in parameters}
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        self._returned = returned
        properties: dict[str, Any] = {}
        for each in parameters:
            default = {"default": each.default} if each.name in self._defaults else {}
            properties[each.name] = {**(_schema(each.annotation) or {}), **default, "title": _title(each.name)}
        required = [each for each in self._hints if each not in self._defaults]
        self.parameters: dict[str, Any] = {
            "properties": properties,
            **({"required": required} if required else {}),
            "title": f"{name}Arguments",
            "type": "object",
        }
        self.output_schema: dict[str, Any] | None = None
        if returned is not inspect.Parameter.empty:
            inside = {**(_schema(returned) or {}), "title": "Result"}
            self.output_schema = {
                "properties": {"result": inside},
                "required": ["result"],
                "title": f"{name}Output",
                "type": "object",
            }

    @classmethod
    def of(cls, function: Callable[..., Any], skipped: Sequence[str], structured: bool | None) -> PlainSignature | None:
        """Look at a function."""
        try:
            signature = inspect.signature(function, eval_str=True)
        except (NameError, TypeError, ValueError):
            return None
        kept = [each for each in signature.parameters.values() if each.name not in skipped]
        for each in kept:
            is_named = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            if not is_named or each.name.startswith(("_", "model_")) or each.name in _OF_MODELS:
                return None
            if each.annotation is each.empty or _schema(each.annotation) is None or not _is_plain(each.default):
                return None
        returned = signature.return_annotation
        if structured is False:
            returned = inspect.Parameter.empty
        elif returned is inspect.Signature.empty:
            if structured is True:
                return None
        elif returned not in _TYPES and not (get_origin(returned) is list and _schema(returned) is not None):
            return None
        name = getattr(function, "__name__", None) or type(function).__name__
        return cls(name, kept, returned)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of a call. Raises: Misfit."""
        found: dict[str, Any] = {}
        for name, hint in self._hints.items():
            if name in given:
                value = given[name]
                if hint is not str and isinstance(value, str) and value.lstrip()[:1] in ("[", "{", "n"):
                    raise Misfit  # it may be a JSON text that stands for a value
                found[name] = _exact(hint, value)
            elif name in self._defaults:
                found[name] = self._defaults[name]
            else:
                raise Misfit
        return found

    def structured(self, value: Any) -> dict[str, Any]:
        """Return a result as structured content. Raises: Misfit."""
        return {"result": _exact(self._returned, value)}


def _title(name: str) -> str:
    return name.title().replace("_", " ").strip()


def _is_plain(default: Any) -> bool:
    """Return whether a default is the same in JSON."""
    return default is inspect.Parameter.empty or default is None or type(default) in (str, int, bool)


def find_context_parameter(fn: Callable[..., Any], kinds: tuple[type, ...] | None = None) -> str | None:
    """Return the name of the parameter whose hint is a context, None if there is none."""
    if kinds is None:
        from linkspan_compat.server.context import Context

        kinds = (Context,)
    try:
        hints = typing.get_type_hints(fn)
    except Exception:
        return None
    for name, hint in hints.items():
        arguments = (hint, get_origin(hint), *get_args(hint))
        if name != "return" and any(
            isinstance(each, type) and issubclass(each, kind) for each in arguments for kind in kinds
        ):
            return name
    return None
