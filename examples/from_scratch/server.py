"""A dice server as one writes it from scratch: the name, the schema and the handler are given by hand, nothing comes from hints.

Arguments are checked against the schema all the same. The short way is in ../dice.py.
"""

import random
from typing import Any

from linkspan import Server

server = Server(name="dice", version="1.0.0")


def throw(args: dict[str, Any]) -> int:
    """Return one number; `args` are the tool's arguments, and they fit the schema."""
    return random.randint(1, args["sides"])


server.register_tool(
    name="dice",
    description="Roll a dice",
    input_schema={
        "type": "object",
        "properties": {"sides": {"type": "integer", "minimum": 1, "description": "The number of sides on the dice"}},
        "required": ["sides"],
    },
    handler=throw,
)

if __name__ == "__main__":
    server.run()
