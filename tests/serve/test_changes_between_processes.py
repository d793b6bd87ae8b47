"""Changes that one process announces reach the clients of the others, through their store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from client.faces import wait_until
from linkspan import Change, Server, SyncClient
from linkspan.revisions import LATEST
from linkspan.stores import SqliteStore, StoreError
from linkspan.stores.port import Receiver
from parcels import EXTENSION, arrived
from test_transcripts import feed

SEATS = [f"seat://{number}" for number in range(20)]
WAIT_AT_EXIT = """
from linkspan.serve import process_channel
process_channel._AT_EXIT = 60.0  # a second may be too short on a slow machine
"""


def shop(name: str = "shop", **options: Any) -> Server:
    server = Server(name, capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}}, **options)

    @server.resource("seat://{number}")
    def seat(number: int) -> str:
        return f"seat {number}"

    return server


Listen = Callable[..., "Queue[Change]"]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Give a function that connects a client to a server, which listens; as many processes have servers with clients."""
    with ExitStack() as stack:

        def start(server: Server, *uris: str, era: str | None = None) -> Queue[Change]:
            client = stack.enter_context(SyncClient(server, era=era))  # type: ignore[arg-type]
            changes, heard = stack.enter_context(client.listen(*uris, tools=True)), Queue[Change]()
            threading.Thread(target=lambda: [heard.put(each) for each in changes], daemon=True).start()
            return heard

        yield start


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_change_is_announced_once_and_in_order_to_the_clients_of_every_process(
    tmp_path: Path, listen: Listen, era: str
) -> None:
    one, other = (shop(store=f"sqlite://{tmp_path}/store.db") for _ in range(2))
    inboxes = [listen(one, *SEATS, era=era), listen(other, *SEATS, era=era)]
    for uri in SEATS:
        assert one.notify_resource_updated(uri) == 1
    one.notify_tools_list_changed()
    for inbox in inboxes:
        heard = [inbox.get(timeout=60) for _ in range(21)]
        assert heard == [*(Change("resource", uri) for uri in SEATS), Change("tools")]
        assert inbox.empty()


def test_servers_of_another_name_hear_nothing(tmp_path: Path, listen: Listen) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    one, last = shop(store=url), shop(store=url)
    unconcerned, concerned = listen(shop("another", store=url)), listen(last)
    one.notify_tools_list_changed()
    assert concerned.get(timeout=60) == Change("tools")
    assert unconcerned.empty()


def test_a_listener_whose_condition_does_not_hold_hears_nothing_of_another_process_either(
    tmp_path: Path, listen: Listen
) -> None:
    one, other = (shop(store=f"sqlite://{tmp_path}/store.db") for _ in range(2))
    allowed = {one: True, other: False}
    for server in (one, other):
        server.define_tool("open", handler=lambda: "open")
        server.define_tool("guarded", handler=lambda: "guarded", when=lambda ctx, server=server: allowed[server])
    inboxes = [listen(one), listen(other)]
    one.disable("guarded")
    one.disable("open")
    assert [inboxes[0].get(timeout=60) for _ in range(2)] == [Change("tools")] * 2
    assert inboxes[1].get(timeout=60) == Change("tools")
    assert inboxes[1].empty()


def test_a_change_of_an_extension_reaches_those_who_listen_for_it_in_another_process(tmp_path: Path) -> None:
    one, other = (Server("shop", store=f"sqlite://{tmp_path}/store.db", extensions=[EXTENSION]) for _ in range(2))
    connection = other.connect()
    other.sharing.wait_until_listening()
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.date,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION.id: {}}},
    }
    params = {"notifications": {"parcelIds": ["p1"]}, "_meta": meta}
    request = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    feed(connection, json.dumps(request).encode() + b"\n", None)
    assert b"acknowledged" in connection.data_to_send()
    for parcel in ("p2", "p1"):
        one._announcer.send(arrived(parcel), None)
    sent: list[bytes] = []
    wait_until(lambda: sent.append(connection.data_to_send()) or b"arrived" in b"".join(sent))  # type: ignore[func-returns-value]
    message = json.loads(b"".join(sent))
    assert message["method"] == "notifications/parcels"
    assert (message["params"]["parcelId"], message["params"]["status"]) == ("p1", "arrived")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_is_another_one_that_announces_and_ends_by_itself(tmp_path: Path, listen: Listen) -> None:
    code = f"""
import os
from linkspan import Server
{WAIT_AT_EXIT}
server = Server("shop", store="sqlite://{tmp_path}/store.db")
server.notify_tools_list_changed()
if os.fork() == 0:
    server.notify_resource_updated("seat://0")
else:
    assert os.wait()[1] == 0
"""
    heard = listen(shop(store=f"sqlite://{tmp_path}/store.db"), "seat://0")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert {heard.get(timeout=60) for _ in range(2)} == {Change("tools"), Change("resource", "seat://0")}
    assert heard.empty()


class Failing(SqliteStore):
    """A store that fails while it is told to."""

    fails = False

    def publish(self, channel: str, data: bytes) -> None:
        if self.fails:
            raise StoreError("out of order")
        super().publish(channel, data)

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        if self.fails:
            raise StoreError("out of order")
        return super().subscribe(channel, receive)


def test_after_changes_could_not_be_sent_listeners_elsewhere_are_told_to_look_again(
    tmp_path: Path, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    store = Failing(tmp_path / "store.db")
    one, other = shop(store=store), shop(store=f"sqlite://{tmp_path}/store.db")
    here, there = listen(one, *SEATS[:2]), listen(other, *SEATS[:2])
    store.fails = True
    assert one.notify_resource_updated(SEATS[0]) == 1
    assert here.get(timeout=60) == Change("resource", SEATS[0])
    wait_until(lambda: "changes do not reach other processes" in caplog.text)
    assert there.empty()
    store.fails = False
    heard = [there.get(timeout=60) for _ in range(3)]
    assert heard == [Change("tools"), Change("resource", SEATS[0]), Change("resource", SEATS[1])]


def test_a_listener_that_comes_while_the_store_fails_is_served_and_told_to_look_again(
    tmp_path: Path, listen: Listen
) -> None:
    store = Failing(tmp_path / "store.db")
    store.fails = True
    one, other = shop(store=store), shop(store=f"sqlite://{tmp_path}/store.db")
    heard = listen(one)
    one.notify_tools_list_changed()
    assert heard.get(timeout=60) == Change("tools")
    store.fails = False
    assert heard.get(timeout=60) == Change("tools")
    other.notify_tools_list_changed()
    assert heard.get(timeout=60) == Change("tools")


def test_a_process_without_clients_subscribes_to_nothing_and_tells_others_before_it_ends(
    tmp_path: Path, listen: Listen
) -> None:
    heard = listen(shop(store=f"sqlite://{tmp_path}/store.db"))
    code = f"""
import threading
from linkspan import Server
{WAIT_AT_EXIT}
server = Server("shop", store="sqlite://{tmp_path}/store.db")
for _ in range(3):
    server.notify_tools_list_changed()
assert [each.name for each in threading.enumerate()] == ["MainThread", "linkspan-out"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert [heard.get(timeout=60) for _ in range(3)] == [Change("tools")] * 3
