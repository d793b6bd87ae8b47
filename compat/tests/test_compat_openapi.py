"""`FastMCP.from_openapi` and `from_fastapi`."""

import http.server
import json
import threading

import pytest
from compat_kit import client_of

from linkspan_compat.errors import NotServed

httpx = pytest.importorskip("httpx")
SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "delete": {
                "operationId": "removePet",
                "summary": "Remove a pet",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            }
        }
    },
}


class Api(http.server.BaseHTTPRequestHandler):
    def do_DELETE(self):
        is_known = self.headers["authorization"] == "Bearer t"
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_operations_are_called_with_the_headers_of_the_client(fast, url):
    from fastmcp import FastMCP

    api = httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer t"})
    with client_of(FastMCP.from_openapi(SPEC, client=api, name="pets", tags={"x"})) as client:
        (tool,) = client.request("tools/list")["tools"]
        assert tool["name"] == "removePet"
        assert tool["inputSchema"]["required"] == ["id"]
        assert client.request("tools/call", {"name": "removePet", "arguments": {"id": 3}})["structuredContent"] == {
            "path": "/v1/pets/3"
        }
    with client_of(
        FastMCP.from_openapi(SPEC, httpx.AsyncClient(base_url=url), mcp_names={"removePet": "remove"})
    ) as client:
        assert client.request("tools/call", {"name": "remove", "arguments": {"id": 3}})["isError"]


def test_an_application_is_called_in_this_process(fast):
    fastapi = pytest.importorskip("fastapi")
    from fastmcp import FastMCP

    app = fastapi.FastAPI(title="Hotel")

    @app.post("/rooms/{city}", operation_id="book")
    async def book(city: str, request: fastapi.Request) -> dict[str, str]:
        return {"city": city, "key": request.headers["x-key"]}

    server = FastMCP.from_fastapi(app, httpx_client_kwargs={"headers": {"X-Key": "k"}})
    assert server.name == "Hotel"
    with client_of(server) as client:
        found = client.request("tools/call", {"name": "book", "arguments": {"city": "Oslo"}})
        assert found["structuredContent"] == {"city": "Oslo", "key": "k"}
    with pytest.raises(NotServed, match="httpx_client_kwargs"):
        FastMCP.from_fastapi(app, httpx_client_kwargs={"auth": ("a", "b")})


@pytest.mark.parametrize("option", ["route_maps", "route_map_fn", "mcp_component_fn"])
def test_what_is_not_served_names_the_line_to_write(fast, option):
    from fastmcp import FastMCP
    from fastmcp.server.providers.openapi import MCPType, RouteMap

    with pytest.raises(NotServed, match=f"{option}.*write for Linkspan: from_openapi"):
        FastMCP.from_openapi(SPEC, **{option: [1]})
    with pytest.raises(NotServed, match="only="):
        RouteMap(mcp_type=1)
    with pytest.raises(NotServed, match="only="):
        _ = MCPType.TOOL


@pytest.mark.parametrize("given", [{"auth": ("a", "b")}, {"cookies": {"a": "b"}}, {"params": {"a": "b"}}])
def test_a_client_with_more_is_refused(fast, given):
    from fastmcp import FastMCP

    with pytest.raises(NotServed, match="AsyncClient"):
        FastMCP.from_openapi(SPEC, httpx.AsyncClient(base_url="https://a.example", **given))
    with pytest.raises(NotServed, match="transport"):
        FastMCP.from_openapi(SPEC, httpx.AsyncClient(transport=httpx.MockTransport(lambda _: None)))
