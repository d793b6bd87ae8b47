"""Requirements on servers that are commands: what is on stdout, and how they end."""

from __future__ import annotations

import json
from typing import Final

from linkspan.checks.findings import expect
from linkspan.checks.peer import CheckedPeer, CommandPeer
from linkspan.checks.requirement import requirement

_STDIO: Final = "basic/transports#stdio"
_MEGABYTE: Final = 1_000_000
_END: Final = 5.0
"""Seconds in which a server ends after its stdin."""


def _command(peer: CheckedPeer) -> CommandPeer:
    assert isinstance(peer, CommandPeer)
    return peer


def _method(peer: CheckedPeer) -> str:
    return "server/discover" if peer.modern else "ping"


@requirement("STDIO-1", "a line of a megabyte, and one that ends in CR LF, is read", _STDIO, transports=("stdio",))
def _long(peer: CheckedPeer) -> None:
    answer = peer.ask(_method(peer), {"padding": "x" * _MEGABYTE})
    expect(answer.message is not None and not answer.failed, f"a line of 1 MB: {answer.words}")
    answer = peer.exchange(json.dumps(peer.message(_method(peer))).encode() + b"\r")
    expect(answer.message is not None and not answer.failed, f"a line that ends in CR LF: {answer.words}")


@requirement("STDIO-11", "characters beyond ASCII come back as they were sent", _STDIO, transports=("stdio",))
def _characters(peer: CheckedPeer) -> None:
    id = "é\u2028漢\U0001f680"
    answer = peer.ask(_method(peer), id=id)
    found = answer.message.get("id") if answer.message is not None else None
    expect(found == id, f"the id {id!r} came back as {found!r}")


@requirement("STDIO-7", "requests that are sent at once are all answered", _STDIO, transports=("stdio",))
def _at_once(peer: CheckedPeer) -> None:
    ids = [f"at-once-{number}" for number in range(10)]
    command = _command(peer)
    first = command.exchange(
        b"\n".join(json.dumps(peer.message(_method(peer), id=id)).encode() for id in ids), until=(ids[-1].encode(),)
    )
    came = {each.get("id") for each in (*first.before, first.message) if each is not None}
    for id in ids:
        if id not in came:
            found = command.read(f"{_method(peer)} with the id {id}", id, 5.0)
            came |= {each.get("id") for each in (*found.before, found.message) if each is not None}
    missing = [id for id in ids if id not in came]
    expect(not missing, f"of 10 requests {len(missing)} were not answered")


@requirement("STDIO-2", "nothing but messages is on stdout", _STDIO, transports=("stdio",))
def _clean(peer: CheckedPeer) -> None:
    found = _command(peer).stray
    expect(not found, f"stdout has {found[0]!r}" if found else "")


@requirement("STDIO-4", "a server ends when its stdin does", _STDIO, transports=("stdio",), strength="should")
def _ends(peer: CheckedPeer) -> None:
    expect(_command(peer).ends(_END), f"it ran on {_END:.0f} s after its stdin had ended")
