"""Extensions of a client: what it declares, its results of calls, its subscriptions, its headers. In memory and over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import pytest
from msgspec import Raw

import over_http
from linkspan import Client, Context, InvalidResponse, Server, ServerError, SyncClient
from linkspan.core.extension import Extension
from linkspan.flows.http_messages import mirrored
from linkspan.revisions import LATEST
from linkspan.revisions.agreement import Agreement, ClientProfile, handshake_params
from linkspan.types.base import Implementation
from parcels import COLOURS, EXTENSION, PARCELS, arrived, shop


def watched_shop() -> Server:
    """Announce the parcel as soon as a client listens for it."""
    server = shop()
    honoured = EXTENSION.listen["parcelIds"].honoured

    def announce(parcel: str) -> None:
        while not server._announcer.send(arrived(parcel), None):
            pass

    def honour(request: Any, wanted: Any) -> Any:
        for each in wanted:
            threading.Thread(target=announce, args=(each,), daemon=True).start()
        return honoured(request, wanted)

    member = msgspec.structs.replace(EXTENSION.listen["parcelIds"], honoured=honour)
    watched = msgspec.structs.replace(EXTENSION, listen={"parcelIds": member})
    remade = Server("shop", extensions=[watched, COLOURS])
    for tool in server._catalogue.tools.all():
        remade.define_tool(tool.spec.name, handler=tool.handler.function)
    server = remade
    return server


@pytest.fixture(params=["memory", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[Any]:
    server = watched_shop()
    if request.param == "memory":
        yield server
        return
    with over_http.serving(server.asgi()) as url:
        yield url


def test_a_result_of_an_extension_becomes_the_final_one(target: Any) -> None:
    with SyncClient(target, extensions=[EXTENSION]) as client:
        result = client.call_tool("ship", {"what": "a book"})
        assert result.text == "arrived, on its way, {'parcelIds': ['p1']}"
        assert client.call_tool("hand_over", {"what": "a book"}).text == "handed over a book"


def test_a_client_for_asyncio_does_the_same(target: Any) -> None:
    async def main() -> str:
        async with Client(target, extensions=[EXTENSION]) as client:
            return (await client.call_tool("ship", {"what": "a book"})).text

    assert asyncio.run(main()) == "arrived, on its way, {'parcelIds': ['p1']}"


def test_a_client_without_the_extension_is_served_as_ever(target: Any) -> None:
    with SyncClient(target) as client:
        assert client.call_tool("ship", {"what": "a book"}).text == "shipped a book"
        with pytest.raises(ServerError) as caught:
            client.call_tool("ship_abroad", {"what": "a book"})
        assert caught.value.code == -32021


def test_a_client_that_declares_less_than_it_can_refuses_the_result(target: Any) -> None:
    silent = Extension(id=PARCELS, client={}, methods=EXTENSION.methods)
    unknown = pytest.raises(InvalidResponse, match="has the type 'parcel', which this client does not know")
    with SyncClient(target, extensions=[silent]) as client, unknown:
        client.call_tool("ship", {"what": "a book"})


def test_a_type_of_an_extension_is_known_for_calls_of_tools_only() -> None:
    server = Server()
    server.define_custom_method("mine", lambda params: None)

    @server.middleware(only=("resources/read",))
    def typed(call: Any) -> Any:
        yield
        return Raw(b'{"resultType":"parcel","contents":[]}')

    @server.resource("note://one")
    def one() -> str:
        return ""

    unknown = pytest.raises(InvalidResponse, match="the result of resources/read has the type 'parcel'")
    with SyncClient(server, extensions=[EXTENSION]) as client, unknown:
        client.read_resource("note://one")


def test_a_method_of_an_extension_is_called_by_its_name(target: Any) -> None:
    with SyncClient(target, extensions=[EXTENSION]) as client:
        found = client.request("parcels/find", {"parcelId": "p7"})
        assert isinstance(found, dict)
        assert found["status"] == "on its way"


@pytest.mark.parametrize(("parcel", "header"), [("p7", "p7"), ("ä", "=?base64?w6Q=?="), (None, "")])
def test_the_header_repeats_what_the_params_are_about(parcel: str | None, header: str) -> None:
    params = json.dumps({"parcelId": parcel} if parcel is not None else {}).encode()
    with SyncClient(Server(), extensions=[EXTENSION]) as client:
        named_by = client._state.options.named_by
    assert mirrored(Agreement(LATEST), "parcels/find", params, None, named_by)["mcp-name"] == header
    assert "mcp-name" not in mirrored(Agreement(LATEST), "parcels/lose", params, None, named_by)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_settings_are_declared_in_each_request_or_in_the_handshake(era: Literal["modern", "legacy"]) -> None:
    server = Server(extensions=[COLOURS, EXTENSION])
    seen: list[Mapping[str, Any]] = []

    @server.tool
    def look(ctx: Context) -> str:
        seen.append(ctx.peer.capabilities)
        return ""

    with SyncClient(server, era=era, extensions=[COLOURS, EXTENSION]) as client:
        client.call_tool("look")
        capabilities = client.server_capabilities
    announced = capabilities.extensions if capabilities is not None else None
    mine: dict[str, Any] = {COLOURS.id: {"dark": False}}
    theirs: dict[str, Any] = {COLOURS.id: {"dark": True}}
    if era == "modern":
        mine, theirs = mine | {PARCELS: {}}, theirs | {PARCELS: {"express": True}}
    assert seen == [{"extensions": mine}]
    assert announced == theirs


def test_a_client_without_extensions_loads_no_module_for_them() -> None:
    code = "import sys; from linkspan.client import SyncClient; SyncClient(['true']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"linkspan.core.extension", "linkspan.flows.tasks", "linkspan.client.tasks"} & set(loaded)


def test_a_handshake_leaves_the_member_out_where_nothing_is_left_in_it() -> None:
    capabilities = {"extensions": {PARCELS: {}}}
    profile = ClientProfile(Implementation("c", "1"), capabilities, frozenset({PARCELS}))
    assert json.loads(handshake_params(profile))["capabilities"] == {}
    assert profile.capabilities == capabilities


@pytest.mark.parametrize(
    ("extensions", "problem"),
    [
        ([EXTENSION, EXTENSION], "com.example/parcels: it is there twice"),
        ([Extension(id="com.example/x", server={})], "com.example/x: clients do not have it"),
        (["com.example/x"], "takes values such as Tasks"),
    ],
)
def test_wrong_extensions_are_refused_when_the_client_is_made(extensions: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SyncClient(Server(), extensions=extensions)


def test_notifications_that_nothing_listens_for_go_to_the_application(target: Callable[..., Any]) -> None:
    heard: list[str] = []
    with SyncClient(target, extensions=[EXTENSION], on_notification=lambda method, _: heard.append(method)) as client:
        client.call_tool("ship", {"what": "a book"})
    assert heard == []
