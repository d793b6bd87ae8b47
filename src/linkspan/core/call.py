"""One run of an author's function: the only thing that the server core cannot do itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from linkspan.revisions.neutral import Outcome, Request

__all__ = ["Call", "Dispatch", "Target"]


class Target(Protocol):
    """What is called: decided once, when it was registered."""

    @property
    def is_async(self) -> bool:
        """The function is a coroutine function: it wants an event loop."""
        ...

    @property
    def inline(self) -> bool:
        """The function is so small that a thread would cost more than the call."""
        ...


class Call:
    """A function, bound to the arguments of one request. A driver runs it; the connection gets what came of it."""

    __slots__ = ("_fail", "_finish", "_run", "inline", "is_async", "request")

    def __init__(
        self,
        request: Request,
        run: Callable[[], object],
        finish: Callable[[object], Outcome],
        fail: Callable[[BaseException], Outcome],
        *,
        is_async: bool = False,
        inline: bool = False,
    ) -> None:
        """Bind the steps; nothing runs yet."""
        self.request = request
        self.is_async = is_async
        self.inline = inline
        self._run = run
        self._finish = finish
        self._fail = fail

    @property
    def cancelled(self) -> bool:
        """The client does not want the answer any more."""
        return self.request.cancelled

    def run(self) -> object:
        """Run the author's function: return its value, or an awaitable of it. Raises whatever the author raises."""
        return self._run()

    def finish(self, value: object) -> Outcome:
        """Turn the function's value into an outcome. Never raises."""
        return self._finish(value)

    def fail(self, error: BaseException) -> Outcome:
        """Turn the function's exception into an outcome. Never raises."""
        return self._fail(error)


class Dispatch(Protocol):
    """What a connection asks of the server behind it."""

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or say which function must run for it. Never raises."""
        ...

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        ...
