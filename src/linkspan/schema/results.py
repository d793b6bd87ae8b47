"""What a tool returns: the output schema of its return type, and any value that a handler may return as JSON.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools (TOOL-4, TOOL-5).
"""

from __future__ import annotations

import collections.abc as abc
import types
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import EMPTY, peel
from linkspan.schema.build import build, rendered
from linkspan.schema.constraints import Bounded
from linkspan.schema.containers import ArrayShape, ObjectShape, UnionShape
from linkspan.schema.encode import encode_json, to_json
from linkspan.schema.problems import ArgumentsInvalid, describe_value
from linkspan.schema.shapes import Rendering, Shape, Steps, Walk, is_marker
from linkspan.types.base import JSON, JSONObject
from linkspan.types.base import is_mapping as is_object

__all__ = ["ResultShape", "compile_result", "encode_json", "to_json"]

_BYTES: tuple[Any, ...] = (bytes, bytearray, memoryview)
_UNSTRUCTURED: tuple[Any, ...] = (*_BYTES, None, type(None), Any, object, EMPTY)
_TEXTS: tuple[Any, ...] = (str, typing.LiteralString)
_WRAPPED = "x-fastmcp-wrap-result"
"""Has clients of FastMCP take the member `result` for the value."""
_AWAITED = (abc.Coroutine, abc.Awaitable)
_COLLECTIONS = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class ResultShape(msgspec.Struct, frozen=True):
    """What a return type promises.

    `json_schema` is the output schema, None where the result is not structured. If `wrapped`, results are objects with the
    value as their member `result`, as the schema states: scalars, arrays and null cannot be structured content by themselves.
    """

    json_schema: JSONObject | None = None
    wrapped: bool = False
    is_text: bool = False
    """Any text keeps the promise."""
    _by_name: bool = False
    _promise: _Promise | None = None

    def encode(self, value: object) -> bytes:
        """Return the JSON of the value itself, not wrapped.

        Raises: TypeError or ValueError with a sentence for a value that JSON cannot carry, or that is not an object though
        the return type promised one.
        """
        body = encode_json(to_json(value) if self._by_name else value)
        if self._promise is not None:
            self._promise.hold(body)
        return body

    def check(self, structured: JSON) -> None:
        """Hold structured content that a function made by itself to the promise. Raises: TypeError."""
        if self._promise is not None:
            self._promise.walk(structured)


class _Promise:
    """An output schema that followed from hints, and the check of values against it, compiled for the first of them.

    What msgspec takes by itself needs no walk; what it refuses is walked, which finds out whether and why it does not fit.
    """

    __slots__ = ("_decode", "_is_open", "_schema", "_shape", "_source", "_wrapped")

    def __init__(self, source: Shape, schema: JSONObject, *, wrapped: bool = False) -> None:
        self._source = source
        self._schema = schema
        self._wrapped = wrapped
        self._shape: Shape | None = None
        self._is_open = False
        self._decode: Callable[[bytes], object] | None = None

    def hold(self, body: bytes) -> None:
        """Raise TypeError for a result, as JSON, that breaks the promise."""
        if not self._is_open:
            self._is_open = True
            kind = _written(self._source)
            with suppress(TypeError, ValueError):
                self._decode = None if kind is None else msgspec.json.Decoder(kind).decode
        if self._decode is not None:
            try:
                self._decode(body)
            except (msgspec.DecodeError, ValueError):
                pass
            else:
                return
        found: JSON = msgspec.json.decode(body)
        if _is_cheap(self._source):
            _walk(self._source, found, "result")
        else:
            self.walk({"result": found} if self._wrapped else found)

    def walk(self, structured: JSON) -> None:
        """Raise TypeError for structured content that breaks the promise."""
        if self._shape is None:
            from linkspan.schema.written import compile_written

            self._shape = compile_written(self._schema).shape
        if not is_object(structured):
            raise TypeError(
                f"the return type promises an object, but the function returned {describe_value(structured)}"
            )
        _walk(self._shape, structured, "")


def _walk(shape: Shape, value: JSON, path: str) -> None:
    walk = Walk(steps=Steps(value))
    shape.convert(value, path, walk)
    if walk.problems:
        raise TypeError(f"the value does not match the return type: {ArgumentsInvalid(walk.problems)}")


def _written(shape: Shape) -> Any:
    """Return a type for msgspec that holds what results of a shape hold, and takes nothing that the shape refuses.

    It makes none of the author's objects. None for a shape that it cannot say.
    """
    match shape:
        case Bounded() if not shape.bounds:
            return _written(shape.inner)
        case ObjectShape() if not shape.recursive and not shape.as_array:
            fields: list[tuple[str, Any, Any]] = []
            for index, each in enumerate(each for each in shape.fields if each.written):
                kind = _written(each.shape)
                if kind is None:
                    return None
                default = {} if each.required else {"default": None}
                fields.append((f"field{index}", kind, msgspec.field(name=each.key, **default)))
            return msgspec.defstruct(shape.name, fields, kw_only=True, gc=False)
        case ArrayShape() if shape.item is not None:
            item = _written(shape.item)
            return None if item is None else typing.cast("Any", list)[item]
        case UnionShape():
            members = [_written(each) for each in shape.members]
            return None if None in members else typing.Union[tuple(members)]  # noqa: UP007
        case _:
            return None if not _is_cheap(shape) else shape.native


def compile_result(
    annotation: object,
    *,
    passthrough: tuple[type, ...] = (),
    portable: bool = True,
    texts: bool = True,
    name: str | None = None,
) -> ResultShape:
    """Look at a return type once.

    Bytes, None, Any and the `passthrough` types (content and results, also inside lists and unions) have no output schema,
    nor have plain texts without `texts`. `portable` writes nested types in place; null stays, for results have to fit.
    Raises: RegistrationError for a type that JSON cannot carry.
    """
    hint: Any = annotation
    bare = peel(hint)[0]
    if typing.get_origin(bare) in _AWAITED and (arguments := typing.get_args(bare)):
        hint = arguments[-1]
    if _is_unstructured(hint, passthrough) or (not texts and _is_text(hint)):
        return ResultShape()
    where = f"{name}: the return type" if name else "the return type"
    if isinstance(hint, type) and issubclass(hint, BaseException):
        raise RegistrationError(f"{where} is an exception; raise it instead of returning it")
    out = Rendering(portable=portable, output=True)
    shape = build(hint, where)
    schema = rendered(shape, out)
    if not schema or set(schema) == {"description"}:
        return ResultShape()
    if _is_object(schema, schema):
        schema = {"type": "object", **schema}
        return ResultShape(schema, False, False, out.by_name, _Promise(shape, schema))
    definitions: JSON = schema.pop("$defs", None)
    wrapped: JSONObject = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        _WRAPPED: True,
    }
    if definitions is not None:
        wrapped["$defs"] = definitions
    is_text = hint in _TEXTS or set(typing.get_args(hint)) == {str, type(None)}
    return ResultShape(wrapped, True, is_text, out.by_name, _Promise(shape, wrapped, wrapped=True))


def _is_cheap(shape: Shape) -> bool:
    """Return whether msgspec reads a shape and all its parts alone."""
    parts = [getattr(shape, "item", None), getattr(shape, "inner", None)]
    parts += [*getattr(shape, "members", ()), *getattr(shape, "first", ())]
    return not is_marker(shape.native) and all(_is_cheap(each) for each in parts if isinstance(each, Shape))


def _is_unstructured(hint: Any, passthrough: tuple[type, ...]) -> bool:
    bare = peel(hint)[0]
    if bare in _UNSTRUCTURED or bare in (typing.NoReturn, typing.Never):
        return True
    if isinstance(bare, type) and issubclass(bare, passthrough):
        return True
    origin = typing.get_origin(bare)
    arguments = typing.get_args(bare)
    if origin is typing.Union or origin is types.UnionType:
        return (
            _has_passthrough(arguments, passthrough)
            or any(_bare(each) in _BYTES for each in arguments)
            or all(_is_unstructured(each, passthrough) for each in arguments)
        )
    return origin in _COLLECTIONS and _has_passthrough(arguments, passthrough)


def _is_text(hint: Any) -> bool:
    """Return whether a type is a plain text, perhaps one that may be missing."""
    bare = _bare(hint)
    arms = typing.get_args(bare) if typing.get_origin(bare) in (typing.Union, types.UnionType) else (bare,)
    return all(_bare(each) in (*_TEXTS, type(None)) for each in arms) and bare is not type(None)


def _has_passthrough(hints: tuple[Any, ...], passthrough: tuple[type, ...]) -> bool:
    """Return whether content objects are among the parts of a type."""
    return any(
        each is not Ellipsis and each not in _UNSTRUCTURED and _is_unstructured(each, passthrough)
        for each in map(_bare, hints)
    )


def _bare(hint: Any) -> Any:
    return peel(hint)[0]


def _is_object(schema: JSON, root: JSONObject) -> bool:
    """Return whether whatever fits a schema is an object."""
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
