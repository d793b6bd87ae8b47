"""What is known of a message of which only the ends are left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import identify

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([',"id":7}', '"', "\\", "id", "method"])
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "method", "result", "a"]), inner, max_size=3)
    ),
    max_leaves=9,
)


@settings(max_examples=500, deadline=None)
@given(
    st.permutations(["jsonrpc", "id", "method", "params", "x"]),
    st.integers() | st.text(max_size=5),
    values,
    values,
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")]),
    st.booleans(),
)
def test_an_id_is_the_one_of_the_whole_message_or_there_is_none(
    order: list[str], request_id: Any, params: Any, extra: Any, separators: tuple[str, str], plain: bool
) -> None:
    members = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": [params, "x" * 9000], "x": extra}
    line = json.dumps({name: members[name] for name in order}, separators=separators, ensure_ascii=plain).encode()
    reader = LineReader(5000)
    reader.receive_data(line)
    (ends,) = reader.receive_data(b"\n")
    assert isinstance(ends, TooLong)
    found = identify(ends.head, ends.tail)
    assert (type(found.id), found.id) in [(type(request_id), request_id), (type(None), None)]
    assert found.kind in ("request", None)
    if order.index("id") < min(order.index("params"), order.index("x")):
        assert found.id == request_id


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_the_ends_are_the_same_whatever_the_chunks(size: int) -> None:
    line = b"".join(b"%d," % n for n in range(20_000))
    reader = LineReader(1000)
    found = [each for at in range(0, len(line), size) for each in reader.receive_data(line[at : at + size])]
    assert found == []
    assert reader.receive_data(b"\nnext\n") == [TooLong.of(line), b"next"]


def test_of_a_line_that_was_cut_only_the_head_counts() -> None:
    reader = LineReader(20)
    reader.receive_data(b'{"jsonrpc":"2.0","params":{"a":1,"id":5}')
    (ends,) = reader.receive_eof()
    assert isinstance(ends, TooLong)
    assert identify(ends.head, ends.tail).id is None
