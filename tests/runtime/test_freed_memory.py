"""What a server's process keeps of the memory that large messages used."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

WORK = """
import resource, threading
from linkspan.runtime.system import keep_freed_memory
def work():
    for _ in range(20):
        parts = [b"x" * 1_000_000 for _ in range(6)]
def faults(act):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    act()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def in_thread():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
before = faults(work)
size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
keep_freed_memory()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size < 1000, 4 * faults(work) < before, 4 * faults(in_thread) < before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide by themselves what they keep")
def test_pages_that_a_message_used_are_there_for_the_next() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
