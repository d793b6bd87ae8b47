"""Params that no shape can read: as a function of bytes."""

from __future__ import annotations

import pytest
from msgspec import Raw

from linkspan.core.http_checks import compare_parameters
from linkspan.core.params import read_call, read_meta, read_params
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.types.base import ABSENT
from linkspan.types.messages import CallToolParams

UNREADABLE = {
    "half a surrogate pair": b'{"name": "\\ud800 "}',
    "cut": b'{"name": "a"',
    "not UTF-8": b'{"name": "\xff"}',
    "too deep": b'{"_meta":' + b"[" * 100_000,
}


UNKNOWN = [("an/unknown", what) for what in ("cut", "too deep")]
"""Of a method that has no shape only `_meta` is looked at."""


@pytest.mark.parametrize(("method", "what"), [*(("tools/call", what) for what in UNREADABLE), *UNKNOWN])
def test_what_cannot_be_read_is_one_error_of_params(method: str, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match="Invalid params: not readable") as caught:
        read_params(method, Raw(UNREADABLE[what]))
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize("what", ["cut", "too deep"])
def test_what_cannot_be_read_has_no_meta(what: str) -> None:
    assert read_meta(Raw(UNREADABLE[what])) is ABSENT


ARGUMENTS = {
    "half a surrogate pair": b'{"x": "\\ud800 "}',
    "too deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("what", ARGUMENTS)
@pytest.mark.parametrize("headers", [{}, {"mcp-param-x": "1"}], ids=["without", "with"])
def test_headers_are_not_compared_with_arguments_that_cannot_be_read(headers: dict[str, str], what: str) -> None:
    """Reading the arguments explains what is wrong with them."""
    params = CallToolParams(name="t", arguments=Raw(ARGUMENTS[what]))
    assert compare_parameters(headers, {("x",): "x"}, params) is None


def test_a_short_call_that_is_nested_too_deeply_is_not_read_in_one_pass() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":%s},"_meta":{}}}'
    assert read_call(line % b"1", 256) is not None
    assert read_call(line % (b"[" * 100 + b"]" * 100), 256) is not None
    assert read_call(line % (b"[" * 254 + b"]" * 254), 256) is None
