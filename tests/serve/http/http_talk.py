"""Requests as clients of both eras send them."""

from __future__ import annotations

from typing import Any

from http_faces import Face, Live

from linkspan.revisions import LATEST_LEGACY, MODERN
from linkspan.wire.headers import encode_value

PREFIX = "io.modelcontextprotocol/"
NOW = next(iter(MODERN))
BOTH = "application/json, text/event-stream"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def body(method: str, params: dict[str, Any] | None = None, number: Any = 1, **meta: Any) -> dict[str, Any]:
    """Return a modern request. A `meta` of None leaves a member of the envelope out; underscores stand for dots in no name."""
    envelope = {"protocolVersion": NOW, "clientCapabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    envelope |= {name: value for name, value in meta.items() if name in (*envelope, "logLevel")}
    found = {PREFIX + name: value for name, value in envelope.items() if value is not None}
    if "token" in meta:
        found["progressToken"] = meta["token"]
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), "_meta": found}}


def mirror(request: dict[str, Any], **changes: str | None) -> dict[str, str]:
    """Return the headers that go with a modern request; `changes` by name with underscores, None to leave one out."""
    params = request.get("params", {})
    version = params.get("_meta", {}).get(PREFIX + "protocolVersion", NOW)
    headers: dict[str, str | None] = {
        "accept": BOTH,
        "mcp-protocol-version": str(version),
        "mcp-method": request["method"],
        "mcp-name": encode_value(params.get(_NAMED.get(request["method"], "")))
        if request["method"] in _NAMED
        else None,
    }
    headers |= {name.replace("_", "-").lower(): value for name, value in changes.items()}
    return {name: value for name, value in headers.items() if value is not None}


def modern(face: Face, method: str, params: dict[str, Any] | None = None, number: Any = 1, **meta: Any) -> Live:
    """Send a modern request."""
    request = body(method, params, number, **meta)
    return face.open("POST", mirror(request), request)


def call(face: Face, tool: str, arguments: dict[str, Any] | None = None, number: Any = 1, **meta: Any) -> Live:
    """Call a tool in the modern way."""
    return modern(face, "tools/call", {"name": tool, "arguments": arguments or {}}, number, **meta)


def text_of(answer: Any) -> str:
    """Return the text of a tool's result."""
    found: str = answer["result"]["content"][0]["text"]
    return found


class Session:
    """A handshake client with a session."""

    def __init__(
        self,
        face: Face,
        revision: str = LATEST_LEGACY.date,
        capabilities: dict[str, Any] | None = None,
        principal: str | None = None,
        *,
        ready: bool = True,
    ) -> None:
        self.face = face
        self.principal = principal
        self.headers = {"accept": BOTH}
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "old", "version": "1"},
        }
        self.welcome = self.send("initialize", params, "hello").whole()
        assert self.welcome.status == 200, self.welcome.body
        self.id = self.welcome.headers["mcp-session-id"]
        self.headers |= {"mcp-session-id": self.id, "mcp-protocol-version": revision}
        if ready:
            assert self.send("notifications/initialized").whole().status == 202

    def post(self, message: Any, **changes: str | None) -> Live:
        """Send a message, or a batch."""
        headers = self.headers | {name.replace("_", "-"): value for name, value in changes.items()}
        kept = {name: value for name, value in headers.items() if value is not None}
        return self.face.open("POST", kept, message, principal=self.principal)

    def send(
        self, method: str, params: dict[str, Any] | None = None, number: Any = None, **changes: str | None
    ) -> Live:
        """Send a request, or a notification without a number."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return self.post(message if number is None else message | {"id": number}, **changes)

    def call(self, tool: str, arguments: dict[str, Any] | None = None, number: Any = 1, **meta: Any) -> Live:
        """Call a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
        if meta:
            params["_meta"] = meta
        return self.send("tools/call", params, number)

    def answer(self, number: Any, result: Any) -> Live:
        """Answer a request of the server."""
        return self.post({"jsonrpc": "2.0", "id": number, "result": result})

    def get(self, last: str | None = None, **changes: str | None) -> Live:
        """Open the GET stream, or resume one."""
        headers = self.headers | {"accept": "text/event-stream"}
        if last is not None:
            headers["last-event-id"] = last
        headers |= {name.replace("_", "-"): value for name, value in changes.items() if value is not None}
        return self.face.open("GET", headers, principal=self.principal)

    def delete(self) -> Live:
        """End the session."""
        return self.face.open("DELETE", self.headers, principal=self.principal)
