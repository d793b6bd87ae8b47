"""State that several processes share: records under compare-and-set, schedules, logs and channels, behind one port.

    from linkspan.stores import open_store

    store = open_store("sqlite:///var/lib/app/linkspan.db")
    version = store.put("seats", b"20")
    store.put("seats", b"19", expect=version)

`Store` is the port, and `linkspan.testing.check_store` its contract, for stores of your own too. Names are loaded when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.stores.leases import Lease as Lease
    from linkspan.stores.leases import Leased as Leased
    from linkspan.stores.leases import amend as amend
    from linkspan.stores.leases import claim as claim
    from linkspan.stores.leases import create as create
    from linkspan.stores.leases import look as look
    from linkspan.stores.memory import MemoryStore as MemoryStore
    from linkspan.stores.opening import open_store as open_store
    from linkspan.stores.port import ABSENT as ABSENT
    from linkspan.stores.port import Bounds as Bounds
    from linkspan.stores.port import Entry as Entry
    from linkspan.stores.port import Record as Record
    from linkspan.stores.port import Store as Store
    from linkspan.stores.port import StoreError as StoreError
    from linkspan.stores.sealed import SealedStore as SealedStore
    from linkspan.stores.sqlite import SqliteStore as SqliteStore

__all__ = [
    "ABSENT",
    "Bounds",
    "Entry",
    "Lease",
    "Leased",
    "MemoryStore",
    "Record",
    "SealedStore",
    "SqliteStore",
    "Store",
    "StoreError",
    "amend",
    "claim",
    "create",
    "look",
    "open_store",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "leases": ("Lease", "Leased", "amend", "claim", "create", "look"),
        "memory": ("MemoryStore",),
        "opening": ("open_store",),
        "port": ("ABSENT", "Bounds", "Entry", "Record", "Store", "StoreError"),
        "sealed": ("SealedStore",),
        "sqlite": ("SqliteStore",),
    },
)
