"""Custom notifications, which nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server
from linkspan.core.call import CallCancelled, CallReady
from linkspan.revisions import LATEST
from talk import connected, say

PREFIX = "io.modelcontextprotocol/"
MODERN = {f"{PREFIX}protocolVersion": LATEST.date, f"{PREFIX}clientCapabilities": {}}


def noting(heard: list[Any], **options: Any) -> Server:
    server = Server(**options)
    server.define_custom_method("note", lambda params: heard.append(params["text"]))
    return server


@pytest.mark.parametrize("meta", [{}, {f"{PREFIX}protocolVersion": 5}])
def test_a_notification_before_the_handshake_is_ignored_where_one_is_required(meta: dict[str, Any]) -> None:
    heard: list[Any] = []
    assert say(noting(heard, require_initialized=True).connect(), "note", text="early", _meta=meta) == []
    assert heard == []


def test_a_notification_is_heard_after_the_handshake_or_with_an_envelope() -> None:
    heard: list[Any] = []
    server = noting(heard, require_initialized=True)
    say(connected(server), "note", text="after")
    say(server.connect(), "note", text="modern", _meta=MODERN)
    say(noting(heard).connect(), "note", text="not required")
    assert heard == ["after", "modern", "not required"]


def test_a_closing_connection_cancels_what_notifications_have_started() -> None:
    connection = noting([]).connect()
    (ready,) = connection.receive_data(b'{"jsonrpc":"2.0","method":"note","params":{"text":"late"}}\n')
    assert isinstance(ready, CallReady)
    assert connection.close() == [CallCancelled(ready.call)]
    assert ready.call.cancelled
    assert connection.running == 0
    assert connection.finish(ready.call, None) == []
