"""The transport of 2024, driven by a program: `SseServerTransport` in its routes, and `sse_client`."""

import asyncio

import pytest

from over_http import serving

starlette = pytest.importorskip("starlette")


def program(flavour):
    """Return an application as the examples of the SDK have it."""
    from mcp.server.lowlevel import Server
    from mcp.server.sse import SseServerTransport
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    if flavour == "mcp1":
        server = Server("echo")

        @server.list_tools()
        async def list_tools():
            return [Tool(name="echo", inputSchema=schema)]

        @server.call_tool()
        async def call_tool(name, arguments):
            await server.request_context.session.send_log_message("info", "called")
            return [TextContent(type="text", text=arguments["text"])]

    else:

        async def list_tools(ctx, params):
            return ListToolsResult(tools=[Tool(name="echo", input_schema=schema)])

        async def call_tool(ctx, params):
            await ctx.session.send_log_message("info", "called")
            return CallToolResult(content=[TextContent(type="text", text=params.arguments["text"])])

        server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    sse = SseServerTransport("/messages/")

    async def handle_sse(request):
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(streams[0], streams[1], server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", handle_sse), Mount("/messages/", app=sse.handle_post_message)])


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
def test_two_clients_use_a_server_that_a_program_drives(flavour, request):
    request.getfixturevalue(flavour)
    from mcp import ClientSession
    from mcp.client.sse import sse_client

    async def use(url, text):
        said = []

        async def log(params):
            said.append(params.data)

        async with sse_client(url) as streams, ClientSession(*streams, logging_callback=log) as session:
            await session.initialize()
            assert [each.name for each in (await session.list_tools()).tools] == ["echo"]
            result = await session.call_tool("echo", {"text": text})
        return result.content[0].text, said

    async def both(url):
        return await asyncio.gather(use(url, "a"), use(url, "b"))

    with serving(program(flavour)) as url:
        assert asyncio.run(both(url.removesuffix("/mcp") + "/sse")) == [("a", ["called"]), ("b", ["called"])]


def test_the_client_of_fastmcp_sees_the_transport_by_the_url(fast):
    from fastmcp import Client, FastMCP
    from fastmcp.client.transports import SSETransport, StreamableHttpTransport

    server = FastMCP("x")

    @server.tool
    def double(number: int) -> int:
        return 2 * number

    async def use(url):
        async with Client(url, auth="a-token") as client:
            assert isinstance(client.transport, SSETransport)
            return (await client.call_tool("double", {"number": 2})).data

    assert type(Client("http://a.example/mcp").transport) is StreamableHttpTransport
    with serving(server.http_app(transport="sse")) as url:
        assert asyncio.run(use(url.removesuffix("/mcp") + "/sse")) == 4


def test_an_address_of_another_origin_is_refused(mcp1):
    import httpx

    from linkspan_compat.client.sse import SseChannel

    async def program(data):
        response = httpx.Response(200, content=f"event: endpoint\r\ndata: {data}\r\n\r\n".encode())
        await SseChannel(None, response).open("http://a.example/sse")

    asyncio.run(program("/messages?id=1"))
    for data in ("http://b.example/messages", "https://a.example/messages"):
        with pytest.raises(ValueError, match="of its own"):
            asyncio.run(program(data))


@pytest.mark.parametrize("prefix", ["", "/tools"])
def test_the_stream_of_2024_is_at_the_root_where_a_program_says_so(fast, prefix):
    import fastmcp
    from starlette.applications import Starlette
    from starlette.routing import Mount

    server = fastmcp.FastMCP("x")

    @server.tool
    def one() -> int:
        return 1

    app = server.http_app(path="/", transport="sse")
    if prefix:
        app = Starlette(routes=[Mount(prefix, app=app)], lifespan=app.lifespan)

    async def run(url):
        transport = fastmcp.client.transports.SSETransport(url)
        async with fastmcp.Client(transport) as client:
            return (await client.call_tool("one")).data

    with serving(app) as url:
        assert asyncio.run(run(f"{url.removesuffix('/mcp')}{prefix}/")) == 1
