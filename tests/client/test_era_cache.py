"""What a process remembers of URLs that want a handshake: only so many, only so long (ERA-2)."""

from __future__ import annotations

import pytest

from linkspan.client import probing as known_eras
from linkspan.client.probing import forget, is_legacy, remember_legacy


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(known_eras, "time", found)
    return found


def test_it_is_remembered_for_ten_minutes(clock: Clock) -> None:
    remember_legacy("one")
    clock.now += 600.0
    assert is_legacy("one")
    clock.now += 0.1
    assert not is_legacy("one")
    assert known_eras._known == {}


def test_remembering_it_again_begins_the_time_anew(clock: Clock) -> None:
    remember_legacy("one")
    clock.now += 599.0
    remember_legacy("one")
    clock.now += 599.0
    assert is_legacy("one")


def test_only_so_many_are_remembered_and_the_oldest_go_first(clock: Clock) -> None:
    for number in range(256):
        remember_legacy(str(number))
    remember_legacy("0")  # now the newest
    assert len(known_eras._known) == 256
    remember_legacy("256")
    assert len(known_eras._known) == 256
    assert [is_legacy(each) for each in ("0", "1", "2", "256")] == [True, False, True, True]


def test_what_was_remembered_can_be_taken_back(clock: Clock) -> None:
    remember_legacy("one")
    remember_legacy("two")
    forget("one")
    forget("never known")
    assert [is_legacy("one"), is_legacy("two")] == [False, True]
