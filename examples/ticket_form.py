"""A form in place of ten questions: the user fills it in, and the view books what they chose.

`book` is for the view only, so that no model books by itself; `offer` shows the form, and says in words what there is.
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from linkspan import Server, ToolError
from linkspan.apps import Apps

SAILINGS = {"07:30": 12, "12:15": 40, "18:00": 3}
"""Seats that are left."""

HERE = Path(__file__)


def document() -> str:
    """Return the view, with the script that views have in common."""
    page = HERE.with_suffix(".html").read_text("utf-8")
    return page.replace("/* app.js */", HERE.with_name("app.js").read_text("utf-8"))


apps = Apps()
server = Server("tickets", version="1.0.0", extensions=[apps])
form = apps.view("ui://tickets/form.html", document, border=True)


@server.tool(meta=form.tool(), annotations={"title": "Offer tickets", "read_only_hint": True})
def offer(people: Annotated[int, Meta(ge=1, le=9)] = 1) -> dict[str, int]:
    """Show the user a form with the sailings that have seats for so many people. The user books, not you."""
    return {time: seats for time, seats in SAILINGS.items() if seats >= people}


@server.tool(meta=form.tool(visibility=["app"]), annotations={"title": "Book tickets"})
def book(
    sailing: str, people: Annotated[int, Meta(ge=1, le=9)], name: Annotated[str, Meta(min_length=1, max_length=80)]
) -> str:
    """Book seats; for the form."""
    if SAILINGS.get(sailing, 0) < people:
        raise ToolError(f"The ferry at {sailing} has not enough seats. Please choose another one.")
    SAILINGS[sailing] -= people
    return f"{people} x {sailing} for {name}"


if __name__ == "__main__":
    server.run()
