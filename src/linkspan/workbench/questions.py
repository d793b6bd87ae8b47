"""What a server asks of the person at the workbench, and of the model that they may play. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from linkspan.flows.answers import Refused
from linkspan.types.base import JSON, JSONObject

_MOST: Final = 32
"""Questions that may wait at once; of more, each is refused."""


class PersonsAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person said to a question."""

    id: int
    action: str
    """`accept`, `decline` or `cancel`."""
    content: JSONObject | None = None
    """The values of a form."""
    text: str | None = None
    """What a model would have said."""


class _WaitingQuestion:
    def __init__(self, shown: JSONObject) -> None:
        self.shown = shown
        self.done = threading.Event()
        self.answer: PersonsAnswer | None = None


class Questions:
    """The questions that wait. `on_change` is called with each that comes, and with its id and None when it is gone."""

    def __init__(self, on_change: Callable[[int, JSONObject | None], object]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiting: dict[int, _WaitingQuestion] = {}
        self._ids = count(1)

    def ask(
        self, kind: str, params: JSON, exchange: int | None, over: Callable[[], bool] = lambda: False
    ) -> PersonsAnswer:
        """Wait for the person's answer, while the call that it is for goes on. Raises: Refused."""
        with self._lock:
            if len(self._waiting) >= _MOST:
                raise Refused("too many questions are waiting for the user")
            number = next(self._ids)
            shown: JSONObject = {"id": number, "kind": kind, "params": params, "exchange": exchange}
            waiting = self._waiting[number] = _WaitingQuestion(shown)
        self._on_change(number, shown)
        while not waiting.done.wait(_LOOK) and not over():
            pass
        with self._lock:
            self._waiting.pop(number, None)
        self._on_change(number, None)
        if waiting.answer is None:
            raise Refused("the call ended before the user answered")
        return waiting.answer

    def answer(self, answer: PersonsAnswer) -> bool:
        """Give an answer; return whether its question waits."""
        with self._lock:
            waiting = self._waiting.pop(answer.id, None)
        if waiting is None:
            return False
        waiting.answer = answer
        waiting.done.set()
        return True

    def drop(self) -> None:
        """End all questions: their server is gone."""
        with self._lock:
            waiting, self._waiting = [*self._waiting.values()], {}
        for each in waiting:
            each.done.set()

    def shown(self) -> list[JSONObject]:
        """Return the questions that wait."""
        with self._lock:
            return [each.shown for each in self._waiting.values()]


_LOOK: Final = 0.5
"""Seconds between two looks at whether a call is over."""
