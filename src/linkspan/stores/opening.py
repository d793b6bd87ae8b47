"""From a URL to a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from linkspan.errors import LinkspanError
from linkspan.plugins import STORES, added, names_added
from linkspan.runtime.forks import NO_FORK
from linkspan.stores.port import Store


def open_store(url: str, *, store_key: bytes | str | None = None) -> Store:
    """Open the store of a URL; with a `store_key` its values are sealed.

    - `memory:` is for one process, and empty;
    - `sqlite:///var/lib/app/linkspan.db` is a file, named by its full path;
    - `redis://host:6379/0`, or `rediss://` with TLS, is a server of Redis or Valkey;
    - `postgresql://user@host/database` is a database of PostgreSQL;
    - `nats://host:4222` is a server of NATS with JetStream.

    Any other scheme may come from another distribution: an entry point of the group "linkspan.stores" with the name of the
    scheme is a function that gets the URL and returns a `Store`.

    `?namespace=name` keeps what is in a server apart from other applications; without it the name is "linkspan".

    Raises: LinkspanError for a URL of another form, or where a package is missing; StoreError if the store cannot be opened.
    """
    scheme = _scheme(url)
    try:
        with NO_FORK:  # it loads modules
            store = (_OPENERS.get(scheme) or added(STORES, scheme))(url)
    except ValueError:  # its text may contain a part of a password
        raise LinkspanError(_INVALID) from None
    if store_key is None:
        return store
    from linkspan.stores.sealed import SealedStore

    try:
        return SealedStore(store, store_key)
    except BaseException:
        store.close()
        raise


def check_url(url: str) -> None:
    """Check a URL as far as that goes without a connection. Raises: LinkspanError, also where a package is missing."""
    scheme = _scheme(url)
    if scheme in _ADAPTERS:
        import_module(f"linkspan.stores.{_ADAPTERS[scheme]}").library()
    elif scheme not in _OPENERS:
        added(STORES, scheme)


def schema_of(url: str) -> str:
    """Return the statements of SQL that make the tables of the store of a URL, without a connection. Raises: LinkspanError."""
    if _scheme(url) != "postgresql":
        raise LinkspanError(
            "only a store in PostgreSQL has tables to make; all others are made when they are first used"
        )
    from linkspan.stores.postgres import schema

    _, options = _with_namespace(url)
    return "".join(f"{statement};\n" for statement in schema(**options).values())


def _scheme(url: str) -> str:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        raise LinkspanError(_INVALID) from None
    if scheme not in _OPENERS and scheme not in (others := names_added(STORES)):
        examples = (*_EXAMPLES, *(f"{each}:..." for each in others))
        raise LinkspanError(f"a store is given as {', '.join(examples)}; not as {scheme or url!r}")
    return scheme


def _memory(_: str) -> Store:
    from linkspan.stores.memory import MemoryStore

    return MemoryStore()


def _sqlite(url: str) -> Store:
    from linkspan.stores.sqlite import SqliteStore

    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise LinkspanError(f"{url!r} is not the URL of a file: write sqlite:// and its full path, {_EXAMPLES[1]}")
    path = unquote(parts.path)
    return SqliteStore(path[1:] if os.name == "nt" and path[2:3] == ":" else path)  # sqlite:///C:/folder/linkspan.db


def _redis(url: str) -> Store:
    from linkspan.stores.redis import RedisStore

    address, options = _with_namespace(url)
    return RedisStore(address, **options)


def _postgres(url: str) -> Store:
    from linkspan.stores.postgres import PostgresStore

    address, options = _with_namespace(url)
    return PostgresStore(address, **options)


def _nats(url: str) -> Store:
    from linkspan.stores.nats import NatsStore

    address, options = _with_namespace(url)
    return NatsStore(address, **options)


def _with_namespace(url: str) -> tuple[str, dict[str, Any]]:
    """Return a URL without our own parameter, and that as a keyword."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    others = urlencode([(name, value) for name, value in given if name != "namespace"])
    return urlunsplit(parts._replace(query=others)), {name: value for name, value in given if name == "namespace"}


_INVALID: Final = "the URL of the store is invalid: check its host and port, and percent-encode its password"
_EXAMPLES: Final = (
    "memory:",
    "sqlite:///var/lib/app/linkspan.db",
    "redis://host:6379/0",
    "postgresql://user@host/database",
    "nats://host:4222",
)
_ADAPTERS: Final = {"redis": "redis", "rediss": "redis", "postgresql": "postgres", "nats": "nats"}
"""The modules of those that need a package."""
_OPENERS: Final[Mapping[str, Callable[[str], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "postgresql": _postgres,
    "nats": _nats,
}
