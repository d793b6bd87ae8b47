"""The views of tools, shown with the results of calls: each at an origin of its own, joined to the client of its call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from linkspan.apps.bridge import (
    AppEvent,
    ContextChanged,
    DisplayWish,
    LinkWish,
    MessageWish,
    ToolWish,
    ViewClosed,
    ViewLogged,
)
from linkspan.apps.policy import ViewError
from linkspan.apps.preview import Preview
from linkspan.apps.views import MAX_VIEWS, ViewResponse, Views
from linkspan.client.sync_client import SyncClient
from linkspan.flows.answers import Refused
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject
from linkspan.workbench.events import EventLog, cut
from linkspan.workbench.exchanges import BenchCalls
from linkspan.workbench.questions import Questions

_LONGEST_WISH: Final = 2_000
"""Characters of what a view wants to do, shown in a question."""


class _OpenView(msgspec.Struct, frozen=True):
    preview: Preview
    closed: threading.Event
    """Ends a question that it waits for."""


class BenchViews:
    """The views that the page shows now. The oldest of more than 16 is closed."""

    def __init__(
        self, questions: Questions, events: EventLog, exchanges: BenchCalls, client_of: Callable[[str], SyncClient]
    ) -> None:
        """`client_of` returns the client for a revision."""
        self.origin = ""
        """That of the page with the frames, such as "http://127.0.0.1:6280"; its server sets it."""
        self._questions = questions
        self._events = events
        self._exchanges = exchanges
        self._client_of = client_of
        self._views = Views()
        self._lock = threading.Lock()
        self._open: dict[str, _OpenView] = {}

    def respond(self, host: str | None, method: str, path: str) -> ViewResponse | None:
        """Answer a request by its header `Host`; None where the host name is not that of a view."""
        return self._views.respond(host, method, path)

    def open(self, number: int, theme: str) -> JSONObject:
        """Show the view of a call; return the host name and `allow` of its frame. Raises: ViewError, ClientError."""
        exchange = self._exchanges.get(number)
        if exchange is None or exchange.state != "done":
            raise ViewError("there is no result of this call to show")
        wanted, closed = exchange.wanted, threading.Event()
        client = self._client_of(wanted.revision)
        tool = next((each for each in client.list_tools() if each.name == wanted.name), None)
        try:
            result = msgspec.json.decode(exchange.result)
        except msgspec.DecodeError:
            raise ViewError("there is no whole result of this call to show: call it again") from None
        if tool is None or wanted.kind != "tool":
            raise ViewError(f"there is no tool {wanted.name!r}")

        def allow(event: AppEvent) -> bool:
            return self._is_allowed(number, closed, event)

        preview = Preview.open(client, tool, wanted.arguments, result, allow=allow, context={"theme": theme})
        for each in preview.view.ignored:
            self._say(f"ignored: {each}", "WARNING")
        name = self._views.show(preview.view, self.origin)
        with self._lock:
            self._open[name] = _OpenView(preview, closed)
            oldest = list(self._open)[:-MAX_VIEWS]
        for each in oldest:
            self.close(each)
        return {"name": name, "allow": self._views.allow_of(name)}

    def receive(self, name: str, text: str) -> JSONObject:
        """Take what the frame of a view has posted; return what to post into it. It waits for tools, and for the person."""
        if (shown := self._open.get(name)) is None:
            return {"messages": [], "closed": True}
        sent = shown.preview.receive(text)
        self._report(shown.preview)
        return {"messages": sent, "closed": shown.preview.bridge.is_closed}

    def change(self, name: str, theme: str) -> list[JSONObject]:
        """Show a view in another theme; return what to post into its frame."""
        shown = self._open.get(name)
        return shown.preview.show(lambda bridge: bridge.change_context(theme=theme)) if shown is not None else []

    def end(self, name: str) -> list[JSONObject]:
        """Ask a view to save what it has; return what to post into its frame, which may stay for two seconds."""
        shown = self._open.get(name)
        return shown.preview.show(lambda bridge: bridge.tear_down(time.monotonic())) if shown is not None else []

    def close(self, name: str) -> None:
        """Show a view no more."""
        with self._lock:
            shown = self._open.pop(name, None)
        self._views.forget(name)
        if shown is not None:
            shown.closed.set()

    def _is_allowed(self, exchange: int, closed: threading.Event, event: AppEvent) -> bool:
        """Return whether a wish is carried out: a tool that only reads is called, of all else the person is asked."""
        wish = _wish(event)
        if wish is None:
            return True
        try:
            return self._questions.ask("view", wish, exchange, closed.is_set).action == "accept"
        except Refused:
            return False

    def _report(self, preview: Preview) -> None:
        """Write into the log what a view did that is not seen elsewhere."""
        happened, preview.happened = preview.happened, []
        for event in happened:
            match event:
                case ViewLogged(level=level, data=data):
                    self._say(data if isinstance(data, str) else msgspec.json.encode(data).decode(), level.upper())
                case ContextChanged(content=content, structured=structured):
                    texts = [str(each["text"]) for each in content]
                    more = [msgspec.json.encode(structured).decode()] if structured is not None else []
                    self._say("\n".join(["for the model's next message:", *texts, *more]))
                case MessageWish(content=content):
                    self._say("\n".join(["says as the user:", *(str(each["text"]) for each in content)]))
                case ViewClosed(reason=reason):
                    self._say(f"closed: {reason}")
                case _:
                    pass

    def _say(self, text: str, level: str = "") -> None:
        self._events.add("log", source="view", level=level, text=cut(text))


def _wish(event: AppEvent) -> JSON:
    """Return a question, in the shape of an elicitation; None for what is allowed without one."""
    match event:
        case ToolWish(tool=tool) if tool.annotations is not None and tool.annotations.read_only_hint:
            return None
        case ToolWish(tool=tool, arguments=arguments):
            given = clip(msgspec.json.encode(arguments).decode(), _LONGEST_WISH)
            return {"message": f"Call the tool {clip(tool.name, 200)}, which may change something, with {given}?"}
        case LinkWish(url=url):
            return {"message": "Open a page?", "mode": "url", "url": url}
        case MessageWish(content=content):
            said = clip("\n".join(str(each["text"]) for each in content), _LONGEST_WISH)
            return {"message": f"Say this as you, in the conversation?\n{said}"}
        case DisplayWish(mode=mode):
            return {"message": f"Show the view as {mode}?"}
        case _:
            return None
