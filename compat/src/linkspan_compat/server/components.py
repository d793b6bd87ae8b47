"""Tools, prompts, resources and their managers, as the SDK's FastMCP and MCPServer keep them."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from linkspan_compat.errors import (
    MCPError,
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from linkspan_compat.flavours import sdk_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.plain_signatures import Misfit, PlainSignature
from linkspan_compat.server.results import content_of, is_block

if TYPE_CHECKING:
    from linkspan_compat.server.context import Context
    from linkspan_compat.server.signatures import FuncMetadata

__all__ = [
    "FunctionResource",
    "Prompt",
    "PromptManager",
    "ResourceManager",
    "ResourceTemplate",
    "Tool",
    "ToolManager",
    "in_thread",
    "is_async_callable",
    "variables_of",
]

logger = logging.getLogger("mcp.server")


def is_async_callable(function: Any) -> bool:
    """Return whether a call gives a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a plain function in a worker thread, in the context of the caller."""
    run = functools.partial(contextvars.copy_context().run, function)
    return await asyncio.get_running_loop().run_in_executor(None, run)


async def _run(function: Callable[..., Any], keywords: dict[str, Any], is_async: bool) -> Any:
    """Call a function of the author's where its SDK does: version 1 on the event loop, version 2 in a thread."""
    if is_async:
        return await function(**keywords)
    if sdk_version() == "2":
        return await in_thread(functools.partial(function, **keywords))
    return function(**keywords)


def _named(function: Callable[..., Any], name: str | None) -> str:
    found = name or getattr(function, "__name__", None) or type(function).__name__
    if found == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    return str(found)


class _Registered:
    """What a function that is registered has in common: what is said of it, and its context."""

    name: str
    title: str | None
    description: str
    icons: Any
    annotations: Any = None
    meta: dict[str, Any] | None = None
    original: Callable[..., Any]

    def _describe(
        self,
        fn: Callable[..., Any],
        name: str | None,
        title: str | None,
        description: str | None,
        icons: Any,
        annotations: Any = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Take what the program says, and the rest from the function. Raises: ValueError for a lambda without a name."""
        self.original = fn
        self.name = _named(fn, name)
        self.title = title
        self.description = description or fn.__doc__ or ""
        self.icons = icons
        self.annotations = annotations
        self.meta = meta

    @cached_property
    def context_kwarg(self) -> str | None:
        """The parameter that gets the context."""
        from linkspan_compat.server.plain_signatures import find_context_parameter

        return find_context_parameter(self.original)

    @property
    def _skipped(self) -> list[str]:
        """The parameters that no caller gives."""
        return [self.context_kwarg] if self.context_kwarg is not None else []

    def _listed(self, **own: Any) -> dict[str, Any]:
        """Return it as it is listed; `own` are the members of its kind."""
        found = {"name": self.name, "title": self.title, "description": self.description, **own}
        return present({**found, "annotations": self.annotations, "icons": self.icons, "_meta": self.meta})


class _Checked(_Registered):
    """A function that pydantic checks the arguments of."""

    @cached_property
    def fn(self) -> Callable[..., Any]:
        """The function, which checks its arguments."""
        from pydantic import ConfigDict, validate_call

        return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(self.original)  # the context is one

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        from linkspan_compat.server.signatures import FuncMetadata

        return FuncMetadata(self.original, self._skipped, False).parameters


class Tool(_Registered):
    """A function as a tool. Its schemas are made when they are needed."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Any = None,
        icons: Any = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        context_kwarg: str | None = None,
        fn_metadata: FuncMetadata | None = None,
        parameters: dict[str, Any] | None = None,
        is_async: bool | None = None,
    ) -> None:
        self.fn = fn
        if fn_metadata is not None:
            self.fn_metadata = fn_metadata
        if parameters is not None:
            self.parameters = parameters
        self._describe(fn, name, title, description, icons, annotations, meta)
        self.is_async = is_async_callable(fn) if is_async is None else is_async
        self._structured_output = structured_output
        if context_kwarg:
            self.context_kwarg = context_kwarg

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **more: Any) -> Tool:
        """Make a tool of a function."""
        return cls(fn, name, **more)

    @cached_property
    def fn_metadata(self) -> FuncMetadata:
        """What the hints say."""
        from linkspan_compat.server.signatures import FuncMetadata

        return FuncMetadata(self.fn, self._skipped, self._structured_output)

    @cached_property
    def _plain(self) -> PlainSignature | None:
        """The same without pydantic; None where the hints are not plain, and where the program has given other ones."""
        if "fn_metadata" in vars(self) or "parameters" in vars(self):
            return None
        return PlainSignature.of(self.fn, [self.context_kwarg or ""], self._structured_output)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments."""
        return self._plain.parameters if self._plain is not None else self.fn_metadata.parameters

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the structured result."""
        return self._plain.output_schema if self._plain is not None else self.fn_metadata.output_schema

    def _keywords(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of a call. Raises: pydantic.ValidationError."""
        if self._plain is not None:
            with suppress(Misfit):
                return self._plain.arguments(arguments)
        return self.fn_metadata.validate_arguments(arguments)

    def _structured(self, found: Any) -> Any:
        """Return a result as structured content. Raises: pydantic.ValidationError."""
        if self._plain is not None:
            with suppress(Misfit):
                return self._plain.structured(found)
        return self.fn_metadata.structured(found)

    def listed(self) -> dict[str, Any]:
        """Return the tool as it is listed."""
        return self._listed(inputSchema=self.parameters, outputSchema=self.output_schema)

    async def run(self, arguments: dict[str, Any], context: Context | None = None, convert_result: bool = False) -> Any:
        """Call the function with checked arguments. Raises: ToolError."""
        call = self._run_one if sdk_version() == "1" else self._run_two
        found = await call(arguments, context)
        return self.fn_metadata.convert_result(found) if convert_result else found

    async def answer(self, arguments: dict[str, Any], context: Context) -> Any:
        """Call the function and return the result as it is sent."""
        return await (self._run_one if sdk_version() == "1" else self._run_two)(arguments, context, self._result)

    def _result(self, found: Any) -> Any:
        if hasattr(found, "model_dump"):
            if isinstance(found, TYPES["CallToolResult"]):
                self.fn_metadata.check_own_result(found)
                return found
            if sdk_version() == "2" and isinstance(found, TYPES["InputRequiredResult"]):
                return found
        result = {"content": content_of(found), "isError": False}
        return result if self.output_schema is None else {**result, "structuredContent": self._structured(found)}

    def _direct(self, context: Context | None) -> dict[str, Any]:
        return {self.context_kwarg: context} if self.context_kwarg is not None else {}

    async def _run_one(
        self, arguments: dict[str, Any], context: Context | None, convert: Callable[[Any], Any] | None = None
    ) -> Any:
        try:
            keywords = self._keywords(arguments) | self._direct(context)
            found = await _run(self.fn, keywords, self.is_async)
            return convert(found) if convert is not None else found
        except MCPError as error:
            if error.code == -32042:
                raise
            raise ToolError(f"Error executing tool {self.name}: {error}") from error
        except Exception as error:
            raise ToolError(f"Error executing tool {self.name}: {error}") from error

    async def _run_two(
        self, arguments: dict[str, Any], context: Context | None, convert: Callable[[Any], Any] | None = None
    ) -> Any:
        crashed = f"Error executing tool {self.name}"
        try:
            keywords = self._keywords(arguments)
        except MCPError:
            raise
        except Exception as error:
            from pydantic import ValidationError

            if isinstance(error, ValidationError):
                raise ToolError(f"{crashed}: {error}") from error
            raise UnexpectedToolError(crashed) from error
        try:
            found = await _run(self.fn, keywords | self._direct(context), self.is_async)
            return convert(found) if convert is not None else found
        except MCPError:
            raise
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{crashed}: {error}") from error
        except (ToolError, ResourceError) as error:
            raise ToolError(f"{crashed}: {error}") from error
        except Exception as error:
            raise UnexpectedToolError(crashed) from error


def present(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are there."""
    return {name: value for name, value in members.items() if value is not None}


def _kept(kept: dict[str, Any], key: str, value: Any, noun: str, warns: bool) -> Any:
    """Keep a component, unless its name is taken; return the one that is kept."""
    if key in kept:
        if warns:
            logger.warning("%s already exists: %s", noun, key)
        return kept[key]
    kept[key] = value
    return value


class ToolManager:
    """The tools of a server."""

    def __init__(self, warn_on_duplicate_tools: bool = True, *, tools: list[Tool] | None = None) -> None:
        self._tools: dict[str, Tool] = {tool.name: tool for tool in tools or ()}
        self.warn_on_duplicate_tools = warn_on_duplicate_tools

    def get_tool(self, name: str) -> Tool | None:
        """Return the tool of a name."""
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        """Return all tools."""
        return list(self._tools.values())

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **more: Any) -> Tool:
        """Add a function; one whose name is taken is left out."""
        tool = Tool(fn, name, **more)
        found: Tool = _kept(self._tools, tool.name, tool, "Tool", self.warn_on_duplicate_tools)
        return found

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Raises: ToolError."""
        if name not in self._tools:
            raise ToolError(f"Unknown tool: {name}")
        del self._tools[name]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None, convert_result: bool = False
    ) -> Any:
        """Call a tool. Raises: ToolError."""
        tool = self.get_tool(name)
        if tool is None:
            raise ToolError(f"Unknown tool: {name}")
        return await tool.run(arguments, context, convert_result)


class FunctionResource(_Registered):
    """A function that is read."""

    def __init__(
        self,
        uri: Any,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Any = None,
        annotations: Any = None,
        meta: dict[str, Any] | None = None,
        is_ready: bool = False,
    ) -> None:
        self.uri = uri
        self.fn = fn
        self._describe(fn, name, title, description, icons, annotations, meta)
        if is_ready:
            self.description = description or ""
        self.mime_type = mime_type or "text/plain"

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, name: str | None = None, **more: Any) -> FunctionResource:
        """Make a resource of a function."""
        return cls(uri, fn, name, **more)

    async def read(self) -> str | bytes:
        """Return the text or the bytes. Raises: ValueError; in version 2 what the function raises."""
        try:
            found = await _run(self.fn, {}, is_async_callable(self.fn))
            if inspect.isawaitable(found):
                found = await found
            if hasattr(found, "read") and hasattr(found, "mime_type"):
                found = await found.read()
            return as_read(found)
        except Exception as error:
            if sdk_version() == "2":
                raise
            raise ValueError(f"Error reading resource {self.uri}: {error}") from error


def as_read(found: Any) -> str | bytes:
    """Return what a resource gave as text or bytes."""
    if isinstance(found, str | bytes):
        return found
    from linkspan_compat.server.results import indented

    return indented(found)


class ResourceTemplate(_Checked):
    """A function of the variables of a URI template."""

    def __init__(
        self,
        fn: Callable[..., Any],
        uri_template: str,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Any = None,
        annotations: Any = None,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        check("ResourceTemplate", more, "security")
        self.uri_template = uri_template
        self._describe(fn, name, title, description, icons, annotations, meta)
        self.mime_type = mime_type or "text/plain"
        self._query = variables_of(uri_template)[1]
        self._pattern = re.compile(_pattern(uri_template))

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri_template: str, **more: Any) -> ResourceTemplate:
        """Make a template of a function."""
        return cls(fn, uri_template, **more)

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of the variables."""
        return self._parameters

    def listed(self) -> dict[str, Any]:
        """Return the template as it is listed."""
        return self._listed(uriTemplate=self.uri_template, mimeType=self.mime_type)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables of a URI, None for another one."""
        asked, variables = uri, dict[str, str]()
        if self._query:
            asked, _, query = uri.partition("?")
            variables = {name: value for name, value in parse_qsl(query) if name in self._query}
        found = self._pattern.fullmatch(asked)
        return {**found.groupdict(), **variables} if found is not None else None

    async def create_resource(self, uri: str, params: dict[str, Any], context: Context | None = None) -> Any:
        """Call the function, and return what it gave as a resource. Raises: ValueError; ResourceError in version 2."""
        keywords = dict(params) if self.context_kwarg is None else {**params, self.context_kwarg: context}
        try:
            found = await _run(self.fn, keywords, is_async_callable(self.original))
            if inspect.isawaitable(found):
                found = await found
        except (MCPError, ResourceError) as error:
            if sdk_version() == "2":
                raise
            raise ValueError(f"Error creating resource from template: {error}") from error
        except Exception as error:
            if sdk_version() == "2":
                raise UnexpectedResourceError(f"Error creating resource from template {uri}") from error
            raise ValueError(f"Error creating resource from template: {error}") from error
        return FunctionResource(
            uri,
            lambda: found,
            self.name,
            self.title,
            self.description,
            self.mime_type,
            self.icons,
            self.annotations,
            self.meta,
            is_ready=True,
        )


_OPERATORS: Final = {"+": ".+", "#": ".+", "/": "[^/]+", "": "[^/]+"}


def variables_of(template: str) -> tuple[set[str], set[str]]:
    """Return the variables of the path of a URI template, and those of its query, which may be left out."""
    path, query = set[str](), set[str]()
    for part in re.findall(r"\{([^}]*)\}", template):
        names = re.findall(r"[A-Za-z_]\w*", part)
        (query if part[:1] in ("?", "&") else path).update(names)
    return path, query


def _pattern(template: str) -> str:
    """Return the pattern of a URI template without its query: `{name}` stops at a slash, `{+name}` and `{name*}` do not."""
    parts = re.split(r"\{([^}]*)\}", re.sub(r"\{[?&][^}]*\}", "", template))
    found = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            found += re.escape(part)
            continue
        operator = part[0] if part[:1] in "+#/." and part[:1] else ""
        name = part.lstrip("+#/.&?").rstrip("*")
        kind = ".+" if part.endswith("*") else _OPERATORS.get(operator, "[^/]+")
        prefix = "/" if operator == "/" else ""
        found += f"{prefix}(?P<{name}>{kind})" if name.isidentifier() else re.escape("{" + part + "}")
    return found


class ResourceManager:
    """The resources and templates of a server."""

    def __init__(self, warn_on_duplicate_resources: bool = True, *, resources: list[Any] | None = None) -> None:
        self._resources: dict[str, Any] = {str(each.uri): each for each in resources or ()}
        self._templates: dict[str, ResourceTemplate] = {}
        self.warn_on_duplicate_resources = warn_on_duplicate_resources

    def add_resource(self, resource: Any) -> Any:
        """Add a resource; one whose URI is taken is left out."""
        return _kept(self._resources, str(resource.uri), resource, "Resource", self.warn_on_duplicate_resources)

    def add_template(self, fn: Callable[..., Any], uri_template: str, **more: Any) -> ResourceTemplate:
        """Add a template."""
        template = ResourceTemplate(fn, uri_template, **more)
        self._templates[uri_template] = template
        return template

    def list_resources(self) -> list[Any]:
        """Return all resources."""
        return list(self._resources.values())

    def list_templates(self) -> list[ResourceTemplate]:
        """Return all templates."""
        return list(self._templates.values())

    async def get_resource(self, uri: Any, context: Context | None = None) -> Any:
        """Return the resource at a URI. Raises: ValueError in version 1, ResourceNotFoundError in version 2."""
        asked = str(uri)
        if (found := self._resources.get(asked)) is not None:
            return found
        for template in self._templates.values():
            variables = template.matches(asked)
            if variables is not None:
                if sdk_version() == "2" and any(map(escapes, variables.values())):
                    break
                return await template.create_resource(asked, variables, context)
        if sdk_version() == "2":
            raise ResourceNotFoundError(f"Unknown resource: {uri}")
        raise ValueError(f"Unknown resource: {uri}")


def escapes(value: str) -> bool:
    """Return whether a variable could lead out of a folder, as version 2 refuses it."""
    from urllib.parse import unquote

    text = unquote(value).replace("\\", "/")
    return "\0" in text or ".." in text.split("/") or text.startswith("/") or re.match(r"[A-Za-z]:", text) is not None


class PromptArgument:
    """An argument of a prompt."""

    def __init__(self, name: str, description: str | None = None, required: bool = False) -> None:
        self.name = name
        self.description = description
        self.required = required


class Message:
    """A message of a prompt, whose content is a text or a block."""

    role = "user"

    def __init__(self, content: Any, role: str | None = None) -> None:
        if role is not None:
            self.role = role
        if isinstance(content, str):
            content = TYPES["TextContent"](type="text", text=content)
        elif hasattr(content, "to_image_content"):
            content = content.to_image_content()
        elif hasattr(content, "to_audio_content"):
            content = content.to_audio_content()
        elif isinstance(content, dict):
            from pydantic import TypeAdapter

            content = TypeAdapter(TYPES["ContentBlock"]).validate_python(content)
        self.content: Any = content

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the message as JSON values."""
        return {"role": self.role, "content": self.content.model_dump(**options)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.role, self.content) == (other.role, other.content)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(role={self.role!r}, content={self.content!r})"


class UserMessage(Message):
    """A message of the user."""


class AssistantMessage(Message):
    """A message of the assistant."""

    role = "assistant"


class Prompt(_Checked):
    """A function as a prompt."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Any = None,
        arguments: Any = None,
    ) -> None:
        self._describe(fn, name, title, description, icons)
        self._arguments = arguments

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **more: Any) -> Prompt:
        """Make a prompt of a function."""
        return cls(fn, name, **more)

    @cached_property
    def arguments(self) -> list[PromptArgument]:
        """The arguments."""
        if self._arguments is not None:
            return list(self._arguments)
        schema = self._parameters
        required = schema.get("required", ())
        return [
            PromptArgument(name, each.get("description"), name in required)
            for name, each in schema.get("properties", {}).items()
        ]

    def listed(self) -> dict[str, Any]:
        """Return the prompt as it is listed."""
        return self._listed(arguments=[present(dict(vars(each))) for each in self.arguments])

    async def render(self, arguments: dict[str, Any] | None = None, context: Context | None = None) -> Any:
        """Call the function, and return the messages. Raises: ValueError."""
        given = dict(arguments or {})
        missing = {each.name for each in self.arguments if each.required} - given.keys()
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        if self.context_kwarg is not None:
            given[self.context_kwarg] = context
        try:
            found = await _run(self.fn, given, is_async_callable(self.original))
            if inspect.isawaitable(found):
                found = await found
            if sdk_version() == "2" and isinstance(found, TYPES["InputRequiredResult"]):
                return found
            return [_message(each) for each in (found if isinstance(found, list | tuple) else [found])]
        except MCPError:
            raise
        except Exception as error:
            if sdk_version() == "2":
                raise ValueError(f"Error rendering prompt {self.name}") from error
            raise ValueError(f"Error rendering prompt {self.name}: {error}") from error


def _message(found: Any) -> Any:
    if isinstance(found, Message) or (hasattr(found, "role") and hasattr(found, "content")):
        return found
    if isinstance(found, str) or is_block(found) or hasattr(found, "to_image_content"):
        return UserMessage(found)
    try:
        if isinstance(found, dict):
            return Message(found["content"], found.get("role", "user"))
        from linkspan_compat.server.results import indented

        return Message(indented(found))
    except Exception:
        raise ValueError(f"Could not convert prompt result to message: {found}") from None


class PromptManager:
    """The prompts of a server."""

    def __init__(self, warn_on_duplicate_prompts: bool = True) -> None:
        self._prompts: dict[str, Prompt] = {}
        self.warn_on_duplicate_prompts = warn_on_duplicate_prompts

    def get_prompt(self, name: str) -> Prompt | None:
        """Return the prompt of a name."""
        return self._prompts.get(name)

    def list_prompts(self) -> list[Prompt]:
        """Return all prompts."""
        return list(self._prompts.values())

    def add_prompt(self, prompt: Prompt) -> Prompt:
        """Add a prompt; one whose name is taken is left out."""
        found: Prompt = _kept(self._prompts, prompt.name, prompt, "Prompt", self.warn_on_duplicate_prompts)
        return found

    async def render_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Render a prompt. Raises: ValueError."""
        prompt = self.get_prompt(name)
        if prompt is None:
            raise ValueError(f"Unknown prompt: {name}")
        return await prompt.render(arguments, context)


class Resource:
    """A resource of one's own: a subclass has `read`."""

    def __init__(
        self,
        uri: Any = None,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str = "text/plain",
        icons: Any = None,
        annotations: Any = None,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.uri = uri
        self.name = name or str(uri)
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.icons = icons
        self.annotations = annotations
        self.meta = meta
        for key, value in more.items():
            setattr(self, key, value)

    async def read(self) -> str | bytes:
        """Return the text or the bytes."""
        raise NotImplementedError(f"{type(self).__name__} has no read()")


class TextResource(Resource):
    """A text."""

    text: str

    async def read(self) -> str:
        """Return the text."""
        return self.text


class BinaryResource(Resource):
    """Bytes."""

    data: bytes

    async def read(self) -> bytes:
        """Return the bytes."""
        return self.data


class FileResource(Resource):
    """A file, whose path is absolute: text, or bytes. Version 2 has an `encoding` for texts, which is None for bytes."""

    path: Path
    is_binary: bool = False
    encoding: str | None = None

    def __init__(self, *args: Any, path: str | Path, is_binary: bool = False, **more: Any) -> None:
        is_newer = sdk_version() == "2"
        encoding = more.pop("encoding", ...) if is_newer else None
        super().__init__(*args, **more)
        self.path = Path(path)
        if not self.path.is_absolute():
            raise ValueError("Path must be absolute")
        if is_newer:
            self.encoding = _encoding_of(self.mime_type) if encoding is ... else _known(encoding)
            self.is_binary = self.encoding is None
        else:
            self.is_binary = is_binary or not self.mime_type.startswith("text/")

    async def read(self) -> str | bytes:
        """Return the contents. Raises: ValueError; in version 2 OSError, UnicodeError."""
        try:
            if self.is_binary:
                return bytes(await in_thread(self.path.read_bytes))
            return str(await in_thread(functools.partial(self.path.read_text, encoding=self.encoding)))
        except Exception as error:
            if sdk_version() == "2":
                raise
            raise ValueError(f"Error reading file {self.path}: {error}") from error


_TEXTUAL: Final = re.compile(r"text/.*|application/(json|xml)|.*\+(json|xml)")


def _encoding_of(mime_type: str) -> str | None:
    """Return the encoding of files of a type: what it says, UTF-8 for texts, None for bytes."""
    from email.message import Message

    header = Message()
    header["content-type"] = mime_type
    if (charset := header.get_param("charset")) is not None:
        return _known(str(charset))
    return "utf-8-sig" if _TEXTUAL.fullmatch(header.get_content_type()) else None


def _known(encoding: str | None) -> str | None:
    """Return an encoding of texts. Raises: ValueError for another one."""
    if encoding is not None:
        try:
            b"x".decode(encoding)
        except LookupError as error:
            raise ValueError(str(error)) from error
        except UnicodeError:
            pass
    return encoding


class DirectoryResource(Resource):
    """The files of a folder, as JSON."""

    path: Path
    recursive: bool = False
    pattern: str | None = None

    def __init__(self, *args: Any, path: str | Path, mime_type: str = "application/json", **more: Any) -> None:
        super().__init__(*args, **{"mime_type": mime_type, **more})
        self.path = Path(path)
        if not self.path.is_absolute():
            raise ValueError("Path must be absolute")

    def list_files(self) -> list[Path]:
        """Return the files."""
        pattern = self.pattern or "*"
        return list(self.path.rglob(pattern) if self.recursive else self.path.glob(pattern))

    async def read(self) -> str:
        """Return the names of the files."""
        import json

        files = [str(each.relative_to(self.path)) for each in self.list_files() if each.is_file()]
        return json.dumps({"files": files}, indent=2)
