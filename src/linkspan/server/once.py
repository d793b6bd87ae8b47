"""What a chain of rounds has done already: a replayed `requestState` gets the same values and repeats no side effect.

In the memory of this process, for as long as a state of the chain is valid, and for a bounded number of chains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from linkspan.errors import LocalProtocolError
from linkspan.server.observation import warn
from linkspan.server.profile import Profile, System

__all__ = ["Chain", "Chains"]


class Chain:
    """The values of one chain of rounds: of one request of a client, however often it comes back for the next round."""

    __slots__ = ("_lock", "_running", "_system", "_values")

    def __init__(self, system: System) -> None:
        """Begin without values."""
        self._system = system
        self._lock = system.lock()
        self._values: dict[str, object] = {}
        self._running: set[str] = set()

    def once(self, key: str, function: Callable[[], object]) -> object:
        """Return the value that `function` gave for `key` in this chain; run it if it has not returned one yet.

        A concurrent replay waits for it. Where it returns an awaitable, that runs in a task of its own, and the value is an
        awaitable too, for each caller. What raises is not remembered. Raises: LocalProtocolError for a call within itself.
        """
        with self._lock:  # held while a plain function runs: another thread with the same state waits here
            if key in self._values:
                return self._values[key]
            if key in self._running:
                raise LocalProtocolError(f"ctx.once({key!r}) is called by its own function: use another key in there")
            self._running.add(key)
            try:
                value = function()
            finally:
                self._running.discard(key)
            if hasattr(type(value), "__await__"):
                return self._share(key, value)
            self._values[key] = value
            return value

    def _share(self, key: str, awaitable: Any) -> object:
        shared = _Shared()
        self._values[key] = shared
        kept = self._kept(key, awaitable)
        try:
            shared.outcome = self._system.share(kept)
        except RuntimeError:
            del self._values[key]
            for each in (kept, awaitable):
                getattr(each, "close", _nothing)()
            raise LocalProtocolError(
                f"ctx.once({key!r}) got an async function where no event loop runs: make the handler async too"
            ) from None
        return shared

    async def _kept(self, key: str, awaitable: Awaitable[object]) -> object:
        try:
            return await awaitable
        except BaseException:
            with self._lock:
                self._values.pop(key, None)
            raise


class _Shared:
    """A value that is on its way; any number of callers may await it, on any event loop."""

    __slots__ = ("outcome",)

    outcome: Callable[[], Awaitable[object]]

    def __await__(self) -> Generator[Any, Any, object]:
        return self.outcome().__await__()


class Chains:
    """The chains of one server, the one that was used longest ago first."""

    def __init__(self, profile: Profile, system: System) -> None:
        """Keep as many as the limits of `profile` allow, each as long as its states are valid."""
        self._profile = profile
        self._system = system
        self.lock = system.lock()
        self._chains: dict[str, tuple[float, Chain]] = {}
        self._warned: set[str] = set()
        self.shared_address = False
        """Whether other processes serve the same clients: then a replay may reach one that knows nothing of the chain."""

    def open(self, chain_id: str | None) -> Chain:
        """Return the chain that a state names, or a new one for a request without a state."""
        if self.shared_address:
            self._warn_once(
                "ctx.once remembers its values within one process, and several workers serve here: a replay that reaches "
                "another worker runs the function again. Keep what must happen once in a database, or use workers=1"
            )
        return Chain(self._system) if chain_id is None else self.keep(chain_id)

    def keep(self, chain_id: str, chain: Chain | None = None) -> Chain:
        """Remember a chain until the states that name it have expired, and return the one that is remembered."""
        now = self._system.wall_clock()
        with self.lock:
            _, kept = self._chains.pop(chain_id, (0.0, chain or Chain(self._system)))
            self._chains[chain_id] = now + self._profile.request_state_ttl, kept
            while (oldest := next(iter(self._chains.items())))[1][0] <= now and oldest[0] != chain_id:
                del self._chains[oldest[0]]
            if len(self._chains) > self._profile.limits.max_once:
                del self._chains[oldest[0]]
                self._warn_once(
                    "ctx.once forgot its oldest values before their time: more requests than max_once have used it"
                )
        return kept

    def __len__(self) -> int:
        return len(self._chains)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)


def _nothing() -> None:
    """Stand in for the `close` that an awaitable does not have."""
