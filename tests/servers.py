"""The servers that transcripts talk to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from linkspan import (
    Ask,
    AudioContent,
    Context,
    InputRequired,
    Limits,
    Prompt,
    ResourceLink,
    Server,
    TextContent,
    ToolError,
    ToolResponse,
    ask_form,
)
from parcels import shop

KEYS = ["a key for tests that is long enough"]


def basic() -> Server:
    """One of each."""
    server = Server("basic", "1.0.0", instructions="For tests.", request_state_keys=KEYS)

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def add_async(a: int, b: int) -> int:
        """Add two numbers, on a loop."""
        return a + b

    @server.tool
    def echo(message: str) -> str:
        """Say it again."""
        return message

    @server.tool
    def fail(how: str) -> str:
        """Fail."""
        if how == "politely":
            raise ToolError("No flight on that day; try another")
        raise ValueError("secret: hunter2")

    @server.tool
    def count(to: int, ctx: Context) -> str:
        """Count, telling about it."""
        for n in range(1, to + 1):
            ctx.progress(n, total=to, message=f"at {n}")
            ctx.log("info", {"n": n}, logger="count")
        return "done"

    @server.tool
    def media() -> list[Any]:
        """Answer with blocks of later revisions too."""
        return [
            TextContent("hi"),
            AudioContent("AAAA", "audio/wav"),
            ResourceLink("file:///x", "x"),
        ]

    @server.resource("note://today", mime_type="text/plain")
    def today() -> str:
        """What to do today."""
        return "rest"

    @server.resource("note://{day}/{hour}")
    def hour(day: str, hour: int) -> str:
        """What to do then."""
        return f"{day} at {hour}: rest"

    @server.prompt
    def review(code: str, language: str = "python") -> str:
        """Review code.

        Args:
            code: What to review.
        """
        return f"Review this {language}:\n{code}"

    @server.completion("review", "language")
    def languages(value: str) -> list[str]:
        return ["python", "perl", "ruby"]

    return server


@dataclass
class Trip:
    """Where to, and for how many."""

    city: str
    seats: int = 1


def asking() -> Server:
    """Tools that ask."""
    server = Server("asking", "1.0.0", request_state_keys=KEYS)

    @server.tool
    def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
        """Book a table."""
        return f"{seats} seats on {date}"

    @server.tool
    def travel(ctx: Context) -> str:
        """Ask twice, one after the other."""
        trip = ctx.ask("trip", Trip, "Where to?")
        sure = ctx.ask("sure", bool, f"To {trip.city}?")
        return f"{trip.seats} to {trip.city}" if sure else "nowhere"

    @server.tool
    async def write(ctx: Context) -> str:
        """Let the model write, and look at the roots."""
        text = ctx.sample("Write a haiku", max_tokens=50).content
        return f"{getattr(text, 'text', '?')} in {len(ctx.roots())} roots"

    @server.tool
    def by_hand(ctx: Context) -> object:
        """The lowest level."""
        if ctx.request_state is None:
            return InputRequired({"name": ask_form("Who?", str, name="name")}, "step-1")
        answer = ctx.input_responses["name"]
        return f"{ctx.request_state}: {answer['content']['name']}"

    @server.tool
    def login(ctx: Context) -> str:
        """Send the user to a page."""
        ctx.ask_url("page", "https://example.com/login", "Please sign in")
        return "thanks"

    return server


def source_documents() -> Server:
    """Spelled as the source documents spell it."""
    server = Server(name="example_server", version="1.0.0", server_context={"user_id": 7})
    server.define_tool(name="new_tool", handler=lambda **args: {"result": "ok"})
    server.define_tool(
        name="both",
        input_schema={"properties": {"message": {"type": "string"}}, "required": ["message"]},
        handler=lambda args, server_context: ToolResponse(
            [{"type": "text", "text": f"{args['message']} {server_context['user_id']}"}]
        ),
    )
    server.define_custom_method(method_name="add", handler=lambda params: params["a"] + params["b"])
    server.define_custom_method(method_name="noted", handler=lambda params: None)
    server.define_resource("https://example.com/my_resource", mime_type="text/plain", text="Lorem ipsum dolor sit amet")

    @server.define_prompt(name="my_prompt", arguments=[Prompt.Argument("message", "Input message", required=True)])
    def my_prompt(args: dict[str, str], server_context: Context) -> Prompt.Result:
        return Prompt.Result(
            description="Response description",
            messages=[Prompt.Message("user", "User message"), Prompt.Message("assistant", args["message"])],
        )

    return server


def empty() -> Server:
    """Nothing at all: it may get something later."""
    return Server("empty", "1.0.0")


def resources_only() -> Server:
    """One resource, and nothing of any other kind."""
    server = Server("resources_only", "1.0.0")
    server.define_resource("note://one", text="one")
    return server


def small() -> Server:
    """Takes small messages only, and asks."""
    server = Server("small", "1.0.0", limits=Limits(max_line_bytes=1000, max_depth=20))

    @server.tool
    def hello(ctx: Context) -> str:
        return "hello " + ctx.ask("name", str, "Your name?")

    return server


SERVERS = {
    "basic": basic,
    "small": small,
    "asking": asking,
    "source_documents": source_documents,
    "empty": empty,
    "resources_only": resources_only,
    "shop": shop,
}
