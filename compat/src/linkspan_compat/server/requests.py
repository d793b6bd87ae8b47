"""What a handler knows of its request: the request context and the session of the SDKs, over a context of Linkspan."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.questions import ask

if TYPE_CHECKING:
    from linkspan import Context as LinkspanContext
    from linkspan import Server as LinkspanServer
    from linkspan_compat.server.lowlevel import Server

__all__ = ["RequestContext", "ServerSession", "request_ctx"]

PROTOCOL_METHODS: Final = {
    "tools/list": "ListTools",
    "tools/call": "CallTool",
    "resources/list": "ListResources",
    "resources/templates/list": "ListResourceTemplates",
    "resources/read": "ReadResource",
    "resources/subscribe": "Subscribe",
    "resources/unsubscribe": "Unsubscribe",
    "prompts/list": "ListPrompts",
    "prompts/get": "GetPrompt",
    "completion/complete": "Complete",
    "logging/setLevel": "SetLevel",
    "ping": "Ping",
}
"""The methods that a server answers, and the beginnings of the names of their types."""

request_ctx: Final[ContextVar[RequestContext]] = ContextVar("request_ctx")
"""The request that is served."""


def current_request() -> RequestContext | None:
    """Return the request that is served, None outside of one."""
    try:
        return request_ctx.get()
    except LookupError:
        return None


class RequestContext:
    """`server.request_context` of version 1, and the first argument of handlers of version 2."""

    def __class_getitem__(cls, _: object) -> type[RequestContext]:
        return cls

    def __init__(
        self,
        method: str = "",
        params: Mapping[str, Any] | None = None,
        under: LinkspanContext | None = None,
        served: LinkspanServer | None = None,
        server: Server[Any, Any] | None = None,
        lifespan_context: Any = None,
    ) -> None:
        self.method = method
        self.params = params or {}
        self.under = under
        self.served = served
        self.server = server
        self.lifespan_context = lifespan_context
        self._session: ServerSession | None = None
        self._questions = 0
        self.close_sse_stream: Any = None
        self.close_standalone_sse_stream: Any = None

    def next_question(self) -> str:
        """Return a name for the next question of this request."""
        self._questions += 1
        return f"question-{self._questions}"

    @property
    def required(self) -> LinkspanContext:
        """The context of Linkspan. Raises: ValueError outside of a request."""
        if self.under is None:
            raise ValueError("Context is not available outside of a request")
        return self.under

    @property
    def request_id(self) -> Any:
        """The id of the request."""
        return self.required.request_id

    @property
    def meta(self) -> Any:
        """The `_meta` of the request: a model in version 1, a mapping in version 2; None where there is none."""
        found = dict(self.required.meta)
        if not found:
            return None
        from linkspan_compat.flavours import sdk_version

        if sdk_version() == "1":
            from linkspan_compat.protocol.types import Meta1

            return Meta1.model_validate(found)
        if "progressToken" in found:
            found["progress_token"] = found["progressToken"]
        return found

    @property
    def session(self) -> ServerSession:
        """What sends to the client."""
        if self._session is None:
            self._session = ServerSession(self)
        return self._session

    @property
    def lifespan(self) -> Any:
        """What the lifespan yielded."""
        return self.lifespan_context

    @property
    def protocol_version(self) -> str:
        """The revision that this request is served in."""
        return self.required.protocol_version

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The HTTP headers, without credentials; None on stdio."""
        return self.required.headers or None

    @property
    def request(self) -> Any:
        """The HTTP request as far as it is known: its headers; None on stdio."""
        headers = self.required.headers
        return HttpRequest(headers) if headers else None

    @property
    def session_id(self) -> str | None:
        """The id of the HTTP session; None on stdio."""
        return self.required.headers.get("mcp-session-id") if self.under is not None else None

    @property
    def client_capabilities(self) -> Any:
        """What the client declared."""
        return TYPES["ClientCapabilities"].model_validate(dict(self.required.peer.capabilities))

    @property
    def input_responses(self) -> Any:
        """The answers of the client to an `InputRequiredResult`, by their keys; None in the first round."""
        found = self.required.input_responses
        return {key: _answer(each) for key, each in found.items()} if found else None

    @property
    def request_state(self) -> str | None:
        """The state that the client brought back."""
        return self.required.request_state

    async def log(self, level: Any, data: Any, logger: str | None = None) -> None:
        """Send a log message."""
        await self.session.send_log_message(level, data, logger)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to a client that asked for it."""
        self.required.progress(progress, total, message)


def _answer(found: Any) -> Any:
    """Return an answer of the client as a model; which one, its members tell."""
    if "action" in found:
        return TYPES["ElicitResult"].model_validate(found)
    if "roots" in found:
        return TYPES["ListRootsResult"].model_validate(found)
    is_many = isinstance(found.get("content"), list)
    return TYPES["CreateMessageResultWithTools" if is_many else "CreateMessageResult"].model_validate(found)


class HttpRequest:
    """What handlers read of the HTTP request: `headers`, in lower case, and `scope`."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = _Headers(headers)
        self.query_params: dict[str, str] = {}
        self.scope: dict[str, Any] = {"type": "http", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
        self.state = type("State", (), {})()


class _Headers(dict[str, str]):
    """Headers, whose names may be written in any case."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())


class ServerSession:
    """Sends notifications and questions to the client of one request."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request

    @property
    def _under(self) -> LinkspanContext:
        return self._request.required

    @property
    def client_params(self) -> Any:
        """What the client said of itself in its handshake."""
        peer = self._under.peer
        info = {"name": peer.info.name, "version": peer.info.version} if peer.info is not None else None
        return TYPES["InitializeRequestParams"].model_validate(
            {
                "protocolVersion": peer.revision.date,
                "capabilities": dict(peer.capabilities),
                "clientInfo": info or {"name": "unknown", "version": ""},
            }
        )

    @property
    def client_capabilities(self) -> Any:
        """What the client declared."""
        return self._request.client_capabilities

    @property
    def protocol_version(self) -> str:
        """The revision of the request."""
        return self._under.protocol_version

    def check_client_capability(self, capability: Any) -> bool:
        """Return whether the client declared what is set in a `ClientCapabilities`."""
        wanted = capability.model_dump(by_alias=True, exclude_none=True)
        peer = self._under.peer
        return all(
            peer.supports(name) and all(peer.supports(name, part) for part in value or ())
            for name, value in wanted.items()
            if name not in ("experimental", "extensions")
        )

    # Notifications.

    async def send_log_message(
        self, level: Any, data: Any, logger: str | None = None, related_request_id: Any = None
    ) -> None:
        """Send a log message."""
        self._under.log(level, data, logger)

    async def send_progress_notification(
        self,
        progress_token: Any,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: Any = None,
    ) -> None:
        """Report progress of this request."""
        self._under.progress(progress, total, message)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress of this request."""
        self._under.progress(progress, total, message)

    async def send_resource_updated(self, uri: Any) -> None:
        """Announce that a resource has changed."""
        self._served.notify_resource_updated(str(uri))

    async def send_resource_list_changed(self) -> None:
        """Announce that the list of resources has changed."""
        self._served.notify_resources_list_changed()

    async def send_tool_list_changed(self) -> None:
        """Announce that the list of tools has changed."""
        self._served.notify_tools_list_changed()

    async def send_prompt_list_changed(self) -> None:
        """Announce that the list of prompts has changed."""
        self._served.notify_prompts_list_changed()

    @property
    def _served(self) -> LinkspanServer:
        if self._request.served is None:
            raise ValueError("Context is not available outside of a request")
        return self._request.served

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: Any = None) -> None:
        """Announce that a page, which the client opened, has what it was for; clients without a handshake are not told."""
        self._under.notify("notifications/elicitation/complete", {"elicitationId": elicitation_id})

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification, given as a model."""
        found = getattr(notification, "root", notification)
        params = found.params.model_dump(by_alias=True, mode="json", exclude_none=True) if found.params else {}
        match found.method:
            case "notifications/message":
                self._under.log(params["level"], params.get("data"), params.get("logger"))
            case "notifications/progress":
                self._under.progress(params["progress"], params.get("total"), params.get("message"))
            case "notifications/resources/updated":
                await self.send_resource_updated(params["uri"])
            case "notifications/resources/list_changed":
                await self.send_resource_list_changed()
            case "notifications/tools/list_changed":
                await self.send_tool_list_changed()
            case "notifications/prompts/list_changed":
                await self.send_prompt_list_changed()
            case method:
                self._under.notify(method, params)

    # Questions: the handler waits for the answer where it is.

    async def send_request(self, request: Any, result_type: Any = None, **more: Any) -> Any:
        """Ask the client with a request, given as a model; the answer is a `result_type`."""
        check("ServerSession.send_request", more, "request_read_timeout_seconds metadata progress_callback")
        found = getattr(request, "root", request)
        params = found.params.model_dump(by_alias=True, mode="json", exclude_none=True) if found.params else {}
        answer = await ask(self._request, found.method, params)
        return answer if result_type is None else result_type.model_validate(answer)

    async def create_message(self, messages: Any, *, max_tokens: int, **options: Any) -> Any:
        """Let the model of the client write something."""
        given = {_WIRE_NAMES.get(name, name): value for name, value in options.items() if value is not None}
        given.pop("related_request_id", None)
        params = plain({"messages": messages, "maxTokens": max_tokens, **given})
        result = await ask(self._request, "sampling/createMessage", params)
        kind = "CreateMessageResultWithTools" if options.get("tools") else "CreateMessageResult"
        return TYPES[kind].model_validate(result)

    async def list_roots(self) -> Any:
        """Ask for the folders that the client offers."""
        return TYPES["ListRootsResult"].model_validate(await ask(self._request, "roots/list", {}))

    async def elicit(
        self,
        message: str,
        requestedSchema: Any = None,
        related_request_id: Any = None,
        *,
        requested_schema: Any = None,
    ) -> Any:
        """Ask the user to fill in a form."""
        return await self.elicit_form(message, requestedSchema if requestedSchema is not None else requested_schema)

    async def elicit_form(
        self,
        message: str,
        requestedSchema: Any = None,
        related_request_id: Any = None,
        *,
        requested_schema: Any = None,
    ) -> Any:
        """Ask the user to fill in a form."""
        schema = requestedSchema if requestedSchema is not None else requested_schema
        params = {"message": message, "requestedSchema": schema}
        return TYPES["ElicitResult"].model_validate(await ask(self._request, "elicitation/create", params))

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, related_request_id: Any = None
    ) -> Any:
        """Ask the user to open a page."""
        params: dict[str, Any] = {"mode": "url", "message": message, "url": url}
        if elicitation_id:
            params["elicitationId"] = elicitation_id
        return TYPES["ElicitResult"].model_validate(await ask(self._request, "elicitation/create", params))

    async def send_ping(self) -> Any:
        """Ask whether the client is there."""
        await ask(self._request, "ping", {})
        return TYPES["EmptyResult"]()


_WIRE_NAMES: Final = {
    "system_prompt": "systemPrompt",
    "include_context": "includeContext",
    "stop_sequences": "stopSequences",
    "model_preferences": "modelPreferences",
    "tool_choice": "toolChoice",
}


def plain(value: Any) -> Any:
    """Return models inside of a value as JSON values."""
    if hasattr(value, "model_dump"):
        return value.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
