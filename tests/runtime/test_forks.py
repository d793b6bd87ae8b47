import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED_SLOWLY = "import time\ntime.sleep(0.5)\nNAME = 1\n"
FORKS_MEANWHILE = """
import os, threading, time
import linkspan, linkspan.runtime.forks
linkspan.__path__.append({folder!r})
loading = threading.Thread(target=__import__, args=("linkspan.loaded_slowly",))
loading.start()
time.sleep(0.1)
if os.fork() == 0:
    from linkspan.loaded_slowly import NAME
    os._exit(NAME)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_a_module_that_another_thread_loads(tmp_path: Path) -> None:
    (tmp_path / "loaded_slowly.py").write_text(LOADED_SLOWLY)
    code = FORKS_MEANWHILE.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n", done.stderr


WORKS_MEANWHILE = """
import os, threading, time
from linkspan.runtime.forks import NO_FORK

ends = []

def work():
    with NO_FORK, NO_FORK:
        began.set()
        time.sleep(0.3)
        ends.append(time.monotonic())

began = threading.Event()
threading.Thread(target=work).start()
began.wait()
if os.fork() == 0:
    with NO_FORK:  # the parent's threads are not in the child
        os._exit(len(ends))
print(os.waitstatus_to_exitcode(os.wait()[1]))
with NO_FORK:
    print("free")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_work_that_it_must_not_cut_in_two() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKS_MEANWHILE], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "1\nfree\n", done.stderr


READS_IN_THE_BACKGROUND = """
import asyncio, os, socket
from linkspan.runtime.background import background_loop, run_awaitable

ours, theirs = socket.socketpair()

async def opened():
    reader, writer = await asyncio.open_connection(sock=ours)
    return reader, writer  # it reads in the background from now on

async def answer():
    return 7

reader, writer = run_awaitable(opened())
before = background_loop()
if os.fork() == 0:
    is_left = os.fstat(ours.fileno()).st_rdev == os.stat(os.devnull).st_rdev
    os._exit(run_awaitable(answer()) if is_left and background_loop() is not before else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
theirs.sendall(b"line\\n")
print(run_awaitable(reader.readline()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_leaves_what_is_open_in_the_background_to_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS_IN_THE_BACKGROUND], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "7\nb'line\\n'\n", done.stderr


WRITES_MEANWHILE = """
import os, threading, time
from linkspan.stores.sqlite import SqliteStore

store = SqliteStore({path!r}, busy_timeout=0.2)
began = threading.Event()

def write():
    with store._transaction():
        began.set()
        time.sleep(0.3)
        store._run("UPDATE {{p}}messages SET data = data")

threading.Thread(target=write).start()
began.wait()
if os.fork() == 0:
    store.put("a", b"of the child")
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), store.get("a"))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_can_write_to_a_file_that_a_thread_of_its_parent_was_writing_to(tmp_path: Path) -> None:
    code = WRITES_MEANWHILE.format(path=str(tmp_path / "store.db"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("0 "), done.stderr
    assert "of the child" in done.stdout
