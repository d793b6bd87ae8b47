"""Clients: `Client` for asyncio, `SyncClient` for code without an event loop, with the same methods.

    from linkspan.client import SyncClient

    with SyncClient(["python", "dice.py"]) as client:
        print(client.call_tool("roll", {"sides": 20}).text)

The modules beside this one are the conversations, without any I/O; the names here are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.client.client import Client as Client
    from linkspan.client.sync_client import SyncClient as SyncClient

__all__ = ["Client", "SyncClient"]

__getattr__, __dir__ = lazy_names(__name__, {"client": ("Client",), "sync_client": ("SyncClient",)})
