"""What a handler can see of its request and do to it. It needs no `await`: everything goes to an outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Never, Protocol, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from linkspan.core.call import Lifespan
from linkspan.errors import ExchangeError, RequestCancelled
from linkspan.revisions import MESSAGES
from linkspan.revisions.neutral import NOTHING, PAGE_DONE, PING, Grant, Peer, Request
from linkspan.schema.results import encode_json
from linkspan.server.asking import MAX_TOKENS, Round, sampling_params
from linkspan.server.awaited import DONE, as_awaited
from linkspan.server.configuration import VisibleHeaders
from linkspan.text import no_attribute
from linkspan.types.base import JSON, Implementation
from linkspan.types.messages import (
    LOG_LEVELS,
    CreateMessageResult,
    GetPromptParams,
    GetPromptResult,
    ListParams,
    LoggingLevel,
    LoggingMessageParams,
    Params,
    ProgressParams,
    Prompt,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Root,
    SamplingMessage,
    Tool,
)
from linkspan.types.methods import METHOD_OF, PROMPT_LIST, RESOURCE_LIST, TEMPLATE_LIST, TOOL_LIST

T = TypeVar("T")


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    LifespanT = TypeVarWithDefault("LifespanT", default=Any)

    class _Base(Mapping[str, Any], Generic[LifespanT]): ...
else:  # a TypeVar with a default needs Python 3.13 where the code runs
    _Base, LifespanT = Mapping, Any


if TYPE_CHECKING:  # results that are there at once in a `def`, and are awaited in an `async def`

    class _OwnResource(ReadResourceResult, frozen=True):
        def __await__(self) -> Generator[Any, Any, ReadResourceResult]: ...

    class _OwnPrompt(GetPromptResult, frozen=True):
        def __await__(self) -> Generator[Any, Any, GetPromptResult]: ...

    class _OwnList(list[T]):
        def __await__(self) -> Generator[Any, Any, list[T]]: ...


class ExchangedToken(str):
    """A token for another service: a text in a `def` tool, and to be awaited in an `async def` one."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, str]:
        yield from ()
        return str(self)

    def __repr__(self) -> str:
        return "ExchangedToken(...)"


class HoldsQuestions(Protocol):
    """What lets a function wait at its questions, and go on with the answers."""

    def numbered(self, kind: str) -> str:
        """Return a key for a question without one."""
        ...

    def answer(self, key: str | None, ask: Callable[[], T | Awaitable[T]]) -> Awaitable[T]:
        """Return an awaitable of what `ask` returns once the answers are there."""
        ...


class Context(_Base[LifespanT]):
    """The request that a handler serves. Also a mapping: the server's `server_context`.

    Take it by annotating a parameter with `Context`, or by calling one `ctx` or `server_context`. `Context[Pool]` says to type
    checkers what the lifespan yields.
    """

    __slots__ = ("_held", "_lifespan", "_request", "_round", "_serve_own", "_server_context")

    ambient: ClassVar[Callable[[Context[Any] | Callable[[], Context[Any]], Callable[[], object]], object] | None] = None
    """Runs the author's functions with a current context, or with what makes one, once `current_context` has been loaded."""

    def __init__(
        self,
        request: Request,
        round: Round,
        server_context: Mapping[str, Any] = NOTHING,
        lifespan: Lifespan | None = None,
        serve_own: Callable[[Request, Round, str, object, bool], object] | None = None,
    ) -> None:
        """Made by the server for each run of a handler."""
        self._request = request
        self._round = round
        self._server_context = server_context
        self._lifespan = lifespan
        self._serve_own = serve_own
        self._held: HoldsQuestions | None = None

    def __repr__(self) -> str:
        return f"<Context of {self._request.method}>"

    # The server's own context, as a mapping.

    def __getitem__(self, key: str) -> Any:
        return self._server_context[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._server_context)

    def __len__(self) -> int:
        return len(self._server_context)

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            from linkspan.habits import CONTEXT

            raise no_attribute(self, name, CONTEXT)

    # Facts.

    @property
    def lifespan(self) -> LifespanT:
        """What the lifespan of the server yielded. Raises: RuntimeError if the server has none."""
        if self._lifespan is None:
            raise RuntimeError("this server has no lifespan: pass Server(lifespan=...), or write @server.lifespan")
        return cast("LifespanT", self._lifespan.value)

    @property
    def peer(self) -> Peer:
        """The client's revision, capabilities and name. Its name is for display, never for decisions (META-5)."""
        return self._request.peer

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, if it said them."""
        return self._request.peer.info

    @property
    def protocol_version(self) -> str:
        """The date of the revision that this request is served in."""
        return self._request.peer.revision.date

    @property
    def request_id(self) -> int | str:
        """The JSON-RPC id."""
        return self._request.id

    @property
    def task_id(self) -> str | None:
        """The id of the task that this is a run of; None in any other call."""
        return f"{self._request.id}" if self._request.is_run else None

    @property
    def meta(self) -> Mapping[str, JSON]:
        """The request's whole `_meta`, with unknown members (trace context, vendor keys)."""
        raw = bytes(self._request.meta)
        return MappingProxyType(msgspec.json.decode(raw) or {}) if raw else NOTHING

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers, names in lower case, without those that carry credentials; empty on stdio and in memory.

        `headers["authorization"]` raises KeyError with what to set: `Server(secret_headers=[...])`.
        """
        return self._request.facts.headers

    def passed_on(self, name: str) -> str | None:
        """Return an HTTP header by its name in lower case, one that carries credentials, too; None if it was not sent.

        Only for code that passes it on to where its author named it for, such as `mount_app(forward=["authorization"])`.
        """
        headers = self._request.facts.headers
        return headers.passed_on(name) if isinstance(headers, VisibleHeaders) else headers.get(name)

    @property
    def address(self) -> str | None:
        """The IP address at the other end of the socket, which may be a proxy's; None on stdio and in memory."""
        return self._request.facts.address

    @property
    def principal(self) -> str | None:
        """The caller, if the transport authenticated one; with `auth=`, the issuer of the token, a kind of name, and the name."""
        return self._request.facts.principal

    @property
    def session_id(self) -> str | None:
        """Names the connection (stdio, memory, channels), or the session of a handshake client over HTTP.

        None over HTTP where each request stands alone, as all do since 2026-07-28. It is no secret, and no credential.
        """
        return self._request.session

    @property
    def grant(self) -> Grant | None:
        """What the caller's token allows: `issuer`, `subject`, `client_id`, `scopes`, `claims`, `expires`.

        None without `auth=`, on stdio and in memory.
        """
        return self._request.facts.grant

    def token_for(self, audience: str, scopes: Collection[str] = ()) -> ExchangedToken:
        """Exchange the caller's token for one for another service: `audience` names that, `scopes` what is wanted there.

        It returns the token in a `def` tool, and must be awaited in an `async def` one; `inline=True` has no place for it.
        The token is the caller's at the other service, and the only one to send there. Raises: ExchangeError.
        """
        access = self._request.facts.access
        if access is None:
            raise ExchangeError("there is no token to exchange: the request came without one, as over stdio")
        found = access.token_for(audience, scopes)
        return ExchangedToken(found) if isinstance(found, str) else cast("ExchangedToken", found)

    # The server's own items.

    def read_resource(self, uri: str, *, as_server: bool = False) -> _OwnResource:
        """Read a resource of this server, as the caller of this request would; await it in an `async def`.

        Its middleware runs, and its questions become those of this request. `as_server=True` reads what the caller may not
        read, too: neither `scopes=` nor `when=` of the resource counts then. Raises: ResourceNotFoundError for one that does not
        exist, or that the caller does not see; Forbidden where the caller's token lacks its scopes; what its function raises.
        """
        return cast("_OwnResource", self._own_item(ReadResourceParams(uri=uri), as_server))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, as_server: bool = False
    ) -> _OwnPrompt:
        """Get a prompt of this server, as the caller of this request would; await it in an `async def`.

        Otherwise like `read_resource`. Raises: RemoteProtocolError for an unknown name and for wrong arguments.
        """
        params = GetPromptParams(name=name, arguments=dict(arguments or {}))
        return cast("_OwnPrompt", self._own_item(params, as_server))

    def list_tools(self) -> _OwnList[Tool]:
        """Return the tools of this server that the caller of this request sees; await it in an `async def`.

        Middleware of the list runs. So do `list_prompts`, `list_resources` and `list_resource_templates`.
        """
        return cast("_OwnList[Tool]", self._own(TOOL_LIST.method, ListParams(), False))

    def list_prompts(self) -> _OwnList[Prompt]:
        """Return the prompts that the caller sees."""
        return cast("_OwnList[Prompt]", self._own(PROMPT_LIST.method, ListParams(), False))

    def list_resources(self) -> _OwnList[Resource]:
        """Return the resources that the caller sees."""
        return cast("_OwnList[Resource]", self._own(RESOURCE_LIST.method, ListParams(), False))

    def list_resource_templates(self) -> _OwnList[ResourceTemplate]:
        """Return the resource templates that the caller sees."""
        return cast("_OwnList[ResourceTemplate]", self._own(TEMPLATE_LIST.method, ListParams(), False))

    def _own_item(self, params: Params, as_server: bool) -> object:
        return self._own(METHOD_OF[type(params)].name, params, as_server)

    def _own(self, method: str, params: object, as_server: bool) -> object:
        if self._serve_own is None:
            raise RuntimeError("this context does not belong to a server")
        serve = self._serve_own
        if self._held is not None:
            return self._held.answer(None, lambda: serve(self._request, self._round, method, params, as_server))
        return serve(self._request, self._round, method, params, as_server)

    # Cancellation.

    @property
    def cancelled(self) -> bool:
        """The client does not want the answer any more, or the tool's `timeout` is over."""
        return self._request.cancelled or self._request.stopped

    def raise_if_cancelled(self) -> None:
        """Raise RequestCancelled if the client does not want the answer any more: a long plain function asks now and then."""
        if self.cancelled:
            raise RequestCancelled(self._request.cancel_reason)

    # Telling.

    def close_stream(self) -> bool:
        """End the HTTP stream now and let the client come back for the answer, so that a long call holds no connection.

        Only clients of 2025-11-25 over HTTP with a session can do that; returns whether this one could. What follows is kept
        for it (`max_stored_events`). Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports.
        """
        return self._request.close_stream()

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress to a client that asked for it. It may be awaited, and need not be.

        A value that is not above the last one is not sent (PROG-3), nor one that JSON has no number for: NaN and infinity.
        Raises: TypeError for anything but a number.
        """
        _check_number("progress", progress)
        if total is not None:
            _check_number("total", total)
            total = total if isfinite(total) else None
        request = self._request
        token, last = request.progress_token, request.progress
        if token is None or not isfinite(progress) or (last is not None and progress <= last):
            return DONE
        request.progress = progress
        params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
        request.emit(request, "notifications/progress", params)
        return DONE

    report_progress = progress

    def log(
        self, level: LoggingLevel, data: JSON, logger: str | None = None, *, logger_name: str | None = None
    ) -> Awaitable[None]:
        """Send a log message to a client that wants messages of this level. No secrets belong in it (LOG-4).

        `logger` names what logs; other SDKs call it `logger_name`. It may be awaited, and need not be.
        Raises: ValueError for an unknown level.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}; got {level!r}")
        least = self._request.log_level
        if least is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(least):
            params = LoggingMessageParams(level=level, data=data, logger=logger or logger_name)
            self._request.emit(self._request, "notifications/message", params)
        return DONE

    def debug(self, data: JSON, logger: str | None = None, *, logger_name: str | None = None) -> Awaitable[None]:
        """Log at the level "debug"."""
        return self.log("debug", data, logger or logger_name)

    def info(self, data: JSON, logger: str | None = None, *, logger_name: str | None = None) -> Awaitable[None]:
        """Log at the level "info"."""
        return self.log("info", data, logger or logger_name)

    def warning(self, data: JSON, logger: str | None = None, *, logger_name: str | None = None) -> Awaitable[None]:
        """Log at the level "warning"."""
        return self.log("warning", data, logger or logger_name)

    def error(self, data: JSON, logger: str | None = None, *, logger_name: str | None = None) -> Awaitable[None]:
        """Log at the level "error"."""
        return self.log("error", data, logger or logger_name)

    def notify(self, method: str, params: Mapping[str, JSON] | None = None) -> Awaitable[None]:
        """Send a notification of your own, such as "notifications/acme/step", to the client of this request.

        It may be awaited, and need not be. A client that does not read loses it, like progress. Of the protocol's own it sends
        "notifications/elicitation/complete", to clients whose revision has it. Raises: ValueError for another method of the
        protocol; TypeError for params that JSON cannot express.
        """
        if method == PAGE_DONE and PAGE_DONE not in self._request.peer.revision.server_notifications:
            return DONE
        if not method or (method in MESSAGES and method != PAGE_DONE):
            raise ValueError(f"{method!r} is the protocol's own: use ctx.progress, ctx.log or server.notify_*")
        self._request.emit(self._request, method, Raw(encode_json(dict(params or {}))))
        return DONE

    # Asking. Each of these returns the answer, or ends this run: the handler runs again from the top with the answer there.
    # None needs an await, and each may have one. In a function with hold=True each is awaited: it waits there for the answer.

    @overload
    def ask(self, key: str, hint: type[T], message: str) -> T: ...
    @overload
    def ask(self, key: str, hint: object, message: str) -> Any: ...
    def ask(self, key: str, hint: object, message: str) -> Any:
        """Ask the user for a value of the type `hint`: a primitive, an Enum, or a flat dataclass of them.

        `key` names the question within this request. Raises: Declined if the user does not want to answer.
        """
        from linkspan.schema.forms import compile_form

        form = compile_form(hint, name=key, field=key)
        if self._held is not None:
            return self._held.answer(key, lambda: self._round.form(key, form, message))
        return as_awaited(self._round.form(key, form, message))

    def ask_url(self, key: str, url: str, message: str) -> Awaitable[None]:
        """Ask the user to open `url`. Returning means consent, not that the user has finished there (ELI-12).

        Raises: Declined if the user does not want to.
        """
        if self._held is not None:
            return self._held.answer(key, lambda: self._round.url(key, url, message))
        self._round.url(key, url, message)
        return DONE

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = MAX_TOKENS,
        key: str | None = None,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        **more: Any,
    ) -> CreateMessageResult:
        """Let the client's model write something; `.text` of the result is what it wrote.

        `max_tokens` bounds how much. Without a `key` the questions of a run are numbered in their order.
        """
        given = {
            "system_prompt": system_prompt,
            "temperature": temperature,
            "stop_sequences": list(stop_sequences) if stop_sequences is not None else None,
            "include_context": include_context,
        }
        params = sampling_params(messages, max_tokens, given | more)
        if self._held is not None:
            key = key or self._held.numbered("sample")
            return cast("CreateMessageResult", self._held.answer(key, lambda: self._round.sample(key, params)))
        return as_awaited(self._round.sample(key, params))

    def roots(self, *, key: str | None = None) -> list[Root]:
        """Return the folders that the client says the server should work in."""
        if self._held is not None:
            key = key or self._held.numbered("roots")
            return cast("list[Root]", self._held.answer(key, lambda: self._round.roots(key)))
        return as_awaited(self._round.roots(key))

    def question(self, key: str, method: str, params: Mapping[str, JSON] | None = None) -> Mapping[str, JSON]:
        """Ask the client in its own words, and return its answer as it came: both in wire form.

        `method` is "elicitation/create", "sampling/createMessage" or "roots/list". For programs that write their own schemas;
        `ask`, `sample` and `roots` check and read what they ask for. Raises: ValueError for other methods and wrong params.
        """
        from linkspan.server.asking import written_question

        asked = written_question(method, params or {})
        if self._held is not None:
            return cast("Mapping[str, JSON]", self._held.answer(key, lambda: self._round.question(key, asked)))
        return as_awaited(self._round.question(key, asked))

    def ping(self, *, key: str | None = None) -> Awaitable[None]:
        """Return once the client has answered a ping.

        Clients of 2026-07-28 are never pinged: it returns at once, and one that has gone shows as `cancelled`.
        """
        if PING not in self._request.peer.revision.server_requests:
            return DONE
        if self._held is not None:
            key = key or self._held.numbered("ping")
            return self._held.answer(key, lambda: self._round.ping(key))
        self._round.ping(key)
        return DONE

    @overload
    def once(self, key: str, function: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    @overload
    def once(self, key: str, function: Callable[[], T]) -> T: ...
    def once(self, key: str, function: Callable[[], object]) -> Any:
        """Run `function` once for this request, however often its rounds run or a client replays one; return its value.

        For what must not happen twice, such as a charge, and for what must not differ between runs, such as a generated id.
        With an async function, await the result; a cancelled request does not stop it. What raises is not remembered.
        `max_once` requests are remembered, each for `request_state_ttl`. Processes that share a store share the values, which are
        plain data then. Raises: LocalProtocolError where another process has begun it, and has not ended it for long.
        """
        return self._round.once(key, function)

    @property
    def input_responses(self) -> Mapping[str, JSON]:
        """The client's answers to what was asked so far, by key: for handlers that return `InputRequired` themselves."""
        return self._round.answers

    @property
    def request_state(self) -> str | None:
        """The `state` of the `InputRequired` that this handler returned last. It was sealed on its way (MRTR-S5)."""
        return self._round.state


def _check_number(name: str, value: object) -> None:
    if type(value) is bool or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}")


if TYPE_CHECKING:

    class HeldContext(Context[LifespanT]):
        async def ask(self, key: str, hint: type[T], message: str) -> T: ...  # type: ignore[override]  # pyright: ignore
        async def sample(  # type: ignore[override]  # pyright: ignore
            self,
            messages: str | Sequence[SamplingMessage],
            *,
            max_tokens: int = MAX_TOKENS,
            key: str | None = None,
            system_prompt: str | None = None,
            temperature: float | None = None,
            stop_sequences: Sequence[str] | None = None,
            include_context: Literal["none", "thisServer", "allServers"] | None = None,
            **more: Any,
        ) -> CreateMessageResult: ...
        async def roots(self, *, key: str | None = None) -> list[Root]: ...  # type: ignore[override]  # pyright: ignore
        async def question(  # type: ignore[override]  # pyright: ignore
            self, key: str, method: str, params: Mapping[str, JSON] | None = None
        ) -> Mapping[str, JSON]: ...

else:  # one class, of which type checkers know that its questions are awaited
    HeldContext = Context


def hold_with(context: Context[Any], held: HoldsQuestions) -> None:
    """Let the questions of a function wait for their answers."""
    context._held = held  # pyright: ignore[reportPrivateUsage]


def move_on(context: Context[Any], request: Request, round: Round) -> None:
    """Let a function that goes on see the request that has brought the answers."""
    context._request, context._round = request, round  # pyright: ignore[reportPrivateUsage]


def provided_to(context: Context[Any], kind: type) -> object:
    """Return what the lifespan opened under a class. Raises: RuntimeError where it is not open."""
    lifespan = context._lifespan  # pyright: ignore[reportPrivateUsage]
    assert lifespan is not None
    return lifespan.provided(kind)
