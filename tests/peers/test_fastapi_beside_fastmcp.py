"""One FastAPI application, by FastMCP and by `from_app`: the same tools give the same results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan import SyncClient
from linkspan.openapi import from_app

fastapi = pytest.importorskip("fastapi")
fastmcp = pytest.importorskip("fastmcp")


def shop() -> Any:
    """Return an application with a list of items that can be read, found and added to."""
    app = fastapi.FastAPI(title="Items")
    items = [{"id": number, "name": name} for number, name in enumerate(("Hammer", "Saw", "Drill"))]

    @app.get("/items/", operation_id="list_items")
    async def list_items(skip: int = 0, limit: int = 10) -> list[dict[str, Any]]:
        return items[skip : skip + limit]

    @app.get("/items/{item_id}", operation_id="get_item")
    async def get_item(item_id: int) -> dict[str, Any]:
        if item_id >= len(items):
            raise fastapi.HTTPException(404, "Item not found")
        return items[item_id]

    @app.post("/items/", operation_id="create_item")
    async def create_item(name: str = fastapi.Body(embed=True)) -> dict[str, Any]:
        return {"id": len(items), "name": name}

    return app


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_items", {"limit": 2}),
    ("get_item", {"item_id": 1}),
    ("create_item", {"name": "Plane"}),
]


def test_the_same_tools_give_the_same_results() -> None:
    app = shop()

    async def by_fastmcp() -> list[tuple[str, Any]]:
        async with fastmcp.Client(fastmcp.FastMCP.from_fastapi(app=app)) as client:
            assert {tool.name for tool in await client.list_tools()} == {name for name, _ in CALLS}
            return [(name, (await client.call_tool(name, given)).structured_content) for name, given in CALLS]

    with SyncClient(from_app(app, only=["*"])) as client:
        assert {tool.name for tool in client.list_tools()} == {name for name, _ in CALLS}
        ours = [(name, client.call_tool(name, given).structured) for name, given in CALLS]
        missing = client.call_tool("get_item", {"item_id": 9})
    assert ours == asyncio.run(by_fastmcp())
    assert missing.text == "GET /items/9: 404 Not Found: Item not found"
