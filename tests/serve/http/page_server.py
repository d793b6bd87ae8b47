"""A server with a page, on a port that is free: what the tests of the page open in a browser."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from msgspec import Meta

from linkspan import Ask, Context, Server, ToolError

NASTY = "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"

TOOLS = ["find", "book", "pay", "prices", "guide", "nasty", "wait"]

server = Server("ferry desk", "2.1.0", title="Ferry desk", instructions=f"Look before you book. {NASTY}")

Port = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Port"})]


@server.tool(annotations={"title": "Find ferries", "read_only_hint": True})
def find(
    port: Port,
    kind: Literal["car", "bike"],
    most: int = 5,
    direct: bool = False,
    stops: list[str] | None = None,
    fare: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Find ferries that leave a port.

    Args:
        port: Where to leave from.
        most: How many to list.
    """
    return {"port": port, "kind": kind, "most": most, "direct": direct, "stops": stops, "fare": fare}


@server.tool
def book(ferry: str, seats: Annotated[int, Ask("How many seats?")], ctx: Context) -> str:
    """Book seats."""
    ctx.progress(1, total=2, message="asking the captain")
    ctx.log("info", "the captain nods")
    if seats > 4:
        raise ToolError("Only 4 seats are left")
    return f"{seats} seats on {ferry}"


@server.tool
def pay(ctx: Context) -> str:
    """Pay for the seats."""
    ctx.ask_url("pay", "https://bank.example/pay/7", "Pay for your seats")
    return "Thank you"


@server.tool
def prices(port: str) -> list[dict[str, Any]]:
    """List prices."""
    return [{"kind": "car", "price": 31.5, "from": port}, {"kind": "bike", "price": 4, "from": port}]


@server.tool
def guide() -> str:
    """Describe the crossing."""
    words = "# Crossing\n\nTake the **early** boat, see [the map](https://maps.example/7).\n\n"
    return f"{words}- {NASTY}\n- [no](javascript:alert(1))\n- [broken](https://[)\n"


@server.tool(name="nasty", title=NASTY, description=NASTY)
def nasty() -> str:
    """Say what an attacker would."""
    return NASTY


@server.tool
def wait(ctx: Context) -> str:
    """Wait until nobody waits any more."""
    ctx.progress(1, message="waiting")
    while not ctx.cancelled:
        time.sleep(0.01)
    return "nobody reads this"


@server.resource("tides://today", mime_type="text/plain")
def tides() -> str:
    """High and low water today."""
    return "High 04:12, low 10:31"


@server.resource("tides://{day}")
def tides_on(day: str) -> str:
    """High and low water on a day."""
    return f"High on {day} at noon"


@server.prompt
def plan(start: str, finish: str = "Oban") -> str:
    """Plan a crossing."""
    return f"Plan a crossing from {start} to {finish}."


if __name__ == "__main__":
    server.run("http", port=0)
