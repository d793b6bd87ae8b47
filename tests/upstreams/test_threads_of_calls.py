"""Where calls of a server elsewhere run: no thread begins for one, and none hands it to another without need."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from elsewhere import Elsewhere, make_server

from linkspan import Server, SyncClient
from linkspan.upstreams.relaying import RelayedRequest

pytest.importorskip("uvicorn")

from over_http import serving


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


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


@pytest.mark.parametrize("over", ["memory", "HTTP"])
def test_a_call_leaves_nothing_to_the_collector(there: str, over: str) -> None:
    def objects() -> int:
        return sum(type(each) is RelayedRequest for each in gc.get_objects())

    server = Server("here")
    server.mount(there if over == "HTTP" else Elsewhere(make_server()), shared=True)
    with serving(server.asgi()) as url, SyncClient(url) as client:
        client.call_tool("add", {"a": 1, "b": 2})
        gc.collect()
        gc.disable()
        try:
            before = objects()
            for number in range(5):
                client.call_tool("add", {"a": 1, "b": number})
            until(lambda: objects() <= before)
        finally:
            gc.enable()
