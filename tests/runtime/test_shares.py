"""Shares of the worker threads: one client's items wait for each other, and for nobody else's."""

from __future__ import annotations

from linkspan.runtime.workers import Shares


def test_a_client_has_its_share_and_no_more():
    passed: list[str] = []
    shares = Shares(passed.append, 2)
    for item in ("a1", "a2", "a3", "b1", "a4"):
        shares.submit(item, item[0])
    assert passed == ["a1", "a2", "b1"]
    shares.done("b")
    assert passed == ["a1", "a2", "b1"]
    shares.done("a")
    assert passed[3:] == ["a3"]
    for _ in range(3):
        shares.done("a")
    assert passed[4:] == ["a4"]
    shares.submit("a5", "a")
    shares.submit("a6", "a")
    shares.submit("a7", "a")
    assert passed[5:] == ["a5", "a6"]


def test_what_is_withdrawn_is_not_passed_on():
    passed: list[str] = []
    shares = Shares(passed.append, 1)
    for item in ("a1", "a2", "a3"):
        shares.submit(item, "a")
    assert (shares.withdraw("a2", "a"), shares.withdraw("a1", "a"), shares.withdraw("a2", "a")) == (True, False, False)
    shares.done("a")
    assert passed == ["a1", "a3"]


def test_nothing_is_remembered_of_clients_that_have_nothing_here():
    shares = Shares(lambda _: None, 1)
    for item in ("a1", "a2"):
        shares.submit(item, "a")
    shares.withdraw("a2", "a")
    shares.done("a")
    assert (shares._held, shares._waiting) == ({}, {})  # pyright: ignore[reportPrivateUsage]
