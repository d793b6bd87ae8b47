"""A connection over a channel that the application opens: a WebSocket, a message queue, a bridge in the process.

A plain channel has two threads: one reads, one sends. An async one has two tasks, on the loop that used the client last, or on
the background loop. No caller ever waits for the channel itself.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, cast

from linkspan.client.callbacks import is_awaitable
from linkspan.client.transports.base import ClientTransport, TransportOwner
from linkspan.flows.client_errors import ConnectError, ConnectionLost
from linkspan.flows.state import ClientState
from linkspan.runtime.channels import AsyncChannel, Channel, OpenChannel, as_line, is_async, messages
from linkspan.schema.annotations import is_coroutine_function

if TYPE_CHECKING:
    import asyncio

HomeLoop = Callable[[], "asyncio.AbstractEventLoop | None"]


def open_channel_transport(
    owner: TransportOwner, state: ClientState, open_channel: OpenChannel, home: HomeLoop
) -> ChannelTransport:
    """Open a channel, within `timeouts.connect`; an async one on the loop that `home` names. Raises: ConnectError."""
    outcome, given_up = SimpleQueue[object](), threading.Event()
    loop: asyncio.AbstractEventLoop | None = None

    async def awaited(found: object) -> object:
        opened: object = open_channel() if found is None else found
        return await cast("Awaitable[object]", opened) if is_awaitable(opened) else opened

    def run() -> None:
        nonlocal loop
        try:
            found: object = None if is_coroutine_function(open_channel) else open_channel()
            if found is None or is_awaitable(found) or is_async(cast("Channel", found)):
                import asyncio

                from linkspan.runtime.background import background_loop

                here = home()
                loop = here if here is not None and here.is_running() else background_loop().loop
                found = asyncio.run_coroutine_threadsafe(awaited(found), loop).result()
        except BaseException as error:
            found = error
        outcome.put(found)
        if given_up.is_set():
            _close_late(outcome, loop)

    threading.Thread(target=run, name="linkspan-channel", daemon=True).start()
    seconds = state.options.timeouts.connect
    try:
        found = outcome.get(timeout=seconds)
    except Empty:
        given_up.set()
        _close_late(outcome, loop)  # it may have been opened in this moment
        raise ConnectError(f"the channel was not opened within {seconds:g} s", state.origin, phase="connect") from None
    if isinstance(found, BaseException):
        problem = f"the channel could not be opened: {type(found).__name__}: {found}"
        raise ConnectError(problem, state.origin, phase="connect") from found
    if loop is not None:
        return _LoopChannel(owner, state, cast("AsyncChannel", found), loop)
    return _ThreadChannel(owner, state, cast("Channel", found))


def _close_late(outcome: SimpleQueue[object], loop: asyncio.AbstractEventLoop | None) -> None:
    """Close a channel that was opened, if at all, when nothing waited for it any more; one of two threads finds it."""
    with suppress(Exception):
        closed: object = cast("Channel | AsyncChannel", outcome.get_nowait()).close()
        if is_awaitable(closed):
            import asyncio

            assert loop is not None
            asyncio.run_coroutine_threadsafe(cast("Coroutine[object, object, object]", closed), loop)


class ChannelTransport(ClientTransport):
    """What plain and async channels share."""

    def _put(self, message: str) -> None:
        """Queue a message; any thread."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        """Close the channel, and wait for that for `timeouts.close`."""
        raise NotImplementedError

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Queue what there is to send, in its order."""
        with self.lock:
            for message in messages(self.data_to_send()):
                self._put(message)

    def close(self) -> None:
        """Hang up."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        self.end(by_us=True)
        self.unwatch()
        self._hang_up()

    def _lost(self, error: Exception | None) -> None:
        """Record that the channel has ended, perhaps with an error of its own."""
        lost = None
        if error is not None:
            problem = f"the channel failed: {type(error).__name__}: {error}"
            lost = ConnectionLost(problem, self.state.origin, delivery="maybe_sent")
        self.end(error=lost)
        self.unwatch()


class _ThreadChannel(ChannelTransport):
    """Over a plain channel."""

    def __init__(self, owner: TransportOwner, state: ClientState, channel: Channel) -> None:
        super().__init__(owner, state)
        self._channel = channel
        self._outgoing = SimpleQueue[str | None]()
        self._over = threading.Event()
        self.watch()
        for work in (self._receive_all, self._send_all):
            threading.Thread(target=work, name="linkspan-channel", daemon=True).start()

    def _put(self, message: str) -> None:
        self._outgoing.put(message)

    def _receive_all(self) -> None:
        problem: Exception | None = None
        try:
            for message in self._channel:
                self.receive_data(as_line(message))
        except Exception as error:
            problem = error
        self._outgoing.put(None)
        self._lost(problem)

    def _send_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._channel.send(message)
            except Exception as error:
                self._lost(error)
                break
        with suppress(Exception):
            self._channel.close()
        self._over.set()

    def _hang_up(self) -> None:
        self._outgoing.put(None)
        self._over.wait(self.state.options.timeouts.close)


class _LoopChannel(ChannelTransport):
    """Over an async channel, on one loop."""

    def __init__(
        self, owner: TransportOwner, state: ClientState, channel: AsyncChannel, loop: asyncio.AbstractEventLoop
    ) -> None:
        import asyncio

        super().__init__(owner, state)
        self._channel = channel
        self._loop = loop
        self._outgoing = asyncio.Queue[str]()
        self._task: asyncio.Task[None] | None = None
        self._thread: int | None = None
        self._over = threading.Event()
        self.watch()
        asyncio.run_coroutine_threadsafe(self._carry(), loop)

    def _put(self, message: str) -> None:
        with suppress(RuntimeError):  # the loop is over, and the connection with it
            self._loop.call_soon_threadsafe(self._outgoing.put_nowait, message)

    async def _carry(self) -> None:
        import asyncio

        self._task, self._thread = asyncio.current_task(), threading.get_ident()
        sending = asyncio.create_task(self._send_all())
        problem: Exception | None = None
        try:
            if not self._closed:
                async for message in self._channel:
                    self.receive_data(as_line(message), self._loop)
        except Exception as error:
            problem = error
        finally:
            sending.cancel()
            self._lost(problem)
            with suppress(Exception):
                await self._channel.close()
            self._over.set()

    async def _send_all(self) -> None:
        while True:
            message = await self._outgoing.get()
            try:
                await self._channel.send(message)
            except Exception as error:
                self._lost(error)
                with suppress(Exception):
                    await self._channel.close()
                return

    def _hang_up(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
            if threading.get_ident() != self._thread:
                self._over.wait(self.state.options.timeouts.close)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
