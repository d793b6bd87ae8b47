"""Skills and apps of servers behind a bridge, and an extension of one's own through a mount, in all four pairs of eras."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Raw

from linkspan import (
    Context,
    Extension,
    ExtensionMethod,
    Server,
    ServerError,
    SyncClient,
)
from linkspan.apps import Apps, supports_ui
from linkspan.bridge.gateway import BridgedServer, BridgeOptions, Gateway
from linkspan.bridge.rules import read_rules
from linkspan.skills import Skills, SyncClientSkills
from notebook import NOTES, GetNoteParams, Note

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
SKILLS = "io.modelcontextprotocol/skills"
UI = "io.modelcontextprotocol/ui"


class Elsewhere:
    """Hides what a server is: it is reached by a client only."""

    def __init__(self, server: Server) -> None:
        self.name = server.name
        self.server = server

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        return self.server.connect(ports=ports)


class Pair:
    """The eras on both sides of a bridge."""

    def __init__(self, there: Era, here: Era) -> None:
        self.there = there
        self.here = here

    def client(self, *servers: Server, **options: Any) -> SyncClient:
        """Return a client of a bridge of servers."""
        return SyncClient(bridge(self.there, *servers).server, era=self.here, **options)


def bridge(there: Era, *servers: Server, **options: Any) -> Gateway:
    targets = [BridgedServer(each.name, Elsewhere(each), {"era": there}) for each in servers]
    return Gateway(targets, BridgeOptions(rules=read_rules(None), is_shared=True, **options))


@pytest.fixture(params=[(there, here) for there in ERAS for here in ERAS], ids="-to-".join)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(*request.param)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write_skill(folder: Path, name: str, about: str = "What it is for") -> None:
    (folder / name / "references").mkdir(parents=True, exist_ok=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {about}\n---\n\nDo it.\n")
    (folder / name / "references" / "FORMS.md").write_bytes(b"# Forms\r\n")


# Skills.


def test_skills_are_listed_verified_and_read_through_a_bridge(pair: Pair, tmp_path: Path) -> None:
    write_skill(tmp_path, "pdf")
    with pair.client(Server("docs", extensions=[Skills(tmp_path)])) as client:
        client.connect()
        assert client.server_capabilities is not None
        assert client.server_capabilities.extensions == {SKILLS: {"directoryRead": True}}
        (skill,) = SyncClientSkills(client).list()
        assert "Do it." in skill.load()
        assert skill.read_bytes("references/FORMS.md") == b"# Forms\r\n"
        found: Any = client.request("resources/directory/read", {"uri": "skill://pdf"})
        assert [each["uri"] for each in found["resources"]] == ["skill://pdf/SKILL.md", "skill://pdf/references"]
        entry: Any = client.request("skills/get", {"uri": "skill://pdf/SKILL.md"})
        assert entry["skill"]["frontmatter"] == {"name": "pdf", "description": "What it is for"}
        assert ("ttlMs" in entry) == (pair.here == "modern")
        with pytest.raises(ServerError, match="skill://nope"):
            client.request("skills/get", {"uri": "skill://nope/SKILL.md"})


def test_a_bridge_has_no_skills_where_no_server_has_any(pair: Pair) -> None:
    plain = Server("plain")
    plain.resource("note://a")(lambda: "A")
    with pair.client(plain) as client:
        client.connect()
        assert client.server_capabilities is not None
        assert not client.server_capabilities.extensions
        with pytest.raises(ServerError, match="Method not found"):
            client.request("skills/list")


def test_of_several_servers_each_skill_is_read_from_its_own(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", "pdf")
    write_skill(tmp_path / "b", "pdf", "Another one of that URI")
    write_skill(tmp_path / "b", "tides")
    servers = [Server(each, extensions=[Skills(tmp_path / each)]) for each in "ab"]
    with SyncClient(bridge("modern", *servers).server) as client:
        found = {each.uri: each.entry.frontmatter["description"] for each in SyncClientSkills(client).list()}
        assert found == {"skill://pdf/SKILL.md": "What it is for", "skill://tides/SKILL.md": "What it is for"}


def test_a_skill_that_changes_is_announced(tmp_path: Path) -> None:
    write_skill(tmp_path, "pdf")
    skills = Skills(tmp_path, poll=0.05)
    changes: list[Any] = []
    with SyncClient(bridge("modern", Server("docs", extensions=[skills])).server, on_change=changes.append) as client:
        assert len(SyncClientSkills(client).list()) == 1
        write_skill(tmp_path, "tides")
        deadline = time.monotonic() + 60
        while not any(each.kind == "resources" for each in changes):
            assert time.monotonic() < deadline, "no change was announced"
            time.sleep(0.02)
        while len(SyncClientSkills(client).list()) == 1:
            assert time.monotonic() < deadline, "the new skill is not listed"
            time.sleep(0.02)


def test_what_a_bridge_remembers_of_skills_is_there_at_once(tmp_path: Path) -> None:
    write_skill(tmp_path, "pdf")
    with SyncClient(bridge("modern", Server("docs", extensions=[Skills(tmp_path)]), remembers=True).server) as client:
        client.list_tools()
    silent = BridgedServer("docs", Silent("docs"))
    later = Gateway([silent], BridgeOptions(rules=read_rules(None), is_shared=True, remembers=True))
    with SyncClient(later.server) as client:
        client.connect()
        assert client.server_capabilities is not None
        assert client.server_capabilities.extensions == {SKILLS: {"directoryRead": True}}
        page: Any = client.request("skills/list")
        assert [each["uri"] for each in page["skills"]] == ["skill://pdf/SKILL.md"]


class Silent:
    """A server that never says anything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def connect(self, *, ports: Any) -> Any:
        """Refuse."""
        raise OSError("not today")


# Apps.


def test_views_pass_and_a_server_hears_whether_its_caller_shows_them(pair: Pair) -> None:
    apps = Apps()
    server = Server("ferries", extensions=[apps])
    view = apps.view("ui://ferries/map.html", "<!doctype html><p>map</p>", border=True)

    @server.tool(meta=view.tool())
    def ferries(ctx: Context) -> str:
        return "with a view" if supports_ui(ctx) else "in words"

    with pair.client(server, extensions=[Apps()]) as client:
        (tool,) = client.list_tools()
        assert client.server_capabilities is not None
        assert UI in (client.server_capabilities.extensions or {})
        assert tool.meta is not None
        assert tool.meta["ui"]["resourceUri"] == "ui://ferries/map.html"
        assert (tool.meta.get("ui/resourceUri") is not None) == ("legacy" in (pair.here, pair.there))
        assert client.call_tool("ferries").text == "with a view"
        (content,) = client.read_resource("ui://ferries/map.html").contents
        assert content.meta == {"ui": {"prefersBorder": True}}
    with pair.client(server) as client:
        assert client.call_tool("ferries").text == "in words"


# An extension of one's own.


def notes(server: str) -> Extension:
    def get(request: Any) -> Raw:
        return Raw(json.dumps({"text": f"{request.params.name} of {server}"}).encode())

    methods = {"notes/get": ExtensionMethod(params=GetNoteParams, about=NOTES, begin=get)}
    return Extension(id="com.example/notes", server={}, client={}, lists=(NOTES,), methods=methods)


def test_items_of_an_extension_pass_through_a_mount_under_its_prefix() -> None:
    there = Server("there", extensions=[notes("there")])
    there.items("notes/list").add(Note("milk"))
    here = Server("here", extensions=[notes("here")])
    here.items("notes/list").add(Note("bread"))
    here.mount(Elsewhere(there), "far")
    here.mount(Elsewhere(Server("plain")), "near")  # it has no notes, which costs nothing
    with SyncClient(here, extensions=[notes("")]) as client:
        assert [each.name for each in client.list_items(NOTES)] == ["bread", "far_milk"]
        assert client.request("notes/get", {"name": "far_milk"})["text"] == "milk of there"
        assert client.request("notes/get", {"name": "bread"})["text"] == "bread of here"
    with SyncClient(here) as client, pytest.raises(ServerError, match=r"com\.example/notes"):
        client.request("notes/list")


# Resources that no list names.


def test_a_uri_that_no_list_names_is_read_from_the_only_server_and_from_the_one_with_its_folder() -> None:
    servers = [unlisted("a"), unlisted("b")]
    with SyncClient(bridge("modern", servers[0]).server) as client:
        assert client.read_resource("file://anything").contents[0].text == "file://anything of a"
    with SyncClient(bridge("modern", *servers).server) as client:
        client.list_resources()
        assert client.read_resource("docs://b/more/c.txt").contents[0].text == "docs://b/more/c.txt of b"
        with pytest.raises(ServerError, match="Resource not found"):
            client.read_resource("docs://c/x.txt")
        with pytest.raises(ServerError, match="Resource not found"):
            client.read_resource("file://anything")
    only = BridgeOptions(rules=read_rules(None), is_shared=True, only=["a/docs:*"])
    with SyncClient(Gateway([BridgedServer("a", Elsewhere(servers[0]))], only).server) as client:
        assert client.read_resource("docs://other").contents[0].text == "docs://other of a"
        with pytest.raises(ServerError, match="Resource not found"):
            client.read_resource("file://anything")


def unlisted(name: str) -> Server:
    """Return a server that reads any URI, and lists one."""
    server = Server(name)
    server.resource(f"docs://{name}/index.txt")(lambda: "index")

    @server.resources_read_handler
    def read(uri: str) -> str:
        return f"{uri} of {name}"

    return server
