"""Members that appear twice, wherever they stand and however they are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from linkspan.core.params import read_params
from linkspan.errors import RemoteProtocolError
from linkspan.wire.jsonrpc import Malformed, Response, RpcRequest, decode

VALUES = {
    "jsonrpc": ['"2.0"'],
    "id": ["1", "12345678901234567890", '"a"', '"\\u0061"', '""'],
    "method": ['"m"', '""', '"ping"', '"m\\n"'],
    "params": ["{}", '{"a":1}', '{"params": {}, "id": 1}', '[{"id":1,"method":"m"},"}"]'],
}
BLANKS = st.sampled_from(["", "", " ", "\t", " \n"])
SPELLINGS = {name: [name, f"\\u{ord(name[0]):04x}{name[1:]}"] for name in VALUES}


@st.composite
def objects(draw: st.DrawFn, names: list[str]) -> str:
    members = []
    for name in draw(st.permutations(names)):
        key, value = draw(st.sampled_from(SPELLINGS[name])), draw(st.sampled_from(VALUES[name]))
        members.append(f'{draw(BLANKS)}"{key}"{draw(BLANKS)}:{draw(BLANKS)}{value}{draw(BLANKS)}')
    return "{" + ",".join(members) + "}" + draw(BLANKS)


@given(objects(list(VALUES)))
def test_what_appears_once_is_read(text: str) -> None:
    message = decode(text.encode())
    assert isinstance(message, RpcRequest)
    assert json.loads(bytes(message.params)) == json.loads(text)["params"]


@given(st.sampled_from(["id", "method", "params"]).flatmap(lambda name: objects([*VALUES, name])))
def test_what_appears_twice_is_refused(text: str) -> None:
    assert isinstance(decode(text.encode()), Malformed)


@pytest.mark.parametrize("first", [1, 1234567, 12345678, "x" * 50])
def test_a_member_is_found_behind_an_id_of_any_length(first: int | str) -> None:
    given = json.dumps({"jsonrpc": "2.0", "id": first, "result": {}}, separators=(",", ":"))
    assert isinstance(decode(given.encode()), Response)
    assert isinstance(decode(given.replace("{", '{"id":1,', 1).encode()), Malformed)
    noted = '{"jsonrpc":"2.0","method":"m"}'
    assert not isinstance(decode(noted.encode()), Malformed)
    assert isinstance(decode(noted.replace("{", '{"method":"",', 1).encode()), Malformed)


def test_a_message_with_very_many_members_is_not_searched() -> None:
    many = ",".join(f'"{n}":1' for n in range(200))
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"m",%b}' % many.encode())
    assert isinstance(message, Malformed)
    assert message.message == "Invalid Request: too many members"


@pytest.mark.parametrize("rest", ["", ',"arguments":{}', ',"arguments":{"name":1,"name":2},"_meta":{"name":1}'])
def test_the_shortest_second_name_of_a_tool_is_found(rest: str) -> None:
    params = '{"name":"t"' + rest + "}"
    assert read_params("tools/call", Raw(params.encode()))
    for twice in (params.replace("{", '{"name":"",', 1), params[:-1] + ',"name":""}'):
        with pytest.raises(RemoteProtocolError, match="'name' appears more than once"):
            read_params("tools/call", Raw(twice.encode()))
