"""From a request to the author's function and back to an outcome. Era-neutral: what differs is in revisions/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from linkspan.core.call import Call
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    Declined,
    RemoteProtocolError,
    RequestHandlerError,
    ResourceNotFoundError,
    ToolError,
)
from linkspan.revisions.modern import discover
from linkspan.revisions.neutral import NOTHING, InputRequired, Outcome, Request
from linkspan.revisions.record import Revision
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.schema.results import encode_json
from linkspan.server import observation as observing
from linkspan.server.asking import InputNeeded, Round, collect, read_responses, refuse_incapable
from linkspan.server.catalogue import Catalogue
from linkspan.server.completion import completion_of
from linkspan.server.configuration import InstrumentationData, Settings, SettingsSource
from linkspan.server.context import Context
from linkspan.server.handlers import Handler
from linkspan.server.observation import Observation
from linkspan.server.profile import Profile, System
from linkspan.server.registry import Registry, nearest
from linkspan.server.request_state import Binding, RequestStateKeys, digest, seal, unseal
from linkspan.server.resources import BoundResource, read_outcome
from linkspan.types.base import JSONObject, Wire
from linkspan.types.completion import PromptReference
from linkspan.types.content import TextContent
from linkspan.types.lifecycle import DiscoverResult, ServerCapabilities
from linkspan.types.requests import CallToolParams, CompleteParams, GetPromptParams, ListParams, ReadResourceParams
from linkspan.types.resources import ReadResourceResult
from linkspan.types.shared import Implementation
from linkspan.types.tools import CallToolResult
from linkspan.wire.limits import Limits
from linkspan.wire.messages import NO_PARAMS, encode
from linkspan.wire.values import to_builtins

__all__ = ["Dispatcher"]


class Dispatcher:
    """Serves the requests of one server. Never raises; what the author's code raises ends one request."""

    def __init__(self, catalogue: Catalogue, profile: Profile, settings: SettingsSource, system: System) -> None:
        """Serve `catalogue` as `profile` says."""
        self.catalogue = catalogue
        self.profile = profile
        self.settings = settings
        self.system = system
        self.repairs = 0
        self._methods: dict[str, Callable[[Request, Observation | None], Outcome | Call]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
        }

    # What connections ask (core.connection.ConnectionServer).

    @property
    def implementation(self) -> Implementation:
        """The server's name and version."""
        return self.profile.implementation

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self.profile.instructions

    @property
    def pinned(self) -> Revision | None:
        """The revision that the author insists on, if any."""
        return self.profile.pinned

    @property
    def limits(self) -> Limits:
        """The bounds on each connection."""
        return self.profile.limits

    @property
    def require_initialized(self) -> bool:
        """Refuse what comes before the handshake and without an envelope."""
        return self.profile.require_initialized

    def capabilities(self) -> ServerCapabilities:
        """Return what the server offers now."""
        return self.catalogue.capabilities()

    def knows_resource(self, uri: str) -> bool:
        """Tell whether a read of `uri` could be answered."""
        return self.catalogue.knows_resource(uri)

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        return self.catalogue.custom_methods

    def discover(self) -> DiscoverResult:
        """Describe the server to a modern client."""
        profile = self.profile
        return discover(
            self.capabilities(), profile.instructions, ttl_ms=profile.ttl_ms, cache_scope=profile.cache_scope
        )

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or say which function must run for it."""
        settings = self.settings.current()
        observation = self._observe(request, settings)
        method = self._methods.get(request.method, self._call_custom)
        try:
            step = method(request, observation)
        except Exception as error:
            step = self._failed(request, observation, error)
        if observation is not None and not isinstance(step, Call):
            self._end(request, observation, step)
        return step

    # Tools.

    def _list_tools(self, request: Request, _: Observation | None) -> Outcome:
        return self._page(self.catalogue.tools, request)

    def _call_tool(self, request: Request, observation: Observation | None) -> Outcome | Call:
        params = request.params
        assert isinstance(params, CallToolParams)
        tool = self.catalogue.tools.get(params.name)
        if tool is None:
            if not len(self.catalogue.tools):
                return _method_not_found(request)
            if observation is not None:
                observation.note_error("tool_not_found")
            hint = nearest(params.name, self.catalogue.tools.keys())
            return RemoteProtocolError(INVALID_PARAMS, f"Unknown tool: {params.name}{hint}")
        if observation is not None:
            observation.data["tool_name"] = params.name
        settings = self.settings.current()
        try:
            arguments, repairs = tool.handler.parameters.decode(params.arguments, repair=settings.repair_arguments)
        except ArgumentsInvalid as problem:
            if observation is not None:
                observation.note_error(_kind(problem))
            return _tool_error(f"{params.name}: {problem}")
        if repairs:
            self.repairs += len(repairs)
            observing.warn(f"repaired arguments of tool {params.name!r}: {'; '.join(repairs)}")
        check = settings.validate_tool_call_results
        return self._run(
            request, observation, tool.handler, arguments, lambda value: tool.outcome(value, check=check), params.name
        )

    # Prompts.

    def _list_prompts(self, request: Request, _: Observation | None) -> Outcome:
        return self._page(self.catalogue.prompts, request)

    def _get_prompt(self, request: Request, observation: Observation | None) -> Outcome | Call:
        params = request.params
        assert isinstance(params, GetPromptParams)
        prompt = self.catalogue.prompts.get(params.name)
        if prompt is None:
            if not len(self.catalogue.prompts):
                return _method_not_found(request)
            if observation is not None:
                observation.note_error("prompt_not_found")
            hint = nearest(params.name, self.catalogue.prompts.keys())
            return RemoteProtocolError(INVALID_PARAMS, f"Unknown prompt: {params.name}{hint}")
        if observation is not None:
            observation.data["prompt_name"] = params.name
        try:
            arguments = prompt.decode(params.arguments or {})
        except ArgumentsInvalid as problem:
            return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {params.name}: {problem}")
        return self._run(request, observation, prompt.handler, arguments, prompt.outcome, params.name)

    # Resources.

    def _list_resources(self, request: Request, _: Observation | None) -> Outcome:
        return self._page(self.catalogue.resources, request, self._has_resources())

    def _list_templates(self, request: Request, _: Observation | None) -> Outcome:
        return self._page(self.catalogue.templates, request, self._has_resources())

    def _has_resources(self) -> bool:
        catalogue = self.catalogue
        return bool(len(catalogue.resources) or len(catalogue.templates) or catalogue.read_handler)

    def _read_resource(self, request: Request, observation: Observation | None) -> Outcome | Call:
        params = request.params
        assert isinstance(params, ReadResourceParams)
        uri, catalogue = params.uri, self.catalogue
        found = catalogue.find_resource(uri)
        if found is not None and observation is not None:
            observation.data["resource_uri"] = uri
        if catalogue.read_handler is not None:
            arguments: JSONObject = {"uri": uri}
            return self._run_read(request, observation, catalogue.read_handler, arguments, uri, None)
        if found is None:
            if not self._has_resources():
                return ReadResourceResult(contents=[], ttl_ms=self.profile.ttl_ms, cache_scope=self.profile.cache_scope)
            if observation is not None:
                observation.note_error("resource_not_found")
            raise ResourceNotFoundError(uri)
        item, variables = found
        spec = item.spec
        if isinstance(item, BoundResource):
            if item.value is not None:
                return self._read(item.value, uri, spec.mime_type)
            decoded: JSONObject = {}
        else:
            try:
                decoded = item.decode(variables)
            except ArgumentsInvalid:
                raise ResourceNotFoundError(uri) from None
        if item.handler is None:
            return ReadResourceResult(contents=[], ttl_ms=self.profile.ttl_ms, cache_scope=self.profile.cache_scope)
        return self._run_read(request, observation, item.handler, decoded, uri, spec.mime_type)

    def _run_read(
        self,
        request: Request,
        observation: Observation | None,
        handler: Handler,
        arguments: JSONObject,
        uri: str,
        mime_type: str | None,
    ) -> Outcome | Call:
        return self._run(request, observation, handler, arguments, lambda value: self._read(value, uri, mime_type), uri)

    def _read(self, value: object, uri: str, mime_type: str | None) -> Outcome:
        return read_outcome(value, uri, mime_type, ttl_ms=self.profile.ttl_ms, cache_scope=self.profile.cache_scope)

    # Completion and custom methods.

    def _complete(self, request: Request, observation: Observation | None) -> Outcome | Call:
        params = request.params
        assert isinstance(params, CompleteParams)
        catalogue = self.catalogue
        if not catalogue.completes():
            return _method_not_found(request)
        ref, argument = params.ref, params.argument
        name = ref.name if isinstance(ref, PromptReference) else ref.uri
        if not self._completable(name, isinstance(ref, PromptReference)):
            return RemoteProtocolError(INVALID_PARAMS, f"Unknown completion reference: {name}")
        known = params.context.arguments if params.context is not None else None
        typed = argument.value
        if catalogue.completion_handler is not None:
            handler, arguments = catalogue.completion_handler, to_builtins(params)
        else:
            completer = catalogue.completers.get((name, argument.name))
            if completer is None:
                return completion_of(self._choices(name, argument.name), typed)
            handler, arguments = completer, {"value": typed, "arguments": known or {}}
        return self._run(request, observation, handler, arguments, lambda value: completion_of(value, typed), name)

    def _completable(self, name: str, is_prompt: bool) -> bool:
        catalogue = self.catalogue
        if is_prompt:
            return name in catalogue.prompts
        return name in catalogue.templates or catalogue.knows_resource(name)

    def _choices(self, prompt: str, argument: str) -> list[str]:
        """Return the values that a prompt's own hints allow."""
        found = self.catalogue.prompts.get(prompt)
        properties: Mapping[str, JSONObject] = (
            found.handler.parameters.json_schema.get("properties") or {} if found else {}
        )
        return [str(value) for value in properties.get(argument, {}).get("enum", ())]

    def _call_custom(self, request: Request, observation: Observation | None) -> Outcome | Call:
        handler = self.catalogue.custom_methods.get(request.method)
        if handler is None:
            if observation is not None:
                observation.data["method"] = "unsupported_method"
            return _method_not_found(request)
        assert isinstance(request.params, Raw)
        try:
            values = msgspec.json.decode(bytes(request.params) or b"{}", type=dict[str, Any] | None) or {}
        except (msgspec.DecodeError, RecursionError):
            return RemoteProtocolError(INVALID_PARAMS, "Invalid params: params must be an object")
        if handler.whole is None:
            values.pop("_meta", None)
        try:
            arguments = handler.parameters.decode_values(values).arguments
        except ArgumentsInvalid as problem:
            return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
        return self._run(request, observation, handler, arguments, _custom_result, request.method)

    # Running.

    def _run(
        self,
        request: Request,
        observation: Observation | None,
        handler: Handler,
        arguments: JSONObject,
        conclude: Callable[[object], Outcome],
        target: str,
    ) -> Outcome | Call:
        answered = request.request_state is not None or request.input_responses is not NO_PARAMS
        current = self._round(request, target) if answered else Round()
        asks = handler.parameters.asks
        if asks:
            try:
                arguments |= collect(asks, current, can_ask=request.peer.supports("elicitation", "form"))
            except InputNeeded:
                return self._input_required(request, current, InputRequired(current.questions), target)
            except Declined as refusal:
                return self._failed(request, observation, refusal)
        run = handler.bind(arguments, lambda: Context(request, current, self._context_of(request)))
        settings = self.settings.current()
        if settings.around_request is not None and observation is not None:
            run = observing.around(run, settings.around_request, observation)

        def finish(value: object) -> Outcome:
            try:
                outcome = conclude(value)
            except Exception as error:
                return fail(error)
            if current.questions:
                outcome = InputRequired(current.questions)
            if type(outcome) is InputRequired:
                outcome = self._input_required(request, current, outcome, target)
            if observation is not None:
                self._end(request, observation, outcome)
            return outcome

        def fail(error: BaseException) -> Outcome:
            if current.questions or isinstance(error, InputNeeded):
                outcome = self._input_required(request, current, InputRequired(current.questions), target)
            else:
                outcome = self._failed(request, observation, error)
            if observation is not None:
                self._end(request, observation, outcome)
            return outcome

        return Call(request, run, finish, fail, is_async=handler.is_async, inline=handler.inline)

    def _context_of(self, request: Request) -> Mapping[str, Any]:
        source = self.profile.server_context
        if source is None:
            return NOTHING
        return source if isinstance(source, Mapping) else source(request)

    # Rounds of questions.

    def _keys(self) -> RequestStateKeys:
        """Return the author's keys, or keys that live as long as this process."""
        if self.profile.request_state_keys is None:
            self.profile.request_state_keys = RequestStateKeys.ephemeral(self.system.random)
        return self.profile.request_state_keys

    def _binding(self, request: Request, target: str) -> Binding:
        arguments = getattr(request.params, "arguments", None)
        raw = bytes(arguments) if isinstance(arguments, Raw) else encode(arguments)
        return Binding(
            method=request.method,
            target=target,
            arguments=digest(raw),
            principal=request.facts.principal,
            audience=self.profile.name,
        )

    def _round(self, request: Request, target: str) -> Round:
        """Open what earlier rounds left. Raises: RemoteProtocolError for state that was tampered with, or has expired."""
        answers = read_responses(request.input_responses)
        if request.request_state is None:
            return Round(answers)
        binding = self._binding(request, target)
        kept = unseal(self._keys(), request.request_state, binding, now=self.system.wall_clock())
        earlier = msgspec.json.decode(kept, type=_Kept)
        return Round(earlier.answers | answers, earlier.state)

    def _input_required(self, request: Request, current: Round, outcome: InputRequired, target: str) -> Outcome:
        """Seal what this round knows, so that whoever serves the next one needs no memory (MRTR-S9)."""
        refusal = refuse_incapable(request, outcome)
        if refusal is not None:
            return refusal
        if not outcome.requests and outcome.state is None:
            return RemoteProtocolError(INTERNAL_ERROR, "Internal error: InputRequired needs requests or a state")
        kept = encode(_Kept(dict(current.answers), outcome.state))
        state = seal(
            self._keys(),
            self._binding(request, target),
            kept,
            now=self.system.wall_clock(),
            ttl=self.profile.request_state_ttl,
            random=self.system.random,
        )
        return InputRequired(outcome.requests, state)

    # Failing.

    def _failed(self, request: Request, observation: Observation | None, error: BaseException) -> Outcome:
        """Turn what an author's code raised into an outcome that says no more than the author chose to say."""
        is_tool = request.method == "tools/call"
        if isinstance(error, ResourceNotFoundError):
            code = request.peer.revision.resource_not_found
            return RemoteProtocolError(code, error.message, error.data)
        if isinstance(error, RemoteProtocolError):
            return error
        if isinstance(error, ToolError):
            return _tool_error(str(error)) if is_tool else RemoteProtocolError(INTERNAL_ERROR, str(error))
        if request.cancelled:
            return RemoteProtocolError(INTERNAL_ERROR, "cancelled")
        return self._author_failed(request, observation, error, is_tool)

    def _author_failed(
        self, request: Request, observation: Observation | None, error: BaseException, is_tool: bool
    ) -> Outcome:
        settings = self.settings.current()
        incident = self.system.random(3).hex().upper()
        if observation is not None:
            observation.note_error("internal_error")
        what = f"tool {request.params.name!r}" if isinstance(request.params, CallToolParams) else request.method
        observing.log_failure(what, incident, error)
        wrapped = error
        if not is_tool:
            wrapped = RequestHandlerError(request.method)
            wrapped.__cause__ = error
        observing.report(settings, wrapped if not is_tool else error, self._report_context(request))
        if not is_tool or settings.tool_error_mode == "protocol":
            return RemoteProtocolError(INTERNAL_ERROR, f"Internal error (incident {incident})")
        if settings.tool_error_mode == "message":
            return _tool_error(str(error) or type(error).__name__)
        return _tool_error(f"Internal error occurred (incident {incident})")

    def _report_context(self, request: Request) -> dict[str, Any]:
        """Say where it happened: the keys of the source documents, and the author's own context (C2, C3)."""
        raw = request.params
        params = msgspec.json.decode(bytes(raw) or b"{}") if isinstance(raw, Raw) else to_builtins(raw)
        context: dict[str, Any] = {"request": {"id": request.id, "method": request.method, "params": params}}
        if isinstance(raw, CallToolParams):
            context |= {"tool_name": raw.name, "arguments": params.get("arguments") or {}}
        context["server_context"] = self._context_of(request)
        return context

    # Observing.

    def _observe(self, request: Request, settings: Settings) -> Observation | None:
        if settings.instrumentation_callback is None and settings.around_request is None:
            return None
        found = Observation(request.method, settings.instrumentation_callback, self.system.clock)
        if settings.instrument_server_context:
            found.data["server_context"] = self._context_of(request)
        return found

    def _end(self, request: Request, observation: Observation, outcome: Outcome) -> None:
        if request.cancelled and not request.is_notification:
            observation.note_error("cancelled")
        elif isinstance(outcome, RemoteProtocolError):
            observation.note_error(_ERROR_NAMES.get(outcome.code, "error"))
        observation.end()

    def observe(self, method: str, error: RemoteProtocolError | None, duration: float) -> None:
        """Take note of a request that a connection answered by itself."""
        callback = self.settings.current().instrumentation_callback
        if callback is None:
            return
        known = error is None or error.code != METHOD_NOT_FOUND
        data: InstrumentationData = {"method": method if known else "unsupported_method", "duration": duration}
        if error is not None:
            data["error"] = _ERROR_NAMES.get(error.code, "error")
        try:
            callback(data)
        except Exception as problem:
            observing.warn("the instrumentation callback failed", problem)

    # Lists.

    def _page(self, registry: Registry[Any], request: Request, offered: bool | None = None) -> Outcome:
        if not (len(registry) if offered is None else offered):
            return _method_not_found(request)
        params = request.params
        assert isinstance(params, ListParams)
        return registry.page(
            request.peer.revision,
            params.cursor,
            self.profile.page_size,
            ttl_ms=self.profile.ttl_ms,
            cache_scope=self.profile.cache_scope,
        )


class _Kept(msgspec.Struct):
    """What a sealed state carries from round to round."""

    answers: dict[str, Any] = {}
    state: str | None = None


_ERROR_NAMES = {
    PARSE_ERROR: "parse_error",
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    INVALID_PARAMS: "invalid_params",
    INTERNAL_ERROR: "internal_error",
    RESOURCE_NOT_FOUND: "resource_not_found",
}


def _method_not_found(request: Request) -> RemoteProtocolError:
    return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.method)


def _tool_error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text)], is_error=True)


def _custom_result(value: object) -> Outcome:
    return value if isinstance(value, Wire | InputRequired) else Raw(encode_json(value))


def _kind(problem: ArgumentsInvalid) -> str:
    missing = all(each.message == "is missing" for each in problem.problems)
    return "missing_required_arguments" if missing else "invalid_arguments"
