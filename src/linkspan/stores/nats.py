"""A store in NATS, for several machines: two streams of JetStream, and plain subjects for channels.

A record is the last message of its subject, and its version the number of that message in the stream, which never comes again;
JetStream compares it before it takes the next one. The client library is for asyncio, so it runs on the background loop. Needs
a server from 2.11 on, for messages that expire. Times are those of the server.
Spec: https://docs.nats.io/nats-concepts/jetstream/headers
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from linkspan.errors import LinkspanError, import_problem
from linkspan.runtime.background import background_loop
from linkspan.runtime.forks import keep, renew
from linkspan.stores.clock import StoreClock
from linkspan.stores.jetstream import JetStream, StoredMessage, StreamMessage
from linkspan.stores.port import (
    DEFAULT_BOUNDS,
    Bounds,
    Entry,
    Receiver,
    Record,
    StoreError,
    first_number,
    shared_secret,
)
from linkspan.stores.subscribers import Subscribers

_GRAVESTONE: Final = 3600.0
_GARBAGE: Final = 10.0
"""After so many times its time to live an entry goes, whether its log was used or not."""


def library() -> Any:
    """Return the client library. Raises: LinkspanError where it is missing."""
    try:
        import nats
    except ImportError as error:
        raise LinkspanError(import_problem("a store in NATS needs nats-py", "nats", error)) from None
    return nats


class NatsStore:
    """The store. Its streams have the name of the namespace, and are made if they are not there."""

    quick = False

    def __init__(self, url: str, *, namespace: str = "linkspan", timeout: float = 5.0) -> None:
        """Connect to `nats://`; wait `timeout` seconds for the connection and for each answer.

        Raises: LinkspanError where nats-py is missing or for an invalid namespace, StoreError where there is no server.
        """
        self._library = library()
        if not (namespace.isascii() and namespace.replace("_", "a").replace("-", "a").isalnum()):
            raise LinkspanError(f"namespace {namespace!r} cannot name a stream: use letters, digits, - and _")
        self._namespace, self._timeout = namespace, timeout
        self._records, self._logs = f"{namespace}-records", f"{namespace}-logs"
        streams = {
            self._records: ([f"{namespace}.record.>", f"{namespace}.queue.>"], 1),
            self._logs: ([f"{namespace}.log.>"], -1),
        }
        self._prepare: Callable[[], JetStream] = lambda: JetStream(
            self._library, url, streams, timeout, lambda: self._subscribers.missed()
        )
        self._clock = StoreClock(self._ask_time)
        self._closed = False
        self._begin()
        renew(self)
        self._do(self._messages.opened)

    def start_afresh(self) -> None:
        """Be without a connection and subscribers: in a forked child they are the parent's."""
        keep(self._messages)
        self._begin()

    def _begin(self) -> None:
        self._messages = self._prepare()
        self._changing = asyncio.Lock()
        """Held while subscriptions of the server begin and end."""
        self._subscribers = Subscribers()
        self._subscriptions: dict[str, Any] = {}

    def _do(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """Run an operation on the background loop. Raises: StoreError."""
        found = self._wait_for(operation)
        with suppress(StoreError):  # the operation was carried out
            self._clock.refresh()
        return found

    def _wait_for(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        if self._closed:
            raise StoreError("the store was closed")
        loop = background_loop()
        if loop.is_here():
            raise StoreError("the store in NATS cannot wait on the event loop that it needs: use asyncio.to_thread")

        async def run() -> Any:
            return await asyncio.wait_for(operation(), 2 * self._timeout)

        errors: tuple[type[Exception], ...] = (self._library.errors.Error, OSError, TimeoutError, asyncio.TimeoutError)
        try:
            return loop.run(run)
        except errors as problem:
            raise StoreError(f"the store in NATS failed: {str(problem).strip() or type(problem).__name__}") from None

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the server."""
        return self._clock.now()

    def _ask_time(self) -> float:
        asked: float = self._wait_for(lambda: self._messages.server_time(self._records))
        return asked

    def _subject(self, kind: str, *names: str) -> str:
        return ".".join((self._namespace, kind, *(base64.urlsafe_b64encode(each.encode()).decode() for each in names)))

    # Records.

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes, the same for every process."""
        return shared_secret(self, name)

    def get(self, key: str) -> Record | None:
        """Return a record."""
        found: StreamMessage | None = self._do(lambda: self._messages.last(self._records, self._subject("record", key)))
        if found is None or found.kept.value is None or found.kept.expires <= self._clock.now():
            return None
        return Record(found.kept.value, found.sequence)

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record under compare-and-set."""
        subject, now = self._subject("record", key), self._clock.now()
        kept = StoredMessage(bytes(value), math.inf if ttl is None else now + ttl)

        async def write() -> int | None:
            if expect is None:
                return await self._messages.send(subject, kept, None, ttl)
            last = await self._messages.last(self._records, subject)
            version = last.sequence if last is not None and last.is_live(now) else 0
            if version != expect:
                return None
            return await self._messages.send(subject, kept, last.sequence if last is not None else 0, ttl)

        version: int | None = self._do(write)
        return version

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record."""
        subject = self._subject("record", key)

        async def remove() -> bool:
            while True:
                last = await self._messages.last(self._records, subject)
                if last is None or not last.is_live(self._clock.now()) or expect not in (None, last.sequence):
                    return False
                if await self._messages.send(subject, StoredMessage(None), last.sequence, _GRAVESTONE) is not None:
                    return True

        deleted: bool = self._do(remove)
        return deleted

    # Schedules and logs.

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key be due at a time."""
        subject = self._subject("queue", queue, key)
        if at is None:  # nothing may be left: `due` reads it
            self._do(lambda: self._messages.drop(self._records, subject))
        else:
            self._do(lambda: self._messages.send(subject, StoredMessage(key.encode(), number=at), None, None))

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due: all of the queue are read."""
        subject = f"{self._subject('queue', queue)}.*"
        found: list[StreamMessage] = self._do(lambda: self._messages.all(self._records, subject, "last_per_subject"))
        keys = {each.kept.value.decode(): each.kept.number for each in found if each.kept.value is not None}
        return sorted((key for key, at in keys.items() if at <= now), key=keys.__getitem__)[:limit]

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log, and drop what is beyond its bounds."""
        subject = self._subject("log", log)

        async def add() -> int:
            while True:
                last, now = await self._messages.last(self._logs, subject), self._clock.now()
                position = int(last.kept.number) + 1 if last is not None else first_number()
                expired = last is not None and last.kept.expires <= now
                total = len(data) + (last.kept.total if last is not None and not expired else 0)
                kept = StoredMessage(bytes(data), now + bounds.ttl, position, total)
                after = last.sequence if last is not None else 0
                if (number := await self._messages.send(subject, kept, after, _GARBAGE * bounds.ttl)) is not None:
                    await self._cut(subject, bounds, 1 if expired else bounds.items, number, total)
                    return position

        position: int = self._do(add)
        return position

    async def _cut(self, subject: str, bounds: Bounds, items: int, newest: int, total: int) -> None:
        """Drop the oldest entries: `total` counts those that were dropped, too, so what is there is read where it is large."""
        jetstream, stream = await self._messages.opened(), self._logs
        await jetstream.purge_stream(stream, subject=subject, keep=items)
        if total <= bounds.bytes:
            return
        kept, oldest = 0, newest
        for each in reversed(await self._messages.all(self._logs, subject, "all")):
            kept += len(each.kept.value or b"")
            if kept > bounds.bytes and each.sequence < newest:
                break
            oldest = min(oldest, each.sequence)
        await jetstream.purge_stream(stream, subject=subject, seq=oldest)

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position."""
        found: list[StreamMessage] = self._do(lambda: self._messages.all(self._logs, self._subject("log", log), "all"))
        if not found or found[-1].kept.expires <= self._clock.now():
            return []
        return [Entry(int(each.kept.number), each.kept.value or b"") for each in found if each.kept.number > after]

    # Channels.

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed, in every process."""

        async def send() -> None:
            await self._messages.opened()
            await self._messages.client.publish(self._subject("channel", channel), bytes(data))
            await self._messages.flush()

        self._do(send)

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on, on the background loop."""

        async def begin() -> None:
            async def deliver(message: Any) -> None:
                self._subscribers.deliver(channel, message.data)

            async with self._changing:
                await self._messages.opened()
                client = self._messages.client
                if channel not in self._subscriptions:
                    self._subscriptions[channel] = await client.subscribe(self._subject("channel", channel), cb=deliver)
                await self._messages.flush()  # the server knows it now
                self._subscribers.add(channel, receive)

        async def end() -> None:
            async with self._changing:
                if channel not in self._subscribers.channels() and channel in self._subscriptions:
                    await self._subscriptions.pop(channel).unsubscribe()

        def leave() -> None:
            if self._subscribers.remove(channel, receive) and not self._closed:
                with suppress(StoreError):  # it has left in any case
                    self._do(end)

        self._do(begin)
        return leave

    def close(self) -> None:
        """Close the connection."""
        if self._closed:
            return
        self._subscribers.clear()
        with suppress(StoreError):
            self._do(self._messages.close)
        self._closed = True
