"""The runner of calls, with calls of a connection that only remembers what it gets."""

from __future__ import annotations

import asyncio
import gc
import warnings

from linkspan.core.call import Call, CallReady, Event
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Peer, Request
from linkspan.runtime.calls import CallRunner


class Remembering:
    """A connection that remembers how its calls end."""

    def __init__(self) -> None:
        self.ends: list[object] = []

    def finish(self, call: Call, value: object) -> list[Event]:
        self.ends.append(value)
        return []

    def fail(self, call: Call, error: BaseException) -> list[Event]:
        self.ends.append(error)
        return []


def request() -> Request:
    return Request(1, "tools/call", None, Peer(LATEST))


async def answer() -> int:
    return 1


def test_a_coroutine_of_a_call_that_was_cancelled_meanwhile_is_closed():
    connection, asked = Remembering(), request()

    def run() -> object:
        asked.cancel("changed my mind")
        return answer()

    async def main() -> None:
        runner = CallRunner(asyncio.get_running_loop, max_workers=0)
        runner.perform(connection, [CallReady(Call(asked, run))])
        assert runner.in_tasks == 0

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        asyncio.run(main())
        gc.collect()
    assert connection.ends == []
