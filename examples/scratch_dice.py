"""A dice server as one would write it from scratch: the schema and the handler are given by hand, nothing is read from hints.

A schema that is written by hand is checked by a real validator: `pip install 'linkspan[schema]'`. See dice.py for the short way.
"""

import random

from linkspan import Server

server = Server(name="dice", version="1.0.0")

server.register_tool(
    name="dice",
    description="Roll a dice",
    input_schema={
        "type": "object",
        "properties": {
            "sides": {"type": "integer", "minimum": 1, "description": "The number of sides on the dice"},
        },
        "required": ["sides"],
    },
    handler=lambda args: random.randint(1, args["sides"]),
)

if __name__ == "__main__":
    server.run()
