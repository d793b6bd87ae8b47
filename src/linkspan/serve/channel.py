"""Serve one connection over a channel of the author's: one thread reads and another sends, or two tasks do.

Law: a client that does not read holds up its own connection only: what it asks is read on when it has read enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from linkspan.core.call import Ports
from linkspan.runtime.calls import Connectable, Connection, Driver
from linkspan.runtime.channels import AsyncChannel, Channel, as_line, messages
from linkspan.runtime.workers import MAX_WORKERS
from linkspan.serve.stdio import GRACE, MAX_UNSENT

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from linkspan.revisions.neutral import TransportInfo

_POLL: Final = 0.02
"""Seconds after which a connection that is full, or about to end, is looked at again."""


class ChannelLimits(msgspec.Struct, frozen=True):
    """Bounds of one connection."""

    grace: float = GRACE
    """Seconds in which what was asked before the end is still answered."""
    max_workers: int = MAX_WORKERS
    max_unsent: int = MAX_UNSENT
    """Characters that wait for a client that does not read."""


class _ServedConnection:
    """One connection, and how much of its output waits to be sent."""

    def __init__(
        self,
        server: Connectable,
        facts: TransportInfo,
        limits: ChannelLimits,
        loop: Callable[[], AbstractEventLoop | None],
        put: Callable[[str], object],
    ) -> None:
        """Connect to `server`; `put` queues a message, from any thread."""
        self._put = put
        self._limits = limits
        self._unsent = 0
        self.broken = False

        def connect(*, ports: Ports) -> Connection:
            return server.connect(ports=msgspec.structs.replace(ports, facts=facts))

        self.driver = Driver(
            connect,
            loop,
            self.flush,
            max_workers=limits.max_workers,
            congested=lambda: self._unsent > limits.max_unsent,
        )
        self.driver.open()

    def flush(self) -> None:
        """Queue what the connection has to send, in its order. Any thread."""
        with self.driver.lock:
            for message in messages(self.driver.connection.data_to_send()):
                self._unsent += len(message)
                self._put(message)

    def sent(self, message: str) -> None:
        """Record that a message is on its way."""
        with self.driver.lock:
            self._unsent -= len(message)

    def receive(self, message: str | bytes) -> None:
        """Start what a message asks for."""
        self.driver.receive_data(as_line(message))
        self.flush()

    @property
    def wants_input(self) -> bool:
        """Whether to read on."""
        return self.broken or (self._unsent <= self._limits.max_unsent and self.driver.connection.accepting)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited, or waits to be sent, and can be."""
        return not self.broken and bool(self.driver.connection.running or self._unsent)

    def delay(self) -> float | None:
        """Return for how many seconds nothing is due; None for ever."""
        deadline = self.driver.next_timeout()
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def tick(self) -> None:
        """Do what is due."""
        self.driver.handle_timeout(time.monotonic())
        self.flush()

    def close(self) -> None:
        """Cancel what still runs."""
        self.driver.close()
        self.flush()


def attach(server: Connectable, channel: Channel, facts: TransportInfo, limits: ChannelLimits) -> None:
    """Serve a channel in this thread until its other side hangs up; async functions run on the background loop."""
    import threading
    from queue import Empty, SimpleQueue

    from linkspan.runtime.background import background_loop

    outgoing = SimpleQueue[str | None]()
    served = _ServedConnection(server, facts, limits, lambda: background_loop().loop, outgoing.put)

    def send() -> None:
        while True:
            try:
                message = outgoing.get(timeout=served.delay())
            except Empty:
                served.tick()
                continue
            if message is None:
                return
            try:
                channel.send(message)
            except Exception:  # the other side is gone, so that the iteration ends, too
                served.broken = True
                channel.close()
                return
            served.sent(message)

    sending = threading.Thread(target=send, name="linkspan-channel", daemon=True)
    sending.start()
    try:
        with suppress(Exception):  # the channel raises where the other side is gone
            for message in channel:
                served.receive(message)
                while not served.wants_input:
                    time.sleep(_POLL)
        served.driver.receive_eof()
        end = time.monotonic() + limits.grace
        while served.is_busy and time.monotonic() < end:
            time.sleep(_POLL)
    finally:
        served.close()
        outgoing.put(None)
        sending.join(limits.grace)
        with suppress(Exception):
            channel.close()
        served.driver.leave(served.driver.connection.lifespan)


async def attach_async(server: Connectable, channel: AsyncChannel, facts: TransportInfo, limits: ChannelLimits) -> None:
    """Serve a channel on the running loop until its other side hangs up; async functions are tasks of the loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    outgoing = asyncio.Queue[str]()

    def put(message: str) -> None:
        with suppress(RuntimeError):  # the loop is over: nothing can be sent any more
            loop.call_soon_threadsafe(outgoing.put_nowait, message)

    served = _ServedConnection(server, facts, limits, lambda: loop, put)

    async def send() -> None:
        while True:
            try:
                message = await asyncio.wait_for(outgoing.get(), served.delay())
            except TimeoutError:
                served.tick()
                continue
            try:
                await channel.send(message)
            except Exception:  # the other side is gone, so that the iteration ends, too
                served.broken = True
                await channel.close()
                return
            served.sent(message)

    sending = asyncio.create_task(send())
    try:
        with suppress(Exception):  # the channel raises where the other side is gone
            async for message in channel:
                served.receive(message)
                while not served.wants_input:
                    await asyncio.sleep(_POLL)
        served.driver.receive_eof()
        end = loop.time() + limits.grace
        while served.is_busy and loop.time() < end:
            await asyncio.sleep(_POLL)
    finally:
        served.close()
        sending.cancel()
        with suppress(Exception):
            await channel.close()
        await served.driver.aleave(served.driver.connection.lifespan)
