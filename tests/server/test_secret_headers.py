"""Handlers do not see the caller's token unless the author says so (SEC: no token passthrough)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from linkspan import Configuration, Context, Server
from linkspan.revisions.neutral import TransportInfo
from linkspan.server.configuration import SecretHeaders, VisibleHeaders
from linkspan.wire.jsonrpc import decode
from talk import connected, run

SENT = {
    "authorization": "Bearer hunter2",
    "cookie": "session=hunter2",
    "proxy-authorization": "Basic hunter2",
    "dpop": "hunter2",
    "x-forwarded-access-token": "hunter2",
    "cf-access-jwt-assertion": "hunter2",
    "x-amzn-oidc-data": "hunter2",
    "x-amzn-oidc-accesstoken": "hunter2",
    "x-goog-iap-jwt-assertion": "hunter2",
    "host": "example.com",
    "x-probe": "seen",
}
SHOWN = {"host": "example.com", "x-probe": "seen"}


def seen_by(look: Callable[[Any], object], **options: Any) -> object:
    """Return what a handler makes of the context of a request over HTTP."""
    server = Server(**options)
    found: list[object] = []
    server.define_tool(name="look", handler=lambda ctx: found.append(look(ctx)))
    connection = connected(server)
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","arguments":{}}}'
    run(connection, connection.receive(decode(line), TransportInfo(headers=SENT, principal="ann")))
    (only,) = found
    return only


def test_credentials_are_left_out() -> None:
    assert seen_by(lambda ctx: dict(ctx.headers)) == SHOWN
    assert seen_by(lambda ctx: (len(ctx.headers), "cookie" in ctx.headers, ctx.principal)) == (2, False, "ann")
    assert "hunter2" not in str(seen_by(lambda ctx: repr(ctx.headers)))


@pytest.mark.parametrize("name", ["authorization", "Authorization", "x-amzn-oidc-data", "dpop"])
def test_reading_one_that_was_left_out_names_the_setting(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def read(ctx: Context) -> None:
        with pytest.raises(KeyError, match=r"secret_headers=\[\.\.\.\]"):
            ctx.headers[name]
        assert ctx.headers.get(name, "none") == "none"
        with pytest.raises(KeyError) as caught:
            ctx.headers["x-absent"]
        assert caught.value.args == ("x-absent",)

    seen_by(read)
    assert caplog.text.count("secret_headers") == 1
    assert "hunter2" not in caplog.text


def test_one_that_was_not_sent_is_missing_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    headers = VisibleHeaders({"host": "example.com"}, SecretHeaders())
    with pytest.raises(KeyError) as caught:
        headers["cookie"]
    assert (caught.value.args, caplog.text) == (("cookie",), "")


def test_the_list_is_replaced() -> None:
    assert seen_by(lambda ctx: dict(ctx.headers), secret_headers=[]) == SENT
    found = seen_by(lambda ctx: set(ctx.headers), secret_headers=["Cookie", "X-*"])
    assert found == {"authorization", "proxy-authorization", "dpop", "cf-access-jwt-assertion", "host"}


@pytest.mark.parametrize("options", [{}, {"configuration": Configuration(instrument_server_context=True)}])
def test_a_function_for_the_server_context_sees_the_same(options: dict[str, Any]) -> None:
    found = seen_by(
        lambda ctx: ctx["all"], server_context=lambda request: {"all": dict(request.facts.headers)}, **options
    )
    assert found == SHOWN


@pytest.mark.parametrize(("wrong", "problem"), [("cookie", TypeError), ([b"cookie"], TypeError), (["a*b"], ValueError)])
def test_a_list_that_cannot_be_meant_is_refused(wrong: Any, problem: type[Exception]) -> None:
    with pytest.raises(problem, match="secret_headers"):
        Server(secret_headers=wrong)
