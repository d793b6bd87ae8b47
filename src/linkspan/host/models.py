"""`open_model`: a model by its name, such as "anthropic:NAME". How to name one: docs/models.md.

Names of models are the providers' and age quickly, so there is no default.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from linkspan.errors import LinkspanError
from linkspan.host.dialects import Dialect
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.gemini import GeminiDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.dialects.shared import member, plain, provider_said
from linkspan.host.http_model import (
    Address,
    Backoff,
    HttpModel,
    ModelTimeouts,
    OutOfCredit,
    Unreachable,
    rejected,
    without_secrets,
)
from linkspan.host.messages import Model, ModelError, ModelEvent, ModelRequest
from linkspan.host.scripted import ScriptedModel, read_script
from linkspan.plugins import MODELS, added, names_added
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.redaction import redact

__all__ = [
    "Backoff",
    "HttpModel",
    "ModelTimeouts",
    "OutOfCredit",
    "ScriptedModel",
    "SdkModel",
    "Unreachable",
    "UnusableModel",
    "open_model",
]

_ANY_KEY: Final = "LINKSPAN_MODEL_KEY"
_SPELLINGS: Final = (
    "anthropic:NAME, openai:NAME, gemini:NAME, mistral:NAME, ollama:NAME, "
    "http://HOST:PORT/v1#NAME for any OpenAI-compatible server, or scripted:FILE"
)
_FAMILIES: Final = {
    "anthropic": ("claude",),
    "openai": ("gpt", "o1", "o3", "o4"),
    "gemini": ("gemini",),
    "mistral": ("mistral", "codestral"),
    "ollama": ("llama", "qwen"),
}
"""How the names of a provider's models begin."""


class UnusableModel(LinkspanError, ValueError):
    """The name is not a model's, or something is missing to use it; the message names the remedy."""


class _Provider(msgspec.Struct, frozen=True):
    """Where a provider is, and what it wants."""

    dialect: Callable[[], Dialect]
    url: str
    url_name: str
    """The environment variable that says another URL."""
    key_names: tuple[str, ...] = ()
    """The environment variables that may hold the key, the usual one first; none: it needs no key."""


_PROVIDERS: Final = {
    "anthropic": _Provider(AnthropicDialect, "https://api.anthropic.com", "ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY",)),
    "openai": _Provider(
        lambda: OpenAIDialect(tokens_member="max_completion_tokens"),
        "https://api.openai.com/v1",
        "OPENAI_BASE_URL",
        ("OPENAI_API_KEY",),
    ),
    "gemini": _Provider(
        GeminiDialect,
        "https://generativelanguage.googleapis.com",
        "GEMINI_BASE_URL",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "mistral": _Provider(
        lambda: OpenAIDialect(provider="mistral", asks_usage=False, short_ids=True),
        "https://api.mistral.ai/v1",
        "MISTRAL_BASE_URL",
        ("MISTRAL_API_KEY",),
    ),
    "ollama": _Provider(lambda: OpenAIDialect(provider="ollama"), "http://localhost:11434/v1", "OLLAMA_HOST"),
}


def open_model(name: str, *, key: str | None = None, environ: Mapping[str, str] | None = None, **options: Any) -> Model:
    """Return the model of this name; keys come from the environment unless `key` is given. Nothing is sent yet.

    A provider that is not built in may come from another distribution: an entry point of the group "linkspan.models" with its
    name is a function `(name, *, key, **options)` that returns a `Model`.

    `options` are those of `HttpModel`: `options`, `headers`, `timeouts`, `backoff`. Raises: UnusableModel, a ValueError.

        model = open_model("anthropic:claude-sonnet-4-5")
        model = open_model("http://localhost:8080/v1#qwen3")
    """
    given = os.environ if environ is None else environ
    if re.match(r"https?://", name):
        return _at_url(name, key, given, options)
    provider, colon, model = name.partition(":")
    if not colon:
        family = next((each for each, begins in _FAMILIES.items() if name.lower().startswith(begins)), None)
        advice = f"do you mean {family}:{name}?" if family is not None else f"write {_SPELLINGS}"
        raise UnusableModel(f"{name!r} does not name a provider: {advice}")
    if not model.strip():
        raise UnusableModel(f"{name!r} does not name a model: write {provider}:NAME")
    if provider == "scripted":
        try:
            return ScriptedModel(read_script(model), name=name)
        except OSError as error:
            raise UnusableModel(f"{model!r} cannot be read: {error.strerror or error}") from None
        except ValueError as problem:
            raise UnusableModel(str(problem)) from None
    if provider not in _PROVIDERS:
        if (made := added(MODELS, provider)) is not None:
            opened: Model = made(model, key=key, **options)
            return opened
        others = "".join(f", {each}:NAME" for each in names_added(MODELS))
        raise UnusableModel(f"there is no provider {provider!r}: write {_SPELLINGS}{others}")
    return _of_provider(provider, model, key, given, options)


def _of_provider(
    provider: str, model: str, key: str | None, environ: Mapping[str, str], options: Mapping[str, Any]
) -> HttpModel:
    known = _PROVIDERS[provider]
    found, key_name = _usable(key, "key="), ""
    if key is None:  # of several variables, the first that is set
        found, key_name = None, known.key_names[0] if known.key_names else ""
        for name in known.key_names:
            if found is None and (found := _usable(environ.get(name), name)) is not None:
                key_name = name
    elsewhere = environ.get(known.url_name, "").strip()
    if found is None and known.key_names and not elsewhere:
        raise UnusableModel(f"{provider}:{model} needs a key: set {' or '.join(known.key_names)}")
    url = known.url
    if elsewhere:
        url = _ollama_url(elsewhere) if provider == "ollama" else _checked_url(elsewhere, known.url_name)
    local = provider == "ollama"
    address = Address(
        name=f"{provider}:{model}",
        model=model,
        url=url.rstrip("/"),
        key_name=key_name,
        has_key=found is not None,
        unreachable_hint="is Ollama running?" if local else "",
        unknown_model=f"get it with `ollama pull {model}`" if local else "",
    )
    dialect = OpenAIDialect() if provider == "openai" and elsewhere else known.dialect()
    return HttpModel(dialect, address, key=found, **options)


def _at_url(name: str, key: str | None, environ: Mapping[str, str], options: Mapping[str, Any]) -> HttpModel:
    """Speak to any OpenAI-compatible server. The keys of the known providers are not for it."""
    url, _, model = name.partition("#")
    url = _checked_url(url, "the model's name")
    if not model:
        raise UnusableModel(f"{redact(name)!r} does not name a model: write {url}#NAME")
    found = _usable(key if key is not None else environ.get(_ANY_KEY), _ANY_KEY)
    address = Address(
        name=f"{url}#{model}",
        model=model,
        url=url.rstrip("/"),
        key_name=_ANY_KEY if key is None else "",
        has_key=found is not None,
        unknown_model="check its name, and the path of the URL, which often ends with /v1",
    )
    host = urlsplit(url).hostname or "openai"
    return HttpModel(OpenAIDialect(provider=host), address, key=found, **options)


def _usable(key: str | None, name: str) -> str | None:
    """Return a key without the space around it; None for an empty one. What no header can carry is never shown."""
    key = (key or "").strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise UnusableModel(
            f"the value of {name} is not a valid key: it contains spaces, line ends or letters outside ASCII"
        )
    return key or None


def _checked_url(url: str, where: str) -> str:
    """Return a base URL. A password in it would end up in errors, and belongs elsewhere."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, usable = urlsplit(""), False
    if not usable:
        raise UnusableModel(f"{redact(url)!r} in {where} is not a valid URL: write http://HOST:PORT/v1 or the like")
    if "@" in parts.netloc or parts.query:
        raise UnusableModel(
            f"the URL in {where} contains more than an address: put the key into {_ANY_KEY}, or as key="
        )
    return url.strip()


def _ollama_url(host: str) -> str:
    """Return the base URL for a value of OLLAMA_HOST, which may lack scheme, host or port, or be an address to listen at."""
    url = host if "//" in host else f"http://{host}"
    parts = urlsplit(_checked_url(url.replace("//:", "//localhost:"), "OLLAMA_HOST"))
    name = "localhost" if parts.hostname in ("0.0.0.0", "::", None) else parts.hostname
    name = f"[{name}]" if ":" in name else name
    port = parts.port or (11434 if "//" not in host else {"http": 80, "https": 443}[parts.scheme])
    return f"{parts.scheme}://{name}:{port}{parts.path.rstrip('/')}/v1"


_BYTES: Final = {"data", "thoughtSignature"}
"""Members that Google's SDK takes as bytes where its wire has base64."""


class SdkModel:
    """A model behind an SDK's client: `anthropic.AsyncAnthropic`, `openai.AsyncOpenAI` or `google.genai.Client`."""

    def __init__(self, client: Any, model: str, *, options: JSONObject | None = None) -> None:
        """Ask `model` through `client`. `options` are further arguments of each request, as the SDK names them.

        Raises: TypeError for any other client.
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
        except Exception as error:  # its own text is a provider's
            status = member(error, "status_code", "code")
            refusal: JSON = member(error, "body", "details") or str(member(error, "message") or error)
            if isinstance(status, int):
                failed = rejected(
                    self.address, status, refusal if is_object(refusal) or is_array(refusal) else str(refusal)
                )
            else:
                said = provider_said(str(error)) or "it gave no reason"
                failed = Unreachable(f"the SDK failed with {type(error).__name__}: {said}")
            raise without_secrets(failed, self.address, self._secrets()) from None
        finally:
            close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
            closing: Any = close() if callable(close) else None
            if isinstance(closing, Awaitable):
                await closing

    def _secrets(self) -> list[str]:
        """Return the key, where the client tells it: providers repeat it when they refuse it."""
        keys = (member(self._client, "api_key"), member(member(self._client, "_api_client"), "api_key"))
        return [key for key in keys if isinstance(key, str)]


def _adapter(client: Any) -> tuple[Dialect, Callable[[str, JSONObject, JSONObject], Awaitable[Any]]]:
    """Find out whose client it is by what it can do."""
    if any(kind.__name__ == "SyncAPIClient" for kind in type(client).__mro__):
        kind = type(client).__name__
        raise TypeError(f"{kind} is synchronous: pass the asynchronous client, Async{kind}")
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
        f"a {type(client).__name__} is not a model client: pass anthropic.AsyncAnthropic, openai.AsyncOpenAI or "
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
    found: JSONObject = {}
    for name, each in value.items():
        if name in ("args", "response"):  # a tool's own members
            found[name] = each
        elif name in _BYTES and isinstance(each, str):
            found[name] = base64.b64decode(each.replace("-", "+").replace("_", "/") + "==")
        else:
            found[name] = _with_bytes(each)
    return found
