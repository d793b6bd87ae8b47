"""Servers that speak, but not in the way of the protocol: the call it concerns fails at once, and no other."""

from __future__ import annotations

import time
from typing import Any

import pytest
from faces import FACES, outcome
from wild import error, raw, result, wild

from linkspan import CallTimeout, InvalidResponse, ServerError, SyncClient

HI = {"resultType": "complete", "content": [{"type": "text", "text": "hi"}]}
GOOD = result(HI)


def hi(client: Any) -> Any:
    return client.call_tool("hi")


@pytest.mark.parametrize(
    "noise",
    [
        ["what?", "", "  ", "\t", "[]", "{}", "null", "0", '"x"', "[1]"],
        ["{", "]", "\\", "{'a': 1}", "NaN", "[[[[[[[[[["],
        [{"bytes": "ff0a"}, {"bytes": "000a"}, {"bytes": "efbbbf7b7d0a"}, {"bytes": "0d0a"}],
        [raw(id=777, result=HI), raw(id=-1, result=HI), raw(id="1", result=HI), raw(id=1.5, result=HI)],
        [raw(id=777, error={"code": 1, "message": "x"}), raw(id=True, result=HI), raw(id=[], result=HI)],
        [raw(method="notifications/progress", params={"progressToken": 99, "progress": 1})],
        [raw(method="notifications/progress"), raw(method="notifications/progress", params={"progressToken": "$ID"})],
        [raw(method="notifications/cancelled", params={"requestId": 99}), raw(method="notifications/cancelled")],
        [raw(method="notifications/message", params=[1]), raw(method="notifications/message", params={"level": 9})],
        [raw(method="notifications/tools/list_changed", params=7), raw(method="notifications/nobody/knows")],
        [raw(method=""), raw(method=None), raw(method=7), raw(id=5, method="ping"), raw(id=6, method="who/are/you")],
        [raw(id=1, method="elicitation/create", params=[]), raw(id=1, method="roots/list")],
        ['{"jsonrpc":"1.0","id":$ID,"result":{}}'.replace("$ID", "777"), '{"id":777,"result":{}}'],
    ],
)
def test_noise_around_an_answer_does_no_harm(noise: list[Any]) -> None:
    assert outcome("sync", wild({"tools/call hi": [*noise, GOOD, *noise]}), hi).text == "hi"


@pytest.mark.parametrize("face", FACES)
def test_of_two_answers_the_first_one_counts(face: str) -> None:
    other = result({"content": [{"type": "text", "text": "no"}]})
    plan = {"tools/call hi": [GOOD, other, error(-1)], "ping": [GOOD]}
    assert outcome(face, wild(plan), hi).text == "hi"


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"jsonrpc":"2.0","id":$ID}', "invalid response to tools/call"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"x"}}', "invalid response to tools/call"),
        ('{"jsonrpc":"2.0","id":$ID,"error":"no"}', "invalid response to tools/call"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":"x","message":1}}', "invalid response to tools/call"),
        (result("hi"), "invalid response to tools/call"),
        (result([]), "invalid response to tools/call"),
        (result(None), "invalid response to tools/call"),
        (result({"content": "hi"}), "invalid response to tools/call"),
        (result({"content": [1]}), "invalid response to tools/call"),
        (result({"content": [], "isError": "yes"}), "invalid response to tools/call"),
        (result({"content": [], "resultType": "hologram"}), "has the type 'hologram', which this client does not know"),
        (
            result({"resultType": "input_required", "inputRequests": {"a": {"method": "tools/call"}}}),
            "the protocol has no input request",
        ),
        (result({"resultType": "input_required", "inputRequests": []}), "invalid input requests in the result of"),
        ({"large": 70}, "the server sent a message longer than 67108864 bytes (max_line_bytes)"),
        pytest.param({"deep": 200}, "invalid response to tools/call", id="deep"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_fails_its_call_at_once(face: str, answer: Any, problem: str) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidResponse) as caught:
        outcome(face, wild({"tools/call hi": [answer]}), hi)
    assert time.monotonic() - began < 30
    assert problem in caught.value.problem
    assert (caught.value.phase, caught.value.delivery) == ("call", "answered")


@pytest.mark.parametrize("levels", [300, 5_000, 100_000])
def test_an_answer_that_is_nested_too_deeply_fails_its_call_at_once(levels: int) -> None:
    with pytest.raises(InvalidResponse):
        outcome("sync", wild({"tools/call hi": [{"deep": levels}]}), lambda c: c.call_tool("hi"))


def test_the_connection_goes_on_after_each_of_them() -> None:
    plan = {"tools/call hi": [{"deep": 100_000}, {"large": 70}], "tools/call die": ['{"jsonrpc":"2.0","id":$ID}']}
    seen: list[Any] = []
    with SyncClient(wild(plan), on_event=seen.append) as client:
        for name in ("hi", "die"):
            with pytest.raises(InvalidResponse):
                client.call_tool(name)
        assert client.call_tool("again").text == "hi"
        assert len(seen) == 1  # it was never lost


def test_a_long_line_ends_only_the_call_that_it_answers_when_several_are_open() -> None:
    from concurrent.futures import ThreadPoolExecutor

    plan = {"tools/call hi": [{"large": 70}, GOOD]}
    with SyncClient(wild(plan)) as client, ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(client.call_tool, "hi", timeout=60) for _ in range(4)]
        kinds = [type(call.exception()) for call in calls]
    assert set(kinds) <= {type(None), InvalidResponse}


def test_an_error_without_an_id_ends_the_only_call() -> None:
    plan = {"tools/call hi": [raw(id=None, error={"code": -32700, "message": "Parse error"})]}
    with pytest.raises(ServerError, match=r"tools/call was refused: Parse error \(-32700\)") as caught:
        outcome("sync", wild(plan), hi)
    assert (caught.value.code, caught.value.message) == (-32700, "Parse error")


def test_an_error_carries_the_servers_own_words() -> None:
    plan = {"tools/call hi": [error(-32602, "no such train", {"trains": ["EC 7"]})]}
    with pytest.raises(ServerError) as caught:
        outcome("sync", wild(plan), hi)
    found = caught.value
    assert (found.code, found.message, found.data) == (-32602, "no such train", {"trains": ["EC 7"]})
    assert (found.delivery, found.phase, found.server) == ("answered", "call", "wild_server")


@pytest.mark.parametrize("answer", [result({"tools": None}), result({"tools": [{"name": 1}]}), result({})])
def test_a_list_of_another_shape_is_an_error(answer: str) -> None:
    with pytest.raises(InvalidResponse, match="invalid response to tools/list"):
        outcome("sync", wild({"tools/list": [answer]}), lambda client: client.list_tools())


def test_a_list_that_goes_in_circles_ends() -> None:
    page = {"tools": [{"name": "hi", "inputSchema": {"type": "object"}}], "nextCursor": "again"}
    tools = outcome("sync", wild({"tools/list": [result(page)]}), lambda client: client.list_tools())
    assert [tool.name for tool in tools] == ["hi", "hi"]


def test_progress_without_end_does_not_extend_a_call_without_end() -> None:
    more = raw(method="notifications/progress", params={"progressToken": "$ID", "progress": 1})
    plan = {"tools/call hi": [more, {"sleep": 0.1}] * 100}
    with pytest.raises(CallTimeout, match=r"no response for 2 s in all, though it showed progress") as caught:
        outcome("sync", wild(plan), lambda client: client.call_tool("hi", timeout=1.9, total=2.0), timeouts=_short())
    assert (caught.value.seconds, caught.value.delivery) == (2.0, "maybe_sent")


def test_a_server_that_floods_stderr_is_drained() -> None:
    plan = {"tools/call hi": [{"flood": 1_000}, GOOD]}
    assert outcome("sync", wild(plan), hi).text == "hi"


def test_a_server_that_does_not_read_does_not_block_the_caller() -> None:
    with SyncClient(wild({"tools/call hi": [{"sleep": 60}]}), timeouts=_short()) as client:
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(CallTimeout):
                client.call_tool("hi", {"text": "x" * 1_000_000}, timeout=0.1)
        assert time.monotonic() - began < 30


def _short() -> Any:
    from linkspan import Timeouts

    return Timeouts(close=0.1)
