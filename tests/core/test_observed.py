"""What instrumentation hears of requests that run no handler."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server
from test_transcripts import feed


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("made-up-1", '{"_meta":5}', "unsupported_method"),
        ("made-up-2", '{"_meta":{"progressToken":1.5}}', "unsupported_method"),
        ("made-up-3", "[]", "unsupported_method"),
        ("made-up-4", "{}", "unsupported_method"),
        ("mine", '{"_meta":5}', "mine"),
        ("tools/call", '{"name":5}', "tools/call"),
        ("ping", '{"_meta":5}', "ping"),
    ],
)
def test_methods_that_do_not_exist_have_one_name(method: str, params: str, told: str) -> None:
    heard: list[Any] = []
    server = Server(instrumentation_callback=heard.append)
    server.define_custom_method("mine", lambda params: None)
    server.tool(name="t")(lambda: "ok")
    feed(server.connect(), f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}\n'.encode(), None)
    assert [each["method"] for each in heard] == [told]


def test_what_needs_no_handler_is_told_with_the_time_that_it_took() -> None:
    heard: list[Any] = []
    feed(Server(instrumentation_callback=heard.append).connect(), b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', None)
    assert [(each["method"], 0 <= each["duration"] < 60) for each in heard] == [("ping", True)]
