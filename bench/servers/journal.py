"""Linkspan: a server that writes down what it does, so that others can tell afterwards. `python journal.py FILE`."""

import asyncio
import os
import subprocess
import sys

from linkspan import Server

server = Server("journal")
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def write(*words: object) -> None:
    os.write(journal, " ".join(map(str, words)).encode() + b"\n")


@server.tool
async def note(key: str) -> str:
    """Write a key down. Twice is not like once."""
    write("note", key)
    return key


@server.tool
async def note_slowly(key: str) -> str:
    """Take a while over it."""
    await asyncio.sleep(0.05)
    write("note", key)
    return key


@server.tool(annotations={"readOnlyHint": True})
async def look(key: str) -> str:
    """Give back what is given."""
    return key


@server.tool
async def hang(key: str) -> str:
    """Never end."""
    write("note", key)
    await asyncio.sleep(3600)
    return key


if __name__ == "__main__":
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(["sleep", "3600"], stdin=quiet, stdout=quiet, stderr=quiet)
    write("start", os.getpid(), child.pid)
    server.run()
