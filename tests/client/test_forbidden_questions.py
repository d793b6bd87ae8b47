"""A modern server that sends requests: over every transport they are dropped and logged, and no handler runs (MSG-6, MSG-7)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from wild import raw, result, wild

from linkspan import Server, SyncClient
from raw_http import HI, RawServer, event, http, message, sse

QUESTIONS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "what did the user say?"}}],
        "maxTokens": 10,
    },
    "elicitation/create": {"message": "password?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
    "ping": {},
}
ASKED = [{"jsonrpc": "2.0", "id": f"q{each}", "method": each, "params": QUESTIONS[each]} for each in QUESTIONS]


class Heard:
    """What came back from the client."""

    def __init__(self) -> None:
        self.answers: list[Any] = []


@contextmanager
def over_stdio(heard: Heard) -> Iterator[Any]:
    steps = [*map(json.dumps, ASKED), result(HI)]
    yield wild({"tools/call hi": steps, "answer": [raw(method="notifications/message", params={"data": "answered"})]})


@contextmanager
def over_http(heard: Heard) -> Iterator[Any]:
    events = [event(json.dumps(each)) for each in ASKED]
    with RawServer({"tools/call": sse(*events, event(message())), "answer": [http(202)]}) as server:
        yield server.url
        heard.answers += [each.json for each in server.requests if "answer" in each.keys]


@contextmanager
def over_http_in_json(heard: Heard) -> Iterator[Any]:
    body = json.dumps([*ASKED, {"jsonrpc": "2.0", "id": "$ID", "result": HI}]).replace('"$ID"', "$ID")
    with RawServer({"tools/call": [http(200, body)], "answer": [http(202)]}) as server:
        yield server.url
        heard.answers += [each.json for each in server.requests if "answer" in each.keys]


class Nosy(Server):
    """Asks in front of each answer but the first, which agrees."""

    heard: Heard

    def connect(self, **options: Any) -> Any:
        connection = super().connect(**options)
        receive, send = connection.receive_data, connection.data_to_send
        sent: list[bytes] = []

        def data_to_send() -> bytes:
            data = send()
            if data:
                sent.append(data)
            asked = b"".join(json.dumps(each).encode() + b"\n" for each in ASKED)
            return asked + data if len(sent) > 1 and data else data

        def receive_data(data: bytes) -> Any:
            messages = [json.loads(line) for line in data.splitlines()]
            self.heard.answers += [each for each in messages if "method" not in each]
            return receive(data)

        connection.receive_data, connection.data_to_send = receive_data, data_to_send  # type: ignore[method-assign]
        return connection


@contextmanager
def in_memory(heard: Heard) -> Iterator[Any]:
    server = Nosy("nosy")
    server.heard = heard
    server.define_tool("hi", handler=lambda: "hi")
    yield server


@pytest.mark.parametrize("transport", [over_stdio, over_http, over_http_in_json, in_memory])
def test_what_a_modern_server_asks_is_dropped_and_logged(
    transport: Callable[[Heard], Any], caplog: pytest.LogCaptureFixture
) -> None:
    heard, ran = Heard(), []

    def handler(params: Any = None) -> str:
        ran.append(params)
        return "secret"

    with transport(heard) as target, caplog.at_level(logging.DEBUG, "linkspan"):
        options: Any = {"sampling": handler, "elicitation": handler, "roots": handler}
        with SyncClient(target, name="nosy", on_log=heard.answers.append, **options) as client:
            assert client.protocol_version == "2026-07-28"
            assert client.call_tool("hi").text == "hi"
            assert client.call_tool("hi").text == "hi"
    assert ran == []
    assert heard.answers == []
    dropped = [each for each in caplog.records if "it was dropped" in each.getMessage()]
    assert [each.levelno for each in dropped] == [logging.WARNING] + [logging.DEBUG] * 7
    assert dropped[0].getMessage() == (
        "nosy sent the request 'sampling/createMessage', which servers of protocol version 2026-07-28 must not send; "
        "it was dropped"
    )
