"""What a modern request repeats in headers must be what it says: H5-8, HDR-4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Face
from http_talk import body, mirror
from http_world import World, same_server

from linkspan.errors import HEADER_MISMATCH

Serve = Callable[..., Face]

# The arguments, the headers, and whether both agree.
PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "the same": ({"region": "eu"}, {"Region": "eu"}, True),
    "another": ({"region": "eu"}, {"Region": "us"}, False),
    "another case": ({"region": "eu"}, {"Region": "EU"}, False),
    "missing": ({"region": "eu"}, {}, False),
    "empty": ({"region": ""}, {"Region": ""}, True),
    "encoded": ({"region": "Hello, 世界"}, {"Region": "=?base64?SGVsbG8sIOS4lueVjA==?="}, True),
    "encoded space": ({"region": " padded "}, {"Region": "=?base64?IHBhZGRlZCA=?="}, True),
    "encoded lines": ({"region": "line1\nline2"}, {"Region": "=?base64?bGluZTEKbGluZTI=?="}, True),
    "encoded tab": ({"region": "\tindented"}, {"Region": "=?base64?CWluZGVudGVk?="}, True),
    "encoded sentinel": ({"region": "=?base64?literal?="}, {"Region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}, True),
    "encoded without need": ({"region": "eu"}, {"Region": "=?base64?ZXU=?="}, True),
    "encoded nothing": ({"region": ""}, {"Region": "=?base64??="}, True),
    "no padding": ({"region": "eu"}, {"Region": "=?base64?ZXU?="}, False),
    "no base64": ({"region": "eu"}, {"Region": "=?base64?ZX!=?="}, False),
    "no UTF-8": ({"region": "eu"}, {"Region": "=?base64?/w==?="}, False),
    "an open sentinel is meant literally": ({"region": "=?base64?ZXU="}, {"Region": "=?base64?ZXU="}, True),
    "a sentinel in capitals is meant literally": ({"region": "=?BASE64?ZXU=?="}, {"Region": "=?BASE64?ZXU=?="}, True),
    "a number": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "42"}, True),
    "the same number": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "42.0"}, True),
    "the same number, written otherwise": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "4.2e1"}, True),
    "another number": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "43"}, False),
    "no number": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "many"}, False),
    "number and NaN": ({"region": "eu", "size": 42}, {"Region": "eu", "Size": "NaN"}, False),
    "number missing": ({"region": "eu", "size": 42}, {"Region": "eu"}, False),
    "yes": ({"region": "eu", "dry": True}, {"Region": "eu", "Dry": "true"}, True),
    "yes in capitals": ({"region": "eu", "dry": True}, {"Region": "eu", "Dry": "True"}, False),
    "yes as 1": ({"region": "eu", "dry": True}, {"Region": "eu", "Dry": "1"}, False),
    "null needs none": ({"region": "eu", "dry": None}, {"Region": "eu"}, True),
    "null with one": ({"region": "eu", "dry": None}, {"Region": "eu", "Dry": "null"}, False),
    "absent with one": ({"region": "eu"}, {"Region": "eu", "Size": "1"}, False),
    "unknown ones are ignored": ({"region": "eu"}, {"Region": "eu", "Zone": "7"}, True),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_arguments_in_headers_agree_with_those_in_the_body(name: str, serve: Serve) -> None:
    arguments, parameters, agree = PARAMETERS[name]
    request = body("tools/call", {"name": "routed", "arguments": arguments})
    headers = mirror(request) | {f"Mcp-Param-{each}": value for each, value in parameters.items()}
    answer = serve(same_server()).ask("POST", headers, request)
    expected = (200, None) if agree else (400, HEADER_MISMATCH)
    assert (answer.status, answer.code) == expected, answer.body


NAMES = {
    "plain": ("echo", True),
    "encoded": ("=?base64?ZWNobw==?=", True),
    "in capitals": ("ECHO", False),
    "badly encoded": ("=?base64?ZWNobw?=", False),
    "twice": ("echo, echo", False),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_in_the_header_may_be_encoded(name: str, serve: Serve) -> None:
    sent, agree = NAMES[name]
    world = World()
    world.server.tool(name="echo")(lambda: "heard")
    request = body("tools/call", {"name": "echo", "arguments": {}})
    answer = serve(world.server).ask("POST", mirror(request, Mcp_Name=sent), request)
    assert (answer.status, answer.code) == ((200, None) if agree else (400, HEADER_MISMATCH)), answer.body


def test_a_mismatch_says_which_header_it_is_and_nothing_of_its_value(serve: Serve) -> None:
    request = body("tools/call", {"name": "routed", "arguments": {"region": "secret-place"}})
    answer = serve(same_server()).ask("POST", mirror(request) | {"Mcp-Param-Region": "us"}, request)
    assert (
        answer.json()["error"]["message"]
        == "Header mismatch: Mcp-Param-Region does not match the value in the body [LS-507]"
    )


def test_handshake_clients_need_none_of_these_headers(serve: Serve) -> None:
    params = {"name": "routed", "arguments": {"region": "eu"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    face = serve(same_server(), sessions=False)
    headers = {"accept": "application/json", "mcp-param-region": "other"}
    assert face.ask("POST", headers, message).json()["result"]["content"][0]["text"] == "eu 1 None"
