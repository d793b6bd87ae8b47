"""The official client gives up on calls, in both eras: the server must notice, and serve the next one."""

from __future__ import annotations

import asyncio

import pytest
from mcp import MCPError
from official import PATIENCE, Peer, accept, conversation

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


def count_waits(peer: Peer) -> int:
    """Return how many calls of the slow tool have ended; the server notes each one on stderr."""
    return peer.stderr.read_text().count("tools/call wait_for_train took")


async def until_a_wait_ends(peer: Peer, before: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while count_waits(peer) == before:
            await asyncio.sleep(0.01)


@conversation
async def test_a_cancelled_call_ends_on_the_server_and_the_next_one_works(peer: Peer) -> None:
    before, begun = count_waits(peer), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    wait = peer.client.call_tool("wait_for_train", {"seconds": 600}, progress_callback=on_progress)
    call = asyncio.create_task(wait)
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    call.cancel()
    await asyncio.wait([call], timeout=PATIENCE)
    assert call.cancelled()
    await until_a_wait_ends(peer, before)
    assert await peer.text("opening_hours") == "9 to 5"


@conversation
async def test_a_call_that_takes_too_long_for_the_client_ends_on_the_server_too(peer: Peer) -> None:
    before = count_waits(peer)
    with pytest.raises(MCPError):
        await peer.client.call_tool("wait_for_train", {"seconds": 600}, read_timeout_seconds=1.5)
    await until_a_wait_ends(peer, before)
    assert await peer.text("opening_hours") == "9 to 5"


@conversation
async def test_a_call_is_cancelled_while_the_user_still_thinks(peer: Peer) -> None:
    thinking, interrupted = asyncio.Event(), asyncio.Event()

    async def think() -> None:
        thinking.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    peer.answer = think
    call = asyncio.create_task(peer.client.call_tool("book", {"train": "EC 7"}))
    async with asyncio.timeout(PATIENCE):
        await thinking.wait()
        call.cancel()
        await interrupted.wait()
    peer.answer = accept(seats=1)
    assert await peer.text("book", train="EC 9") == "1 seats on EC 9"
