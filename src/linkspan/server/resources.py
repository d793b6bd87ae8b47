"""Resources and resource templates: values, functions and classes; and how a URI finds the one that answers it.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from linkspan.errors import RegistrationError, ResourceNotFoundError
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.schema.annotations import parse_docstring
from linkspan.server.content import changed, checked, contents_of
from linkspan.server.handlers import Function, Handler, bound_method, compile_handler, describe, from_text
from linkspan.server.tools import default_name
from linkspan.types.base import JSON, Annotations, Icon, JSONObject, Meta, is_array, is_mapping
from linkspan.types.messages import ReadResourceResult
from linkspan.types.messages import Resource as ResourceShape
from linkspan.types.messages import ResourceTemplate as TemplateShape

if TYPE_CHECKING:
    from linkspan.server.uri_template import UriTemplate

__all__ = [
    "BoundResource",
    "BoundTemplate",
    "Resource",
    "ResourceSource",
    "ResourceTemplate",
    "bind_resource",
    "bind_template",
    "read_outcome",
]


class Resource:
    """A resource: one that carries its `text` or `blob`, or one whose `read` (or a server's read handler) gives it.

    As a class: subclass it, set `uri`, write `contents`. As a value: `Resource(uri=..., name=..., text=...)`.
    """

    uri: str = ""
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = None
    inline: bool = False
    contents: Any = None

    def __init__(
        self,
        uri: str,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Meta | None = None,
        text: str | None = None,
        blob: bytes | None = None,
        read: Function | None = None,
        inline: bool = False,
    ) -> None:
        """Describe a resource; its name is the last part of its URI unless `name` says otherwise.

        Raises: RegistrationError for a bad URI, or for more than one of `text`, `blob` and `read`.
        """
        from linkspan.server.uri_template import check_uri

        if sum(each is not None for each in (text, blob, read)) > 1:
            raise RegistrationError(f"Resource {uri}: give one of text=, blob= and read=")
        check_uri(uri)
        self.uri = uri
        self.name = name or default_resource_name(uri)
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.size = size
        self.annotations = annotations
        self.icons = list(icons) if icons is not None else None
        self.meta = meta
        self.inline = inline
        self.value: str | bytes | None = text if text is not None else blob
        self.read = read

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.name = own.get("name") or own.get("resource_name") or default_name(cls.__name__)


class ResourceTemplate:
    """A family of resources by an RFC 6570 template. As a class: set `uri_template`, write `contents(**variables)`."""

    uri_template: str = ""
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = None
    inline: bool = False
    contents: Any = None

    def __init__(
        self,
        uri_template: str,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Meta | None = None,
        read: Function | None = None,
        inline: bool = False,
    ) -> None:
        """Describe a template; without `read` a server's read handler answers it. Raises: RegistrationError."""
        from linkspan.server.uri_template import compile_template

        compile_template(uri_template)
        self.uri_template = uri_template
        self.name = name or default_resource_name(uri_template)
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.annotations = annotations
        self.icons = list(icons) if icons is not None else None
        self.meta = meta
        self.inline = inline
        self.read = read

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.name = own.get("name") or own.get("resource_name") or default_name(cls.__name__)


ResourceSource: TypeAlias = Resource | type[Resource]
TemplateSource: TypeAlias = ResourceTemplate | type[ResourceTemplate]


class BoundResource(msgspec.Struct, frozen=True):
    """A registered resource. `handler` is None where `value` is the content, or where nothing here can read it."""

    spec: ResourceShape
    handler: Handler | None = None
    value: str | bytes | None = None


class BoundTemplate(msgspec.Struct, frozen=True):
    """A registered template."""

    spec: TemplateShape
    template: UriTemplate
    handler: Handler | None = None

    def decode(self, variables: Mapping[str, str]) -> JSONObject:
        """Turn the variables of a URI into the function's arguments. Raises: ArgumentsInvalid."""
        if self.handler is None:
            return dict(variables)
        properties: Mapping[str, JSON] = self.handler.parameters.json_schema.get("properties") or {}
        values = {name: from_text(text, properties.get(name)) for name, text in variables.items()}
        return self.handler.parameters.decode_values(values).arguments


def read_outcome(value: object, uri: str, mime_type: str | None, *, ttl_ms: int, cache_scope: str) -> Outcome:
    """Turn what a resource's function returned into a result.

    Raises: ResourceNotFoundError where it found nothing; TypeError for what cannot be sent.
    """
    if isinstance(value, InputRequired):
        return value
    if value is None:  # an empty contents would say that the resource is there and empty (RES-3)
        raise ResourceNotFoundError(uri)
    if isinstance(value, ReadResourceResult):
        hints = {"ttl_ms": ttl_ms, "cache_scope": cache_scope}
        missing = {name: hint for name, hint in hints.items() if getattr(value, name) is None}
        return checked(changed(value, contents=_all_contents(value.contents, uri, mime_type), **missing))
    if is_mapping(value) and "contents" in value and "uri" not in value:
        result = ReadResourceResult(
            contents=_all_contents(value["contents"], uri, mime_type),
            ttl_ms=value.get("ttlMs", ttl_ms),
            cache_scope=value.get("cacheScope", cache_scope),
            meta=value.get("_meta"),
        )
        return checked(result)
    return ReadResourceResult(contents=_all_contents(value, uri, mime_type), ttl_ms=ttl_ms, cache_scope=cache_scope)


def _all_contents(value: object, uri: str, mime_type: str | None) -> list[Any]:
    return [] if is_array(value) and not value else contents_of(value, uri, mime_type)


def bind_resource(source: object) -> BoundResource:
    """Turn a resource, however it was written, into a registered one. Raises: RegistrationError, TypeError."""
    from linkspan.server.uri_template import check_uri

    if isinstance(source, type):
        if not issubclass(source, Resource):
            raise TypeError(f"a resource is a Resource, not {source.__name__}")
        check_uri(source.uri)
        return BoundResource(_resource_shape(source), _class_handler(source))
    if not isinstance(source, Resource):
        raise TypeError(f"a resource is a Resource, not {type(source).__name__}")
    handler = compile_handler(source.read, inline=source.inline, name=source.name) if source.read else None
    return BoundResource(_resource_shape(source), handler, source.value)


def bind_template(source: object) -> BoundTemplate:
    """Turn a template, however it was written, into a registered one. Raises: RegistrationError, TypeError."""
    from linkspan.server.uri_template import compile_template

    if isinstance(source, type):
        if not issubclass(source, ResourceTemplate):
            raise TypeError(f"a resource template is a ResourceTemplate, not {source.__name__}")
        handler = _class_handler(source)
    elif isinstance(source, ResourceTemplate):
        handler = (
            compile_handler(source.read, loose=True, inline=source.inline, name=source.name) if source.read else None
        )
    else:
        raise TypeError(f"a resource template is a ResourceTemplate, not {type(source).__name__}")
    template = compile_template(source.uri_template)
    if handler is not None:
        _check_variables(template, handler)
    spec = TemplateShape(
        uri_template=source.uri_template,
        name=source.name,
        title=source.title,
        description=source.description,
        mime_type=source.mime_type,
        annotations=source.annotations,
        icons=source.icons,
        meta=source.meta,
    )
    return BoundTemplate(spec, template, handler)


def from_function(function: Function, uri: str, **described: Any) -> Resource | ResourceTemplate:
    """Describe a function as the resource, or with braces in `uri` the template, that it reads."""
    from linkspan.server.uri_template import is_template

    name = described.pop("name", None) or default_name(getattr(function, "__name__", "")) or None
    description = described.pop("description", None) or parse_docstring(function.__doc__).description
    kind = ResourceTemplate if is_template(uri) else Resource
    return kind(uri, name, description=description, read=function, **described)


def default_resource_name(uri: str) -> str:
    """Return the last part of a URI."""
    return uri.rstrip("/").rpartition("/")[2] or uri


def _class_handler(source: type[Resource] | type[ResourceTemplate]) -> Handler | None:
    base = Resource if issubclass(source, Resource) else ResourceTemplate
    contents = bound_method(source, base, "contents")
    if contents is None:
        return None
    return compile_handler(contents, loose=True, inline=source.inline, name=source.name)


def _resource_shape(source: ResourceSource) -> ResourceShape:
    return ResourceShape(
        uri=source.uri,
        name=source.name,
        title=source.title,
        description=source.description,
        mime_type=source.mime_type,
        size=source.size,
        annotations=source.annotations,
        icons=source.icons,
        meta=source.meta,
    )


def _check_variables(template: UriTemplate, handler: Handler) -> None:
    schema = handler.parameters.json_schema
    takes: Mapping[str, JSON] = schema.get("properties") or {}
    if not takes:
        return
    unknown = [name for name in template.variables if name not in takes]
    unfilled = [name for name in schema.get("required") or () if name not in template.variables]
    if unknown or unfilled:
        raise RegistrationError(
            f"{describe(handler.function)} and {template.template!r} must name the same variables: "
            + "; ".join(
                [f"the function does not take {name}" for name in unknown]
                + [f"the template has no {{{name}}}" for name in unfilled]
            )
        )
