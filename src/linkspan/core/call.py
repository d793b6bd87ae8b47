"""One run of an author's function: the only thing that the server core cannot do itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from msgspec import Raw

from linkspan.errors import LocalProtocolError
from linkspan.revisions.neutral import InputRequired, Outcome, Request

__all__ = ["Call", "Conclusion", "Dispatch", "Ending", "Hook"]

NO_OUTCOME: Final = Raw(b"{}")

Conclusion: TypeAlias = bytes | InputRequired
"""What comes of a call: the whole response, encoded, or questions to a handshake client."""


class Ending(Protocol):
    """Turns what came of a function into an outcome. Neither method raises."""

    def finish(self, call: Call, value: object) -> Outcome:
        """Conclude from the function's value."""
        ...

    def fail(self, call: Call, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        ...


class Call:
    """A function, bound to the arguments of one request. A driver runs it; the connection gets what came of it.

    `run()` runs the function: it returns a value, or an awaitable of one, and raises whatever the author raises. `is_async`
    says that it wants an event loop, `inline` that a thread would cost more than the call itself, `hooked` that the author's
    hooks run when it ends, which must not happen on an event loop.
    """

    __slots__ = ("_ending", "hooked", "inline", "is_async", "request", "run")

    def __init__(
        self,
        request: Request,
        run: Callable[[], object],
        ending: Ending,
        is_async: bool = False,
        inline: bool = False,
        hooked: bool = False,
    ) -> None:
        """Bind everything; nothing runs yet."""
        self.request = request
        self.run = run
        self._ending: Ending | None = ending
        self.is_async = is_async
        self.inline = inline
        self.hooked = hooked

    @property
    def cancelled(self) -> bool:
        """The client does not want the answer any more."""
        return self.request.cancelled

    def finish(self, value: object) -> Outcome:
        """Turn the function's value into an outcome. Raises: LocalProtocolError if the call has ended already."""
        return self._end().finish(self, value)

    def fail(self, error: BaseException) -> Outcome:
        """Turn the function's exception into an outcome. Raises: LocalProtocolError if the call has ended already."""
        return self._end().fail(self, error)

    def _end(self) -> Ending:
        """Return what ends this call, once: hooks must not hear of it twice."""
        ending, self._ending = self._ending, None
        if ending is None:
            raise LocalProtocolError(f"the call for request {self.request.id!r} has ended already")
        return ending


class Hook:
    """Ends a call that runs an author's hook, for which nobody waits."""

    def finish(self, call: Call, value: object) -> Outcome:
        """Conclude nothing."""
        return NO_OUTCOME

    def fail(self, call: Call, error: BaseException) -> Outcome:
        """Conclude nothing: hooks see to their own exceptions."""
        return NO_OUTCOME


class Dispatch(Protocol):
    """What a connection asks of the server behind it."""

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or say which function must run for it. Never raises."""
        ...

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        ...
