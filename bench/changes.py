"""From a change to its 500th stream, with four workers: on each store.

    python bench/changes.py                                 # five rounds; stores that are not installed are left out

One connection calls a tool that announces a change; 500 others, spread over the workers by the system, listen. The clients read
with one thread, which counts.
"""

from __future__ import annotations

import contextlib
import selectors
import statistics
import subprocess
import sys
import tempfile
import time

from http_server import BOTH, Connection, http
from runs import META, MODERN
from store_servers import STORES, running_store

SERVER = """
import sys
from linkspan import Server
server = Server("bench", capabilities={"tools": {"listChanged": True}}, store=sys.argv[2])
@server.tool(inline=True)
def touch() -> int: return server.notify_tools_list_changed()
server.run("http", port=int(sys.argv[1]), workers=4)
"""
HEADERS = {"accept": BOTH, "mcp-protocol-version": MODERN}


def request(method: str, about: str = "", **params: object) -> bytes:
    """Return the bytes of a request."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    return http(body, {**HEADERS, "mcp-method": method} | ({"mcp-name": about} if about else {}))


def connect(port: int) -> Connection:
    """Connect once the server takes connections."""
    give_up = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError):
            return Connection(port)
        assert time.monotonic() < give_up
        time.sleep(0.05)


def changes(port: int, streams: int, count: int) -> list[float]:
    """Return the milliseconds from each of some changes to its last stream."""
    caller, found = connect(port), list[float]()
    listeners, selector = [Connection(port) for _ in range(streams)], selectors.DefaultSelector()
    for each in listeners:
        each.send(request("subscriptions/listen", notifications={"toolsListChanged": True}))
        while b"acknowledged" not in each.data:
            each.receive()
        selector.register(each.socket, selectors.EVENT_READ, each)
    for number in range(count + 1):
        for each in listeners:
            each.data = bytearray()
        began, left = time.monotonic(), streams
        caller.send(request("tools/call", "touch", name="touch", arguments={}))
        while left:
            for key, _ in selector.select(30):
                had = b"list_changed" in key.data.data
                key.data.receive()
                left -= not had and b"list_changed" in key.data.data
        if number:  # the first opens what is opened when it is needed
            found.append((time.monotonic() - began) * 1000)
        time.sleep(0.2)
    for each in (caller, *listeners):
        each.socket.close()
    return found


def measure(kind: str, port: int) -> list[float]:
    """Start a store and a server, and measure."""
    with running_store(kind) as store, tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(SERVER)
        file.flush()
        process = subprocess.Popen([sys.executable, file.name, str(port), store.direct], stderr=subprocess.DEVNULL)
        try:
            return changes(port, 500, 5)
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Measure all in interleaved rounds."""
    found: dict[str, list[float]] = {kind: [] for kind in STORES}
    for number in range(5):
        for kind in list(found):
            try:
                found[kind] += measure(kind, 8490 + number)
            except (ImportError, FileNotFoundError) as problem:
                print(f"{kind} is left out: {problem}")
                del found[kind]
    medians = {kind: statistics.median(times) for kind, times in found.items()}
    for kind, median in medians.items():
        print(f"{kind:12} {median:8.1f} ms {median / medians['sqlite']:6.2f} x SQLite")


if __name__ == "__main__":
    main()
