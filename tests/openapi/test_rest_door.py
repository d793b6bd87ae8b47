"""The tools of a server for REST clients: what they get, what is refused, and the document of each caller."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from linkspan import Ask, Server, ToolError
from linkspan.openapi import read_document, rest_app
from linkspan.openapi.door import lifted


@pytest.fixture(scope="module")
def app() -> Any:
    server = Server("shop", instructions="Sells things.")

    @server.tool(title="Add")
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
        return f"{seats} seats on {date}"

    @server.tool
    def fail(after: float | None = None) -> str:
        raise ToolError("sold out", retry_after=after)

    @server.tool
    def broken() -> str:
        raise ValueError("a secret")

    @server.tool(structured=False)
    def words() -> str:
        return "hello"

    @server.tool(when=lambda ctx: ctx.principal == "ann")
    def for_ann() -> str:
        return "yes, Ann"

    server.define_tool(
        "tree",
        handler=lambda args: args["root"],
        input_schema={
            "type": "object",
            "properties": {"root": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        },
    )
    return rest_app(server)


def request(
    app: Any,
    path: str,
    body: object = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    user: object = None,
) -> tuple[int, dict[str, str], Any]:
    """Send one request; return status, headers, and what the body is as JSON."""
    given = {"host": "localhost", "content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        **({"user": user} if user is not None else {}),
    }
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    sent: list[Any] = []
    waiting = [
        {"type": "http.request", "body": data[:9], "more_body": True},
        {"type": "http.request", "body": data[9:]},
    ]

    async def receive() -> Any:
        return waiting.pop(0) if waiting else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(each.get("body", b"") for each in sent[1:])
    return sent[0]["status"], found, json.loads(text) if text else None


@pytest.mark.parametrize(
    ("tool", "body", "status", "answer"),
    [
        ("add", {"a": 1}, 200, {"result": 3}),
        ("add", None, 422, {"error": "add: a is missing"}),
        ("add", {"a": "x"}, 422, {"error": 'add: a must be an integer, got the string "x"'}),
        ("words", {}, 200, {"content": [{"type": "text", "text": "hello"}]}),
        ("fail", {}, 422, {"error": "sold out"}),
        ("fail", {"after": 5}, 429, {"error": "sold out (try again in 5 s)"}),
        ("nope", {}, 404, {"error": "Unknown tool: nope"}),
        ("for_ann", {}, 404, {"error": "Unknown tool: for_ann"}),
        ("add", [1], 400, {"error": "the body must be an object with the arguments of the tool"}),
        ("add", b"{", 400, {"error": "the body is not valid JSON"}),
        ("add", b'{"a":1}},"method":"tools/list","x":{"y":{', 400, {"error": "the body is not valid JSON"}),
    ],
)
def test_calls(app: Any, tool: str, body: object, status: int, answer: object) -> None:
    assert (request(app, f"/api/tools/{tool}", body)[0], request(app, f"/api/tools/{tool}", body)[2]) == (
        status,
        answer,
    )


def test_exceptions_stay_inside(app: Any) -> None:
    status, _, answer = request(app, "/api/tools/broken", {})
    assert status == 422
    assert "secret" not in answer["error"]


def test_questions_are_answered_with_a_second_request(app: Any) -> None:
    status, _, asked = request(app, "/api/tools/book", {"date": "Monday"})
    assert (status, [*asked["questions"]]) == (409, ["seats"])
    again = {"arguments": {"date": "Monday"}, "state": asked["state"]}
    status, _, answer = request(app, "/api/tools/book", {**again, "answers": {"seats": {"seats": 4}}})
    assert (status, answer) == (200, {"result": "4 seats on Monday"})
    status, _, answer = request(app, "/api/tools/book", {**again, "answers": {"seats": None}})
    assert (status, answer) == (422, {"error": "The user declined the question 'seats'"})
    other = {**again, "arguments": {"date": "Friday"}, "answers": {"seats": {"seats": 4}}}
    assert request(app, "/api/tools/book", other)[0] == 400
    for wrong in ({**again, "answers": 1}, {**again, "answers": {}, "state": 7}):
        assert request(app, "/api/tools/book", wrong)[0] == 400


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json-patch+json", ""],
)
def test_only_json_is_taken(app: Any, kind: str) -> None:
    assert request(app, "/api/tools/add", {"a": 1}, headers={"content-type": kind})[0] == 415


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
    ],
)
@pytest.mark.parametrize(("path", "method"), [("/api/tools/add", "POST"), ("/api/openapi.json", "GET")])
def test_host_and_origin_are_checked(app: Any, headers: dict[str, str], status: int, path: str, method: str) -> None:
    found, _, answer = request(app, path, {"a": 1}, headers=headers, method=method)
    assert (found, [*answer]) == (status, ["error"])


def test_other_methods_and_paths(app: Any) -> None:
    assert request(app, "/api/tools/add", method="GET")[:2][1]["allow"] == "POST"
    assert request(app, "/api/openapi.json")[0] == 405
    for path in ("/api/tools/", "/api/tools/a/b", "/api/tools/..%2f", "/api/tools/a b", "/api", "/other"):
        assert request(app, path, {})[0] == 404


def test_bodies_are_bounded() -> None:
    server = Server("small")
    server.define_tool("take", handler=lambda args: "", input_schema={"type": "object"})
    status, _, answer = request(rest_app(server, max_body_bytes=100), "/api/tools/take", {"a": "x" * 200})
    assert (status, answer) == (413, {"error": "the body has more than 100 bytes"})


def test_headers_of_the_protocol_are_not_those_of_the_caller(app: Any) -> None:
    headers = {"mcp-method": "tools/list", "mcp-name": "other", "mcp-protocol-version": "1999-01-01"}
    assert request(app, "/api/tools/add", {"a": 1}, headers=headers)[0] == 200


def test_documents_of_two_callers_differ_as_their_lists_do(app: Any) -> None:
    _, _, of_all = request(app, "/api/openapi.json", method="GET")
    _, _, of_ann = request(app, "/api/openapi.json", method="GET", user="ann")
    assert of_ann["paths"].keys() - of_all["paths"].keys() == {"/tools/for_ann"}
    assert request(app, "/api/tools/for_ann", {}, user="ann")[2] == {"result": "yes, Ann"}


def test_the_document_is_valid_and_can_be_read_back(app: Any) -> None:
    _, _, document = request(app, "/api/openapi.json", method="GET")
    assert document["info"] == {"title": "shop", "version": "0.1.0", "description": "Sells things."}
    pointer = "#/components/schemas/tree.arguments/$defs/Node"
    assert document["components"]["schemas"]["tree.arguments"]["properties"]["root"] == {"$ref": pointer}
    found = read_document(document)
    assert {each.name for each in found.readable(found.keys)} == {each.rpartition("/")[2] for each in document["paths"]}
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document)


def test_references_move_and_values_stay() -> None:
    schema = {"$schema": "x", "properties": {"a": {"$ref": "#", "default": {"$ref": "#"}}, "b": {"$ref": "https://x"}}}
    assert lifted(schema, "#/here") == {
        "properties": {"a": {"$ref": "#/here", "default": {"$ref": "#"}}, "b": {"$ref": "https://x"}}
    }


def test_it_stands_beside_the_endpoint() -> None:
    server = Server("shop")
    server.define_tool("one", handler=lambda args: 1, input_schema={"type": "object"})
    app = server.asgi(path="/mcp", otherwise=rest_app(server))
    assert request(app, "/api/tools/one", {})[0] == 200
    assert request(app, "/mcp", {}, headers={"accept": "application/json"})[0] != 200


def test_curl_calls_a_tool() -> None:
    """Over a socket, as the page shows it."""
    curl = shutil.which("curl")
    uvicorn = pytest.importorskip("uvicorn")
    if curl is None:
        pytest.skip("curl is not installed")
    server = Server("shop")
    server.define_tool("double", handler=lambda args: {"twice": 2 * args["n"]}, input_schema={"type": "object"})
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(rest_app(server), log_level="error", lifespan="off", ws="none")
    serving = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(serving.serve([listening])), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/tools/double"
    command = [curl, "-s", "-m", "10", "-d", '{"n": 21}', url]
    typed = subprocess.run([*command, "-H", "Content-Type: application/json"], capture_output=True, check=True).stdout
    form = subprocess.run(command, capture_output=True, check=True).stdout
    serving.should_exit = True
    thread.join(10)
    listening.close()
    assert (json.loads(typed), json.loads(form)) == (
        {"twice": 42},
        {"error": "Content-Type must be application/json"},
    )
