"""The worked example "a feature with a list" of docs/contributing.md, carried out as that page says, in a copy of the sources.

The lines below are all that a fifth list of the protocol takes on a server: nothing else of the copy is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import linkspan

SHAPES = '''

class Snippet(Wire, frozen=True):
    """A snippet as a list shows it."""

    name: str


class ListSnippetsResult(Wire, frozen=True):
    """One page of snippets."""

    snippets: list[Snippet]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class GetSnippetResult(Wire, frozen=True):
    """A snippet."""

    text: str


class GetSnippetParams(Params, frozen=True, kw_only=True):
    """Which snippet."""

    named_by: ClassVar[str | None] = "name"
    name: str
'''
RECORD = """
from linkspan.types.messages import GetSnippetParams, GetSnippetResult, ListSnippetsResult, Snippet

SNIPPET_LIST: Final = ListSpec(
    method="snippets/list", noun="snippet", key="name", capability="snippets", item=Snippet, result=ListSnippetsResult
)
SNIPPET_GET: Final = MethodSpec("snippets/get", GetSnippetParams, GetSnippetResult, SNIPPET_LIST)

FEATURES: Final = (
    FeatureSpec(
        capability="snippets",
        announced=ListChangedCapability(list_changed=True),
        lists=(SNIPPET_LIST,),
        methods=(SNIPPET_GET,),
    ),"""
SERVED = '''"""Snippets that clients get."""

from __future__ import annotations

from typing import Any

import msgspec

from linkspan.server.features.method import ItemMethod
from linkspan.server.handlers import Handler, MountedItem, compile_handler
from linkspan.server.visibility import Condition, check_scopes, compile_condition
from linkspan.types.messages import GetSnippetParams, GetSnippetResult, Snippet
from linkspan.types.methods import SNIPPET_GET, SNIPPET_LIST


class BoundSnippet(msgspec.Struct, frozen=True):
    """A registered snippet."""

    spec: Snippet
    handler: Handler
    derived: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    when: Condition | None = None
    scopes: tuple[str, ...] = ()
    mounted: MountedItem | None = None


def bind_snippet(name: str, function: Any, when: Any, scopes: Any) -> BoundSnippet:
    return BoundSnippet(
        Snippet(name),
        compile_handler(function),
        when=compile_condition(when, name),
        scopes=check_scopes(scopes, name),
    )


class GetSnippet(ItemMethod[GetSnippetParams]):
    """`snippets/get`."""

    def __init__(self, host: Any) -> None:
        """Serve the snippets of `host`."""
        super().__init__(SNIPPET_GET, host, host.catalogue.lists[SNIPPET_LIST.method])

    def serve(self, request: Any, settings: Any, observation: Any) -> Any:
        """Return the call of the snippet's function."""
        name, host = request.params.name, self.host
        snippet = self.registry.get(name, request.shown)
        if snippet is None:
            return self.unknown(request, name, observation)
        if snippet.mounted is not None:
            return snippet.mounted.begin(request, settings, observation, host.rounds, host.failures, name)
        return host.run(request, settings, observation, snippet.handler, {}, GetSnippetResult, name)
'''
DECORATOR = '''
    def snippet(self, name: str, *, when: Any = None, scopes: Any = ()) -> Any:
        """Register a function that returns the text of a snippet."""
        from linkspan.server.features.snippet_gets import bind_snippet

        def add(function: Any) -> Any:
            self._offering.add(self._catalogue.lists["snippets/list"], [bind_snippet(name, function, when, scopes)])
            return function

        return add

    # Prompts.
'''
EDITS: dict[str, list[tuple[str, str]]] = {
    "types/messages.py": [
        (
            "    prompts: ListChangedCapability | None = None\n",
            "    prompts: ListChangedCapability | None = None\n    snippets: ListChangedCapability | None = None\n",
        ),
        (
            "    prompts_list_changed: bool | None = None\n",
            "    prompts_list_changed: bool | None = None\n    snippets_list_changed: bool | None = None\n",
        ),
        ("", SHAPES),
    ],
    "types/methods.py": [("\nFEATURES: Final = (", RECORD)],
    "revisions/v2025_11_25.py": [
        ("    Prompt,\n", "    ListSnippetsResult,\n    Prompt,\n    ServerCapabilities,\n"),
        (
            "    new_fields={\n",
            '    add=("snippets/list", "snippets/get"),\n    new_fields={\n        ServerCapabilities: ("snippets",),\n',
        ),
    ],
    "revisions/v2026_07_28.py": [
        ("    ListToolsResult,\n", "    ListSnippetsResult,\n    ListToolsResult,\n"),
        ("    new_fields={\n", '    new_fields={\n        ListSnippetsResult: ("ttl_ms", "cache_scope"),\n'),
    ],
    "server/method_table.py": [
        (
            "from linkspan.server.features.tool_calls",
            "from linkspan.server.features.snippet_gets import GetSnippet\nfrom linkspan.server.features.tool_calls",
        ),
        ("            GetPrompt(host),\n", "            GetPrompt(host),\n            GetSnippet(host),\n"),
    ],
    "server/registration.py": [("\n    # Prompts.\n", DECORATOR)],
}
"""What is put in the place of what, in each file that exists; of nothing, it is put at the end."""

SHOW = """
import json, sys
from linkspan import Grant, Server, SyncClient
from linkspan.flows.client_errors import ServerError
from linkspan.errors import RemoteProtocolError
from linkspan.revisions import REVISIONS
from linkspan.revisions.neutral import Peer, Request, TransportInfo
from linkspan.types.base import Implementation
from linkspan.types.messages import GetSnippetParams
from linkspan.types.methods import SNIPPET_LIST


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
GREETINGS = {
    True: [
        {
            "id": 1,
            "method": "subscriptions/listen",
            "params": {"notifications": {"snippetsListChanged": True}, "_meta": META},
        }
    ],
    False: [{"id": 1, "method": "initialize", "params": HELLO}, {"method": "notifications/initialized"}],
}


def editor(**options):
    server = Server("editor", **options)
    for name in ("if", "for", "while"):
        server.snippet(name)(lambda name=name: name + ":")
    return server


def names(client):
    return [each.name for each in client.list_items(SNIPPET_LIST)]


def attempt(client, method, **params):
    try:
        return client.request(method, params)
    except ServerError as problem:
        return str(problem).partition(" was refused: ")[2].partition(" (")[0]


def get_with(server, version, *scopes):
    request = Request(1, "snippets/get", GetSnippetParams(name="macro"), Peer(REVISIONS[version]))
    request.facts = TransportInfo(principal="ann", grant=Grant(issuer="https://id.example", scopes=frozenset(scopes)))
    outcome = server._dispatcher.begin(request)
    return outcome.message if isinstance(outcome, RemoteProtocolError) else "there"


def show(version):
    shown = {}
    with SyncClient(editor(page_size=2, ttl_ms=5), protocol_version=version) as client:
        page = attempt(client, "snippets/list")
        shown["pages"] = [page, names(client)] if isinstance(page, dict) else page
        shown["item"] = attempt(client, "snippets/get", name="for")
        shown["unknown"] = attempt(client, "snippets/get", name="whlie")
        client.connect()
        shown["capability"] = "snippets" in client.server_capabilities.__struct_fields__ and (
            client.server_capabilities.snippets is not None
        )
    if not isinstance(page, dict):
        return shown

    server = editor()
    server.snippet("macro", when=lambda ctx: ctx.client_info.name == "author")(lambda: "macro:")
    for who in ("author", "guest"):
        with SyncClient(server, protocol_version=version, info=Implementation(name=who, version="1")) as client:
            shown[who] = ["macro" in names(client), "text" in attempt(client, "snippets/get", name="macro")]

    server = editor()
    server.snippet("macro", scopes=["edit"])(lambda: "macro:")
    shown["scopes"] = [get_with(server, version), get_with(server, version, "edit")]

    server, seen = editor(), []

    @server.middleware
    def watch(call):
        seen.append([call.method, call.name])
        return (yield)

    with SyncClient(server, protocol_version=version) as client:
        attempt(client, "snippets/get", name="if")
    shown["middleware"] = seen

    server = editor(auto_notify=True, ttl_ms=60000)
    connection = server.connect()
    for message in GREETINGS[version >= "2026"]:
        connection.receive_message(json.dumps({"jsonrpc": "2.0", **message}).encode())
    connection.messages_to_send()
    with SyncClient(server, protocol_version=version) as client:
        before = names(client)
        server.snippet("match")(lambda: "match:")
        server.disable("for", kind="snippet")
        with SyncClient(server, protocol_version=version) as other:
            shown["listed"] = [before, names(other)]
    shown["changes"] = [json.loads(each)["method"] for each in connection.messages_to_send()]

    around = Server("around", page_size=2)
    inner = editor()
    around.mount(inner, "inner")
    inner.snippet("try")(lambda: "try:")
    with SyncClient(around, protocol_version=version) as client:
        shown["mounted"] = [names(client), attempt(client, "snippets/get", name="inner_try")]
    return shown


print(json.dumps({version: show(version) for version in sys.argv[1:]}))
"""
BEFORE, HANDSHAKE, MODERN = "2025-06-18", "2025-11-25", "2026-07-28"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a server with snippets answers in each revision, by what is shown."""
    package = tmp_path_factory.mktemp("sources") / "linkspan"
    shutil.copytree(Path(linkspan.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        text = (package / name).read_text("utf-8")
        for old, new in edits:
            assert not old or text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
            text = text.replace(old, new) if old else text + new
        (package / name).write_text(text, "utf-8")
    (package / "server/features/snippet_gets.py").write_text(SERVED, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SHOW, BEFORE, HANDSHAKE, MODERN],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


both = pytest.mark.parametrize("version", [HANDSHAKE, MODERN])


@both
def test_its_items_are_listed_in_pages(shown: dict[str, dict[str, Any]], version: str) -> None:
    page, names = shown[version]["pages"]
    assert [each["name"] for each in page["snippets"]] == ["if", "for"]
    assert page.get("ttlMs") == (5 if version == MODERN else None)
    assert names == ["if", "for", "while"]
    assert shown[version]["capability"]


@both
def test_an_item_is_found_by_its_key(shown: dict[str, dict[str, Any]], version: str) -> None:
    assert shown[version]["item"]["text"] == "for:"
    assert shown[version]["unknown"] == "Unknown snippet: whlie; did you mean 'while'?"


def test_a_revision_before_it_has_neither_the_methods_nor_the_capability(shown: dict[str, dict[str, Any]]) -> None:
    assert shown[BEFORE]["pages"] == "Method not found: snippets/list"
    assert shown[BEFORE]["item"] == "Method not found: snippets/get"
    assert not shown[BEFORE]["capability"]


@both
def test_conditions_scopes_and_middleware_count(shown: dict[str, dict[str, Any]], version: str) -> None:
    assert shown[version]["author"] == [True, True]
    assert shown[version]["guest"] == [False, False]
    assert shown[version]["scopes"] == ["Forbidden: this needs the scope edit", "there"]
    assert shown[version]["middleware"] == [["snippets/get", "if"]]


@both
def test_its_changes_are_announced(shown: dict[str, dict[str, Any]], version: str) -> None:
    assert shown[version]["changes"] == ["notifications/snippets/list_changed"] * 2
    assert shown[version]["listed"] == [["if", "for", "while"], ["if", "while", "match"]]


@both
def test_it_passes_through_a_mount(shown: dict[str, dict[str, Any]], version: str) -> None:
    names, item = shown[version]["mounted"]
    assert names == ["inner_if", "inner_for", "inner_while", "inner_try"]
    assert item["text"] == "try:"
