"""OpenAPI documents, 3.0 and 3.1, as operations: what each takes, where that goes in a request, and what comes back.

Law: nothing is fetched and nothing is written to: a `$ref` is a pointer into the document, and the document is the caller's.
What cannot be read is left out with its reason; it never stops the others.
Spec: https://spec.openapis.org/oas/v3.1.1.html.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

import msgspec

from linkspan.errors import install_hint
from linkspan.naming import MAX_NAME, fitted, marked
from linkspan.openapi.schemas import (
    MAX_DESCRIPTION,
    MAX_TEXT,
    ApiDocumentError,
    SchemaReader,
    UnreadableOperation,
    find,
    plain_text,
)
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import ToolAnnotations
from linkspan.wire.yaml_json import YamlBounds, YamlProblem, has_yaml, read_yaml

__all__ = ["ApiArgument", "ApiBody", "ApiDocument", "ApiOperation", "ApiParameter", "Source", "read_document"]

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_OPERATIONS: Final = 5_000
MAX_ARGUMENTS: Final = 300
YAML: Final = YamlBounds(depth=100, values=1_000_000, aliases=1_000, plain_keys=True)

Source: TypeAlias = "str | PathLike[str] | bytes | Mapping[str, JSON]"
"""The path of a document, its bytes, or what is in it."""
Place: TypeAlias = Literal["path", "query", "header", "cookie"]

METHODS: Final = ("get", "put", "post", "delete", "patch", "head")
_PLACES: Final = ("path", "query", "header", "cookie")
_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The first is what a parameter has that names no style."""
OWN_HEADERS: Final = frozenset(
    {
        *(
            "accept",
            "accept-encoding",
            "authorization",
            "connection",
            "content-length",
            "content-type",
            "cookie",
            "expect",
        ),
        *("forwarded", "host", "keep-alive", "origin", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade", "user-agent", "via", "x-forwarded-for", "x-forwarded-host"),
        *("x-forwarded-prefix", "x-forwarded-proto", "x-http-method", "x-http-method-override", "x-method-override"),
        *("x-original-url", "x-real-ip", "x-rewrite-url"),
    }
)
"""Headers that no argument sets: credentials, the length and the way of a request, and what others trust about its sender."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ARGUMENT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TEMPLATE: Final = re.compile(r"\{([^{}/]*)\}")
_QUERY: Final = re.compile(r"[A-Za-z0-9._~%&=+,:@!$'()*;/-]*")
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+*-]+")


class ApiParameter(msgspec.Struct, frozen=True):
    """One parameter of an operation, and how its values are written."""

    name: str
    place: Place
    style: str
    explode: bool
    required: bool
    schema: JSON
    """In the plain form."""
    as_json: bool = False
    """Its value is one JSON text."""
    keeps_reserved: bool = False


class ApiBody(msgspec.Struct, frozen=True):
    """The body of a request."""

    media_type: str
    kind: Literal["json", "form", "multipart", "text", "binary"]
    required: bool
    schema: JSON
    encoding: JSONObject
    """How members of a form are written, by their name."""
    parts: JSONObject = {}
    """The schemas of its members, where these are arguments."""


class ApiArgument(msgspec.Struct, frozen=True):
    """One argument of the tool: a parameter, a member of the body, or all of the body."""

    name: str
    parameter: ApiParameter | None = None
    member: str | None = None
    """The member of the body; None with no parameter for all of it."""


class ApiOperation(msgspec.Struct, frozen=True):
    """One operation: a tool, once it is chosen."""

    name: str
    """What the tool is called."""
    operation_id: str | None
    method: str
    """In capitals."""
    path: str
    query: str
    """What the path has behind a question mark, which some documents tell operations apart by."""
    title: str
    description: str
    tags: tuple[str, ...]
    deprecated: bool
    arguments: tuple[ApiArgument, ...]
    body: ApiBody | None
    input_schema: JSONObject
    servers: tuple[str, ...]
    """The servers that it has of its own, in place of those of the document."""

    @property
    def key(self) -> str:
        """What a curation calls it: its operationId, or method and path."""
        return self.operation_id or f"{self.method} {self.path}"

    @property
    def reads(self) -> bool:
        """Whether it only reads."""
        return self.method in ("GET", "HEAD")

    @property
    def shown(self) -> JSONObject:
        """Its tool, as a list has it."""
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}

    @property
    def mark(self) -> str:
        """A mark that changes when the tool does."""
        made = [
            self.method,
            self.path,
            self.query,
            self.description,
            self.input_schema,
            self.body and self.body.media_type,
        ]
        return hashlib.sha256(msgspec.json.encode(made, order="sorted")).hexdigest()[:12]

    def annotations(self, *, open_world: bool = True) -> ToolAnnotations:
        """Return what its method means."""
        return ToolAnnotations(
            read_only_hint=self.reads,
            destructive_hint=None if self.reads else self.method == "DELETE" or None,
            idempotent_hint=True if self.method in ("PUT", "DELETE") else None,
            open_world_hint=open_world,
        )


class ApiDocument:
    """A document: its operations are read when they are first wanted."""

    def __init__(self, raw: JSONObject) -> None:
        """Take what is in a document. Raises: ApiDocumentError for one of another version."""
        self.raw = raw
        version: JSON = raw.get("openapi")
        if "swagger" in raw:
            raise ApiDocumentError(
                "is Swagger 2.0: convert it to OpenAPI 3 first, as with the npm package swagger2openapi"
            )
        if not isinstance(version, str) or not re.fullmatch(r"3\.[012](\.\d+)?(-[\w.]+)?", version):
            raise ApiDocumentError(f'has the version {clip(repr(version), 40)}: "openapi" must be 3.0 or 3.1')
        self.is_3_0 = version.startswith("3.0")
        info: JSON = raw.get("info")
        about: JSONObject = info if is_object(info) else {}
        self.title = plain_text(about.get("title"), 100) or "API"
        self.version = plain_text(about.get("version"), 40) or "0"
        self.description = plain_text(about.get("description"), MAX_DESCRIPTION)
        self.servers = _servers(raw)
        self.left_out: list[str] = []
        """What could not be read, with the reason of each."""
        self._places = self._find_places()

    def __repr__(self) -> str:
        return f"<ApiDocument {self.title}: {len(self._places)} operations>"

    def __len__(self) -> int:
        return len(self._places)

    @property
    def keys(self) -> Mapping[str, tuple[str, str]]:
        """Method and path of each operation by its name."""
        return {name: (method, path) for name, (method, path, _, _) in self._places.items()}

    def named(self, key: str) -> str | None:
        """Return the name of the operation that an operationId, a method with a path, or a name means."""
        return self._known.get(key)

    def operation(self, name: str) -> ApiOperation:
        """Return an operation. Raises: UnreadableOperation."""
        method, path, item, operation = self._places[name]
        try:
            return _OperationReader(self, name, method, path, item, operation).read()
        except RecursionError:
            raise UnreadableOperation("it is nested too deeply") from None

    def readable(self, names: Iterable[str]) -> list[ApiOperation]:
        """Return those of some operations that can be read; what cannot is added to `left_out`."""
        found: list[ApiOperation] = []
        for name in names:
            try:
                found.append(self.operation(name))
            except UnreadableOperation as problem:
                method, path, _, _ = self._places[name]
                self.left_out.append(f"{method} {clip(path, 100)}: {problem}")
        return found

    def facts(self, name: str) -> tuple[str, str, tuple[str, ...]]:
        """Return method, path and tags of an operation without reading all of it."""
        method, path, _, operation = self._places[name]
        return method, path, _texts(operation.get("tags"))

    @property
    def credentials(self) -> frozenset[tuple[str, str]]:
        """Where keys of the API are sent, as place and name in lower case: no argument is there."""
        components: JSON = self.raw.get("components")
        schemes: JSON = components.get("securitySchemes") if is_object(components) else None
        found: set[tuple[str, str]] = set()
        for each in schemes.values() if is_object(schemes) else ():
            if is_object(each) and each.get("type") == "apiKey" and isinstance(each.get("name"), str):
                found.add((str(each.get("in")), each["name"].lower()))
        return frozenset(found)

    def _find_places(self) -> dict[str, tuple[str, str, JSONObject, JSONObject]]:
        """Return the operations by the names of their tools, and `_known`, what else means them."""
        self._known: dict[str, str] = {}
        found: dict[str, tuple[str, str, JSONObject, JSONObject]] = {}
        paths: JSON = self.raw.get("paths")
        for path, given in paths.items() if is_object(paths) else ():
            try:
                item = self.resolved(given)
            except UnreadableOperation as problem:
                self.left_out.append(f"{clip(path, 100)}: {problem}")
                continue
            for method in METHODS if is_object(item) else ():
                operation: JSON = item.get(method)
                if not is_object(operation):
                    continue
                if len(found) >= MAX_OPERATIONS:
                    raise ApiDocumentError(f"has more than {MAX_OPERATIONS} operations")
                own: JSON = operation.get("operationId")
                own = own if isinstance(own, str) and own and len(own) <= 1_000 else None
                place = f"{method.upper()} {path}"
                if own in self._known:
                    own = None  # an operationId that another operation has, too
                name = _unique(_tool_name(own, method, path), found, place)
                found[name] = (method.upper(), path, item, {**operation, "operationId": own})
                self._known |= {name: name, place: name} | ({own: name} if own is not None else {})
        return found

    def resolved(self, value: JSON) -> JSON:
        """Return a part of the document without references in its place. Raises: UnreadableOperation."""
        for _ in range(32):
            if not (is_object(value) and isinstance(pointer := value.get("$ref"), str)):
                return value
            value = find(self.raw, pointer)
        raise UnreadableOperation("its $ref leads to itself")


def read_document(source: Source) -> ApiDocument:
    """Return a document: JSON, or YAML where PyYAML is installed. Nothing is fetched. Raises: ApiDocumentError, OSError."""
    if isinstance(source, Mapping):
        return ApiDocument(dict(source))
    shown, data = "the document", source
    if not isinstance(data, bytes):
        shown = fspath(data)
        if re.match(r"https?://", shown):
            raise ApiDocumentError(f"{shown} is a URL, and nothing is fetched: download it first, and pass the file")
        path = Path(shown)
        if path.stat().st_size > MAX_BYTES:
            raise ApiDocumentError(f"{shown} has more than {MAX_BYTES} bytes")
        data = path.read_bytes()
    if len(data) > MAX_BYTES:
        raise ApiDocumentError(f"{shown} has more than {MAX_BYTES} bytes")
    try:
        found = _decoded(data)
        if not is_object(found):
            raise ApiDocumentError("is not an object")
        return ApiDocument(found)
    except (ApiDocumentError, YamlProblem) as problem:
        raise ApiDocumentError(f"{shown} {problem}") from None


def _decoded(data: bytes) -> JSON:
    text = data.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as problem:
            if not has_yaml():
                raise ApiDocumentError(f"is not valid JSON: {problem}") from None
        except RecursionError:
            raise ApiDocumentError("is nested too deeply") from None
    if not has_yaml():
        raise ApiDocumentError(f"is not JSON; YAML needs PyYAML: {install_hint('yaml')}")
    try:
        return read_yaml(text.decode(), YAML)
    except UnicodeDecodeError as problem:
        raise ApiDocumentError(f"is not UTF-8: {problem.reason}") from None


def _servers(value: JSONObject) -> tuple[str, ...]:
    """Return the URLs of servers, with the default of each variable."""
    listed: JSON = value.get("servers")
    found: list[str] = []
    for each in listed[:50] if is_array(listed) else ():
        url: JSON = each.get("url") if is_object(each) else None
        if not isinstance(url, str) or len(url) > 2_000:
            continue
        variables: JSON = each.get("variables")
        for name, variable in variables.items() if is_object(variables) else ():
            if is_object(variable) and isinstance(variable.get("default"), str):
                url = url.replace(f"{{{name}}}", variable["default"])
        found.append(url)
    return tuple(found)


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(plain_text(each, 60) for each in value[:20] if isinstance(each, str)) if is_array(value) else ()


def _tool_name(own: str | None, method: str, path: str) -> str:
    made = own if own is not None else re.sub("_+", "_", _NAME.sub("_", f"{method}_{path}")).strip("_")
    name = _NAME.sub("_", made).strip("_-") or method
    return fitted(name, (method, path))


def _unique(name: str, taken: Mapping[str, object], place: str) -> str:
    return name if name not in taken else marked(name.ljust(MAX_NAME)[: MAX_NAME - 9].rstrip(), ("", place))


class _OperationReader:
    """Reads one operation."""

    def __init__(
        self, document: ApiDocument, name: str, method: str, path: str, item: JSONObject, operation: JSONObject
    ) -> None:
        self._document = document
        self._name = name
        self._method = method
        self._path = path
        self._item = item
        self._operation = operation
        self._schemas = SchemaReader(document.raw, "request", is_3_0=document.is_3_0)

    def read(self) -> ApiOperation:
        """Return the operation. Raises: UnreadableOperation."""
        operation = self._operation
        query = check_path(self._path)
        self._path = re.split("[?#]", self._path, maxsplit=1)[0]
        parameters = self._parameters()
        body = self._body()
        members = self._members(body)
        if body is not None and members is not None:
            body = msgspec.structs.replace(body, parts=members["properties"])
        arguments, schema = self._arguments(parameters, body, members)
        summary, text = (plain_text(operation.get(each), MAX_DESCRIPTION) for each in ("summary", "description"))
        if operation.get("deprecated") is True:
            summary = f"(deprecated) {summary}"
        shown = summary if text.startswith(summary) else f"{summary}\n{text}"
        shown = (text if summary and text.startswith(summary) else shown).strip() or f"{self._method} {self._path}"
        return ApiOperation(
            name=self._name,
            operation_id=operation.get("operationId"),
            method=self._method,
            path=self._path,
            query=query,
            title=clip(summary, 100),
            description=clip(shown, MAX_DESCRIPTION),
            tags=_texts(operation.get("tags")),
            deprecated=operation.get("deprecated") is True,
            arguments=arguments,
            body=body,
            input_schema=self._schemas.finished(schema),
            servers=_servers(operation) or _servers(self._item),
        )

    def _parameters(self) -> list[ApiParameter]:
        found: dict[tuple[str, str], JSONObject] = {}
        for holder in (self._item, self._operation):
            listed: JSON = holder.get("parameters")
            for each in listed if is_array(listed) else ():
                given = self._document.resolved(each)
                if is_object(given) and isinstance(given.get("name"), str) and given.get("in") in _PLACES:
                    found[given["in"], given["name"]] = given
        if len(found) > MAX_ARGUMENTS:
            raise UnreadableOperation(f"it has more than {MAX_ARGUMENTS} parameters")
        named = {name for place, name in found if place == "path"}
        for missing in [each for each in _TEMPLATE.findall(self._path) if each not in named]:
            found["path", missing] = {"name": missing, "in": "path", "required": True, "schema": {"type": "string"}}
        secrets = self._document.credentials
        return [
            self._parameter(cast("Place", place), name, given)
            for (place, name), given in found.items()
            if (place, name.lower()) not in secrets and not (place == "header" and name.lower() in OWN_HEADERS)
        ]

    def _parameter(self, place: Place, name: str, given: JSONObject) -> ApiParameter:
        if place in ("header", "cookie") and not _TOKEN.fullmatch(name):
            raise UnreadableOperation(f"the {place} {plain_text(name, 40)!r} has a name that HTTP does not have")
        if place == "path" and f"{{{name}}}" not in self._path:
            raise UnreadableOperation(f"the path has no {{{plain_text(name, 40)}}}, which is a parameter of it")
        styles = _STYLES[place]
        style: JSON = given.get("style", styles[0])
        if style not in styles:
            raise UnreadableOperation(f"the parameter {plain_text(name, 40)!r} has the style {clip(repr(style), 40)}")
        schema: JSON = given.get("schema")
        as_json = False
        if is_object(content := given.get("content")) and content:
            media, held = next(iter(content.items()))
            schema, as_json = held.get("schema") if is_object(held) else None, "json" in media
        read = self._schemas.read(schema)
        if text := plain_text(given.get("description"), MAX_TEXT):
            read = {**read, "description": text} if is_object(read) else {"description": text}
        explode: JSON = given.get("explode")
        return ApiParameter(
            name,
            place,
            style,
            explode if isinstance(explode, bool) else style in ("form", "deepObject"),
            given.get("required") is True or place == "path",
            read,
            as_json,
            given.get("allowReserved") is True,
        )

    def _body(self) -> ApiBody | None:
        given = self._document.resolved(self._operation.get("requestBody"))
        content: JSON = given.get("content") if is_object(given) else None
        if not is_object(given) or not is_object(content) or not content or self._method in ("GET", "HEAD"):
            return None
        media = min(content, key=_preference)
        sent = "application/json" if media == "*/*" else media.replace("/*", "/octet-stream")
        if not _MEDIA.fullmatch(sent.partition(";")[0].strip()):
            raise UnreadableOperation(f"its body has the media type {clip(repr(media), 60)}")
        held = self._document.resolved(content[media])
        schema = self._schemas.read(held.get("schema", {}) if is_object(held) else {})
        encoding: JSON = held.get("encoding") if is_object(held) else None
        kind = _kind_of(media)
        if kind == "binary":
            schema = {"type": "string", "contentEncoding": "base64", "description": f"The bytes of {media}, in base64."}
        return ApiBody(sent, kind, given.get("required") is True, schema, encoding if is_object(encoding) else {})

    def _arguments(
        self, parameters: Sequence[ApiParameter], body: ApiBody | None, members: JSONObject | None
    ) -> tuple[tuple[ApiArgument, ...], JSONObject]:
        """Return the arguments, and the schema of all."""
        wanted: list[tuple[str, str, ApiArgument, JSON, bool]] = [
            (each.name, each.place, ApiArgument("", each), each.schema, each.required) for each in parameters
        ]
        if members is not None and body is not None:
            needed: list[str] = members.get("required") or [] if body.required else []
            properties: JSONObject = members["properties"]
            wanted += [
                (name, "body", ApiArgument("", member=name), value, name in needed)
                for name, value in properties.items()
            ]
        elif body is not None:
            wanted.append(("body", "body", ApiArgument(""), body.schema, body.required))
        if len(wanted) > MAX_ARGUMENTS:
            raise UnreadableOperation(f"it has more than {MAX_ARGUMENTS} arguments")
        names = _argument_names([(name, place) for name, place, _, _, _ in wanted])
        schema: JSONObject = {"type": "object", "properties": {}, "additionalProperties": False}
        arguments: list[ApiArgument] = []
        for name, (_, _, argument, value, _) in zip(names, wanted, strict=True):
            schema["properties"][name] = value
            arguments.append(msgspec.structs.replace(argument, name=name))
        required = [name for name, each in zip(names, wanted, strict=True) if each[4]]
        if required:
            schema["required"] = required
        return tuple(arguments), schema

    def _members(self, body: ApiBody | None) -> JSONObject | None:
        """Return the schema of a body whose members are arguments; None for one that is an argument itself."""
        if body is None or body.kind in ("text", "binary"):
            return None
        schema: JSON = body.schema
        if is_object(schema) and isinstance(pointer := schema.get("$ref"), str):
            schema = self._schemas.defs[pointer.removeprefix("#/$defs/")]
        if not is_object(schema) or not is_object(schema.get("properties")) or schema.get("type") != "object":
            return None
        extra = schema.keys() - {
            "type",
            "properties",
            "required",
            "description",
            "additionalProperties",
            "maxProperties",
        }
        return None if extra or is_object(schema.get("additionalProperties")) else schema


def check_path(whole: str) -> str:
    """Refuse the template of a path that would lead elsewhere than below the base of the API; return the query behind it.

    Raises: UnreadableOperation.
    """
    path, _, query = whole.partition("#")[0].partition("?")
    if not _QUERY.fullmatch(query):
        raise UnreadableOperation("its path has a query that is not valid")
    bare = _TEMPLATE.sub("x", path)
    if not path.startswith("/") or path.startswith("//") or re.search(r"[?#\\{}\x00-\x20\x7f]|//", bare):
        raise UnreadableOperation("its path is not valid")
    if any(each in (".", "..") for each in re.sub("%2e", ".", bare, flags=re.IGNORECASE).split("/")):
        raise UnreadableOperation("its path has a segment of dots, which leads elsewhere")
    return query


def _preference(media: str) -> tuple[int, int]:
    kinds = ("json", "form", "multipart", "text", "binary")
    return kinds.index(_kind_of(media)), len(media)


def _kind_of(media: str) -> Literal["json", "form", "multipart", "text", "binary"]:
    bare = media.partition(";")[0].strip().lower()
    if bare in ("application/json", "*/*") or bare.endswith("+json"):
        return "json"
    if bare == "application/x-www-form-urlencoded":
        return "form"
    if bare.startswith("multipart/"):
        return "multipart"
    return "text" if bare.startswith("text/") or bare.endswith(("/xml", "+xml", "/yaml")) else "binary"


def _argument_names(wanted: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each argument: its own, in the characters that providers take.

    A member of the body keeps its name; a parameter of that name, or of one before it, gets its place in front.
    """
    bare = [clip(_ARGUMENT.sub("_", name).strip("_") or "value", 60, "") for name, _ in wanted]
    body = {name for name, (_, place) in zip(bare, wanted, strict=True) if place == "body"}
    taken: set[str] = set()
    found: list[str] = []
    for name, (_, place) in zip(bare, wanted, strict=True):
        if place != "body" and (name in body or name in taken):
            name = f"{place}_{name}"
        made, count = name, 1
        while made in taken or made in ("__proto__", "constructor", "prototype"):
            count += 1
            made = f"{name}_{count}"
        taken.add(made)
        found.append(made)
    return found
