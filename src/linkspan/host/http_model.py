"""`HttpModel`: any provider over HTTP, in its wire format. Retries as long as nothing was received, and never shows the key."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final, Self, TypeVar

import msgspec

from linkspan.client.transports.http_requests import HttpFailure, HttpPort, HttpReply
from linkspan.errors import import_problem
from linkspan.flows.requesting import backoff
from linkspan.host.dialects import Dialect, StreamDecoder
from linkspan.host.dialects.shared import items, member, problem_of, provider_said
from linkspan.host.messages import ModelError, ModelEvent, ModelRequest
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.wire.framing import EventReader
from linkspan.wire.headers import media_type
from linkspan.wire.redaction import redact

_OVERLOADED: Final = "the provider is overloaded: ask again later"
_STATUSES: Final[Mapping[int | None, str]] = {
    None: "there was no response",
    0: "{url} answered with status {status}, so it may not be the URL of a model: check it",
    400: "the provider refused the request (status {status})",
    401: "{key} was refused",
    402: "the account has no credit left: see the provider's billing page",
    403: "{key} does not permit this",
    404: "there is no model {model!r}{at}: {advice}",
    413: "the conversation is too large for this provider: begin a new one, or show fewer tools",
    429: "the limit of requests is reached: wait a little, or ask the provider for more",
    500: "the provider failed (status {status}): ask again later",
    503: _OVERLOADED,
    529: _OVERLOADED,
}
"""What a status means, and what to do; 400 and 500 stand for those above them, and 0 for all others."""
_NO_CREDIT: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_error")


class Address(msgspec.Struct, frozen=True):
    """Where a model is, as errors name it; nothing in it is secret."""

    name: str
    """For example "anthropic:claude-sonnet-4-5"."""
    model: str
    url: str = ""
    """Of the provider, without a password; empty where an SDK knows it."""
    key_name: str = ""
    """The environment variable that holds the key, or would; empty if the key was given otherwise."""
    has_key: bool = True
    unreachable_hint: str = ""
    """What to ask when nothing listens, such as "is Ollama running?"."""
    unknown_model: str = ""
    """What to do when there is no such model."""


class Unreachable(ModelError):
    """There is no connection to the provider, or it was lost before an answer came."""


class OutOfCredit(ModelError):
    """The account must be paid for first; asking again does not help."""


def rejected(address: Address, status: int | None, body: JSON, *, retry_after: float | None = None) -> ModelError:
    """Return the error for an answer with an error status; `body` as JSON, or as text."""
    message, kind, _ = problem_of(body)
    meant = status
    if kind in _NO_CREDIT:
        meant = 402
    elif status != 402 and any(member(detail, "reason") == "API_KEY_INVALID" for detail in _details(body)):
        meant = 401  # Google answers 400
    if meant not in _STATUSES and meant is not None:
        meant = 500 if meant >= 500 else 400 if meant >= 400 else 0
    what = _STATUSES[meant].format(
        key=f"the key in {address.key_name}" if address.key_name and address.has_key else "the key",
        model=address.model,
        url=address.url,
        at=f" at {address.url}" if address.url else "",
        advice=address.unknown_model or "check its name",
        status=status,
    )
    if meant == 401 and not address.has_key:
        what = f"it requires a key{f': set {address.key_name}' if address.key_name else ''}"
    said = provider_said(message)
    text = f"{address.name}: {what}{f' ({said})' if said else ''}"
    return (OutOfCredit if meant == 402 else ModelError)(text, status=status, retry_after=retry_after)


def unreachable(address: Address, why: str, *, sent: bool) -> Unreachable:
    """Return the error for a connection that failed; `sent`: after the request had gone out."""
    if sent:
        return Unreachable(
            f"{address.name}: the connection to {address.url} was lost ({provider_said(why)}): ask again"
        )
    if "refused" in why:
        question = address.unreachable_hint or "check the URL, and that the server is running"
        return Unreachable(f"{address.name}: nothing listens at {address.url}: {question}")
    return Unreachable(f"{address.name}: {address.url} cannot be reached ({provider_said(why)})")


def without_secrets(error: ModelError, address: Address, secrets: Iterable[str]) -> ModelError:
    """Return the error with the model's name in front, and without the key, whatever the provider echoed."""
    text = redact(str(error), secrets)
    if not text.startswith(address.name):
        text = f"{address.name}: {text}"
    return type(error)(text, status=error.status, retry_after=error.retry_after)


def _details(body: JSON) -> list[JSON]:
    """Return the details of an error of Google's."""
    return items(member(member(body[0] if is_array(body) and body else body, "error"), "details"))


RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""What passes by itself."""

_SECONDS: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on asking again: each pause is about twice as long as the one before."""

    attempts: int = 5
    """How often a request is sent at most."""
    connections: int = 3
    """How often at most while there is no connection: a server that was not started should be reported soon."""
    first: float = 1.0
    """Seconds of the first pause."""
    longest: float = 30.0
    """Seconds of the longest pause that we choose."""
    patience: float = 60.0
    """Seconds that a provider may ask for; if it wants more, its error is raised at once."""

    def pause(self, failures: int, chance: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after so many failures, or None to give up. `chance` is between 0 and 1."""
        if failures >= self.attempts or (retry_after is not None and retry_after > self.patience):
            return None
        return max(backoff(failures, chance, self.first, self.longest), retry_after or 0.0)


def read_retry_after(headers: Mapping[str, str], body: JSON, now: float) -> float | None:
    """Return the seconds after which to come back, as the headers (names in lower case) or Google's body say it.

    `now` is the time of day, for a header that names a moment.
    """
    if (milliseconds := _SECONDS.fullmatch(headers.get("retry-after-ms", ""))) is not None:
        return float(milliseconds[1]) / 1000
    header = headers.get("retry-after", "")
    if (seconds := _SECONDS.fullmatch(header)) is not None:
        return float(seconds[1])
    if not header:
        delays = (member(detail, "retryDelay") for detail in _details(body))
        given = (_SECONDS.fullmatch(delay.removesuffix("s")) for delay in delays if isinstance(delay, str))
        return next((float(found[1]) for found in given if found is not None), None)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, OverflowError):
        return None


T = TypeVar("T")
_MAX_EVENT: Final = 16 * 1024 * 1024
_MAX_ANSWER: Final = 64 * 1024 * 1024
_MAX_ERROR: Final = 65536
_DONE: Final = "[DONE]"


class ModelTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds."""

    connect: float = 15.0
    """Until there is a connection."""
    first: float = 300.0
    """Until the first byte of the answer: a local model may have to be loaded first."""
    idle: float = 120.0
    """Between two pieces of the answer."""


class HttpModel:
    """A model behind a URL. Make one with `open_model`.

    Inside `async with` its connections stay open from message to message; without, each message has its own. One model serves
    any number of tasks.
    """

    def __init__(
        self,
        dialect: Dialect,
        address: Address,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        options: JSONObject | None = None,
        timeouts: ModelTimeouts | None = None,
        backoff: Backoff | None = None,
        open_port: Callable[[], HttpPort] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Speak `dialect` at `address`. `options` are further members of each request's body, as the provider names them."""
        self.dialect = dialect
        self.address = address
        self._key = key
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._options = options or {}
        self._timeouts = timeouts or ModelTimeouts()
        self._backoff = backoff or Backoff()
        self._open_port = open_port or self._pool
        self._sleep = sleep
        self._chance = chance
        self._kept: HttpPort | None = None
        self._secrets = [value for value in (key, *self._headers.values()) if value]

    def __repr__(self) -> str:
        return f"HttpModel({self.name!r})"

    @property
    def name(self) -> str:
        """What people call it."""
        return self.address.name

    async def __aenter__(self) -> Self:
        """Keep connections open from now on."""
        self._kept = self._open_port()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Return the next message as it comes. Raises: ModelError.

        What passes by itself (too many requests, an overloaded provider, no connection) is tried again, if nothing was said yet.
        """
        members = self.dialect.encode_request(request, self.address.model) | self._options
        try:
            body = msgspec.json.encode(members)
        except UnicodeEncodeError:  # halves of characters, which UTF-8 does not have, become question marks
            body = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
        failures = 0
        while True:
            begun = False
            try:
                async with aclosing(self._ask(request, body)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ModelError as error:
                safe = without_secrets(error, self.address, self._secrets)
            failures += 1
            pause = self._backoff.pause(failures, self._chance(), safe.retry_after)
            passes = safe.status in RETRIED and not isinstance(safe, OutOfCredit)
            if isinstance(safe, Unreachable):
                passes = failures < self._backoff.connections
            if begun or pause is None or not passes:
                raise safe
            logging.getLogger("linkspan.host").info(
                "%s is asked again in %.1f s (attempt %d): %s", self.address.model, pause, failures + 1, safe
            )
            await self._sleep(pause)

    async def _ask(self, request: ModelRequest, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        """Send the request once."""
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            **self.dialect.headers(self._key),
            **self._headers,
        }
        url = f"{self.address.url}{self.dialect.path(self.address.model)}"
        kept = self._kept
        port = kept if kept is not None else self._open_port()
        try:
            asked = port.send("POST", url, headers, body)
            deadline = asyncio.get_running_loop().time() + self._timeouts.first
            reply = await self._until(deadline, asked.__aenter__())
            try:
                async with aclosing(self._read(reply, self.dialect.decoder(request), deadline)) as events:
                    async for event in events:
                        yield event
            finally:
                await asked.__aexit__(None, None, None)
        except HttpFailure as failure:
            raise unreachable(self.address, str(failure), sent=failure.sent) from None
        finally:
            if kept is None:
                await port.close()

    async def _read(
        self, reply: HttpReply, decoder: StreamDecoder, deadline: float
    ) -> AsyncGenerator[ModelEvent, None]:
        chunks = self._chunks(reply, deadline)
        if reply.status != 200:
            text = await _whole(chunks, _MAX_ERROR, cut=True)
            try:
                body: JSON = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                body = None if text.lstrip().startswith(b"<") else text.decode("utf-8", "replace")
            after = read_retry_after(reply.headers, body, time.time())
            raise rejected(self.address, reply.status, body, retry_after=after)
        kind = media_type(reply.headers.get("content-type", ""))
        if kind == "application/json":
            for event in (*decoder.feed(_json(await _whole(chunks, _MAX_ANSWER))), *decoder.end(done=True)):
                yield event
            return
        reader, ended, done, has_data = EventReader(_MAX_EVENT), False, False, False
        while not (ended or done or decoder.complete):
            chunk = await anext(chunks, None)
            ended = chunk is None  # the empty line that ends the last event is left out by some
            try:
                received = reader.receive_data(b"\n\n" if chunk is None else chunk)
            except ValueError as problem:
                raise ModelError(f"invalid event stream: {problem}") from None
            for sent in received:
                has_data = has_data or bool(sent.data)
                done = done or sent.data.strip() == _DONE
                for event in decoder.feed(_json(sent.data)) if sent.data.strip() and not done else ():
                    yield event
        if not has_data:
            shown = f"{kind[:60] or 'no content type'} and no events"
            raise ModelError(f"the response has {shown}: check that {self.address.url} is the URL of a model")
        for event in decoder.end(done=done):
            yield event

    async def _chunks(self, reply: HttpReply, deadline: float) -> AsyncIterator[bytes]:
        """Return the chunks of an answer; between two of them no more than the idle time."""
        while True:
            try:
                chunk = await self._until(deadline, anext(reply.chunks))
            except StopAsyncIteration:
                return
            yield chunk
            deadline = asyncio.get_running_loop().time() + self._timeouts.idle

    async def _until(self, deadline: float, awaitable: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(deadline):
                return await awaitable
        except TimeoutError:
            raise ModelError(
                f"{self.name}: the model sent nothing for too long: ask again, or raise timeouts="
            ) from None

    def _pool(self) -> HttpPort:
        try:
            from linkspan.client.transports.http_connections import Routes
            from linkspan.client.transports.http_loops import LoopPool
        except ImportError as error:
            raise ModelError(import_problem(f"{self.name}: this needs httptools", "http", error)) from None
        return LoopPool(Routes(None, self._timeouts.connect), asyncio.get_running_loop())


def _json(data: str | bytes) -> JSON:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ModelError("the response is not valid JSON: check that this is the URL of a model") from None


async def _whole(chunks: AsyncIterator[bytes], bound: int, *, cut: bool = False) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > bound:
            if cut:
                break
            raise ModelError(f"the answer is larger than {bound} bytes")
    return bytes(data[:bound])
