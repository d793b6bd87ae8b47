"""Requests that wait for the user of a handshake client."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Context, Limits, Server
from linkspan.core.connection import ServerConnection
from talk import connected, run, say


def asking(**options: Any) -> Server:
    server = Server(**options)

    @server.tool
    def ask(ctx: Context) -> str:
        return ctx.ask("q", str, "What?")

    return server


def call(connection: ServerConnection, number: int, name: str = "ask", **params: Any) -> list[Any]:
    return say(connection, "tools/call", number, name=name, **params)


def test_no_more_requests_wait_for_the_user_than_the_limits_allow() -> None:
    connection = connected(asking(limits=Limits(max_running=2)))
    questions = [call(connection, number)[0] for number in (1, 2)]
    (refused,) = call(connection, 3)
    assert refused["result"]["isError"]
    assert "max_running" in refused["result"]["content"][0]["text"]
    assert connection.accepting  # the answers to the others must still be read
    answer = {"action": "accept", "content": {"q": "this"}}
    (done,) = say(connection, None, questions[0]["id"], result=answer)
    assert done["result"]["content"] == [{"type": "text", "text": "this"}]
    assert call(connection, 4)[0]["method"] == "elicitation/create"


def test_requests_run_out_of_time_in_the_order_in_which_they_asked() -> None:
    now = 0.0
    server = asking(limits=Limits(input_timeout=10))
    connection = connected(server, clock=lambda: now)
    call(connection, 1)
    now = 4.0
    call(connection, 2)
    assert connection.next_timeout() == 10.0
    connection.handle_timeout(10.0)
    assert connection.next_timeout() == 14.0
    connection.handle_timeout(14.0)
    assert connection.next_timeout() is None
    assert connection.running == 0


@pytest.mark.parametrize("modern", [False, True])
def test_answers_in_params_count_in_neither_era_where_nothing_was_asked(modern: bool) -> None:
    connection = connected(asking())
    given = {"q": {"action": "accept", "content": {"q": "mine"}}}
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    meta = {"_meta": envelope} if modern else {}
    (answer,) = call(connection, 1, inputResponses=given, **meta)
    asked = answer["result"]["resultType"] == "input_required" if modern else answer["method"] == "elicitation/create"
    assert asked


def test_progress_goes_on_where_it_was_before_the_question() -> None:
    server = Server()

    @server.tool
    def steps(ctx: Context) -> str:
        ctx.progress(1)
        ctx.progress(2)
        answer = ctx.ask("q", str, "What?")
        ctx.progress(3)
        return answer

    connection = connected(server)
    said = call(connection, 1, "steps", _meta={"progressToken": "t"})
    (question,) = [each for each in said if each["method"] == "elicitation/create"]
    said += say(connection, None, question["id"], result={"action": "accept", "content": {"q": "this"}})
    told = [each["params"]["progress"] for each in said if each.get("method") == "notifications/progress"]
    assert told == [1, 2, 3]


@pytest.mark.parametrize(
    ("progress", "total", "told"),
    [
        (True, None, "progress must be a number, got True"),
        ("1", None, "progress must be a number, got '1'"),
        (1, False, "total must be a number, got False"),
    ],
)
def test_progress_is_a_number(progress: Any, total: Any, told: str) -> None:
    server = Server()

    @server.tool
    def report(ctx: Context) -> str:
        with pytest.raises(TypeError, match=told):
            ctx.progress(progress, total)
        return "refused"

    (answer,) = call(connected(server), 1, "report", _meta={"progressToken": "t"})
    assert answer["result"]["content"][0]["text"] == "refused"


def test_a_call_that_asks_is_heard_of_once() -> None:
    heard: list[Any] = []
    connection = connected(asking(instrumentation_callback=heard.append))
    heard.clear()
    (question,) = call(connection, 1)
    assert heard == []
    say(connection, None, question["id"], result={"action": "accept", "content": {"q": "this"}})
    (told,) = heard
    assert (told["method"], told["tool_name"], "error" in told) == ("tools/call", "ask", False)


def answered_late(connection: ServerConnection) -> None:
    run(connection, connection.handle_timeout(1000.0))


def cancelled(connection: ServerConnection) -> None:
    say(connection, "notifications/cancelled", requestId=1)


def closed(connection: ServerConnection) -> None:
    run(connection, connection.close())


def asked_too_often(connection: ServerConnection) -> None:
    say(connection, None, "1/1", result={"action": "odd"})


@pytest.mark.parametrize(
    ("end", "error"),
    [(answered_late, None), (cancelled, "cancelled"), (closed, "cancelled"), (asked_too_often, None)],
)
def test_a_call_that_ends_while_it_waits_is_heard_of_once(end: Any, error: str | None) -> None:
    heard: list[Any] = []
    server = asking(instrumentation_callback=heard.append, limits=Limits(max_rounds=1, input_timeout=10))
    connection = connected(server, clock=lambda: 0.0)
    heard.clear()
    call(connection, 1)
    end(connection)
    assert [(each["method"], each.get("error")) for each in heard] == [("tools/call", error)]


def test_a_call_that_asks_after_it_was_cancelled_is_heard_of_once() -> None:
    heard: list[Any] = []
    connection = connected(asking(instrumentation_callback=heard.append))
    (event,) = connection.receive_data(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}\n',
    )
    heard.clear()
    say(connection, "notifications/cancelled", requestId=1)
    with pytest.raises(BaseException) as asked:
        event.call.run()
    (hook,) = connection.fail(event.call, asked.value)  # which must not run under the connection's lock
    assert heard == []
    run(connection, [hook])
    assert not connection.running
    assert [each["error"] for each in heard] == ["cancelled"]
