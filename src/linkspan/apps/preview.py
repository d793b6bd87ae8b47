"""One view of a call, shown to its author: the bridge joined to a client, for a page that posts what the frame says.

    preview = Preview.open(client, tool, {"year": 2026}, result)
    for message in preview.receive(text_of_the_frame): ...  # post it into the frame

For trying out a server: `allow` is asked before a tool runs, a page is opened or something is said as the user.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from linkspan.apps.bridge import (
    AppBridge,
    AppEvent,
    ContextChanged,
    DisplayWish,
    LinkWish,
    MessageWish,
    Post,
    ResourceWish,
    ToolWish,
    ViewClosed,
    ViewLogged,
    ViewResized,
)
from linkspan.apps.policy import Permission, View, ViewError, read_view, view_uri
from linkspan.flows.client_errors import ClientError
from linkspan.flows.tool_results import ToolResult
from linkspan.types.base import JSONObject
from linkspan.types.messages import Tool

if TYPE_CHECKING:
    from linkspan.client.sync_client import SyncClient

__all__ = ["Preview"]

_MAX_HAPPENED: Final = 200


class Preview:
    """A view and its bridge. Any thread may call it; one at a time is served."""

    def __init__(self, client: SyncClient, bridge: AppBridge, allow: Callable[[AppEvent], bool]) -> None:
        """See `open`."""
        self._client = client
        self._allow = allow
        self._lock = threading.Lock()
        self.bridge = bridge
        self.happened: list[AppEvent] = []
        """What the view wished, logged and became, the newest last."""

    @classmethod
    def open(
        cls,
        client: SyncClient,
        tool: Tool,
        arguments: JSONObject,
        result: ToolResult | JSONObject | None = None,
        *,
        allow: Callable[[AppEvent], bool] = lambda event: False,
        granted: Sequence[Permission] = (),
        context: JSONObject | None = None,
    ) -> Preview:
        """Read the view of a tool, and show it a call. Raises: ViewError for what cannot be shown; ClientError."""
        uri = view_uri(tool)
        if uri is None:
            raise ViewError(f"the tool {tool.name!r} has no view")
        listed = next((each for each in client.list_resources() if each.uri == uri), None)
        view = read_view(uri, client.read_resource(uri), listed)
        bridge = AppBridge(view, tool, client.list_tools(), arguments=arguments, granted=granted, context=context)
        if result is not None:
            bridge.send_result(result)
        return cls(client, bridge, allow)

    @property
    def view(self) -> View:
        """The view, for `Views.show`."""
        return self.bridge.view

    def receive(self, message: str | bytes) -> list[JSONObject]:
        """Take what the frame has posted; return what to post into it. Tools and resources of the view are waited for."""
        with self._lock:
            return self._sent(self.bridge.receive(message, time.monotonic()))

    def show(self, step: Callable[[AppBridge], list[AppEvent]]) -> list[JSONObject]:
        """Let the bridge send something, such as a result; return what to post into the frame."""
        with self._lock:
            return self._sent(step(self.bridge))

    def _sent(self, events: list[AppEvent]) -> list[JSONObject]:
        sent: list[JSONObject] = []
        while events:
            event, *events = events
            if isinstance(event, Post):
                sent.append(event.message)
                continue
            self.happened = [*self.happened, event][-_MAX_HAPPENED:]
            events = [*self._done(event), *events]
        return sent

    def _done(self, event: AppEvent) -> list[AppEvent]:
        """Do what the view wishes, if it is allowed; return what follows."""
        match event:
            case ViewResized() | ViewLogged() | ViewClosed() | ContextChanged() | Post():
                return []
            case ResourceWish(id=request_id, uri=uri):
                try:
                    return self.bridge.answer(request_id, self._client.read_resource(uri))
                except ClientError as problem:
                    return self.bridge.refuse(request_id, problem.problem)
            case ToolWish() | LinkWish() | MessageWish() | DisplayWish():
                if not self._allow(event):
                    return self.bridge.refuse(event.id, "the user did not allow it")
        if not isinstance(event, ToolWish):
            mode = event.mode if isinstance(event, DisplayWish) else None
            return self.bridge.answer(event.id, {"mode": mode} if mode is not None else {})
        try:
            return self.bridge.answer(event.id, self._client.call_tool(event.tool.name, event.arguments))
        except ClientError as problem:
            return self.bridge.refuse(event.id, problem.problem)
