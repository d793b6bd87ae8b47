"""What the processes of one server tell each other, over a channel of their store, in threads of its own.

Law: no caller waits for the store, which may stand still. What cannot be sent or received becomes None at the other end, which
stands for anything that may have been missed.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from linkspan.runtime.forks import renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.stores.subscribers import pause_after
from linkspan.wire.values import key_of

if TYPE_CHECKING:
    from linkspan.stores.port import Store

_MOST: Final = 1000
"""Messages that wait at most: more of them become one None."""
_PATIENCE: Final = 5.0
"""Seconds that a listener waits for the subscription."""
_AT_EXIT: Final = 1.0
"""Seconds that a process waits at its end for what it has published."""
_ORIGIN: Final = 16


class ProcessChannel:
    """One channel for each server name. A process does not receive what it has published itself."""

    def __init__(self, store: Callable[[], Store], name: Callable[[], str]) -> None:
        """Neither publish nor listen yet; `store` opens the store, `name` is that of the server."""
        self._store = store
        self._name = name
        self._is_publishing = False
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Be as if never used, in a forked child: another process, with threads of its own."""
        if self._is_publishing:
            atexit.unregister(self._outbox.wait_until_empty)  # what waits in the parent is sent there
        self._origin = os.urandom(_ORIGIN)
        self._lock = threading.Lock()
        self._outbox: _Queue = _Queue()
        self._is_publishing = False
        self._inbox: _Queue | None = None
        self._tried = threading.Event()
        self.is_listening = False
        """Whether what others publish arrives."""

    def publish(self, data: bytes) -> None:
        """Send data to the other processes, in order, without waiting. Never raises."""
        self._outbox.put(data)
        if self._is_publishing:
            return
        with self._lock, suppress(RuntimeError):  # the system has no more threads: the next message tries again
            if not self._is_publishing:
                arguments = (self._outbox,)
                threading.Thread(target=self._publish_all, args=arguments, name="linkspan-out", daemon=True).start()
                self._is_publishing = True
                atexit.register(self._outbox.wait_until_empty, _AT_EXIT)

    def listen(self, receive: Callable[[bytes | None], object]) -> None:
        """Call `receive` from now on, in a thread, with what others publish, and with None where something may be missing."""
        if self._inbox is not None:
            return
        with self._lock, suppress(RuntimeError):  # the system has no more threads: the next to listen tries again
            if self._inbox is None:
                arguments = (inbox := _Queue(), receive)
                threading.Thread(target=self._listen, args=arguments, name="linkspan-in", daemon=True).start()
                self._inbox = inbox

    def wait_until_listening(self) -> None:
        """Wait until what others publish arrives, or the first attempt has failed: it arrives later then, after a None."""
        self._tried.wait(_PATIENCE)

    @property
    def _channel(self) -> str:
        return f"changes/{key_of(self._name())}"

    def _publish_all(self, outbox: _Queue) -> None:
        while True:
            data, failures = outbox.get(), 0
            while True:
                try:
                    self._store().publish(self._channel, self._origin + (data or b""))
                    break
                except Exception as problem:
                    data, failures = None, _pause(problem, failures)
            outbox.done()

    def _listen(self, inbox: _Queue, receive: Callable[[bytes | None], object]) -> None:
        origin, failures = self._origin, 0

        def deliver(data: bytes | None) -> None:
            if data is None or not data.startswith(origin):
                inbox.put(data[_ORIGIN:] or None if data is not None else None)

        while not self.is_listening:
            try:
                self._store().subscribe(self._channel, deliver)
                self.is_listening = True
                self._tried.set()
            except Exception as problem:
                self._tried.set()
                failures = _pause(problem, failures)
        if failures:
            inbox.put(None)
        unexpected = Unexpected("linkspan.server", "a change of another process was not announced")
        while True:
            try:
                receive(inbox.get())
            except Exception as error:
                unexpected.log(error)  # no rest: each change is another matter


class _Queue:
    """Messages between threads, up to a bound: beyond it they become one None."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[bytes | None] = deque()
        self._is_busy = False

    def put(self, message: bytes | None) -> None:
        """Add a message."""
        with self._changed:
            if len(self._messages) >= _MOST:
                self._messages.clear()
                message = None
            self._messages.append(message)
            self._changed.notify_all()

    def get(self) -> bytes | None:
        """Wait for a message; it is in work until `done`."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages)
            self._is_busy = True
            return self._messages.popleft()

    def done(self) -> None:
        """End the work on a message."""
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()

    def wait_until_empty(self, timeout: float) -> None:
        """Wait until there is neither a message nor work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._messages and not self._is_busy, timeout)


def _pause(problem: Exception, failures: int) -> int:
    """Wait before the next attempt; return how many have failed by now."""
    if not failures:
        warning = "changes do not reach other processes, or do not come from them, until the store works again: %s"
        logging.getLogger("linkspan.server").warning(warning, problem)
    time.sleep(pause_after(failures + 1))
    return failures + 1
