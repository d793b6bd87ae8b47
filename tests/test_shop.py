"""The example that has everything around a call behaves the same over every transport, sync and async."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest

from linkspan import Client, ServerError, SyncClient
from over_http import serving

SHOP = Path(__file__).parent.parent / "examples" / "shop.py"
MANAGER = {"X-Shop-Role": "manager"}
EVERYONE = {"stock", "order", "status", "label"}
OFFICE = {"set_price", "stocktaking"}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the example, loaded anew: each test has a shop of its own."""
    monkeypatch.syspath_prepend(str(SHOP.parent))
    monkeypatch.setenv("PYTHONPATH", str(SHOP.parent))  # for the process of the isolated tool
    yield importlib.import_module("shop")
    del sys.modules["shop"]


VISIT: list[tuple[str, Mapping[str, Any], str]] = [
    ("stock", {"item": "apple"}, "40"),
    ("order", {"item": "apple", "pieces": 2}, "2"),
    ("stock", {"item": "apple"}, "38"),
    ("order", {"item": "pear", "pieces": 9}, "There are not 9 pieces of 'pear'"),
    ("status", {"number": 2}, "2 x apple"),
    ("label", {"item": "pear", "width": 6}, "++++++\n.pear.\n++++++"),
]
"""What a customer does, and what the shop answers."""
CLOSED = "The shop is closed for stocktaking; try again later (try again in 60 s)"


def check_as_customer(client: Any, **options: Any) -> None:
    """Do what customers do, and what only managers may."""
    for name, arguments, text in VISIT:
        assert client.call_tool(name, arguments, **options).text == text
    assert {each.name for each in client.list_tools(**options)} == EVERYONE
    with pytest.raises(ServerError, match="Unknown tool: set_price"):
        client.call_tool("set_price", {"item": "pear", "price": 1}, **options)


def check_as_manager(client: Any, **options: Any) -> None:
    """Do what managers do."""
    assert {each.name for each in client.list_tools(**options)} == EVERYONE | OFFICE
    priced = client.call_tool("set_price", {"item": "pear", "price": 1.5}, **options)
    assert priced.text == "pear costs 1.5"
    for close, answer in ((True, CLOSED), (False, "3")):
        client.call_tool("stocktaking", {"close": close}, **options)
        assert client.call_tool("order", {"item": "apple", "pieces": 1}, **options).text == answer


class Waiting:
    """The methods of a `Client`, each awaited on a loop, so that one check serves both clients."""

    def __init__(self, client: Client, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._runner.run(awaited(method, arguments, options))


async def awaited(method: Callable[..., Any], arguments: Any, options: Any) -> Any:
    return await method(*arguments, **options)


@contextmanager
def connected(kind: str, target: Any) -> Iterator[Any]:
    if kind == "sync":
        with SyncClient(target) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        client = Client(target)
        yield Waiting(client, runner)
        runner.run(client.close())


both_kinds = pytest.mark.parametrize("kind", ["sync", "async"])


@both_kinds
def test_the_shop_over_stdio(kind: str) -> None:
    with connected(kind, str(SHOP)) as client:
        for name, arguments, text in VISIT:
            assert client.call_tool(name, arguments).text == text
        check_as_manager(client)


@both_kinds
def test_the_shop_in_memory(shop: Any, kind: str) -> None:
    with connected(kind, shop.server) as client:
        for name, arguments, text in VISIT:
            assert client.call_tool(name, arguments).text == text
        check_as_manager(client)


@both_kinds
def test_the_shop_over_asgi(shop: Any, kind: str) -> None:
    with serving(shop.app) as url, connected(kind, url) as client:
        check_as_customer(client)
        check_as_manager(client, headers=MANAGER)


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@both_kinds
def test_the_shop_over_wsgi(shop: Any, kind: str) -> None:
    with WSGIServer(("127.0.0.1", 0), Quiet) as listening:
        listening.set_app(shop.wsgi)
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            with connected(kind, f"http://127.0.0.1:{listening.server_port}/") as client:
                check_as_customer(client)
                check_as_manager(client, headers=MANAGER)
        finally:
            listening.shutdown()
            thread.join(10)


def test_the_shop_over_handle_json(shop: Any) -> None:
    for name, arguments, text in VISIT:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        answer = json.loads(shop.server.handle_json(json.dumps(request)))
        assert answer["result"]["content"][0]["text"] == text


def test_the_shop_is_audited_and_traced(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, before = InMemorySpanExporter(), trace._TRACER_PROVIDER
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace._TRACER_PROVIDER = provider
    try:
        with caplog.at_level(logging.INFO, "shop.audit"), SyncClient(shop.server) as client:
            client.call_tool("stock", {"item": "apple"})
        names = {(span.name, span.kind.name) for span in exporter.get_finished_spans()}
        assert {("tools/call stock", "SERVER"), ("tools/call stock", "CLIENT")} <= names
    finally:
        trace._TRACER_PROVIDER = before
    assert ("tools/call stock: ok") in caplog.text


def test_the_database_is_closed_with_the_last_client(shop: Any) -> None:
    opened: list[Any] = []
    database = shop.Database

    class Seen(database):  # type: ignore[misc, valid-type]
        def __init__(self, path: str) -> None:
            super().__init__(path)
            opened.append(self.connection)

    shop.Database = Seen
    with SyncClient(shop.server) as client:
        client.call_tool("stock", {"item": "apple"})
    (connection,) = opened
    with pytest.raises(Exception, match="closed database"):
        connection.execute("SELECT 1")
