"""What a tool returns: the output schema of its return type, and any value that a handler may return as JSON.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools (TOOL-4, TOOL-5).
"""

from __future__ import annotations

import collections.abc as abc
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.build import build, rendered
from linkspan.schema.encode import encode_json, to_json
from linkspan.schema.hints import peel
from linkspan.schema.kinds import is_object
from linkspan.schema.problems import ArgumentsInvalid, describe_value
from linkspan.schema.shape import Rendering, Shape, Walk, is_marker
from linkspan.schema.signatures import EMPTY
from linkspan.types.base import JSON, JSONObject

__all__ = ["ResultShape", "compile_result", "encode_json", "to_json"]

_UNSTRUCTURED: tuple[Any, ...] = (str, bytes, bytearray, None, type(None), Any, object, EMPTY)
_AWAITED = (abc.Coroutine, abc.Awaitable)
_COLLECTIONS = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class ResultShape(msgspec.Struct, frozen=True):
    """What a return type promises.

    `json_schema` is the output schema, None where the result is not structured. If `wrapped`, results are objects with the
    value as their member `result`, and the schema says so: scalars, arrays and null are no structured content by themselves.
    """

    json_schema: JSONObject | None = None
    wrapped: bool = False
    _by_name: bool = False
    _fits: Callable[[bytes], None] | None = None

    def encode(self, value: object) -> bytes:
        """Return the JSON of the value itself, not wrapped.

        Raises: TypeError or ValueError with a sentence for a value that JSON cannot carry, or that is no object though the
        return type promised one.
        """
        body = encode_json(to_json(value) if self._by_name else value)
        if self._fits is not None:
            self._fits(body)
        elif self.json_schema is not None and not self.wrapped and not body.startswith(b"{"):
            raise TypeError(f"the return type promises an object, but the function returned {describe_value(value)}")
        return body


def compile_result(
    annotation: object, *, passthrough: tuple[type, ...] = (), portable: bool = True, name: str | None = None
) -> ResultShape:
    """Look at a return type once.

    Texts, bytes, None, Any and the `passthrough` types (content and results, also inside lists and unions) have no output
    schema. `portable` writes nested types in place; null stays, for results have to fit. Raises: RegistrationError for a
    type that JSON cannot carry.
    """
    hint = _returned(annotation)
    if _is_unstructured(hint, passthrough):
        return ResultShape()
    where = f"{name}: the return type" if name else "the return type"
    if isinstance(hint, type) and issubclass(hint, BaseException):
        raise RegistrationError(f"{where} is an exception; raise it instead of returning it")
    out = Rendering(portable=portable, output=True)
    shape = build(hint, where)
    schema = rendered(shape, out)
    fits = _check(shape)
    if not schema or set(schema) == {"description"}:
        return ResultShape()
    if _is_object(schema, schema):
        return ResultShape({"type": "object", **schema}, False, out.by_name, fits)
    definitions: JSON = schema.pop("$defs", None)
    wrapped: JSONObject = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    if definitions is not None:
        wrapped["$defs"] = definitions
    return ResultShape(wrapped, True, out.by_name, fits)


def _check(shape: Shape) -> Callable[[bytes], None] | None:
    """Return a check that a result keeps its promise, where it costs next to nothing: types that msgspec reads alone."""
    if is_marker(shape.native) or not _is_cheap(shape):
        return None
    decode = msgspec.json.Decoder(shape.native).decode

    def fits(body: bytes) -> None:
        try:
            decode(body)
        except (msgspec.DecodeError, ValueError):
            walk = Walk()
            shape.convert(msgspec.json.decode(body), "result", walk)
            if walk.problems:
                raise TypeError(f"the return type promises something else: {ArgumentsInvalid(walk.problems)}") from None

    return fits


def _is_cheap(shape: Any) -> bool:
    parts = [getattr(shape, "item", None), getattr(shape, "inner", None)]
    for name in ("members", "items"):
        parts.extend(each for each in getattr(shape, name, ()) if hasattr(each, "native"))
    return not is_marker(shape.native) and all(_is_cheap(each) for each in parts if each is not None)


def _returned(hint: Any) -> Any:
    """Return what is there after awaiting."""
    bare = peel(hint)[0]
    arguments = typing.get_args(bare)
    if typing.get_origin(bare) in _AWAITED and arguments:
        return arguments[-1]
    return hint


def _is_unstructured(hint: Any, passthrough: tuple[type, ...]) -> bool:
    bare = peel(hint)[0]
    if bare in _UNSTRUCTURED or bare in (typing.NoReturn, typing.Never, typing.LiteralString):
        return True
    if isinstance(bare, type) and issubclass(bare, passthrough):
        return True
    origin = typing.get_origin(bare)
    arguments = typing.get_args(bare)
    if origin is typing.Union or origin is types.UnionType:
        return _has_passthrough(arguments, passthrough) or all(
            _is_unstructured(each, passthrough) for each in arguments
        )
    return origin in _COLLECTIONS and _has_passthrough(arguments, passthrough)


def _has_passthrough(hints: tuple[Any, ...], passthrough: tuple[type, ...]) -> bool:
    """Tell whether content objects are among the parts of a type."""
    return any(
        each is not Ellipsis and each not in _UNSTRUCTURED and _is_unstructured(each, passthrough)
        for each in map(_bare, hints)
    )


def _bare(hint: Any) -> Any:
    return peel(hint)[0]


def _is_object(schema: JSON, root: JSONObject) -> bool:
    """Tell whether whatever fits a schema is an object."""
    if not is_object(schema):
        return False
    members = schema
    if "$ref" in members:
        name: str = members["$ref"].rpartition("/")[2]
        return _is_object(root["$defs"].get(name), {**root, "$defs": {**root["$defs"], name: None}})
    if "anyOf" in members:
        arms: list[JSON] = members["anyOf"]
        return all(_is_object(each, root) for each in arms)
    return members.get("type") == "object"
