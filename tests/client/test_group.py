"""Many servers through one door: names, routing, and those that fail (CLI-8)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from linkspan import Client, ClientGroup, Server, SyncClient, SyncClientGroup
from linkspan.host.group import GroupNames, UnknownName
from linkspan.naming import MAX_NAME


def library(name: str) -> Server:
    server = Server(name)

    @server.tool
    def search(words: str) -> str:
        return f"{name}: {words}"

    server.define_tool(f"only_{name}", handler=lambda: name)
    server.define_resource(f"book://{name}", text=name)
    server.define_prompt("summary", handler=lambda: f"Sum {name} up.")
    return server


@pytest.fixture
def servers() -> dict[str, Any]:
    return {"north": library("north"), "south": library("south"), "broken": ["no-such-command-anywhere"]}


def test_names_stay_unless_they_collide_and_calls_find_their_server(servers: dict[str, Any]) -> None:
    with SyncClientGroup(servers) as group:
        tools = {entry.name: entry.server for entry in group.list_tools()}
        assert tools == {
            "north_search": "north",
            "south_search": "south",
            "only_north": "north",
            "only_south": "south",
        }
        assert group.call_tool("south_search", {"words": "sea"}).text == "south: sea"
        assert group.call_tool("only_north").text == "north"
        assert group.read_resource("book://south").contents[0].text == "south"
        assert {entry.name for entry in group.list_prompts()} == {"north_summary", "south_summary"}
        assert group.get_prompt("north_summary").messages[0].content.text == "Sum north up."


def test_the_same_on_a_loop(servers: dict[str, Any]) -> None:
    async def run() -> None:
        async with ClientGroup(servers) as group:
            assert (await group.call_tool("north_search", {"words": "ice"})).text == "north: ice"
            assert (await group.read_resource("book://north")).contents[0].text == "north"

    asyncio.run(run())


def test_a_server_that_fails_is_left_out_and_named(servers: dict[str, Any]) -> None:
    with SyncClientGroup(servers) as group:
        states = {each.server: each.state for each in group.status()}
        assert states == {"north": "connected", "south": "connected", "broken": "failed"}
        assert "'no-such-command-anywhere' was not found" in str(group.status()[2])


def test_a_failed_server_is_tried_again_when_it_is_needed(servers: dict[str, Any]) -> None:
    late = library("late")
    answers = iter([ConnectionRefusedError("not yet"), late])

    class Late:
        def connect(self, **options: Any) -> Any:
            found = next(answers)
            if isinstance(found, Exception):
                raise found
            return found.connect(**options)

    with SyncClientGroup({"late": Late()}) as group:
        assert group.status()[0].state == "failed"
        assert group.call_tool("only_late").text == "late"
        assert group.status()[0].state == "connected"


def test_an_unknown_name_is_named_with_what_is_near(servers: dict[str, Any]) -> None:
    with SyncClientGroup(servers) as group:
        with pytest.raises(UnknownName, match="'only_nort'; did you mean 'only_north'"):
            group.call_tool("only_nort")
        with pytest.raises(UnknownName, match="no server 'west'"):
            group.client("west")


def test_a_name_that_was_given_out_stays() -> None:
    names = GroupNames()
    names.assign({"a": ["search"]})
    assert names.name("a", "search") == "search"
    names.assign({"a": ["search"], "b": ["search"]})
    assert (names.name("a", "search"), names.name("b", "search")) == ("search", "b_search")
    assert names.find("b_search") == ("b", "search")


def test_names_are_short_and_plain_enough_for_every_provider() -> None:
    names = GroupNames()
    names.assign({"my server/1": ["x" * 60, "y"], "b": ["x" * 60, "y"]})
    given = [names.name("my server/1", "x" * 60), names.name("b", "x" * 60), names.name("my server/1", "y")]
    assert len({*given}) == 3
    assert all(len(each) <= MAX_NAME and each.replace("_", "").isalnum() for each in given)
    assert given[2] == "my_server_1_y"


def test_prefixed_names_that_collide_again_are_told_apart() -> None:
    names = GroupNames()
    names.assign({"a": ["b_c", "c"], "a_b": ["c"]})
    assert len({names.name("a", "b_c"), names.name("a", "c"), names.name("a_b", "c")}) == 3


def test_clients_may_be_members_themselves() -> None:
    with SyncClientGroup({"own": SyncClient(library("own"), era="legacy")}) as group:
        assert group.status()[0].protocol_version == "2025-11-25"


def test_the_two_groups_have_the_same_names_and_parameters() -> None:
    def public(kind: type) -> dict[str, Any]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(value).parameters for name, value in members if not name.startswith("_")}

    assert public(ClientGroup) == public(SyncClientGroup)
    assert Client is not SyncClient


def test_a_configuration_file_names_the_servers(tmp_path: Any) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {"gone": {"command": "no-such-command-anywhere", "args": ["x"]}}}')
    with SyncClientGroup.from_config(config) as group:
        assert [each.server for each in group.status()] == ["gone"]
