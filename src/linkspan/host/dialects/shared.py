"""What the wire formats share: names and ids, reading of lenient JSON, and the assembly of one message.

MCP allows dots and slashes in the names of tools, and 128 characters; a provider refuses the whole request for one such name.
What providers send has members missing, null, or of another type than documented; SDKs give objects in place of JSON.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from linkspan.errors import clipped
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
from linkspan.schema.provider_schemas import Provider, convert, refused_names
from linkspan.types.base import JSON, JSONObject, is_array, is_object, json_type
from linkspan.wire.redaction import one_line, redact

_LONGEST: Final = 64
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MADE_UP: Final = re.compile(r"ls\d{7}")
_SHORT: Final = re.compile(r"[a-zA-Z0-9]{9}")


class ProviderNames:
    """The tools' names as a provider accepts them, and back. Names that it accepts stay as they are."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        """Name these tools, in their order."""
        self._wire: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name in sorted((tool.name for tool in tools), key=lambda name: safe_name(name) != name):
            number, wire = 1, (safe := safe_name(name))
            while wire in self._own:  # it is taken
                number += 1
                wire = f"{safe[: _LONGEST - 1 - len(str(number))]}_{number}"
            self._wire[name], self._own[wire] = wire, name

    def to_wire(self, name: str) -> str:
        """Return what the provider calls a tool; it may be one that is no longer offered."""
        return self._wire.get(name) or safe_name(name)

    def from_wire(self, name: str) -> str:
        """Return what we call a tool."""
        return self._own.get(name, name)


def safe_name(name: str) -> str:
    """Return a name that every provider accepts; long ones end in a checksum, so that two do not become the same."""
    safe = _UNSAFE.sub("_", name) or "_"
    if not (safe[0].isalpha() or safe[0] == "_"):
        safe = f"_{safe}"
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[: _LONGEST - 9]}_{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


class Ids:
    """The ids of one message's calls: unique in the conversation, whatever the provider gives."""

    def __init__(self, request: ModelRequest) -> None:
        """Keep clear of the ids that were used before."""
        said = (message for message in request.messages if isinstance(message, AssistantMessage))
        self._used = {use.id for message in said for use in message.tool_uses}
        self._next = len(self._used)

    def take(self, given: str) -> str:
        """Return the provider's id, or one of our own if that is missing or was used before."""
        chosen = given
        while not chosen or chosen in self._used:
            self._next += 1
            chosen = f"ls{self._next:07d}"
        self._used.add(chosen)
        return chosen


def is_made_up(use_id: str) -> bool:
    """Return whether an id was made up here and is unknown to the provider."""
    return _MADE_UP.fullmatch(use_id) is not None


def short_id(use_id: str) -> str:
    """Return an id of nine letters and digits, which is what Mistral takes; another provider's id always gives the same."""
    if _SHORT.fullmatch(use_id):
        return use_id
    return f"x{zlib.crc32(use_id.encode('utf-8', 'replace')):08x}"


_STATUS_OF = {
    word: status
    for status, words in {
        400: ("invalid_request_error", "INVALID_ARGUMENT"),
        401: ("authentication_error", "UNAUTHENTICATED"),
        403: ("permission_error", "PERMISSION_DENIED"),
        404: ("not_found_error", "NOT_FOUND"),
        413: ("request_too_large",),
        429: ("rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
        500: ("api_error", "server_error", "internal_server_error", "INTERNAL"),
        503: ("UNAVAILABLE",),
        504: ("timeout_error", "DEADLINE_EXCEEDED"),
        529: ("overloaded_error",),
    }.items()
    for word in words
}
"""The status that an error would have had, if the stream had not begun with 200."""


def member(value: object, *names: str) -> Any:
    """Return the first of these members that is there and not null, of a JSON object or of an object."""
    for name in names:
        found = value.get(name) if is_object(value) else getattr(value, name, None)
        if found is not None:
            return found
    return None


def items(value: object) -> list[Any]:
    """Return a list's items; none of anything else."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []


def text_of(value: object) -> str:
    """Return a text, or nothing where there is none."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a number of tokens; 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def plain(value: object) -> JSON:
    """Return an SDK's object as the JSON that it was made of; JSON stays as it is."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if is_object(value):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[object]", value)]
    return value if isinstance(value, str | int | float) else plain(getattr(value, "__dict__", {}))


def read_arguments(value: JSON, *, whole: bool = True) -> tuple[JSONObject, str]:
    """Return the arguments of a call, and what is wrong if they are not a JSON object.

    A text is decoded, twice if it was encoded twice. No arguments at all are an empty object. `whole`: the message was not cut.
    """
    for _ in range(2):
        if isinstance(value, str | bytes):
            if not value.strip():
                return {}, ""
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                why = str(error) if whole else "they were cut off, because the message became too long"
                return {}, f"The arguments are not valid JSON: {why}. Call the tool again with one JSON object."
    if value is None:
        return {}, ""
    if is_object(value):
        return value, ""
    return {}, f"The arguments are of type {json_type(value)}. Call the tool again with one JSON object."


def provider_said(message: object) -> str:
    """Return a provider's own words as an error repeats them: clipped, on one line, without what looks like a key."""
    return clipped(one_line(redact(text_of(message)[:2000])))


def problem_of(body: JSON) -> tuple[str, str, int | None]:
    """Return the provider's message, its word for the kind of problem, and the status it names, from the body of an error."""
    if is_array(body):
        body = body[0] if body else None
    error: JSON = member(body, "error") if is_object(body) else body
    if not is_object(error):
        shown = error if isinstance(error, str) else member(body, "message", "detail", "msg")
        return text_of(shown), text_of(member(body, "type")), _status(member(body, "code"))
    kind = next((each for name in ("code", "type", "status") if isinstance(each := error.get(name), str)), "")
    named = [_status(error.get(name)) for name in ("code", "type", "status")]
    return text_of(member(error, "message")), kind, next((each for each in named if each), None)


def stream_error(body: JSON) -> ModelError:
    """Return the error that a provider reports in the middle of a stream."""
    message, kind, status = problem_of(body)
    shown = provider_said(message) or provider_said(kind) or "it gave no reason"
    return ModelError(f"the provider reported an error: {shown}", status=status)


def _status(code: object) -> int | None:
    if isinstance(code, str):
        return _STATUS_OF.get(code) or (int(code) if code.isdigit() and len(code) == 3 else None)
    return code if isinstance(code, int) and 400 <= code < 600 else None


Reason: TypeAlias = Literal["end", "tool_use", "length", "refused"]


_MARKS: Final = re.compile(r'["\\{}\[\]]')


class ToolUseInPieces(msgspec.Struct, eq=False):
    """A tool use in pieces."""

    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])
    given: JSON = None
    """Arguments that came whole."""
    extra: JSON = None
    _depth: int = 0
    _in_text: bool = False
    _is_escaped: bool = False
    _spoiled: bool = False
    """Whether what came will never be a JSON object, whatever follows."""

    def take(self, piece: str) -> None:
        """Take a piece of the arguments."""
        self.pieces.append(piece)
        escaped = 0 if self._is_escaped else -1
        for found in _MARKS.finditer(piece):
            at, mark = found.start(), found[0]
            if at == escaped:
                continue
            if mark == '"':
                self._in_text = not self._in_text
            elif mark == "\\":
                escaped = at + 1
            elif not self._in_text:
                self._depth += 1 if mark in "{[" else -1
        self._is_escaped = escaped == len(piece)

    @property
    def is_whole(self) -> bool:
        """Return whether the arguments so far are a JSON object, so that more would spoil them."""
        if self.given is None and (self._depth or self._in_text or self._spoiled):
            return False  # each piece is looked at once: they are decoded only where they can be whole
        arguments = self.given if self.given is not None else "".join(self.pieces)
        self._spoiled = bool(read_arguments(arguments)[1])
        return arguments != "" and not self._spoiled

    def continues(self, use_id: str, name: str) -> bool:
        """Return whether a piece of this id and name is part of it: some number all of their calls 0."""
        if use_id and self.id:
            return use_id == self.id
        return not name or not (self.is_whole or (self.name and name != self.name))


class MessageDecoder:
    """Reads one message as it comes. The wire formats add how to `feed` it; this is what the message has so far."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        """Begin; ids and names are those of `request`."""
        self.complete = False
        self.reason: Reason | None = None
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.cost = 0.0
        self._provider = provider
        self._ids = Ids(request)
        self._names = ProviderNames(request.tools)
        self._said = 0
        self._parts: list[ToolUseInPieces | Opaque] = []
        self._calls: dict[Hashable, ToolUseInPieces] = {}

    @property
    def calls(self) -> Sequence[ToolUseInPieces]:
        """The calls so far."""
        return [part for part in self._parts if isinstance(part, ToolUseInPieces)]

    def say(self, text: str) -> list[ModelEvent]:
        """Take some words."""
        self._said += len(text)
        return [TextDelta(text)] if text else []

    def think(self, text: str) -> list[ModelEvent]:
        """Take some thoughts."""
        return [ThoughtDelta(text)] if text else []

    def call(self, key: Hashable) -> ToolUseInPieces | None:
        """Return the call that the provider knows by `key`."""
        return self._calls.get(key)

    def begin(self, key: Hashable, call: ToolUseInPieces) -> ToolUseInPieces:
        """Take a new call; the pieces that follow for `key` are its own."""
        self._parts.append(call)
        self._calls[key] = call
        return call

    def keep(self, part: JSON, *, said: int = 0) -> None:
        """Keep something that goes back as it came; the last `said` characters of the words are part of it."""
        self._parts.append(Opaque(self._provider, {"part": part, "from": self._said - said, "to": self._said}))

    def end(self, *, done: bool = False) -> list[ModelEvent]:
        """Return the last events. Raises: ModelError if the message was cut off."""
        if self.reason is None and not (done or self.complete):
            raise ModelError("the response of the provider was cut off: ask again")
        reason = self.reason or "end"
        if reason in ("end", "tool_use"):
            reason = "tool_use" if self.calls else "end"  # some say "stop" with calls
        parts: list[ModelEvent] = []
        for part in self._parts:
            if isinstance(part, ToolUseInPieces):
                arguments = part.given if part.given is not None else "".join(part.pieces)
                found, problem = read_arguments(arguments, whole=reason != "length")
                use_id, name = self._ids.take(part.id), self._names.from_wire(part.name)
                parts.append(ToolUse(use_id, name, found, problem, part.extra))
            else:
                parts.append(part)
        return [*parts, Finished(reason, Usage(self.input_tokens, self.output_tokens, self.cached_tokens, self.cost))]


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


def encoded_tools(
    tools: Sequence[ToolSpec], provider: Provider, encode: Callable[[str, str, JSONObject], JSONObject]
) -> tuple[list[JSONObject], list[str]]:
    """Return tools as a provider wants them, and in words what their schemas lost, tool by tool.

    `encode` returns one from its name, its description and its schema, as the provider accepts them.
    A tool that the provider would refuse is left out: with it, the whole request would be refused.
    """
    names = ProviderNames(tools)
    taken: list[JSONObject] = []
    losses: list[str] = []
    for tool in tools:
        schema, lost = convert(tool.schema, provider)
        if refused := refused_names(schema, provider):
            losses.append(f"{tool.name}: left out, for its required {', '.join(refused)} has a name that is refused")
            continue
        taken.append(encode(names.to_wire(tool.name), tool.description, schema))
        losses.extend(f"{tool.name}: {each}" for each in lost)
    return taken, losses
