"""A stopper: whoever waits hears of it once."""

from __future__ import annotations

from linkspan import Stopper


def test_a_stopper_stops_once_and_tells_who_comes_later() -> None:
    stopper, told = Stopper(), list[str]()
    stopper.attach(first := lambda: told.append("first"))
    stopper.attach(gone := lambda: told.append("gone"))
    stopper.detach(gone)
    assert (stopper.stopped, stopper.reason) == (False, None)
    stopper.stop("enough")
    stopper.stop("again")
    stopper.attach(lambda: told.append("late"))
    assert (stopper.stopped, stopper.reason, told) == (True, "enough", ["first", "late"])
    stopper.detach(first)
