"""What a client tells its application by itself: that a server came, went, or changed something."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from linkspan.client.errors import ClientError

__all__ = ["Change", "ClientEvent", "Connected", "Disconnected", "StateLost", "StreamRestored"]


class Change(msgspec.Struct, frozen=True):
    """A list changed, or a resource did (`kind` is then "resource", and `uri` says which).

    `missed` means that changes may have been missed while the connection was away: look again.
    """

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None
    missed: bool = False


class Connected(msgspec.Struct, frozen=True):
    """A connection has been made, in the named revision."""

    server: str
    revision: str


class Disconnected(msgspec.Struct, frozen=True):
    """The connection was lost. The next call makes a new one."""

    server: str
    error: ClientError


class StateLost(msgspec.Struct, frozen=True):
    """A new connection took the place of a lost one: what the server kept in memory for us is gone."""

    server: str
    error: ClientError


class StreamRestored(msgspec.Struct, frozen=True):
    """Over HTTP: the stream on which the server tells of changes was lost, and is open again. Calls were not concerned."""

    server: str
    error: ClientError


ClientEvent: TypeAlias = Connected | Disconnected | StateLost | StreamRestored
