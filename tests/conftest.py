"""What holds for all tests."""

from __future__ import annotations

import gc
import signal

from hypothesis import settings

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
