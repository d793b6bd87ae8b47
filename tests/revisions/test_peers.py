"""What a client can be asked: what it declared, of what its revision has."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from msgspec import Raw

from linkspan import Ask, Context, Server
from linkspan.revisions import LEGACY, REVISIONS
from linkspan.revisions.agreement import Agreement, ClientProfile, agree_on_handshake, handshake_params
from linkspan.revisions.neutral import Peer
from linkspan.types.base import Implementation
from talk import connected, say

A, B, C, D, E = REVISIONS  # by date, the oldest first

SUPPORTED = [
    ("roots", None, {"roots": {}}, {A, B, C, D, E}),
    ("sampling", None, {"sampling": {}}, {A, B, C, D, E}),
    ("sampling", "tools", {"sampling": {"tools": {}}}, {D, E}),
    ("elicitation", None, {"elicitation": {}}, {C, D, E}),
    ("elicitation", "form", {"elicitation": {}}, {C, D, E}),
    ("elicitation", "form", {"elicitation": {"url": {}}}, {C}),
    ("elicitation", "url", {"elicitation": {"form": {}, "url": {}}}, {D, E}),
    ("elicitation", "url", {"elicitation": {}}, set()),
    ("elicitation", None, {"elicitation": True}, set()),
    ("sampling", "tools", {"sampling": {"tools": False}}, set()),
    ("sampling", "tools", {"sampling": {"tools": True}}, {D, E}),
    ("elicitation", "url", {"elicitation": {"url": False}}, set()),
    ("elicitation", "form", {"elicitation": {"url": False}}, {C, D, E}),
    ("elicitation", "form", {"elicitation": {"form": None}}, set()),
    ("extensions", "com.example/echo", {"extensions": {"com.example/echo": {}}}, {A, B, C, D, E}),
    ("extensions", "com.example/echo", {"extensions": {"com.example/echo": False}}, set()),
    ("extensions", "com.example/echo", {"extensions": {"com.example/echo": True}}, set()),
    ("experimental", None, {"experimental": {}}, {A, B, C, D, E}),
]


@pytest.mark.parametrize(("capability", "part", "declared", "where"), SUPPORTED)
def test_a_client_supports_what_it_declares_and_its_revision_has(
    capability: str, part: str | None, declared: dict[str, Any], where: set[str]
) -> None:
    found = {date for date, revision in REVISIONS.items() if Peer(revision, declared).supports(capability, part)}
    assert found == where


@pytest.mark.parametrize("revision", [D, E])
def test_what_a_client_declared_cannot_be_changed_by_a_handler(revision: str) -> None:
    server, seen = Server(), list[Any]()

    @server.tool
    def meddle(ctx: Context) -> str:
        seen.append(ctx.peer.capabilities)
        with pytest.raises(TypeError):
            ctx.peer.capabilities["elicitation"]["url"] = {}  # type: ignore[index]
        with pytest.raises(AttributeError):
            ctx.peer.capabilities["experimental"]["list"].append(2)
        return "nothing changed"

    declared = {"elicitation": {"form": {}}, "experimental": {"list": [1]}}
    envelope = {
        "io.modelcontextprotocol/protocolVersion": E,
        "io.modelcontextprotocol/clientCapabilities": declared,
    }
    connection = connected(server, revision=D, capabilities=declared)
    meta = {"_meta": envelope} if revision == E else {}
    (answer,) = say(connection, "tools/call", 1, name="meddle", **meta)
    assert answer["result"]["content"][0]["text"] == "nothing changed"
    assert seen[0]["elicitation"] == {"form": {}}


def asking() -> Server:
    server = Server()

    @server.tool
    def form(ctx: Context) -> str:
        return ctx.ask("q", str, "What?")

    @server.tool
    def page(ctx: Context) -> str:
        ctx.ask_url("page", "https://example.com", "Look")
        return "seen"

    @server.tool
    def default(seats: Annotated[int, Ask("How many?")] = 2) -> str:
        return f"{seats} seats"

    return server


@pytest.mark.parametrize(("tool", "revision"), [("form", A), ("form", B), ("page", A), ("page", B), ("page", C)])
def test_a_client_is_not_asked_what_its_revision_cannot_say(tool: str, revision: str) -> None:
    (answer,) = say(connected(asking(), revision=revision), "tools/call", 1, name=tool)
    assert answer["result"]["isError"]
    assert "does not support" in answer["result"]["content"][0]["text"]


def test_a_parameter_takes_its_default_where_the_revision_has_no_way_to_ask() -> None:
    (answer,) = say(connected(asking(), revision=A), "tools/call", 1, name="default")
    assert answer["result"]["content"] == [{"type": "text", "text": "2 seats"}]


SETTINGS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}


@pytest.mark.parametrize("revision", LEGACY)
def test_a_client_declares_its_extensions_in_every_handshake(revision: str) -> None:
    """EXT-1."""
    profile = ClientProfile(Implementation("n", "1"), {"extensions": SETTINGS})
    params = json.loads(handshake_params(profile, REVISIONS[revision]))
    assert params["capabilities"] == {"extensions": SETTINGS}


@pytest.mark.parametrize("revision", LEGACY)
def test_extensions_pass_between_handshake_peers_in_both_directions(revision: str) -> None:
    """EXT-1."""
    server = Server(capabilities={"extensions": SETTINGS})
    seen: list[object] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.peer.capabilities["extensions"])

    connection = server.connect()
    hello = json.loads(handshake_params(ClientProfile(Implementation("n", "1"), {"extensions": SETTINGS})))
    (answer,) = say(connection, "initialize", 1, **hello | {"protocolVersion": revision})
    agreement = agree_on_handshake(Raw(json.dumps(answer["result"]).encode()))
    assert isinstance(agreement, Agreement)
    assert agreement.capabilities.extensions == SETTINGS
    say(connection, "tools/call", 2, name="look")
    assert json.loads(json.dumps(seen, default=lambda each: list(each) if isinstance(each, tuple) else dict(each))) == [
        SETTINGS
    ]
