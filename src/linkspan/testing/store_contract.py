"""The contract of stores, as a function: `check_store(make)` raises AssertionError for a store that breaks it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, Queue
from typing import Final, TypeAlias

from linkspan.stores.leases import Lease, amend, claim, create, look
from linkspan.stores.port import ABSENT, Bounds, Store, StoreError

Make: TypeAlias = Callable[[], Store]
_PATIENCE: Final = 30.0
_BRIEF: Final = 0.2
"""Seconds of a short time to live."""


def check_store(make: Make) -> None:
    """Check the port of stores, all twelve operations. It takes a few seconds.

    `make` returns a new handle to the same state each time that it is called, as another process has one. The store may
    hold other things: all names are new. Raises: AssertionError, which states what is wrong.
    """
    opened: list[Store] = []

    def tracked() -> Store:
        opened.append(make())
        return opened[-1]

    try:
        for check in CHECKS:
            check(tracked)
    finally:
        for each in opened:
            each.close()


def _name(kind: str) -> str:
    return f"check/{kind} {uuid.uuid4().hex}"


def _records_are_changed_under_compare_and_set(make: Make) -> None:
    one, other = make(), make()
    key = _name("record")
    assert one.get(key) is None, "a key that was never written has a record"
    assert one.put(key, b"1", expect=7) is None, "put with expect wrote a record that did not exist"
    first = one.put(key, b"\x001", expect=ABSENT)
    assert first, "put with expect=ABSENT did not write, or returned no version"
    assert other.put(key, b"2", expect=ABSENT) is None, "put with expect=ABSENT replaced a record"
    found = other.get(key)
    assert found is not None, "another handle does not see a record"
    assert (found.value, found.version) == (b"\x001", first), "another handle sees another value or version"
    second = other.put(key, b"", expect=first)
    assert second not in (None, first), "put with the right version did not write a new version"
    assert one.put(key, b"3", expect=first) is None, "put with an old version wrote"
    assert one.put(key, b"4") not in (None, second), "put without expect did not write"
    assert not one.delete(key, expect=second), "delete with an old version deleted"
    assert one.delete(key), "delete did not find the record"
    assert not one.delete(key), "delete found a record that was deleted"
    assert other.get(key) is None, "a deleted record is still there"
    third = one.put(key, b"5", expect=ABSENT)
    assert third not in (None, first, second), "a version came again after the record was deleted"
    assert other.put(key, b"6", expect=second) is None, "the version of a deleted record still counts"
    large = bytes(range(256)) * 2048
    one.put(key, large)
    found = other.get(key)
    assert found is not None, "a value of 512 KiB was not kept"
    assert found.value == large, "a value of 512 KiB was changed"


def _of_many_who_change_a_record_one_wins(make: Make) -> None:
    stores = [make() for _ in range(4)]
    key = _name("counter")
    stores[0].put(key, b"0")

    def count(store: Store) -> None:
        done = 0
        while done < 25:
            found = store.get(key)
            assert found is not None
            done += store.put(key, b"%d" % (int(found.value) + 1), expect=found.version) is not None

    _in_threads([partial(count, store) for store in stores])
    found = stores[0].get(key)
    assert found is not None
    assert found.value == b"100", f"of 100 changes under compare-and-set {found.value.decode()} counted"


def _records_expire(make: Make) -> None:
    store = make()
    key, kept = _name("short"), _name("kept")
    began = time.monotonic()
    version = store.put(key, b"1", ttl=_BRIEF)
    store.put(kept, b"1", ttl=_BRIEF)
    store.put(kept, b"2")
    early = store.get(key) is None
    assert not early or time.monotonic() - began >= _BRIEF, "a record expired before its time"
    _wait(lambda: store.get(key) is None, "a record did not expire")
    assert store.put(key, b"2", expect=version) is None, "the version of an expired record still counts"
    assert not store.delete(key), "an expired record was deleted"
    assert store.put(key, b"3", expect=ABSENT), "an expired record is in the way of a new one"
    assert store.get(kept) is not None, "a put without ttl kept the time of the one before"


def _learn(store: Store, name: str, found: list[bytes]) -> None:
    found.append(store.secret(name))


def _secrets_are_the_same_for_all(make: Make) -> None:
    name = _name("secret")
    found: list[bytes] = []
    _in_threads([partial(_learn, make(), name, found) for _ in range(4)])
    assert len(set(found)) == 1, "several processes have different secrets of one name"
    assert len(found[0]) == 32, "a secret does not have 32 bytes"
    assert make().secret(_name("secret")) != found[0], "two names have the same secret"


def _keys_are_due_in_order(make: Make) -> None:
    one, other = make(), make()
    queue = _name("queue")
    for key, at in (("c", 30.0), ("a", 10.5), ("b", 20.0), ("later", 1e9)):
        one.schedule(queue, key, at)
    assert list(other.due(queue, 25.0, 10)) == ["a", "b"], "due does not return what is due, in order"
    assert list(other.due(queue, 30.0, 2)) == ["a", "b"], "due does not keep to its limit"
    assert list(one.due(queue, 30.0, 10)) == ["a", "b", "c"], "due took keys out of the queue"
    other.schedule(queue, "a", 40.0)
    one.schedule(queue, "b", None)
    one.schedule(queue, "never", None)
    assert list(one.due(queue, 40.0, 10)) == ["c", "a"], "a key that was moved or taken out is still at its old time"
    assert list(one.due(_name("queue"), 1e10, 10)) == [], "queues are not separate"


def _logs_are_read_from_a_position(make: Make) -> None:
    one, other = make(), make()
    log = _name("log")
    assert list(one.read(log)) == [], "a log that was never written has entries"
    positions = [(one, other)[number % 2].append(log, b"%d" % number) for number in range(5)]
    assert positions == list(range(positions[0], positions[0] + 5)), "positions of a log are not consecutive"
    assert [each.data for each in other.read(log)] == [b"0", b"1", b"2", b"3", b"4"], "entries are not read in order"
    later = other.read(log, positions[2])
    assert [each.position for each in later] == positions[3:], "read returns others than those after a position"
    few = Bounds(items=3, bytes=10_000, ttl=60)
    one.append(log, b"5", few)
    assert [each.data for each in one.read(log)] == [b"3", b"4", b"5"], (
        "a log holds more, or other, items than its bound"
    )
    small, kilobyte = Bounds(items=100, bytes=2500, ttl=60), bytes(1000)
    for _ in range(3):
        one.append(log, kilobyte, small)
    assert [each.data for each in one.read(log)] == [kilobyte] * 2, "a log holds more, or other, bytes than its bound"
    one.append(log, kilobyte * 3, small)
    assert [each.data for each in one.read(log)] == [kilobyte * 3], "the newest entry of a log did not stay"
    brief = _name("log")
    one.append(brief, b"1", Bounds(ttl=_BRIEF))
    _wait(lambda: not other.read(brief), "a log did not expire")


def _appends_of_many_have_positions_of_their_own(make: Make) -> None:
    stores = [make() for _ in range(4)]
    log = _name("log")
    positions: list[int] = []

    def append(store: Store) -> None:
        positions.extend(store.append(log, b"x") for _ in range(10))

    _in_threads([partial(append, store) for store in stores])
    expected = list(range(min(positions), min(positions) + 40))
    assert sorted(positions) == expected, "of appends at the same time, two have one position, or one is missing"
    assert [each.position for each in stores[0].read(log)] == expected, "of appends at the same time, one is missing"


def _messages_reach_all_subscribers_in_order(make: Make) -> None:
    one, other = make(), make()
    channel, elsewhere = _name("channel"), _name("channel")
    inboxes: list[Queue[bytes | None]] = [Queue() for _ in range(4)]
    leave = one.subscribe(channel, inboxes[0].put)
    other.subscribe(channel, inboxes[1].put)
    other.subscribe(channel, inboxes[2].put)
    other.subscribe(elsewhere, inboxes[3].put)
    sent = [b"\x00%d" % number for number in range(20)]
    for each in sent:
        one.publish(channel, each)
    for inbox in inboxes[:3]:
        found = _received(inbox, len(sent))
        assert found == sent, f"a subscriber received {len(found)} of {len(sent)} messages, or in another order"
    leave()
    leave()
    other.publish(channel, b"last")
    other.publish(elsewhere, b"end")
    assert _received(inboxes[1], 1) == [b"last"], "a message did not reach another process"
    assert _received(inboxes[3], 1) == [b"end"], "channels are not separate"
    assert inboxes[0].empty(), "a subscriber that has left still receives messages"


def _subscribers_come_and_go(make: Make) -> None:
    store, other, channel = make(), make(), _name("channel")
    silent: list[int] = []

    def come_and_go(number: int) -> None:
        for turn in range(5):
            inboxes: Queue[bytes | None] = Queue()
            leave = store.subscribe(channel, inboxes.put)
            mine = b"%d %d" % (number, turn)
            other.publish(channel, mine)
            try:
                for _ in iter(partial(inboxes.get, timeout=_PATIENCE), mine):
                    pass  # a message of another
            except Empty:
                silent.append(number)
            leave()

    _in_threads([partial(come_and_go, number) for number in range(4)])
    assert not silent, "a subscriber received nothing while others of its channel came and went"


def _a_claim_has_one_winner(make: Make) -> None:
    stores = [make() for _ in range(4)]
    key, now = _name("lease"), time.time()
    won: list[Lease] = []

    def compete(store: Store, owner: str) -> None:
        lease = claim(store, key, owner, now=now, until=now + 60)
        if lease is not None:
            won.append(lease)

    _in_threads([partial(compete, store, f"{number}") for number, store in enumerate(stores)])
    assert len(won) == 1, f"of 4 processes {len(won)} won a lease"
    (lease,) = won
    assert lease.write(b"begun"), "the owner of a lease could not write"
    assert claim(stores[0], key, "late", now=now + 59, until=now + 90) is None, (
        "a lease was taken before its time was over"
    )
    taken = claim(stores[1], key, "late", now=now + 61, until=now + 90)
    assert taken is not None, "a lease whose time is over could not be claimed"
    assert (taken.value, taken.fence) == (b"begun", lease.fence + 1), (
        "a claim did not keep the value and raise the fence"
    )
    assert not lease.write(b"too late"), "a result with an old fence was written"
    assert taken.release(b"done"), "the new owner could not write"
    first = claim(stores[2], key, "next", now=now, until=now + 60)
    assert first is not None, "a lease that was released could not be claimed"
    second = claim(stores[3], key, "next", now=now, until=now + 60)
    assert second is not None, "an owner could not claim again what it has"
    assert not first.write(b"forgotten"), "a result with an old fence was written, since the owner is the same"
    assert second.write(b"again"), "an owner that has claimed again could not write"


def _others_may_amend_what_is_leased(make: Make) -> None:
    owner, other = make(), make()
    key, now = _name("lease"), time.time()
    lease = create(owner, key, b"begun", "owner", until=now + 60)
    assert lease is not None, "a new key could not be leased"
    assert create(other, key, b"", "other", until=now + 60) is None, "a key was made twice"
    assert amend(other, key, lambda value: value + b", stopping") is not None, "a lease could not be amended"
    assert lease.change(lambda value: value + b", stopped"), "an amendment cost the owner its lease"
    found = look(other, key)
    assert found is not None, "a lease is not there"
    assert (found.value, found.owner, found.fence) == (b"begun, stopping, stopped", "owner", lease.fence), (
        "an amendment was lost, or has changed the lease"
    )
    assert claim(other, key, "other", now=now + 61, until=now + 90, change=lambda _: None) is None, (
        "a claim that changes nothing took the lease"
    )
    assert claim(other, key, "other", now=now + 61, until=now + 90, change=lambda _: b"again"), "a claim was refused"
    assert not lease.change(lambda _: b"too late"), "a result with an old fence was written"


def _all_have_one_clock(make: Make) -> None:
    one, other = make(), make()
    one.get(_name("record"))
    other.get(_name("record"))
    first = one.now()
    second = other.now()
    third = one.now()
    assert abs(first - time.time()) < 366 * 86400, "now does not return seconds since 1970"
    assert first - 0.5 <= second <= third + 0.5, "two handles have clocks that differ"
    began = time.monotonic()
    _wait(lambda: one.now() > third, "the clock stands still")
    assert one.now() - third < time.monotonic() - began + 1, "the clock does not count seconds"


def _a_closed_store_refuses(make: Make) -> None:
    store, other = make(), make()
    channel = _name("channel")
    inboxes: Queue[bytes | None] = Queue()
    store.subscribe(channel, inboxes.put)
    store.close()
    store.close()
    try:
        store.get(_name("record"))
    except StoreError:
        pass
    else:
        raise AssertionError("a closed store does not raise StoreError")
    other.publish(channel, b"1")
    assert other.put(_name("record"), b"1"), "closing one handle closed another"
    assert inboxes.empty(), "a closed store still delivers"


CHECKS: Final[Sequence[Callable[[Make], None]]] = (
    _records_are_changed_under_compare_and_set,
    _of_many_who_change_a_record_one_wins,
    _records_expire,
    _secrets_are_the_same_for_all,
    _keys_are_due_in_order,
    _logs_are_read_from_a_position,
    _appends_of_many_have_positions_of_their_own,
    _messages_reach_all_subscribers_in_order,
    _subscribers_come_and_go,
    _a_claim_has_one_winner,
    _others_may_amend_what_is_leased,
    _all_have_one_clock,
    _a_closed_store_refuses,
)
"""The parts of the contract, for a test of each."""


def _wait(true: Callable[[], object], otherwise: str) -> None:
    give_up = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < give_up, otherwise
        time.sleep(0.01)


def _received(inbox: Queue[bytes | None], count: int) -> list[bytes | None]:
    """Return so many messages, or fewer if no more come."""
    found: list[bytes | None] = []
    try:
        while len(found) < count:
            found.append(inbox.get(timeout=_PATIENCE))
    except Empty:
        pass
    return found


def _in_threads(functions: Sequence[Callable[[], object]]) -> None:
    """Run functions at the same time; raise what one of them raised."""
    raised: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if raised:
        raise raised[0]
