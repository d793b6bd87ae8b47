"""One server, written for the official SDK or for FastMCP: `python python_server.py mcp|fastmcp [PORT]`. Both offer the same.

With a port it is served over HTTP, at /mcp.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated, Any

import mcp_types as types
from pydantic import BaseModel

KIND = sys.argv[1]
MODERN = "2026-07-28"
if KIND == "mcp":
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample

    server: Any = MCPServer("peer", version="1.0.0", instructions="Be kind.")
else:
    from fastmcp import Context, FastMCP

    server = FastMCP("peer", version="1.0.0", instructions="Be kind.")


class Forecast(BaseModel):
    city: str
    degrees: float


class Seats(BaseModel):
    seats: int = 1
    window: bool = True


cancelled: list[str] = []


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def forecast(city: str) -> Forecast:
    """Tell the weather."""
    return Forecast(city=city, degrees=21.5)


@server.tool()
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("kaboom")


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and tell of it."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    return "counted"


@server.tool()
async def wait(ctx: Context) -> str:
    """Wait for ever, unless it is cancelled."""
    try:
        await ctx.report_progress(1, 2)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return ""


@server.tool()
def times_cancelled() -> int:
    """Tell how many were cancelled."""
    return len(cancelled)


@server.tool()
async def log(ctx: Context) -> str:
    """Say something."""
    await ctx.info("hello")
    await ctx.error("alas")
    return "logged"


def version(ctx: Any) -> str:
    return ctx.protocol_version if KIND == "mcp" else str(ctx.request_context._srctx.protocol_version)


@server.tool()
async def change(ctx: Context) -> str:
    """Announce changes."""
    if version(ctx) == MODERN and KIND == "mcp":
        await ctx.notify_tools_changed()
        await ctx.notify_resource_updated("peer://text")
    elif version(ctx) == MODERN:
        await ctx.send_notification(types.ToolListChangedNotification())
    else:
        await ctx.session.send_tool_list_changed()
    return "changed"


if KIND == "mcp":

    def ask_seats() -> Elicit[Seats]:
        return Elicit("How many seats?", Seats)

    def ask_model() -> Sample:
        words = types.TextContent(text="Praise Rome")
        return Sample([types.SamplingMessage(role="user", content=words)], max_tokens=10)

    def ask_roots() -> ListRoots:
        return ListRoots()

    @server.tool()
    async def book(seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
        """Ask the user."""
        return f"{seats.seats} seats{' at the window' if seats.window else ''}"

    @server.tool()
    async def praise(said: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
        """Ask the model."""
        assert isinstance(said.content, types.TextContent)
        return said.content.text

    @server.tool()
    async def folders(found: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> str:
        """Ask for the roots."""
        return " ".join(str(root.uri) for root in found.roots)

else:
    FORM = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="How many seats?", requested_schema=Seats.model_json_schema())
    )
    WORDS = types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=types.TextContent(text="Praise Rome"))], max_tokens=10
        )
    )

    async def ask(ctx: Any, request: Any, kind: Any) -> Any:
        """Ask in the way of the era."""
        if version(ctx) != MODERN:
            return await ctx.session.send_request(request, kind)
        if ctx.input_responses is None:
            return types.InputRequiredResult(input_requests={"it": request}, request_state="asked")
        return ctx.input_responses["it"]

    @server.tool(output_schema=None)
    async def book(ctx: Context) -> Any:
        """Ask the user."""
        answer = await ask(ctx, FORM, types.ElicitResult)
        if isinstance(answer, types.InputRequiredResult):
            return answer
        found = Seats(**answer.content) if answer.action == "accept" else None
        return f"{found.seats} seats{' at the window' if found.window else ''}" if found else answer.action

    @server.tool(output_schema=None)
    async def praise(ctx: Context) -> Any:
        """Ask the model."""
        answer = await ask(ctx, WORDS, types.CreateMessageResult)
        return answer if isinstance(answer, types.InputRequiredResult) else answer.content.text

    @server.tool(output_schema=None)
    async def folders(ctx: Context) -> Any:
        """Ask for the roots."""
        answer = await ask(ctx, types.ListRootsRequest(), types.ListRootsResult)
        if isinstance(answer, types.InputRequiredResult):
            return answer
        return " ".join(str(root.uri) for root in answer.roots)


@server.resource("peer://text", mime_type="text/plain")
def text() -> str:
    """A text."""
    return "some text"


@server.resource("peer://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    """Some bytes."""
    return b"\x00\x01"


@server.resource("peer://people/{name}")
def person(name: str) -> str:
    """A person."""
    return f"Dear {name}"


@server.prompt()
def review(code: str, language: str = "python") -> str:
    """Review code."""
    return f"Review this {language}: {code}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Any:
    if isinstance(ref, types.PromptReference) and argument.name == "language":
        return types.Completion(values=[each for each in ("python", "perl", "ruby") if each.startswith(argument.value)])
    if isinstance(ref, types.ResourceTemplateReference):
        return types.Completion(values=[f"{argument.value}1"])
    return None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    banner: dict[str, Any] = {"show_banner": False} if KIND == "fastmcp" else {}
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]), **banner)
    else:
        server.run("stdio", **banner)
