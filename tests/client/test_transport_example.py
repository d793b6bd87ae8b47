"""The worked example "a transport" of docs/contributing.md, carried out as that page says: a client over a Unix socket."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linkspan import Client, ConnectError, Context, Server, SyncClient
from linkspan.client import base
from linkspan.client.transports.base import ClientTransport, TransportOwner
from linkspan.flows.state import ClientState
from linkspan.runtime.descriptors import Writer
from linkspan.serve.stdio import serve_stdio

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")
MOST_LINES = 50


class UnixClientTransport(ClientTransport):
    """A connection to a server that listens at a path."""

    def __init__(self, owner: TransportOwner, state: ClientState, path: Path) -> None:
        super().__init__(owner, state)
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ConnectError(f"{path}: {error.strerror}", state.origin, phase="connect") from None
        self._socket.setblocking(False)
        self._writer = Writer(self, self.lock, self._socket.fileno(), bound=1 << 20, on_change=lambda: None)
        self._left = threading.Event()
        self.watch(self._socket.fileno())

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        self._writer.flush_now()

    def handle_readable(self, fd: int) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.receive_data(data)
        else:
            self.end()
            self._leave()

    def close(self) -> None:
        with self.lock:
            self._closed = True
        self.end(by_us=True)
        self._reactor.call(self._leave)
        self._left.wait(self.state.options.timeouts.close)

    def _leave(self) -> None:
        if not self._left.is_set():
            self.unwatch()
            self._socket.close()
            self._left.set()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve one connection at a path, to which clients of whatever target connect."""
    server = Server("by path")

    @server.tool
    def add(a: int, b: int, ctx: Context) -> int:
        ctx.progress(1, total=2)
        return a + b

    @server.tool
    def name(ctx: Context) -> str:
        return f"{ctx.ask('name', str, 'Your name?')}!"

    path = tmp_path / "s"

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            serve_stdio(server.connect, input_fd=connection.fileno(), output_fd=connection.fileno(), watch_parent=False)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setattr(base, "_opener", lambda *_: lambda owner: UnixClientTransport(owner, owner.state, path))
        yield path
        thread.join(60)
        assert not thread.is_alive()


def target() -> Any:
    raise AssertionError("another transport is opened")


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_in_a_thread_calls_and_answers_over_it(place: Path, era: Any) -> None:
    steps: list[float] = []
    with SyncClient(target, era=era, elicitation=lambda _: {"name": "Ann"}) as client:
        assert (
            client.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda step: steps.append(step.progress)).text == "3"
        )
        assert client.call_tool("name").text == "Ann!"
    assert steps == [1]


def test_a_client_on_an_event_loop_calls_over_it_many_times_at_once(place: Path) -> None:
    async def main() -> list[str]:
        async with Client(target) as client:
            results = await asyncio.gather(*(client.call_tool("add", {"a": each, "b": 1}) for each in range(20)))
            return [each.text for each in results]

    assert asyncio.run(main()) == [str(each + 1) for each in range(20)]


def test_nobody_who_listens_there_is_said_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nobody"
    monkeypatch.setattr(base, "_opener", lambda *_: lambda owner: UnixClientTransport(owner, owner.state, path))
    with pytest.raises(ConnectError, match="nobody: No such file"), SyncClient(target) as client:
        client.list_tools()


def test_a_transport_is_as_short_as_the_page_says() -> None:
    assert len(inspect.getsource(UnixClientTransport).splitlines()) <= MOST_LINES
