"""Small promises that count when something else has gone wrong already: nothing hangs, nothing is sent twice or said falsely."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from faces import ERAS, FACES, outcome, wait_until
from wild import LEGACY_ONLY, raw, result, wild

from linkspan import (
    Ask,
    CallStopped,
    CallTimeout,
    Change,
    Client,
    ClientError,
    Connected,
    ConnectError,
    ConnectionLost,
    Disconnected,
    InputUnavailable,
    InvalidResponse,
    Server,
    StateLost,
    Stopper,
    SyncClient,
    Timeouts,
)
from linkspan.runtime.descriptors import DescriptorWaiter
from linkspan.runtime.server_end import WireEnd
from linkspan.types.messages import CreateMessageResult

HI = result({"resultType": "complete", "content": [{"type": "text", "text": "hi"}]})


# Stopping.


@pytest.mark.parametrize("face", FACES)
def test_a_call_that_was_stopped_before_it_began_is_not_sent(face: str) -> None:
    called: list[str] = []
    server = Server("s")

    @server.tool
    def act() -> str:
        called.append("act")
        return "done"

    stopper = Stopper()
    stopper.stop("never mind")
    with pytest.raises(CallStopped, match="never mind") as caught:
        outcome(face, server, lambda client: client.call_tool("act", stopper=stopper))
    assert (caught.value.delivery, called) == ("not_sent", [])


# Listening.


def begin_to_listen(face: str, client: Any) -> None:
    async def run() -> None:
        async with client.listen("note://x"):
            pass

    if face == "async":
        asyncio.run(run())
    else:
        client.listen("note://x").__enter__()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
def test_a_subscription_that_is_never_confirmed_is_given_up(face: str, era: Any) -> None:
    client = FACES[face](wild(), era=era, timeouts=Timeouts(list=0.2))
    with pytest.raises(CallTimeout) as caught:
        begin_to_listen(face, client)
    error = caught.value
    assert (error.phase, error.delivery, error.seconds) == ("list", "maybe_sent", 0.2)
    assert not client._supervisor.listeners  # nobody listens any more, so no server is kept for that
    client.close_now()


def test_giving_up_while_the_subscription_is_confirmed_ends_it() -> None:
    async def run() -> None:
        async with Client(wild()) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), client.listen(tools=True):
                    pass
            assert not client._supervisor.listeners

    asyncio.run(run())


@pytest.mark.parametrize("era", ERAS)
def test_on_change_hears_again_after_the_client_was_closed_and_connected(era: Any) -> None:
    server = Server("s", capabilities={"tools": {"listChanged": True}})
    heard: queue.Queue[Change] = queue.Queue()
    client = SyncClient(server, era=era, on_change=heard.put)
    for missed in (False, True):
        client.connect()
        if missed:
            assert heard.get(timeout=30) == Change("tools", missed=True)
        client.ping()
        server.notify_tools_list_changed()
        assert heard.get(timeout=30) == Change("tools")
        client.close()


def test_subscribing_where_nothing_is_announced_names_the_server_not_the_client() -> None:
    with (
        SyncClient(wild(), on_change=lambda change: None) as client,
        pytest.raises(ValueError, match="this server does not report when a resource changes"),
    ):
        client.subscribe("note://x")


# Servers that end slowly.


def test_a_server_that_closes_its_input_but_lives_is_replaced() -> None:
    plan = {"tools/call hi": [HI, {"close": 0}, {"stderr": "deaf"}, {"sleep": 60}]}
    deaf = threading.Event()
    with SyncClient(wild(plan), on_stderr=lambda text: deaf.set(), timeouts=Timeouts(close=0.2)) as client:
        assert client.call_tool("hi").text == "hi"
        assert deaf.wait(30)
        with pytest.raises(ConnectionLost, match="the server closed the connection"):
            client.call_tool("hi")
        assert client.call_tool("again").text == "hi"


def test_a_server_that_dies_slowly_is_waited_for_and_told_of_in_order() -> None:
    events: list[Any] = []
    plan = {"tools/call die": [{"close": 1}, {"sleep": 0.4}, {"exit": 4}]}
    with SyncClient(wild(plan), on_event=events.append, retry="never") as client:
        lost: list[ClientError] = []

        def die() -> None:
            try:
                client.call_tool("die")
            except ClientError as error:
                lost.append(error)

        dying = threading.Thread(target=die)
        dying.start()
        wait_until(lambda: not client.connected)
        assert client.call_tool("hi").text == "hi"
        dying.join()
    assert [type(each) for each in events] == [Connected, Disconnected, Connected, StateLost]
    assert [each.exit_code for each in lost] == [4]


def test_a_server_that_cannot_be_guarded_is_not_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: int) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("linkspan.runtime.process.guard_group", fail)
    with pytest.raises(ConnectError, match="Resource temporarily unavailable") as caught:
        SyncClient(wild()).connect()
    assert caught.value.phase == "spawn"


def test_a_character_that_comes_in_two_halves_is_one(tmp_path: Path) -> None:
    file = tmp_path / "halves.py"
    file.write_text(
        "import os, time\nos.write(2, b'caf\\xc3')\ntime.sleep(0.1)\nos.write(2, b'\\xa9\\n')\nraise SystemExit(1)\n"
    )
    said: list[str] = []
    client = SyncClient(file, on_stderr=said.append)
    with pytest.raises(ConnectError):
        client.connect()
    client.close()
    assert "".join(said).startswith("café\n")


# Answers to the server.


def test_a_handler_that_takes_too_long_is_an_error_of_the_call() -> None:
    server = Server("s")

    @server.tool
    def book(seats: Annotated[int, Ask("How many?")]) -> str:
        return str(seats)

    async def never(params: Any) -> Any:
        await asyncio.Event().wait()

    async def run() -> None:
        async with Client(server, elicitation=never, timeouts=Timeouts(input=0.05)) as client:
            await client.call_tool("book")

    with pytest.raises(InputUnavailable, match=r"did not come within 0.05 seconds \(timeouts.input\)"):
        asyncio.run(run())


def test_an_answer_that_cannot_be_encoded_is_refused_rather_than_forgotten() -> None:
    question = raw(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    plan = {**LEGACY_ONLY, "tools/call hi": [question], "answer": [{"stderr": "answered"}]}
    said = threading.Event()
    broken: Any = CreateMessageResult("assistant", object(), "m")  # type: ignore[arg-type]
    client = SyncClient(wild(plan), sampling=lambda params: broken, on_stderr=lambda text: said.set())
    with pytest.raises(InputUnavailable, match="the client's handler failed: TypeError"):
        client.call_tool("hi")
    assert said.wait(30)
    client.close()


@pytest.mark.parametrize(("modes", "declared"), [(("form",), {"form": {}}), (("url",), {"url": {}})])
def test_only_the_modes_of_elicitation_that_were_named_are_declared(modes: Any, declared: Any) -> None:
    client = SyncClient(wild(), elicitation=lambda params: None, elicitation_modes=modes)
    assert client._state.options.profile.capabilities == {"elicitation": declared}


# And the rest.


def test_output_is_checked_though_the_list_of_tools_was_forgotten_meanwhile() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"name": "hi", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    plan = {
        "tools/list": [result({"resultType": "complete", "tools": tools})],
        "tools/call hi": [
            raw(method="notifications/tools/list_changed"),
            result({"resultType": "complete", "content": [], "structuredContent": {"n": "one"}}),
        ],
    }
    with pytest.raises(InvalidResponse, match="does not fit its schema"):
        outcome("sync", wild(plan), lambda client: client.call_tool("hi"), check_output="strict")


def test_waiting_for_years_is_possible() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    assert DescriptorWaiter(reader).wait(1e12) == [reader]
    os.close(reader)
    os.close(writer)


class Faulty:
    """A recorder that fails on every message, in either direction."""

    def __init__(self) -> None:
        self.failures = 0

    def client(self, data: bytes) -> None:
        self.failures += 1
        raise ValueError("mine")

    server = client


@pytest.mark.parametrize("where", ["process", "memory"])
@pytest.mark.parametrize("face", FACES)
def test_a_recorder_that_raises_costs_no_message(face: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("here")
    server.tool(name="hi", inline=True)(lambda: "hi")
    recorder = Faulty()
    found = outcome(face, wild() if where == "process" else server, lambda c: c.call_tool("hi"), recorder=recorder)
    assert found.text == "hi"
    assert recorder.failures >= 4
    assert "the recorder of a client raised" in caplog.text


def test_a_thread_that_is_interrupted_while_it_carries_messages_does_not_block_the_others() -> None:
    received: list[bytes] = []

    def receive(data: bytes) -> None:
        if data == b"two":
            raise KeyboardInterrupt
        received.append(data)

    sent = iter([b"one", b"two", b"three"])
    wire = WireEnd(threading.RLock(), lambda: next(sent), receive)
    wire.carry()
    with pytest.raises(KeyboardInterrupt):
        wire.carry()
    wire.carry()
    assert received == [b"one", b"three"]
