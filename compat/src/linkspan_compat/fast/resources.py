"""Resources and templates of FastMCP."""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from linkspan_compat.fast.tools import Component, as_text, check_parameters, mark, name_of, run_function
from linkspan_compat.flavours import fast_version
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.components import in_thread, present
from linkspan_compat.server.requests import plain

if TYPE_CHECKING:
    from linkspan_compat.fast.signatures import Signature

__all__ = [
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "FunctionResource",
    "Resource",
    "ResourceContent",
    "ResourceResult",
    "ResourceTemplate",
    "TextResource",
    "resource",
]


class ResourceContent:
    """One item of what is read: texts and bytes as they are, anything else as JSON."""

    def __init__(self, content: Any, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        usual = "text/plain"
        if isinstance(content, bytes):
            usual = "application/octet-stream"
        elif not isinstance(content, str):
            content, usual = as_text(content), "application/json"
        self.content: str | bytes = content
        self.mime_type = mime_type or usual
        self.meta = meta

    def sent(self, uri: str) -> dict[str, Any]:
        """Return it as it is sent."""
        body = (
            {"blob": base64.b64encode(self.content).decode()}
            if isinstance(self.content, bytes)
            else {"text": self.content}
        )
        return present({"uri": uri, "mimeType": self.mime_type, **body, "_meta": self.meta})

    def to_mcp_resource_contents(self, uri: Any) -> Any:
        """Return it as a model."""
        kind = "BlobResourceContents" if isinstance(self.content, bytes) else "TextResourceContents"
        return TYPES[kind].model_validate(self.sent(str(uri)))


class ResourceResult:
    """All items of what is read."""

    def __init__(self, contents: Any, meta: dict[str, Any] | None = None) -> None:
        if isinstance(contents, str | bytes):
            contents = [ResourceContent(contents)]
        elif isinstance(contents, list):
            for number, each in enumerate(contents):
                if not isinstance(each, ResourceContent):
                    raise TypeError(
                        f"contents[{number}] must be ResourceContent, got {type(each).__name__}. "
                        f"Use ResourceContent({each!r}) to wrap the value."
                    )
        elif contents is None or isinstance(contents, dict | tuple | int | float):
            contents = [ResourceContent(json.dumps(contents), "application/json")]
        else:
            raise TypeError(f"contents must be str, bytes, or list[ResourceContent], got {type(contents).__name__}")
        self.contents: list[ResourceContent] = contents
        self.meta = meta

    def sent(self, uri: str) -> Any:
        """Return it as it is sent."""
        return present({"contents": [each.sent(uri) for each in self.contents], "_meta": self.meta})


class _AskingResourceResult(ResourceResult):
    """A resource asks for input as its result."""

    def __init__(self, input_required: Any) -> None:
        super().__init__([])
        self.input_required = input_required

    def sent(self, uri: str) -> Any:
        """Return the request for input."""
        return self.input_required


def as_result(value: Any, mime_type: str | None, meta: dict[str, Any] | None) -> ResourceResult:
    """Return what a function gave as items. Raises: TypeError."""
    if isinstance(value, ResourceResult):
        return value
    if type(value).__name__ == "InputRequiredResult":
        return _AskingResourceResult(value)
    if isinstance(value, str | bytes):
        return ResourceResult([ResourceContent(value, mime_type, meta)])
    if isinstance(value, list) and value and isinstance(value[0], ResourceContent):
        return ResourceResult(value)
    if fast_version() != "4":
        if fast_version() == "2":
            return ResourceResult([ResourceContent(as_text(value), mime_type, meta)])
        return ResourceResult(value)
    if value is None or isinstance(value, dict | list | tuple | int | float):
        return ResourceResult([ResourceContent(json.dumps(value), mime_type or "application/json", meta)])
    return ResourceResult(value)


class Resource(Component):
    """A resource: `read` gives what is in it."""

    noun = "resource"
    uri: Any = ""
    mime_type: str = "text/plain"

    def __init__(
        self, uri: Any = None, name: str | None = None, mime_type: str | None = None, **described: Any
    ) -> None:
        self._describe(name or str(uri), described, "text data")
        if uri is not None:
            self.uri = uri
        if mime_type is not None:
            self.mime_type = mime_type
        for key in ("text", "data"):
            if key in described:
                setattr(self, key, described[key])

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, **described: Any) -> FunctionResource:
        """Make a resource of a function."""
        return FunctionResource(fn, uri, **described)

    @property
    def key(self) -> str:
        """The URI."""
        return normal_uri(self.uri)

    def listed(self) -> dict[str, Any]:
        """Return the resource as it is listed."""
        found = {
            "uri": self.key,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "icons": self.icons,
            "annotations": self.annotations,
            "_meta": self.get_meta(),
        }
        return present(found)

    def to_mcp_resource(self, **overrides: Any) -> Any:
        """Return it as a model."""
        return TYPES["Resource"].model_validate({**plain(self.listed()), **overrides})

    async def read(self) -> Any:
        """Return what is in it."""
        raise NotImplementedError("Subclasses must implement read()")

    async def result(self) -> ResourceResult:
        """Return what is in it as items."""
        return as_result(await self.read(), self.mime_type, self.meta)


def normal_uri(uri: Any) -> str:
    """Return a URI as pydantic writes it."""
    from pydantic import AnyUrl

    try:
        return str(AnyUrl(str(uri)))
    except ValueError:
        return str(uri)


class TextResource(Resource):
    """A text."""

    text: str

    async def read(self) -> Any:
        """Return the text."""
        return ResourceResult([ResourceContent(self.text, self.mime_type, self.meta)])


class BinaryResource(Resource):
    """Bytes."""

    data: bytes

    async def read(self) -> Any:
        """Return the bytes."""
        return ResourceResult([ResourceContent(self.data, self.mime_type, self.meta)])


class FileResource(Resource):
    """A file, whose path is absolute."""

    def __init__(self, uri: Any = None, *, path: str | Path, is_binary: bool = False, **described: Any) -> None:
        super().__init__(uri, **described)
        self.path = Path(path)
        if not self.path.is_absolute():
            raise ValueError("Path must be absolute")
        self.is_binary = is_binary or not self.mime_type.startswith("text/")

    async def read(self) -> Any:
        """Return the contents."""
        content = await in_thread(self.path.read_bytes if self.is_binary else self.path.read_text)
        return ResourceResult([ResourceContent(content, self.mime_type, self.meta)])


class DirectoryResource(Resource):
    """The files of a folder, as JSON."""

    mime_type = "application/json"

    def __init__(
        self,
        uri: Any = None,
        *,
        path: str | Path,
        recursive: bool = False,
        pattern: str | None = None,
        **described: Any,
    ) -> None:
        super().__init__(uri, **described)
        self.path, self.recursive, self.pattern = Path(path), recursive, pattern
        if not self.path.is_absolute():
            raise ValueError("Path must be absolute")

    async def read(self) -> Any:
        """Return the names of the files."""
        pattern = self.pattern or "*"
        found = self.path.rglob(pattern) if self.recursive else self.path.glob(pattern)
        files = [str(each.relative_to(self.path)) for each in found if each.is_file()]
        return ResourceResult([ResourceContent(json.dumps({"files": files}, indent=2), self.mime_type, self.meta)])


class FunctionResource(Resource):
    """A function that is read."""

    def __init__(self, fn: Callable[..., Any], uri: Any, name: str | None = None, **described: Any) -> None:
        self.fn = fn
        self.uri = uri
        self.mime_type = described.pop("mime_type", None) or "text/plain"
        self._describe(name_of(fn, name), described)
        if self.description is None:
            del self.description
        check_parameters(fn, "resource")

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
        return inspect.getdoc(self.fn)

    async def read(self) -> Any:
        """Call the function."""
        found = await self._called({})
        if isinstance(found, Resource):
            return await found.result()
        return found

    async def _called(self, keywords: dict[str, Any]) -> Any:
        injected = self.signature.injected
        if not injected:
            return await run_function(self.signature.fn, keywords)
        from linkspan_compat.fast.dependencies import supplied

        async with supplied(injected) as values:
            return await run_function(self.signature.fn, {**keywords, **values})


class ResourceTemplate(FunctionResource):
    """A function of the variables of a URI template."""

    noun = "resource template"

    def __init__(self, fn: Callable[..., Any], uri_template: str, name: str | None = None, **described: Any) -> None:
        super().__init__(fn, uri_template, name, **described)
        self.uri_template = uri_template
        self._pattern = re.compile(pattern_of(uri_template))
        self._check()

    def _check(self) -> None:
        """Compare the variables with the parameters. Raises: ValueError."""
        path, query = _variables(self.uri_template)
        kept = {each.name: each for each in self.signature.kept}
        required = {name for name, each in kept.items() if each.default is each.empty}
        if not path and not query:
            raise ValueError("URI template must contain at least one parameter")
        if not required <= path:
            raise ValueError(
                f"Required function arguments {required} must be a subset of the URI path parameters {path}"
            )
        if not path | query <= kept.keys():
            raise ValueError(f"URI parameters {path | query} must be a subset of the function arguments: {set(kept)}")

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any = None, **described: Any) -> ResourceTemplate:
        """Make a template of a function."""
        return cls(fn, described.pop("uri_template", uri), **described)

    @property
    def key(self) -> str:
        """The template."""
        return self.uri_template

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of the variables."""
        return self.signature.parameters

    def listed(self) -> dict[str, Any]:
        """Return the template as it is listed."""
        found = super().listed()
        del found["uri"]
        return {"uriTemplate": self.uri_template, **found}

    def to_mcp_template(self, **overrides: Any) -> Any:
        """Return it as a model."""
        return TYPES["ResourceTemplate"].model_validate({**plain(self.listed()), **overrides})

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables of a URI, None for another one."""
        return matched(self.uri_template, self._pattern, uri)

    async def create_resource(self, uri: str, params: dict[str, Any]) -> FunctionResource:
        """Return the resource of some variables, which calls the function when it is read."""

        async def read() -> ResourceResult:
            return await self.read_with(params)

        described = {each: getattr(self, each) for each in ("title", "description", "mime_type", "annotations", "tags")}
        return FunctionResource(read, uri, self.name, **described)

    async def read_with(self, variables: dict[str, Any]) -> ResourceResult:
        """Call the function with the variables. Raises: pydantic.ValidationError."""
        found = await self._called(self.signature.arguments(variables))
        if isinstance(found, Resource):
            return await found.result()
        return as_result(found, self.mime_type, self.meta)


def _variables(template: str) -> tuple[set[str], set[str]]:
    """Return the variables of the path of a template, and those of its query."""
    query = {name.strip() for part in re.findall(r"\{\?([^}]*)\}", template) for name in part.split(",")}
    path = set(re.findall(r"\{(\w+)\*?\}", template))
    return path, query


def matched(template: str, pattern: re.Pattern[str], uri: str) -> dict[str, Any] | None:
    """Return the variables of a URI by a template and the pattern of its path; None for another one."""
    place, _, query = uri.partition("?")
    found = pattern.fullmatch(place)
    if found is None:
        return None
    values: dict[str, Any] = {name: unquote(value) for name, value in found.groupdict().items() if value is not None}
    asked = parse_qs(query)
    for name in _variables(template)[1]:
        if name in asked:
            values[name] = asked[name][0]
    return values


def pattern_of(template: str) -> str:
    """Return the pattern of the path: `{name}` stops at a slash, `{name*}` does not."""
    found = ""
    for number, part in enumerate(re.split(r"\{([^}]*)\}", template)):
        if number % 2 == 0:
            found += re.escape(part)
        elif not part.startswith("?"):
            name = part.rstrip("*")
            found += f"(?P<{name}>.+)" if part.endswith("*") else f"(?P<{name}>[^/]+)"
    return found


def resource(uri: str, *, name: str | None = None, **described: Any) -> Any:
    """Mark a function as a resource, to be added with `mcp.add_resource`."""
    return lambda function: mark("resource", function, {"uri": uri, "name": name, **described})


def of_function(function: Callable[..., Any], uri: str, described: dict[str, Any]) -> Resource:
    """Return a function as a template, if it or the URI has variables, or as a resource. Raises: ValueError."""
    made = {key: value for key, value in described.items() if value is not None}
    if "{" in uri:
        return ResourceTemplate(function, uri, **made)
    found = FunctionResource(function, uri, **made)
    if inspect.signature(function).parameters and any(each.default is each.empty for each in found.signature.kept):
        raise ValueError(
            "Invalid or missing @resource decorator: the function has parameters, which are no variables of the URI"
        )
    return found
