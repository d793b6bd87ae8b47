"""The official SDK at its fastest: the low-level server, no validation of its own."""

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(ctx, params):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    return types.ListToolsResult(tools=[types.Tool(name="add_async", input_schema=schema)])


async def call_tool(ctx, params):
    value = params.arguments["a"] + params.arguments["b"]
    text = types.TextContent(type="text", text=str(value))
    return types.CallToolResult(content=[text], structured_content={"result": value})


async def main():
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
