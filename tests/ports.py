"""Ports for servers that tests start as processes of their own."""

from __future__ import annotations

import socket

__all__ = ["reserve_port"]

_kept: list[socket.socket] = []


def reserve_port() -> int:
    """Return a port of 127.0.0.1 on which a server can listen. It stays bound here, so that no other process gets it meanwhile:
    neither as the port of a server, nor as that of an outgoing connection."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _kept.append(reserved)
    port: int = reserved.getsockname()[1]
    return port
