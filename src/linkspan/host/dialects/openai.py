"""Chat completions as OpenAI defined them, and as many others speak them: Ollama, llama.cpp, vLLM, Mistral, DeepSeek, OpenRouter.

https://platform.openai.com/docs/api-reference/chat. Others leave out ids, indices and even the stream, and repeat or nest
what OpenAI says once; all that is read here. What is sent is what all of them take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from linkspan.host.dialects.shared import (
    MessageDecoder,
    ProviderNames,
    Reason,
    ToolUseInPieces,
    count,
    encoded_tools,
    interleaved,
    items,
    member,
    plain,
    read_arguments,
    short_id,
    stream_error,
    text_of,
)
from linkspan.host.messages import (
    Message,
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
from linkspan.types.base import JSON, JSONObject, is_number, is_object

_REASONS: Final[Mapping[str, Reason]] = {
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "model_length": "length",
    "content_filter": "refused",
}
_REASONING: Final = ("reasoning_content", "reasoning_details")
"""Members of a message with tool calls that DeepSeek and OpenRouter want back with it."""

_EXTRA: Final = "extra_content"
"""Where Gemini's own OpenAI-compatible endpoint keeps the signature of a call."""


class OpenAIDialect(msgspec.Struct, frozen=True):
    """Chat completions."""

    provider: str = "openai"
    """Who speaks it: reasoning goes back to the same one only."""
    tokens_member: str = "max_tokens"
    """OpenAI itself calls it `max_completion_tokens`, which most others do not know."""
    asks_usage: bool = True
    """Ask for the usage at the end of the stream, for those who do not send it anyway."""
    short_ids: bool = False
    """Ids of calls have nine letters and digits (Mistral)."""

    def path(self, model: str) -> str:
        """Return where to POST."""
        return "/chat/completions"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode_request(self, request: ModelRequest, model: str) -> JSONObject:
        """Return the body. It begins the same from request to request, which is what caches want."""
        names = ProviderNames(request.tools)
        body: JSONObject = {"model": model, "stream": True, self.tokens_member: request.max_tokens}
        if self.asks_usage:
            body["stream_options"] = {"include_usage": True}
        if tools := self.encode_tools(request.tools)[0]:
            body["tools"] = tools
        system = [{"role": "system", "content": request.system}] if request.system else []
        body["messages"] = [*system, *(each for message in request.messages for each in self._encode(message, names))]
        return body

    def encode_tools(self, tools: Sequence[ToolSpec]) -> tuple[list[JSONObject], list[str]]:
        """Return tools as the provider wants them, and in words what their schemas lost."""
        return encoded_tools(
            tools,
            "openai",
            lambda name, description, schema: {
                "type": "function",
                "function": {"name": name, "description": description, "parameters": schema},
            },
        )

    def encode_answer(self, answer: ToolAnswer) -> JSONObject:
        """Return a message of its own; it holds text only, and pictures need a message of the user's after it."""
        text = answer.text or ("The result is a picture, which follows." if answer.images else "")
        if answer.is_error and not text.lower().startswith("error"):
            text = f"Error: {text or 'it failed without an error message'}"
        return {"role": "tool", "tool_call_id": self._id(answer.id), "content": text}

    def read_tool_use(self, value: object, tools: Sequence[ToolSpec] = ()) -> ToolUse:
        """Read an item of `tool_calls`, or a `function_call` item of the Responses API. Raises: ValueError for something else."""
        function = member(value, "function") or value
        name = member(function, "name")
        if not isinstance(name, str) or member(value, "type") not in ("function", "function_call", None):
            raise ValueError("this is not a tool call of OpenAI's: pass an item of a message's tool_calls")
        arguments, problem = read_arguments(plain(member(function, "arguments")))
        use_id = text_of(member(value, "call_id", "id")) or name
        return ToolUse(use_id, ProviderNames(tools).from_wire(name), arguments, problem, _extra(value))

    def decoder(self, request: ModelRequest) -> OpenAIDecoder:
        """Return what reads the answer to this request."""
        return OpenAIDecoder(request, self.provider)

    def _id(self, use_id: str) -> str:
        return short_id(use_id) if self.short_ids else use_id

    def _encode(self, message: Message, names: ProviderNames) -> Iterable[JSONObject]:
        if isinstance(message, UserMessage):
            if message.parts:
                yield {"role": "user", "content": _content(message.parts)}
        elif isinstance(message, ToolMessage):
            yield from map(self.encode_answer, message.answers)
            pictures: list[Text | Picture] = []  # in one message of the user's, which may not stand between the answers
            for answer in message.answers:
                pictures += [Text(f"From the tool {answer.name}:"), *answer.images] if answer.images else []
            if pictures:
                yield {"role": "user", "content": _content(pictures)}
        elif message.text or message.tool_uses:
            encoded: JSONObject = {"role": "assistant", "content": message.text}
            calls: list[JSONObject] = []
            for use in message.tool_uses:
                extra = {_EXTRA: use.extra[_EXTRA]} if is_object(use.extra) and _EXTRA in use.extra else {}
                arguments = msgspec.json.encode(use.arguments).decode()
                function = {"name": names.to_wire(use.name), "arguments": arguments}
                calls.append({"id": self._id(use.id), "type": "function", "function": function, **extra})
            for part in interleaved(message, self.provider) if calls else ():
                if is_object(part) and is_object(part["part"]):
                    encoded |= part["part"]
            yield encoded | ({"tool_calls": calls} if calls else {})


class OpenAIDecoder(MessageDecoder):
    """Reads one message as it comes."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        """Begin."""
        super().__init__(request, provider)
        self._reasoning: JSONObject = {}
        self._last: ToolUseInPieces | None = None
        self._of_id: dict[str, ToolUseInPieces] = {}

    def feed(self, event: JSON) -> list[ModelEvent]:
        """Take one event, or a whole answer. Raises: ModelError."""
        if member(event, "error") is not None or member(event, "object") == "error":
            raise stream_error(event)
        usage = member(event, "usage")
        self.input_tokens = count(member(usage, "prompt_tokens")) or self.input_tokens
        self.output_tokens = count(member(usage, "completion_tokens")) or self.output_tokens
        cached = count(member(member(usage, "prompt_tokens_details"), "cached_tokens"))
        self.cached_tokens = cached or count(member(usage, "prompt_cache_hit_tokens")) or self.cached_tokens
        cost = member(usage, "cost")  # OpenRouter's, in dollars
        self.cost = float(cost) if is_number(cost) and cost > 0 else self.cost
        events: list[ModelEvent] = []
        for choice in items(member(event, "choices"))[:1]:
            whole, reason = member(choice, "message"), member(choice, "finish_reason")
            events += self._take(whole if whole is not None else member(choice, "delta"))
            if reason == "error":
                raise stream_error({"error": "it stopped with an error"})
            if isinstance(reason, str) and self.reason != "refused":
                self.reason = _REASONS.get(reason, "end")
            self.complete = self.complete or whole is not None
        return events

    def end(self, *, done: bool = False) -> list[ModelEvent]:
        """Return the last events. Raises: ModelError if the message was cut off."""
        if self._reasoning and self.calls:
            self.keep(self._reasoning)
        return super().end(done=done)

    def _take(self, delta: object) -> list[ModelEvent]:
        if details := items(member(delta, "reasoning_details")):
            self._reasoning.setdefault("reasoning_details", []).extend(details)
        if thought := text_of(member(delta, "reasoning_content")):
            self._reasoning["reasoning_content"] = self._reasoning.get("reasoning_content", "") + thought
        events = self.think(thought or text_of(member(delta, "reasoning")))
        content = member(delta, "content")
        for part in items(content):  # Mistral's, when it thinks
            thinking = member(part, "thinking")
            if thinking is None:
                events += self.say(text_of(member(part, "text")))
            else:
                pieces = (text_of(member(each, "text")) for each in items(thinking))
                events += self.think(text_of(thinking) or "".join(pieces))
        events += self.say(text_of(content))
        if refusal := text_of(member(delta, "refusal")):
            events += self.say(refusal)
            self.reason = "refused"
        for call in items(member(delta, "tool_calls")):
            self._call(call)
        return events

    def _call(self, piece: object) -> None:
        function = member(piece, "function")
        use_id, name = text_of(member(piece, "id")), text_of(member(function, "name"))
        arguments = member(function, "arguments")
        index = found if isinstance(found := member(piece, "index"), int | str) else None
        # Without an index it belongs to the call with its id, or to the last one.
        unnumbered = self._of_id.get(use_id) if use_id else self._last
        call = self.call(index) if index is not None else unnumbered
        if call is None or not call.continues(use_id, name):
            call = self.begin(index if index is not None else object(), ToolUseInPieces(use_id, name))
        self._last = call
        call.id, call.name = call.id or use_id, call.name or name
        self._of_id.setdefault(call.id, call)
        call.extra = _extra(piece) or call.extra
        if isinstance(arguments, str):
            call.take(arguments)
        elif arguments is not None:
            call.given = arguments


def _extra(value: object) -> JSON:
    extra = member(value, _EXTRA)
    return {_EXTRA: plain(extra)} if extra is not None else None


def _content(parts: Sequence[Text | Picture]) -> JSON:
    """Return a text where it is one: some servers know nothing else."""
    if all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text))
    return [
        {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}
        if isinstance(part, Picture)
        else {"type": "text", "text": part.text}
        for part in parts
    ]
