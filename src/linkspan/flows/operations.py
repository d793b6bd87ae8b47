"""What a client can do, one flow each. The faces add nothing but the way to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw

from linkspan.core.flow import Flow, RequestSpec
from linkspan.errors import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, RegistrationError
from linkspan.flows.client_errors import ClientError, InvalidResponse, ServerError
from linkspan.flows.requesting import Repeatable, member, request, request_with_rounds, total_of
from linkspan.flows.state import (
    DEFAULT_CALL,
    CallOptions,
    ClientCall,
    ClientState,
    ShownTools,
    has_authorization,
    principal_of,
)
from linkspan.flows.tool_results import Head, ToolResult, check_output, read_head, unlisted
from linkspan.text import clip
from linkspan.types.base import JSON, Wire
from linkspan.types.messages import (
    CallToolResult,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    GetPromptResult,
    ListToolsResult,
    LoggingLevel,
    PromptReference,
    ReadResourceResult,
    ResourceTemplateReference,
)
from linkspan.types.methods import COMPLETE, PROMPT_GET, RESOURCE_READ, TOOL_CALL, TOOL_LIST, ListSpec, PageT
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import decode_open, from_builtins, to_builtins

__all__ = [
    "DEFAULT_CALL",
    "CallOptions",
    "call_method",
    "call_tool",
    "complete",
    "final_head",
    "get_prompt",
    "list_all",
    "list_page",
    "ping",
    "read_resource",
    "request_spec",
]

ResultT = TypeVar("ResultT", bound=Wire)
Phase: TypeAlias = Literal["negotiate", "list", "call"]


def request_spec(
    state: ClientState, method: str, params: bytes, options: CallOptions, *, timeout: float, phase: Phase = "call"
) -> RequestSpec:
    """Return a request with what the options of its call say."""
    trace = state.options.trace_context
    if options is DEFAULT_CALL and trace is None:
        return RequestSpec(method, params, phase, timeout)
    meta = {**(_traced(trace()) if trace is not None else {}), **(options.meta or {})}
    return RequestSpec(
        method,
        params,
        phase,
        timeout if options.timeout is None else options.timeout,
        options.total,
        options.on_progress,
        options.stopper,
        encode(meta)[1:-1] if meta else b"",
        options.headers,
        options.identity,
        principal=principal_of(options.headers, options.identity),
    )


def _asked_by_one(state: ClientState, spec: RequestSpec) -> tuple[RequestSpec, bool]:
    """Settle now who asks, so that what is kept is of the principal that it was sent for (CACHE-C2).

    Return False where that cannot be said; the request will find out why.
    """
    if state.who_asks is None or spec.identity is not None or has_authorization(spec.headers):
        return spec, True
    try:
        who = state.who_asks()
    except Exception:
        return spec, False
    return msgspec.structs.replace(spec, headers={**(spec.headers or {}), **who}), True


def _catalogue(state: ClientState, options: CallOptions) -> ShownTools:
    """Return what the principal of a call was shown."""
    headers = dict(options.headers or {})
    if state.who_asks is not None and options.identity is None and not has_authorization(headers):
        with suppress(Exception):  # the request will find out why
            headers.update(state.who_asks())
    return state.catalogue(principal_of(headers, options.identity))


def _traced(context: Mapping[str, str]) -> Mapping[str, JSON]:
    """Return what of a trace context goes into `_meta`: these three names, without a prefix."""
    return {name: context[name] for name in ("traceparent", "tracestate", "baggage") if context.get(name)}


# Tools.


def _check_mapping(call: str, name: str, value: object) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{call}() takes a mapping for {name}, such as {{'city': 'Rome'}}, not {clip(repr(value), 60)}")


class _MarkedSafe(Repeatable, frozen=True):
    """A tool may be called twice if it is declared read-only or idempotent."""

    name: str
    options: CallOptions

    def decide(self, state: ClientState) -> Flow[bool]:
        catalogue = _catalogue(state, self.options)
        if self.name not in catalogue.tools and not catalogue.tools_are_complete:
            try:
                yield from list_all(state, TOOL_LIST, self.options)
            except ClientError:
                return False
            catalogue = _catalogue(state, self.options)
        tool = catalogue.tools.get(self.name)
        hints = tool.annotations if tool is not None else None
        return hints is not None and hints.is_repeatable


def call_tool(
    state: ClientState, name: str, arguments: Mapping[str, Any] | None = None, options: CallOptions = DEFAULT_CALL
) -> Flow[ToolResult]:
    """Call a tool. Raises: ClientError; a tool's own failure is a result with `is_error`; TypeError for other arguments."""
    given: object = arguments
    if type(given) is not dict:  # most are
        _check_mapping("call_tool", "arguments", given)
    if state.surround is not None and not options.surrounded:
        found = yield from state.surround(
            TOOL_CALL.name,
            name,
            arguments or {},
            options,
            lambda call: call_tool(state, name, call.arguments, call.options),
        )
        answer = cast("ToolResult | CallToolResult", found)
        if isinstance(answer, ToolResult):
            return answer
        raw = Raw(encode(to_builtins(answer)))  # made by middleware
        return ToolResult(read_head(raw), raw, state.origin, name)
    params = encode({"name": name, "arguments": dict(arguments or {})})
    spec = request_spec(state, TOOL_CALL.name, params, options, timeout=state.options.timeouts.call)
    who = DEFAULT_CALL if options is DEFAULT_CALL else options.about_the_caller()
    mine = state.own if who is DEFAULT_CALL and state.who_asks is None else _catalogue(state, who)
    if state.options.check_output == "strict" and name not in mine.tools and not mine.tools_are_complete:
        yield from list_all(state, TOOL_LIST, who)
        mine = _catalogue(state, who)
    known = mine.tools.get(name)
    safe = _MarkedSafe(name, who)
    began = state.clock()
    planned = _planned(spec, mine, name) if mine.header_plans else spec
    try:
        response = yield from request(state, planned, safe)
        raw = response.result
        if b'"input_required"' in bytes(raw):
            raw = yield from request_with_rounds(state, planned, safe, began=began, first=response)
    except ServerError as error:
        if error.code != HEADER_MISMATCH or name in mine.tools:
            raise
        yield from list_all(state, TOOL_LIST, who)  # its schema names the headers that it needs (HDR-6)
        mine = _catalogue(state, who)
        again = msgspec.structs.replace(spec, left=total_of(state, spec) - (state.clock() - began))
        raw = yield from request_with_rounds(state, _planned(again, mine, name), safe, began=began)
    try:
        head = read_head(raw)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise _not_a_result(state, spec, problem) from None
    if head.result_type != "complete":
        finish = options.results.get(head.result_type) or state.options.results.get(head.result_type)
        if finish is None:
            raise _unknown_type(state, spec, head.result_type)
        finished: Raw | ToolResult = yield from finish(state, spec, raw, began, options)
        if isinstance(finished, ToolResult):
            return finished
        raw, head = finished, final_head(state, spec, finished)
    tool = mine.tools.get(name, known)  # the list may have been forgotten meanwhile
    if tool is None:
        return ToolResult(head, raw, state.origin, name, unlisted(state, mine, head))
    if tool.output_schema is None:
        return ToolResult(head, raw, state.origin, name)
    return ToolResult(head, raw, state.origin, name, check_output(state, mine, tool, head))


def final_head(state: ClientState, spec: RequestSpec, raw: Raw) -> Head:
    """Read what an extension has made of a result. Raises: InvalidResponse."""
    try:
        head = read_head(raw)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise _not_a_result(state, spec, problem) from None
    if head.result_type != "complete":
        raise _unknown_type(state, spec, head.result_type)
    return head


def _planned(spec: RequestSpec, catalogue: ShownTools, name: str) -> RequestSpec:
    plan = catalogue.header_plans.get(name)
    return msgspec.structs.replace(spec, header_plan=plan) if plan else spec


# Lists.


def list_page(
    state: ClientState, kind: ListSpec[Any, PageT], cursor: str | None = None, options: CallOptions = DEFAULT_CALL
) -> Flow[PageT]:
    """Return one page of a list. A server that has no such list at all has an empty one. Raises: ClientError."""
    return (yield from _page(state, kind, cursor, options))[0]


def _page(
    state: ClientState, kind: ListSpec[Any, PageT], cursor: str | None, options: CallOptions, *, anew: bool = False
) -> Flow[tuple[PageT, ShownTools]]:
    """Return one page, and what its principal was shown; `anew` forgets what that was before."""
    if state.surround is not None and not options.surrounded:
        return (yield from _surrounded_page(state, kind, cursor, options, anew=anew))
    params = encode({"cursor": cursor}) if cursor is not None else b"{}"
    spec = request_spec(state, kind.method, params, options, timeout=state.options.timeouts.list, phase="list")
    spec, known = _asked_by_one(state, spec)
    mine = state.catalogue(principal_of(spec.headers, spec.identity))
    if anew:
        mine.forget()
    raw = state.cache.find(spec) if known else None
    if raw is None:
        mark = state.cache.mark(spec)
        try:
            raw = (yield from request(state, spec)).result
        except ServerError as error:
            if error.code == METHOD_NOT_FOUND and cursor is None:
                return from_builtins({kind.member: []}, kind.result), mine
            raise
        _keep(state, spec, raw, mark)
    page = _read(state, spec, raw, kind.result)
    if isinstance(page, ListToolsResult):
        if state.origin.url is not None:
            _plan_headers(state, mine, page)
        for tool in page.tools:
            mine.tools.setdefault(tool.name, tool)  # of duplicates the first one counts (CLI-9)
    return page, mine


def _surrounded_page(
    state: ClientState, kind: ListSpec[Any, PageT], cursor: str | None, options: CallOptions, *, anew: bool
) -> Flow[tuple[PageT, ShownTools]]:
    """Return the same through middleware, which sees the page."""
    assert state.surround is not None
    mine = _catalogue(state, options)

    def inside(call: ClientCall) -> Flow[PageT]:
        nonlocal mine
        page, mine = yield from _page(state, kind, cursor, call.options, anew=anew)
        return page

    page = yield from state.surround(kind.method, None, {"cursor": cursor} if cursor else {}, options, inside)
    return page, mine


def _plan_headers(state: ClientState, mine: ShownTools, page: ListToolsResult) -> None:
    """Drop the tools whose arguments cannot go into headers as they say, and plan the others (HDR-5)."""
    if state.agreement is None or not state.agreement.revision.repeats_in_headers:
        return
    from linkspan.schema.document import header_paths

    for tool in list(page.tools):
        try:
            mine.header_plans[tool.name] = header_paths(tool.input_schema, tool.name)
        except RegistrationError as problem:
            page.tools.remove(tool)
            mine.dropped_tools[tool.name] = str(problem)


class Pages:
    """Walks the pages of one list: which cursor comes next, and when to stop. A cursor that comes again ends it."""

    def __init__(self, state: ClientState, kind: ListSpec[Any, Any]) -> None:
        self._state = state
        self._kind = kind
        self._seen: set[str] = set()
        self._pages = 0
        self.cursor: str | None = None
        self.done = False

    def next_page(self, options: CallOptions = DEFAULT_CALL) -> Flow[Sequence[Any]]:
        """Return the items of the next page. Raises: ClientError; InvalidResponse for a list without an end."""
        state, kind = self._state, self._kind
        if self._pages >= state.options.max_pages:
            raise InvalidResponse(
                f"{kind.method} has more than {state.options.max_pages} pages (max_pages)",
                state.origin,
                phase="list",
                delivery="answered",
            )
        anew = kind is TOOL_LIST and self.cursor is None
        page, mine = yield from _page(state, kind, self.cursor, options, anew=anew)
        self._pages += 1
        self.cursor = page.next_cursor
        if self.cursor is None or self.cursor in self._seen:
            self.done = True
            mine.tools_are_complete = mine.tools_are_complete or kind is TOOL_LIST
        else:
            self._seen.add(self.cursor)
        items: Sequence[Any] = getattr(page, kind.items)
        return items


def list_all(state: ClientState, kind: ListSpec[Any, Any], options: CallOptions = DEFAULT_CALL) -> Flow[list[Any]]:
    """Return all the items of a list, page after page. Raises: ClientError."""
    pages = Pages(state, kind)
    found: list[Any] = []
    begun_anew = False
    while not pages.done:
        try:
            found += yield from pages.next_page(options)
        except ServerError as error:
            if error.code != INVALID_PARAMS or pages.cursor is None or begun_anew:
                raise
            state.cache.forget_list(kind.method)  # pages that were kept may end in a cursor that is gone (CACHE-C5)
            pages, found, begun_anew = Pages(state, kind), [], True
    return found


# The rest.


def read_resource(state: ClientState, uri: str, options: CallOptions = DEFAULT_CALL) -> Flow[ReadResourceResult]:
    """Read a resource. Raises: ClientError."""
    if state.surround is not None and not options.surrounded:
        return (
            yield from state.surround(
                RESOURCE_READ.name, uri, {}, options, lambda call: read_resource(state, uri, call.options)
            )
        )
    params = b'{"uri":%b}' % encode(uri)
    spec = request_spec(state, RESOURCE_READ.name, params, options, timeout=state.options.timeouts.call)
    spec, known = _asked_by_one(state, spec)
    raw = state.cache.find(spec) if known else None
    if raw is None:
        mark = state.cache.mark(spec)
        raw = yield from request_with_rounds(state, spec, at_once=partial(_keep, state, spec, mark=mark))
    return _read(state, spec, raw, ReadResourceResult)


def get_prompt(
    state: ClientState, name: str, arguments: Mapping[str, str] | None = None, options: CallOptions = DEFAULT_CALL
) -> Flow[GetPromptResult]:
    """Get a prompt's messages. Raises: ClientError; TypeError for other arguments."""
    _check_mapping("get_prompt", "arguments", arguments)
    if state.surround is not None and not options.surrounded:
        return (
            yield from state.surround(
                PROMPT_GET.name,
                name,
                arguments or {},
                options,
                lambda call: get_prompt(state, name, call.arguments, call.options),
            )
        )
    params = b'{"name":%b' % encode(name) + (member(b"arguments", dict(arguments)) if arguments else b"") + b"}"
    spec = request_spec(state, PROMPT_GET.name, params, options, timeout=state.options.timeouts.call)
    raw = yield from request_with_rounds(state, spec)
    return _read(state, spec, raw, GetPromptResult)


def complete(
    state: ClientState,
    ref: str | PromptReference | ResourceTemplateReference,
    argument: str,
    value: str,
    given: Mapping[str, str] | None = None,
    options: CallOptions = DEFAULT_CALL,
) -> Flow[Completion]:
    """Complete what the user has typed of an argument. Raises: ClientError; TypeError for other arguments."""
    _check_mapping("complete", "given", given)
    if isinstance(ref, str):
        ref = ResourceTemplateReference(ref) if "://" in ref else PromptReference(ref)
    if state.surround is not None and not options.surrounded:
        name = ref.name if isinstance(ref, PromptReference) else ref.uri
        return (
            yield from state.surround(
                COMPLETE.name,
                name,
                {**(given or {}), argument: value},
                options,
                lambda call: complete(state, ref, argument, value, given, call.options),
            )
        )
    params: dict[str, Any] = {"ref": to_builtins(ref), "argument": to_builtins(CompletionArgument(argument, value))}
    if given:
        params["context"] = to_builtins(CompletionContext(dict(given)))
    spec = request_spec(state, COMPLETE.name, encode(params), options, timeout=state.options.timeouts.list)
    response = yield from request(state, spec)
    return _read(state, spec, response.result, CompleteResult).completion


def ping(state: ClientState, options: CallOptions = DEFAULT_CALL) -> Flow[None]:
    """Make sure that the server answers.

    The modern era has no ping: there the request that any server answers is `server/discover`.
    Raises: ClientError.
    """
    pings = state.agreement is None or "ping" in state.agreement.revision.requests
    method = "ping" if pings else "server/discover"
    if state.surround is not None and not options.surrounded:
        yield from state.surround(method, None, {}, options, lambda call: ping(state, call.options))
        return
    yield from request(
        state, request_spec(state, method, b"{}", options, timeout=state.options.timeouts.list, phase="list")
    )


def set_level(state: ClientState, level: LoggingLevel, options: CallOptions = DEFAULT_CALL) -> Flow[None]:
    """Choose the least level of log messages that the server sends. Raises: ClientError."""
    agreement = state.agreement
    if agreement is not None and not agreement.revision.log_level_in_envelope:
        params = encode({"level": level})
        yield from request(
            state, request_spec(state, "logging/setLevel", params, options, timeout=state.options.timeouts.list)
        )


def call_method(
    state: ClientState,
    method: str,
    params: Mapping[str, Any] | None = None,
    options: CallOptions = DEFAULT_CALL,
) -> Flow[JSON]:
    """Call a method by its name, for what has no method here; return the result as it came. Raises: ClientError, TypeError."""
    _check_mapping("request", "params", params)
    if state.surround is not None and not options.surrounded:
        return (
            yield from state.surround(
                method,
                None,
                params or {},
                options,
                lambda call: call_method(state, method, call.arguments, call.options),
            )
        )
    body = encode(dict(params)) if params else b"{}"
    spec = request_spec(state, method, body, options, timeout=state.options.timeouts.call)
    if method == TOOL_CALL.name:
        spec = _planned(spec, _catalogue(state, options), str((params or {}).get("name", "")))
    response = yield from request(state, spec, _NEVER)
    return msgspec.json.decode(response.result)


def _keep(state: ClientState, spec: RequestSpec, raw: Raw, mark: int) -> None:
    """Keep an answer for a while, where the era has rules for that."""
    if state.agreement is not None and state.agreement.revision.caches_results:
        state.cache.keep(spec, raw, mark)


class _NeverRepeatable(Repeatable, frozen=True):
    """The effects of such a method are unknown."""

    def decide(self, state: ClientState) -> Flow[bool]:
        return False
        yield


_NEVER = _NeverRepeatable()


def _read(state: ClientState, spec: RequestSpec, raw: Raw, shape: type[ResultT]) -> ResultT:
    try:
        found = decode_open(raw, shape)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise _not_a_result(state, spec, problem) from None
    unknown: Mapping[str, JSON] = vars(found).get("unknown", {})
    kind = unknown.get("resultType", "complete")
    if kind != "complete":
        raise _unknown_type(state, spec, kind)
    return found


def _not_a_result(state: ClientState, spec: RequestSpec, problem: Exception) -> InvalidResponse:
    return InvalidResponse(
        f"invalid response to {spec.method}: {problem}",
        state.origin,
        phase=spec.phase,
        delivery="answered",
    )


def _unknown_type(state: ClientState, spec: RequestSpec, kind: JSON) -> InvalidResponse:
    """Return the error for a result of an unexpected type, which must not pass for a success (MSG-21)."""
    return InvalidResponse(
        f"the result of {spec.method} has the type {str(kind)[:40]!r}, which this client does not know",
        state.origin,
        phase=spec.phase,
        delivery="answered",
    )
