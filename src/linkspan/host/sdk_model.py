"""`SdkModel`: the asynchronous client of a provider's own SDK, in the same dialects. No SDK is imported here.

The SDK keeps the key, the connections, the deadlines and its own way of asking again.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from linkspan.host.dialects import Dialect
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.gemini import GeminiDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.dialects.reading import member, plain, provider_said
from linkspan.host.messages import ModelError, ModelEvent, ModelRequest
from linkspan.host.refusals import Address, Unreachable, rejected, without_secrets
from linkspan.types.base import JSON, JSONObject, is_array, is_object

__all__ = ["SdkModel"]

_BYTES: Final = {"data", "thoughtSignature"}
"""Members that Google's SDK takes as bytes where its wire has base64."""


class SdkModel:
    """A model behind an SDK's client: `anthropic.AsyncAnthropic`, `openai.AsyncOpenAI` or `google.genai.Client`."""

    def __init__(self, client: Any, model: str, *, options: JSONObject | None = None) -> None:
        """Ask `model` through `client`. `options` are further arguments of each request, as the SDK names them.

        Raises: TypeError for a client that is none of these.
        """
        self.dialect, self._open = _adapter(client)
        self.address = Address(name=f"{self.dialect.provider}:{model}", model=model)
        self._options = options or {}
        self._client = client

    def __repr__(self) -> str:
        return f"SdkModel({self.name!r})"

    @property
    def name(self) -> str:
        """What people call it."""
        return self.address.name

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Return the next message as it comes. Raises: ModelError."""
        body = self.dialect.encode_request(request, self.address.model)
        decoder = self.dialect.decoder(request)
        stream: Any = None
        try:
            stream = await self._open(self.address.model, body, self._options)
            async for event in stream:
                for each in decoder.feed(plain(event)):
                    yield each
                if decoder.complete:
                    break
            for each in decoder.end(done=self.dialect.provider == "openai"):  # its SDK keeps the end to itself
                yield each
        except ModelError as error:
            raise without_secrets(error, self.address, self._secrets()) from None
        except Exception as error:
            raise self._failed(error) from None
        finally:
            await _close(stream)

    def _failed(self, error: Exception) -> ModelError:
        """Return an SDK's error as one of ours. Its own text is a provider's: shown as such, without secrets."""
        status = member(error, "status_code", "code")
        if not isinstance(status, int):
            said = provider_said(str(error)) or "it does not say why"
            return without_secrets(
                Unreachable(f"the SDK failed with {type(error).__name__}: {said}"), self.address, self._secrets()
            )
        body: JSON = member(error, "body", "details") or str(member(error, "message") or error)
        refused = rejected(self.address, status, body if is_object(body) or is_array(body) else str(body))
        return without_secrets(refused, self.address, self._secrets())

    def _secrets(self) -> list[str]:
        """Return the key, where the client tells it: providers repeat it when they refuse it."""
        keys = (member(self._client, "api_key"), member(member(self._client, "_api_client"), "api_key"))
        return [key for key in keys if isinstance(key, str)]


def _adapter(client: Any) -> tuple[Dialect, Callable[[str, JSONObject, JSONObject], Awaitable[Any]]]:
    """Find out whose client it is by what it can do."""
    if any(kind.__name__ == "SyncAPIClient" for kind in type(client).__mro__):
        kind = type(client).__name__
        raise TypeError(f"{kind} blocks while it waits: give the asynchronous client, Async{kind}")
    complete: Any = member(member(member(client, "chat"), "completions"), "create")
    if complete is not None:
        return OpenAIDialect(tokens_member="max_completion_tokens"), lambda _, body, more: complete(**body, **more)
    create: Any = member(member(client, "messages"), "create")
    if create is not None:
        return AnthropicDialect(), lambda _, body, more: create(**body, **more)
    generate: Any = member(member(member(client, "aio"), "models"), "generate_content_stream")
    if generate is not None:
        return GeminiDialect(), lambda model, body, more: generate(model=model, **_google(body, more))
    raise TypeError(
        f"a {type(client).__name__} is not a model client: give anthropic.AsyncAnthropic, openai.AsyncOpenAI or "
        "google.genai.Client"
    )


def _google(body: JSONObject, options: JSONObject) -> JSONObject:
    """Return the arguments that Google's SDK wants: all but the contents is its `config`."""
    config = {name: each for name, each in body.items() if name not in ("contents", "generationConfig")}
    config |= {"automaticFunctionCalling": {"disable": True}} | body["generationConfig"] | options
    return {"contents": _with_bytes(body["contents"]), "config": config}


def _with_bytes(value: JSON) -> JSON:
    if is_array(value):
        return [_with_bytes(each) for each in value]
    if not is_object(value):
        return value
    return {name: _decoded(name, each) for name, each in value.items()}


def _decoded(name: str, value: JSON) -> JSON:
    if name in ("args", "response"):
        return value  # a tool's own members
    if name in _BYTES and isinstance(value, str):
        return base64.b64decode(value.replace("-", "+").replace("_", "/") + "==")
    return _with_bytes(value)


async def _close(stream: Any) -> None:
    for name in ("close", "aclose"):
        close = getattr(stream, name, None)
        if callable(close):
            closing: Any = close()
            if isinstance(closing, Awaitable):
                await closing
            return
