"""`linkspan store rotate URL`: new keys for what the processes of a server seal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from linkspan.cli.main import parser_for
from linkspan.cli.session import WRONG_USE
from linkspan.errors import LinkspanError

__all__ = ["main"]

_UNREACHABLE = 3
_EPILOG = """example:
  linkspan store rotate redis://host:6379/0 --keep 3600

The new key seals half a minute later, when all processes have read it. Exit status: 0, 2 for a wrong command line, 3 if the store
cannot be opened."""


def main(arguments: Sequence[str]) -> int:
    """Put a new key for `requestState` in front of those of a store."""
    parser = parser_for("linkspan store", "Rotate the keys that the processes of a server share.", _EPILOG)
    parser.add_argument("action", choices=["rotate"], help="put a new key for requestState in front")
    parser.add_argument("url", metavar="URL", help="the store, as in Server(store=URL)")
    keep = "how long the old key still opens what it has sealed: request_state_ttl of the servers (3600)"
    parser.add_argument("--keep", type=float, default=3600.0, metavar="SECONDS", help=keep)
    parser.add_argument("--store-key-file", metavar="FILE", help="a file that holds the store_key of the servers")
    options = parser.parse_args(list(arguments))
    from linkspan.stores.key_ring import rotate_keys
    from linkspan.stores.opening import check_url, open_store
    from linkspan.stores.port import StoreError

    try:
        key = Path(options.store_key_file).read_bytes() if options.store_key_file else None
        check_url(options.url)
        store = open_store(options.url, store_key=key)
        try:
            count = rotate_keys(store, time.time(), options.keep)
        finally:
            store.close()
    except (LinkspanError, OSError) as problem:
        reason = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else problem
        print(f"linkspan store: {reason}", file=sys.stderr)
        return _UNREACHABLE if isinstance(problem, StoreError) else WRONG_USE
    older = f"; older keys that still open what they have sealed: {count - 1}" if count > 1 else ""
    print(f"a new key seals requestState{older}")
    return 0
