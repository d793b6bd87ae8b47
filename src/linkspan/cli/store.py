"""`linkspan store`: new keys for what the processes of a server seal, and the tables of their store."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from math import inf
from pathlib import Path

from linkspan.cli.main import parser_for
from linkspan.cli.session import WRONG_USE
from linkspan.errors import LinkspanError

_UNREACHABLE = 3
_KEPT = 3600.0
"""Seconds, where no server has noted for how long it needs old keys: the default of `request_state_ttl`."""
_EPILOG = """examples:
  linkspan store rotate redis://host:6379/0
  linkspan store schema postgresql://host/database

The new key seals half a minute later, when all processes have read it. Exit status: 0, 2 for a wrong command line, 3 if the store
cannot be opened."""

_TOO_SHORT = (
    "--keep {:g} is too short: questions of the servers may be answered {} (request_state_ttl, and the ttl of tasks), "
    "and fail without the key. Leave out --keep, or add --force to give them up"
)


def main(arguments: Sequence[str]) -> int:
    """Put a new key for `requestState` in front of those of a store, or print the statements that make its tables."""
    parser = parser_for(
        "linkspan store", "Rotate the keys that the processes of a server share, or print tables.", _EPILOG
    )
    about = "rotate: put a new key for requestState in front; schema: print the SQL that makes the tables in PostgreSQL"
    parser.add_argument("action", choices=["rotate", "schema"], help=about)
    parser.add_argument("url", metavar="URL", help="the store, as in Server(store=URL)")
    about = (
        "how long the old key still opens what it has sealed: as long as its servers may need it, as they have noted"
    )
    parser.add_argument("--keep", type=float, metavar="SECONDS", help=about)
    about = "take a shorter --keep than the servers need, as after a leak: what is answered later than that fails"
    parser.add_argument("--force", action="store_true", help=about)
    parser.add_argument("--store-key-file", metavar="FILE", help="a file that holds the store_key of the servers")
    options = parser.parse_args(list(arguments))
    try:
        print(_schema(options.url) if options.action == "schema" else _rotated(options))
    except (LinkspanError, OSError) as problem:
        reason = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else problem
        print(f"linkspan store: {reason}", file=sys.stderr)
        from linkspan.stores.port import StoreError

        return _UNREACHABLE if isinstance(problem, StoreError) else WRONG_USE
    return 0


def _schema(url: str) -> str:
    from linkspan.stores.opening import schema_of

    return schema_of(url).rstrip()


def _rotated(options: Namespace) -> str:
    """Put a new key in front, and return what was done. Raises: LinkspanError, StoreError, OSError."""
    from linkspan.stores.key_ring import longest_use, rotate_keys
    from linkspan.stores.opening import check_url, open_store
    from linkspan.stores.port import store_time

    key = Path(options.store_key_file).read_bytes() if options.store_key_file else None
    check_url(options.url)
    store = open_store(options.url, store_key=key)
    try:
        needed = longest_use(store, now := store_time(store))
        keep: float = options.keep if options.keep is not None else _KEPT if needed is None else needed
        if needed is not None and keep < needed and not options.force:
            needs = "for ever" if needed == inf else f"for {needed:g} s"
            raise LinkspanError(_TOO_SHORT.format(keep, needs))
        count = rotate_keys(store, now, keep)
    finally:
        store.close()
    older = f"; older keys that still open what they have sealed: {count - 1}" if count > 1 else ""
    return f"a new key seals requestState{older}"
