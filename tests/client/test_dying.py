"""Servers that end when they should not: only the calls that they were working on fail, and the next call starts another."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from faces import FACES, outcome
from wild import LEGACY_ONLY, gone, result, wild

from linkspan import Client, Connected, ConnectionLost, Disconnected, StateLost, SyncClient

OUT = {"stderr": "out of cheese"}


@pytest.mark.parametrize(("era", "face"), [("modern", "sync"), ("legacy", "async")])
@pytest.mark.parametrize(
    ("steps", "problem", "exit_code", "name"),
    [
        ([OUT, {"kill": "SIGKILL"}], "the server was ended by SIGKILL", None, "SIGKILL"),
        ([OUT, {"kill": "SIGSEGV"}], "the server was ended by SIGSEGV", None, "SIGSEGV"),
        ([OUT, {"exit": 3}], "the server ended with exit status 3", 3, None),
        ([OUT, {"exit": 0}], "the server ended with exit status 0", 0, None),
        ([OUT, {"close": 1}, {"sleep": 0.1}, {"exit": 4}], "the server ended with exit status 4", 4, None),
    ],
)
def test_death_during_a_call(
    era: Any, face: str, steps: list[Any], problem: str, exit_code: int | None, name: str | None
) -> None:
    with pytest.raises(ConnectionLost) as caught:
        outcome(face, wild({"tools/call die": steps}), lambda client: client.call_tool("die"), era=era)
    error = caught.value
    assert (error.problem, error.exit_code, error.signal) == (problem, exit_code, name)
    assert (error.phase, error.delivery, error.stderr.strip()) == ("call", "maybe_sent", "out of cheese")
    assert "  delivery: maybe_sent (the server may have acted on the request)" in str(error)
    assert "  stderr: out of cheese" in str(error)


@pytest.mark.parametrize("face", FACES)
def test_the_next_call_starts_another_server(face: str) -> None:
    events: list[Any] = []
    plan = {"tools/call die": [{"exit": 3}]}

    async def loop() -> None:
        async with Client(wild(plan), on_event=events.append) as client:
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    await client.call_tool("die")
                assert (await client.call_tool("hi")).text == "hi"

    if face == "async":
        asyncio.run(loop())
    else:
        with SyncClient(wild(plan), on_event=events.append) as client:
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    client.call_tool("die")
                assert client.call_tool("hi").text == "hi"
    kinds = [type(event) for event in events]
    assert kinds == [Connected, *[Disconnected, Connected, StateLost] * 2]


def test_all_calls_under_way_hear_of_it_and_no_other_task_does() -> None:
    async def run() -> None:
        async with Client(wild({"tools/call die": [{"exit": 3}]})) as client:
            bystander = asyncio.create_task(asyncio.Event().wait())
            hanging = [client.call_tool("hang") for _ in range(20)]
            outcomes = await asyncio.gather(*hanging, client.call_tool("die"), return_exceptions=True)
            assert {type(each) for each in outcomes} == {ConnectionLost}
            assert len({id(each) for each in outcomes}) == 21  # each has its own, with its own traceback
            assert not bystander.done()
            bystander.cancel()

    asyncio.run(run())


def test_a_call_that_only_reads_is_repeated() -> None:
    seen: list[str] = []
    said = threading.Event()

    def on_stderr(text: str) -> None:
        seen.append(text)
        said.set()

    plan = {"tools/call again": [{"stderr": "$PID"}, {"kill": "SIGKILL"}]}
    with SyncClient(wild(plan), on_stderr=on_stderr) as client, pytest.raises(ConnectionLost):
        client.call_tool("again")
    assert said.wait(30)
    assert len({*"".join(seen).split()}) == 3  # as many servers as attempts


@pytest.mark.parametrize(("tool", "retry", "runs"), [("die", "safe", 1), ("again", "never", 1), ("die", "always", 3)])
def test_a_call_is_repeated_only_as_the_policy_says(tool: str, retry: Any, runs: int) -> None:
    seen: list[str] = []
    plan = {f"tools/call {tool}": [{"stderr": "$PID"}, {"kill": "SIGKILL"}]}
    with SyncClient(wild(plan), on_stderr=seen.append, retry=retry) as client:
        with pytest.raises(ConnectionLost) as caught:
            client.call_tool(tool)
        client.close()
    assert caught.value.delivery == "maybe_sent"
    assert len("".join(seen).split()) == runs


LAST_WORDS = result({"resultType": "complete", "content": [{"type": "text", "text": "last words"}]})


def test_what_a_dead_server_said_before_still_counts() -> None:
    plan = {"tools/call die": [LAST_WORDS, {"exit": 3}]}
    assert outcome("sync", wild(plan), lambda client: client.call_tool("die")).text == "last words"


def test_what_the_heir_of_a_dead_server_says_soon_afterwards_still_counts() -> None:
    """As long as another process has its output, all that it has to say may not have come."""
    plan = {"tools/call die": [{"close": 2}, {"orphan": 0}, {"sleep": 0.2}, LAST_WORDS, {"exit": 0}]}
    assert outcome("sync", wild(plan), lambda client: client.call_tool("die")).text == "last words"


def test_an_answer_that_stops_in_the_middle_is_no_answer() -> None:
    half = {"bytes": b'{"jsonrpc":"2.0","id":2,"result":{"content":['.hex()}
    with pytest.raises(ConnectionLost, match="exit status 3"):
        outcome("sync", wild({"tools/call die": [half, {"exit": 3}]}), lambda client: client.call_tool("die"))


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_dies_of_the_probe_is_started_again_and_greeted(face: str) -> None:
    def step(client: Any) -> Any:
        return client.call_tool("hi")

    assert outcome(face, wild({"server/discover": [OUT, {"exit": 1}]}), step).text == "hi"
    assert outcome(face, wild({"server/discover": [{"close": 1}, {"close": 0}, {"exit": 1}]}), step).text == "hi"


def test_that_it_died_of_the_probe_is_remembered() -> None:
    said: list[str] = []
    plan = {"server/discover": [{"stderr": "probed"}, {"exit": 1}], "tools/call die": [{"exit": 3}]}
    with SyncClient(wild(plan), on_stderr=said.append) as client:
        with pytest.raises(ConnectionLost):
            client.call_tool("die")
        assert client.call_tool("hi").text == "hi"
    assert "".join(said).count("probed") == 1


def test_a_server_that_dies_of_the_handshake_too_says_why() -> None:
    from linkspan import ConnectError

    plan = {"server/discover": [{"exit": 1}], "initialize": [{"stderr": "no licence"}, {"exit": 2}]}
    with pytest.raises(ConnectError) as caught:
        outcome("sync", wild(plan), lambda client: client.ping())
    assert (caught.value.exit_code, caught.value.stderr.strip()) == (2, "no licence")


def test_what_a_server_has_started_ends_with_it() -> None:
    said: list[str] = []
    plan = {**LEGACY_ONLY, "tools/call hi": [{"child": 60}, {"stderr": "$PID"}, {"exit": 3}]}
    with (
        SyncClient(wild(plan), on_stderr=said.append) as client,
        pytest.raises(ConnectionLost, match="exit status 3"),  # though its child still holds the pipes
    ):
        client.call_tool("hi")


def test_a_server_killed_between_calls_costs_no_call() -> None:
    pids: list[str] = []
    heard = threading.Semaphore(0)

    def on_stderr(text: str) -> None:
        pids.append(text.strip())
        heard.release()

    with SyncClient(wild({"start": [{"stderr": "$PID"}]}), on_stderr=on_stderr) as client:
        for _ in range(3):
            assert client.call_tool("again").text == "hi"
            assert heard.acquire(timeout=30)
            os.kill(int(pids[-1]), signal.SIGKILL)
        assert client.call_tool("again").text == "hi"
    assert gone({int(pid) for pid in pids})
