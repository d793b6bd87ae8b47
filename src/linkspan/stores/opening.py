"""From a URL to a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from linkspan.errors import LinkspanError
from linkspan.stores.port import Store

__all__ = ["open_store"]


def open_store(url: str, *, store_key: bytes | str | None = None) -> Store:
    """Open the store of a URL; with a `store_key` its values are sealed.

    - `memory:` is for one process, and empty;
    - `sqlite:///var/lib/app/linkspan.db` is a file, named by its full path.

    Raises: LinkspanError for a URL of another form, or where a package is missing; StoreError if the store cannot be opened.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _OPENERS:
        raise LinkspanError(f"a store is given as {', '.join(_EXAMPLES)}; not as {scheme or url!r}")
    store = _OPENERS[scheme](url)
    if store_key is None:
        return store
    from linkspan.stores.sealed import SealedStore

    try:
        return SealedStore(store, store_key)
    except BaseException:
        store.close()
        raise


def _memory(_: str) -> Store:
    from linkspan.stores.memory import MemoryStore

    return MemoryStore()


def _sqlite(url: str) -> Store:
    from linkspan.stores.sqlite import SqliteStore

    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise LinkspanError(f"{url!r} is not the URL of a file: write sqlite:// and its full path, {_EXAMPLES[1]}")
    return SqliteStore(unquote(parts.path))


_EXAMPLES: Final = ("memory:", "sqlite:///var/lib/app/linkspan.db")
_OPENERS: Final[Mapping[str, Callable[[str], Store]]] = {"memory": _memory, "sqlite": _sqlite}
