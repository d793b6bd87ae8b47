"""The server that the HTTP tests talk to."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Annotated, Any

from linkspan import Ask, Context, Header, Server, ToolError

KEYS = ["a key for tests that is long enough"]
marked: contextvars.ContextVar[str] = contextvars.ContextVar("marked", default="nothing")


@functools.cache
def same_server() -> Server:
    """Return the server that tests share which only ask it something: to make one takes milliseconds."""
    return World().server


class World:
    """A server, and what its tools let the tests do and see."""

    def __init__(self, **options: Any) -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self.seen: list[str] = []
        self.changed = threading.Condition()
        self.server = Server("world", "1.0.0", request_state_keys=KEYS, **options)
        self._add_tools(self.server)

    def note(self, what: str) -> None:
        """Let a test see something."""
        with self.changed:
            self.seen.append(what)
            self.changed.notify_all()

    def wait_for(self, what: str) -> None:
        """Wait until a tool has noted something."""
        with self.changed:
            assert self.changed.wait_for(lambda: what in self.seen, 60), self.seen

    def _add_tools(self, server: Server) -> None:
        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def add_async(a: int, b: int) -> int:
            return a + b

        @server.tool
        def count(to: int, ctx: Context) -> str:
            for n in range(1, to + 1):
                ctx.progress(n, total=to)
            return "done"

        @server.tool
        async def count_async(to: int, ctx: Context) -> str:
            for n in range(1, to + 1):
                ctx.progress(n, total=to)
                await asyncio.sleep(0)
            return "done"

        @server.tool
        def fail(how: str) -> str:
            if how == "politely":
                raise ToolError("try another")
            if how == "exit":
                raise SystemExit(3)
            raise ValueError("secret: hunter2")

        @server.tool
        async def fail_async(how: str) -> str:
            return fail(how)

        @server.tool
        def routed(
            region: Annotated[str, Header("Region")],
            size: Annotated[int, Header("Size")] = 1,
            dry: Annotated[bool | None, Header("Dry")] = None,
        ) -> str:
            return f"{region} {size} {dry}"

        @server.tool
        def facts(ctx: Context) -> dict[str, Any]:
            return {
                "probe": ctx.headers.get("x-probe"),
                "principal": ctx.principal,
                "client": ctx.client_info.name if ctx.client_info else None,
                "version": ctx.protocol_version,
                "context": dict(ctx),
                "marked": marked.get(),
            }

        @server.tool
        async def facts_async(ctx: Context) -> dict[str, Any]:
            return facts(ctx)

        @server.tool
        def hold(ctx: Context) -> str:
            """Work until the test lets go, or nobody wants it any more."""
            self.note("holding")
            while not self.let_go.wait(0.01):
                if ctx.cancelled:
                    self.note("cancelled")
                    return "cancelled"
            return "held"

        @server.tool
        async def hold_async(ctx: Context) -> str:
            self.note("holding")
            try:
                while not self.let_go.is_set():
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.note("cancelled")
                raise
            return "held"

        @server.tool
        def tell_then_hold(ctx: Context) -> str:
            ctx.progress(1, total=2)
            return hold(ctx)

        @server.tool
        async def tell_then_hold_async(ctx: Context) -> str:
            ctx.progress(1, total=2)
            return await hold_async(ctx)

        @server.tool
        def flood(parts: int, size: int, ctx: Context) -> str:
            """Tell much more than anybody reads."""
            for n in range(1, parts + 1):
                ctx.progress(n, message="x" * size)
                if ctx.cancelled:
                    self.note("cancelled")
                    return "cancelled"
            return "told"

        @server.tool
        def text(size: int) -> str:
            return "x" * size

        @server.tool
        def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
            return f"{seats} seats on {date}"

        @server.resource("note://today")
        def today() -> str:
            return "rest"

        @server.prompt
        def greet(name: str) -> str:
            return f"Greet {name}"
