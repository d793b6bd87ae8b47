"""The envelope of the newest revision: read once for all requests that repeat it, whatever their progress tokens are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from linkspan.client import Client
from linkspan.errors import RemoteProtocolError
from linkspan.revisions import modern
from linkspan.revisions.modern import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, Envelope, read_envelope

GOOD: dict[str, Any] = {
    PROTOCOL_VERSION: "2026-07-28",
    CAPABILITIES: {"elicitation": {"form": {}}},
    CLIENT_INFO: {"name": "test", "version": "1"},
}
ODD: list[dict[str, Any]] = [
    {LOG_LEVEL: "debug"},
    {LOG_LEVEL: "loud"},
    {LOG_LEVEL: None},
    {CLIENT_INFO: None},
    {CLIENT_INFO: "nobody"},
    {CAPABILITIES: {"progressToken": 1}},
    {CAPABILITIES: []},
    {PROTOCOL_VERSION: 7},
    {PROTOCOL_VERSION: "1999-01-01"},
    {"traceparent": "00-1"},
]


def outcome(meta: bytes) -> Envelope | tuple[int, str]:
    """Return the envelope, or the error that reading it raises."""
    try:
        return read_envelope(Raw(meta))
    except RemoteProtocolError as error:
        return error.code, error.message


def with_token(token: str, change: dict[str, Any]) -> bytes:
    """Return the text of an envelope with a token, which is JSON."""
    return b'{"progressToken":%b,%b' % (token.encode(), msgspec.json.encode(GOOD | change)[1:])


@pytest.mark.parametrize("token", ["1", '"t"', "0", "-1", "null", '"\\ud83c\\udfb2"'])
@pytest.mark.parametrize("change", [{}, *ODD], ids=str)
def test_a_progress_token_changes_nothing_but_itself(change: dict[str, Any], token: str) -> None:
    """META-3, PROG-1."""
    plain = outcome(msgspec.json.encode(GOOD | change))
    found = outcome(with_token(token, change))
    if isinstance(plain, tuple):
        assert found == plain
    else:
        assert found == Envelope(plain.peer, msgspec.json.decode(token), plain.log_level)


@pytest.mark.parametrize("token", ["true", "1.5", "[]", "{}", "1e999"])
def test_an_odd_progress_token_is_refused(token: str) -> None:
    """PROG-1."""
    found = outcome(with_token(token, {}))
    assert isinstance(found, tuple)
    assert found[0] == -32602


@pytest.mark.parametrize("missing", [PROTOCOL_VERSION, CAPABILITIES])
def test_an_incomplete_envelope_with_a_token_is_refused(missing: str) -> None:
    """META-3."""
    members = {"progressToken": 1} | {name: value for name, value in GOOD.items() if name != missing}
    assert outcome(msgspec.json.encode(members)) == (-32602, f"Invalid params: _meta lacks {missing}")


async def _calls(count: int) -> None:
    from linkspan import Server

    server = Server("cached")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Client(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        modern._facts.cache_clear()
        modern._read_remembered.cache_clear()
        for _ in range(count):
            await client.call_tool("add", {"a": 1, "b": 2})


def test_the_envelope_of_a_client_is_read_once() -> None:
    import asyncio

    asyncio.run(_calls(50))
    assert modern._facts.cache_info().misses + modern._read_remembered.cache_info().misses <= 1
