"""Table I: transports, over real pipes, processes and sockets. Each test names its row."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from speakers import SseStream, StdioServer, http_request, post
from spoken import HELLO

from linkspan import Context, Server, StdioTransport
from over_http import serving

EXAMPLE = """
from linkspan import Server, StdioTransport, Tool, ToolResponse

class ExampleTool(Tool):
    description = "A simple example tool that echoes back its arguments"
    input_schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}

    @classmethod
    def call(cls, message, server_context):
        return ToolResponse([{"type": "text", "text": f"Hello from example tool! Message: {message}"}])

server = Server(name="example_server", tools=[ExampleTool])
transport = StdioTransport(server)
transport.open()
"""
TYPED = '{"jsonrpc":"2.0","id":"1","method":"ping"}\n{"jsonrpc":"2.0","id":"2","method":"tools/list"}\n'
CALL = {"name": "example_tool", "arguments": {"message": "Grüße"}}
PATIENCE = 20.0


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the example of the source documents to a file."""
    file = tmp_path_factory.mktemp("example") / "stdio_server.py"
    file.write_text(EXAMPLE)
    return str(file)


# I1
def test_a_transport_is_made_for_a_server_and_open_blocks_until_the_end() -> None:
    server = Server()
    with StdioServer(server) as process:
        process.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert process.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert process.codes == []
    assert process.codes == [0]
    assert StdioTransport(server)


# I1
@pytest.mark.parametrize("is_async", [False, True])
def test_a_transport_that_is_closed_cancels_what_runs_and_lets_open_return(is_async: bool) -> None:
    server, running, cancelled = Server(), threading.Event(), threading.Event()

    @server.tool
    async def on_loop() -> None:
        running.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            cancelled.set()

    @server.tool
    def in_thread(ctx: Context) -> None:
        running.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        cancelled.set()

    read_from, write_to = os.pipe()
    answers, output = os.pipe()
    codes: list[int] = []
    with StdioTransport(server, input_fd=read_from, output_fd=output, watch_parent=False) as transport:
        thread = threading.Thread(target=lambda: codes.append(transport.open()))
        thread.start()
        call = {"name": "on_loop" if is_async else "in_thread"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        os.write(write_to, json.dumps(message).encode() + b"\n")
        assert running.wait(PATIENCE)
    thread.join(PATIENCE)
    assert codes == [0]
    assert cancelled.wait(PATIENCE)
    transport.close()
    assert transport.open() == 0
    for each in (read_from, write_to, answers, output):
        os.close(each)


# I2
def test_stdio_is_a_line_of_utf_8_for_each_message_and_ctrl_c_ends_it(example: str) -> None:
    with subprocess.Popen([sys.executable, example], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
        process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert "Message: Grüße" in json.loads(line)["result"]["content"][0]["text"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stdout.read() == b""


# I3, I4
def test_the_example_answers_two_lines_that_are_typed_without_a_handshake(example: str) -> None:
    done = subprocess.run([sys.executable, example], input=TYPED, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    ping, tools = (json.loads(line) for line in done.stdout.splitlines())
    assert ping == {"jsonrpc": "2.0", "id": "1", "result": {}}
    assert tools == {
        "jsonrpc": "2.0",
        "id": "2",
        "result": {
            "tools": [
                {
                    "name": "example_tool",
                    "description": "A simple example tool that echoes back its arguments",
                    "inputSchema": {
                        "type": "object",
                        "properties": {"message": {"type": "string"}},
                        "required": ["message"],
                    },
                }
            ]
        },
    }


class Controller(BaseHTTPRequestHandler):
    """A web application that makes a server for each request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = Server(name="my_server", server_context={"user_id": self.headers["Mcp-Session-Id"]})
        server.define_tool(name="who", handler=lambda args, server_context: server_context["user_id"])
        answer = (server.handle_json(body) or "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *_: Any) -> None:
        pass


# I5
def test_a_web_controller_makes_a_server_for_each_request() -> None:
    with HTTPServer(("127.0.0.1", 0), Controller) as web:
        for user in ("ann", "bob"):
            thread = threading.Thread(target=web.handle_request)
            thread.start()
            url = f"http://127.0.0.1:{web.server_port}/messages"
            status, headers, body = post(url, "tools/call", 1, {"name": "who"}, session=user)
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(body)["result"]["content"] == [{"type": "text", "text": user}]
            thread.join(PATIENCE)


# I6
def test_streamable_http_has_sessions_a_stream_comments_and_an_end() -> None:
    server = Server(capabilities={"tools": {"listChanged": True}})
    with serving(server.asgi(silence=0.1)) as url:
        status, headers, body = post(url, "initialize", 1, HELLO)
        assert (status, json.loads(body)["result"]["serverInfo"]["name"]) == (200, "model_context_protocol")
        session = headers["mcp-session-id"]
        assert post(url, "notifications/initialized", session=session)[0] == 202
        stream = SseStream(url, session)
        while not stream.line().startswith(b":"):
            pass  # what keeps a quiet stream open
        status, _, body = post(url, "ping", 2, session=session)  # not on the stream
        assert (status, json.loads(body)) == (200, {"jsonrpc": "2.0", "id": 2, "result": {}})
        server.notify_tools_list_changed()
        assert stream.message() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        with http_request(url, "DELETE", session=session) as ended:
            assert 200 <= ended.status < 300
        stream.close()
        assert post(url, "ping", 3, session=session)[0] == 404


# I6
@pytest.mark.parametrize(
    ("verb", "body", "session", "status"),
    [
        ("POST", b"{nope", None, 400),
        ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, "0" * 32, 404),
        ("GET", None, "0" * 32, 404),
        ("PUT", b"{}", None, 405),
    ],
)
def test_what_is_wrong_over_http_has_a_status_and_says_why_in_json(
    verb: str, body: Any, session: str | None, status: int
) -> None:
    with serving(Server().asgi()) as url, http_request(url, verb, body, session) as response:
        assert response.status == status
        assert response.getheader("Content-Type") == "application/json"
        assert json.loads(response.read())["error"]["message"]
