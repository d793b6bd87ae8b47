"""Deadlines hold for whole operations: over rounds and pauses, over questions, and where a server says nothing at all."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import msgspec
import pytest
from faces import FACES, outcome, wait_until
from test_repeating import GOOD, ORIGIN, connected, drive
from wild import gone, raw, result, wild

from linkspan import (
    CallTimeout,
    Client,
    ClientError,
    ConnectError,
    ConnectionLost,
    InputUnavailable,
    InvalidResponse,
    SyncClient,
    Timeouts,
)
from linkspan.core.flow import AskUser, RequestSpec, Send, Sleep
from linkspan.flows.requesting import request, request_with_rounds
from linkspan.revisions import LATEST
from linkspan.revisions.agreement import Agreement
from linkspan.wire.jsonrpc import Response, encode

FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}
COME_AGAIN = {"resultType": "input_required", "requestState": "s"}
QUESTION = {"resultType": "input_required", "inputRequests": {"q": FORM}}
NEITHER = {"resultType": "input_required"}
CALL = RequestSpec("tools/call", b'{"name":"roll","arguments":{}}', timeout=60.0, total=9.0)


class Simulated:
    """Drives one call whose server only ever answers `interim`; each answer takes `network` seconds, each handler `person`."""

    def __init__(self, interim: dict[str, Any], *, network: float = 0.0, person: float = 0.0) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.sent: list[RequestSpec] = []
        state = connected()
        state.clock = lambda: self.now
        state.agreement = Agreement(LATEST)
        timeouts = Timeouts(total=9.0, input=20.0)
        limits = msgspec.structs.replace(state.options.limits, max_rounds=10_000)
        state.options = msgspec.structs.replace(state.options, timeouts=timeouts, limits=limits)
        flow = request_with_rounds(state, CALL)
        effect: Any = next(flow)
        try:
            while True:
                given: Any = None
                if isinstance(effect, Send):
                    self.sent.append(effect.spec)
                    self.now += network
                    given = Response(1, msgspec.Raw(encode(interim)))
                elif isinstance(effect, AskUser):
                    self.asked.append(effect.seconds)
                    self.now += person
                    given = {"q": b"{}"}
                elif isinstance(effect, Sleep):
                    self.now += effect.seconds
                effect = flow.send(given)
        except ClientError as error:
            self.error = error


def test_total_bounds_rounds_and_pauses() -> None:
    """MRTR: a server that only ever says "come again" gets the time of one call."""
    found = Simulated(COME_AGAIN, network=0.5)
    assert type(found.error) is CallTimeout
    assert found.error.seconds == 9.0
    assert "tools/call of 'roll' timed out: no result within 9 s" in str(found.error)
    assert 8.4 <= found.now <= 9.0
    lefts = [each.left for each in found.sent]
    assert lefts[0] is None
    assert lefts[1:] == sorted((left for left in lefts[1:] if left is not None), reverse=True)
    assert all(left is not None and left < 9.0 for left in lefts[1:])


def test_handlers_do_not_count_against_total_up_to_input() -> None:
    """Endless questions: 1 second each for the network, 3 for a person, who has 20 in all."""
    found = Simulated(QUESTION, network=1.0, person=3.0)
    assert type(found.error) is CallTimeout
    assert 28.0 <= found.now <= 9.0 + 20.0 + 3.0
    assert found.asked == [20.0, 17.0, 14.0, 11.0, 8.0, 5.0, 2.0, 0.0]


def test_the_handlers_of_one_call_share_the_time_of_input() -> None:
    found = Simulated(QUESTION, person=8.0)
    assert found.asked[:3] == [20.0, 12.0, 4.0]
    assert found.now <= 20.0 + 9.0 + 8.0


@pytest.mark.parametrize("interim", [NEITHER, {**NEITHER, "inputRequests": {}}])
def test_input_required_with_nothing_in_it_is_invalid_at_once(interim: dict[str, Any]) -> None:
    found = Simulated(interim)
    assert type(found.error) is InvalidResponse
    assert "invalid response to tools/call: input_required with neither inputRequests nor requestState" in str(
        found.error
    )
    assert len(found.sent) == 1
    assert found.now == 0.0


def test_attempts_and_rounds_share_the_time() -> None:
    """A round that has to be sent twice has only what is left of the call."""
    state = connected()
    now = [0.0]
    state.clock = lambda: now[0]
    late = msgspec.structs.replace(CALL, left=0.04)
    lost = ConnectionLost("lost", ORIGIN, delivery="not_sent")
    assert drive(request(state, late), [lost, GOOD])[2] == ("ConnectionLost", "not_sent")


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_always_asks_for_another_round_is_given_up_in_time(face: str) -> None:
    began = time.monotonic()
    plan = {"tools/call hi": [result(COME_AGAIN)]}
    with pytest.raises(CallTimeout, match=r"'hi' timed out: no result within 0.6 s,") as caught:
        outcome(face, wild(plan), lambda client: client.call_tool("hi", total=0.6), timeouts=Timeouts(close=0.3))
    assert caught.value.seconds == 0.6
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("face", FACES)
def test_the_last_round_times_out_with_the_time_of_the_whole_call(face: str) -> None:
    """The second round is never answered; its deadline is what is left, the error names the whole."""
    asked = raw(id="$ID", result=COME_AGAIN)
    plan = {"tools/call hi": [{"once": asked}]}
    with pytest.raises(CallTimeout, match=r"tools/call of 'hi' timed out: no response for 0.8 s in all") as caught:
        outcome(face, wild(plan), lambda client: client.call_tool("hi", total=0.8), timeouts=Timeouts(close=0.3))
    assert caught.value.seconds == 0.8


def test_several_questions_of_a_round_are_answered_within_input() -> None:
    """In threads nothing cuts a handler short, but no further one begins."""
    asked: list[str] = []

    def slow(params: Any) -> bool:
        asked.append(params.message)
        time.sleep(1.2)
        return True

    form = {"inputRequests": {"a": FORM, "b": FORM, "c": FORM}, "resultType": "input_required"}
    with (
        SyncClient(
            wild({"tools/call hi": [result(form)]}), elicitation=slow, timeouts=Timeouts(input=1.0, close=0.3)
        ) as client,
        pytest.raises(InputUnavailable, match=r"did not come within 1 seconds \(timeouts.input\)"),
    ):
        client.call_tool("hi")
    assert asked == ["?"]


@pytest.mark.parametrize("face", FACES)
def test_a_silent_server_costs_no_more_than_the_time_to_connect(face: str) -> None:
    """It has its time to end while its caller has the error already; closing the client waits for that."""
    silent: dict[str, Any] = {"server/discover": [], "initialize": [], "end": [{"sleep": 60}]}
    said: list[str] = []
    timeouts = Timeouts(connect=0.6, probe=0.2, close=30.0)
    client = FACES[face](wild({"start": [{"stderr": "$PID"}], **silent}), timeouts=timeouts, on_stderr=said.append)
    began = time.monotonic()
    with pytest.raises(ConnectError):
        asyncio.run(client.ping()) if isinstance(client, Client) else client.ping()
    assert time.monotonic() - began < 15.0
    wait_until(lambda: said)
    pids = {int(each) for each in "".join(said).split()}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    client.close_now()
    assert gone(pids, patience=0.1)
