"""A shop: what a real server needs beside its tools. See docs/around-a-call.md and the pages it names.

    python examples/shop.py                                 stdio
    uvicorn --app-dir examples shop:app                     ASGI; `wsgi` is the same for gunicorn
    linkspan call examples/shop.py stock item=apple

A lifespan opens the database once, dependencies give it to handlers, a guard may deny, some tools are for managers only, others
have limits or a process of their own. With `opentelemetry-sdk` installed and SHOP_TRACES set, spans go to stderr.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from typing import Annotated

from linkspan import Audit, Call, Context, Depends, Server, ToolError

SCHEMA = """
CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER, price REAL);
CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT, pieces INTEGER);
INSERT INTO stock VALUES ('apple', 40, 0.5), ('pear', 3, 0.75);
INSERT INTO orders VALUES (1, 'pear', 2);
"""


class Database:
    """SQLite, for the worker threads of all calls: one at a time, each in a transaction."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, check_same_thread=False)
        self.connection.executescript(SCHEMA)
        self.lock = threading.Lock()


def open_database() -> Iterator[Database]:
    """Open the database when the first call comes, and close it when the server ends."""
    database = Database(":memory:")
    yield database
    database.connection.close()


server = Server("shop", version="1.0.0", instructions="Look at the stock before ordering.", lifespan=open_database)


def transaction(database: Database) -> Iterator[sqlite3.Connection]:
    """Give a handler the connection; commit if it succeeds, and roll back if it fails or is cancelled."""
    with database.lock, database.connection:
        yield database.connection


Sql = Annotated[sqlite3.Connection, Depends(transaction)]


def is_manager(ctx: Context) -> bool:
    """Trust who started this process, and over HTTP the header that a gateway sets. With logins, ask `ctx.principal`."""
    return not ctx.headers or ctx.headers.get("x-shop-role") == "manager"


closed_for_stocktaking = threading.Event()
server.middleware(only=["tools/call"])(Audit("shop.audit"))


@server.middleware(only=["tools/call"])
def guard(call: Call) -> Iterator[None]:
    """Sell nothing during the stocktaking."""
    if closed_for_stocktaking.is_set() and call.name == "order":
        raise ToolError("The shop is closed for stocktaking; try again later", retry_after=60)
    return (yield)


@server.tool
def stock(item: str, sql: Sql) -> int:
    """Return how many pieces of an item there are."""
    row = sql.execute("SELECT pieces FROM stock WHERE item = ?", [item]).fetchone()
    if row is None:
        raise ToolError(f"There is no item {item!r}")
    return int(row[0])


@server.tool
def order(item: str, pieces: int, sql: Sql) -> int:
    """Order pieces of an item; returns the number of the order."""
    if stock(item, sql) < pieces:
        raise ToolError(f"There are not {pieces} pieces of {item!r}")
    sql.execute("UPDATE stock SET pieces = pieces - ? WHERE item = ?", [pieces, item])
    return int(sql.execute("INSERT INTO orders (item, pieces) VALUES (?, ?)", [item, pieces]).lastrowid or 0)


@server.tool
def status(number: int, sql: Sql) -> str:
    """Describe an order by its number."""
    row = sql.execute("SELECT item, pieces FROM orders WHERE number = ?", [number]).fetchone()
    return f"{row[1]} x {row[0]}" if row else "unknown"


@server.tool(when=is_manager, tags={"office"})
def set_price(item: str, price: float, sql: Sql) -> str:
    """Set the price of an item. Only managers see this tool."""
    sql.execute("UPDATE stock SET price = ? WHERE item = ?", [price, item])
    return f"{item} costs {price}"


@server.tool(when=is_manager, tags={"office"}, timeout=5, concurrency=1)
async def stocktaking(close: bool) -> str:
    """Close the shop, or open it again. One at a time, for five seconds at most."""
    (closed_for_stocktaking.set if close else closed_for_stocktaking.clear)()
    return "closed" if close else "open"


@server.tool(isolated=True, timeout=10, memory=2 * 1024**3)
def label(item: str, width: int = 20) -> str:
    """Draw a label. It runs in a process of its own, as code of others should."""
    return "\n".join(("+" * width, item.center(width, "."), "+" * width))


def trace_to_stderr() -> None:
    """Send spans to stderr. Nothing else is needed: a server looks for a provider."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    trace.set_tracer_provider(provider)


if os.environ.get("SHOP_TRACES"):
    trace_to_stderr()

app = server.asgi()
wsgi = server.wsgi()

if __name__ == "__main__":
    server.run()
