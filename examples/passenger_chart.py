"""A chart beside the answer of a tool: passengers by month, and a button that asks for another year.

Hosts that show views have `passenger_chart.html` in a frame; all others, and the model, get the numbers.
"""

from pathlib import Path

from linkspan import Server, ToolError
from linkspan.apps import Apps

PASSENGERS = {
    2025: [310, 340, 520, 880, 1340, 1990, 2480, 2510, 1620, 900, 410, 380],
    2026: [330, 360, 570, 960, 1460, 2120, 2600, 2690, 1750, 1010, 450, 420],
}

HERE = Path(__file__)


def document() -> str:
    """Return the view, with the script that views have in common."""
    page = HERE.with_suffix(".html").read_text("utf-8")
    return page.replace("/* app.js */", HERE.with_name("app.js").read_text("utf-8"))


apps = Apps()
server = Server("passengers", version="1.0.0", extensions=[apps])
chart = apps.view("ui://passengers/chart.html", document, border=True)


@server.tool(meta=chart.tool(), annotations={"title": "Passengers by month", "read_only_hint": True})
def passengers(year: int = 2026) -> list[int]:
    """Return how many passengers there were in each month of a year."""
    if year not in PASSENGERS:
        raise ToolError(f"There are numbers of {', '.join(map(str, PASSENGERS))}, not of {year}.")
    return PASSENGERS[year]


if __name__ == "__main__":
    server.run()
