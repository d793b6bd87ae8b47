"""A server for what no example shows."""

from __future__ import annotations

from typing import Annotated, Literal

from linkspan import Ask, Context, Server

server = Server("corners", version="1.0.0", page_size=2)


@server.tool
def choose(ctx: Context) -> str:
    """Let the user choose some colours."""
    colours = ctx.ask("colours", list[Literal["red", "green", "blue"]], "Which?")
    return " and ".join(colours)


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
def nothing() -> None:
    """Do nothing."""


@server.tool
def compare(left: Annotated[int, Ask("Left?")], right: Annotated[int, Ask("Right?")]) -> list[int]:
    """Ask twice at once."""
    return [left, right]


@server.tool
async def combine(ctx: Context) -> str:
    """Ask for everything, one after the other."""
    words = [ctx.sample(f"Word {number}", max_tokens=10).content.text for number in (1, 2)]
    folders = len(ctx.roots())
    sure = ctx.ask("sure", bool, "Sure?")
    ctx.ask_url("page", "https://example.com/", "Look")
    return f"{' '.join(words)} {folders} {sure}"


@server.prompt
def greet(greeting: str, name: Annotated[str, Ask("Greet whom?")]) -> str:
    """Greet somebody."""
    return f"{greeting} {name}"


@server.resource("corner://diary")
def diary(ctx: Context) -> str:
    """Somebody's diary."""
    return f"{ctx.ask('whose', str, 'Whose?')}'s diary"
