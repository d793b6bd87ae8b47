"""Anthropic's Messages. https://platform.claude.com/docs/en/api/messages and .../build-with-claude/streaming

Turns alternate; the results of a turn's calls come first in the user's next message; thinking goes back as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from linkspan.host.dialects.shared import (
    MessageDecoder,
    ProviderNames,
    Reason,
    ToolUseInPieces,
    alternating,
    count,
    encoded_tools,
    interleaved,
    items,
    member,
    plain,
    read_arguments,
    stream_error,
    text_of,
)
from linkspan.host.messages import (
    AssistantMessage,
    Message,
    ModelEvent,
    ModelRequest,
    Picture,
    Text,
    ToolAnswer,
    ToolMessage,
    ToolSpec,
    ToolUse,
)
from linkspan.types.base import JSON, JSONObject, is_object

_VERSION: Final = "2023-06-01"
_CACHE: Final[JSONObject] = {"type": "ephemeral"}
_REASONS: Final[Mapping[str, Reason]] = {
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_GONE: Final = "This tool is gone. Do not call it."
_SAID_NOTHING: Final = "It failed without an error message."


class AnthropicDialect:
    """Anthropic's Messages."""

    provider = "anthropic"

    def path(self, model: str) -> str:
        """Return where to POST."""
        return "/v1/messages"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key and the version."""
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    def encode_request(self, request: ModelRequest, model: str) -> JSONObject:
        """Return the body. What comes before the last message can be taken from the provider's cache."""
        offered = request.tools
        tools, _ = self.encode_tools(offered)
        if not tools:  # calls are refused in a request without any tools
            messages = (message for message in request.messages if isinstance(message, AssistantMessage))
            called = dict.fromkeys(use.name for message in messages for use in message.tool_uses)
            offered = [ToolSpec(name, _GONE, {"type": "object", "properties": {}}) for name in called]
            tools, _ = self.encode_tools(offered)
        names = ProviderNames(offered)
        body: JSONObject = {"model": model, "max_tokens": request.max_tokens, "stream": True}
        if request.system:
            body["system"] = request.system
        if tools:
            *others, last = tools
            body["tools"] = [*others, last | {"cache_control": _CACHE}]
        turns = alternating(self._encode(message, names) for message in request.messages)
        if turns:  # mark the end of what the next request will begin with
            blocks = turns[-1][1]
            if blocks[-1].get("type") in ("text", "image", "tool_result", "tool_use"):
                blocks[-1] = blocks[-1] | {"cache_control": _CACHE}
        body["messages"] = [{"role": role, "content": blocks} for role, blocks in turns]
        return body

    def encode_tools(self, tools: Sequence[ToolSpec]) -> tuple[list[JSONObject], list[str]]:
        """Return tools as the provider wants them, and in words what their schemas lost."""
        return encoded_tools(
            tools,
            "anthropic",
            lambda name, description, schema: {"name": name, "description": description, "input_schema": schema},
        )

    def encode_answer(self, answer: ToolAnswer) -> JSONObject:
        """Return a block for the user's next message; all blocks of one turn go into one message."""
        content: list[JSONObject] = [{"type": "text", "text": answer.text}] if answer.text.strip() else []
        content += [_picture(image) for image in answer.images]
        if not content and answer.is_error:
            content = [{"type": "text", "text": _SAID_NOTHING}]
        block: JSONObject = {"type": "tool_result", "tool_use_id": _safe_id(answer.id), "content": content}
        return block | {"is_error": True} if answer.is_error else block

    def read_tool_use(self, value: object, tools: Sequence[ToolSpec] = ()) -> ToolUse:
        """Read a `tool_use` block. Raises: ValueError for something else."""
        name, use_id = member(value, "name"), member(value, "id")
        if member(value, "type") not in ("tool_use", None) or not isinstance(name, str) or not isinstance(use_id, str):
            raise ValueError("this is not a tool use of Anthropic's: pass a content block of the type tool_use")
        arguments, problem = read_arguments(plain(member(value, "input")))
        return ToolUse(use_id, ProviderNames(tools).from_wire(name), arguments, problem)

    def decoder(self, request: ModelRequest) -> AnthropicDecoder:
        """Return what reads the answer to this request."""
        return AnthropicDecoder(request, self.provider)

    def _encode(self, message: Message, names: ProviderNames) -> tuple[str, list[JSONObject]]:
        """Return the role and the blocks of a message."""
        if isinstance(message, ToolMessage):
            return "user", [self.encode_answer(answer) for answer in message.answers]
        parts = interleaved(message, self.provider) if isinstance(message, AssistantMessage) else message.parts
        blocks: list[JSONObject] = []
        for part in parts:
            match part:
                case ToolUse():
                    name, use_id = names.to_wire(part.name), _safe_id(part.id)
                    blocks.append({"type": "tool_use", "id": use_id, "name": name, "input": part.arguments})
                case Picture():
                    blocks.append(_picture(part))
                case Text():
                    blocks += [{"type": "text", "text": part.text}] if part.text.strip() else []
                case str():
                    blocks += [{"type": "text", "text": part}] if part.strip() else []  # mere space is refused
                case _:
                    blocks.append(part["part"])
        return "assistant" if isinstance(message, AssistantMessage) else "user", blocks


class AnthropicDecoder(MessageDecoder):
    """Reads one message as it comes."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        """Begin."""
        super().__init__(request, provider)
        self._block: JSONObject = {}
        self._pieces: list[str] = []
        self._uncached = self._written = 0

    def feed(self, event: JSON) -> list[ModelEvent]:
        """Take one event, or a whole message. Raises: ModelError."""
        match member(event, "type"):
            case "message_start":
                self._record(member(member(event, "message"), "usage"), None)
            case "message":
                events: list[ModelEvent] = []
                for index, block in enumerate(items(member(event, "content"))):
                    events += self._open(index, block)
                    self._close()
                self._record(member(event, "usage"), member(event, "stop_reason"))
                self.complete = True
                return events
            case "content_block_start":
                return self._open(member(event, "index"), member(event, "content_block"))
            case "content_block_delta":
                return self._extend(member(event, "index"), member(event, "delta"))
            case "content_block_stop":
                self._close()
            case "message_delta":
                self._record(member(event, "usage"), member(member(event, "delta"), "stop_reason"))
            case "message_stop":
                self.complete = True
            case "error":
                raise stream_error(event)
            case _:
                if member(event, "error") is not None:
                    raise stream_error(event)
        return []

    def end(self, *, done: bool = False) -> list[ModelEvent]:
        """Return the last events. Raises: ModelError if the message was cut off."""
        self._close()
        return super().end(done=done)

    def _open(self, index: object, block: object) -> list[ModelEvent]:
        self._close()
        kind = member(block, "type")
        if kind == "text":
            return self.say(text_of(member(block, "text")))
        if kind == "tool_use":
            given = member(block, "input") or None  # begins as {}, and comes in pieces
            call = ToolUseInPieces(text_of(member(block, "id")), text_of(member(block, "name")), given=given)
            self.begin(index if isinstance(index, int) else None, call)
            return []
        if is_object(block) and isinstance(kind, str):
            self._block = dict(block)
        return self.think(text_of(self._block.get("thinking")))

    def _extend(self, index: object, delta: object) -> list[ModelEvent]:
        match member(delta, "type"):
            case "text_delta":
                return self.say(text_of(member(delta, "text")))
            case "thinking_delta":
                thought = text_of(member(delta, "thinking"))
                self._block["thinking"] = text_of(self._block.get("thinking")) + thought
                return self.think(thought)
            case "signature_delta":
                self._block["signature"] = text_of(member(delta, "signature"))
            case "input_json_delta":
                piece = text_of(member(delta, "partial_json"))
                call = self.call(index if isinstance(index, int) else None)
                if call is None:
                    self._pieces.append(piece)
                elif piece:
                    call.given = None
                    call.take(piece)
            case _:
                pass  # citations, and what is yet to be invented
        return []

    def _close(self) -> None:
        """Keep a block that goes back as it came. Thoughts without a signature are useless."""
        block, self._block = self._block, {}
        pieces, self._pieces = self._pieces, []
        if not block or (block.get("type") == "thinking" and not block.get("signature")):
            return
        if pieces:
            block["input"] = read_arguments("".join(pieces))[0]
        self.keep(block)

    def _record(self, usage: object, stop_reason: object) -> None:
        """Take the counts, which are cumulative, and count what was in the cache, or went into it, as input too."""
        self._uncached = count(member(usage, "input_tokens")) or self._uncached
        self._written = count(member(usage, "cache_creation_input_tokens")) or self._written
        self.cached_tokens = count(member(usage, "cache_read_input_tokens")) or self.cached_tokens
        self.output_tokens = count(member(usage, "output_tokens")) or self.output_tokens
        self.input_tokens = self._uncached + self._written + self.cached_tokens
        if isinstance(stop_reason, str):
            self.reason = _REASONS.get(stop_reason, "end")


def _picture(image: Picture) -> JSONObject:
    return {"type": "image", "source": {"type": "base64", "media_type": image.mime_type, "data": image.data}}


def _safe_id(use_id: str) -> str:
    """Return an id of the letters that are accepted; another provider's may have others."""
    return _UNSAFE.sub("_", use_id)
