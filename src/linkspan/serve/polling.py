"""Looks for changes from time to time, in a thread, as long as there are connections, and only while a client listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from linkspan.runtime.forks import ForkedLock, renew
from linkspan.runtime.unexpected import Unexpected

_SOON: Final = 0.1
"""Seconds after which a new connection may listen."""
_SHARE: Final = 20
"""Looking from time to time takes at most one part in so many of the time."""


class Poller:
    """Calls `refresh` every `poll` seconds; None never does."""

    def __init__(
        self, refresh: Callable[[], object], listening: Callable[[], bool | None], poll: float | None, name: str
    ) -> None:
        """Begin without a thread. `listening` returns whether a client listens, None if there is no connection."""
        self._refresh = refresh
        self._listening = listening
        self._poll = poll
        self._name = name
        self._lock = ForkedLock()
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without a thread, which a forked child does not have."""
        self._watching = False

    def watch(self) -> None:
        """Look from time to time, until there is no connection any more."""
        with self._lock:
            if self._watching or self._poll is None:
                return
            thread = threading.Thread(target=self._keep_looking, args=(self._poll,), daemon=True)
            thread.name = f"linkspan-{self._name}"
            thread.start()
            self._watching = True

    def _keep_looking(self, poll: float) -> None:
        pause, unexpected = _SOON, Unexpected("linkspan.server", f"changes of {self._name} were not looked for")
        never = threading.Event()
        while True:
            never.wait(pause)
            with self._lock:
                listening = self._listening()
                if listening is None:
                    self._watching = False
                    return
            pause = min(2 * pause, poll)
            if listening:
                began = time.monotonic()
                try:
                    self._refresh()
                except Exception as error:
                    unexpected.log(error)
                pause = max(poll, _SHARE * (time.monotonic() - began))
