"""A server made of an OpenAPI document: its operations as tools, which send requests to the API.

from linkspan.openapi import Bearer, from_openapi

server = from_openapi("github.json", curation="github.toml", auth=Bearer("GITHUB_TOKEN"))
server.run()
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import structs

from linkspan.errors import DuplicateNameError, RegistrationError
from linkspan.openapi.answers import read_reply
from linkspan.openapi.calling import (
    CONCURRENCY,
    MAX_RESPONSE,
    TIMEOUT,
    ApiAuth,
    ApiClient,
    ApiSender,
)
from linkspan.openapi.curation import Curation, CurationSource, chosen, curated, read_curation
from linkspan.openapi.reading import ApiDocument, ApiOperation, Source, read_document
from linkspan.openapi.requests import write_request
from linkspan.openapi.schemas import ApiDocumentError
from linkspan.serve.server import Server
from linkspan.server.context import Context
from linkspan.server.editing import Edit
from linkspan.server.observation import warn
from linkspan.server.tools import ToolResponse
from linkspan.text import clip
from linkspan.types.base import JSON, is_array, is_object

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["from_openapi", "offer"]

_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


def from_openapi(
    document: Source | ApiDocument,
    *,
    curation: CurationSource | Curation | None = None,
    only: Sequence[str] = (),
    edits: Mapping[str, Edit] | None = None,
    name: str | None = None,
    base_url: str | None = None,
    auth: ApiAuth = None,
    headers: Mapping[str, str] | None = None,
    forward: Sequence[str] = (),
    ssl: SSLContext | None = None,
    timeout: float = TIMEOUT,
    max_response: int = MAX_RESPONSE,
    concurrency: int = CONCURRENCY,
) -> Server:
    """Return a server whose tools are operations of an API. Serve it, or mount it in another one.

        server = from_openapi("github.json", curation="github.toml", auth=Bearer("GITHUB_TOKEN"))

    `document` is a file, its bytes, or a mapping: OpenAPI 3.0 or 3.1, in JSON or YAML. Nothing is fetched.

    - `curation`: a TOML file that `linkspan openapi init` wrote; only what is on in it is a tool. Without one, and without
      `only`, the operations that read are, 40 at most.
    - `only`: patterns of the names of tools, "tag:pets", "readOnly" and "destructive", in place of a file.
    - `edits`: an `Edit` for each tool that callers see otherwise, by its name.
    - `base_url`: what the paths are below; else the first https server of the document. Only one that stands here may be in a
      private network, or http.
    - `auth`: a token, `Bearer(env=...)`, `ApiKey(env=..., header=...)`, or a function of the `Context` that returns a token, or
      headers, for the caller: `auth=lambda ctx: ctx.token_for("https://api.example")`.
    - `headers`: sent with each request. `forward` names headers of the caller that are passed on; no others are.
    - `timeout` in seconds, `max_response` in bytes, `concurrency` in requests at once.

    Raises: RegistrationError, OSError.
    """
    found, shown = _document(document)
    if base_url is None and not found.servers:
        raise RegistrationError(f"{found.title} names no server: write base_url='https://...'")
    refused = [each for each in forward if each.lower() in _CREDENTIALS]
    if refused:
        raise RegistrationError(
            f"forward={refused!r}: credentials of callers are for this server only; write auth=, a function of the Context that "
            "returns what the API is to see, such as that of ctx.token_for(...)"
        )
    base = found.servers[0] if base_url is None else None
    sender = ApiClient(
        base_url or found.servers[0],
        auth,
        written=base_url is not None,
        headers=headers or {},
        forward=forward,
        ssl=ssl,
        timeout=timeout,
        max_response=max_response,
        concurrency=concurrency,
    )
    server = Server(name or found.title, found.version, instructions=found.description or None)
    offer(server, found, sender, curation=curation, only=only, edits=edits, shown=shown, base=base)
    return server


def _document(given: Source | ApiDocument) -> tuple[ApiDocument, str]:
    if isinstance(given, ApiDocument):
        return given, "DOCUMENT"
    try:
        return read_document(given), str(given) if not isinstance(given, bytes | Mapping) else "DOCUMENT"
    except ApiDocumentError as problem:
        raise RegistrationError(str(problem)) from None


def offer(
    server: Server,
    document: ApiDocument,
    sender: ApiSender,
    *,
    curation: CurationSource | Curation | None = None,
    only: Sequence[str] = (),
    edits: Mapping[str, Edit] | None = None,
    shown: str = "DOCUMENT",
    base: str | None = None,
    open_world: bool = True,
) -> None:
    """Register operations of a document as tools whose requests `sender` sends.

    With `base`, the URL of a server, operations that the document has at other servers are not offered.
    Raises: RegistrationError.
    """
    left_out: Iterable[str] = ()
    tools: list[tuple[str, ApiOperation, Edit | None, Sequence[str], Sequence[str]]]
    if curation is not None:
        if only:
            raise RegistrationError("pass curation=, or only=: both choose what is a tool")
        listed = curation if isinstance(curation, Curation) else read_curation(curation)
        on, left_out = curated(document, listed)
        tools = [(name, each, tool.edit(), (*each.tags, *tool.tags), tool.scopes) for name, tool, each in on]
    else:
        found = selected(document, only) if only else chosen(document, shown)
        left_out = document.left_out
        tools = [(each.name, each, None, each.tags, ()) for each in found]
    elsewhere = [each for _, each, _, _, _ in tools if base is not None and each.servers[:1] not in ((), (base,))]
    tools = [each for each in tools if each[1] not in elsewhere]
    left_out = [*left_out, *(f"{each.name}: it is at {each.servers[0]}: write base_url=" for each in elsewhere)]
    for problem in left_out:
        warn(f"{server.name}: not offered: {clip(problem, 300)}")
    for name, operation, edit, tags, scopes in tools:
        try:
            try:
                _add(server, name, operation, sender, tags, scopes, open_world=open_world)
            except DuplicateNameError:
                raise
            except RegistrationError:  # most often a pattern of another dialect of regular expressions
                _add(server, name, without_patterns(operation), sender, tags, scopes, open_world=open_world)
        except RegistrationError as problem:  # a schema that no call could be checked by
            warn(f"{server.name}: not offered: {operation.method} {operation.path}: {clip(str(problem), 300)}")
            continue
        if edit is not None:
            server.edit(name, edit)
    for name, edit in (edits or {}).items():
        server.edit(name, edit)


def selected(document: ApiDocument, only: Sequence[str]) -> list[ApiOperation]:
    """Return the operations that patterns mean. Raises: RegistrationError."""
    if isinstance(only, str):
        raise RegistrationError(f"only={only!r}: only= takes a list of patterns, such as ['get_*', 'tag:pets']")
    names = [each for each in document.keys if any(_means(pattern, document, each) for pattern in only)]
    for pattern in only:
        if not any(_means(pattern, document, each) for each in document.keys):
            warn(f"{document.title}: no operation is meant by {pattern!r}")
    return document.readable(names)


def _means(pattern: str, document: ApiDocument, name: str) -> bool:
    method, _, tags = document.facts(name)
    if pattern.startswith("tag:"):
        return pattern.removeprefix("tag:") in tags
    if pattern in ("readOnly", "destructive"):
        return method in ("GET", "HEAD") if pattern == "readOnly" else method == "DELETE"
    return fnmatchcase(name, pattern) or document.named(pattern) == name


def without_patterns(operation: ApiOperation) -> ApiOperation:
    """Return an operation whose input schema has no patterns."""

    def bare(value: JSON, *, is_schema: bool) -> JSON:
        if is_array(value):
            return [bare(each, is_schema=is_schema) for each in value]
        if not is_object(value):
            return value
        gone = ("pattern", "patternProperties") if is_schema else ()
        named = ("properties", "$defs") if is_schema else ()
        return {key: bare(each, is_schema=key not in named) for key, each in value.items() if key not in gone}

    return structs.replace(operation, input_schema=bare(operation.input_schema, is_schema=True))


def _add(
    server: Server,
    name: str,
    operation: ApiOperation,
    sender: ApiSender,
    tags: Sequence[str],
    scopes: Sequence[str],
    *,
    open_world: bool,
) -> None:
    server.define_tool(
        name,
        handler=_caller(operation, sender),
        input_schema=operation.input_schema,
        title=operation.title or None,
        description=operation.description,
        annotations=operation.annotations(open_world=open_world),
        tags={each for each in tags if each},
        scopes=scopes,
    )


def _caller(
    operation: ApiOperation, sender: ApiSender
) -> Callable[[dict[str, JSON], Context], Coroutine[None, None, ToolResponse]]:
    """Return the function of a tool."""

    async def call(args: dict[str, JSON], ctx: Context) -> ToolResponse:
        request = write_request(operation, args)
        reply, secrets = await sender.send(request, ctx)
        return read_reply(reply, request.method, request.path, sender.uri + request.path, secrets)

    return call
