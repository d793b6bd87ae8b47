"""Tables F and G: notifications, and methods of one's own. Each test names its row; delivery is over real stdio and HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from speakers import SseStream, StdioServer, post
from spoken import HELLO, ask, result

from linkspan import Change, MemoryTransport, MethodAlreadyDefinedError, Server, StdioTransport, SyncClient
from over_http import serving

KINDS = ["tools", "prompts", "resources"]


def everything(**options: Any) -> Server:
    return Server("changing", capabilities={kind: {"listChanged": True} for kind in KINDS}, **options)


def line(method: str, number: int | None = None, params: Any = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    message |= {"id": number} if number is not None else {}
    message |= {"params": params} if params is not None else {}
    return json.dumps(message).encode() + b"\n"


def greet(pipe: MemoryTransport) -> None:
    pipe.send(line("initialize", 1, HELLO))
    pipe.receive(10)
    pipe.send(line("notifications/initialized"))


# F1
def test_a_client_hears_of_changes_without_asking() -> None:
    server = everything()
    with SyncClient(server) as client, client.listen(tools=True) as changes:
        server.define_tool(name="new", handler=lambda: None)
        server.notify_tools_list_changed()
        assert next(changes) == Change("tools")
        assert [tool.name for tool in client.list_tools()] == ["new"]


# F2, F3, F4
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_changed_notification_has_no_params_and_reaches_who_is_there(kind: str) -> None:
    server = everything()
    notify: Callable[[], int] = getattr(server, f"notify_{kind}_list_changed")
    assert notify() == 0
    with MemoryTransport(server) as pipe:
        greet(pipe)
        assert notify() == 1
        assert json.loads(pipe.receive(10)) == {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}


# F2
def test_what_goes_wrong_while_telling_is_reported_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    server = everything(exception_reporter=lambda error, context: reported.append((str(error), dict(context))))

    def gone(change: object) -> bool:
        raise OSError("gone")

    connection = server.connect()
    monkeypatch.setattr(connection, "notify", gone)
    assert server.notify_tools_list_changed() == 0
    assert reported == [("gone", {"notification": "tools_list_changed"})]


# F5
def test_over_http_every_session_with_an_open_stream_is_told() -> None:
    server = everything()
    with serving(server.asgi()) as url:
        streams = []
        for _ in range(2):
            session = post(url, "initialize", 1, HELLO)[1]["mcp-session-id"]
            assert post(url, "notifications/initialized", session=session)[0] == 202
            streams.append(SseStream(url, session))
        assert server.notify_tools_list_changed() == 2
        for stream in streams:
            assert stream.message() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            stream.close()


# F7: a server does not know its transports; the line of the source documents names the line to write instead
def test_assigning_a_transport_raises_with_what_to_write() -> None:
    server = everything()
    with pytest.raises(AttributeError, match=r"write `StdioTransport\(server\)\.open\(\)`, `server\.run\(\)`"):
        server.transport = StdioTransport(server)
    with pytest.raises(AttributeError, match=r"has no `transport`.*server\.run\(\"http\"\)"):
        _ = server.transport


# F6
def test_over_stdio_a_notification_is_one_line_on_stdout() -> None:
    server = everything()
    with StdioServer(server) as process:
        process.write(line("initialize", 1, HELLO))
        assert process.read()["id"] == 1
        assert server.notify_tools_list_changed() == 0  # it comes after the handshake
        process.write(line("notifications/initialized") + line("ping", 2))
        assert process.read() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        assert server.notify_tools_list_changed() == 1
        assert process.read() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


# F8
def test_defining_a_tool_tells_nobody_until_the_author_does() -> None:
    server = everything()
    with MemoryTransport(server) as pipe:
        greet(pipe)
        server.define_tool(name="new", handler=lambda: None)
        pipe.send(line("ping", 2))
        assert json.loads(pipe.receive(10)) == {"jsonrpc": "2.0", "id": 2, "result": {}}
        assert server.notify_tools_list_changed() == 1


# G1
def test_a_custom_method_gets_the_params_and_answers_with_any_json() -> None:
    server = Server()
    server.define_custom_method(method_name="add", handler=lambda params: params["a"] + params["b"])
    request = {"jsonrpc": "2.0", "id": 1, "method": "add", "params": {"a": 5, "b": 3}}
    assert server.handle(request) == {"jsonrpc": "2.0", "id": 1, "result": 8}


# G2
def test_a_custom_notification_is_not_answered_and_nothing_is_null_where_an_id_was() -> None:
    heard: list[Mapping[str, Any]] = []
    server = Server()
    server.define_custom_method(method_name="notify", handler=heard.append)
    assert server.handle({"jsonrpc": "2.0", "method": "notify", "params": {"a": 1}}) is None
    assert ask(server, "notify", {"a": 2}) == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert heard == [{"a": 1}, {"a": 2}]


# G3
@pytest.mark.parametrize("taken", ["ping", "tools/list", "initialize", "add"])
def test_a_custom_method_takes_no_name_that_is_there_already(taken: str) -> None:
    server = Server()
    server.define_custom_method(method_name="add", handler=lambda params: 1)
    with pytest.raises(MethodAlreadyDefinedError) as caught:
        server.define_custom_method(method_name=taken, handler=lambda params: 2)
    assert (str(caught.value), caught.value.method_name) == (f"Method {taken} already defined", taken)
    assert result(server, "add") == 1
    assert isinstance(caught.value, Server.MethodAlreadyDefinedError)


# G4
def test_a_custom_method_is_watched_like_any_other() -> None:
    heard: list[Any] = []
    reported: list[BaseException] = []
    server = Server(
        instrumentation_callback=heard.append, exception_reporter=lambda error, context: reported.append(error)
    )
    server.define_custom_method(method_name="breaks", handler=lambda params: 1 / 0)
    problem = ask(server, "breaks")["error"]
    assert problem["code"] == -32603
    assert "division" not in json.dumps(problem)
    assert [data["method"] for data in heard] == ["breaks"]
    (error,) = reported
    assert str(error) == "Internal error handling breaks request"
    assert isinstance(error.__cause__, ZeroDivisionError)
