"""The tools of a server as an API for REST clients: `POST /api/tools/NAME`, and the OpenAPI document of what the caller sees.

Law: each request becomes one request of the protocol to the application of `server.asgi()`, so its gate, its guard and its bounds
hold: Host and Origin, tokens, sizes, conditions, scopes, middleware. Bodies have the type of JSON, which no form of a browser
can send.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, Unpack, cast

import msgspec

from linkspan.core.http_checks import HttpKeywords
from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS
from linkspan.revisions import LATEST
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from linkspan.serve.server import Server
from linkspan.server.observation import RETRY_AFTER
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import Tool
from linkspan.types.methods import TOOL_CALL, TOOL_LIST
from linkspan.wire.jsonrpc import encode

__all__ = ["RestApp", "rest_app"]

MAX_PAGES: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_JSON_TYPE: Final = re.compile(r"application/json\s*(;\s*charset=\"?utf-8\"?\s*)?", re.IGNORECASE)
_ROUND: Final = frozenset({"arguments", "answers", "state"})
_OWN: Final = frozenset(
    {
        b"accept",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"mcp-session-id",
        b"last-event-id",
        b"expect",
    }
)
"""Headers that the request within has of its own, or does not have."""

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]


def rest_app(server: Server, path: str = "/api", **policy: Unpack[HttpKeywords]) -> RestApp:
    """Return an ASGI application for REST clients: run it, mount it, or pass it to `server.asgi(otherwise=...)`.

        app = server.asgi(path="/mcp", otherwise=rest_app(server))

    - `POST /api/tools/NAME` with the arguments as JSON: 200 with the structured content, or `{"content": [...]}`; 422 for an
      error of the tool, 409 with `questions` and `state` for one that asks. The same again with
      `{"arguments", "answers", "state"}` answers: an object for each question, or null to decline.
    - `GET /api/openapi.json`: the OpenAPI 3.1 document of the tools that the caller sees.

    Callers are those of the server: its `auth=`, `when=` and `scopes=` hold. `policy` are the fields of `HttpPolicy`, such as
    `allowed_hosts` and `allowed_origins`. Raises: TypeError for other keywords.
    """
    return RestApp(server, path, policy)


class RestApp:
    """The application."""

    def __init__(self, server: Server, path: str, policy: HttpKeywords) -> None:
        """Made by `rest_app`."""
        if not path.startswith("/"):
            raise ValueError(f"path={path!r} begins with a slash, such as '/api'")
        self._server = server
        self._path = path.rstrip("/")
        self._inner = server.asgi(**policy)
        self._max_body = self._inner.endpoint.policy.max_body_bytes

    def __repr__(self) -> str:
        return f"<RestApp of {self._server.name} at {self._path}>"

    async def __call__(self, scope: Any, receive: _Receive, send: _Send) -> None:
        """Serve one request; the lifespan is that of the server."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        own: str = scope["path"]
        local = own.removeprefix(scope.get("root_path", "")).removeprefix(self._path).strip("/")
        method: str = scope["method"]
        name = local.removeprefix("tools/")
        if local == "openapi.json":
            answer = await self._document(scope, receive) if method in ("GET", "HEAD") else _not_allowed("GET")
        elif local.startswith("tools/") and _NAME.fullmatch(name):
            answer = await self._called(name, scope, receive) if method == "POST" else _not_allowed("POST")
        else:
            answer = _RestAnswer.of(404, {"error": f"Nothing is here: see {self._path}/openapi.json"})
        if answer is not None:
            await answer.send(send, bodiless=method == "HEAD")

    async def _called(self, name: str, scope: Any, receive: _Receive) -> _RestAnswer | None:
        types = [value for key, value in scope["headers"] if bytes(key).lower() == b"content-type"]
        if len(types) != 1 or not _JSON_TYPE.fullmatch(types[0].decode("latin-1").strip()):
            return _RestAnswer.of(415, {"error": "Content-Type must be application/json"})
        body = _ToolBody(name, receive, self._max_body)
        reply = await self._ask(scope, TOOL_CALL.name, body.receive, name)
        if body.problem is not None:
            return body.problem
        if reply is None or isinstance(reply, _RestAnswer):
            return reply
        error: JSON = reply.get("error")
        if is_object(error):
            code: JSON = error.get("code")
            status = 400
            if code == INVALID_PARAMS and not body.answers:
                status = 404
            elif code == INTERNAL_ERROR:
                status = 500
            return _RestAnswer.of(status, {"error": error.get("message")})
        result: JSON = reply.get("result")
        return _of_result(result if is_object(result) else {})

    async def _document(self, scope: Any, receive: _Receive) -> _RestAnswer | None:
        tools: list[Tool] = []
        cursor: JSON = None
        for _ in range(MAX_PAGES):
            members: JSONObject = {"cursor": cursor} if cursor is not None else {}
            body = _message(TOOL_LIST.method, members)
            reply = await self._ask(scope, TOOL_LIST.method, _once(body, receive))
            if reply is None or isinstance(reply, _RestAnswer):
                return reply
            result: JSON = reply.get("result")
            if not is_object(result):
                return _RestAnswer.of(500, {"error": "the tools cannot be listed"})
            tools += msgspec.convert(result.get("tools"), list[Tool])
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                break
        url = scope.get("root_path", "") + self._path
        return _RestAnswer.of(200, make_document(self._server, tools, url or "/"))

    async def _ask(
        self, scope: Any, method: str, receive: _Receive, name: str | None = None
    ) -> JSONObject | _RestAnswer | None:
        """Send a request of the protocol within; return its response, a refusal, or None if the client has gone."""
        headers = [
            each for each in scope["headers"] if bytes(each[0]).lower() not in _OWN and not _is_protocol(each[0])
        ]
        headers += [
            (b"accept", b"application/json, text/event-stream"),
            (b"content-type", b"application/json"),
            (b"mcp-protocol-version", LATEST.date.encode()),
            (b"mcp-method", method.encode()),
        ]
        if name is not None:
            headers.append((b"mcp-name", name.encode()))
        root = scope.get("root_path", "")
        within = {
            **scope,
            "method": "POST",
            "path": f"{root}/",
            "raw_path": None,
            "query_string": b"",
            "headers": headers,
        }
        collected = _Collected()
        await self._inner(within, receive, collected.send)
        return collected.found()


def _is_protocol(name: Any) -> bool:
    return bytes(name).lower().startswith(b"mcp-")


class _RestAnswer(msgspec.Struct, frozen=True):
    """A response, whole."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @staticmethod
    def of(status: int, value: JSON, *headers: tuple[bytes, bytes]) -> _RestAnswer:
        """Return a response with JSON."""
        fixed = (
            (b"content-type", b"application/json"),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
        )
        return _RestAnswer(status, msgspec.json.encode(value), (*fixed, *headers))

    async def send(self, send: _Send, *, bodiless: bool) -> None:
        """Send it."""
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if bodiless else self.body, "more_body": False})


def _not_allowed(method: str) -> _RestAnswer:
    return _RestAnswer.of(405, {"error": f"use {method}"}, (b"allow", method.encode()))


def _message(method: str, members: JSONObject) -> bytes:
    # Forms and pages are what a REST client can show; it has no model and no folders.
    meta: JSONObject = {PROTOCOL_VERSION: LATEST.date, CAPABILITIES: {"elicitation": {"form": {}, "url": {}}}}
    return encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**members, "_meta": meta}})


def _once(body: bytes, receive: _Receive) -> _Receive:
    waiting = [body]

    async def next_message() -> _Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return next_message


class _ToolBody:
    """The body of a request, which becomes that of the request within once the gate has let it in."""

    def __init__(self, name: str, receive: _Receive, bound: int) -> None:
        self.problem: _RestAnswer | None = None
        self.answers = False
        self._name = name
        self._receive = receive
        self._bound = bound
        self._read = False

    async def receive(self) -> _Message:
        """Return the message within; where there is none, `problem` is the response."""
        if self._read:
            return await self._receive()
        whole = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return message
            whole += message.get("body", b"")
            if len(whole) > self._bound:
                return self._refuse(413, f"the body has more than {self._bound} bytes")
            if not message.get("more_body", False):
                break
        self._read = True
        try:
            given: JSON = msgspec.json.decode(bytes(whole)) if whole.strip() else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._refuse(400, "the body is not valid JSON")
        if not is_object(given):
            return self._refuse(400, "the body must be an object with the arguments of the tool")
        members: JSONObject = {"name": self._name, "arguments": given}
        if given.keys() == _ROUND:
            answers, state, arguments = given["answers"], given["state"], given["arguments"]
            if not is_object(answers) or not is_object(arguments) or not isinstance(state, str | None):
                return self._refuse(
                    400, "arguments and answers must be objects, and state the text that came with the questions"
                )
            self.answers = True
            members["arguments"] = arguments
            members["inputResponses"] = {key: _answer(each) for key, each in answers.items()}
            if state is not None:
                members["requestState"] = state
        return {"type": "http.request", "body": _message(TOOL_CALL.name, members), "more_body": False}

    def _refuse(self, status: int, problem: str) -> _Message:
        self.problem = _RestAnswer.of(status, {"error": problem})
        return {"type": "http.disconnect"}


def _answer(given: JSON) -> JSON:
    """Return an answer as the protocol has it."""
    if given is None:
        return {"action": "decline"}
    if is_object(given) and given.get("action") in ("accept", "decline", "cancel"):
        return given
    return {"action": "accept", "content": given}


class _Collected:
    """The response to the request within."""

    def __init__(self) -> None:
        self._status = 0
        self._headers: tuple[tuple[bytes, bytes], ...] = ()
        self._body = bytearray()

    async def send(self, message: _Message) -> None:
        """Take a piece of it."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], tuple((bytes(a), bytes(b)) for a, b in message["headers"])
        else:
            self._body += message.get("body", b"")

    def found(self) -> JSONObject | _RestAnswer | None:
        """Return the message in it; what the gate or the guard has refused as it is."""
        if not self._status:
            return None
        kinds = [value for name, value in self._headers if name.lower() == b"content-type"]
        if self._status != 200:
            return self._refusal()
        if kinds and kinds[0].startswith(b"text/event-stream"):
            data = [line[5:] for line in bytes(self._body).splitlines() if line.startswith(b"data:")]
            messages = [msgspec.json.decode(each) for each in data if each.strip()]
        else:
            messages = [msgspec.json.decode(bytes(self._body))]
        return next((each for each in messages if is_object(each) and each.get("id") == 1), None)

    def _refusal(self) -> _RestAnswer:
        """Return what refused the request, with its own status and challenge, and its sentence as an error of this API."""
        kept = tuple(
            each for each in self._headers if each[0].lower() in (b"www-authenticate", b"retry-after", b"dpop-nonce")
        )
        text: JSON = bytes(self._body).decode("utf-8", "replace")
        with suppress(msgspec.DecodeError):
            value: JSON = msgspec.json.decode(bytes(self._body))
            error: JSON = value.get("error") if is_object(value) else None
            text = error.get("message") if is_object(error) else text
        return _RestAnswer.of(self._status, {"error": text}, *kept)


def _of_result(result: JSONObject) -> _RestAnswer:
    """Return the response for the result of a tool."""
    if result.get("resultType") == "input_required":
        return _RestAnswer.of(409, {"questions": result.get("inputRequests", {}), "state": result.get("requestState")})
    content: list[JSON] = result.get("content") or []
    if result.get("isError") is True:
        meta: JSON = result.get("_meta")
        after: JSON = meta.get(RETRY_AFTER) if is_object(meta) else None
        texts = [each["text"] for each in content if each.get("type") == "text"]
        value: JSONObject = {"error": "\n".join(texts)}
        if "structuredContent" in result:
            value["details"] = result["structuredContent"]
        if isinstance(after, int):
            return _RestAnswer.of(429, value, (b"retry-after", b"%d" % after))
        return _RestAnswer.of(422, value)
    if "structuredContent" in result:
        return _RestAnswer.of(200, result["structuredContent"])
    return _RestAnswer.of(200, {"content": content})


# The document.


def make_document(server: Server, tools: list[Tool], url: str) -> JSONObject:
    """Return an OpenAPI 3.1 document of tools, below a URL."""
    schemas: JSONObject = {
        "Error": {"type": "object", "properties": {"error": {"type": "string"}, "details": {}}, "required": ["error"]},
        "Questions": {
            "type": "object",
            "description": "The tool asks: send Answers to the same path.",
            "properties": {
                "questions": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "additionalProperties": True},
                },
                "state": {"type": ["string", "null"]},
            },
            "required": ["questions"],
        },
        "Answers": {  # not in the bodies of operations: their readers want the arguments, one plain object
            "type": "object",
            "description": "The arguments again, an object or null for each question, and the state.",
            "properties": {
                "arguments": {"type": "object", "additionalProperties": True},
                "answers": {
                    "type": "object",
                    "additionalProperties": {"type": ["object", "null"], "additionalProperties": True},
                },
                "state": {"type": ["string", "null"]},
            },
            "required": ["arguments", "answers"],
        },
        "Content": {
            "type": "object",
            "properties": {"content": {"type": "array", "items": {"type": "object"}}},
            "required": ["content"],
        },
    }
    paths = {f"/tools/{tool.name}": {"post": _operation(tool, schemas)} for tool in tools}
    components: JSONObject = {"schemas": schemas}
    info: JSONObject = {"title": server.name, "version": server.version}
    if server.instructions:
        info["description"] = server.instructions
    found: JSONObject = {
        "openapi": "3.1.0",
        "info": info,
        "servers": [{"url": url}],
        "paths": paths,
        "components": components,
    }
    if server.auth is not None:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _operation(tool: Tool, schemas: JSONObject) -> JSONObject:
    name = f"{tool.name}.arguments"
    schemas[name] = lifted(tool.input_schema, f"#/components/schemas/{name}")
    output: JSONObject = {"$ref": "#/components/schemas/Content"}
    if is_object(tool.output_schema):
        own = f"{tool.name}.result"
        schemas[own] = lifted(tool.output_schema, f"#/components/schemas/{own}")
        output = {"$ref": f"#/components/schemas/{own}"}
    error = {"$ref": "#/components/schemas/Error"}
    operation: JSONObject = {
        "operationId": tool.name,
        "requestBody": {"required": True, "content": _json_of({"$ref": f"#/components/schemas/{name}"})},
        "responses": {
            "200": {"description": "What the tool returned", "content": _json_of(output)},
            "409": {
                "description": "The tool asks the user",
                "content": _json_of({"$ref": "#/components/schemas/Questions"}),
            },
            "422": {"description": "The tool failed, or its arguments are wrong", "content": _json_of(error)},
            "default": {"description": "The request was refused", "content": _json_of(error)},
        },
    }
    if tool.title:
        operation["summary"] = tool.title
    if tool.description:
        operation["description"] = tool.description
    return operation


def _json_of(schema: JSONObject) -> JSONObject:
    return {"application/json": {"schema": schema}}


def lifted(schema: Mapping[str, JSON], place: str) -> JSONObject:
    """Return a schema for a place in a document: its local references lead there. What names a schema of its own is left out."""

    def moved(value: JSON) -> JSON:
        if is_array(value):
            return [moved(each) for each in value]
        if not is_object(value):
            return value
        found: JSONObject = {}
        for key, each in value.items():
            if key == "$ref" and isinstance(each, str):
                found[key] = place + each[1:] if each.startswith("#") else each
            elif key in ("default", "const", "enum", "examples"):
                found[key] = each
            elif key not in ("$schema", "$id"):
                found[key] = moved(each)
        return found

    return cast("JSONObject", moved(dict(schema)))
