"""Tools that read the resources and get the prompts of their server, for hosts that show tools only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from linkspan.errors import RegistrationError
from linkspan.server.context import Context
from linkspan.server.tools import ToolInfo, ToolResponse
from linkspan.server.visibility import When
from linkspan.text import did_you_mean
from linkspan.types.base import (
    JSON,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    TextContent,
    TextResourceContents,
)
from linkspan.types.messages import ToolAnnotations
from linkspan.wire.values import to_builtins

Viewed: TypeAlias = Literal["resources", "prompts"]

_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


async def list_resources(ctx: Context[Any]) -> dict[str, list[JSONObject]]:
    """List the resources that can be read with read_resource, and the templates of their URIs."""
    resources, templates = await ctx.list_resources(), await ctx.list_resource_templates()
    return {
        "resources": [to_builtins(each) for each in resources],
        "resourceTemplates": [to_builtins(each) for each in templates],
    }


async def read_resource(uri: str, ctx: Context[Any]) -> ToolResponse:
    """Read the resource at a URI, from list_resources or made of one of its templates."""
    result = await ctx.read_resource(uri)
    return ToolResponse([_block(each) for each in result.contents])


async def list_prompts(ctx: Context[Any]) -> dict[str, list[JSONObject]]:
    """List the prompts that get_prompt has, and their arguments."""
    return {"prompts": [to_builtins(each) for each in await ctx.list_prompts()]}


async def get_prompt(name: str, ctx: Context[Any], arguments: dict[str, str] | None = None) -> ToolResponse:
    """Get the messages of a prompt, from list_prompts, with its arguments filled in."""
    result = await ctx.get_prompt(name, arguments)
    messages: JSON = [to_builtins(each) for each in result.messages]
    return ToolResponse([each.content for each in result.messages], structured_content={"messages": messages})


_VIEWS: Final[Mapping[str, Sequence[Callable[..., object]]]] = {
    "resources": (list_resources, read_resource),
    "prompts": (list_prompts, get_prompt),
}


def views_of(kinds: Sequence[str], when: When | None) -> list[tuple[Callable[..., object], ToolInfo]]:
    """Return the functions for these kinds of items, and what registers them. Raises: RegistrationError."""
    for kind in kinds:
        if kind not in _VIEWS:
            raise RegistrationError(
                f"as_tools({kind!r}): there are tools for resources and prompts{did_you_mean(kind, _VIEWS)}"
            )
    functions = [each for kind in kinds or _VIEWS for each in _VIEWS[kind]]
    return [(each, ToolInfo(annotations=_READS, when=when)) for each in functions]


def _block(
    contents: TextResourceContents | BlobResourceContents,
) -> TextContent | ImageContent | AudioContent | EmbeddedResource:
    """Return contents as the block that hosts show best."""
    kind = (contents.mime_type or "").partition("/")[0]
    if isinstance(contents, TextResourceContents):
        return TextContent(contents.text)
    if kind == "image":
        return ImageContent(contents.blob, contents.mime_type or "")
    if kind == "audio":
        return AudioContent(contents.blob, contents.mime_type or "")
    return EmbeddedResource(contents)
