"""Large messages: how deep they are, and how much memory their way in and out takes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan.core.params import read_call
from linkspan.wire.framing import LineReader
from linkspan.wire.jsonrpc import Malformed, RpcRequest, decode, has_few_brackets, too_deep
from linkspan.wire.values import Limits

MB = 1_000_000


def depth(text: bytes) -> int:
    """Return how deep a text nests, bracket by bracket."""
    found = deepest = 0
    in_string = escaped = False
    for each in text.decode():
        if in_string:
            in_string, escaped = each != '"' or escaped, each == "\\" and not escaped
        elif each == '"':
            in_string = True
        elif each in "[{":
            found += 1
            deepest = max(deepest, found)
        elif each in "]}":
            found -= 1
    return deepest


def peak(act: Callable[[], object]) -> float:
    """Return the megabytes that an act has at most, beyond what there was."""
    tracemalloc.start()
    act()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    act()
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found / MB


json_values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a\n', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=40,
)


@settings(max_examples=500, deadline=None)
@given(json_values, st.integers(1, 25))
def test_a_message_is_too_deep_exactly_above_the_bound(value: object, bound: int) -> None:
    text = json.dumps(value).encode()
    assert too_deep(text, bound) == (depth(text) > bound)


@pytest.mark.parametrize("text", ["", "x" * MB, '"' * MB, "\\" * MB, "[" * MB, "{}" * MB])
@pytest.mark.parametrize("levels", [1, 16, 17, 254, 255])
def test_long_texts_do_not_hide_the_depth(text: str, levels: int) -> None:
    value: object = text
    for _ in range(levels):
        value = [value]
    line = json.dumps(value).encode()
    assert not too_deep(line, levels)
    assert too_deep(line, levels - 1)


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("bracket", ["[", "{"])
def test_brackets_are_counted_up_to_the_bound(bracket: str, size: int) -> None:
    line = ("a" * size + bracket).encode() * 7
    assert has_few_brackets(line, 7)
    assert not has_few_brackets(line, 6)


@pytest.mark.parametrize("at", [40, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("around", ["a", "é", "語", "🎲"])
def test_a_byte_that_is_not_utf8_is_found_wherever_it_is(at: int, around: str) -> None:
    body = bytearray(b'{"jsonrpc":"2.0","id":1,"method":"a","params":"' + around.encode() * 250_000 + b'"}')
    assert isinstance(decode(bytes(body)), RpcRequest)
    wrong = body.find(around[-1].encode(), at)  # the beginning of a letter
    body[wrong] = 0xFF
    found = decode(bytes(body))
    assert isinstance(found, Malformed)
    assert found.message == f"Parse error: not UTF-8 (byte {wrong})"


@pytest.mark.parametrize("letter", ["a", "é"])
def test_a_large_message_is_decoded_without_a_copy(letter: str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "a", "params": letter * MB}, ensure_ascii=False).encode()
    assert peak(lambda: decode(line, Limits())) < 0.5


def test_a_large_line_is_put_together_once() -> None:
    chunks = [b"a" * 65_536] * 160 + [b"\n"]
    reader = LineReader(16 * MB)

    def read() -> None:
        for chunk in chunks:
            found = reader.receive_data(chunk)
        assert len(found) == 1

    assert peak(read) < 11


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("levels", [1, 30, 31, 32, 300])
@pytest.mark.parametrize("where", ["before", "after", "twice", "above", "result"])
def test_what_is_deep_beside_a_text_with_many_brackets_is_found(where: str, levels: int, space: str) -> None:
    text = json.dumps("[{" * 50_000).encode()
    deep = b"[" * levels + b"]" * levels
    members = {
        "before": b'"a":%b,"text":%b' % (deep, text),
        "after": b'"text":%b,"a":%b' % (text, deep),
        "twice": b'"a":%b,"text":%b,"a":1' % (deep, text),
    }
    arguments = members.get(where, b'"text":%b' % text)
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{%b},"_meta":{}}}' % arguments
    )
    if where == "above":
        line = line.replace(b'"_meta":{}', b'"_meta":%b' % deep)
    if where == "result":
        line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":%b}],"a":%b}}' % (text, deep)
    line = line.replace(b":", b":" + space.encode())
    assert too_deep(line, 32) == (depth(line) > 32)
    assert (type(decode(line, Limits(max_depth=32))) is Malformed) == (depth(line) > 32)
    call = read_call(line, 32)
    assert call is None or depth(line) <= 32
