"""Providers of models that are not there: real HTTP with the shapes of the public API documents, and their rules.

A request that breaks a rule is refused with status 400 in the provider's own words, as the provider would.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import msgspec
from aiohttp import web

from linkspan.host.models import open_model

Kind: TypeAlias = Literal["anthropic", "openai", "gemini"]
KINDS: tuple[Kind, ...] = ("anthropic", "openai", "gemini")
KEY = "test-key-0123456789abcdef"

Call: TypeAlias = tuple[str, dict[str, Any]]
Part: TypeAlias = str | Call

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class Answer(msgspec.Struct):
    """What a provider answers: parts of a message, events as they are, or a body with a status."""

    parts: Sequence[Part] = ()
    events: Sequence[Any] | None = None
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = {}
    pieces: int = 0
    """Send the stream in pieces of so many bytes; 0: event by event."""
    hangs: bool = False
    """Say nothing more after the events, and do not end."""
    cut: bool = False
    """Break the connection after the events."""


class FakeProvider:
    """One provider; `requests` is what it was asked, with headers and path."""

    def __init__(self, kind: Kind, answers: Iterable[Answer | Sequence[Part]] = ()) -> None:
        self.kind = kind
        self.answers = [each if isinstance(each, Answer) else Answer(each) for each in answers]
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.connections: set[Any] = set()
        self.url = ""

    def open(self, **options: Any) -> Any:
        """Return a model that speaks to it."""
        name = {"anthropic": "ANTHROPIC", "openai": "OPENAI", "gemini": "GEMINI"}[self.kind]
        base = f"{self.url}/v1" if self.kind == "openai" else self.url
        environ = {f"{name}_BASE_URL": base, f"{name}_API_KEY": KEY}
        return open_model(f"{self.kind}:some-model", environ=environ, **options)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[FakeProvider, None]:
        """Listen until the end of the block."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path_qs)
        self.connections.add(request.transport)
        problems = [*_CHECKS[self.kind](body, self.headers[-1], request.path_qs)]
        if problems:
            return web.json_response(_refusal(self.kind, "; ".join(problems)), status=400)
        answer = self.answers.pop(0)
        if answer.body is not None:
            if isinstance(answer.body, str):
                return web.Response(
                    text=answer.body, status=answer.status, headers=answer.headers, content_type="text/html"
                )
            return web.json_response(answer.body, status=answer.status, headers=answer.headers)
        events = answer.events if answer.events is not None else message(self.kind, answer.parts)
        return await self._stream(request, answer, stream(self.kind, events))

    async def _stream(self, request: web.Request, answer: Answer, frames: list[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **answer.headers})
        await response.prepare(request)
        whole = b"".join(frames)
        size = answer.pieces
        for piece in [whole[at : at + size] for at in range(0, len(whole), size)] if size else frames:
            await response.write(piece)
        if answer.hangs:
            await asyncio.sleep(30)
        if answer.cut and request.transport is not None:
            request.transport.abort()
        return response


# What they say.


def stream(kind: Kind, events: Iterable[Any]) -> list[bytes]:
    """Return events as the provider frames them."""
    if kind == "anthropic":
        return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    end = "\r\n\r\n" if kind == "gemini" else "\n\n"
    return [f"data: {event if isinstance(event, str) else json.dumps(event)}{end}".encode() for event in events]


def message(kind: Kind, parts: Sequence[Part]) -> list[Any]:
    """Return the events of one message."""
    return {"anthropic": _anthropic, "openai": _openai, "gemini": _gemini}[kind](parts)


def _anthropic(parts: Sequence[Part]) -> list[Any]:
    events: list[Any] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": "some-model",
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 7,
                    "cache_creation_input_tokens": 2,
                    "cache_read_input_tokens": 3,
                    "output_tokens": 1,
                },
            },
        },
        {"type": "ping"},
    ]
    for index, part in enumerate(parts):
        if isinstance(part, str):
            block: Any = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _halves(part)]
        else:
            block = {"type": "tool_use", "id": f"toolu_{_number()}", "name": part[0], "input": {}}
            pieces = ["", *_halves(json.dumps(part[1]))]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]
    reason = "end_turn" if all(isinstance(part, str) for part in parts) else "tool_use"
    return [
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def _openai(parts: Sequence[Part]) -> list[Any]:
    deltas: list[Any] = [{"role": "assistant", "content": "", "refusal": None}]
    index = 0
    for part in parts:
        if isinstance(part, str):
            deltas += [{"content": piece} for piece in _halves(part)]
            continue
        function: Any = {"name": part[0], "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": f"call_{_number()}", "type": "function", "function": function}]}
        )
        for piece in _halves(json.dumps(part[1])):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        index += 1
    chunk: Any = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "some-model"}
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    return [
        *(chunk | {"choices": [{"index": 0, "delta": each, "finish_reason": None}], "usage": None} for each in deltas),
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if index else "stop"}]},
        chunk | {"choices": [], "usage": usage},
        "[DONE]",
    ]


def _gemini(parts: Sequence[Part]) -> list[Any]:
    shown: list[list[Any]] = []
    signed = False
    for part in parts:
        if isinstance(part, str):
            shown += [[{"text": piece}] for piece in _halves(part)]
            continue
        call: Any = {"functionCall": {"name": part[0], "args": part[1]}}
        shown.append([call if signed else call | {"thoughtSignature": "c2lnbmVk"}])
        signed = True
    usage = {
        "promptTokenCount": 12,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 1,
        "totalTokenCount": 17,
        "cachedContentTokenCount": 3,
    }
    return [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": each},
                    "index": 0,
                    **({"finishReason": "STOP"} if each is shown[-1] else {}),
                }
            ],
            "usageMetadata": usage,
            "modelVersion": "some-model",
        }
        for each in shown
    ]


_count = iter(range(1, 1_000_000))


def _number() -> str:
    return f"{next(_count):06d}"


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _refusal(kind: Kind, problem: str) -> Any:
    if kind == "anthropic":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}
    if kind == "openai":
        return {"error": {"message": problem, "type": "invalid_request_error", "param": None, "code": None}}
    return {"error": {"code": 400, "message": problem, "status": "INVALID_ARGUMENT"}}


# Their rules.


def check_anthropic(body: Any, headers: Mapping[str, str], path: str) -> Iterable[str]:
    """Say which rules of the Messages API a request breaks."""
    if path != "/v1/messages":
        yield f"path {path}"
    if not headers.get("anthropic-version"):
        yield "anthropic-version: header is required"
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield f"{name}: Field required"
    yield from (f"{name}: Extra inputs are not permitted" for name in body.keys() - _ANTHROPIC_MEMBERS)
    if json.dumps(body).count('"cache_control"') > 4:
        yield "A maximum of 4 blocks with cache_control may be provided"
    yield from _names(tool["name"] for tool in body.get("tools", []))
    messages = body["messages"]
    for place, each in enumerate(messages):
        if each["role"] != ("user", "assistant")[place % 2]:
            yield f"messages.{place}: roles must alternate"
        if not each["content"]:
            yield f"messages.{place}: content must not be empty"
        for block in each["content"]:
            if block["type"] == "text" and not block["text"].strip():
                yield f"messages.{place}: text content blocks must contain non-whitespace text"
        answered = [block["tool_use_id"] for block in each["content"] if block["type"] == "tool_result"]
        asked = (
            [block["id"] for block in messages[place - 1]["content"] if block["type"] == "tool_use"] if place else []
        )
        if answered != asked:
            yield f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if any(block["type"] != "tool_result" for block in each["content"][: len(answered)]):
            yield f"messages.{place}: tool_result blocks must come first"
    if not body.get("tools") and "'tool_use'" in str(messages):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if messages and any(block["type"] == "tool_use" for block in messages[-1]["content"]):
        yield "tool_use without an answer"


_ANTHROPIC_MEMBERS = {"model", "max_tokens", "messages", "stream", "system", "tools", "thinking", "temperature"}


def check_openai(body: Any, headers: Mapping[str, str], path: str) -> Iterable[str]:
    """Say which rules of chat completions a request breaks."""
    if path != "/v1/chat/completions":
        yield f"path {path}"
    if "model" not in body or "messages" not in body:
        yield "you must provide a model parameter"
    yield from _names(tool["function"]["name"] for tool in body.get("tools", []))
    wanted: list[str] = []
    for place, each in enumerate(body["messages"]):
        if each["role"] == "tool":
            if each["tool_call_id"] not in wanted:
                yield f"messages[{place}]: tool_call_id was not found in the message before"
            else:
                wanted.remove(each["tool_call_id"])
            if not isinstance(each["content"], str):
                yield f"messages[{place}]: content of a tool is text"
            continue
        if wanted:
            yield f"messages[{place}]: tool_call_ids did not have response messages: {wanted}"
        wanted = [call["id"] for call in each.get("tool_calls", [])]
        for call in each.get("tool_calls", []):
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                yield f"messages[{place}]: arguments are no object"
    if wanted:
        yield f"tool_call_ids did not have response messages: {wanted}"


def check_gemini(body: Any, headers: Mapping[str, str], path: str) -> Iterable[str]:
    """Say which rules of generateContent a request breaks."""
    if not re.fullmatch(r"/v1(beta)?/models/some-model:streamGenerateContent\?alt=sse", path):
        yield f"path {path}"
    yield from (f"Unknown name {name!r}" for name in body.keys() - _GEMINI_MEMBERS)
    for tool in body.get("tools", []):
        yield from _names(each["name"] for each in tool["functionDeclarations"])
    contents = body["contents"]
    if not contents or contents[0]["role"] != "user":
        yield "contents must begin with the user's"
    asked: list[Any] = []
    for place, each in enumerate(contents):
        answered = [part["functionResponse"] for part in each["parts"] if "functionResponse" in part]
        if [one["name"] for one in answered] != [one["name"] for one in asked]:
            yield f"contents[{place}]: function response parts are not as many as function call parts"
        if [one.get("id") for one in answered] != [one.get("id") for one in asked]:
            yield f"contents[{place}]: ids do not match"
        calls = [part for part in each["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            yield f"contents[{place}]: Function call is missing a thought_signature"
        asked = [part["functionCall"] for part in calls]
    if asked:
        yield "function calls without responses"


_GEMINI_MEMBERS = {"contents", "systemInstruction", "tools", "generationConfig", "toolConfig", "safetySettings"}
_CHECKS = {"anthropic": check_anthropic, "openai": check_openai, "gemini": check_gemini}


def _names(names: Iterable[str]) -> Iterable[str]:
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"tools: {name!r} does not match the pattern"
        if name in seen:
            yield f"tools: tool names must be unique: {name!r}"
        seen.add(name)
