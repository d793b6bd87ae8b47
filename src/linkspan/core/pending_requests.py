"""The requests of a client that have no response yet: when each expires, and how long our user was asked meanwhile."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from linkspan.wire.jsonrpc import RequestId

OwnerT = TypeVar("OwnerT")
_ENDED_KEPT = 1000


class Pending(msgspec.Struct, Generic[OwnerT]):
    """A request without a response. Times are those of one clock."""

    owner: OwnerT
    method: str
    deadline: float
    last: float
    """When to give up whatever progress there is, if no question of the server stops the clock."""
    patience: float
    total: float
    watches: bool
    cancellable: bool
    before: float
    """For how long questions had been open when it was sent."""
    due: float = math.inf
    """When it is looked at next: of several entries in the heap the one that counts."""
    progressed: bool = False
    held: float | None = None
    """Since when its clock stands still."""

    def go_on(self, deadline: float, *, progressed: bool = False) -> None:
        """Move the deadline."""
        self.deadline = deadline
        self.progressed = self.progressed or progressed

    def schedule(self) -> None:
        """Look at it next when its deadline comes."""
        self.due = self.deadline

    def hold(self, now: float) -> None:
        """Stop its clock."""
        self.held = now
        self.due = math.inf

    def release(self, now: float) -> None:
        """Let its clock run again."""
        gone, self.held = now - (self.held or now), None
        self.last += gone
        self.deadline += gone
        self.schedule()


class PendingRequests(Generic[OwnerT]):
    """The requests by their ids, and the open questions of the server, which stop the clock of all of them (CAN-9)."""

    def __init__(self, input_timeout: float) -> None:
        """For `input_timeout` seconds in all, questions stop the clock of a call; several that are open count once."""
        self._input_timeout = input_timeout
        self.by_id: dict[RequestId, Pending[OwnerT]] = {}
        self.deadlines: list[tuple[float, Any]] = []
        """A heap of when requests are looked at; entries of those that have ended stay for a while."""
        self.questions: dict[RequestId, RequestId | None] = {}
        """Open questions of the server, each with our request on whose stream it came."""
        self._asked = 0.0
        """For how long any questions were open, until the first of those that are open now came at `_asked_since`."""
        self._asked_since = 0.0

    def add(
        self,
        request_id: RequestId,
        owner: OwnerT,
        method: str,
        now: float,
        timeout: float,
        total: float,
        *,
        watches: bool,
        cancellable: bool,
    ) -> None:
        """Keep a request until it has ended: after `timeout` seconds without progress, and after `total` in any case."""
        last = now + total
        deadline = min(now + timeout, last)
        before = self.asked_until(now) if self.questions else self._asked
        self.by_id[request_id] = pending = Pending(
            owner, method, deadline, last, timeout, total, watches, cancellable, before, deadline
        )
        if deadline < math.inf:
            self._expect(pending, request_id)

    def _expect(self, pending: Pending[OwnerT], request_id: RequestId) -> None:
        """Remember when a request expires; forget those that have ended, which one that hangs would keep for a long time."""
        if len(self.deadlines) > 2 * len(self.by_id) + _ENDED_KEPT:
            self.deadlines = [each for each in self.deadlines if self._counts(*each)]
            heapq.heapify(self.deadlines)
        heapq.heappush(self.deadlines, (pending.due, request_id))

    def _counts(self, due: float, request_id: RequestId) -> bool:
        """Return whether an entry of the heap is the one that counts for its request."""
        pending = self.by_id.get(request_id)
        return pending is not None and pending.due == due

    def next_timeout(self) -> float | None:
        """Return when `expired` has something to do."""
        deadlines = self.deadlines
        while deadlines and not self._counts(*deadlines[0]):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def expired(self, now: float) -> Iterator[tuple[RequestId, Pending[OwnerT], float]]:
        """Yield the requests whose time is over, with the seconds of that time. It does not pass while our user is asked."""
        while self.deadlines and self.deadlines[0][0] <= now:
            due, request_id = heapq.heappop(self.deadlines)
            if not self._counts(due, request_id):
                continue
            pending = self.by_id[request_id]
            if self.questions:
                goes_on = now + self._input_timeout - (self.asked_until(now) - pending.before)
                stopped = min(goes_on + pending.patience, pending.last + self._input_timeout)
                pending.go_on(max(pending.deadline, stopped))
            if pending.deadline > now:
                pending.schedule()
                self._expect(pending, request_id)
            else:
                yield request_id, pending, pending.total if now >= self._last(pending, now) else pending.patience

    def hold(self, request_id: RequestId, now: float) -> None:
        """Stop the clock of one request."""
        pending = self.by_id.get(request_id)
        if pending is not None and pending.held is None:
            pending.hold(now)

    def release(self, request_id: RequestId, now: float) -> None:
        """Let the clock of one request run again."""
        pending = self.by_id.get(request_id)
        if pending is not None and pending.held is not None:
            pending.release(now)
            if pending.deadline < math.inf:
                self._expect(pending, request_id)

    def progress(self, pending: Pending[OwnerT], now: float) -> None:
        """Give a request more time: the server works on it."""
        pending.go_on(min(now + pending.patience, self._last(pending, now)), progressed=True)

    # Questions of the server.

    def asked_until(self, now: float) -> float:
        """Return for how long any questions have been open."""
        return self._asked + (now - self._asked_since if self.questions else 0.0)

    def _last(self, pending: Pending[OwnerT], now: float) -> float:
        """Return when to give up a request whatever progress there is, without the time that our user was asked."""
        return pending.last + min(self.asked_until(now) - pending.before, self._input_timeout)

    def ask(self, question: RequestId, during: RequestId | None, now: float) -> None:
        """Keep a question until it is answered."""
        if not self.questions:
            self._asked_since = now
        self.questions[question] = during

    def answered(self, question: RequestId, now: float) -> bool:
        """Forget a question; the time it took does not count against the calls that wait. Return whether it was open."""
        if question not in self.questions:
            return False
        asked = self.asked_until(now)
        del self.questions[question]
        if self.questions:
            return True
        self._asked = asked
        for request_id, pending in self.by_id.items():
            pending.go_on(min(now + pending.patience, self._last(pending, now)))
            if pending.deadline < pending.due:
                pending.schedule()
                self._expect(pending, request_id)
        return True

    def abandon(self) -> list[OwnerT]:
        """Forget all requests and questions; return the owners of the requests."""
        owners = [each.owner for each in self.by_id.values()]
        self.by_id.clear()
        self.questions.clear()
        return owners
