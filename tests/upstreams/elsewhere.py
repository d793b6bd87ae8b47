"""A server that offers one of everything, to be mounted as one that is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkspan import Context, Server, ToolError


class Elsewhere:
    """Hides what a server is: it is reached by a client only. Counts the requests that come."""

    def __init__(self, server: Server, name: str = "there") -> None:
        self.name = name
        self.server = server
        self.opened = 0

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        self.opened += 1
        return self.server.connect(ports=ports)


def make_server(called: Callable[[str], object] = bool) -> Server:
    """Return a server with one of everything; `called` receives the name of each tool that runs."""
    server = Server("there", instructions="Ask nicely.")

    @server.tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        called("add")
        return a + b

    @server.tool
    def greet(name: str, ctx: Context) -> str:
        called("greet")
        ctx.progress(1, total=2, message="half")
        ctx.log("warning", "careful")
        return f"{name} is {ctx.ask('age', int, 'How old?')}"

    @server.tool
    def fail() -> str:
        raise ToolError("not today")

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return f"note {name}"

    @server.resource("fixed://a")
    def fixed() -> str:
        return "A"

    @server.prompt
    def review(code: str) -> str:
        return f"Review {code}"

    @server.completion("review", "code")
    def codes(value: str) -> list[str]:
        return [each for each in ("alpha", "beta") if each.startswith(value)]

    return server
