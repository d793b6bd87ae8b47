"""What a server does before it serves: it checks completions, finds telemetry, and looks for changes."""

from __future__ import annotations

from collections.abc import Callable

from linkspan.server.dispatch import Dispatcher


class ConnectionOpening:
    """What one server does once, or for each connection, before it serves."""

    def __init__(self, dispatcher: Dispatcher, *, auto_notify: bool) -> None:
        """Make ready what `dispatcher` serves."""
        self._dispatcher = dispatcher
        self._auto_notify = auto_notify
        self._inner: tuple[ConnectionOpening, ...] = ()
        self._watches: tuple[Callable[[], object], ...] = ()
        self._is_traced = False
        self.is_unchecked = False
        """Whether completions have been added since the last check."""
        self.has_asked = False
        """Whether it has been asked if the application wants traces."""

    def include(self, inner: ConnectionOpening) -> None:
        """Do what a mounted server does, too."""
        self._inner = (*self._inner, inner)
        self.is_unchecked = True

    def add_watch(self, watch: Callable[[], object]) -> None:
        """Call a function for each connection: it looks for changes as long as there are any."""
        self._watches = (*self._watches, watch)

    def complete_later(self) -> None:
        """Check completions again when the next connection opens."""
        self.is_unchecked = True

    def watch(self) -> None:
        """Look for changes, here and in mounted servers."""
        for watch in self._watches:
            watch()
        for each in self._inner:
            each.watch()

    def check_completions(self) -> None:
        """Refuse completions of prompts, templates and arguments that do not exist, which nothing would ever call.

        Where they can still come, with `auto_notify` or from a lifespan, a warning is logged. Raises: RegistrationError.
        """
        if not self.is_unchecked:
            return
        from linkspan.server.completion import check_completers

        may_come = self._auto_notify or self._dispatcher.lifespan is not None
        check_completers(self._dispatcher.catalogue, may_come=may_come)
        for each in self._inner:
            each.check_completions()
        self.is_unchecked = False

    def find_telemetry(self) -> None:
        """Watch requests from now on if the application wants them traced: decided with each connection, until it does."""
        self.has_asked = True
        if not self._is_traced and (telemetry := self._dispatcher.system.telemetry()) is not None:
            self._is_traced = True
            self._dispatcher.watch(telemetry)
