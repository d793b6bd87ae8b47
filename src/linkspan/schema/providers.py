"""Tool schemas of foreign servers, brought down to what a provider of models accepts, with every loss said.

One tool that a provider refuses takes all the others of the request with it: so a schema is made plain first, and of what
is left only what the provider is known to take goes out. The server checks the arguments all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from linkspan.schema.gemini import for_gemini
from linkspan.schema.losses import Losses, below
from linkspan.schema.plain import Plain
from linkspan.types.base import JSON, JSONObject, is_array, is_object

__all__ = ["NAMES", "Provider", "convert", "refused_names"]

Provider: TypeAlias = Literal["openai", "anthropic", "gemini"]
"""A wire format of models; "openai" also stands for all that speak its chat completions."""

NAMES: Final[Mapping[Provider, re.Pattern[str]]] = {
    "openai": re.compile(r".+", re.DOTALL),
    "anthropic": re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
}
"""What each provider takes as the name of a member of the arguments."""

_TITLES: Final[Mapping[Provider, str]] = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Gemini"}


def convert(schema: JSONObject, provider: Provider) -> tuple[JSONObject, list[str]]:
    """Return an input schema as the provider accepts it, and in plain words what it does not say any more.

    Takes whatever a server sends and never raises: at worst an object of which nothing is known comes out. Where nothing
    is lost, arguments that fit the result fit the original; each loss names its place, as `/filter/kind: oneOf became
    anyOf`. A required member whose name the provider refuses stays in; see `refused_names`.
    """
    losses = Losses()
    try:
        found = Plain(schema, losses).arguments()
        if provider == "gemini":
            found = for_gemini(found, "", losses)
        _leave_out_names(found, provider, losses)
        return found, losses.listed()
    except RecursionError:
        return {"type": "object", "properties": {}}, ["the arguments: the schema is nested too deeply to be read"]


def refused_names(schema: JSONObject, provider: Provider) -> list[str]:
    """Return the places of names in a converted schema that the provider refuses: leave such a tool out."""
    return [below(path, name) for _, path, name in _refused(schema, provider, "")]


def _leave_out_names(schema: JSONObject, provider: Provider, losses: Losses) -> None:
    """Leave out optional members whose names the provider refuses; under another name no server would know them."""
    for holder, path, name in list(_refused(schema, provider, "")):
        if name in holder.get("required", ()):
            words = f"{_TITLES[provider]} refuses this name, and it is required: leave the tool out"
        else:
            words = f"left out: {_TITLES[provider]} refuses this name"
            del holder["properties"][name]
            if provider == "gemini" and not holder["properties"]:
                del holder["properties"]
        losses.tell(below(path, name), words)


def _refused(schema: JSON, provider: Provider, path: str) -> Iterator[tuple[JSONObject, str, str]]:
    if not is_object(schema):
        return
    yield from ((schema, path, name) for name in schema.get("properties", ()) if not NAMES[provider].fullmatch(name))
    for step, each in _within(schema):
        yield from _refused(each, provider, below(path, step) if step else path)


def _within(schema: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    members: JSON = schema.get("properties")
    if is_object(members):
        yield from members.items()
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield "*", schema[key]
    for key in ("anyOf", "oneOf", "prefixItems"):
        arms: JSON = schema.get(key)
        if is_array(arms):
            yield from (("", each) for each in arms)
