"""Servers of FastMCP that ask another one for everything."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from compat_kit import client_of, module

from linkspan import Server as LinkspanServer
from linkspan import ServerError
from linkspan.types.messages import CreateMessageResult, ElicitResult, TextContent
from linkspan_compat.errors import MCPError
from over_http import serving

BACKEND = """
import os
from fastmcp import Context, FastMCP
server = FastMCP("back", version="9")

@server.tool(tags={"math"}, annotations={"readOnlyHint": True})
def add(a: int, b: int = 1) -> int:
    "Add."
    return a + b

@server.tool
def fail() -> str:
    raise ValueError("no way")

@server.tool
def process() -> int:
    return os.getpid()

@server.tool
async def ask(ctx: Context) -> list[str]:
    await ctx.info("before")
    await ctx.report_progress(1, 2, "half")
    answer = await ctx.elicit("name?", str)
    model = await ctx.sample("write")
    return [answer.action, str(answer.data), str(model)]

@server.resource("data://one")
def one() -> str:
    return "1"

@server.resource("data://{name}/text", mime_type="text/markdown")
def text(name: str) -> str:
    return f"# {name}"

@server.resource("data://bytes", mime_type="image/png")
def blob() -> bytes:
    return b"\\x89PNG"

@server.prompt
def greet(name: str) -> str:
    return f"Hello {name}"

if __name__ == "__main__":
    server.run(show_banner=False)
"""
PROXY = "from fastmcp import Client, FastMCP\nfrom fastmcp.server import create_proxy\n"


@pytest.fixture
def backend(tmp_path: Path, fast: str):
    path = tmp_path / "backend.py"
    path.write_text(BACKEND)
    return [sys.executable, "-m", "linkspan", "run", str(path), "--as", fast]


def proxy_of(backend: list[str], code: str = "create_proxy({'mcpServers': {'back': COMMAND}}, name='front')"):
    entry = {"command": backend[0], "args": backend[1:]}
    return module("proxy_program", f"{PROXY}COMMAND = {entry!r}\nserver = {code}").server


def shown(found):
    return sorted((each.name, each.description) for each in found)


def test_a_proxy_offers_what_the_process_of_a_configuration_offers(backend):
    direct = module("backend_program", BACKEND).server
    with client_of(direct) as there, client_of(proxy_of(backend)) as here:
        assert here.list_tools() == there.list_tools()
        assert shown(here.list_resources()) == shown(there.list_resources())
        assert here.list_resource_templates() == there.list_resource_templates()
        assert [each.name for each in here.list_prompts()] == ["greet"]
        assert here.call_tool("add", {"a": 2}).structured == {"result": 3}
        assert here.read_resource("data://one").contents[0].text == "1"
        assert here.read_resource("data://bytes").contents == there.read_resource("data://bytes").contents
        assert here.read_resource("data://x%20y/text").contents[0].text == "# x y"
        assert here.get_prompt("greet", {"name": "Bo"}).messages == there.get_prompt("greet", {"name": "Bo"}).messages
        assert here.call_tool("nothing").is_error
        with pytest.raises(ServerError):
            here.read_resource("data://nothing")


def test_the_failure_of_a_tool_comes_through_with_its_text(backend):
    with client_of(proxy_of(backend)) as here:
        found = here.call_tool("fail")
    assert (found.is_error, found.text) == (True, "Error calling tool 'fail': no way")


def test_one_process_serves_all_requests_and_ends_with_the_proxy(backend):
    with client_of(proxy_of(backend)) as here:
        number = here.call_tool("process").structured["result"]
        assert here.call_tool("process").structured["result"] == number


def test_what_the_server_behind_asks_and_tells_goes_to_the_caller(backend):
    heard: list[object] = []
    with client_of(
        proxy_of(backend),
        elicitation=lambda params: ElicitResult("accept", {"value": params.message}),
        sampling=lambda params: CreateMessageResult("assistant", TextContent("words"), "m"),
        on_log=lambda params: heard.append(params.data),
    ) as here:
        found = here.call_tool("ask", on_progress=lambda each: heard.append(each.message))
    assert found.structured == {"result": ["accept", "name?", "words"]}
    assert "half" in heard
    assert {"msg": "before", "extra": None} in heard


def test_a_proxy_is_mounted_and_has_tools_of_its_own(backend):
    server = proxy_of(backend)
    server.tool(lambda: "own", name="own")
    outer = module("outer_program", "from fastmcp import FastMCP\nserver = FastMCP('outer')").server
    outer.mount(server, "back")
    with client_of(outer) as here:
        assert {"back_add", "back_own"} <= {each.name for each in here.list_tools()}
        assert here.call_tool("back_add", {"a": 1}).structured == {"result": 2}
        assert here.call_tool("back_own").text == "own"
        assert here.read_resource("data://back/one").contents[0].text == "1"
        assert here.read_resource("data://back/z/text").contents[0].text == "# z"


def test_a_server_of_another_kind_and_a_client_are_targets(fast):
    behind = LinkspanServer("plain")

    @behind.tool
    def twice(number: int) -> int:
        return number * 2

    made = module("targets", PROXY)
    for server in (made.create_proxy(behind), made.create_proxy(made.Client(behind)), made.FastMCP.as_proxy(behind)):
        with client_of(server) as here:
            assert [each.name for each in here.list_tools()] == ["twice"]
            assert here.list_prompts() == []
            assert here.call_tool("twice", {"number": 4}).structured["result"] == 8


def test_a_url_is_a_target(fast):
    behind = LinkspanServer("web")
    behind.tool(lambda: "over HTTP", name="say")
    with serving(behind.asgi()) as url, client_of(module("web", PROXY).create_proxy(url)) as here:
        assert here.call_tool("say").text == "over HTTP"


def test_a_client_of_several_servers_has_them_under_their_names(backend):
    entry = {"command": backend[0], "args": backend[1:]}
    made = module("several", PROXY)

    async def use():
        async with made.Client({"mcpServers": {"a": entry, "b": entry}}) as client:
            names = {each.name for each in await client.list_tools()}
            found = await client.call_tool("b_add", {"a": 1, "b": 1})
            return names, found.data

    names, data = asyncio.run(use())
    assert {"a_add", "b_add"} <= names
    assert data == 2


def caller(session=None, headers=None):
    return SimpleNamespace(request_context=SimpleNamespace(session_id=session, headers=headers))


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        (("a", {"x": "y"}), ("a", {"x": "y"}), True),
        (("a", {"x": "y"}), ("b", {"x": "y"}), False),
        ((None, {"x": "y"}), (None, {"x": "y"}), False),
        ((None, None), (None, None), True),
    ],
)
def test_no_caller_is_asked_for_another(fast, first, second, is_told):
    made = module("callers", "from fastmcp.server.proxy import ProxyClient")
    client = made.ProxyClient("http://127.0.0.1:9/mcp")

    async def use():
        one, two = caller(*first), caller(*second)
        async with client.serving(one), client.serving(two):
            return client._caller() is two.request_context

    if is_told:
        assert asyncio.run(use())
    else:
        with pytest.raises(MCPError, match="which of its callers"):
            asyncio.run(use())
