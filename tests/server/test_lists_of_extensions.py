"""A feature of a third party, with a list of its own: everything that lists of the protocol have, from outside the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from linkspan import (
    Context,
    RegistrationError,
    Server,
    SyncClient,
)
from linkspan.errors import RemoteProtocolError
from linkspan.flows.client_errors import ServerError
from linkspan.revisions import REVISIONS
from linkspan.revisions.neutral import Grant, Peer, Request, TransportInfo
from linkspan.server.telemetry import Operation
from linkspan.types.base import Implementation
from notebook import EXTENSION, NOTES, GetNoteParams, Note, notebook
from test_transcripts import feed


@pytest.fixture(params=["2025-06-18", "2025-11-25", "2026-07-28"])
def client(request: pytest.FixtureRequest) -> Iterator[SyncClient]:
    server = notebook(page_size=2)
    with SyncClient(server, protocol_version=request.param) as client:
        yield client


def test_its_items_are_listed_in_pages_in_both_eras(client: SyncClient) -> None:
    assert client.list_items(NOTES) == [Note(each, each.upper()) for each in ("milk", "bread", "broken")]
    page: Any = client.request("notes/list")
    assert [each["name"] for each in page["notes"]] == ["milk", "bread"]
    assert page["nextCursor"]


def test_an_item_is_found_by_its_key_in_both_eras(client: SyncClient) -> None:
    assert client.request("notes/get", {"name": "milk"})["text"] == "the note milk"
    with pytest.raises(ServerError, match="Unknown note: mlik; did you mean 'milk'"):
        client.request("notes/get", {"name": "mlik"})
    with pytest.raises(ServerError, match="Internal error"):
        client.request("notes/get", {"name": "broken"})


def test_middleware_surrounds_its_methods_in_both_eras() -> None:
    server = notebook()
    seen: list[tuple[str, str | None]] = []

    @server.middleware
    def watch(call: Any) -> Any:
        seen.append((call.method, call.name))
        return (yield)

    for version in ("2025-11-25", "2026-07-28"):
        with SyncClient(server, protocol_version=version) as client:
            assert len(client.list_items(NOTES)) == 3
            client.request("notes/get", {"name": "bread"})
            page: Any = client.request("notes/list")
            assert ("ttlMs" in page) is (version == "2026-07-28")
    assert seen == [("notes/list", None), ("notes/get", "bread"), ("notes/list", None)] * 2


def test_an_item_with_a_condition_exists_only_for_those_for_whom_it_holds() -> None:
    server = notebook()

    def is_cook(ctx: Context) -> bool:
        return ctx.client_info is not None and ctx.client_info.name == "cook"

    server.items("notes/list").add(Note("recipe"), when=is_cook)
    with SyncClient(server, info=Implementation(name="cook", version="1")) as cook:
        assert Note("recipe") in cook.list_items(NOTES)
        assert cook.request("notes/get", {"name": "recipe"})
    with SyncClient(server, info=Implementation(name="guest", version="1")) as guest:
        assert Note("recipe") not in guest.list_items(NOTES)
        with pytest.raises(ServerError, match=r"Unknown note: recipe \("):
            guest.request("notes/get", {"name": "recipe"})


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_the_scopes_of_an_item_are_those_that_a_token_needs(era: str) -> None:
    server = notebook()
    server.items("notes/list").add(Note("will"), scopes=["notes:secret"])

    def get(*scopes: str) -> str:
        grant = Grant(issuer="https://id.example", scopes=frozenset(scopes))
        request = Request(1, "notes/get", GetNoteParams(name="will"), Peer(REVISIONS[era]))
        request.facts = TransportInfo(principal="ann", grant=grant)
        outcome = server._dispatcher.begin(request)
        return outcome.message if isinstance(outcome, RemoteProtocolError) else "there"

    assert get("notes:secret") == "there"
    assert get() == "Forbidden: this needs the scope notes:secret"


def test_items_are_switched_off_and_on_by_name_tag_and_kind() -> None:
    server = notebook()
    server.items("notes/list").add(Note("old"), tags={"archive"})
    assert server.disable("archive") == 1
    assert server.disable("milk", kind="note") == 1
    with SyncClient(server) as client:
        assert [each.name for each in client.list_items(NOTES)] == ["bread", "broken"]
    with pytest.raises(RegistrationError, match="kind must be one of tool, prompt, resource, template, note"):
        server.disable("milk", kind="notes")


def test_a_change_reaches_a_modern_client_that_listens_and_a_handshake_client() -> None:
    server = notebook(auto_notify=True)
    modern, handshake = server.connect(), server.connect()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    listen = {"notifications": {"notesListChanged": True}, "_meta": meta}
    feed(
        modern,
        json.dumps({"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen", "params": listen}).encode() + b"\n",
        None,
    )
    acknowledged = [json.loads(each) for each in modern.messages_to_send()]
    assert acknowledged[0]["params"]["notifications"] == {"notesListChanged": True}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ):
        feed(handshake, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", None)
    handshake.messages_to_send()
    server.items("notes/list").add(Note("eggs"))
    assert server.items("notes/list").remove("milk")
    assert server.items("notes/list").notify_changed() == 2
    for connection, count in ((modern, 3), (handshake, 3)):
        told = [json.loads(each)["method"] for each in connection.messages_to_send()]
        assert told == ["notifications/notes/list_changed"] * count


def test_a_client_forgets_what_it_has_kept_of_a_list_that_changed() -> None:
    server = notebook(ttl_ms=60_000, auto_notify=True)
    with SyncClient(server, protocol_version="2025-11-25") as client:
        assert len(client.list_items(NOTES)) == 3
        server.items("notes/list").add(Note("eggs"))
        assert len(client.list_items(NOTES)) == 4


def test_telemetry_has_a_span_for_each_of_its_requests() -> None:
    server, seen = notebook(), list[str]()

    class Spans:
        def begin(self, request: Request, operation: Operation, ago: float = 0.0) -> None:
            seen.append(operation.title)

    server._dispatcher.watch(Spans())
    with SyncClient(server) as client:
        client.request("notes/get", {"name": "milk"})
    assert seen[-1] == "notes/get"


def test_a_method_that_needs_a_declaration_is_unknown_in_a_handshake_without_one() -> None:
    strict = msgspec.structs.replace(EXTENSION, needs_declaration=True)
    server = Server("notebook", extensions=[strict])
    with (
        SyncClient(server, protocol_version="2025-11-25") as client,
        pytest.raises(ServerError, match="Method not found"),
    ):
        client.request("notes/list")
    with SyncClient(server) as client, pytest.raises(ServerError, match="declare it in the capabilities"):
        client.request("notes/list")
    with SyncClient(server, extensions=[strict]) as client:
        assert client.list_items(NOTES) == []


def test_a_list_that_exists_is_not_added_again() -> None:
    again = msgspec.structs.replace(EXTENSION, id="com.example/other", methods={})
    with pytest.raises(RegistrationError, match="defines what exists already"):
        Server(extensions=[EXTENSION, again])
    other = msgspec.structs.replace(NOTES, method="papers/list", capability="papers")
    with pytest.raises(RegistrationError, match="of items called 'note'"):
        Server(extensions=[EXTENSION, msgspec.structs.replace(again, lists=(other,))])
    with pytest.raises(RegistrationError, match="no extension of this server has a list 'tools/list'"):
        Server().items("tools/list")
