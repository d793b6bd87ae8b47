"""The client of the official SDK (`mcp`) and a server process for it.

`mode="legacy"` shakes hands, `mode="auto"` probes with `server/discover`; a date adopts that revision without asking.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

EXAMPLES = Path(__file__).parents[2] / "examples"
CORNERS = Path(__file__).parent / "corners.py"
LINKSPAN = ["-m", "linkspan", "run"]
MODES = {"legacy": "legacy", "modern": "auto"}
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
PATIENCE = 40.0  # seconds that anything may take on a machine that has much else to do


def transport(file: Path, errlog: TextIO | None, launcher: list[str] = LINKSPAN) -> Any:
    """Return a transport that starts a server with this interpreter and environment."""
    parameters = StdioServerParameters(command=sys.executable, args=[*launcher, str(file)], env=dict(os.environ))
    assert errlog is not None
    return stdio_client(parameters, errlog)


class Heard:
    """What came in without being asked for, in order. Waiting for something has an end."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = asyncio.Event()

    async def __call__(self, item: Any) -> None:
        self.items.append(item)
        self._news.set()

    async def wait_for(self, fits: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                for item in self.items:
                    if fits(item):
                        return item
                self._news.clear()
                await self._news.wait()


class Peer:
    """One official client with one server process, on an event loop in a thread of its own.

    The client is closed by the task that opened it; tests run in other tasks of the same loop.
    """

    client: Client

    def __init__(self, era: str, file: Path, stderr: Path) -> None:
        self.era = era
        self.file = file
        self.stderr = stderr
        self.answer: Any = None
        """What the user, the model or the host says next: a result, a function that is awaited for one, or a list of them."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._failure: BaseException | None = None

    def open(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the client did not connect"
        if self._failure is not None:
            raise AssertionError(self.stderr.read_text()) from self._failure

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the client did not close"
        if self._failure is not None:
            raise self._failure

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        """Run the body of a test on the client's loop."""
        self.answer = None
        for heard in (self.questions, self.logs, self.messages):
            heard.items.clear()
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(body, 2 * PATIENCE), self._loop).result(3 * PATIENCE)

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self.questions, self.logs, self.messages = Heard(), Heard(), Heard()
        try:
            with self.stderr.open("w") as errlog:
                async with Client(
                    transport(self.file, errlog),
                    mode=MODES[self.era],
                    elicitation_callback=self._answer,
                    sampling_callback=self._answer,
                    list_roots_callback=self._answer,
                    logging_callback=self.logs,
                    message_handler=self.messages,
                ) as self.client:
                    self._ready.set()
                    await self._done.wait()
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _answer(self, context: Any, params: Any = None) -> Any:
        await self.questions(params)
        answer = self.answer.pop(0) if isinstance(self.answer, list) else self.answer
        return await answer() if callable(answer) else answer

    async def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return its one text."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result
        (block,) = result.content
        return block.text

    async def complaint(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails and return what the model reads about it."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result
        return result.content[0].text


def connected(file: Path) -> Any:
    """Return a fixture: a peer for each era that serves all tests."""

    @pytest.fixture(scope="session", params=MODES)
    def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
        peer = Peer(request.param, file, tmp_path_factory.mktemp("peer") / "stderr")
        peer.open()
        yield peer
        peer.close()

    return fixture


def conversation(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine into a test that runs on the loop of its peer."""

    @wraps(body)
    def test(**peers: Peer) -> None:
        (peer,) = peers.values()
        peer.run(body(peer))

    return test


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what can only be looked at again and again."""
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.01)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)
