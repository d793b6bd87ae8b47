"""`ctx.once`: a replayed state repeats no side effect (MRTR-S5: single use where it is needed)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_asking import Client, accept, text

from linkspan import Context, Server
from linkspan.runtime.system import RealSystem
from linkspan.server.dispatch import Dispatcher
from linkspan.stores import StoreError
from linkspan.wire.values import Limits
from talk import connected, say

YES = {"sure": accept(sure=True)}


def shop(charged: list[int] | None = None, **options: Any) -> tuple[Server, list[int]]:
    """A server that charges after a question, and what it charged."""
    server = Server("shop", **options)
    charged = [] if charged is None else charged

    @server.tool
    def buy(price: int, ctx: Context) -> str:
        ctx.ask("sure", bool, f"Pay {price}?")
        return f"receipt {ctx.once('charge', lambda: charged.append(price) or len(charged))}"

    @server.tool
    async def buy_async(price: int, ctx: Context) -> str:
        ctx.ask("sure", bool, f"Pay {price}?")

        async def charge() -> int:
            await asyncio.sleep(0.05)
            charged.append(price)
            return len(charged)

        return f"receipt {await ctx.once('charge', charge)}"

    @server.tool
    def early(ctx: Context) -> str:
        order = ctx.once("order", lambda: charged.append(1) or len(charged))
        ctx.ask("sure", bool, f"Order {order}?")
        return f"order {ctx.once('order', lambda: charged.append(1) or len(charged))}"

    return server, charged


@pytest.mark.parametrize("tool", ["buy", "buy_async"])
def test_a_replayed_state_gets_the_same_value_and_charges_nothing(tool: str) -> None:
    server, charged = shop()
    client = Client(server)
    first = client.call(tool, {"price": 5})
    for _ in range(3):
        assert text(client.answer(first, YES, tool, {"price": 5})) == "receipt 1"
    assert charged == [5]
    assert text(client.answer(client.call(tool, {"price": 5}), YES, tool, {"price": 5})) == "receipt 2"  # a new request


def test_what_ran_before_the_first_question_runs_once_too_and_the_question_stays_the_same() -> None:
    server, charged = shop()
    client = Client(server)
    first = client.call("early")
    assert text(client.answer(first, YES, "early")) == "order 1"
    assert text(client.answer(first, YES, "early")) == "order 1"
    assert charged == [1]
    assert list(client.call("early")["inputRequests"]["sure"]["params"]["message"]) == list("Order 2?")


def test_it_means_the_same_to_a_handshake_client() -> None:
    server, charged = shop()
    connection = connected(server)
    (question,) = say(connection, "tools/call", 1, name="early", arguments={})
    (answer,) = say(connection, None, question["id"], result=accept(sure=True))
    assert text(answer["result"]) == "order 1"
    assert charged == [1]


def together(server: Server, tool: str, count: int = 8) -> list[str]:
    """Replay one state in several threads at the same time."""
    client = Client(server)
    first = client.call(tool, {"price": 5})
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(text(client.answer(first, YES, tool, {"price": 5}))))
        for _ in range(count)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    return found


@pytest.mark.parametrize("tool", ["buy", "buy_async"])
def test_concurrent_replays_share_one_run(tool: str) -> None:
    server, charged = shop()
    assert together(server, tool) == ["receipt 1"] * 8
    assert charged == [5]


def test_a_plain_function_is_waited_for_by_a_concurrent_replay() -> None:
    server = Server("slow")
    entered, go = threading.Event(), threading.Event()
    runs: list[int] = []

    @server.tool
    def slow(price: int, ctx: Context) -> int:
        ctx.ask("sure", bool, "Sure?")

        def work() -> int:
            runs.append(1)
            entered.set()
            assert go.wait(10)
            return len(runs)

        return ctx.once("work", work)

    thread_found: list[str] = []
    thread = threading.Thread(target=lambda: thread_found.extend(together(server, "slow", 3)))
    thread.start()
    assert entered.wait(10)
    go.set()
    thread.join(10)
    assert (thread_found, runs) == (["1"] * 3, [1])


def test_what_raises_is_not_remembered() -> None:
    server = Server("flaky")
    runs: list[int] = []

    def work() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise OSError("the bank is closed")
        return "paid"

    async def work_async() -> str:
        return work()

    @server.tool
    def pay(ctx: Context) -> str:
        ctx.ask("sure", bool, "Sure?")
        return ctx.once("pay", work)

    @server.tool
    async def pay_async(ctx: Context) -> str:
        ctx.ask("sure", bool, "Sure?")
        return await ctx.once("pay", work_async)

    client = Client(server)
    for tool in ("pay", "pay_async"):
        runs.clear()
        first = client.call(tool)
        assert client.answer(first, YES, tool)["isError"]
        assert [text(client.answer(first, YES, tool)) for _ in range(2)] == ["paid", "paid"]
        assert len(runs) == 2


def test_a_cancelled_caller_does_not_stop_what_runs_once() -> None:
    asyncio.run(_cancelled())


async def _cancelled() -> None:
    chain = Server("s")._dispatcher.rounds._chains.open(None)
    done: list[str] = []
    begun, paid = asyncio.Event(), asyncio.Event()

    async def charge() -> str:
        begun.set()
        await paid.wait()
        done.append("charged")
        return "receipt"

    async def call() -> object:
        found: Any = chain.once("charge", charge)
        return await found

    first, second = asyncio.create_task(call()), asyncio.create_task(call())
    await begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    paid.set()
    assert (await second, await call(), done) == ("receipt", "receipt", ["charged"])


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda ctx: ctx.once("a", lambda: ctx.once("a", int)), "use another key"),
        (lambda ctx: ctx.once("a", lambda: asyncio.sleep(0)), "make the handler async"),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_write(work: Callable[[Context], object], told: str) -> None:
    server = Server("wrong")

    @server.tool
    def wrong(ctx: Context) -> str:
        with pytest.raises(Exception, match=told):
            work(ctx)
        return f"then {ctx.once('a', lambda: 1)}"

    assert text(Client(server).call("wrong")) == "then 1"


def test_keys_are_apart_and_none_is_a_value() -> None:
    server = Server("keys")
    runs: list[str] = []

    @server.tool
    def both(ctx: Context) -> str:
        for key in ("a", "b", "a"):
            assert ctx.once(key, lambda key=key: runs.append(key)) is None
        return "".join(runs)

    assert text(Client(server).call("both")) == "ab"


class Clock:
    """A system whose wall clock is turned by hand."""

    def __init__(self, server: Server) -> None:
        self.now = 1000.0
        system = RealSystem(wall_clock=lambda: self.now)
        server._dispatcher = Dispatcher(server._catalogue, server._profile, server._settings, system)
        self.chains = server._dispatcher.rounds._chains


def test_values_go_when_their_states_have_expired() -> None:
    server, _ = shop(request_state_ttl=60)
    clock, client = Clock(server), Client(server)
    first = client.call("buy", {"price": 5})
    assert len(clock.chains) == 0  # a chain without values needs no memory
    client.answer(first, YES, "buy", {"price": 5})
    assert len(clock.chains) == 1
    clock.now += 59
    assert text(client.answer(first, YES, "buy", {"price": 5})) == "receipt 1"
    clock.now += 1
    assert client.answer(first, YES, "buy", {"price": 5})["code"] == -32602
    clock.now += 60
    client.call("early")
    assert len(clock.chains) == 1


def test_the_number_of_remembered_requests_is_bounded_and_the_oldest_goes(caplog: pytest.LogCaptureFixture) -> None:
    server, charged = shop(limits=Limits(max_once=2))
    client = Client(server)
    states = [client.call("buy", {"price": price}) for price in (1, 2, 3)]
    for price, state in enumerate(states, 1):
        client.answer(state, YES, "buy", {"price": price})
    assert "max_once" in caplog.text
    assert text(client.answer(states[2], YES, "buy", {"price": 3})) == "receipt 3"
    assert charged == [1, 2, 3]
    client.answer(states[0], YES, "buy", {"price": 1})
    assert charged == [1, 2, 3, 1]


def test_as_many_requests_as_allowed_are_remembered_and_one_more_costs_the_oldest_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, charged = shop(limits=Limits(max_once=3))
    client = Client(server)
    states = {price: client.call("buy", {"price": price}) for price in (1, 2, 3, 4)}

    def buy(*prices: int) -> list[str]:
        return [text(client.answer(states[price], YES, "buy", {"price": price})) for price in prices]

    at_the_bound = ["receipt 1", "receipt 2", "receipt 3"]
    assert buy(1, 2, 3) == buy(1, 2, 3) == at_the_bound
    assert charged == [1, 2, 3]
    assert caplog.text == ""
    assert buy(4, 2, 3, 4) == ["receipt 4", "receipt 2", "receipt 3", "receipt 4"]
    assert charged == [1, 2, 3, 4]
    assert caplog.text.count("more requests than max_once have used it") == 1
    assert buy(1) == ["receipt 5"]


# Several processes with one store.


def processes(tmp_path: Path, **options: Any) -> tuple[list[Client], list[int]]:
    """Two servers, as two processes have them, and what both have charged."""
    url, charged = f"sqlite://{tmp_path / 'store.db'}", list[int]()
    clients: list[Client] = []
    for _ in range(2):
        server, _ = shop(charged, store=url, **options)
        clients.append(Client(server))
    return clients, charged


@pytest.mark.parametrize("tool", ["buy", "buy_async"])
def test_a_replay_at_another_process_gets_the_same_value_and_charges_nothing(tool: str, tmp_path: Path) -> None:
    (one, other), charged = processes(tmp_path)
    first = one.call(tool, {"price": 5})
    for client in (other, one, other):
        assert text(client.answer(first, YES, tool, {"price": 5})) == "receipt 1"
    assert charged == [5]
    assert text(other.answer(other.call(tool, {"price": 5}), YES, tool, {"price": 5})) == "receipt 2"


def test_what_ran_before_the_first_question_does_not_run_in_the_process_that_gets_the_answer(tmp_path: Path) -> None:
    (one, other), charged = processes(tmp_path)
    first = one.call("early")
    assert [text(each.answer(first, YES, "early")) for each in (other, one)] == ["order 1"] * 2
    assert charged == [1]


def test_replays_at_two_processes_at_once_share_one_run(tmp_path: Path) -> None:
    clients, charged = processes(tmp_path)
    for tool in ("buy", "buy_async"):
        charged.clear()
        first = clients[0].call(tool, {"price": 5})
        found: list[str] = []

        def replay(client: Client, tool: str = tool, first: Any = first, found: list[str] = found) -> None:
            found.append(text(client.answer(first, YES, tool, {"price": 5})))

        threads = [threading.Thread(target=replay, args=(clients[number % 2],)) for number in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        assert (found, charged) == (["receipt 1"] * 6, [5])


def flaky(tmp_path: Path, work: Callable[[], object]) -> list[Client]:
    clients: list[Client] = []
    for _ in range(2):
        server = Server("flaky", store=f"sqlite://{tmp_path / 'store.db'}")

        @server.tool
        def pay(ctx: Context) -> str:
            ctx.ask("sure", bool, "Sure?")
            return str(ctx.once("pay", work))

        @server.tool
        async def pay_async(ctx: Context) -> str:
            async def later() -> object:
                return work()

            await ctx.ask("sure", bool, "Sure?")
            return str(await ctx.once("pay", later))

        clients.append(Client(server))
    return clients


@pytest.mark.parametrize("tool", ["pay", "pay_async"])
def test_what_raised_in_one_process_runs_in_another(tool: str, tmp_path: Path) -> None:
    runs: list[int] = []

    def work() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise OSError("the bank is closed")
        return "paid"

    one, other = flaky(tmp_path, work)
    first = one.call(tool)
    assert one.answer(first, YES, tool)["isError"]
    assert [text(each.answer(first, YES, tool)) for each in (other, one)] == ["paid"] * 2
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [(("a", "tuple"), "a tuple"), ([("a",), "b"], "a list"), ({"a": ["b", ("c",)]}, "a dict")],
)
def test_a_value_that_cannot_be_stored_stays_where_it_is_and_does_not_run_again(
    value: object, shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    def work() -> object:
        runs.append(1)
        return value

    one, other = flaky(tmp_path, work)
    first = one.call("pay")
    assert [text(one.answer(first, YES, "pay")) for _ in range(2)] == [str(value)] * 2
    assert f"returned {shown}, which other processes cannot have" in caplog.text
    assert other.answer(first, YES, "pay")["isError"]
    assert "which only that process has: return text, numbers, lists or mappings" in caplog.text
    assert runs == [1]


def test_what_a_process_that_died_has_begun_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("linkspan.serve.stored_once._PATIENCE", 0.1)
    runs: list[int] = []

    class Killed(BaseException):
        """Stands for the end of a process in the middle of the function."""

    def work() -> object:
        runs.append(1)
        raise Killed

    one, other = flaky(tmp_path, work)
    first = one.call("pay")
    monkeypatch.setattr("linkspan.serve.stored_once.StoredValue.give_up", lambda _: None)
    one.answer(first, YES, "pay")
    assert other.answer(first, YES, "pay")["isError"]
    assert "it may have been carried out" in caplog.text
    assert runs == [1]


def test_without_the_store_what_must_happen_once_does_not_happen(tmp_path: Path) -> None:
    (one, _), charged = processes(tmp_path)
    first = one.call("buy", {"price": 5})
    server = one.server
    server.store.put = refuse  # type: ignore[method-assign]
    refused = one.answer(first, YES, "buy", {"price": 5})
    assert "the store cannot be reached" in refused["message"]
    assert charged == []


def refuse(*_: object, **__: object) -> None:
    raise StoreError("it is away")


def test_the_values_in_the_store_are_bounded_too(tmp_path: Path) -> None:
    (one, _), _ = processes(tmp_path, limits=Limits(max_once=3))
    for price in range(8):
        one.answer(one.call("buy", {"price": price}), YES, "buy", {"price": price})
    store = one.server.store
    assert len(store._run("SELECT key FROM {p}records WHERE key LIKE 'once/%'")) == 3  # type: ignore[attr-defined]
