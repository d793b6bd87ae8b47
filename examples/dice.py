"""The dice server: one tool, one resource, one prompt. Run it: `linkspan run examples/dice.py`, or `python examples/dice.py`."""

import random
from typing import Annotated

from msgspec import Meta

from linkspan import Server

server = Server("dice", version="1.0.0", instructions="Roll dice. Ask before rolling more than 100.")

Sides = Annotated[int, Meta(ge=1, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=1_000)]


@server.tool(annotations={"title": "Roll dice", "read_only_hint": True, "open_world_hint": False})
def roll(sides: Sides = 6, count: Count = 1) -> list[int]:
    """Roll dice.

    Args:
        sides: Faces on each die.
        count: How many dice to roll.
    """
    return [random.randint(1, sides) for _ in range(count)]


@server.resource("dice://odds/{sides}")
def odds(sides: int) -> str:
    """The chance of each face."""
    return f"Each face of a die with {sides} sides comes up with a chance of 1 in {sides}."


@server.prompt
def game(players: str = "two") -> str:
    """Play a round of dice."""
    return f"Play a round of dice for {players} players: roll two dice for each, and say who won."


if __name__ == "__main__":
    server.run()
