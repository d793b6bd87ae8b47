"""For tests of servers and clients: fixtures for pytest, recordings of real servers, and players of them.

The fixtures connect a client to a server in memory: no plugin, no configuration, no event loop to share.

from linkspan.testing import client_fixture
from my_server import server

client = client_fixture(server)

def test_adding(client):
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"result": 3}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.client.client import Client
    from linkspan.client.sync_client import SyncClient
    from linkspan.client.targets import ServerTarget
    from linkspan.testing.player import Player as Player
    from linkspan.testing.recorder import TranscriptWriter as TranscriptWriter
    from linkspan.testing.store_contract import check_store as check_store

__all__ = ["Player", "Scope", "TranscriptWriter", "async_client_fixture", "check_store", "client_fixture"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "player": ("Player",),
        "recorder": ("TranscriptWriter",),
        "store_contract": ("check_store",),
    },
)


Scope: TypeAlias = Literal["function", "class", "module", "package", "session"]
"""How long a fixture lives, in the words of pytest."""


def client_fixture(
    target: ServerTarget | Callable[[], ServerTarget], *, scope: Scope = "function", **options: Any
) -> Any:
    """Return a fixture that gives a connected `SyncClient`, and closes it afterwards.

    `target` is a Server or anything else that a client takes, or a function that makes one for each use. `options` are those
    of `SyncClient`. Works in plain test functions, also in those that a plugin runs on an event loop.
    """

    import pytest

    from linkspan.client.sync_client import SyncClient

    @pytest.fixture(scope=scope)
    def client() -> Iterator[SyncClient]:
        with SyncClient(_made(target), **options) as connected:
            yield connected

    return client


def async_client_fixture(
    target: ServerTarget | Callable[[], ServerTarget], *, scope: Scope = "function", **options: Any
) -> Any:
    """Return a fixture that gives a `Client`, for async tests of any plugin.

    It connects at its first call and belongs to no event loop, so its scope may be wider than that of the loops.
    """

    import pytest

    from linkspan.client.client import Client

    @pytest.fixture(scope=scope)
    def client() -> Iterator[Client]:
        unconnected = Client(_made(target), **options)
        yield unconnected
        unconnected.close_now()

    return client


def _made(target: ServerTarget | Callable[[], ServerTarget]) -> ServerTarget:
    if callable(target) and not hasattr(target, "connect"):
        return cast("ServerTarget", target())
    return cast("ServerTarget", target)
