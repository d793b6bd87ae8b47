"""Whether something listens at the address of a URL. No message is sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from linkspan.auth.network import is_local, origin_of
from linkspan.flows.client_errors import ClientError, ConnectError, ServerOrigin
from linkspan.workbench.standing import ServerStanding

_PATIENCE: Final = 1.0
_LOOK: Final = 2.0
_RAREST_LOOK: Final = 60.0
"""Seconds between looks at most; they double with each connection that failed although the address could be reached."""

OnLost: TypeAlias = Callable[[int, ClientError], object]


def is_reachable(host: str, port: int) -> bool:
    """Return whether a connection can be opened."""
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError:
        return False
    return True


def watch_address(
    url: str, over: threading.Event, standing: ServerStanding, on_lost: OnLost, on_reachable: Callable[[], object]
) -> None:
    """Look from time to time whether a server on this machine is still there, and whether a lost one can be reached again.

    `on_lost` is given the number of its start and an error. A server elsewhere is looked for only while it is lost.
    """
    _, host, port = origin_of(url) or ("", "", None)
    if port is None:
        return
    missed, failed = 0, 0
    while not over.wait(min(_LOOK * 2**failed, _RAREST_LOOK)):
        generation, status = standing.generation, standing.status
        if status == "ready":
            failed = 0
            missed = missed + 1 if is_local(url) and not is_reachable(host, port) else 0
            if missed > 1:
                problem = f"nothing listens at {host}:{port} any more"
                on_lost(generation, ConnectError(problem, ServerOrigin(host, url=url), phase="connect"))
        elif status == "broken" and standing.is_unreachable and is_reachable(host, port):
            failed += 1
            on_reachable()
