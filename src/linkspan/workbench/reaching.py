"""Whether something listens at the address of a URL. No message is sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from linkspan.flows.client_errors import ClientError, ConnectError, ServerOrigin
from linkspan.workbench.standing import ServerStanding

_PATIENCE: Final = 1.0
_LOOK: Final = 2.0
_RAREST_LOOK: Final = 60.0
"""Seconds between looks at most; they double with each connection that failed although the address could be reached."""

Address: TypeAlias = tuple[str, int]
OnLost: TypeAlias = Callable[[int, ClientError], object]


def address_of(url: str) -> Address:
    """Return the host and the port of a URL; a port of 0 if it has none that exists."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    return parts.hostname or "", port if port is not None else 443 if parts.scheme == "https" else 80


def is_local(address: Address) -> bool:
    """Return whether it is an address of this machine, which may be asked often."""
    host = address[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def is_reachable(address: Address) -> bool:
    """Return whether a connection can be opened."""
    try:
        socket.create_connection(address, _PATIENCE).close()
    except OSError:
        return False
    return True


def watch_address(
    url: str, over: threading.Event, standing: ServerStanding, on_lost: OnLost, on_reachable: Callable[[], object]
) -> None:
    """Look from time to time whether a server on this machine is still there, and whether a lost one can be reached again.

    `on_lost` is given the number of its start and an error. A server elsewhere is looked for only while it is lost.
    """
    address = address_of(url)
    missed, failed = 0, 0
    while not over.wait(min(_LOOK * 2**failed, _RAREST_LOOK)):
        generation, status = standing.generation, standing.status
        if status == "ready":
            failed = 0
            missed = missed + 1 if is_local(address) and not is_reachable(address) else 0
            if missed > 1:
                problem = f"nothing listens at {address[0]}:{address[1]} any more"
                on_lost(generation, ConnectError(problem, ServerOrigin(address[0], url=url), phase="connect"))
        elif status == "broken" and standing.is_unreachable and is_reachable(address):
            failed += 1
            on_reachable()
