"""A travel agency that uses each feature of a server once: read it from top to bottom.

Run it with `linkspan run examples/everything.py`, or `python examples/everything.py`. Nothing but Linkspan is needed.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

from linkspan import (
    Ask,
    Context,
    Declined,
    EmbeddedResource,
    Icon,
    InputRequired,
    Prompt,
    ResourceLink,
    Server,
    TextContent,
    TextResourceContents,
    Tool,
    ToolError,
    ToolResponse,
    ask_form,
    audio,
    image,
)

TRAIN_ICON = Icon("https://example.com/train.svg", mime_type="image/svg+xml", sizes=["any"])
LOGO = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")  # a GIF of one pixel
CITIES = ["Paris", "Prague", "Rome"]
DELAYS = {"EC 7": 0, "EC 9": 5}  # minutes


# Tools as classes: other modules can share them. The name becomes `convert_money`; the schema comes from the hints of `call`.


class ConvertMoney(Tool):
    """Convert euros to another currency."""

    title = "Convert money"
    annotations = Tool.Annotations(read_only_hint=True, open_world_hint=False)

    @staticmethod
    def call(euros: float, currency: Literal["CZK", "USD"], ctx: Context) -> ToolResponse:
        amount = euros * ctx["rates"][currency]  # the context is also a mapping: the server_context below
        return ToolResponse([f"{amount:.2f} {currency}"], structured_content={"amount": amount})


opening_hours = Tool.define(name="opening_hours", description="When we are open.", handler=lambda: "9 to 5")


def watch(data: Any) -> None:
    """Hear of each request when it has ended. Stderr is the place to write to: stdout belongs to the protocol."""
    print(f"{data['method']} {data.get('tool_name', '')} took {data['duration'] * 1000:.1f} ms", file=sys.stderr)


server = Server(
    "travel",
    version="1.0.0",
    title="Travel agency",
    description="Shows each feature of a server once.",
    website_url="https://example.com/travel",
    icons=[TRAIN_ICON],
    instructions="Look for trains before booking one.",
    tools=[ConvertMoney, opening_hours],
    server_context={"rates": {"CZK": 25.0, "USD": 1.1}},
    instrumentation_callback=watch,
)


# Tools as functions: the name, the docstring and the hints say it all.


class Extra(Enum):
    """What a train may have."""

    BAR = "bar"
    WIFI = "wifi"


@dataclass
class Stop:
    """Where a train halts."""

    city: str
    at: datetime


@dataclass
class Train:
    """A train and its stops."""

    number: str
    stops: list[Stop]
    extras: list[Extra]


@server.tool(
    title="Find trains",
    annotations={"read_only_hint": True, "idempotent_hint": True},
    icons=[TRAIN_ICON],
    meta={"example.com/section": "trains"},
)
def find_trains(
    city: str, after: datetime, seats: int = 1, extras: list[Extra] | None = None, travel_class: Literal[1, 2] = 2
) -> list[Train]:
    """Find trains to a city.

    Args:
        city: Where to, in English.
        after: The earliest departure.
        seats: How many seats must be free.
        extras: What the train must have.
        travel_class: First or second class.
    """
    if city not in CITIES:
        raise ToolError(f"No train goes to {city}; try one of {', '.join(CITIES)}")  # the model reads this
    stops = [Stop("Vienna", after), Stop(city, after + timedelta(hours=4))]
    return [Train("EC 7", stops, extras or [Extra.BAR])]


@server.tool(inline=True)  # tiny, so it runs right where the transport is, not in a thread
def price(km: float, seats: int = 1, return_ticket: bool = False) -> float:
    """Say what a journey costs, in euros."""
    return round(km * 0.12 * seats * (2 if return_ticket else 1), 2)


@server.tool
def charter(number: str, stops: list[Stop]) -> Train:
    """Charter a train of your own. Arguments and results may be nested as deep as you like."""
    return Train(number, sorted(stops, key=lambda stop: stop.at), [])


@server.tool
def lose_luggage() -> str:
    """Fail. The exception is logged here with an incident id; the client sees only the id."""
    raise KeyError("the secret of the lost luggage")


@server.tool
def brochure() -> list[Any]:
    """Show a brochure: content of every kind, in one answer."""
    return [
        TextContent("Rome is lovely in May."),
        image(LOGO, "image/gif"),
        audio(b"RIFF", "audio/wav"),
        EmbeddedResource(TextResourceContents("travel://terms", "No refunds.", "text/plain")),
        ResourceLink("travel://departures", "departures", mime_type="application/json"),
    ]


# What a tool can do while it runs.


@server.tool
async def plan_tour(cities: list[str], ctx: Context) -> str:
    """Plan a tour. An async function runs on an event loop. Progress and log messages go to clients that want them."""
    for number, city in enumerate(cities, 1):
        await asyncio.sleep(0)
        ctx.progress(number, total=len(cities), message=city)
    ctx.info({"planned": cities})
    return " - ".join(cities)


@server.tool
def wait_for_train(seconds: int, ctx: Context) -> str:
    """Wait. A plain function runs in a thread, and asks now and then whether it is still wanted."""
    for waited in range(seconds * 20):
        ctx.raise_if_cancelled()
        ctx.progress(waited, total=seconds * 20)
        time.sleep(0.05)
    return "The train is here"


# Asking the user. A function that asks runs again from the top when the answer is there, so ask before you act.


@dataclass
class Traveller:
    """Who travels."""

    name: str
    born: date
    seat: Literal["aisle", "window"] = "window"


@server.tool
def book(train: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
    """Book seats. The user fills in `seats`, before the function runs; the model never sees it."""
    return f"{seats} seats on {train}"


@server.tool
def check_in(train: str, ctx: Context) -> str:
    """Check a traveller in."""
    try:
        who = ctx.ask("who", Traveller, "Who travels?")
    except Declined:
        return "Nobody checked in"
    return f"{who.name}, born in {who.born.year}, at the {who.seat} on {train}"


@server.tool
def pay(ctx: Context) -> str:
    """Send the user to a page: what is secret belongs there, never in a form."""
    ctx.ask_url("bank", "https://example.com/pay", "Please pay at your bank")
    return "Thank you"


@server.tool
def praise(city: str, ctx: Context) -> str:
    """Let the client's model write."""
    said: str = ctx.sample(f"Praise {city} in one sentence", max_tokens=100).content.text
    return said


@server.tool
def where_to_save(ctx: Context) -> list[str]:
    """List the folders that the client lets us work in."""
    return [root.uri for root in ctx.roots()]


@server.tool
def rate_us(ctx: Context) -> object:
    """Ask at the lowest level: the questions and the state are yours. `ctx.ask` does this for you."""
    if ctx.request_state is None:
        return InputRequired({"stars": ask_form("How many stars?", int, name="stars")}, state="asked once")
    return f"{ctx.request_state}: {ctx.input_responses['stars']['content']['stars']} stars"


# Resources: ready values, functions that give text, bytes or JSON, and a template for a family of them.

server.define_resource("travel://terms", mime_type="text/plain", text="No refunds.")
server.define_resource("travel://logo", mime_type="image/gif", blob=LOGO)


@server.resource("travel://departures", mime_type="application/json")
def departures() -> dict[str, int]:
    """Minutes of delay of each train. It changes: `delay_train` tells those who watch it."""
    return DELAYS


@server.resource("travel://cities/{city}/{year}", title="A year in a city")
def city_guide(city: str, year: int) -> str:
    """What goes on in a city in one year."""
    return f"{city} in {year}: food, art and traffic."


@server.tool
def delay_train(number: str, minutes: int) -> str:
    """Delay a train, and tell the clients that watch the departures."""
    DELAYS[number] = minutes
    told = server.notify_resource_updated("travel://departures")
    return f"{told} told"


@server.tool
def hire_guide(city: str) -> str:
    """Add a tool while the server runs, and tell the clients. `Server(auto_notify=True)` tells them by itself."""
    name = f"guide_{city.lower()}"
    server.define_tool(name, description=f"Ask a guide about {city}.", handler=lambda: f"{city}: turn left")
    server.notify_tools_list_changed()
    return name


# Prompts: templates that users pick. The arguments are texts for the client, and what the hints say for you.


@server.prompt(title="Plan a trip")
def trip(city: str, days: int = 3, style: str = "relaxed") -> str:
    """Plan a trip.

    Args:
        city: Where to.
        days: How long.
        style: What kind of trip.
    """
    return f"Plan a {style} trip to {city} for {days} days."


@server.prompt
def check_terms() -> list[Any]:
    """Talk about our terms: messages of both sides, and one that carries a resource."""
    terms = EmbeddedResource(TextResourceContents("travel://terms", "No refunds.", "text/plain"))
    return [Prompt.Message("user", terms), Prompt.Message("assistant", "I have read them."), "Are they fair?"]


@server.completion("trip", "city")
def complete_city(value: str) -> list[str]:
    """Suggest cities; those that do not begin with what the user typed are left out for you."""
    return CITIES


@server.completion("travel://cities/{city}/{year}", "year")
def complete_year(value: str, arguments: dict[str, str]) -> list[str]:
    """Suggest years, knowing what is filled in already."""
    return ["2025", "2026"] if arguments.get("city") == "Rome" else ["2026"]


# A method of your own, beside those of the protocol.


@server.custom_method("travel/rate")
def rate(params: dict[str, Any], ctx: Context) -> dict[str, float]:
    """Return the rate of a currency, as any JSON."""
    return {"rate": ctx["rates"][params["currency"]]}


if __name__ == "__main__":
    server.run()
