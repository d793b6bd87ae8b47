"""Talk to a bare connection as a handshake client does, in values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from linkspan import Server
from linkspan.core.call import CallReady, Event
from linkspan.core.connection import ServerConnection
from linkspan.revisions import LATEST_LEGACY
from test_transcripts import feed

ELICITS = {"elicitation": {"form": {}, "url": {}}}


def connected(
    server: Server,
    *,
    revision: str = LATEST_LEGACY.date,
    capabilities: dict[str, Any] = ELICITS,
    clock: Callable[[], float] | None = None,
) -> ServerConnection:
    """Open a connection and shake hands."""
    connection = server.connect()
    if clock is not None:
        connection._clock = clock
    info = {"name": "client", "version": "1"}
    say(connection, "initialize", "hello", protocolVersion=revision, capabilities=capabilities, clientInfo=info)
    say(connection, "notifications/initialized")
    return connection


def say(
    connection: ServerConnection,
    method: str | None,
    number: int | str | None = None,
    *,
    result: Any = None,
    **params: Any,
) -> list[Any]:
    """Send a request, a notification (without a number) or an answer (without a method), and return what comes back."""
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if number is not None:
        message["id"] = number
    if method is not None:
        message |= {"method": method, "params": params}
    else:
        message["result"] = result
    feed(connection, json.dumps(message).encode() + b"\n", None)
    return [json.loads(each) for each in connection.messages_to_send()]


def run(connection: ServerConnection, events: Iterable[Event]) -> None:
    """Run the calls that a connection hands out, hooks too."""
    for event in events:
        if isinstance(event, CallReady):
            run(connection, connection.finish(event.call, event.call.run()))
