"""The clock of the server of a store, as its clients know it. The clocks of this machine are arguments here."""

from __future__ import annotations

import pytest

from linkspan.stores import StoreError
from linkspan.stores.clock import StoreClock


class Machine:
    """A machine whose wall clock is wrong, and a server far away."""

    def __init__(self) -> None:
        self.monotonic, self.wall, self.server = 100.0, 5000.0, 9000.0
        self.round_trip = 0.2
        self.asked = 0
        self.down = False
        self.clock = StoreClock(self.ask, monotonic=lambda: self.monotonic, wall=lambda: self.wall)

    def ask(self) -> float:
        self.asked += 1
        if self.down:
            raise StoreError("it is away")
        self.wait(self.round_trip / 2)
        answer = self.server
        self.wait(self.round_trip / 2)
        return answer

    def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds
        self.server += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_time_is_that_of_the_server_whatever_this_machine_has(machine: Machine) -> None:
    assert machine.clock.now() == pytest.approx(machine.server)
    machine.wall += 16
    machine.wait(5)
    assert machine.clock.now() == pytest.approx(machine.server), "a clock that is set does not matter"
    assert machine.asked == 1, "now does not wait for the server"


def test_it_is_learned_again_after_a_minute(machine: Machine) -> None:
    machine.clock.refresh()
    machine.clock.refresh()
    assert machine.asked == 1
    machine.server += 3  # the clock of the server was set
    machine.wait(61)
    machine.clock.refresh()
    assert machine.asked == 2
    assert machine.clock.now() == pytest.approx(machine.server)


def test_it_is_learned_again_after_the_machine_was_suspended(machine: Machine) -> None:
    machine.clock.refresh()
    machine.wall += 3600
    machine.server += 3600  # and the monotonic clock stood still
    machine.clock.refresh()
    assert machine.clock.now() == pytest.approx(machine.server)


def test_it_is_learned_again_from_another_server(machine: Machine) -> None:
    machine.clock.refresh()
    machine.server -= 40
    machine.clock.learn()
    machine.clock.refresh()
    assert machine.asked == 2
    assert machine.clock.now() == pytest.approx(machine.server)


def test_what_is_known_goes_on_while_the_server_is_away(machine: Machine) -> None:
    machine.down = True
    with pytest.raises(StoreError):
        machine.clock.now()
    machine.down = False
    machine.clock.refresh()
    machine.down = True
    machine.wait(61)
    with pytest.raises(StoreError):
        machine.clock.refresh()
    assert machine.clock.now() == pytest.approx(machine.server)
    machine.down = False
    machine.server += 2
    machine.clock.refresh()
    assert machine.clock.now() == pytest.approx(machine.server)
