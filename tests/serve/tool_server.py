"""A server process with the tools that the tests of the stdio driver need; prints before and after it serves."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import signal
import subprocess
import sys
import time

from linkspan import Server

if os.environ.get("CLAIM_FIRST"):
    from linkspan.runtime.stdout import claim_stdout

    claim_stdout()

print("printed before it serves", end=os.environ.get("BEFORE_END", "\n"))

server = Server("tools")
seen = contextvars.ContextVar("seen", default="nothing")


def log(text: str) -> None:
    os.write(2, f"{text}\n".encode())


@server.tool(inline=True)
def inline_add(a: int, b: int) -> int:
    return a + b


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def async_add(a: int, b: int) -> int:
    return a + b


@server.tool
def text(size: int) -> str:
    log("making text")
    return "x" * size


@server.tool
def block(seconds: float) -> str:
    log("blocking")
    time.sleep(seconds)
    return "done"


@server.tool
async def block_loop(seconds: float) -> str:
    log("blocking")
    time.sleep(seconds)  # what one must not do
    return "done"


@server.tool
async def block_executor(seconds: float) -> str:
    log("blocking")
    await asyncio.to_thread(time.sleep, seconds)
    return "done"


@server.tool
async def wait(seconds: float) -> str:
    log("waiting")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        log("cleaned up")
        raise
    return "done"


@server.tool
async def task_facts() -> str:
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)
    except TimeoutError:
        return f"timed out in {type(task).__name__}, {asyncio.current_task() is task}"
    return "no timeout"


@server.tool
def leave_a_mark() -> str:
    before = seen.get()
    seen.set("a mark")
    return before


@server.tool
async def leave_an_async_mark() -> str:
    before = seen.get()
    seen.set("a mark")
    return before


@server.tool
def print_things(text: str) -> str:
    print(text)
    print("no newline", end="", flush=True)
    return "printed"


@server.tool
def write_below_python(text: str) -> str:
    os.write(1, text.encode())
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    sys.__stdout__.write("from the old stdout\n")
    sys.stdout.buffer.write(b"from the buffer\n")
    return "written"


@server.tool
def read_stdin() -> str:
    return f"{sys.stdin.read()!r} {os.read(0, 10)!r}"


@server.tool
def child_descriptors() -> str:
    code = "import os; print([fd for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@server.tool
def fork_and_print() -> str:
    child = os.fork()
    if child == 0:
        print("printed in a fork")
        sys.stdout.flush()
        time.sleep(30)  # SIGTERM must end it, and only it
        os._exit(1)
    os.kill(child, 15)
    return f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


@server.tool
def leave() -> str:
    raise SystemExit(7)


@server.tool
async def leave_async() -> str:
    raise SystemExit(7)


@server.tool
async def cancel_oneself() -> str:
    raise asyncio.CancelledError


@server.tool
async def take_the_signals() -> str:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
    return "taken"


if __name__ == "__main__":
    try:
        server.run(max_workers=int(os.environ.get("MAX_WORKERS", "64")), grace=float(os.environ.get("GRACE", "1")))
    finally:
        print("printed after it served")
