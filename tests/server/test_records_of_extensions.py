"""What the record of an extension carries besides methods and lists: what it does on a server, and where its items come from."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from linkspan import Extension, ExtensionMethod, ListSpec, Params, RegistrationError, Server, SyncClient, Wire
from linkspan.core.extension import Attached
from linkspan.flows.client_errors import ServerError


class Buoy(Wire, frozen=True):
    name: str
    harbour: str = "Oban"


class ListBuoysResult(Wire, frozen=True):
    buoys: list[Buoy]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None


class HarbourParams(Params, frozen=True, kw_only=True):
    named_by: ClassVar[str | None] = "harbour"
    harbour: str


class HarbourResult(Wire, frozen=True):
    buoys: list[str]
    ttl_ms: int | None = None
    cache_scope: str | None = None


BUOYS = ListSpec(
    method="buoys/list", noun="buoy", key="name", capability="resources", item=Buoy, result=ListBuoysResult
)


class Buoys:
    """An extension with a list of the capability of resources, which it fills when it is asked for."""

    def __init__(self, *, fills: bool = True) -> None:
        self.fills = fills
        self.server: Any = None
        self.looked: list[str] = []
        self.place: Any = None
        self.watched = False
        self.extension = Extension(
            id="com.example/buoys",
            server={},
            lists=(BUOYS,),
            methods={
                "buoys/of": ExtensionMethod(params=HarbourParams, begin=self.of, among=BUOYS, cached=True),
            },
            attach=self.attach,
            needs_declaration=False,
            in_handshakes=True,
        )

    def attach(self, place: Any) -> Attached:
        self.server, self.place = place.server, place
        sources = {"buoys/list": self.look, "buoys/of": self.look}
        return Attached(sources=sources, watch=self.watch)

    def look(self) -> None:
        self.looked.append("")
        items = self.server.items("buoys/list")
        if self.fills and not len(items):
            items.add(Buoy("red"))
            items.add(Buoy("green"), when=lambda ctx: ctx.principal == "ann")
            items.add(Buoy("cardinal"), scopes=["pilot"])

    def watch(self) -> None:
        self.watched = True

    def of(self, request: Any) -> HarbourResult:
        items = self.server.items("buoys/list").usable(request)
        return HarbourResult([each.name for each in items if each.harbour == request.params.harbour])


@pytest.fixture(params=["2025-06-18", "2025-11-25", "2026-07-28"])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_items_are_brought_up_to_date_before_the_methods_that_name_a_source(revision: str) -> None:
    buoys = Buoys()
    with SyncClient(Server(extensions=[buoys]), protocol_version=revision) as client:
        assert client.request("buoys/of", {"harbour": "Oban"})["buoys"] == ["red", "cardinal"]
        assert [each.name for each in client.list_items(BUOYS)] == ["red", "cardinal"]
    assert len(buoys.looked) == 2


def test_they_are_brought_up_to_date_through_mounts_too(revision: str) -> None:
    servers = [Server(each, extensions=[Buoys(fills=each == "a")]) for each in "abc"]
    servers[2].mount(servers[1])
    servers[1].mount(servers[0])
    with SyncClient(servers[2], protocol_version=revision) as client:
        assert client.request("buoys/of", {"harbour": "Oban"})["buoys"] == ["red", "cardinal"]


def test_a_result_says_for_how_long_it_may_be_kept_where_results_have_that() -> None:
    with SyncClient(Server(extensions=[Buoys()], ttl_ms=50, cache_scope="public")) as client:
        found = client.request("buoys/of", {"harbour": "Oban"})
    assert (found["ttlMs"], found["cacheScope"]) == (50, "private")  # callers may see different buoys
    with SyncClient(Server(extensions=[Buoys()]), protocol_version="2025-11-25") as client:
        assert client.request("buoys/of", {"harbour": "Oban"}) == {"buoys": ["red", "cardinal"]}


def test_a_list_of_a_capability_of_the_protocol_promises_it_even_if_nothing_is_listed(revision: str) -> None:
    server = Server(extensions=[Buoys()])
    server.define_tool("one", handler=lambda: 1)
    with SyncClient(server, protocol_version=revision) as client:
        client.connect()
        assert client.server_capabilities is not None
        assert client.server_capabilities.resources is not None
        assert client.list_resources() == []


def test_it_learns_whether_a_client_listens() -> None:
    buoys = Buoys()
    with SyncClient(Server(extensions=[buoys])) as client:
        client.ping()
        assert buoys.watched
        assert buoys.place.is_listened_to() is False
        with client.listen(resources=True):
            assert buoys.place.is_listened_to() is True


def test_an_item_is_put_in_the_place_of_another() -> None:
    buoys = Buoys()
    server = Server(extensions=[buoys])
    buoys.look()
    items = server.items("buoys/list")
    items.replace(Buoy("red", harbour="Mallaig"))
    with SyncClient(server) as client:
        assert client.request("buoys/of", {"harbour": "Mallaig"})["buoys"] == ["red"]
        assert [each.name for each in client.list_items(BUOYS)] == ["red", "cardinal"]
    with pytest.raises(KeyError):
        items.replace(Buoy("blue"))


def test_what_has_no_record_is_refused() -> None:
    with pytest.raises(RegistrationError, match="takes values such as Extension"):
        Server(extensions=[object()])  # type: ignore[list-item]
    with pytest.raises(ServerError, match="Method not found"), SyncClient(Server()) as client:
        client.request("buoys/of", {"harbour": "Oban"})
