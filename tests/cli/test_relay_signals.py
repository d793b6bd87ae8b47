"""Which signals a relay takes over, and that it puts back what it found."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

import pytest

from linkspan.cli.relay import Note, signals

Kept: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

FOREIGN = signal.SIGTERM


def test_a_handler_of_c_code_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does not know such a handler: it is None, which cannot be put back."""
    look, put = signal.getsignal, signal.signal
    taken: list[int] = []

    def handler_of(number: int) -> Kept:
        return None if number == FOREIGN else look(number)

    def take(number: int, handler: Kept) -> Kept:
        if handler is None:
            raise TypeError("signal handler must be signal.SIG_IGN, signal.SIG_DFL, or a callable object")
        taken.append(number)
        return None if number == FOREIGN else put(number, handler)

    monkeypatch.setattr(signal, "getsignal", handler_of)
    monkeypatch.setattr(signal, "signal", take)
    before = look(signal.SIGINT)
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    with signals(notes):
        assert look(signal.SIGINT) is not before
        signal.raise_signal(signal.SIGINT)
        assert notes.get(timeout=30) == ("signal", signal.SIGINT)
    assert look(signal.SIGINT) is before
    assert FOREIGN not in taken
