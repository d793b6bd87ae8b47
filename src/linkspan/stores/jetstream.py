"""Messages of JetStream, as the store in NATS needs them: the last of a subject, all of some, and one more after a known one.

The client library is for asyncio; it connects again by itself.
Spec: https://docs.nats.io/nats-concepts/jetstream/headers
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_PING: Final = 5
_STALE: Final = 60
"""Seconds: much more than the library takes to find a connection stale, after a few pings."""
_CHANGED: Final = 10071
"""The code of the error for a message that was not the last one any more."""


class StoredMessage(msgspec.Struct, array_like=True):
    """What a message holds. `value` is None where a record was deleted; `number` is a position, or a time."""

    value: bytes | None
    expires: float = math.inf
    number: float = 0
    total: int = 0


class StreamMessage(msgspec.Struct, frozen=True):
    """A message, and its number in the stream, which never comes again."""

    sequence: int
    kept: StoredMessage

    def is_live(self, now: float) -> bool:
        """Return whether it stands for a record that is there."""
        return self.kept.value is not None and self.kept.expires > now


class _Info(msgspec.Struct):
    ts: datetime


_decode = msgspec.msgpack.Decoder(StoredMessage).decode


class JetStream:
    """One connection. Its coroutines run on one event loop and raise errors of the library."""

    def __init__(
        self,
        library: Any,
        url: str,
        streams: Mapping[str, tuple[list[str], int]],
        timeout: float,
        lost: Callable[[], object],
    ) -> None:
        """Prepare; `streams` maps names to subjects, and how many messages of each are kept (-1: all).

        `lost` is called on the loop when a connection took the place of one that was lost.
        """
        self._library = library
        self._url = url
        self._streams = streams
        self._timeout = timeout
        self._lost = lost
        self.client: Any = None
        self._opening = asyncio.Lock()
        self._flushes: set[asyncio.Future[None]] = set()

    async def opened(self) -> Any:
        """Return the context of the library, on a new connection if there is none."""
        async with self._opening:
            self.client = self.client or await self.connected()
        return self.client.jetstream(timeout=self._timeout)

    async def connected(self) -> Any:
        """Return a new connection to a server that has the streams. Raises: an error of the library."""
        client = await self._library.connect(
            self._url,
            connect_timeout=math.ceil(self._timeout),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            ping_interval=_PING,
            error_cb=_ignore,
            reconnected_cb=self._reconnected,
        )
        try:
            for name, (subjects, each) in self._streams.items():
                await client.jetstream().add_stream(
                    name=name, subjects=subjects, max_msgs_per_subject=each, allow_msg_ttl=True
                )
        except BaseException:
            await client.close()
            raise
        return client

    async def _reconnected(self) -> None:
        self._lost()

    async def last(self, stream: str, subject: str) -> StreamMessage | None:
        """Return the last message of a subject, also one that has expired or stands for a deleted record."""
        jetstream = await self.opened()
        try:
            found = await jetstream.get_last_msg(stream, subject)
        except self._library.js.errors.NotFoundError:
            return None
        return StreamMessage(found.seq, _decode(found.data))

    async def send(self, subject: str, kept: StoredMessage, after: int | None, ttl: float | None) -> int | None:
        """Add a message, and return its number; None if the last one of its subject is not `after`."""
        jetstream = await self.opened()
        headers = {} if after is None else {_EXPECTED: f"{after}"}
        if ttl is not None:
            headers["Nats-TTL"] = f"{math.ceil(ttl) + 1}s"
        try:
            taken = await jetstream.publish(subject, msgspec.msgpack.encode(kept), headers=headers or None)
        except self._library.js.errors.APIError as refusal:
            if refusal.err_code == _CHANGED:
                return None
            raise
        number: int = taken.seq
        return number

    async def drop(self, stream: str, subject: str) -> None:
        """Delete the messages of a subject."""
        await (await self.opened()).purge_stream(stream, subject=subject)

    async def all(self, stream: str, subject: str, policy: str) -> list[StreamMessage]:
        """Return the messages of subjects, the oldest first."""
        jetstream, api = await self.opened(), self._library.js.api
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy(policy),
            ack_policy=api.AckPolicy.NONE,
            mem_storage=True,
            inactive_threshold=5,
        )
        reader = await jetstream.pull_subscribe(subject, stream=stream, config=config)
        try:
            missing = (await reader.consumer_info()).num_pending
            found: list[StreamMessage] = []
            while len(found) < missing:
                for each in await reader.fetch(min(missing - len(found), 256), timeout=self._timeout):
                    found.append(StreamMessage(each.metadata.sequence.stream, _decode(each.data)))
            return found
        finally:
            await reader.unsubscribe()

    async def server_time(self, stream: str) -> float:
        """Return the seconds since 1970 by the clock of the server, which is in what it says of a stream."""
        await self.opened()
        answer = await self.client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=self._timeout)
        return msgspec.json.decode(answer.data, type=_Info).ts.timestamp()

    async def flush(self) -> None:
        """Return when the server has what was sent. Raises: an error of the library.

        The library stops reading if it gets the answer to a flush that was cut short, until it finds its connection stale. So one
        that takes too long goes on, at most until then.
        """
        flush: asyncio.Future[Any] = asyncio.ensure_future(self.client.flush(_STALE))
        self._flushes.add(flush)
        flush.add_done_callback(self._flushes.discard)
        done, _ = await asyncio.wait([flush], timeout=self._timeout)
        if not done:
            flush.add_done_callback(lambda late: late.cancelled() or late.exception())  # or asyncio logs the error
            raise self._library.errors.FlushTimeoutError
        flush.result()

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self.client is not None:
            await self.client.close()


async def _ignore(_: Exception) -> None:
    """Take errors that the library reports besides raising them."""
