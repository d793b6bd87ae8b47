"""A map of ferries that moves: the view asks for the positions again, and the model hears which ferry the user has chosen.

The map is drawn from coordinates, so it needs no tiles, no key and no network: the policy of the view blocks everything.
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from linkspan import Server
from linkspan.apps import Apps

PORTS = {"Oban": (56.41, -5.47), "Craignure": (56.47, -5.71), "Lismore": (56.51, -5.52), "Colonsay": (56.07, -6.19)}
ROUTES = {
    "Loch Frisa": ("Oban", "Craignure", 50),
    "Lochnevis": ("Oban", "Lismore", 55),
    "Isle of Mull": ("Oban", "Colonsay", 140),
}
"""From, to, and minutes for a crossing."""

Minute = Annotated[int, Meta(ge=0, le=24 * 60, description="Minutes after midnight")]


class Ferry(Struct):
    """A ferry on its way."""

    name: str
    latitude: float
    longitude: float
    heading: str


HERE = Path(__file__)


def document() -> str:
    """Return the view, with the script that views have in common."""
    page = HERE.with_suffix(".html").read_text("utf-8")
    return page.replace("/* app.js */", HERE.with_name("app.js").read_text("utf-8"))


apps = Apps()
server = Server("ferries", version="1.0.0", extensions=[apps])
sea = apps.view("ui://ferries/map.html", document, border=False)


def position(name: str, minute: int) -> Ferry:
    """Return where a ferry is: half of the time it goes one way, half of the time the other."""
    start, end, minutes = ROUTES[name]
    part = minute % (2 * minutes) / minutes
    heading, way = (end, part) if part < 1 else (start, 2 - part)
    (north, east), (to_north, to_east) = PORTS[start], PORTS[end]
    return Ferry(name, round(north + (to_north - north) * way, 4), round(east + (to_east - east) * way, 4), heading)


@server.tool(meta=sea.tool(), annotations={"title": "Map of ferries", "read_only_hint": True})
def ferries(minute: Minute = 8 * 60) -> list[Ferry]:
    """Return where each ferry is, and show the user a map."""
    return [position(name, minute) for name in ROUTES]


@server.resource("ferries://ports", mime_type="application/json")
def ports() -> dict[str, tuple[float, float]]:
    """Return the ports, for the map."""
    return PORTS


if __name__ == "__main__":
    server.run()
