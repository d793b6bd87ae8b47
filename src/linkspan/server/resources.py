"""Resources and resource templates: values, functions and classes; and how a URI finds the one that answers it.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

import msgspec

from linkspan.errors import RegistrationError, ResourceNotFoundError
from linkspan.keywords import described_by
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.schema.annotations import parse_docstring
from linkspan.server.content_blocks import Media, changed, checked, contents_of
from linkspan.server.handlers import Function, Handler, MountedItem, bound_method, compile_handler, describe, from_text
from linkspan.server.tools import Description, own_name, snake_case
from linkspan.server.visibility import Condition, check_scopes, check_tags, compile_condition
from linkspan.types.base import JSON, Annotations, Icon, JSONObject, Meta, is_array, is_mapping
from linkspan.types.messages import ReadResourceResult
from linkspan.types.messages import Resource as ResourceShape
from linkspan.types.messages import ResourceTemplate as TemplateShape

if TYPE_CHECKING:
    from linkspan.server.ports import System
    from linkspan.server.uri_template import UriTemplate

ShapeT = TypeVar("ShapeT", ResourceShape, TemplateShape)


class ResourceDescription(Description, total=False):
    """What describes a resource or a template besides its URI and its name."""

    mime_type: str | None
    annotations: Annotations | None


class TemplateDefinition(ResourceDescription, total=False):
    """The keywords of `ResourceTemplate`."""

    read: Function | None


class ResourceDefinition(TemplateDefinition, total=False):
    """The keywords of `Resource`."""

    size: int | None
    text: str | None
    blob: bytes | None
    path: str | PathLike[str] | None


class _Described:
    """What a resource and a template have in common: a class describes one in its attributes, an instance in its own."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: Sequence[Icon] | None = None
    meta: Meta | None = None
    inline: bool = False
    tags: Collection[str] = ()
    when: Any = None
    scopes: Collection[str] = ()
    contents: Any = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.name = own.get("name") or own.get("resource_name") or snake_case(cls.__name__)

    def _describe(self, uri: str, name: str | None, read: Function | None, described: Mapping[str, Any]) -> None:
        self.name = name or uri.rstrip("/").rpartition("/")[2] or uri
        self.read = read
        for member, value in described.items():
            setattr(self, member, value)


class Resource(_Described):
    """A resource: one that carries its `text` or `blob`, or one that its `read`, its file or a server's read handler gives.

    As a class: subclass it, set `uri`, write `contents`. As a value: `Resource(uri=..., name=..., text=...)`.
    """

    uri: str = ""
    size: int | None = None

    @described_by(ResourceDescription)
    def __init__(
        self,
        uri: str,
        name: str | None = None,
        *,
        size: int | None = None,
        text: str | None = None,
        blob: bytes | None = None,
        read: Function | None = None,
        path: str | PathLike[str] | None = None,
        **described: Unpack[ResourceDescription],
    ) -> None:
        """Describe a resource; its name is the last part of its URI unless `name` says otherwise.

        The file at `path` is read for each request. Raises: RegistrationError for a bad URI, or for more than one of `text`,
        `blob`, `read` and `path`.
        """
        from linkspan.server.uri_template import check_uri

        if sum(each is not None for each in (text, blob, read, path)) > 1:
            raise RegistrationError(f"Resource {uri}: pass one of text=, blob=, read= and path=")
        check_uri(uri)
        self._describe(uri, name, read, described)
        self.uri = uri
        self.size = size
        self.path = path
        self.value: str | bytes | None = text if text is not None else blob

    def __repr__(self) -> str:
        return f"<Resource {self.uri}>"


class ResourceTemplate(_Described):
    """A family of resources by an RFC 6570 template. As a class: set `uri_template`, write `contents(**variables)`."""

    uri_template: str = ""

    @described_by(ResourceDescription)
    def __init__(
        self,
        uri_template: str,
        name: str | None = None,
        *,
        read: Function | None = None,
        **described: Unpack[ResourceDescription],
    ) -> None:
        """Describe a template; without `read` a server's read handler answers it. Raises: RegistrationError."""
        from linkspan.server.uri_template import compile_template

        compile_template(uri_template)
        self._describe(uri_template, name, read, described)
        self.uri_template = uri_template

    def __repr__(self) -> str:
        return f"<ResourceTemplate {self.uri_template}>"


ResourceSource: TypeAlias = Resource | type[Resource]
TemplateSource: TypeAlias = ResourceTemplate | type[ResourceTemplate]


class BoundResource(msgspec.Struct, frozen=True):
    """A registered resource. `handler` is None where `value` is the content, or where nothing here can read it."""

    spec: ResourceShape
    handler: Handler | None = None
    value: str | bytes | None = None
    derived: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    when: Condition | None = None
    scopes: tuple[str, ...] = ()
    mounted: MountedItem | None = None
    """What serves it, if that is a mounted server."""


OF_A_FILE = ("size", "annotations")
"""The members of its shape that follow from a file; what a directory lists has this very tuple."""


class BoundTemplate(msgspec.Struct, frozen=True):
    """A registered template."""

    spec: TemplateShape
    template: UriTemplate
    handler: Handler | None = None
    derived: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    when: Condition | None = None
    scopes: tuple[str, ...] = ()
    mounted: MountedItem | None = None
    """What serves it, if that is a mounted server."""

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
    if value is None:  # empty contents would mean that the resource exists and is empty (RES-3)
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


def bind_resource(source: object, system: Callable[[], System], *, provided: Sequence[type] = ()) -> BoundResource:
    """Turn a resource, however it was written, into a registered one; `system` finds its file.

    `provided` are the classes of what lifespans yield.

    Raises: RegistrationError, TypeError.
    """
    from linkspan.server.uri_template import check_uri

    if isinstance(source, type):
        if not issubclass(source, Resource):
            raise TypeError(f"a resource is a Resource, not {source.__name__}")
        check_uri(source.uri)
        shape, audience = _shape(ResourceShape, source), _audience(source, source.uri)
        return BoundResource(shape, _class_handler(source, Resource, provided), None, (), *audience)
    if not isinstance(source, Resource):
        raise TypeError(f"a resource is a Resource, not {type(source).__name__}")
    shape, read = _shape(ResourceShape, source), source.read
    if source.path is not None:
        shape, read = _read_file(shape, source.path, system())
    handler: Handler | None = None
    if read:
        handler = compile_handler(read, inline=source.inline, name=source.name, provided=provided)
    return BoundResource(shape, handler, source.value, (), *_audience(source, source.uri))


def _read_file(shape: ResourceShape, path: str | PathLike[str], system: System) -> tuple[ResourceShape, Function]:
    """Return the shape of a resource with the type of its file, and what reads that. Raises: RegistrationError."""
    try:
        found = system.file(path)
    except OSError as error:
        raise RegistrationError(
            f"Resource {shape.uri}: {fspath(path)!r} cannot be read: {error.strerror}; write a path that does not depend on "
            "the folder in which the server is started, such as Path(__file__).parent / ..."
        ) from None
    mime_type = shape.mime_type or found.mime_type

    def read() -> Media | None:
        data = found.read()
        return None if data is None else Media(data, mime_type)

    return msgspec.structs.replace(shape, mime_type=mime_type), read


def bind_template(source: object, *, provided: Sequence[type] = ()) -> BoundTemplate:
    """Turn a template, however it was written, into a registered one; `provided` are the classes of what lifespans yield.

    Raises: RegistrationError, TypeError.
    """
    from linkspan.server.uri_template import compile_template

    handler: Handler | None = None
    if isinstance(source, type):
        if not issubclass(source, ResourceTemplate):
            raise TypeError(f"a resource template is a ResourceTemplate, not {source.__name__}")
        handler = _class_handler(source, ResourceTemplate, provided)
    elif not isinstance(source, ResourceTemplate):
        raise TypeError(f"a resource template is a ResourceTemplate, not {type(source).__name__}")
    elif source.read:
        handler = compile_handler(source.read, loose=True, inline=source.inline, name=source.name, provided=provided)
    template = compile_template(source.uri_template)
    if handler is not None:
        _check_variables(template, handler)
    audience = _audience(source, source.uri_template)
    return BoundTemplate(_shape(TemplateShape, source), template, handler, (), *audience)


def _audience(
    source: _Described | type[_Described], uri: str
) -> tuple[frozenset[str], Condition | None, tuple[str, ...]]:
    """Return the tags, who sees it, and what a read needs. Raises: RegistrationError."""
    when: object = source.when
    if isinstance(source, type):
        when = bound_method(source, _Described, "when") or when
    return check_tags(source.tags, uri), compile_condition(when, uri), check_scopes(source.scopes, uri)


def from_function(
    function: Function, uri: str, name: str | None, described: ResourceDescription
) -> Resource | ResourceTemplate:
    """Describe a function as the resource, or with braces in `uri` the template, that it reads."""
    from linkspan.server.uri_template import is_template

    kind = ResourceTemplate if is_template(uri) else Resource
    made = kind(uri, name or own_name(function), read=function, **described)
    made.description = made.description or parse_docstring(function.__doc__).description
    return made


def _class_handler(source: type[_Described], base: type[_Described], provided: Sequence[type]) -> Handler | None:
    contents = bound_method(source, base, "contents")
    if contents is None:
        return None
    return compile_handler(contents, loose=True, inline=source.inline, name=source.name, provided=provided)


def _shape(kind: type[ShapeT], source: object) -> ShapeT:
    members: dict[str, Any] = {name: getattr(source, name) for name in kind.__struct_fields__}
    icons: Sequence[Icon] | None = members.pop("icons")
    return kind(**members, icons=list(icons) if icons is not None else None)


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
