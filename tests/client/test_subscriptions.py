"""Hearing of changes: through `listen`, `on_change` and `subscribe`, in both eras, and across a lost connection (CLI-10)."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest
from faces import ERAS

from linkspan import Change, Client, Connected, Disconnected, Server, StateLost, SyncClient

NOTES = """
    import os
    from linkspan import Server

    server = Server("notes", capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}})

    @server.resource("note://today")
    def today() -> str: return "buy milk"

    @server.tool
    def change() -> str:
        server.notify_tools_list_changed()
        server.notify_resource_updated("note://today")
        return "changed"

    @server.tool(annotations={"read_only_hint": True})
    def pid() -> int: return os.getpid()
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.py"
    path.write_text(textwrap.dedent(NOTES))
    return path


@pytest.mark.parametrize("era", ERAS)
def test_a_listener_hears_what_it_asked_for_and_nothing_else(era: Any, notes: Path) -> None:
    with SyncClient(notes, era=era) as client:
        with client.listen("note://today", tools=True) as changes:
            client.call_tool("change")
            assert next(changes) == Change("tools")
            assert next(changes) == Change("resource", "note://today")
        with client.listen(tools=True) as changes:
            client.call_tool("change")
            client.call_tool("change")
            assert [next(changes), next(changes)] == [Change("tools"), Change("tools")]


@pytest.mark.parametrize("era", ERAS)
def test_a_listener_on_a_loop_hears_the_same(era: Any, notes: Path) -> None:
    async def run() -> None:
        async with Client(notes, era=era) as client, client.listen("note://today", tools=True) as changes:
            await client.call_tool("change")
            assert await anext(changes) == Change("tools")
            assert await anext(changes) == Change("resource", "note://today")

    asyncio.run(run())


@pytest.mark.parametrize("era", ERAS)
def test_on_change_hears_lists_by_itself_and_resources_once_subscribed(era: Any, notes: Path) -> None:
    heard: queue.Queue[Change] = queue.Queue()
    with SyncClient(notes, era=era, on_change=heard.put) as client:
        client.subscribe("note://today")
        client.call_tool("change")
        assert {heard.get(timeout=30), heard.get(timeout=30)} == {Change("tools"), Change("resource", "note://today")}
        client.unsubscribe("note://today")
        client.call_tool("change")
        assert heard.get(timeout=30) == Change("tools")
        assert heard.empty()


def test_subscribing_without_somebody_to_tell_is_a_mistake(notes: Path) -> None:
    with SyncClient(notes) as client, pytest.raises(ValueError, match="on_change"):
        client.subscribe("note://today")


@pytest.mark.parametrize("era", ERAS)
def test_a_listener_outlives_its_server_and_is_told_to_look_again(era: Any, notes: Path) -> None:
    events: queue.Queue[Any] = queue.Queue()
    with SyncClient(notes, era=era, on_event=events.put) as client:
        with client.listen("note://today", tools=True) as changes:
            os.kill(client.call_tool("pid").decode(int), signal.SIGKILL)
            assert next(changes) == Change("tools", missed=True)  # a new server was started, without any call
            assert next(changes) == Change("resource", "note://today", missed=True)
            client.call_tool("change")
            assert next(changes) == Change("tools")
        kinds = [type(events.get(timeout=30)) for _ in range(4)]
        assert kinds == [Connected, Disconnected, Connected, StateLost]


def test_a_subscription_that_the_server_refuses_raises(notes: Path) -> None:
    bare = Server("bare")
    with (
        SyncClient(bare, era="legacy") as client,
        pytest.raises(Exception, match="refused"),
        client.listen("note://nowhere"),
    ):
        pass


def test_listening_ends_with_the_client(notes: Path) -> None:
    from linkspan import ClientClosed

    with SyncClient(notes) as client, client.listen(tools=True) as changes:
        client.close()
        with pytest.raises(ClientClosed):
            next(changes)
