"""Tools of FastMCP."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from linkspan_compat.errors import MCPError, ToolError, ValidationError
from linkspan_compat.fast.schemas import dereferenced
from linkspan_compat.fast.tasks import TaskConfig, config_of, note_task
from linkspan_compat.flavours import fast_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.components import in_thread, is_async_callable, present

if TYPE_CHECKING:
    from linkspan_compat.fast.signatures import Signature

__all__ = ["FunctionTool", "Tool", "ToolResult", "tool"]

logger = logging.getLogger("fastmcp.tools")


_DESCRIBING: Final = ("name", "title", "description", "tags", "meta", "icons", "version", "annotations", "enabled")
"""Keywords of all components."""


class Component:
    """What tools, prompts and resources have in common."""

    noun = "component"
    name: str
    title: str | None = None
    description: str | None = None
    tags: set[str]
    meta: dict[str, Any] | None = None
    icons: Any = None
    version: str | None = None

    def _describe(self, name: str, described: dict[str, Any], reads: str = "") -> None:
        """Take the keywords that all have, beside those that the class `reads`. Raises: TypeError, NotServed for others."""
        self.name = name
        more = {
            each: value for each, value in described.items() if each not in _DESCRIBING and each not in reads.split()
        }
        for each in [
            each for each in more if any(each in inspect.get_annotations(kind) for kind in type(self).__mro__)
        ]:
            setattr(self, each, more.pop(each))  # a member of a class of the program's
        if (task := more.pop("task", None)) is not None:
            note_task(self.noun, task)
        check(self.noun, more, "app auth security")
        self.title = described.get("title")
        self.description = described.get("description")
        self.tags = set(described.get("tags") or ())
        self.meta = described.get("meta")
        self.icons = described.get("icons")
        version = described.get("version")
        self.version = str(version) if version is not None else None
        self.annotations: Any = described.get("annotations")
        self.enabled = described.get("enabled") is not False

    @property
    def key(self) -> str:
        """What names the component among those of its kind."""
        return self.name

    def get_meta(self) -> dict[str, Any]:
        """Return the `_meta` that is listed: the author's, and FastMCP's own."""
        own: dict[str, Any] = {"tags": sorted(self.tags)}
        if self.version is not None:
            own["version"] = self.version
        meta = dict(self.meta or {})
        found = meta.get("fastmcp") or meta.get("_fastmcp") or {}
        return {**meta, "_fastmcp" if fast_version() == "2" else "fastmcp": {**own, **found}}

    def enable(self) -> None:
        """Switch it on."""
        self.enabled = True

    def disable(self) -> None:
        """Switch it off."""
        self.enabled = False

    def copy(self) -> Any:
        """Return a copy, whose members may be set."""
        import copy

        return copy.copy(self)

    def model_copy(self, *, update: dict[str, Any] | None = None, **_: Any) -> Any:
        """Return a copy with other members."""
        made = self.copy()
        vars(made).update(update or {})
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def name_of(function: Any, name: str | None) -> str:
    """Return the name of a component. Raises: ValueError for a lambda without one."""
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    found = name or getattr(target, "__name__", None) or type(target).__name__
    if found == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    return str(found)


def check_parameters(function: Callable[..., Any], noun: str) -> None:
    """Refuse what has no names for arguments. Raises: ValueError."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY and fast_version() == "4":
            raise ValueError(
                f"Functions with positional-only parameters are not supported as {noun}s because MCP passes {noun} arguments "
                "by name. Replace them with standard parameters that can be passed as keywords."
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ValueError(f"Functions with *args are not supported as {noun}s")
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ValueError(f"Functions with **kwargs are not supported as {noun}s")


class ToolResult:
    """The result of a tool: `content`, `structured_content`, `meta` and `is_error`."""

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("Either content or structured_content must be provided")
        self.blocks = _blocks(structured_content if content is None else content)
        if structured_content is not None:
            structured_content = jsonable(structured_content)
            if not isinstance(structured_content, dict):
                raise ValueError(
                    "structured_content must be a dict or None. "
                    f"Got {type(structured_content).__name__}: {structured_content!r}. "
                    "Tools should wrap non-dict values based on their output_schema."
                )
        self.structured_content: dict[str, Any] | None = structured_content
        self.meta = meta
        self.is_error = is_error
        self.raw: Any = None

    @property
    def content(self) -> list[Any]:
        """The content, as models."""
        if any(isinstance(each, _Text) for each in self.blocks):
            self.blocks = _typed(self.blocks)
        return self.blocks

    @content.setter
    def content(self, value: Any) -> None:
        self.blocks = _blocks(value)

    @classmethod
    def model_validate(cls, value: Any, **_: Any) -> ToolResult:
        """Make one of its members."""
        return value if isinstance(value, ToolResult) else cls(**value)

    @classmethod
    def from_mcp_result(cls, result: Any) -> ToolResult:
        """Keep a result of the protocol as it is."""
        made = cls(result.content, getattr(result, "structured_content", None), result.meta, bool(result.is_error))
        made.raw = result
        return made

    def to_mcp_result(self) -> Any:
        """Return it as the SDK sends it."""
        if self.raw is not None:
            return self.raw
        if self.meta is not None or self.is_error:
            return TYPES["CallToolResult"].model_validate(
                {
                    "content": [each.model_dump(by_alias=True) for each in self.content],
                    "structuredContent": self.structured_content,
                    "isError": self.is_error,
                    "_meta": self.meta,
                }
            )
        return self.content if self.structured_content is None else (self.content, self.structured_content)

    def sent(self) -> Any:
        """Return it as it is sent."""
        if self.raw is not None:
            return self.raw
        found = {
            "content": self.blocks,
            "structuredContent": self.structured_content,
            "isError": self.is_error,
            "_meta": self.meta,
        }
        return present(found)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the members as JSON values."""
        return {
            "content": [each.model_dump(**options) for each in self.content],
            "structured_content": self.structured_content,
            "meta": self.meta,
            "is_error": self.is_error,
        }

    def model_copy(self, *, update: dict[str, Any] | None = None, **_: Any) -> ToolResult:
        """Return a copy with other members."""
        made = ToolResult(self.blocks, self.structured_content, self.meta, self.is_error)
        for name, value in (update or {}).items():
            setattr(made, name, value)
        return made

    def __repr__(self) -> str:
        return f"ToolResult(content={self.blocks!r}, structured_content={self.structured_content!r})"


class InputRequiredToolResult(ToolResult):
    """A tool asks for input as its result."""

    def __init__(self, input_required: Any) -> None:
        super().__init__([])
        self.input_required = input_required

    def sent(self) -> Any:
        """Return the request for input."""
        return self.input_required


def jsonable(value: Any, kind: Any = Any) -> Any:
    """Return a value as JSON values, as its hint says. Raises: PydanticSerializationError."""
    if isinstance(value, str | int | bool | None):
        return value
    from pydantic import PydanticSchemaGenerationError, TypeAdapter

    if kind is not Any and kind is not inspect.Signature.empty and kind is not None and not isinstance(kind, str):
        try:
            return _adapter(kind).dump_python(value, mode="json")
        except (PydanticSchemaGenerationError, NameError):
            pass
    return TypeAdapter(Any).dump_python(value, mode="json")


@functools.lru_cache(512)
def _cached_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _adapter(kind: Any) -> Any:
    try:
        return _cached_adapter(kind)
    except TypeError:  # a hint that cannot be hashed
        return _cached_adapter.__wrapped__(kind)


def as_text(value: Any) -> str:
    """Return a value as JSON text."""
    text: str = _adapter(Any).dump_json(value, fallback=str).decode()
    return text


class _Text(dict[str, Any]):
    """A text as content, on its way: a model is made of it where somebody looks."""


def _text(value: str) -> _Text:
    return _Text(type="text", text=value)


def _is_block(value: Any) -> bool:
    if not hasattr(type(value), "model_fields"):
        return False
    return isinstance(value, TYPES["ContentBlock"])


def _is_media(value: Any) -> bool:
    return (
        hasattr(value, "to_image_content")
        or hasattr(value, "to_audio_content")
        or hasattr(value, "to_resource_content")
    )


def _is_content(value: Any) -> bool:
    return _is_media(value) or _is_block(value)


def _block(value: Any) -> Any:
    if isinstance(value, _Text) or _is_block(value):
        return value
    for convert in ("to_image_content", "to_audio_content", "to_resource_content"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            import base64

            value = base64.b64encode(value).decode()
    return _text(value if isinstance(value, str) else as_text(value))


def _blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        return [_block(value)]
    if any(isinstance(each, _Text) or _is_content(each) for each in value):
        return list(map(_block, value))
    return [_text(as_text(value))] if value else list(value)


def _typed(blocks: list[Any]) -> list[Any]:
    return [
        TYPES["TextContent"](type="text", text=each["text"]) if isinstance(each, _Text) else each for each in blocks
    ]


class Tool(Component):
    """A tool: `run` does its work."""

    noun = "tool"
    task_config = TaskConfig("forbidden")
    return_type: Any = Any
    output_schema: Any = None
    parameters: dict[str, Any]

    def __init__(self, name: str | None = None, parameters: dict[str, Any] | None = None, **described: Any) -> None:
        output_schema = described.pop("output_schema", ...)
        self.task_config = config_of(described.pop("task", None))
        self._describe(name or type(self).__name__, described, "timeout serializer")
        if parameters is not None:
            self.parameters = parameters
        if output_schema is not ...:
            self.output_schema = output_schema
        for key in ("timeout",):
            setattr(self, key, described.get(key))

    @classmethod
    def from_function(cls, fn: Callable[..., Any], **described: Any) -> FunctionTool:
        """Make a tool of a function."""
        return FunctionTool(fn, **described)

    @classmethod
    def from_tool(cls, tool: Any, **changed: Any) -> Any:
        """Refuse what is written otherwise here."""
        from linkspan_compat.errors import NotServed

        raise NotServed(
            "Tool.from_tool is not served by linkspan-compat; write for Linkspan: server.edit(name, Edit(...))"
        )

    def listed(self) -> dict[str, Any]:
        """Return the tool as it is listed."""
        annotations = self.annotations
        if annotations is not None and hasattr(annotations, "model_dump"):
            annotations = annotations.model_dump(by_alias=True, exclude_none=True)
        title = self.title or (annotations or {}).get("title")
        if title is None and fast_version() == "4":
            title = self.name.replace("_", " ").replace("-", " ").title()
        output = self.output_schema
        found = {
            "name": self.name,
            "title": title,
            "description": self.description,
            "inputSchema": dereferenced(self.parameters),
            "outputSchema": dereferenced(output) if output is not None else None,
            "icons": self.icons,
            "annotations": annotations,
            "_meta": self.get_meta(),
        }
        return present(found)

    def to_mcp_tool(self, **overrides: Any) -> Any:
        """Return it as a model."""
        from linkspan_compat.server.requests import plain

        return TYPES["Tool"].model_validate({**plain(self.listed()), **overrides})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Do the work."""
        raise NotImplementedError("Subclasses must implement run()")

    def convert_result(self, value: Any) -> ToolResult:
        """Return what the function gave as a result. Raises: ToolError."""
        if isinstance(value, ToolResult):
            return value
        if hasattr(type(value), "model_fields") and type(value).__name__ in ("CallToolResult", "InputRequiredResult"):
            if type(value).__name__ == "InputRequiredResult":
                return InputRequiredToolResult(value)
            return ToolResult.from_mcp_result(value)
        if isinstance(value, bytes):
            return ToolResult(_blocks(value))
        schema = self.output_schema
        is_content = _is_content(value) or (isinstance(value, list | tuple) and any(map(_is_content, value)))
        if schema is None and is_content:
            return ToolResult(_blocks(value))
        try:
            structured = jsonable(value, self.return_type)
        except Exception as error:
            if type(error).__name__ not in ("PydanticSerializationError", "UnicodeDecodeError"):
                raise
            if schema is not None:
                raise ToolError(
                    f"Could not serialize the return value of tool {self.name!r} for its output schema: {error}. If this is "
                    "unexpected, set the tool's output_schema to None to disable automatic serialization."
                ) from error
            return _of_blocks(_blocks(value))
        content = _blocks(value) if is_content else _blocks(structured)
        if schema is None:
            return _of_blocks(content, structured if isinstance(structured, dict) else None)
        if schema.get("x-fastmcp-wrap-result"):
            return _of_blocks(content, {"result": structured}, {"fastmcp": {"wrap_result": True}})
        return _of_blocks(content, structured)


def _of_blocks(blocks: list[Any], structured: Any = None, meta: dict[str, Any] | None = None) -> ToolResult:
    """Return a result of what is converted already."""
    made = ToolResult([])
    made.blocks, made.structured_content, made.meta = blocks, structured, meta
    return made


class BodyError(Exception):
    """Carries what the function itself raised, where the same type means wrong arguments."""


class FunctionTool(Tool):
    """A function as a tool. Its schemas are made when they are needed."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None, **described: Any) -> None:
        self.fn = fn
        self.timeout: float | None = described.get("timeout")
        self.run_in_thread = described.get("run_in_thread") is not False
        self._exclude: list[str] = list(described.get("exclude_args") or ())
        self._serializer = described.get("serializer")
        chosen = described.pop("output_schema", ...)
        self.task_config = config_of(described.pop("task", None))
        self.task_config.validate_function(fn, name_of(fn, name))
        self._describe(name_of(fn, name), described, "timeout run_in_thread exclude_args serializer parameters")
        if chosen is not ... and type(chosen).__name__ != "NotSetT":
            self.output_schema = None if chosen is False else chosen
        if self.description is None:
            del self.description
        check_parameters(fn, "tool")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **keywords)

    @cached_property
    def signature(self) -> Signature:
        """What is known of the function."""
        from linkspan_compat.fast.signatures import Signature

        return Signature(self.fn)

    @cached_property
    def description(self) -> str | None:  # type: ignore[override]
        """What the docstring says."""
        return self.signature.docstring.description

    @cached_property
    def parameters(self) -> dict[str, Any]:  # type: ignore[override]
        """The schema of the arguments."""
        from linkspan_compat.fast.schemas import compress_schema

        found = self.signature.parameters
        return compress_schema(found, prune_params=self._exclude) if self._exclude else found

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The schema of the structured result."""
        return self.signature.output_schema

    @property
    def return_type(self) -> Any:
        """The hint of the result."""
        return self.signature.return_type

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Check the arguments, and call the function. Raises: ValidationError; MCPError after the timeout."""
        from pydantic import ValidationError as PydanticValidationError

        from linkspan_compat.fast.settings import settings

        try:
            keywords = self.signature.arguments(arguments, strict=settings.strict_input_validation or None)
        except PydanticValidationError as error:
            if fast_version() != "4":
                raise
            raise ValidationError(str(error), log_level=logging.WARNING) from error
        try:
            if self.timeout is None:
                found = await self._called(keywords)
            else:
                async with asyncio.timeout(self.timeout):
                    found = await self._called(keywords)
        except TimeoutError:
            if self.timeout is None:
                raise
            raise MCPError(-32000, f"Tool '{self.name}' execution timed out after {self.timeout}s") from None
        except PydanticValidationError as error:
            raise BodyError(str(error)) from error
        if self._serializer is not None and not _is_content(found):
            return ToolResult(self._serializer(found), found if isinstance(found, dict) else None)
        return self.convert_result(found)

    async def _called(self, keywords: dict[str, Any]) -> Any:
        injected = self.signature.injected
        if not injected:
            return await run_function(self.signature.fn, keywords, threaded=self.run_in_thread)
        from linkspan_compat.fast.dependencies import supplied

        async with supplied(injected) as values:
            return await run_function(self.signature.fn, {**keywords, **values}, threaded=self.run_in_thread)


async def run_function(function: Callable[..., Any], keywords: dict[str, Any], *, threaded: bool = True) -> Any:
    """Call a function: a plain one in a thread (versions 3 and 4). Generators give lists."""
    if is_async_callable(function) or inspect.isasyncgenfunction(function):
        found = function(**keywords)
    elif threaded and fast_version() != "2":
        found = await in_thread(functools.partial(_run_plain, function, keywords))
    else:
        found = _run_plain(function, keywords)
    if inspect.isawaitable(found):
        found = await found
    if inspect.isasyncgen(found):
        return [each async for each in found]
    return list(found) if inspect.isgenerator(found) else found


def _run_plain(function: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    found = function(**keywords)
    return list(found) if inspect.isgenerator(found) else found


class Marked:
    """What a decorator outside of a server notes on a function: `@tool`, `@prompt` or `@resource`."""

    def __init__(self, kind: str, described: dict[str, Any]) -> None:
        self.kind = kind
        self.described = described


def mark(kind: str, function: Any, described: dict[str, Any]) -> Any:
    """Note it."""
    target: Any = function.__func__ if isinstance(function, staticmethod | MethodType) else function
    target.__fastmcp__ = Marked(kind, described)
    return function


def tool(name_or_fn: Any = None, *, name: str | None = None, **described: Any) -> Any:
    """Mark a function as a tool, to be added with `mcp.add_tool`."""
    if callable(name_or_fn):
        return mark("tool", name_or_fn, {"name": name, **described})
    chosen = name_or_fn or name
    return lambda function: mark("tool", function, {"name": chosen, **described})
