"""For tests of servers and clients: fixtures for pytest, recordings of real servers, and players of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkspan.testing.fixtures import async_client_fixture as async_client_fixture
    from linkspan.testing.fixtures import client_fixture as client_fixture
    from linkspan.testing.player import Player as Player
    from linkspan.testing.recorder import TranscriptWriter as TranscriptWriter

__all__ = ["Player", "TranscriptWriter", "async_client_fixture", "client_fixture"]

_HOMES = {
    "Player": "linkspan.testing.player",
    "TranscriptWriter": "linkspan.testing.recorder",
    "async_client_fixture": "linkspan.testing.fixtures",
    "client_fixture": "linkspan.testing.fixtures",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
