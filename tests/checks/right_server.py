"""A server that is right, and has some of everything that the checks look at."""

from __future__ import annotations

from typing import Any

from linkspan import Annotations, Icon, Server

server = Server("right", page_size=2, icons=[Icon("https://example.com/icon.png")])
ICON = Icon("https://example.com/icon.png")
SEARCH: Any = {
    "type": "object",
    "properties": {"query": {"type": "string", "x-mcp-header": "Query"}},
    "required": ["query"],
}


@server.tool(annotations={"readOnlyHint": True}, icons=[ICON])
def now() -> dict[str, int]:
    """Return the time."""
    return {"hour": 7}


def search(query: str) -> str:
    return query


server.define_tool(
    name="search",
    handler=search,
    description="Search for something.",
    input_schema=SEARCH,
    annotations={"readOnlyHint": True},
)


@server.tool
def write(text: str) -> str:
    """Write something: no check calls it."""
    raise AssertionError(text)


@server.resource("docs://one", annotations=Annotations(audience=["user"], priority=0.5))
def one() -> str:
    """The first page."""
    return "one"


@server.resource("docs://bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    """Bytes."""
    return b"\x00\x01"


@server.resource("docs://{name}")
def page(name: str) -> str:
    """Any page."""
    return name


@server.prompt
def greet() -> str:
    """Greet."""
    return "Say hello."


@server.prompt
def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


@server.completion("review", "code")
def complete(value: str) -> list[str]:
    """Suggest code."""
    return [each for each in ("def", "class") if each.startswith(value)]


if __name__ == "__main__":
    server.run()
