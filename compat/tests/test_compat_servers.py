"""Servers of the SDKs: what they list and answer, by flavour, against the SDKs that are installed and by their texts."""

import asyncio
import json
import threading

import pytest
from compat_kit import client_of, module, served

PROGRAM = '''
from __future__ import annotations
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union
from typing_extensions import TypedDict
from pydantic import BaseModel, Field

class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"

class Inner(BaseModel):
    """An inner model."""
    a: int = Field(ge=1, description="A number")
    b: Optional[str] = None

class Outer(BaseModel):
    inner: Inner
    more: list[Inner] = []
    names: dict[str, float] = Field(default_factory=dict)

@dataclass
class Point:
    x: int
    y: float = 0.5

class Row(TypedDict):
    name: str
    size: int

def plain(a, b=2):
    return a

def hints(a: int, b: float = 1.5, c: str | None = None, d: Literal["x", "y"] = "x", e: Level = Level.LOW) -> str:
    """Take hints.

    Longer text.

    Args:
        a: The first.
        b: The second,
            which goes on.

    Returns:
        A text.
    """
    return "x"

def nested(outer: Outer, point: Point, rows: list[Row], pair: tuple[int, str], anything: Any = None) -> Outer:
    return outer

def described(a: Annotated[int, Field(description="A", gt=0)], b: Annotated[str, "Only text"] = "x") -> dict[str, int]:
    return {"a": a}

def rows() -> list[Row]:
    return []

def point() -> Point:
    return Point(1)

def maybe(x: Union[int, float, None] = None) -> int | None:
    return None

def bare() -> dict:
    return {}

def listing() -> list:
    return []

def nothing() -> None: ...

def blob() -> bytes:
    return b"x"

async def waits(self_: str, json: str = "{}", copy: bool = False) -> bool:
    """Sphinx.

    :param json: A text
    :returns: whether
    """
    return True

FUNCTIONS = [plain, hints, nested, described, rows, point, maybe, bare, listing, nothing, blob, waits]
'''


def listed(make, decorate):
    program = module("program_of_tools", PROGRAM)
    server = make()
    for function in program.FUNCTIONS:
        decorate(server, function)
    return server


def as_json(tools):
    return {each.name: json.loads(each.model_dump_json(by_alias=True, exclude_none=True)) for each in tools}


def ours(server):
    with client_of(server) as client:
        return {each["name"]: each for each in client.request("tools/list")["tools"]}


def test_tools_of_mcp_2_are_equal_as_json_to_those_of_the_sdk():
    from mcp.server.mcpserver import MCPServer

    own = as_json(asyncio.run(listed(lambda: MCPServer("x"), lambda s, f: s.add_tool(f)).list_tools()))
    with served("mcp2"):
        from mcp.server.mcpserver import MCPServer as Ours

        here = ours(listed(lambda: Ours("x"), lambda s, f: s.add_tool(f)))
    assert here == own


def test_tools_of_fastmcp_4_are_equal_as_json_to_those_of_fastmcp():
    from fastmcp import Client, FastMCP

    async def ask(server):
        async with Client(server) as client:
            return await client.list_tools()

    own = as_json(asyncio.run(ask(listed(lambda: FastMCP("x"), lambda s, f: s.tool(f)))))
    with served("fastmcp4"):
        from fastmcp import FastMCP as Ours

        here = ours(listed(lambda: Ours("x"), lambda s, f: s.tool(f)))
    assert here == own


def test_results_and_errors_of_mcp_1(mcp1):
    from mcp.server.fastmcp import FastMCP
    from mcp.server.fastmcp.exceptions import ToolError

    server = FastMCP("x")

    @server.tool()
    def boom() -> str:
        raise ValueError("no")

    @server.tool()
    def refuse() -> str:
        raise ToolError("never")

    @server.tool()
    def items(names: list[str]) -> list[str]:
        return [*names, threading.current_thread().name]

    with client_of(server) as client:
        assert client.call_tool("boom").text == "Error executing tool boom: no"
        assert client.call_tool("refuse").text == "Error executing tool refuse: never"
        assert client.request("tools/call", {"name": "none"})["content"][0]["text"] == "Unknown tool: none"
        found = client.request("tools/call", {"name": "items", "arguments": {"names": '["a"]'}})
        assert [each["text"] for each in found["content"]] == found["structuredContent"]["result"]
        assert found["structuredContent"]["result"][0] == "a"


def test_errors_of_mcp_2_keep_the_text_of_a_crash(mcp2):
    from mcp import MCPError
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("x")

    @server.tool()
    def boom() -> str:
        raise ValueError("secret")

    @server.tool()
    def refuse() -> str:
        raise ToolError("never")

    @server.tool()
    def protocol() -> str:
        raise MCPError(-32005, "quota", {"a": 1})

    @server.tool()
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    from linkspan import ServerError

    with client_of(server) as client:
        assert client.call_tool("boom").text == "Error executing tool boom"
        assert client.call_tool("refuse").text == "Error executing tool refuse: never"
        assert client.call_tool("where").structured == {"result": False}
        with pytest.raises(ServerError) as caught:
            client.call_tool("protocol")
        assert (caught.value.code, caught.value.data) == (-32005, {"a": 1})


def test_arguments_prompts_and_resources_of_fastmcp(fast):
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError

    server = FastMCP("x", version="7")

    @server.tool(tags={"a"})
    async def add(a: int, ctx: Context, b: int = 1) -> int:
        await ctx.info("adding")
        return a + b

    @server.tool
    def fail() -> None:
        raise ToolError("never")

    @server.tool
    def boom() -> None:
        raise KeyError("no")

    @server.resource("data://{name}/x")
    def data(name: str) -> dict:
        return {"name": name}

    @server.prompt
    def ask(number: int) -> str:
        """Ask."""
        return f"{number + 1}"

    logs = []
    with client_of(server, on_log=lambda log: logs.append(log.data)) as client:
        assert client.server_info.version == "7"
        assert client.call_tool("add", {"a": "2"}).structured == {"result": 3}
        wrong = client.call_tool("add", {"a": "x"}).text
        assert wrong.startswith("1 validation error for call[add]\na\n  Input should be a valid integer")
        assert client.call_tool("fail").text == "never"
        assert client.call_tool("boom").text == "Error calling tool 'boom': 'no'"
        assert client.request("tools/call", {"name": "none"})["content"][0]["text"] == "Unknown tool: 'none'"
        assert client.get_prompt("ask", {"number": "4"}).messages[0].content.text == "5"
        if fast == "fastmcp4":
            assert client.read_resource("data://q/x").contents[0].text == '{"name": "q"}'
            assert {each.title for each in client.list_tools()} == {"Add", "Fail", "Boom"}
    assert logs == [{"msg": "adding", "extra": None}]


def test_switches_mounts_middleware_and_dependencies_of_fastmcp(fast):
    from fastmcp import FastMCP
    from fastmcp.dependencies import Depends
    from fastmcp.server.middleware import Middleware

    child, server, seen = FastMCP("child"), FastMCP("x"), []

    @child.tool
    def inner() -> str:
        return "in"

    @child.resource("data://{name}")
    def data(name: str) -> str:
        return name

    class Watch(Middleware):
        async def on_call_tool(self, context, call_next):
            seen.append(context.message.name)
            return await call_next(context)

        async def on_list_tools(self, context, call_next):
            return [each for each in await call_next(context) if each.name != "hidden"]

    async def opened():
        seen.append("open")
        yield 5
        seen.append("close")

    @server.tool(tags={"secret"})
    def secret() -> str:
        return "s"

    @server.tool
    def hidden() -> str:
        return "h"

    @server.tool
    def uses(value: int = Depends(opened)) -> int:
        return value

    server.mount(child, "sub")
    server.add_middleware(Watch())
    server.disable(tags={"secret"})
    with client_of(server) as client:
        assert [each["name"] for each in client.request("tools/list")["tools"]] == ["uses", "sub_inner"]
        assert client.call_tool("uses").structured == {"result": 5}
        assert client.call_tool("sub_inner").text == "in"
        assert client.request("tools/call", {"name": "secret"})["isError"]
        assert client.read_resource("data://sub/q").contents[0].text == "q"
    assert seen == ["uses", "open", "close", "sub_inner", "secret"]


LOWLEVEL = {
    "mcp1": """
from mcp.server.lowlevel import Server
from mcp.types import TextContent, Tool
server = Server("low", "3")

@server.list_tools()
async def tools():
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return [Tool(name="echo", inputSchema=schema)]

@server.call_tool()
async def call(name, arguments):
    if arguments["text"] == "boom":
        raise ValueError("boom")
    assert server.request_context.request_id
    return [TextContent(type="text", text=arguments["text"])]
""",
    "mcp2": """
from mcp.server.lowlevel import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

async def tools(ctx, params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return ListToolsResult(tools=[Tool(name="echo", input_schema=schema)])

async def call(ctx, params):
    assert ctx.request_id
    return CallToolResult(content=[TextContent(text=params.arguments["text"])], _meta={"a": 1})

server = Server("low", version="3", on_list_tools=tools, on_call_tool=call)
""",
}


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
def test_the_lowlevel_server_answers_whole_methods(flavour):
    with served(flavour):
        program = module("lowlevel_program", LOWLEVEL[flavour])
        with client_of(program.server) as client:
            assert [each.name for each in client.list_tools()] == ["echo"]
            assert client.call_tool("echo", {"text": "hi"}).text == "hi"
            if flavour == "mcp2":
                assert client.call_tool("echo", {"text": "hi"}).meta == {"a": 1}
                return
            missing = client.request("tools/call", {"name": "echo", "arguments": {}})
            assert missing["content"][0]["text"] == "Input validation error: 'text' is a required property"
            assert client.call_tool("echo", {"text": "boom"}).text == "boom"


def test_private_parts_that_programs_use(mcp1):
    from mcp.server.fastmcp import FastMCP
    from mcp.types import ListToolsRequest

    server = FastMCP("x")

    @server.tool()
    def add(a: int, b: int = 1) -> int:
        return a + b

    model = server._tool_manager.get_tool("add").fn_metadata.arg_model
    assert model.model_validate({"a": "2"}).model_dump_one_level() == {"a": 2, "b": 1}
    server._mcp_server.version = "9"
    handler = server._mcp_server.request_handlers[ListToolsRequest]
    assert asyncio.run(handler(None)).root.tools[0].name == "add"
    with client_of(server) as client:
        assert client.server_info.version == "9"


def test_the_lifespan_is_that_of_the_author(mcp1):
    from contextlib import asynccontextmanager

    from mcp.server.fastmcp import Context, FastMCP

    events = []

    @asynccontextmanager
    async def life(server):
        events.append(server.name)
        yield {"db": 1}
        events.append("closed")

    server = FastMCP("x", lifespan=life)

    @server.tool()
    def read(ctx: Context) -> int:
        return ctx.request_context.lifespan_context["db"]

    with client_of(server) as client:
        assert client.call_tool("read").structured == {"result": 1}
    assert events == ["x", "closed"]


def test_schemas_are_checked_in_the_words_of_the_sdk():
    import jsonschema

    from linkspan_compat.server.checking import _problems

    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1},
            "b": {"enum": ["x", "y"]},
            "c": {"type": "array", "items": {"type": "string", "minLength": 2}, "maxItems": 2},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    values = [
        {},
        {"a": "x"},
        {"a": 0},
        {"a": 1, "b": "z"},
        {"a": 1, "c": ["x"]},
        {"a": 1, "c": ["xx"] * 3},
        {"a": 1, "d": 2},
        {"a": 1, "e": 2},
    ]
    for value in values:
        own = next(jsonschema.Draft202012Validator(schema).iter_errors(value)).message
        assert next(_problems(value, schema, schema)) == own, value


def test_a_context_reaches_prompts_and_templates_and_a_field_may_have_the_default(mcp1):
    from typing import Annotated

    from mcp.server.fastmcp import Context, FastMCP
    from pydantic import Field

    server = FastMCP("x")

    @server.resource("data://{name}")
    def data(name: str, ctx: Context) -> str:
        return f"{name} {ctx.request_id != ''}"

    @server.prompt()
    def ask(text: str, ctx: Context) -> str:
        return f"{text} {ctx.request_id != ''}"

    @server.tool()
    def add(a: Annotated[int, Field(default=4)], b: int) -> int:
        return a + b

    with client_of(server) as client:
        assert client.read_resource("data://q").contents[0].text == "q True"
        assert client.get_prompt("ask", {"text": "t"}).messages[0].content.text == "t True"
        assert client.call_tool("add", {"b": 1}).structured == {"result": 5}


def test_a_template_of_mcp_2_may_leave_its_query_out(mcp2):
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("x")

    @server.resource("books://{isbn}{?limit,sort}")
    def book(isbn: str, limit: int = 10, sort: str = "new") -> str:
        return f"{isbn} {limit} {sort}"

    with client_of(server) as client:
        assert client.read_resource("books://7").contents[0].text == "7 10 new"
        assert client.read_resource("books://7?limit=2&other=1").contents[0].text == "7 2 new"


@pytest.mark.parametrize(("mode", "era"), [("auto", "modern"), ("legacy", "legacy")])
def test_the_client_of_mcp_2_needs_no_handshake(mcp2, mode, era):
    import asyncio

    from mcp import Client
    from mcp.server.mcpserver import MCPServer
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

    async def agreed():
        async with Client(MCPServer("x"), mode=mode) as client:
            return client.protocol_version

    assert asyncio.run(agreed()) == (LATEST_MODERN_VERSION if era == "modern" else HANDSHAKE_PROTOCOL_VERSIONS[-1])
    with pytest.raises(ValueError, match="mode must be 'auto', 'legacy' or one of"):
        Client(MCPServer("x"), mode="newest")


def test_a_function_keeps_the_name_that_a_module_has_too(fast):
    import fastmcp.prompts.prompt
    from fastmcp.prompts import prompt

    assert callable(prompt)
    assert fastmcp.prompts.prompt is prompt


def test_a_tool_may_bring_its_models(mcp1):
    from mcp.server.fastmcp import FastMCP
    from mcp.server.fastmcp.tools import Tool
    from mcp.server.fastmcp.utilities.func_metadata import ArgModelBase, FuncMetadata
    from pydantic import create_model

    async def add(**given):
        return given["a"] + given["b"]

    model = create_model("Args", a=(int, ...), b=(int, 2), __base__=ArgModelBase)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = Tool(
        fn=add,
        name="add",
        description="Add.",
        parameters=schema,
        fn_metadata=FuncMetadata(arg_model=model),
        is_async=True,
    )
    with client_of(FastMCP("x", tools=[tool])) as client:
        assert client.list_tools()[0].input_schema == schema
        assert client.call_tool("add", {"a": 1}).text == "3"


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
def test_log_messages_reach_a_client_that_set_no_level(flavour):
    with served(flavour):
        if flavour == "mcp1":
            from mcp.server.fastmcp import Context, FastMCP
        else:
            from mcp.server.mcpserver import Context
            from mcp.server.mcpserver import MCPServer as FastMCP
        code = """
async def talk(ctx: Context) -> str:
    await ctx.info("first")
    await ctx.session.send_log_message("error", {"n": 2}, "mine")
    return "done"
"""
        program = {"Context": Context}
        exec(code, program)
        server, logs = FastMCP("x"), []
        server.add_tool(program["talk"])
        with client_of(server, on_log=logs.append) as client:
            assert client.call_tool("talk").text == "done"
        assert [(each.level, each.data, each.logger) for each in logs] == [
            ("info", "first", None),
            ("error", {"n": 2}, "mine"),
        ]


def test_files_of_mcp_2_are_texts_where_their_type_says_so(mcp2, tmp_path):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.resources import FileResource

    server = MCPServer("x")
    files = {
        "a.json": ("application/json", {}, b"\xef\xbb\xbf{}"),
        "b.txt": ("text/plain; charset=latin-1", {}, b"na\xefve"),
        "c.bin": ("application/octet-stream", {}, b"\x00"),
        "d.csv": ("text/csv", {"encoding": None}, b"1,2"),
    }
    for name, (mime_type, more, content) in files.items():
        (tmp_path / name).write_bytes(content)
        path = tmp_path / name
        server.add_resource(FileResource(uri=f"file:///{name}", name=name, path=path, mime_type=mime_type, **more))
    with client_of(server) as client:
        read = [client.read_resource(f"file:///{name}").contents[0] for name in files]
    assert [getattr(each, "text", None) for each in read] == ["{}", "naïve", None, None]
    assert [getattr(each, "blob", None) for each in read] == [None, None, "AA==", "MSwy"]
    with pytest.raises(ValueError, match="unknown encoding"):
        FileResource(uri="file:///a", name="a", path=tmp_path / "a", encoding="nonsense")


def test_values_of_fastmcp_compare_and_convert_as_there(fast):
    from fastmcp.prompts import Message
    from fastmcp.resources import ResourceContent

    assert Message("a") == Message("a")
    assert Message("a") != Message("a", role="assistant")
    assert Message("a") != "a"
    assert "text='a'" in repr(Message("a"))
    assert ResourceContent("a").to_mcp_resource_contents("x://y").text == "a"
    assert ResourceContent(b"a").to_mcp_resource_contents("x://y").blob == "YQ=="
