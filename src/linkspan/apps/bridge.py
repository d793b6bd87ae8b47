"""The host's side of a view, without a browser: messages of the view go in, messages for it and wishes of it come out.

    bridge = AppBridge(view, tool, tools, arguments={"year": 2026})
    for event in bridge.receive(message, now):
        match event:
            case Post(): post(event.message)            # into the frame of the view
            case ToolWish(): ...                        # ask the user, call the tool, then bridge.answer(event.id, result)

Law: nothing goes to a view before it is ready, its input before its result, each once. What it may not do is
refused here: tools of its own server that are for apps are all that it can name. Whether it may is for the host to decide.
Machine without I/O: `now` is a clock that only rises. Spec: https://github.com/modelcontextprotocol/ext-apps, 2026-01-26.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from linkspan.apps.policy import Permission, View, is_for_app, sandbox_of
from linkspan.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, LocalProtocolError
from linkspan.flows.tool_results import ToolResult
from linkspan.types.base import JSON, Implementation, JSONObject, RequestId, is_array, is_number, is_object
from linkspan.types.messages import CallToolResult, Tool
from linkspan.wire.values import to_builtins

__all__ = [
    "AppBridge",
    "AppEvent",
    "ContextChanged",
    "DisplayWish",
    "LinkWish",
    "MessageWish",
    "Post",
    "ResourceWish",
    "ToolWish",
    "ViewClosed",
    "ViewLogged",
    "ViewResized",
]

VERSION: Final = "2026-01-26"
MAX_MESSAGE: Final = 1024 * 1024
MAX_PER_SECOND: Final = 100
MAX_PENDING: Final = 32
MAX_URL: Final = 8192
TEARDOWN: Final = 2.0
"""Seconds in which a view may save what it has before it is closed."""
REFUSED: Final = -32000
_LINK: Final = re.compile(r"https?://[^\s\x00-\x20\x7f\\]+", re.IGNORECASE)
_MODES: Final = ("inline", "fullscreen", "pip")
_MAX_SIDE: Final = 20_000
"""Pixels."""


class Post(msgspec.Struct, frozen=True):
    """Post a message to the frame of the view."""

    message: JSONObject


class ToolWish(msgspec.Struct, frozen=True):
    """The view calls a tool of its own server. The user's consent is as for a call of a model. `answer` it."""

    id: RequestId
    tool: Tool
    arguments: JSONObject


class ResourceWish(msgspec.Struct, frozen=True):
    """The view reads a resource of its own server. `answer` it."""

    id: RequestId
    uri: str


class LinkWish(msgspec.Struct, frozen=True):
    """The view wants a page opened in a browser: show the user where it leads. `answer` it with `{}`, or `refuse` it."""

    id: RequestId
    url: str


class MessageWish(msgspec.Struct, frozen=True):
    """The view wants to write into the conversation as the user: show it first. `answer` it with `{}`, or `refuse` it."""

    id: RequestId
    content: list[JSONObject]


class ContextChanged(msgspec.Struct, frozen=True):
    """The view has something for the model's next message, in the place of what it had before."""

    content: list[JSONObject]
    structured: JSONObject | None


class DisplayWish(msgspec.Struct, frozen=True):
    """The view wants another size of itself. `answer` it with `{"mode": ...}`, the one that there is now."""

    id: RequestId
    mode: Literal["inline", "fullscreen", "pip"]


class ViewResized(msgspec.Struct, frozen=True):
    """The size of what the view shows has changed, in pixels."""

    width: float | None
    height: float | None


class ViewLogged(msgspec.Struct, frozen=True):
    """The view logs something."""

    level: str
    data: JSON


class ViewClosed(msgspec.Struct, frozen=True):
    """The view is over: remove its frame."""

    reason: str


AppEvent: TypeAlias = (
    Post
    | ToolWish
    | ResourceWish
    | LinkWish
    | MessageWish
    | ContextChanged
    | DisplayWish
    | ViewResized
    | ViewLogged
    | ViewClosed
)
_Handler: TypeAlias = Callable[[RequestId, JSONObject], list[AppEvent]]


class _Refusal(Exception):
    """Why a request of a view is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Wishes:
    """What a view may wish for: each method reads the params of one request, and returns its event. Raises: _Refusal."""

    def __init__(self, tools: Sequence[Tool], context: JSONObject, *, links: bool, messages: bool) -> None:
        self._tools = {each.name: each for each in tools}
        self._context = context
        self._links = links
        self._messages = messages
        self.modes: Sequence[JSON] | None = None
        """The display modes that the view has; None if it did not name them."""

    def call(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        name, arguments = params.get("name"), params.get("arguments", {})
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not is_for_app(tool):
            raise _Refusal(INVALID_PARAMS, f"no tool for apps: {str(name)[:100]}")
        if not is_object(arguments):
            raise _Refusal(INVALID_PARAMS, "arguments must be an object")
        return [ToolWish(request_id, tool, arguments)]

    def read(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        uri = params.get("uri")
        if not isinstance(uri, str) or len(uri) > MAX_URL:
            raise _Refusal(INVALID_PARAMS, "uri must be a text")
        return [ResourceWish(request_id, uri)]

    def open_link(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        url = params.get("url")
        if not self._links:
            raise _Refusal(METHOD_NOT_FOUND, "this host opens no links")
        if not isinstance(url, str) or len(url) > MAX_URL or not _LINK.fullmatch(url):
            raise _Refusal(REFUSED, "only links to http:// and https:// are opened")
        return [LinkWish(request_id, url)]

    def say(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        if not self._messages:
            raise _Refusal(METHOD_NOT_FOUND, "this host takes no messages of views")
        if params.get("role") != "user":
            raise _Refusal(INVALID_PARAMS, "role must be user")
        return [MessageWish(request_id, _texts(params.get("content")))]

    def update(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        structured: JSON = params.get("structuredContent")
        if structured is not None and not is_object(structured):
            raise _Refusal(INVALID_PARAMS, "structuredContent must be an object")
        content = _texts(params["content"]) if params.get("content") is not None else []
        return [ContextChanged(content, structured), _result(request_id, {})]

    def display(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        mode: JSON = params.get("mode")
        if mode not in _MODES:
            raise _Refusal(INVALID_PARAMS, "mode must be inline, fullscreen or pip")
        offered: JSON = self._context.get("availableDisplayModes")
        if not is_array(offered) or mode not in offered or (self.modes is not None and mode not in self.modes):
            return [_result(request_id, {"mode": self._context["displayMode"]})]
        return [DisplayWish(request_id, mode)]


class AppBridge:
    """One view of one call of a tool."""

    def __init__(
        self,
        view: View,
        tool: Tool,
        tools: Sequence[Tool],
        *,
        arguments: JSONObject | None = None,
        granted: Sequence[Permission] = (),
        context: JSONObject | None = None,
        info: Implementation | None = None,
        links: bool = True,
        messages: bool = True,
    ) -> None:
        """Show the results of `tool`. `tools` are those of its server, `granted` the permissions that the frame really has.

        `context` is the host's: `theme`, `locale`, `displayMode`, `containerDimensions` and others of the specification. Without
        `links` and `messages` the host does not offer either to the view.
        """
        self.view = view
        self._granted = granted
        self._tool = tool
        self._context: JSONObject = {"displayMode": "inline", "availableDisplayModes": ["inline"], **(context or {})}
        self._info = info or Implementation("linkspan", "1")
        self._links = links
        self._messages = messages
        self._state: Literal["new", "greeted", "ready", "closing", "closed"] = "new"
        self._waiting: list[JSONObject] = []
        self._pending: set[RequestId] = set()
        self._input: JSONObject | None = arguments
        self._has_ended = False
        self._closes_at: float | None = None
        self._second = 0.0
        self._count = 0
        self._wishes = wishes = _Wishes(tools, self._context, links=links, messages=messages)
        self._requests: Mapping[str, _Handler] = {
            "ui/initialize": self._initialize,
            "ping": self._ping,
            "tools/call": wishes.call,
            "resources/read": wishes.read,
            "ui/open-link": wishes.open_link,
            "ui/message": wishes.say,
            "ui/update-model-context": wishes.update,
            "ui/request-display-mode": wishes.display,
        }
        if arguments is not None:
            self._notify("tool-input", {"arguments": arguments})

    @property
    def is_closed(self) -> bool:
        """Whether its frame is to be removed, or is."""
        return self._state == "closed"

    # What the view sends.

    def receive(self, message: str | bytes | JSON, now: float = 0.0) -> list[AppEvent]:
        """Take a message of the view: its JSON, or the value. Never raises; a view that sends too much is closed."""
        if self._state == "closed":
            return []
        if (problem := self._too_much(message, now)) is not None:
            self._state = "closed"
            return [ViewClosed(problem)]
        try:
            value: JSON = msgspec.json.decode(message) if isinstance(message, str | bytes) else message
        except (msgspec.DecodeError, RecursionError):
            return [_error(None, PARSE_ERROR, "not JSON")]
        if not is_object(value) or value.get("jsonrpc") != "2.0":
            return [_error(None, INVALID_REQUEST, "not a JSON-RPC message")]
        request_id, method, params = value.get("id"), value.get("method"), value.get("params", {})
        if not isinstance(method, str):
            return self._response(value)
        if not is_object(params):
            return [_error(request_id, INVALID_PARAMS, "params must be an object")] if "id" in value else []
        if "id" not in value:
            return self._notified(method, params)
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return [_error(None, INVALID_REQUEST, "id must be a string or a number")]
        return self._requested(request_id, method, params)

    def _too_much(self, message: str | bytes | JSON, now: float) -> str | None:
        if now - self._second >= 1:
            self._second, self._count = now, 0
        self._count += 1
        if self._count > MAX_PER_SECOND:
            return f"the view sent more than {MAX_PER_SECOND} messages in a second"
        if isinstance(message, str | bytes) and len(message) > MAX_MESSAGE:
            return f"the view sent a message of more than {MAX_MESSAGE} bytes"
        return None

    def _requested(self, request_id: RequestId, method: str, params: JSONObject) -> list[AppEvent]:
        handler = self._requests.get(method)
        try:
            if handler is None:
                raise _Refusal(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
            if request_id in self._pending or len(self._pending) >= MAX_PENDING:
                raise _Refusal(
                    INVALID_REQUEST, "this id is in use" if request_id in self._pending else "too many requests"
                )
            if method not in ("ui/initialize", "ping") and self._state != "ready":
                raise _Refusal(INVALID_REQUEST, "the view has not sent ui/notifications/initialized")
            events = handler(request_id, params)
            if not any(isinstance(each, Post) for each in events):
                self._pending.add(request_id)
            return events
        except _Refusal as refusal:
            return [_error(request_id, refusal.code, str(refusal))]

    def _notified(self, method: str, params: JSONObject) -> list[AppEvent]:
        if method == "ui/notifications/initialized" and self._state == "greeted":
            self._state = "ready"
            waiting, self._waiting = self._waiting, []
            return [Post(each) for each in waiting]
        if self._state not in ("ready", "closing"):
            return []
        if method == "ui/notifications/size-changed":
            sides = [params.get(name) for name in ("width", "height")]
            known = [each if is_number(each) and 0 <= each <= _MAX_SIDE else None for each in sides]
            return [ViewResized(*known)] if any(each is not None for each in known) else []
        if method == "notifications/message":
            return [ViewLogged(str(params.get("level"))[:20], params.get("data"))]
        if method == "ui/notifications/request-teardown":
            return self._tear_down()
        return []

    def _response(self, value: JSONObject) -> list[AppEvent]:
        """Take the answer to our one request: that the view is ready to be closed."""
        if self._state == "closing" and value.get("id") == _TEARDOWN_ID:
            return self._close("closed")
        return []

    # Requests of the view.

    def _initialize(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        if self._state != "new":
            raise _Refusal(INVALID_REQUEST, "the view is initialized already")
        capabilities: JSON = params.get("appCapabilities")
        modes: JSON = capabilities.get("availableDisplayModes") if is_object(capabilities) else None
        self._wishes.modes = modes if is_array(modes) else None
        self._state = "greeted"
        offered: JSONObject = {
            "serverTools": {},
            "serverResources": {},
            "logging": {},
            "updateModelContext": {"text": {}, "structuredContent": {}},
            "sandbox": sandbox_of(self.view, self._granted),
        }
        offered |= {"openLinks": {}} if self._links else {}
        offered |= {"message": {"text": {}}} if self._messages else {}
        result: JSONObject = {
            "protocolVersion": VERSION,
            "hostInfo": {"name": self._info.name, "version": self._info.version},
            "hostCapabilities": offered,
            "hostContext": {**self._context, "toolInfo": {"tool": to_builtins(self._tool)}},
        }
        return [_result(request_id, result)]

    def _ping(self, request_id: RequestId, params: JSONObject) -> list[AppEvent]:
        return [_result(request_id, {})]

    # What the host sends.

    def answer(self, request_id: RequestId, result: JSON | ToolResult | CallToolResult) -> list[AppEvent]:
        """Answer a wish of the view. Raises: LocalProtocolError for one that does not wait for an answer."""
        self._end(request_id)
        return [_result(request_id, _plain(result))] if self._state != "closed" else []

    def refuse(self, request_id: RequestId, message: str, code: int = REFUSED) -> list[AppEvent]:
        """Refuse a wish of the view, in words that it may show. Raises: LocalProtocolError, as `answer` does."""
        self._end(request_id)
        return [_error(request_id, code, message)] if self._state != "closed" else []

    def _end(self, request_id: RequestId) -> None:
        if request_id not in self._pending and self._state != "closed":
            raise LocalProtocolError(f"the view waits for no answer to {request_id!r}")
        self._pending.discard(request_id)

    def send_input_partial(self, arguments: JSONObject) -> list[AppEvent]:
        """Show arguments that a model is still writing. Raises: LocalProtocolError once they are complete."""
        if self._input is not None:
            raise LocalProtocolError("the input of the tool is complete already")
        return self._now("tool-input-partial", {"arguments": arguments})

    def send_input(self, arguments: JSONObject) -> list[AppEvent]:
        """Show the arguments of the call. Raises: LocalProtocolError for the second time."""
        if self._input is not None:
            raise LocalProtocolError("the input of the tool was sent already")
        self._input = arguments
        return self._now("tool-input", {"arguments": arguments})

    def send_result(self, result: ToolResult | CallToolResult | JSONObject) -> list[AppEvent]:
        """Show the result of the call. Raises: LocalProtocolError before its input, and for the second time."""
        self._check_end()
        return self._now("tool-result", _plain(result))

    def send_cancelled(self, reason: str = "") -> list[AppEvent]:
        """Show that the call has no result. Raises: LocalProtocolError, as `send_result` does."""
        self._check_end()
        return self._now("tool-cancelled", {"reason": reason} if reason else {})

    def _check_end(self) -> None:
        if self._input is None or self._has_ended:
            raise LocalProtocolError(
                "the call of the tool has ended already" if self._has_ended else "send the input of the tool first"
            )
        self._has_ended = True

    def change_context(self, **changed: JSON) -> list[AppEvent]:
        """Change the host's context, such as `theme="dark"`, and show the view what has changed."""
        self._context.update(changed)
        return self._now("host-context-changed", changed)

    def tear_down(self, now: float = 0.0) -> list[AppEvent]:
        """Close the view: it is asked first, and has two seconds. See `next_timeout`."""
        events = self._tear_down()
        self._closes_at = now + TEARDOWN if self._state == "closing" else None
        return events

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is to be called next."""
        return self._closes_at

    def handle_timeout(self, now: float) -> list[AppEvent]:
        """Close a view that did not answer in time."""
        if self._closes_at is None or now < self._closes_at:
            return []
        return self._close("the view did not answer in time")

    def _tear_down(self) -> list[AppEvent]:
        if self._state in ("closing", "closed"):
            return []
        if self._state != "ready":
            return self._close("closed before it was ready")
        self._state = "closing"
        request: JSONObject = {"jsonrpc": "2.0", "id": _TEARDOWN_ID, "method": "ui/resource-teardown", "params": {}}
        return [Post(request)]

    def _close(self, reason: str) -> list[AppEvent]:
        self._state, self._closes_at = "closed", None
        self._pending.clear()
        return [ViewClosed(reason)]

    def _now(self, name: str, params: JSONObject) -> list[AppEvent]:
        """Return what goes to the view now; it waits until the view is ready."""
        before = len(self._waiting)
        self._notify(name, params)
        if self._state != "ready":
            return []
        sent, self._waiting = self._waiting[before:], self._waiting[:before]
        return [Post(each) for each in sent]

    def _notify(self, name: str, params: JSONObject) -> None:
        if self._state in ("new", "greeted", "ready"):
            self._waiting.append({"jsonrpc": "2.0", "method": f"ui/notifications/{name}", "params": params})


_TEARDOWN_ID: Final = "linkspan-teardown"


def _texts(content: JSON) -> list[JSONObject]:
    """Return blocks of text. Raises: _Refusal for others, which no host has promised to take."""
    blocks = [content] if is_object(content) else content
    if not is_array(blocks) or not blocks:
        raise _Refusal(INVALID_PARAMS, "content must be blocks of text")
    for each in blocks:
        if not is_object(each) or each.get("type") != "text" or not isinstance(each.get("text"), str):
            raise _Refusal(INVALID_PARAMS, "content must be blocks of text")
    return [{"type": "text", "text": each["text"]} for each in blocks]


def _plain(value: Any) -> JSON:
    """Return the JSON of a result."""
    return msgspec.json.decode(value.raw) if isinstance(value, ToolResult) else to_builtins(value)


def _result(request_id: RequestId, result: JSON) -> Post:
    return Post({"jsonrpc": "2.0", "id": request_id, "result": result})


def _error(request_id: JSON, code: int, message: str) -> Post:
    return Post({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
