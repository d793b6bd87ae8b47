"""The arguments and results of functions as FastMCP sees them: pydantic checks a call of the function itself."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin

from pydantic import Field, PydanticSchemaGenerationError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from linkspan_compat.fast.docstrings import ParsedDocstring, parse_docstring
from linkspan_compat.fast.schemas import compress_schema
from linkspan_compat.flavours import fast_version
from linkspan_compat.protocol.current import TYPES

__all__ = ["Signature", "resolved"]

T = TypeVar("T")

_SEQUENCES: Final = (list, tuple, Sequence)


@dataclass
class _WrappedResult(Generic[T]):
    result: T


class _UnserializableType:
    """What has no schema."""


def resolved(function: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the function that is called, and the one whose docstring describes its parameters."""
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        function = function.__call__
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, functools.partial):
        return function, target if inspect.isroutine(target) else target.__call__
    return function, function


class Signature:
    """What is known of a function: its schema, its parameters that are injected, and what checks a call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Look at a function, which `check_parameters` has let through."""
        self.original = function
        self.fn, self._described = resolved(function)

    @functools.cached_property
    def docstring(self) -> ParsedDocstring:
        """The description of the function, and those of its parameters."""
        outer, inner = parse_docstring(self.original), parse_docstring(self._described)
        return ParsedDocstring(outer.description or inner.description, inner.parameters)

    @functools.cached_property
    def injected(self) -> dict[str, Any]:
        """The parameters that are no arguments, and what gives their values."""
        from linkspan_compat.fast.dependencies import injected_parameters

        return injected_parameters(self.fn)

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The hints, as far as they can be resolved."""
        with contextlib.suppress(Exception):
            return typing.get_type_hints(self.fn, include_extras=True)
        return {}

    @functools.cached_property
    def kept(self) -> list[inspect.Parameter]:
        """The parameters that are arguments, with their hints."""
        found: list[inspect.Parameter] = []
        for name, each in inspect.signature(self.fn).parameters.items():
            if name not in self.injected:
                hint = self.hints.get(name, each.annotation)
                found.append(each.replace(annotation=_with_text(hint)))
        return found

    @functools.cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What checks arguments, and gives them as a mapping."""

        def taken(**arguments: Any) -> dict[str, Any]:
            return arguments

        made: Any = taken
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in self.kept]
        made.__signature__ = inspect.Signature(keywords)
        made.__annotations__ = {
            each.name: each.annotation for each in keywords if each.annotation is not inspect.Parameter.empty
        }
        made.__name__ = getattr(self.fn, "__name__", None) or type(self.fn).__name__
        made.__qualname__ = getattr(self.fn, "__qualname__", made.__name__)
        made.__module__ = getattr(self.fn, "__module__", __name__)
        return TypeAdapter(made)

    @functools.cached_property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments."""
        raw = self.adapter.json_schema()
        schema = compress_schema(raw, prune_titles=True)
        properties = schema.get("properties", {})
        usual = GenerateJsonSchema().get_title_from_name
        for name, each in raw.get("properties", {}).items():
            title = each.get("title") if isinstance(each, dict) else None
            if fast_version() == "4" and name in properties and isinstance(title, str) and title != usual(name):
                properties[name]["title"] = title
        for name, text in self.docstring.parameters.items():
            if name in properties and "description" not in properties[name]:
                properties[name]["description"] = text
        return schema

    def arguments(self, given: dict[str, Any], *, strict: bool | None = None) -> dict[str, Any]:
        """Return the keywords of a call. Raises: pydantic.ValidationError."""
        found: dict[str, Any] = self.adapter.validate_python(given, strict=strict)
        return found

    @functools.cached_property
    def return_type(self) -> Any:
        """The hint of the result."""
        hint = inspect.signature(self.fn).return_annotation
        return self.hints.get("return", hint) if isinstance(hint, str) else hint

    @functools.cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the structured result, None for what has none."""
        hint = _without_guards(self.return_type)
        if hint is inspect.Signature.empty or hint is None or hint is Any or hint is ... or _has_no_schema(hint):
            return None
        hint = _replaced(hint)
        try:
            schema = _of_output(TypeAdapter(hint), hint)
            if not _is_object(schema, schema):
                schema = _of_output(TypeAdapter(_WrappedResult[hint]), hint)  # type: ignore[valid-type]
                schema["x-fastmcp-wrap-result"] = True
        except (PydanticSchemaGenerationError, NameError):
            return None
        return compress_schema(schema, prune_titles=True) or None


def _with_text(hint: Any) -> Any:
    """`Annotated[type, "text"]` describes the parameter with that text."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        if len(metadata) == 1 and isinstance(metadata[0], str):
            return Annotated[inner, Field(description=metadata[0])]
    return hint


def _of_output(adapter: TypeAdapter[Any], hint: Any) -> dict[str, Any]:
    if fast_version() == "4":
        return adapter.json_schema(mode="serialization", by_alias=False, schema_generator=_ByOwnAlias)
    return adapter.json_schema(mode="serialization", by_alias=_by_alias(hint))


def _by_alias(hint: Any) -> bool:
    """Return whether version 3 writes the aliases of a model that is returned."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    for each in (kind, *_arms(kind)):
        if isinstance(each, type) and hasattr(each, "model_config"):
            configured = each.model_config.get("serialize_by_alias")
            return True if configured is None else bool(configured)
    return True


class _ByOwnAlias(GenerateJsonSchema):
    """Writes the aliases of the models that are configured to be serialised by them, as version 4 does."""

    def model_schema(self, schema: Any) -> Any:
        """Write a model."""
        return self._as_configured(schema["cls"].model_config.get("serialize_by_alias"), super().model_schema, schema)

    def dataclass_schema(self, schema: Any) -> Any:
        """Write a dataclass."""
        configured = (schema.get("config") or {}).get("serialize_by_alias")
        return self._as_configured(configured, super().dataclass_schema, schema)

    def _as_configured(self, configured: bool | None, write: Callable[[Any], Any], schema: Any) -> Any:
        before = self.by_alias
        self.by_alias = bool(configured)
        try:
            return write(schema)
        finally:
            self.by_alias = before


def _arms(hint: Any) -> tuple[Any, ...]:
    origin = get_origin(hint)
    if origin is Union or origin is types.UnionType:
        return get_args(hint)
    return (get_args(hint)[0],) if origin is Annotated else ()


def _is_subclass(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind)


def _is_guard(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__name__ == "InputRequiredResult"


def _without_guards(hint: Any) -> Any:
    """Leave requests for input out of a hint."""
    origin = get_origin(hint)
    if origin is not Union and origin is not types.UnionType:
        return hint
    left = [each for each in get_args(hint) if not _is_guard(each)]
    return hint if not left or len(left) == len(get_args(hint)) else Union[tuple(left)]  # noqa: UP007


def _has_no_schema(hint: Any) -> bool:
    from linkspan_compat.fast.tools import ToolResult

    arms = _arms(hint) or (hint,)
    if any(each is bytes or _is_guard(each) or _is_subclass(each, ToolResult) for each in arms):
        return True
    if isinstance(hint, type) and hint.__name__ == "CallToolResult":
        return True
    if fast_version() != "4":
        return False
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if kind in _SEQUENCES:
        return True
    origin, arguments = get_origin(kind), get_args(kind)
    if origin not in _SEQUENCES:
        return False
    if not arguments or (origin is tuple and len(arguments) == 2 and arguments[0] is Any and arguments[1] is ...):
        return True
    return origin is not tuple and all(each is Any for each in arguments)


def _replaced(hint: Any) -> Any:
    """Put a type without a schema in the place of content, wherever it stands in a hint."""
    from linkspan_compat.fast.tools import ToolResult
    from linkspan_compat.server.media import Audio, File, Image

    if hint in (Image, Audio, File, ToolResult) or _is_block(hint):
        return _UnserializableType
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or origin is typing.Literal:
        return hint
    if origin is Annotated:
        inner = _replaced(arguments[0])
        return hint if inner is arguments[0] else Annotated[(inner, *arguments[1:])]
    changed = tuple(_replaced(each) for each in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return hint
    if origin is Union or origin is types.UnionType:
        return Union[changed]  # noqa: UP007
    return origin[changed] if origin is not None else hint


def _is_block(hint: Any) -> bool:
    """Return whether a hint is a content block: the types are loaded only for what may be one."""
    if not isinstance(hint, type) or not hasattr(hint, "model_fields"):
        return False
    return hint in get_args(TYPES["ContentBlock"])


def _is_object(schema: dict[str, Any], root: dict[str, Any], seen: tuple[str, ...] = ()) -> bool:
    if schema.get("type") == "object" or "properties" in schema:
        return True
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/") or reference in seen:
        return False
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return isinstance(target, dict) and _is_object(target, root, (*seen, reference))
