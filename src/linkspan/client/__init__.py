"""Clients: `Client` for asyncio, `SyncClient` for code without an event loop, with the same methods.

    from linkspan.client import SyncClient

    with SyncClient(["python", "dice.py"]) as client:
        print(client.call_tool("roll", {"sides": 20}).text)

The modules beside this one are the conversations, without any I/O; the names here are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkspan.client.client import Client as Client
    from linkspan.client.sync_client import SyncClient as SyncClient

__all__ = ["Client", "SyncClient"]

_HOMES = {"Client": "linkspan.client.client", "SyncClient": "linkspan.client.sync_client"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
