"""Requests as a reader of the source documents would write them, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linkspan import Server

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "MCP Client", "version": "1.0.0"},
}


def ask(server: Server, method: str, params: Mapping[str, Any] | None = None) -> Any:
    """Send one request without a transport, and return the whole answer."""
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params or {})})


def result(server: Server, method: str, **params: Any) -> Any:
    """Send one request, and return its result."""
    return ask(server, method, params)["result"]


def error(server: Server, method: str, **params: Any) -> Any:
    """Send one request, and return its error."""
    return ask(server, method, params)["error"]


def call(server: Server, name: str, **arguments: Any) -> Any:
    """Call a tool, and return its result."""
    return result(server, "tools/call", name=name, arguments=arguments)


def text_of(answer: Any) -> str:
    """Return the only text of a tool's result."""
    (block,) = answer["content"]
    assert block["type"] == "text"
    found: str = block["text"]
    return found
