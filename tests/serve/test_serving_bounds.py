"""What a server keeps or writes because of its clients ends at a bound: the last that fits, and one more."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from linkspan import Grant, LinkspanError, Server
from linkspan.auth import Protected
from linkspan.core.http_checks import Gate, HttpPolicy
from linkspan.core.http_exchange import HttpResponse
from linkspan.revisions.neutral import TransportInfo
from linkspan.serve import guarding, process_channel
from linkspan.serve.guarding import Guard, Verification, guard_of
from linkspan.serve.http import listen
from linkspan.serve.http_app import RefusalLog
from linkspan.serve.process_channel import ProcessChannel
from linkspan.stores import MemoryStore, StoreError
from linkspan.stores.subscribers import pause_after
from tokens import RESOURCE

ISSUER = "https://own.example.com"


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "linkspan.http"]


# The door.


class Door:
    """A protected server whose tokens are good, unless they are called otherwise; it counts what it verifies."""

    revoked = False

    def __init__(self) -> None:
        self.verified: list[str] = []
        server = Server("files", auth=Protected(RESOURCE, verify=self._check))
        self.guard: Guard = guard_of(server, Gate(HttpPolicy()))

    def _check(self, token: str) -> Grant | None:
        self.verified.append(token)
        return Grant(ISSUER, subject=token) if token.startswith("good") and not self.revoked else None

    def admit(self, token: str) -> TransportInfo | HttpResponse | Verification:
        return self.guard.admit(TransportInfo({"authorization": f"Bearer {token}"}), "POST", "", below=False)

    def enter(self, token: str) -> TransportInfo | HttpResponse:
        found = self.admit(token)
        return found.run() if isinstance(found, Verification) else found


def test_of_many_tokens_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "_KNOWN", 3)
    door = Door()
    names = ["good-1", "good-2", "good-3"]
    for _ in range(2):
        for each in names:
            assert isinstance(door.enter(each), TransportInfo)
    assert door.verified == names
    assert isinstance(door.enter("good-4"), TransportInfo)
    assert isinstance(door.enter("good-3"), TransportInfo)
    assert door.verified == [*names, "good-4"]
    assert isinstance(door.enter("good-1"), TransportInfo)
    assert door.verified == [*names, "good-4", "good-1"]
    assert len(door.guard._known) == 3


def test_no_more_requests_wait_for_their_tokens_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "_MOST_WAITING", 2)
    door = Door()
    with door.guard.waiting():
        assert isinstance(door.enter("good-1"), TransportInfo)
        with door.guard.waiting():
            refused = door.admit("good-2")
            assert isinstance(refused, HttpResponse)
            assert refused.status == 503
            assert dict(refused.headers)["retry-after"]
            assert isinstance(door.admit("good-1"), TransportInfo), "it is known, and waits for nothing"
        assert isinstance(door.enter("good-2"), TransportInfo)
    assert isinstance(door.enter("good-3"), TransportInfo)


def test_what_waits_is_counted_until_it_ends_whatever_comes_of_it() -> None:
    door = Door()
    for token in ("good", "bad", "good"):
        door.enter(token)
        assert door.guard._waiting == 0
    with suppress(KeyError), door.guard.waiting():
        assert door.guard._waiting == 1
        raise KeyError
    assert door.guard._waiting == 0


class Exchange:
    """Exchanges each token for one that lives for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    def token(self, _token: str, audience: str, _scopes: object, _now: float) -> Any:
        self.asked.append(audience)
        return f"{audience} {len(self.asked)}", self.seconds
        yield


def exchanged(door: Door, audience: str) -> str:
    flow: Any = door.guard.exchange("token", b"digest", audience, ())
    with pytest.raises(StopIteration) as stop:
        next(flow)
    found: str = stop.value.value
    return found


def test_an_exchanged_token_is_exchanged_anew_a_minute_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(guarding, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    door = Door()
    door.guard.protected.exchange = exchange = Exchange(90.0)  # type: ignore[assignment]
    for at, found in ((1000.0, "a 1"), (1029.9, "a 1"), (1030.0, "a 2"), (1059.9, "a 2"), (1060.0, "a 3")):
        now[0] = at
        assert exchanged(door, "a") == found
    exchange.seconds = 60.0
    assert exchanged(door, "b") == "b 4"
    assert exchanged(door, "b") == "b 5"


def test_of_many_exchanged_tokens_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "_KNOWN", 2)
    door = Door()
    door.guard.protected.exchange = exchange = Exchange(3600.0)  # type: ignore[assignment]
    for audience in ("a", "b", "a", "b", "c", "b", "c", "a"):
        exchanged(door, audience)
    assert exchange.asked == ["a", "b", "c", "a"]
    assert len(door.guard._exchanged) == 2


def test_the_log_has_twenty_refusals_of_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(guarding, "time", SimpleNamespace(time=time.time, monotonic=lambda: now[0]))
    door = Door()
    for number in range(25):
        door.guard.log(f"problem {number}")
        now[0] += 1.0
    assert logged(caplog) == [f"a request was refused: problem {number}" for number in range(20)]
    caplog.clear()
    now[0] = 1059.5  # the first line is not a minute old
    door.guard.log("too early")
    now[0] = 1060.5
    for each in ("in its place", "the next one"):
        door.guard.log(each)
    assert logged(caplog) == ["a request was refused: in its place"]


def test_a_token_is_good_until_it_ends_and_not_in_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(guarding, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    door = Door()
    entered = door.enter("good")
    assert isinstance(entered, TransportInfo)
    assert entered.access is not None
    token: Any = entered.access._token  # type: ignore[attr-defined]
    token.ends = 1010.0
    now[0] = 1009.999
    assert entered.access.holds()
    now[0] = 1010.0
    assert not entered.access.holds()


def test_the_log_says_why_a_stream_ends(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    entered = door.enter("good")
    assert isinstance(entered, TransportInfo)
    token: Any = entered.access._token  # type: ignore[union-attr]
    door.guard._check_again(token, None)
    assert entered.access is not None
    assert entered.access.holds()
    assert logged(caplog) == []
    door.revoked = True
    door.guard._check_again(token, None)
    assert not entered.access.holds()
    (line,) = logged(caplog)
    assert line.startswith("a request was refused: a stream ends: ")
    assert isinstance(door.admit("good"), Verification), "it is not known any more"


def test_a_head_of_an_unknown_token_is_looked_at_each_time() -> None:
    door = Door()
    entered = door.enter("good")
    assert isinstance(entered, TransportInfo)
    assert door.guard.good_until(entered) > time.time()
    door.guard._known.clear()
    assert door.guard.good_until(entered) == 0.0
    assert door.guard.good_until(TransportInfo()) == 0.0


# Logs.


def test_each_reason_of_a_refusal_is_logged_once_and_a_hundred_in_all(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for _ in range(2):
        for number in range(101):
            log.add(f"reason {number}")
    assert logged(caplog) == [f"a request was refused: reason {number}" for number in range(100)]


# Between processes.


class Failing(MemoryStore):
    """A store in which nothing can be published until `works` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.works = threading.Event()
        self.tried = threading.Semaphore(0)
        self.published: list[bytes] = []

    def publish(self, channel: str, data: bytes) -> None:
        self.tried.release()
        if not self.works.is_set():
            raise StoreError("it does not work")
        self.published.append(data)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the threads of a channel would sleep."""
    found: list[float] = []
    real = time.sleep

    class Clock:
        @staticmethod
        def sleep(seconds: float) -> None:
            found.append(seconds)
            real(0.001)

    monkeypatch.setattr(process_channel, "time", Clock)
    return found


def until(true: Any) -> None:
    give_up = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def test_a_store_that_fails_is_asked_ever_more_rarely(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_channel, "_AT_EXIT", 0.0)
    store = Failing()
    channel = ProcessChannel(lambda: store, lambda: "shop")
    channel.publish(b"lost")
    for _ in range(4):
        assert store.tried.acquire(timeout=60)
    store.works.set()
    channel.publish(b"heard")
    until(lambda: len(store.published) == 2)
    origin = channel._origin
    assert store.published == [origin, origin + b"heard"], "that something was missed is told in its place"
    assert pauses == [pause_after(number) for number in range(1, len(pauses) + 1)]
    assert len(pauses) >= 3
    warnings = [each.getMessage() for each in caplog.records if each.name == "linkspan.server"]
    assert len([each for each in warnings if "do not reach other processes" in each]) == 1


def test_a_thousand_messages_wait_and_one_more_leaves_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_channel, "_MOST", 3)
    queue = process_channel._Queue()
    for each in (b"1", b"2", b"3"):
        queue.put(each)
    assert [queue.get() for _ in range(3)] == [b"1", b"2", b"3"]
    for each in (b"1", b"2", b"3", b"4", b"5"):
        queue.put(each)
    assert [queue.get() for _ in range(2)] == [None, b"5"]


def test_the_end_of_a_process_waits_for_what_is_in_work() -> None:
    queue = process_channel._Queue()
    queue.put(b"1")
    assert queue.get() == b"1"
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: (queue.wait_until_empty(60), ended.set()))
    waiting.start()
    assert not ended.wait(0.05)
    queue.done()
    assert ended.wait(60)
    waiting.join(60)
    queue.wait_until_empty(60)


# Ports.


@pytest.mark.parametrize("port", [-1, 65536, 80801, True, 8000.0, "8000", None])
def test_a_port_that_does_not_exist_is_refused(port: Any) -> None:
    with pytest.raises(LinkspanError, match="does not exist: choose one from 1 to 65535, or 0 for any free one"):
        listen("127.0.0.1", port)


def test_the_last_port_and_any_free_one_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(socket, "create_server", lambda address, **_: asked.append(address[1]))
    for port in (0, 1, 65535):
        listen("127.0.0.1", port)
    assert asked == [0, 1, 65535]
