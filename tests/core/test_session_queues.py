"""In which queues a shared session is counted: in that of all, and in that of its principal."""

from __future__ import annotations

from linkspan.core.shared_record import entries
from linkspan.wire.values import key_of


def test_a_session_without_a_principal_is_counted_once() -> None:
    assert entries("shop", None, "s1") == (("sessions/shop", "s1"),)


def test_a_session_of_a_principal_is_counted_among_its_own_too() -> None:
    ann, eve = key_of("ann"), key_of("eve")
    assert entries("shop", "ann", "s1") == (("sessions/shop", f"s1/{ann}"), (f"sessions/shop/{ann}", "s1"))
    assert entries("shop", "eve", "s1")[1] == (f"sessions/shop/{eve}", "s1")
    assert ann != eve
