"""Names of other SDKs work, or raise an error with the line to use; the pages for newcomers promise the same lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import linkspan
from linkspan import Context, HttpPolicy, Server, ToolResult
from linkspan.auth import ApiKeys, Introspection, Jwt, OAuth, Protected
from linkspan.flows.client_errors import NO_ORIGIN
from linkspan.flows.tool_results import read_head
from linkspan.habits import AUTH, CONTEXT, KEYWORDS, PACKAGE, RESULT, SERVER, instead_of_auth
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Peer, Request
from linkspan.server.asking import Round

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ["coming-from-fastmcp.md", "coming-from-mcp.md"]
ROW = re.compile(r"^\| (`.+?) \| (.+?) \|$", re.M)
CODE = re.compile(r"`([^`]+)`")


def test_advice_on_the_first_transport_can_be_followed() -> None:
    paths = [ast.literal_eval(path) for line in SERVER.values() for path in re.findall(r"http_sse=([^)]+)\)", line)]
    assert len(paths) == 2
    for path in paths:
        assert HttpPolicy(http_sse=path).http_sse == path


def rows() -> list[tuple[str, str, str]]:
    """Return the page, a thing of the other SDK, and what the page says of it."""
    found = [(page, *row) for page in PAGES for row in ROW.findall((DOCS / page).read_text())]
    return [(page, theirs, here) for page, cell, here in found for theirs in CODE.findall(cell)]


ROWS = rows()


def context() -> Context:
    return Context(Request(1, "tools/call", None, Peer(LATEST)), Round())


def result() -> ToolResult:
    raw = b'{"content":[]}'
    return ToolResult(read_head(raw), raw, NO_ORIGIN, "count")


def problem(use: Callable[[], object]) -> str | None:
    """Return the text of the error; None where the name works."""
    try:
        use()
    except (AttributeError, ImportError, TypeError) as error:
        return str(error)
    return None


def error_for(theirs: str) -> str | None:
    """Return what happens where the line of the other SDK is written with our objects."""
    if found := re.fullmatch(r"from [\w.]+ import (\w+)", theirs):
        return problem(lambda: getattr(linkspan, found[1]))
    if found := re.match(r"@?(mcp|ctx|result)\.(\w+)", theirs):
        owner: Any = {"mcp": lambda: Server("shop"), "ctx": context, "result": result}[found[1]]()
        return problem(lambda: getattr(owner, found[2]))
    if found := re.fullmatch(r"(FastMCP|tool|mount)\((\w+)=\.\.\.\)", theirs):
        make: Any = {"FastMCP": Server, "tool": Server("shop").tool, "mount": Server("shop").mount}[found[1]]
        return problem(lambda: make(**{found[2]: 1}))
    raise AssertionError(f"a row has another form: {theirs}")


@pytest.mark.parametrize(("page", "theirs", "here"), ROWS, ids=[f"{page}: {theirs}" for page, theirs, _ in ROWS])
def test_a_row_says_what_the_error_says(page: str, theirs: str, here: str) -> None:
    error = error_for(theirs)
    if error is None:
        assert here.startswith("the same") or "linkspan." in here, "it works, which the page does not say"
        return
    assert not here.startswith("the same"), error
    for code in CODE.findall(here)[:1]:
        assert code in error
    if not CODE.findall(here):
        assert here.removeprefix("the ") in error


def test_every_known_name_is_on_a_page() -> None:
    text = "".join((DOCS / page).read_text() for page in PAGES)
    missing = [
        name
        for table in (AUTH, CONTEXT, KEYWORDS, PACKAGE, RESULT, SERVER)
        for name in table
        if not re.search(rf"\b{name}\b", text)
    ]
    assert missing == []


def test_what_is_recommended_exists() -> None:
    """Methods and keywords that the errors name are ours."""
    texts = [*SERVER.values(), *CONTEXT.values(), *PACKAGE.values(), *KEYWORDS.values(), *AUTH.values()]
    for owner, name in re.findall(r"(?<!')\b(server|ctx|client|linkspan)\.(?!py\b)(\w+)", " ".join(texts)):
        home: Any = {"server": Server, "ctx": Context, "client": linkspan.SyncClient, "linkspan": linkspan}[owner]
        assert hasattr(home, name), f"{owner}.{name}"


def test_what_works_the_same_works() -> None:
    server = Server("shop")

    @server.tool("renamed", description="Add.")
    def add(a: int, b: int, ctx: Context) -> int:
        ctx.report_progress(1, 2)
        return a + b

    @server.prompt("greeting")
    def greet(name: str) -> str:
        return f"Hello {name}"

    with linkspan.SyncClient(server) as client:
        [tool] = client.list_tools()
        assert (tool.name, tool.description) == ("renamed", "Add.")
        assert client.call_tool("renamed", {"a": 1, "b": 2}).text == "3"
        assert [prompt.name for prompt in client.list_prompts()] == ["greeting"]


def test_an_import_names_what_to_import() -> None:
    with pytest.raises(ImportError, match=r"linkspan has no 'FastMCP': use linkspan\.Server"):
        exec("from linkspan import FastMCP")
    assert not hasattr(linkspan, "nonsense")


def test_an_import_that_is_misspelt_names_what_is_near() -> None:
    with pytest.raises(ImportError, match=r"^linkspan has no 'Servr': did you mean 'Server'\?$"):
        exec("from linkspan import Servr")
    assert not hasattr(linkspan, "Servr")
    exec("from linkspan import serve")  # a module, though there is a name that is near


LAZY = [
    "linkspan",
    *(f"linkspan.{name}" for name in ["apps", "auth", "client", "engines", "openapi", "skills", "stores", "testing"]),
]
"""The packages whose names are loaded when they are first used."""


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_package_has_its_names_and_says_which_is_near(package: str) -> None:
    module = import_module(package)
    names = dir(module)
    assert names == sorted(module.__all__)
    if package != "linkspan.engines":  # each of these needs its engine
        assert [name for name in names if getattr(module, name) is None] == []
    with pytest.raises(ImportError, match=rf"^{package} has no '{names[0]}z': did you mean '{names[0]}'\?$"):
        exec(f"from {package} import {names[0]}z")
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'nonsense'$"):
        _ = module.nonsense


@pytest.mark.parametrize("package", ["linkspan", "linkspan.auth"])
@pytest.mark.parametrize("name", [*AUTH, "FastMCP"])
def test_a_name_of_anothers_authorization_raises_the_line_to_write(package: str, name: str) -> None:
    line = {**AUTH, **PACKAGE}[name]
    with pytest.raises(ImportError, match=rf"^{package} has no '{name}': (use )?{re.escape(line)}$"):
        exec(f"from {package} import {name}")


def test_presets_that_are_recommended_exist() -> None:
    for name in re.findall(r"\bProtected\.(\w+)", " ".join(AUTH.values())):
        assert hasattr(Protected, name), name
    assert not hasattr(linkspan.auth, "nonsense")


class JWTVerifier:
    """As FastMCP has it."""


class Own(JWTVerifier):
    """A verifier of an author who comes from there."""


class Duck:
    async def verify_token(self, token: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (JWTVerifier(), "use Protected(url, verify=Jwt(issuer, keys=public_key))"),
        (Own(), "use Protected(url, verify=Jwt(issuer, keys=public_key))"),
        (Duck(), "use Protected(url, verify=function)"),
        (lambda token: None, "use Protected(url, verify=function)"),
        ("hunter2", "use Protected(url, verify=ApiKeys({sha256_of_a_key: Grant(...)})) for keys that you hand out"),
        (b"hunter2", "use Protected(url, verify=ApiKeys({sha256_of_a_key: Grant(...)}))"),
        (Jwt("https://login.example.com"), "use Protected(url, verify=Jwt(...))"),
        (Introspection("https://login.example.com", "a", "hunter2"), "use Protected(url, verify=Introspection(...))"),
        (ApiKeys({}), "use Protected(url, verify=ApiKeys(...))"),
        (OAuth(client_secret="hunter2", client_id="a"), "use Client(url, auth=OAuth(...)), since it logs a client in"),
        (7, "use Protected(url, issuer=...)"),
    ],
)
def test_an_auth_of_a_server_that_is_none_raises_the_line_to_write(given: Any, line: str) -> None:
    with pytest.raises(TypeError) as problem:
        Server("shop", auth=given)
    text = str(problem.value)
    assert text.startswith("Server() takes a Protected or None for auth=")
    assert f"; {line}" in text
    assert "hunter2" not in text
    later = Server("shop")
    later.auth = given
    with pytest.raises(linkspan.LinkspanError, match=re.escape(instead_of_auth(given))):
        later.asgi()


def test_an_unknown_name_without_a_habit_is_only_unknown() -> None:
    assert problem(lambda: Server("shop").nonsense) == "Server has no 'nonsense'"  # type: ignore[attr-defined]
    assert problem(lambda: context().nonsense) == "Context has no 'nonsense'"  # type: ignore[attr-defined]
    assert not hasattr(Server("shop"), "nonsense")
