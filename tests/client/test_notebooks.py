"""What notebooks and REPLs use: tools as functions, completion, displays, `await` at the top level, reprs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import linkspan
import linkspan.auth
import linkspan.testing
from linkspan import Client, Server, SyncClient, ToolError
from linkspan.flows.client_errors import ServerOrigin
from linkspan.flows.tool_results import ToolResult, read_head
from linkspan.types.base import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from linkspan.types.display import html, markdown
from linkspan.types.messages import GetPromptResult, Prompt, PromptArgument, PromptMessage, ReadResourceResult, Resource

EVIL = "<script>alert(1)</script>"
DICE = str(Path(__file__).parents[2] / "examples" / "dice.py")


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    def add(a: int, b: int = 2, how: Literal["fast", "slow"] = "fast", tags: list[str] | None = None) -> int:
        """Add numbers."""
        return a + b

    @server.tool(name="get-rows")
    def rows() -> list[dict[str, str]]:
        return [{"a": EVIL, "b": "x|y"}, {"a": "2"}]

    schema = {"type": "object", "properties": {"from": {"type": "integer"}, "x": True}}
    server.define_tool(name="class", input_schema=schema, handler=lambda **given: str(given))

    @server.tool
    def fails() -> str:
        raise ToolError(EVIL)

    return server


# Tools as functions.


def test_tools_of_a_sync_client_are_functions_with_completion_and_signatures() -> None:
    with SyncClient(calculator()) as client:
        assert dir(client.tools) == ["add", "class_", "fails", "get_rows"]
        add = client.tools.add
        assert (add(a=1).structured, add(a=1, b=4).structured) == ({"result": 3}, {"result": 5})
        assert str(inspect.signature(add)) == "(*, a: int, b: int = 2, how: str = 'fast', tags: list = None)"
        assert (add.__doc__, add.__name__) == ("Add numbers.", "add")
        assert repr(client.tools.get_rows) == "<tool get-rows() of calculator>"
        assert client.tools["get-rows"]().structured == client.tools.get_rows().structured
        assert str(inspect.signature(client.tools.class_)) == "(*, x: Any = None, **arguments)"
        assert client.tools.class_(**{"from": 1}).text == "{'from': 1}"
        assert repr(client.tools) == "<tools of calculator: add, get-rows, class, fails>"
        assert "Add numbers." in str(client.tools._repr_html_())
        with pytest.raises(AttributeError, match=r"calculator has no tool 'ad'; did you mean 'add'\?"):
            client.tools.ad  # noqa: B018
        with pytest.raises(KeyError, match="has no tool 'ad'"):
            client.tools["ad"]
        with pytest.raises(AttributeError):
            client.tools._repr_png_  # noqa: B018


def test_tools_of_an_async_client_need_no_list_and_have_signatures_after_one() -> None:
    async def work() -> None:
        async with Client(calculator()) as client:
            assert (repr(client.tools), dir(client.tools)) == ("<tools of calculator: none listed yet>", [])
            assert str(inspect.signature(client.tools.add)) == "(**arguments)"
            assert (await client.tools.add(a=1)).structured == {"result": 3}
            tools = await client.tools
            assert "get_rows" in dir(tools)
            assert "a: int" in str(inspect.signature(client.tools.add))
            with pytest.raises(AttributeError, match="did you mean 'add'"):
                tools.ad  # noqa: B018

    asyncio.run(work())


def test_a_tool_that_is_added_later_is_found() -> None:
    server = calculator()
    with SyncClient(server) as client:
        assert "later" not in dir(client.tools)

        @server.tool
        def later() -> str:
            return "here"

        assert client.tools.later().text == "here"


CELLS = [
    "client = Client(target)",
    "tools = await client.tools",
    "first = await tools.add(a=1) if 'add' in dir(tools) else await tools.roll(sides=1)",
    "listed, again = await asyncio.gather(client.list_tools(), client.tools[listed_name](**arguments))",
    "sync = SyncClient(target)\nfound = sync.call_tool(listed_name, arguments)\nsync.close()",
    "await client.close()",
]


@pytest.mark.parametrize(
    ("target", "name", "arguments"),
    [(calculator(), "add", {"a": 1}), (DICE, "roll", {"sides": 1})],
    ids=["memory", "stdio"],
)
def test_await_works_at_the_top_level_of_cells(target: Any, name: str, arguments: dict[str, Any]) -> None:
    """As in Jupyter: one loop runs, and each cell is a coroutine of its own."""
    names: dict[str, Any] = {
        "Client": Client,
        "SyncClient": SyncClient,
        "asyncio": asyncio,
        "target": target,
        "listed_name": name,
        "arguments": arguments,
    }

    async def run_cells() -> None:
        for cell in CELLS:
            code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            found = eval(code, names)
            if inspect.isawaitable(found):
                await asyncio.create_task(found)  # type: ignore[arg-type]

    asyncio.run(run_cells())
    assert names["first"].structured == names["again"].structured == names["found"].structured


# Displays.


def result(**members: Any) -> ToolResult:
    import msgspec

    raw = msgspec.json.encode(members)
    return ToolResult(read_head(raw), raw, ServerOrigin("server"), "tool")


PIXEL = "iVBORw0KGgo="
TEXT = {"type": "text", "text": EVIL}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (result(content=[TEXT]), "&lt;script&gt;"),
        (result(content=[TEXT], isError=True), "The tool failed:"),
        (result(content=[{"type": "text", "text": "[1]"}], structuredContent={"result": [1]}), "<pre"),
        (result(content=[], structuredContent={"a": {"b": EVIL}}), "{&quot;b&quot;: &quot;&lt;script"),
        (
            result(content=[{"type": "image", "data": PIXEL, "mimeType": "image/png"}]),
            f'"data:image/png;base64,{PIXEL}"',
        ),
        (ImageContent('"><script>', "image/png"), "[image: image/png"),
        (ImageContent(PIXEL, 'image/png" onload="alert(1)'), "[image: image/png&quot; onload"),
        (ImageContent(PIXEL, "image/svg+xml"), "[image: image/svg+xml"),
        (AudioContent("AAAA", "audio/wav"), "<audio controls"),
        (AudioContent("AAAA", "text/html"), "[audio: text/html"),
        (ResourceLink("javascript:alert(1)", EVIL), "&lt;script&gt;"),
        (EmbeddedResource(TextResourceContents("a://b", EVIL)), "&lt;script&gt;"),
        (ReadResourceResult(contents=[BlobResourceContents(EVIL, PIXEL, "image/png")]), "<img"),
        (GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(EVIL))]), "user:"),
        (Prompt(name=EVIL, arguments=[PromptArgument(name=EVIL, required=True)]), "required"),
        (Resource(uri=EVIL, name="x", description=EVIL), "&lt;script&gt;"),
    ],
)
def test_what_a_server_sends_is_shown_and_escaped(value: Any, shown: str) -> None:
    found = value._repr_html_()
    assert shown in found
    assert "<script" not in found
    assert "href" not in found
    text = value._repr_markdown_()
    outside = "".join(text.split("```")[::2])
    assert "<script" not in outside


def test_structured_content_is_shown_once_and_as_a_table() -> None:
    with SyncClient(calculator()) as client:
        rows = client.tools.get_rows()
        assert str(rows._repr_html_()).count("x|y") == 1
        assert rows._repr_markdown_() == "| a | b |\n|---|---|\n" + (
            "| &lt;script&gt;alert\\(1\\)&lt;/script&gt; | x\\|y |\n| 2 |  |"
        )
        assert client.tools.add(a=1)._repr_markdown_() == "```text\n3\n```"


def test_marks_in_a_table_are_shown_as_they_are() -> None:
    rows = result(content=[], structuredContent={"result": [{"price": "it's $5 & #1"}]})
    assert str(rows._repr_markdown_()).splitlines()[-1] == "| it&#x27;s \\$5 &amp; \\#1 |"
    assert '<table class="tex2jax_ignore mathjax_ignore">' in str(rows._repr_html_())


def test_white_space_in_place_of_a_picture_takes_no_time() -> None:
    began = time.process_time()
    assert ImageContent(" " * 1_000_000 + "!", "image/png")._repr_html_().startswith("<pre")
    assert "base64,AAAA" in ImageContent(" AA\nAA ", "image/png")._repr_html_()
    assert time.process_time() - began < 10.0  # a pattern that goes back for each space takes hours


def test_a_long_table_is_cut_and_a_fence_cannot_be_closed_from_within() -> None:
    rows = result(content=[], structuredContent={"result": [{"n": each} for each in range(150)]})
    assert "and 50 more rows" in str(rows._repr_html_())
    assert markdown(TextContent("```\n# out")) == "````text\n```\n# out\n````"
    assert html(object()) is None
    assert TextContent("x")._repr_html_() == '<pre style="white-space:pre-wrap">x</pre>'


def test_notebooks_cost_nothing_until_they_are_used() -> None:
    code = "import sys; from linkspan import SyncClient, Server; c = SyncClient(Server('s')); c.list_tools(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"linkspan.types.display", "linkspan.client.tool_functions", "inspect"} & set(loaded)


def test_ipython_shows_and_completes() -> None:
    pytest.importorskip("IPython", reason="needs IPython")
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        with SyncClient(calculator()) as client:
            shell.user_ns["client"] = client
            with provisionalcompleter():
                found = [each.text for each in shell.Completer.completions("client.tools.ge", 15)]
            assert any(each.endswith("get_rows") for each in found)
            shown, _ = shell.display_formatter.format(client.tools.get_rows())
            assert {"text/html", "text/markdown", "text/plain"} <= set(shown)
            shown, _ = shell.display_formatter.format(client.server_info)
            assert set(shown) == {"text/plain"}
    finally:
        InteractiveShell.clear_instance()


CELL = """
import sys
from linkspan import Server, SyncClient
{prompt}
server = Server("draft")
passed = []

for text in ("first", "second"):
    @server.tool
    def shout() -> str:
        return text

    @server.resource("note://{{name}}")
    def note(name: str) -> str:
        return text

    @server.resource("note://all")
    def notes() -> str:
        return text

    @server.prompt
    def greet() -> str:
        return text

    @server.middleware(only=["tools/call"])
    def count(call):
        passed.append(1)

    server.define_custom_method("acme/text", lambda: text)

with SyncClient(server) as client:
    print([tool.name for tool in client.list_tools()], client.call_tool("shout").text, len(passed))
    print(client.read_resource("note://x").contents[0].text, client.request("acme/text"))
"""


def test_a_cell_may_run_again() -> None:
    cell = CELL.format(prompt="sys.ps1 = 'In: '")
    done = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['shout'] second 1", "second second"]


def test_a_name_that_is_taken_is_refused_outside_notebooks() -> None:
    done = subprocess.run([sys.executable, "-c", CELL.format(prompt="")], capture_output=True, text=True, timeout=60)
    assert "There is already a tool 'shout'" in done.stderr


# What a repr names.

NEVER_MADE = {"Content", "Prompt", "Tool"}
"""Classes that are used themselves, without an object of them."""


def test_every_public_object_has_a_repr_that_names_what_it_is() -> None:
    found = {
        name: value
        for module in (linkspan, linkspan.auth, linkspan.testing)
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name)) and not issubclass(value, BaseException)
    }
    assert len(found) > 50
    bare = {name for name, value in found.items() if value.__repr__ is object.__repr__}
    assert bare == NEVER_MADE


def test_reprs_name_the_state_and_no_contents(tmp_path: Path) -> None:
    server = calculator()
    policies = (
        linkspan.RateLimit(5, per=60),
        linkspan.ResultLimit(bytes=9),
        linkspan.Audit(),
        linkspan.ErrorMap({KeyError: "?"}),
    )
    stopper = linkspan.Stopper()
    host = linkspan.Host({"dice": server})
    shown = [
        repr(server),
        repr(Server("empty", version="2")),
        *map(repr, policies),
        repr(stopper),
        repr(linkspan.Image(b"\x89PNG\r\n\x1a\n")),
        repr(linkspan.File("secret", name="a.txt")),
        repr(linkspan.Resource("a://b", text="secret")),
        repr(linkspan.ToolResponse("hi", is_error=True)),
        repr(host),
        repr(linkspan.StdioTransport(server)),
        repr(SyncClient(server)),
    ]
    stopper.stop("enough")
    assert shown == [
        "<Server calculator 0.1.0: 4 tools>",
        "<Server empty 2: nothing registered>",
        "<RateLimit: at most 5 calls in 60 s>",
        "<ResultLimit: 9 bytes>",
        "<Audit to the logger linkspan.audit>",
        "<ErrorMap of KeyError>",
        "<Stopper: not stopped>",
        "<Image of image/png: 8 bytes>",
        "<File of text/plain: 6 bytes>",
        "<Resource a://b>",
        "ToolResponse(is_error=True, [TextContent(text='hi', annotations=None, meta=None)])",
        "<Host of dice: 0 tools>",
        f"<StdioTransport of {server!r}>",
        "<SyncClient of calculator: not connected>",
    ]
    assert repr(stopper) == "<Stopper: enough>"
