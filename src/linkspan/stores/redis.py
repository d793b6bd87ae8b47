"""A store in Redis or Valkey, for several machines. Each operation on a record or a log is one script, which runs alone.

All names begin with the namespace in braces, so that in a cluster everything is in one slot, as scripts need it. A connection
that was lost is opened anew; subscribers hear None then, since channels keep nothing.
Spec: https://redis.io/docs/latest/develop/programmability/eval-intro/
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from linkspan.errors import LinkspanError, import_problem
from linkspan.runtime.forks import keep, renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.stores.clock import StoreClock
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
from linkspan.stores.subscribers import MISSED, Subscribers, pause_after

_WAIT: Final = 0.5
"""Seconds after which the thread of the subscribers looks whether it is still needed."""

_NO_TIME: Final = (
    "the user of the store in Redis may not ask for the time: allow it with +time, or keep all clocks in agreement"
)

# Versions and positions are below 2^48, so that the numbers of Lua hold them.
_PUT: Final = """
local old, expect = redis.call('HGET', KEYS[1], 'version'), ARGV[1]
if expect ~= '' and expect ~= (old or '0') then return false end
local version = old and old + 1 or tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version), 'value', ARGV[3])
if ARGV[4] == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return version
"""
_DELETE: Final = """
local old, expect = redis.call('HGET', KEYS[1], 'version'), ARGV[1]
if not old or (expect ~= '' and expect ~= old) then return 0 end
return redis.call('DEL', KEYS[1])
"""
_APPEND: Final = """
local last = redis.call('HGET', KEYS[2], 'last')
last = last and last + 1 or tonumber(ARGV[1])
redis.call('XADD', KEYS[1], string.format('%.0f-0', last), 'data', ARGV[2])
local bytes = redis.call('HINCRBY', KEYS[2], 'bytes', #ARGV[2])
local count = redis.call('XLEN', KEYS[1])
while count > 1 and (count > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    redis.call('XDEL', KEYS[1], oldest[1])
    bytes, count = bytes - #oldest[2][2], count - 1
end
redis.call('HSET', KEYS[2], 'last', string.format('%.0f', last), 'bytes', string.format('%.0f', bytes))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return last
"""


def library() -> Any:
    """Return the client library. Raises: LinkspanError where it is missing."""
    try:
        import redis
    except ImportError as error:
        raise LinkspanError(import_problem("a store in Redis needs redis-py", "redis", error)) from None
    return redis


class RedisStore:
    """The store. Its times to live are those of the server's clock."""

    quick = False

    def __init__(self, url: str, *, namespace: str = "linkspan", timeout: float = 5.0) -> None:
        """Connect to `redis://` or `rediss://`; wait `timeout` seconds for each answer.

        Raises: LinkspanError where redis-py is missing, StoreError where the server cannot be reached.
        """
        redis = library()
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        times = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "health_check_interval": 15}
        self._open: Callable[[], Any] = lambda: redis.Redis.from_url(url, **times)
        self._prefix = f"{{{namespace}}}:"
        self._timeout = timeout
        self._refused: type[Exception] = redis.exceptions.NoPermissionError
        self._has_no_time = False
        self._clock = StoreClock(self._ask_time)
        self._closed = False
        self._client: Any = None
        self.start_afresh()
        renew(self)
        self._do(lambda client: client.ping())

    def start_afresh(self) -> None:
        """Be without connections and subscribers: in a forked child they are the parent's."""
        if self._client is not None:
            keep(self._client)
        self._client = self._open()
        self._lock = threading.Lock()
        self._subscribers = Subscribers()
        self._listener: _RedisListener | None = None
        self._put, self._delete, self._append = map(self._client.register_script, (_PUT, _DELETE, _APPEND))

    def _do(self, operation: Callable[[Any], Any]) -> Any:
        if self._closed:
            raise StoreError("the store was closed")
        try:
            found = operation(self._client)
        except self._errors as problem:
            raise StoreError(f"the store in Redis failed: {problem}") from None
        with suppress(StoreError):  # the operation was carried out
            self._clock.refresh()
        return found

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the server."""
        return self._clock.now()

    def _ask_time(self) -> float:
        if self._has_no_time:
            return time.time()
        try:
            seconds, microseconds = self._client.time()
        except self._refused:
            self._has_no_time = True
            logging.getLogger("linkspan.stores").warning(_NO_TIME)
            return time.time()
        except self._errors as problem:
            raise StoreError(f"the store in Redis failed: {problem}") from None
        return float(seconds + microseconds / 1e6)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}:{name}"

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes, the same for every process."""
        return shared_secret(self, name)

    def get(self, key: str) -> Record | None:
        """Return a record."""
        value, version = self._do(lambda client: client.hmget(self._key("record", key), "value", "version"))
        return Record(value, int(version)) if version is not None else None

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record under compare-and-set."""
        values = ["" if expect is None else expect, first_number(), value, "" if ttl is None else _milliseconds(ttl)]
        version: int | None = self._do(lambda _: self._put([self._key("record", key)], values))
        return version

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record."""
        return bool(self._do(lambda _: self._delete([self._key("record", key)], ["" if expect is None else expect])))

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key be due at a time."""
        name = self._key("queue", queue)
        self._do(lambda client: client.zrem(name, key) if at is None else client.zadd(name, {key: at}))

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due."""
        found = self._do(lambda client: client.zrangebyscore(self._key("queue", queue), "-inf", now, 0, limit))
        return [each.decode() for each in found]

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log, and drop what is beyond its bounds."""
        keys = [self._key("log", log), self._key("log-end", log)]
        values = [first_number(), data, bounds.items, bounds.bytes, _milliseconds(bounds.ttl)]
        position: int = self._do(lambda _: self._append(keys, values))
        return position

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position."""
        found = self._do(lambda client: client.xrange(self._key("log", log), f"{after + 1}-0"))
        return [Entry(int(position.split(b"-")[0]), fields[b"data"]) for position, fields in found]

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed, in every process."""
        self._do(lambda client: client.publish(self._key("channel", channel), data))

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on."""
        with self._lock:
            listener = self._listener = self._listener or _RedisListener(
                self._open(), self._errors, self._prefix, self._subscribers
            )
            is_first = channel not in self._subscribers.channels()
            self._subscribers.add(channel, receive)

        def leave() -> None:
            with self._lock:
                if self._subscribers.remove(channel, receive) and self._listener is listener:
                    listener.leave(channel)
                    if not self._subscribers:
                        listener.stopped.set()
                        self._listener = None

        try:
            self._do(lambda _: listener.join(channel, self._timeout, subscribe=is_first))
        except BaseException:
            leave()
            raise
        return leave

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            self._subscribers.clear()
            if self._listener is not None:
                self._listener.stopped.set()
            self._client.close()


class _RedisListener:
    """Receives messages in a thread, on a connection of its own, which it opens again when it is lost."""

    def __init__(self, client: Any, errors: tuple[type[Exception], ...], prefix: str, subscribers: Subscribers) -> None:
        """Begin without channels. Raises: an error of redis-py."""
        self._errors = errors
        self._prefix = f"{prefix}channel:"
        self._subscribers = subscribers
        self.stopped = threading.Event()
        """Set to end the thread soon."""
        self._confirmed = threading.Condition()
        self._channels: set[str] = set()
        """Those that the server has confirmed."""
        self._pubsub = client.pubsub()
        self._thread: threading.Thread | None = None

    def join(self, channel: str, timeout: float, *, subscribe: bool) -> None:
        """Return when the server has confirmed a subscription: what is published from then on arrives.

        `subscribe` requests it; without, another thread has. Raises: an error of redis-py, OSError.
        """
        with self._confirmed:
            if subscribe:
                self._channels.discard(channel)
                self._pubsub.subscribe(self._prefix + channel)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="linkspan-store", daemon=True)
                thread.start()  # before it is known: the next subscription tries again where it cannot be started
                self._thread = thread
            if not self._confirmed.wait_for(lambda: channel in self._channels, timeout):
                raise OSError(f"the subscription was not confirmed within {timeout:g} s")

    def leave(self, channel: str) -> None:
        """End the subscription to a channel."""
        with self._confirmed, suppress(*self._errors):
            self._channels.discard(channel)
            self._pubsub.unsubscribe(self._prefix + channel)

    def _run(self) -> None:
        failures, unexpected = 0, Unexpected("linkspan.stores", MISSED)
        while not self.stopped.is_set():
            try:
                message = self._pubsub.get_message(timeout=_WAIT)  # it subscribes again where it connects again
                failures = 0
                if message is not None:
                    self._receive(message)
            except self._errors:
                failures += 1
                self.stopped.wait(pause_after(failures))
            except Exception as error:
                self.stopped.wait(unexpected.log(error))
                self._subscribers.missed()
        self._pubsub.close()  # with its connection, the only one of its client

    def _receive(self, message: Any) -> None:
        """Take a message or a confirmation; a second one of the same channel follows a connection that was lost."""
        channel = message["channel"].decode().removeprefix(self._prefix)
        if message["type"] == "message":
            self._subscribers.deliver(channel, message["data"])
        elif message["type"] == "subscribe":
            if channel in self._channels:
                self._subscribers.deliver(channel, None)
            with self._confirmed:
                self._channels.add(channel)
                self._confirmed.notify_all()


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
