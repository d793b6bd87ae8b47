"""What one server shares with other processes: the store behind `Server(store=...)`, opened when it is first used."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, cast
from weakref import ref

from linkspan.errors import INTERNAL_ERROR, LinkspanError, RegistrationError, RemoteProtocolError
from linkspan.runtime.forks import ForkedLock, renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.serve.process_channel import ProcessChannel
from linkspan.server.configuration import Profile
from linkspan.stores.port import StoreError, store_time

if TYPE_CHECKING:
    from linkspan.serve.stored_once import StoredValue
    from linkspan.server.ports import SharedState
    from linkspan.server.request_state import RequestStateKeys
    from linkspan.stores.port import Store


_LONGEST: Final = 30 * 86400.0
"""Seconds for which values of `ctx.once` are stored at most: questions of tasks without a time to live have no end."""


class SharedStore:
    """The store of one server. A forked child connects anew: stores see to that themselves."""

    def __init__(self, profile: Profile, answerable: Callable[[], float]) -> None:
        """Open nothing yet. `answerable` returns for how many seconds a question of the server may be answered."""
        self._profile = profile
        self._lock = ForkedLock()
        self._store: Store | None = None
        self._in_workers = False
        self._answerable = answerable
        self._keys = StoredKeys(self.opened, answerable)
        self._channel = ProcessChannel(self.opened, lambda: profile.shared_name)

    def check(self) -> None:
        """Check what `store=` and `store_key=` were given. Raises: RegistrationError, LinkspanError."""
        given = self._profile.store
        if given is None:
            raise RegistrationError("store_key= seals what is in a store: pass store= too")
        if isinstance(given, str):
            from linkspan.stores.opening import check_url

            check_url(given)
        if self.is_shared:
            self._profile.sharing = self

    def use(self, url: str) -> None:
        """Take another store, before the first is used. Raises: LinkspanError."""
        self._profile.store = url
        self.check()

    def open(self) -> None:
        """Open the store, if one was given, so that a problem shows at the start. Raises: LinkspanError, StoreError."""
        self._check_engine()
        if self._profile.store is not None:
            _ = self.store
        if self.is_shared and self._profile.request_state_keys is None:
            self._keys.load()

    def _check_engine(self) -> None:
        """Refuse an engine whose workers cannot see the tasks: a private file of workers is not theirs either."""
        if (engine := self._profile.tasks) is None:
            return
        from linkspan.extensions.engine import WorkerEngine

        if isinstance(engine, WorkerEngine) and (self._profile.store is None or not self.is_shared):
            name = type(engine).__name__
            raise LinkspanError(f"tasks={name}(...) runs tasks in other processes: pass store=, which they share")

    @property
    def store(self) -> Store:
        """The store, opened when it is first used. Raises: LinkspanError, StoreError if it cannot be opened."""
        return self.opened()

    def opened(self) -> Store:
        """Return the store, a new one in memory where none was given. Raises: LinkspanError, StoreError if that fails."""
        if self._store is None:
            with self._lock:
                self._store = self._store or open_given(self._profile.store, self._profile.store_key)
        return self._store

    def is_secret(self, header: str) -> bool:
        """Return whether handlers do not see an HTTP header, nor any other process."""
        return header in self._profile.secret_headers

    @property
    def is_shared(self) -> bool:
        """Whether other processes can see what is in the store."""
        given = self._profile.store
        if given is None or isinstance(given, str):
            return self._in_workers or given not in (None, "memory:")
        from linkspan.stores.memory import MemoryStore

        return not isinstance(given, MemoryStore)

    @contextmanager
    def by_workers(self) -> Generator[None]:
        """Share with processes that are forked within the block: in a private file, unless a store was given.

        Raises: LinkspanError for a store in memory; StoreError.
        """
        if self._profile.store is not None:
            if not self.is_shared:
                raise LinkspanError("workers cannot share a store in memory: leave out store=, or pass another one")
            self._check_engine()
            self._keys.refresh()
            yield
            return
        from tempfile import TemporaryDirectory

        from linkspan.stores.sqlite import SqliteStore

        with TemporaryDirectory(prefix="linkspan-") as directory, _kept(directory):
            self._store, self._in_workers = SqliteStore(os.path.join(directory, "store.db")), True
            self._profile.sharing = self
            try:
                self._check_engine()
                self._keys.refresh()  # not open(): no thread of this process runs while it forks
                yield
            finally:
                self._store.close()
                self._store, self._in_workers, self._profile.sharing = None, False, None

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the store; by that of this machine while it cannot be asked."""
        try:
            return store_time(self.store)
        except StoreError:
            return time.time()

    # What connections use (server.configuration.Sharing).

    def keys(self) -> RequestStateKeys:
        """Return what seals `requestState` in all processes. Raises: RemoteProtocolError if the store cannot be reached."""
        try:
            return self._keys.load()
        except StoreError:
            problem = "Internal error: the store with the keys of requestState cannot be reached; try again later"
            raise RemoteProtocolError(INTERNAL_ERROR, problem) from None

    def claim_value(self, chain: str, key: str) -> StoredValue:
        """Return a value of `ctx.once`, or the right to make it; blocks. Raises: LocalProtocolError, RemoteProtocolError."""
        from linkspan.serve.stored_once import claim_value

        ttl = min(self._answerable(), _LONGEST)
        return claim_value(self.store, self._profile.shared_name, chain, key, ttl)

    def publish(self, data: bytes) -> None:
        """Send data to the other processes, in order, without waiting. Never raises."""
        self._channel.publish(data)

    def listen(self, receive: Callable[[bytes | None], object]) -> None:
        """Call `receive` from now on, in a thread, with what others publish, and with None where something may be missing."""
        self._channel.listen(receive)

    @property
    def is_listening(self) -> bool:
        """Whether what others publish arrives."""
        return self._channel.is_listening

    def wait_until_listening(self) -> None:
        """Wait, within bounds, until what others publish arrives."""
        self._channel.wait_until_listening()


class StoredKeys:
    """The keys of `requestState` in a store, as this process knows them: it reads them now and then."""

    def __init__(self, store: Callable[[], Store], answerable: Callable[[], float]) -> None:
        """Read nothing yet; `store` opens the store. The server uses keys for `answerable()` seconds."""
        self._store = store
        self._answerable = answerable
        self._secrets: list[bytes] = []
        self._keys: RequestStateKeys | None = None
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Read again, in a forked child, and go on with what the parent has read."""
        self._lock = threading.Lock()
        self._is_current = False

    def load(self) -> RequestStateKeys:
        """Return the keys: read them at the first time, and from then on in a thread. Raises: StoreError if none are known."""
        if self._is_current and self._keys is not None:
            return self._keys
        with self._lock:
            keys = self.refresh()
            if not self._is_current:
                with suppress(RuntimeError):  # the system has no more threads: the next use tries again
                    threading.Thread(target=_refresh, args=(ref(self),), name="linkspan-keys", daemon=True).start()
                    self._is_current = True
        return keys

    def refresh(self) -> RequestStateKeys:
        """Read the keys again, and return them; those that are known if the store fails. Raises: StoreError if none are."""
        from linkspan.server.request_state import RequestStateKeys
        from linkspan.stores.key_ring import read_keys, record_use

        try:
            secrets = read_keys(store := self._store(), now := store_time(store))
        except StoreError:
            if self._keys is None:
                raise
            return self._keys
        if self._keys is None or secrets != self._secrets:
            self._secrets, self._keys = secrets, RequestStateKeys(*secrets)
        with suppress(StoreError):  # what was read is of use without it; the next refresh tries again
            record_use(store, self._answerable(), now)
        return self._keys


def _refresh(reference: ref[StoredKeys]) -> None:
    """Read keys now and then, for as long as they are in use."""
    from linkspan.stores.key_ring import REFRESH

    unexpected = Unexpected("linkspan.server", "the keys of requestState could not be read again")
    while True:
        time.sleep(REFRESH)
        if (keys := reference()) is None:
            return
        try:
            keys.refresh()
        except LinkspanError:  # they are known, and stay as they are until the store works
            pass
        except Exception as error:
            unexpected.log(error)
        del keys


def open_given(given: str | SharedState | None, key: bytes | str | None) -> Store:
    """Return what `store=` and `store_key=` stand for. Raises: LinkspanError, StoreError."""
    from linkspan.stores.opening import open_store

    if given is None or isinstance(given, str):
        return open_store(given or "memory:", store_key=key)
    store = cast("Store", given)
    if key is None:
        return store
    from linkspan.stores.sealed import SealedStore

    return SealedStore(store, key)


@contextmanager
def _kept(directory: str) -> Generator[None]:
    """Lock a directory, so that systemd-tmpfiles, which removes old temporary files, passes over it."""
    if sys.platform == "win32":  # where nothing is removed while it is in use
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
