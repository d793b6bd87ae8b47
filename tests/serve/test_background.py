"""The background loop: async functions for callers without a loop, or with one that they block."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest
from stdio_process import SOURCE

from linkspan.runtime.background import background_loop, run_awaitable

name = contextvars.ContextVar("name", default="nobody")


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def test_the_result_comes_back_and_there_is_one_loop():
    assert background_loop().run(lambda: double(21)) == 42
    assert run_awaitable(double(4)) == 8
    assert background_loop() is background_loop()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_comes_back_and_the_loop_goes_on(error):
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        background_loop().run(fail)
    assert caught.value is error
    assert background_loop().run(lambda: double(1)) == 2


def test_it_works_inside_a_running_loop_of_the_caller():
    async def main() -> int:
        return background_loop().run(lambda: double(21))

    assert asyncio.run(main()) == 42


def test_it_works_inside_itself():
    async def outer() -> int:
        return background_loop().run(lambda: double(21))

    assert background_loop().run(outer) == 42


def test_the_callers_context_is_carried():
    async def who() -> str:
        return name.get()

    context = contextvars.copy_context()
    context.run(name.set, "somebody")
    assert context.run(background_loop().run, who) == "somebody"
    assert background_loop().run(who) == "nobody"


def test_threads_share_it():
    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(run_awaitable(double(n)))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 2, 4, 6, 8, 10, 12, 14]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_loop_of_its_own():
    code = (
        "import asyncio, os\n"
        "from linkspan.runtime.background import run_awaitable\n"
        "async def one(): return 1\n"
        "assert run_awaitable(one()) == 1\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(run_awaitable(one()) - 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print('both', flush=True)\n"
    )
    assert run_python(code) == (0, "both\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_a_descriptor_whose_number_a_connection_of_the_loop_had():
    code = (
        "import asyncio, os, socket\n"
        "from linkspan.runtime.background import background_loop\n"
        "async def connect():\n"
        "    _, writer = await asyncio.open_connection(sock=near)\n"
        "    number = near.fileno()\n"
        "    writer.close()\n"
        "    await writer.wait_closed()\n"
        "    return writer, number\n"
        "near, far = socket.socketpair()\n"
        "kept, number = background_loop().run(connect)\n"
        "reader, writer = os.pipe()\n"
        "os.dup2(reader, number)\n"
        "os.write(writer, b'ours')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(os.read(number, 4) != b'ours')\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert run_python(code) == (0, "0\n", "")


def test_the_interpreter_exits_cleanly_while_something_runs():
    code = (
        "import asyncio\n"
        "from linkspan.runtime.background import background_loop\n"
        "async def forever():\n"
        "    try: await asyncio.sleep(60)\n"
        "    finally: print('cleaned up', flush=True)\n"
        "async def start(): tasks.append(asyncio.create_task(forever())); await asyncio.sleep(0)\n"
        "tasks = []\n"
        "background_loop().run(start)\n"
    )
    assert run_python(code) == (0, "cleaned up\n", "")


def run_python(code: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr
