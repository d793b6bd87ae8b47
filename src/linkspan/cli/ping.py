"""`linkspan ping TARGET`: whether a server can be reached, what it speaks, what it offers, and how fast it answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from linkspan.cli.session import Outcome, Session
from linkspan.cli.target import CommandLine
from linkspan.cli.telling import milliseconds
from linkspan.cli.terminal import Style
from linkspan.revisions import REVISIONS
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.values import to_builtins

__all__ = ["main"]

_ROUNDS = 3


def main(arguments: Sequence[str]) -> int:
    """Start a server, and ask it a few times whether it is there."""
    line = CommandLine(
        "ping",
        arguments,
        "Connect to a server, say what it is and what it offers, and measure how fast it answers.",
        "examples:\n  linkspan ping server.py\n  linkspan ping --era legacy -- npx -y some-server",
    )
    return Session(line.parse()).run(_ping)


def _ping(session: Session) -> Outcome:
    client = session.connect()
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        began = time.monotonic()
        client.ping()
        seconds.append(time.monotonic() - began)
    version = client.protocol_version or ""
    document: JSONObject = {
        "protocolVersion": version,
        "era": REVISIONS[version].era,
        "serverInfo": to_builtins(client.server_info) if client.server_info is not None else None,
        "capabilities": to_builtins(client.server_capabilities),
        "instructions": client.instructions,
        "connectSeconds": session.connect_seconds,
        "pingSeconds": seconds,
    }
    return Outcome({name: value for name, value in document.items() if value is not None}, _show)


def _show(found: JSONObject, style: Style) -> str:
    info: JSONObject = found.get("serverInfo") or {}
    name = f"{info.get('name', 'a server without a name')} {info.get('version', '')}".strip()
    title = f" ({info['title']})" if info.get("title") else ""
    rows = {
        "protocol": f"{found['protocolVersion']} ({found['era']})",
        "offers": _offers(found["capabilities"]),
        "instructions": str(found.get("instructions") or "").replace("\n", "\n" + " " * 16),
        "connected in": milliseconds(found["connectSeconds"]),
        "round trips": ", ".join(milliseconds(each) for each in found["pingSeconds"]),
    }
    lines = [f"  {style.dim(f'{label:<12}')}  {value}" for label, value in rows.items() if value]
    return "\n".join([style.bold(name) + title, *lines])


def _offers(capabilities: JSON) -> str:
    """Return the names of what a server offers, with what it says about each."""
    words: list[str] = []
    for name, about in capabilities.items() if is_object(capabilities) else ():
        details = [key for key, value in about.items() if value is not False] if is_object(about) else []
        words.append(f"{name} ({', '.join(details)})" if details else name)
    return ", ".join(words) or "nothing"
