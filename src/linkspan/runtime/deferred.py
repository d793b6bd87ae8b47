"""A value that comes later, from another thread: for calls that neither block a thread nor need an event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import asyncio

    from linkspan.core.call import Postponed

_NOTHING: Final = object()


class Deferred:
    """One value, put in once. It may be awaited on an event loop, waited for in a thread, or passed to a function."""

    __slots__ = ("_value", "_waiting")

    def __init__(self) -> None:
        self._value: object = _NOTHING
        self._waiting: deque[Callable[[object], object]] = deque()

    def put(self, value: object) -> None:
        """Bring the value. Any thread; those who wait are called here."""
        self._value = value
        self._call()

    def then(self, go: Callable[[object], object]) -> None:
        """Call `go` with the value once it is there: here and now, or in the thread that brings it."""
        self._waiting.append(go)
        if self._value is not _NOTHING:
            self._call()

    def wait(self) -> object:
        """Return the value; wait for it in this thread."""
        import threading

        there = threading.Event()
        self.then(lambda _: there.set())
        there.wait()
        return self._value

    def __await__(self) -> Generator[Any, Any, object]:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self.then(lambda _: _settle_on(loop, future))
        yield from future
        return self._value

    def _call(self) -> None:
        while self._waiting:
            try:
                go = self._waiting.popleft()
            except IndexError:  # the other thread was faster
                return
            go(self._value)


def _settle_on(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed, with those who waited there
        return


async def value_of(then: Callable[[Callable[[], object]], object], postponed: Postponed) -> object:
    """Run a call that was postponed once `then` calls back, and give its value: on an event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    then(lambda: _settle_on(loop, ready))
    await ready
    postponed.resume()
    call = postponed.call
    value = call.run() if call.is_async or call.inline else await asyncio.to_thread(call.run)
    return await cast("Awaitable[object]", value) if hasattr(type(value), "__await__") else value
