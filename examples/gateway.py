"""One server in front of three: their tools under one name, with one log of all calls.

`linkspan list examples/gateway.py` shows the tools of all of them. A server that dies is started again by the next call.
"""

from collections.abc import Callable
from pathlib import Path

from linkspan import Audit, Server, SyncClientGroup, ToolResult

HERE = Path(__file__).parent

behind = SyncClientGroup({name: HERE / f"{name}.py" for name in ("dice", "weather", "files")})
server = Server("gateway", version="1.0.0", instructions="Dice, weather and files.")
server.middleware(Audit())


def forward(name: str) -> Callable[..., ToolResult]:
    """Return a function that calls the tool of that name, and returns its result as it is."""

    def call(**arguments: object) -> ToolResult:
        return behind.call_tool(name, arguments)

    return call


for each in behind.list_tools():
    tool = each.item
    server.define_tool(
        each.name,
        handler=forward(each.name),
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=tool.annotations,
    )


if __name__ == "__main__":
    server.run()
