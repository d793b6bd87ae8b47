"""The bodies of requests that are arriving: how many, how large each and all together, and until when. No I/O, no clock.

Law: a body is refused through what its driver passes, at most once; the one that needs the room of a large one refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from linkspan.core.http_checks import Gate, HttpPolicy
from linkspan.core.http_exchange import HttpResponse


class ArrivingBody(msgspec.Struct, eq=False):
    """A body of which some is missing."""

    headers: Mapping[str, str]
    """Those of its request, in lower case."""
    until: float
    """When it must have arrived."""
    answer: Callable[[HttpResponse], object] | None
    """Ends the wait for it with a response, if anything can. It may be called while another body grows."""
    size: int = 0
    refused: bool = False

    def grow(self, size: int) -> int:
        """Set how much is kept of it; return how much that is more."""
        more, self.size = size - self.size, size
        return more

    def refuse(self, refusal: HttpResponse) -> None:
        """End the wait for it."""
        assert self.answer is not None
        self.refused = True
        self.answer(refusal)


class ArrivingBodies:
    """The bodies that one event loop waits for."""

    def __init__(self, gate: Gate, policy: HttpPolicy) -> None:
        """Take `policy.max_streams` bodies, and `max_incoming_bytes` of them all; `gate` words the refusals."""
        self._gate = gate
        self._policy = policy
        self._most = max(policy.max_incoming_bytes, policy.max_body_bytes)
        self._size = 0
        self._bodies: dict[ArrivingBody, None] = {}

    @property
    def sizes(self) -> list[int]:
        """How many bytes are kept of each, the smallest first."""
        return sorted(each.size for each in self._bodies)

    def begin(
        self, headers: Mapping[str, str], now: float, answer: Callable[[HttpResponse], object] | None
    ) -> ArrivingBody | HttpResponse:
        """Let a body arrive within `policy.body_timeout` seconds, or return its refusal; `end` it in any case.

        `answer` is called with the refusal of one that takes too long, or whose room others need. None is for a body that a
        thread reads, which nothing ends from outside: it is refused when it grows, or not at all.
        """
        if len(self._bodies) >= self._policy.max_streams:
            return self._gate.too_many_bodies(headers, "max_streams")
        body = ArrivingBody(headers, now + self._policy.body_timeout, answer)
        self._bodies[body] = None
        return body

    def grow(self, body: ArrivingBody, size: int, kept: int = 0) -> HttpResponse | None:
        """Take it that `size` bytes of a body are here, and that `kept` are kept for it; return its refusal if there is one.

        If all together are too large, the largest is refused of those whose wait can be ended, and else this one.
        """
        if size > self._policy.max_body_bytes:
            return self._gate.too_large(body.headers)
        self._size += body.grow(max(size, kept))
        if self._size <= self._most:
            return None
        others = [each for each in self._bodies if not each.refused and each.answer is not None]
        largest = max(others, key=lambda each: each.size) if body.answer is not None else body
        refusal = self._gate.too_many_bodies(largest.headers, "max_incoming_bytes")
        if largest is body:
            return refusal
        largest.refuse(refusal)
        return None

    def end(self, body: ArrivingBody) -> None:
        """Forget a body: it is here, it was refused, or its client has gone."""
        if body in self._bodies:
            del self._bodies[body]
            self._size -= body.size

    def expire(self, now: float) -> None:
        """Refuse the bodies that take too long."""
        for body in list(self._bodies):  # the oldest first
            if body.until > now:
                break
            if not body.refused and body.answer is not None:
                body.refuse(self._gate.too_slow(body.headers))

    def next_timeout(self) -> float | None:
        """Return when `expire` has something to do."""
        return next((each.until for each in self._bodies if not each.refused and each.answer is not None), None)
