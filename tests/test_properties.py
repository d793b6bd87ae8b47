"""What must hold for anything a peer may send."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan import Context, Server
from linkspan.core.call import CallCancelled, CallReady
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.values import Limits
from servers import basic
from test_transcripts import feed

SERVER = basic()

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
ids = st.integers() | st.text(max_size=8)
methods = st.sampled_from(
    ["ping", "tools/list", "tools/call", "prompts/get", "resources/read", "initialize", "server/discover", "x", ""]
) | st.text(max_size=8)
nearly = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": ids | values,
        "method": methods | values,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["add", "echo"]) | values,
                "arguments": st.dictionaries(st.sampled_from(["a", "b", "message"]), values) | values,
                "uri": values,
                "_meta": st.fixed_dictionaries(
                    {},
                    optional={
                        "io.modelcontextprotocol/protocolVersion": st.just("2026-07-28") | values,
                        "io.modelcontextprotocol/clientCapabilities": st.just({}) | values,
                        "io.modelcontextprotocol/logLevel": values,
                        "progressToken": values,
                    },
                )
                | values,
            },
        )
        | values,
        "result": values,
        "error": values,
    },
)


def answers(data: bytes) -> list[Any]:
    """Feed one line to a new connection and return what comes back."""
    connection = SERVER.connect()
    feed(connection, data + b"\n", None)
    return [json.loads(line) for line in connection.data_to_send().splitlines()]


def is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


@settings(max_examples=1500, deadline=None)
@given(values | nearly)
def test_any_json_gets_the_answer_that_the_rules_demand(message: Any) -> None:
    """MSG-2, MSG-4, MSG-5, MSG-10, MSG-33: one answer with its id, one error without, or silence."""
    found = answers(json.dumps(message).encode())
    finals = [each for each in found if "method" not in each]
    if not isinstance(message, dict):
        assert [each["error"]["code"] for each in finals] == [-32600]
        return
    well_formed = message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    plain = "result" not in message and "error" not in message
    if well_formed and plain and "id" not in message:
        assert found == []
    elif well_formed and plain and is_id(message["id"]):
        (final,) = finals
        assert final["id"] == message["id"]
        assert type(final["id"]) is type(message["id"])
        assert ("result" in final) != ("error" in final)
    elif message.get("jsonrpc") == "2.0" and "method" not in message and ("result" in message) != ("error" in message):
        assert all(each["error"]["code"] == -32600 for each in finals)
    else:
        (final,) = finals
        assert final["error"]["code"] == -32600
        assert final.get("id") == (message.get("id") if is_id(message.get("id")) else None)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    connection = SERVER.connect()
    feed(connection, data + b'\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n', None)
    lines = [json.loads(line) for line in connection.data_to_send().splitlines()]
    assert lines[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))), st.data())
def test_any_chunking_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """STDIO-1. A line over the bound is thrown away alone, wherever the chunks are cut."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = LineReader(20)
    got = [line for chunk in chunks for line in reader.receive_data(chunk)]
    want = [
        TooLong.of(line) if len(line) > 20 else line
        for line in lines
        if line and (len(line) > 20 or not line.isspace())
    ]
    assert got == want
    assert reader.receive_eof() == []


def test_ten_thousand_pipelined_calls_with_random_cancels_end_exactly_once() -> None:
    """CAN-4, MSG-5: each call is answered or cancelled, never both, never twice."""
    server = Server("soak", limits=Limits(max_running=20_000))

    @server.tool
    def work(n: int, ctx: Context) -> int:
        return n

    chance = random.Random(7)
    connection = server.connect()
    running: dict[Any, Any] = {}
    cancelled: set[Any] = set()
    meta = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'

    def take(data: bytes) -> None:
        for event in connection.receive_data(data):
            if isinstance(event, CallReady):
                running[event.call.request.id] = event.call
            elif isinstance(event, CallCancelled):
                cancelled.add(event.call.request.id)

    for n in range(10_000):
        modern = n % 2
        params = f'"name":"work","arguments":{{"n":{n}}}' + (f",{meta}" if modern else "")
        take(f'{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{{params}}}}}\n'.encode())
        if chance.random() < 0.3:
            victim = chance.randrange(n + 1)
            take(f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{victim}}}}}\n'.encode())
        while len(running) > 64:
            call = running.pop(chance.choice(list(running)))
            connection.finish(call, call.run())
    for call in running.values():
        connection.finish(call, call.run())
    answered = Counter(json.loads(line)["id"] for line in connection.data_to_send().splitlines())
    assert set(answered.values()) == {1}
    assert answered.keys() | cancelled == set(range(10_000))
    assert not answered.keys() & cancelled
    assert connection.running == 0
