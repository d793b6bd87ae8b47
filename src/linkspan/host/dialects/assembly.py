"""One message while it is put together, whatever the dialect: words, thoughts, calls in pieces, signed parts, usage."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from linkspan.host.dialects.naming import Ids, Names
from linkspan.host.dialects.reading import read_arguments
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    Opaque,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    ToolUse,
    Usage,
)
from linkspan.schema.providers import Provider, convert, refused_names
from linkspan.types.base import JSON, JSONObject, is_object

__all__ = ["Assembly", "Call", "Reason", "alternating", "converted", "interleaved"]

Reason: TypeAlias = Literal["end", "tool_use", "length", "refused"]


class Call(msgspec.Struct, eq=False):
    """A tool use in pieces."""

    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])
    given: JSON = None
    """Arguments that came whole."""
    extra: JSON = None

    @property
    def is_whole(self) -> bool:
        """Tell whether the arguments so far are a JSON object, so that more would spoil them."""
        arguments = self.given if self.given is not None else "".join(self.pieces)
        return arguments != "" and not read_arguments(arguments)[1]


class Assembly:
    """What a message has so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        """Begin; ids and names are those of `request`."""
        self.reason: Reason | None = None
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self._provider = provider
        self._ids = Ids(request)
        self._names = Names(request.tools)
        self._said = 0
        self._parts: list[Call | Opaque] = []
        self._calls: dict[Hashable, Call] = {}

    @property
    def calls(self) -> Sequence[Call]:
        """The calls so far."""
        return [part for part in self._parts if isinstance(part, Call)]

    def say(self, text: str) -> list[ModelEvent]:
        """Take some words."""
        self._said += len(text)
        return [TextDelta(text)] if text else []

    def think(self, text: str) -> list[ModelEvent]:
        """Take some thoughts."""
        return [ThoughtDelta(text)] if text else []

    def call(self, key: Hashable) -> Call | None:
        """Return the call that the provider knows by `key`."""
        return self._calls.get(key)

    def begin(self, key: Hashable, call: Call) -> Call:
        """Take a new call; the pieces that follow for `key` are its own."""
        self._parts.append(call)
        self._calls[key] = call
        return call

    def keep(self, part: JSON, *, said: int = 0) -> None:
        """Keep something that goes back as it came; the last `said` characters of the words are part of it."""
        self._parts.append(Opaque(self._provider, {"part": part, "from": self._said - said, "to": self._said}))

    def end(self, *, done: bool) -> list[ModelEvent]:
        """Return the last events. Raises: ModelError if the message was cut off."""
        if self.reason is None and not done:
            raise ModelError("the provider's answer broke off in the middle: ask again")
        calls = [part for part in self._parts if isinstance(part, Call)]
        reason = self.reason or "end"
        if reason in ("end", "tool_use"):
            reason = "tool_use" if calls else "end"  # some say "stop" with calls
        usage = Usage(self.input_tokens, self.output_tokens, self.cached_tokens)
        parts = [part if isinstance(part, Opaque) else self._use(part, reason) for part in self._parts]
        return [*parts, Finished(reason, usage)]

    def _use(self, call: Call, reason: Reason) -> ToolUse:
        arguments = call.given if call.given is not None else "".join(call.pieces)
        found, problem = read_arguments(arguments, whole=reason != "length")
        return ToolUse(self._ids.take(call.id), self._names.from_wire(call.name), found, problem, call.extra)


def interleaved(message: AssistantMessage, provider: str) -> Iterator[str | ToolUse | JSONObject]:
    """Return an assistant message in the order in which it came: words, calls, and what is opaque, as `{"part": ...}`.

    The words come first in our own values; what was kept knows where among them it stood. Parts of other providers are left
    out. Words come before the calls, as every provider writes them.
    """
    text, place = message.text, 0
    for part in message.parts:
        if isinstance(part, Opaque):
            if part.provider != provider or not is_object(part.data):
                continue
            start, stop = (min(max(place, int(part.data.get(name, 0))), len(text)) for name in ("from", "to"))
            if start > place:
                yield text[place:start]
            place = stop
            yield part.data
        elif isinstance(part, ToolUse):
            if place < len(text):
                yield text[place:]
                place = len(text)
            yield part
    if place < len(text):
        yield text[place:]


def alternating(turns: Iterable[tuple[str, list[JSONObject]]]) -> list[tuple[str, list[JSONObject]]]:
    """Return turns of which no two in a row have the same role; those without anything in them are left out."""
    merged: list[tuple[str, list[JSONObject]]] = []
    for role, content in turns:
        if content and merged and merged[-1][0] == role:
            merged[-1][1].extend(content)
        elif content:
            merged.append((role, content))
    return merged


def converted(tools: Sequence[ToolSpec], provider: Provider) -> tuple[list[tuple[ToolSpec, JSONObject]], list[str]]:
    """Return tools with their schemas as a provider accepts them, and in words what they lost, tool by tool.

    A tool that the provider would refuse is left out: with it, the whole request would be refused.
    """
    taken: list[tuple[ToolSpec, JSONObject]] = []
    losses: list[str] = []
    for tool in tools:
        schema, lost = convert(tool.schema, provider)
        if refused := refused_names(schema, provider):
            losses.append(f"{tool.name}: left out, for its required {', '.join(refused)} has a name that is refused")
            continue
        taken.append((tool, schema))
        losses.extend(f"{tool.name}: {each}" for each in lost)
    return taken, losses
