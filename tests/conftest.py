"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import settings

_ALONE = "LINKSPAN_TEST_ALONE"

settings.register_profile("linkspan", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("linkspan")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: children would inherit deaf ears, and Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave out of each garbage collection what lives as long as the process: all tests and modules.

    Many tests collect; each time would take a third of a second.
    """
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Describe our markers."""
    config.addinivalue_line("markers", "alone: the test runs in a process of its own, which it counts things of")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `alone` in a process in which no other test has run.

    What earlier tests have left, such as processes that are kept warm, opens and closes descriptors at any time.
    """
    if pyfuncitem.get_closest_marker("alone") is None or _ALONE in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", pyfuncitem.nodeid]
    root = pyfuncitem.config.rootpath
    done = subprocess.run(
        command, cwd=root, env=os.environ | {_ALONE: "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True
