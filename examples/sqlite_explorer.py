"""An explorer of an SQLite database that only reads: its tables, their columns as resources, and queries.

`linkspan call examples/sqlite_explorer.py query sql='select * from ferries'` asks a small database in memory;
`linkspan run examples/sqlite_explorer.py -- my.db` serves a file of yours.
"""

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

from linkspan import ErrorMap, Server, ToolError

MOST_ROWS = 200

server = Server("sqlite", version="1.0.0", instructions="Look at the tables before you write a query.")
server.middleware(ErrorMap({sqlite3.Error: "SQLite: {e}"}))


@server.lifespan
def database() -> Iterator[sqlite3.Connection]:
    """Open the database once, for reading, and close it at the end."""
    files = [each for each in sys.argv[1:] if each.endswith((".db", ".sqlite", ".sqlite3"))]
    # The lifespan has a thread of its own, and each call another one.
    if files:
        connection = sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True, check_same_thread=False)
    else:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.executescript(
            "create table ferries (name text, seats integer); insert into ferries values ('Clansman', 638), ('Lord', 20);"
        )
    connection.row_factory = sqlite3.Row
    connection.execute("pragma query_only = on")
    try:
        yield connection
    finally:
        connection.close()


def names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all tables and views."""
    found = connection.execute("select name from sqlite_master where type in ('table', 'view') order by name")
    return [row["name"] for row in found]


@server.tool(annotations={"read_only_hint": True})
def tables(connection: sqlite3.Connection) -> list[str]:
    """List the tables and views of the database."""
    return names(connection)


@server.tool(annotations={"read_only_hint": True})
def query(sql: str, connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Run one SELECT, and return up to 200 rows.

    Args:
        sql: One statement that reads.
    """
    rows = connection.execute(sql).fetchmany(MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise ToolError(f"There are more than {MOST_ROWS} rows: add a limit, or count them first")
    return [dict(row) for row in rows]


@server.resource("sqlite://tables/{table}", mime_type="application/sql")
def schema(table: str, connection: sqlite3.Connection) -> str:
    """The statement that made a table."""
    found = connection.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()
    if found is None:
        raise ToolError(f"There is no table {table!r}")
    return str(found["sql"])


if __name__ == "__main__":
    server.run()
