"""Connections that hold something for nothing, as they are looked after once a second; and how they are accepted."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from typing import Any

import uvicorn
from http_talk import body, mirror

from linkspan import Server
from linkspan.core.http_checks import HttpPolicy
from linkspan.serve.asgi import AsgiApp
from linkspan.serve.http import make_endpoint
from linkspan.serve.http_uvicorn import QuietUvicorn, make_uvicorn


class Transport:
    """What is below a connection: so many bytes that the client has not taken."""

    def __init__(self, unread: int) -> None:
        self.unread = unread
        self.ended = ""

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"


class Http:
    """A connection between two requests."""

    timeout_keep_alive_task: object | None = "running"
    cycle = None

    def __init__(self, unread: int = 0) -> None:
        self.transport = Transport(unread)


class WebSocket:
    """A connection of the other kind that uvicorn has."""

    def __init__(self) -> None:
        self.transport = Transport(0)


def looking_after(*connections: Any) -> QuietUvicorn:
    app = AsgiApp(make_endpoint(Server("desk"), HttpPolicy(send_timeout=30.0)))
    serving = QuietUvicorn(uvicorn.Config(app), app, head_timeout=10.0)
    serving.server_state.connections.update(connections)
    return serving


def test_who_does_not_take_an_answer_is_dropped_and_who_is_slow_is_not() -> None:
    reading, stuck, slow = Http(), Http(5000), Http(5000)
    serving = looking_after(reading, stuck, slow)
    for now in range(0, 40, 10):
        serving.handle_timeouts(float(now))
        slow.transport.unread -= 1
    assert [each.transport.ended for each in (reading, stuck, slow)] == ["", "aborted", ""]


def test_who_owes_us_a_head_is_dropped() -> None:
    silent, idle = Http(), Http()
    silent.timeout_keep_alive_task = None
    serving = looking_after(silent, idle)
    serving.handle_timeouts(0.0)
    serving.handle_timeouts(9.0)
    assert silent.transport.ended == "", "it has ten seconds"
    serving.handle_timeouts(10.0)
    assert [each.transport.ended for each in (silent, idle)] == ["closed", ""]


def test_an_attempt_at_a_websocket_does_not_end_the_server() -> None:
    attempt = WebSocket()
    serving = looking_after(attempt)
    serving.handle_timeouts(0.0)
    serving.handle_timeouts(100.0)
    assert attempt.transport.ended == ""


class Broken(Http):
    """A connection that cannot be looked after: its client has reset it, for example."""

    def handle_timeouts(self, now: float) -> None:
        raise OSError(107, "Transport endpoint is not connected")


def test_one_connection_that_cannot_be_looked_after_does_not_end_the_server(caplog: Any) -> None:
    broken, idle = Broken(), Http()
    serving = looking_after(broken, idle)
    serving.handle_timeouts(0.0)
    assert [each.transport.ended for each in (broken, idle)] == ["aborted", ""]
    assert "Transport endpoint is not connected" in caplog.text


def test_servers_in_turn_accept_at_a_shared_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/health"
        for _ in range(2):
            ready = threading.Event()
            serving = make_uvicorn(
                make_endpoint(Server("desk"), HttpPolicy()),
                path="/mcp",
                health="/health",
                drain=1.0,
                head_timeout=30.0,
                options={"log_config": None},
                ready=ready.set,
                shared=True,
            )
            thread = threading.Thread(target=serving.run, kwargs={"sockets": [listener.dup()]})
            thread.start()
            assert ready.wait(60)
            with urllib.request.urlopen(url, timeout=60) as response:
                assert response.status == 200
            serving.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def test_a_server_that_no_signal_stops_ends_the_streams_of_those_who_only_listen() -> None:
    """The shutdown itself ends them: they would stay for the whole drain."""
    ready = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = make_uvicorn(
            make_endpoint(Server("desk"), HttpPolicy()),
            path="/mcp",
            health="/health",
            drain=300.0,
            head_timeout=30.0,
            options={"log_config": None},
            ready=ready.set,
        )
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listener.dup()]}, daemon=True)
        thread.start()
        assert ready.wait(60)
        message = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        data = json.dumps(message).encode()
        head = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": len(data), **mirror(message)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        with socket.create_connection(listener.getsockname(), timeout=60) as client:
            client.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + data)
            found = client.recv(65536)
            assert b" 200 " in found.partition(b"\r\n")[0], found
            serving.should_exit = True
            while rest := client.recv(65536):
                found += rest
        assert found.endswith(b"0\r\n\r\n")
        thread.join(60)
        assert not thread.is_alive()
