"""Where logins are kept: in the keyring of the system, or in files that only this user can read.

A key is a tuple of texts without secrets, such as a server's URL, or issuer, client and resource. Each has a small file of its
own, named by a hash: it lists the key, so that all logins can be found, and holds the value unless the keyring does. The
directory has mode 0700 and its files 0600; a file is replaced by renaming, so that a reader sees the old value or the new one.
`lock` holds across threads and processes, for a token that only one of them may refresh.
"""

from __future__ import annotations

import os
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from linkspan.runtime.forks import point_to_devnull, renew
from linkspan.runtime.shared_files import read_shared, remove_shared, replace_shared, unlock, wait_for_lock

if TYPE_CHECKING:
    from linkspan.auth.identities import LoginKeeper

Key: TypeAlias = tuple[str, ...]

_SERVICE: Final = "linkspan"
_LONGEST_LOCK: Final = 120.0
"""Seconds after which a lock is not waited for any longer: its holder has more than the time of all its requests."""


class Keyring(Protocol):
    """What is used of a backend of the package `keyring`."""

    def get_password(self, service: str, username: str) -> str | None:
        """Return a secret."""
        ...

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep a secret."""
        ...

    def delete_password(self, service: str, username: str) -> None:
        """Forget a secret."""
        ...


class _VaultEntry(msgspec.Struct, frozen=True):
    """The contents of one file; `value` is None where the keyring has it."""

    key: Key
    value: bytes | None


_read = msgspec.json.Decoder(_VaultEntry)


def home() -> Path:
    """Return the directory of the logins of this user, whether it exists or not."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Application Support"
        else:
            base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError:  # this user has no home directory: nothing can be kept below a device
        base = Path(os.devnull)
    return base / "linkspan" / "logins"


def system_keyring() -> Keyring | None:
    """Return the keyring of the system; None if there is none, or only a stand-in that encrypts nothing."""
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore

        backend: Any = keyring.get_keyring()  # pyright: ignore
        return backend if all(map(_is_real, getattr(backend, "backends", None) or [backend])) else None
    except Exception:  # a backend that cannot even be asked is not used
        return None


def _is_real(backend: Any) -> bool:
    """Return whether a backend is recommended by its authors; what stores plain text, or nothing, has a lower priority."""
    return backend.priority >= 1 and not type(backend).__module__.startswith("keyrings.alt")


class Vault:
    """The logins of one user. Any thread, any number of processes."""

    def __init__(self, directory: Path | None = None, keyring: Callable[[], Keyring | None] = system_keyring) -> None:
        """Use `directory`, by default that of this user; nothing is created before something is kept."""
        self._directory = directory or home()
        self._find_keyring = keyring
        self._keyrings: list[Keyring | None] = []
        self._unkept: dict[Key, bytes | None] = {}
        """What could not be written, for as long as this process lives."""
        self._locks: set[int] = set()
        """Descriptors of the files that are locked, or waited for."""

    def __repr__(self) -> str:
        """Return the place; never what is in it."""
        return f"<{type(self).__name__} {str(self._directory)!r}>"

    def start_afresh(self) -> None:
        """In a forked child: hold none of the parent's locks, which would outlive the parent otherwise."""
        point_to_devnull(self._locks)
        self._locks = set()

    def has(self, key: Key) -> bool:
        """Return whether anything is kept under a key."""
        return self._unkept.get(key) is not None or self._path(key).exists()

    def load(self, key: Key) -> bytes | None:
        """Return what is kept under a key, if anything is."""
        if key in self._unkept:
            return self._unkept[key]
        entry = _entry(self._path(key))
        if entry is None or entry.key != key:
            return None
        if entry.value is not None or (keyring := self._keyring()) is None:
            return entry.value
        try:
            found = keyring.get_password(_SERVICE, self._name(key))
            return b64decode(found) if found is not None else None
        except Exception as error:  # locked, or out of order: a login will be asked for
            _warn("a login could not be read from the keyring: %s", type(error).__name__)
            return None

    def save(self, key: Key, value: bytes | None) -> None:
        """Keep a value, on disk when this returns, or delete it; keep it for this process if it cannot be written."""
        try:
            if value is not None:
                self._write(key, None if self._into_keyring(key, value) else value)
            else:
                if (keyring := self._keyring()) is not None:
                    with suppress(Exception):  # it may be in the file only
                        keyring.delete_password(_SERVICE, self._name(key))
                remove_shared(self._path(key))
            self._unkept.pop(key, None)
        except OSError as error:
            self._unkept[key] = value
            _warn(
                "a login could not be stored, and is forgotten when this process ends: %s",
                error.strerror or "no reason",
            )

    def all_keys(self) -> list[Key]:
        """Return all keys."""
        try:
            files = sorted(self._directory.glob("*.json"))
        except OSError:
            return []
        return [entry.key for file in files if (entry := _entry(file)) is not None]

    def lock(self, key: Key, patience: float = _LONGEST_LOCK) -> Callable[[], None]:
        """Lock a key across threads and processes; return what unlocks it. Not reentrant. Raises: TimeoutError."""
        try:
            self._make_directory()
            fd = os.open(self._path(key).with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # nothing is shared where nothing can be written
            return lambda: None
        renew(self)
        self._locks.add(fd)
        try:
            wait_for_lock(fd, patience)
        except TimeoutError:
            self._unlock(fd)
            raise TimeoutError("another process held this login for too long") from None
        return lambda: self._unlock(fd)

    def _unlock(self, fd: int) -> None:
        """Unlock a file, also where a child that was forked meanwhile has a copy of its descriptor."""
        if fd in self._locks:
            self._locks.discard(fd)
            unlock(fd)
            os.close(fd)

    def _name(self, key: Key) -> str:
        import hashlib  # not before there is a login: a client without one loads this module to find that out

        return hashlib.sha256("\0".join(key).encode()).hexdigest()[:40]

    def _path(self, key: Key) -> Path:
        return self._directory / f"{self._name(key)}.json"

    def _keyring(self) -> Keyring | None:
        if not self._keyrings:
            self._keyrings = [self._find_keyring()]
        return self._keyrings[0]

    def _into_keyring(self, key: Key, value: bytes) -> bool:
        """Return whether the keyring has taken a value; some have room for short ones only."""
        keyring = self._keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(_SERVICE, self._name(key), b64encode(value).decode())
        except Exception:
            return False
        return True

    def _write(self, key: Key, value: bytes | None) -> None:
        """Replace the file of a key by one that is complete on disk."""
        import tempfile

        self._make_directory()
        fd, beside = tempfile.mkstemp(dir=self._directory)  # mode 0600
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(_VaultEntry(key, value)))
                file.flush()
                os.fsync(file.fileno())
            replace_shared(Path(beside), self._path(key))
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise

    def _make_directory(self) -> None:
        """Make sure that the directory is ours, and closed to others. Raises: OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform == "win32":
            return  # a user's own directory is closed to others there
        found = os.stat(self._directory)
        if found.st_uid != os.geteuid():
            raise PermissionError(0, "the directory of logins belongs to another user")
        if found.st_mode & 0o077:
            os.chmod(self._directory, 0o700)


class ProgramVault:
    """The logins that a program keeps by itself, where nothing of this user is read or written. Any thread, one process."""

    def __init__(self, keeper: LoginKeeper) -> None:
        """Load from `keeper`, and save to it."""
        self.load = keeper.load
        self.save = keeper.save
        self._locks: dict[Key, threading.Lock] = {}

    def lock(self, key: Key, patience: float = _LONGEST_LOCK) -> Callable[[], None]:
        """Lock a key across threads; return what unlocks it. Not reentrant. Raises: TimeoutError."""
        lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(timeout=patience):
            raise TimeoutError("another thread held this login for too long")
        return lock.release


def _entry(path: Path) -> _VaultEntry | None:
    try:
        return _read.decode(read_shared(path))
    except (OSError, msgspec.DecodeError):
        return None


def _warn(text: str, *about: object) -> None:
    import logging

    logging.getLogger("linkspan").warning(text, *about)
