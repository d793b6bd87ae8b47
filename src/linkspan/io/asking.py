"""What a connection asks its server while they are not agreed yet: one request, or two side by side where the first is silent.

All of it shares one budget, and blocks the thread that connects.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import msgspec

from linkspan.client.errors import ClientError
from linkspan.core.flow import Outgoing, Send
from linkspan.io.link import CallbackSlot, Link, Slot, Ticket
from linkspan.wire.messages import ErrorResponse, Response

__all__ = ["Asking"]

_LEAST: float = 0.1
Answer: TypeAlias = Response | ErrorResponse | ClientError


class Asking:
    """The requests of one negotiation."""

    def __init__(self, give_up: float) -> None:
        """Ask until `give_up`, by the monotonic clock."""
        self._give_up = give_up
        self._inbox: SimpleQueue[tuple[Slot, Any]] = SimpleQueue()
        self._answers: dict[Slot, Answer] = {}
        self._beside: tuple[Outgoing, Slot] | None = None

    @property
    def left(self) -> float:
        """Seconds that are left; never none at all."""
        return max(_LEAST, self._give_up - time.monotonic())

    def ask(self, link: Link, send: Send) -> Response | ErrorResponse | None:
        """Return the answer to a request; None if the one beside it got its result first. Raises: ClientError.

        What was sent beside another is not sent again: its answer is the one that is under way.
        """
        if self._beside is not None and self._beside[0] == send.outgoing:
            (_, place), self._beside = self._beside, None
            return self._answer_to(place)
        place = self._submit(link, send.outgoing)
        if send.beside is None or self._comes_within(place, min(send.after, self.left)):
            return self._answer_to(place)
        rival = self._submit(link, send.beside)
        self._beside = send.beside, rival
        while place not in self._answers and not isinstance(self._answers.get(rival), Response):
            self._receive()
        if place in self._answers:
            return self._answer_to(place)
        ticket: Ticket = place.ticket
        link.give_up(ticket.request_id, None)
        return None

    def end(self, link: Link) -> None:
        """Let go of a request that was sent beside another and is not needed after all."""
        if self._beside is not None:
            ticket: Ticket = self._beside[1].ticket
            link.discard(ticket.request_id)

    def _submit(self, link: Link, outgoing: Outgoing) -> Slot:
        place: Slot = CallbackSlot(lambda item: self._inbox.put((place, item)))
        left = self.left
        link.submit(msgspec.structs.replace(outgoing, timeout=min(outgoing.timeout or left, left)), place)
        link.flush()
        return place

    def _comes_within(self, place: Slot, seconds: float) -> bool:
        try:
            self._receive(seconds)
        except Empty:
            return False
        return place in self._answers

    def _receive(self, timeout: float | None = None) -> None:
        place, answer = self._inbox.get(timeout=timeout)
        self._answers[place] = answer

    def _answer_to(self, place: Slot) -> Response | ErrorResponse:
        while place not in self._answers:
            self._receive()
        answer = self._answers.pop(place)
        if isinstance(answer, ClientError):
            raise answer
        return answer
