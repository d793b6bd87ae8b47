"""Where calls of a server elsewhere run: no thread begins for one, and none hands it to another without need."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from elsewhere import make_server

from linkspan import Server, SyncClient

pytest.importorskip("uvicorn")

from over_http import serving


class Readers:
    """Records the threads that read what a server sends."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def client(self, data: bytes) -> None:
        """Ignore what goes to the server."""

    def server(self, data: bytes) -> None:
        """Record who reads."""
        self.threads.append(threading.get_ident())


@pytest.fixture
def there() -> Iterator[str]:
    with serving(make_server().asgi()) as url:
        yield url


def test_calls_that_begin_on_an_event_loop_are_sent_and_read_there(there: str) -> None:
    server, readers = Server("here"), Readers()
    server.mount(there, shared=True, recorder=readers)

    @server.tool
    async def loop() -> int:
        return threading.get_ident()

    with serving(server.asgi()) as url, SyncClient(url) as client:
        client.list_tools()
        readers.threads.clear()
        for number in range(5):
            assert client.call_tool("add", {"a": 1, "b": number}).text == str(1 + number)
        assert readers.threads == [int(client.call_tool("loop").text)] * 5
