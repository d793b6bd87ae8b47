"""Gemini's generateContent. https://ai.google.dev/api/generate-content and .../gemini-api/docs/thought-signatures

Calls come whole. A signature stands on the first call of a message, or on a text, and goes back where it stood.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from linkspan.host.dialects.shared import (
    MessageDecoder,
    ProviderNames,
    Reason,
    ToolUseInPieces,
    alternating,
    count,
    encoded_tools,
    interleaved,
    is_made_up,
    items,
    member,
    plain,
    provider_said,
    read_arguments,
    stream_error,
    text_of,
)
from linkspan.host.messages import (
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Picture,
    Text,
    ToolAnswer,
    ToolMessage,
    ToolSpec,
    ToolUse,
    UserMessage,
)
from linkspan.types.base import JSON, JSONObject, is_array, is_object

_REASONS: Final[Mapping[str, Reason]] = {
    "STOP": "end",
    "FINISH_REASON_UNSPECIFIED": "end",
    "MAX_TOKENS": "length",
}
_NO_CALL: Final = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE")
_SIGNATURE: Final = "thoughtSignature"
_NOTHING: Final = Text("")
_FOREIGN: Final = "skip_thought_signature_validator"
"""Google's word for the signature of a call that another provider's model made; without any, newer models refuse it."""

_UNSIGNED: Final = re.compile(r"(models/)?gemini-[12](?!\d)")
"""Models that do not ask for signatures."""


class GeminiDialect:
    """Gemini's generateContent."""

    provider = "gemini"

    def path(self, model: str) -> str:
        """Return where to POST."""
        return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"x-goog-api-key": key} if key else {}

    def encode_request(self, request: ModelRequest, model: str) -> JSONObject:
        """Return the body; the model is in the path."""
        names = ProviderNames(request.tools)
        body: JSONObject = {}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if tools := self.encode_tools(request.tools)[0]:
            body["tools"] = [{"functionDeclarations": tools}]
        foreign = None if _UNSIGNED.match(model) else _FOREIGN
        turns = alternating(self._encode(message, names, foreign) for message in request.messages)
        body["contents"] = [{"role": role, "parts": parts} for role, parts in turns]
        body["generationConfig"] = {"maxOutputTokens": request.max_tokens}
        return body

    def encode_tools(self, tools: Sequence[ToolSpec]) -> tuple[list[JSONObject], list[str]]:
        """Return function declarations, and in words what their schemas lost."""

        def declare(name: str, description: str, schema: JSONObject) -> JSONObject:
            # an object without properties is refused
            return {"name": name, "description": description} | (
                {"parameters": schema} if schema.get("properties") else {}
            )

        return encoded_tools(tools, "gemini", declare)

    def encode_answer(self, answer: ToolAnswer) -> JSONObject:
        """Return a part for the user's next content; pictures are parts of their own after it."""
        return self._answer(answer, ProviderNames(()))

    def read_tool_use(self, value: object, tools: Sequence[ToolSpec] = ()) -> ToolUse:
        """Read a `functionCall`, or the part that holds it. Raises: ValueError for something else."""
        call = member(value, "functionCall", "function_call") or value
        name = member(call, "name")
        if not isinstance(name, str):
            raise ValueError("this is not a function call of Gemini's: pass a part of the content, or its functionCall")
        arguments, problem = read_arguments(plain(member(call, "args")))
        use_id = text_of(member(call, "id")) or name
        return ToolUse(use_id, ProviderNames(tools).from_wire(name), arguments, problem, _signature(value))

    def decoder(self, request: ModelRequest) -> GeminiDecoder:
        """Return what reads the answer to this request."""
        return GeminiDecoder(request, self.provider)

    def _encode(self, message: Message, names: ProviderNames, foreign: str | None) -> tuple[str, list[JSONObject]]:
        """Return the role and the parts of a message; its first call is signed, even for a call of another provider."""
        if isinstance(message, UserMessage):
            return "user", [_part(part) for part in message.parts if part != _NOTHING]
        if isinstance(message, ToolMessage):
            pictures = [_part(image) for answer in message.answers for image in answer.images]
            return "user", [*(self._answer(answer, names) for answer in message.answers), *pictures]
        parts: list[JSONObject] = []
        for part in interleaved(message, self.provider):
            if isinstance(part, str):
                parts.append({"text": part})
            elif isinstance(part, ToolUse):
                signature = part.extra.get(_SIGNATURE, foreign) if is_object(part.extra) else foreign
                call = {"name": names.to_wire(part.name), "args": part.arguments} | _id(part.id, part.name)
                parts.append({"functionCall": call} | ({_SIGNATURE: signature} if signature else {}))
                foreign = None
            else:
                parts.append(part["part"])
        return "model", parts

    def _answer(self, answer: ToolAnswer, names: ProviderNames) -> JSONObject:
        response = {"error" if answer.is_error else "output": answer.text}
        return {
            "functionResponse": {"name": names.to_wire(answer.name), "response": response} | _id(answer.id, answer.name)
        }


class GeminiDecoder(MessageDecoder):
    """Reads one message as it comes. The stream says nothing at its end."""

    def feed(self, event: JSON) -> list[ModelEvent]:
        """Take one event, or a whole answer, which may be a list of them. Raises: ModelError."""
        if is_array(event):
            return [each for one in event for each in self.feed(one)]
        if member(event, "error") is not None:
            raise stream_error(event)
        usage = member(event, "usageMetadata", "usage_metadata")
        read = count(member(usage, "promptTokenCount")) + count(member(usage, "toolUsePromptTokenCount"))
        written = count(member(usage, "candidatesTokenCount")) + count(member(usage, "thoughtsTokenCount"))
        self.input_tokens = read or self.input_tokens
        self.output_tokens = written or self.output_tokens
        self.cached_tokens = count(member(usage, "cachedContentTokenCount")) or self.cached_tokens
        if member(member(event, "promptFeedback", "prompt_feedback"), "blockReason", "block_reason") is not None:
            self.reason = "refused"
        events: list[ModelEvent] = []
        for candidate in items(member(event, "candidates"))[:1]:
            for part in items(member(member(candidate, "content"), "parts")):
                events += self._take(part)
            reason = member(candidate, "finishReason", "finish_reason")
            if reason is None or self.reason == "refused":
                continue
            word = text_of(getattr(reason, "value", reason))
            if word in _NO_CALL and not self.calls:
                shown = provider_said(member(candidate, "finishMessage")) or word
                raise ModelError(
                    f"the model produced a malformed function call ({shown}): ask again, or rephrase the question"
                )
            self.reason = "end" if word in _NO_CALL else _REASONS.get(word, "refused")
        return events

    def _take(self, part: object) -> list[ModelEvent]:
        text, call = text_of(member(part, "text")), member(part, "functionCall", "function_call")
        if member(part, "thought") is True and call is None:
            return self.think(text)
        if call is not None:
            begun = ToolUseInPieces(text_of(member(call, "id")), text_of(member(call, "name")), extra=_signature(part))
            begun.given = member(call, "args")
            self.begin(len(self.calls), begun)
            return []
        events = self.say(text)
        if (signed := _signature(part)) is not None:
            self.keep({"text": text, **signed}, said=len(text))
        return events


def _signature(part: object) -> JSONObject | None:
    found = member(part, _SIGNATURE, "thought_signature")
    if isinstance(found, bytes):
        found = base64.b64encode(found).decode()
    return {_SIGNATURE: found} if isinstance(found, str) else None


def _id(use_id: str, name: str) -> JSONObject:
    """Return the id of a call as it goes back: not one that Gemini has never seen."""
    return {} if is_made_up(use_id) or use_id == name else {"id": use_id}


def _part(part: Text | Picture) -> JSONObject:
    if isinstance(part, Picture):
        return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}
    return {"text": part.text}
