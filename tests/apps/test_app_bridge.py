"""The host's side of a view: a transcript of the messages between both."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server, SyncClient
from linkspan.apps import AppBridge, Apps, Csp, Preview, View
from linkspan.apps.bridge import (
    ContextChanged,
    DisplayWish,
    LinkWish,
    MessageWish,
    Post,
    ResourceWish,
    ToolWish,
    ViewClosed,
    ViewLogged,
    ViewResized,
)
from linkspan.errors import LocalProtocolError
from linkspan.types.messages import Tool

OBJECT: dict[str, Any] = {"type": "object"}
SHOW = Tool("show", OBJECT, meta={"ui": {"resourceUri": "ui://tides/chart"}})
REFRESH = Tool("refresh", OBJECT, meta={"ui": {"visibility": ["app"]}})
DELETE = Tool("delete", OBJECT, meta={"ui": {"visibility": ["model"]}})
VIEW = View(
    uri="ui://tides/chart", html="<!doctype html>", csp=Csp(connect=["https://a.example"]), permissions=["camera"]
)
INITIALIZE = {"protocolVersion": "2026-01-26", "appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}}


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {} if params is None else params}


def notify(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params}


def bridge(**options: Any) -> AppBridge:
    return AppBridge(VIEW, SHOW, [SHOW, REFRESH, DELETE], **{"arguments": {"year": 2026}, **options})


def ready(**options: Any) -> AppBridge:
    made = bridge(**options)
    made.receive(request("ui/initialize", INITIALIZE, 0))
    made.receive(notify("ui/notifications/initialized"))
    return made


def error(events: list[Any]) -> int:
    (event,) = events
    code: int = event.message["error"]["code"]
    return code


def test_nothing_goes_to_a_view_before_it_is_ready_and_then_the_input_before_the_result() -> None:
    made = bridge()
    assert made.send_result({"content": []}) == []
    (greeting,) = made.receive(request("ui/initialize", INITIALIZE))
    result = greeting.message["result"]
    assert result["protocolVersion"] == "2026-01-26"
    assert result["hostContext"]["toolInfo"]["tool"]["name"] == "show"
    sent = made.receive(notify("ui/notifications/initialized"))
    assert [each.message["method"] for each in sent] == ["ui/notifications/tool-input", "ui/notifications/tool-result"]
    assert sent[0].message["params"] == {"arguments": {"year": 2026}}


def test_input_and_result_are_sent_once() -> None:
    made = ready(arguments=None)
    with pytest.raises(LocalProtocolError, match="send the input"):
        made.send_result({"content": []})
    assert made.send_input_partial({"year": 20}) != []
    assert made.send_input({"year": 2026}) != []
    for again in (made.send_input, made.send_input_partial):
        with pytest.raises(LocalProtocolError):
            again({})
    assert made.send_cancelled("the user stopped it")[0].message["params"] == {"reason": "the user stopped it"}
    with pytest.raises(LocalProtocolError, match="has ended already"):
        made.send_result({"content": []})


def test_the_view_is_told_what_was_granted_and_not_what_it_asked_for() -> None:
    for granted, permissions in (([], None), (["camera", "microphone"], {"camera": {}})):
        (greeting,) = bridge(granted=granted).receive(request("ui/initialize", INITIALIZE))
        sandbox = greeting.message["result"]["hostCapabilities"]["sandbox"]
        assert sandbox.get("permissions") == permissions
        assert sandbox["csp"] == {"connectDomains": ["https://a.example"]}


def test_what_a_view_wishes_is_an_event_and_is_answered_once() -> None:
    made = ready()
    wishes = [
        (request("tools/call", {"name": "refresh", "arguments": {"a": 1}}), ToolWish(1, REFRESH, {"a": 1})),
        (request("resources/read", {"uri": "tides://now"}), ResourceWish(1, "tides://now")),
        (request("ui/open-link", {"url": "https://example.com/a"}), LinkWish(1, "https://example.com/a")),
        (
            request("ui/message", {"role": "user", "content": {"type": "text", "text": "Go"}}),
            MessageWish(1, [{"type": "text", "text": "Go"}]),
        ),
    ]
    for message, event in wishes:
        assert made.receive(message) == [event]
        assert made.answer(1, {}) == [Post({"jsonrpc": "2.0", "id": 1, "result": {}})]
        with pytest.raises(LocalProtocolError, match="waits for no answer"):
            made.answer(1, {})
    made.receive(wishes[0][0])
    assert error(made.refuse(1, "no")) == -32000


def test_context_size_and_log_are_events() -> None:
    made = ready()
    text = {"type": "text", "text": "3 ferries chosen"}
    update, answer = made.receive(
        request("ui/update-model-context", {"content": [text], "structuredContent": {"n": 3}})
    )
    assert update == ContextChanged([text], {"n": 3})
    assert isinstance(answer, Post)
    assert made.receive(notify("ui/notifications/size-changed", {"width": 300, "height": 200})) == [
        ViewResized(300, 200)
    ]
    assert made.receive(notify("notifications/message", {"level": "info", "data": "hi"})) == [ViewLogged("info", "hi")]
    assert made.change_context(theme="dark")[0].message["params"] == {"theme": "dark"}


def test_a_display_mode_that_neither_side_offers_is_answered_with_the_present_one() -> None:
    wanted = request("ui/request-display-mode", {"mode": "fullscreen"})
    assert ready().receive(wanted)[0].message["result"] == {"mode": "inline"}
    made = ready(context={"availableDisplayModes": ["inline", "fullscreen"]})
    assert made.receive(wanted) == [DisplayWish(1, "fullscreen")]


def test_a_view_has_two_seconds_to_be_closed() -> None:
    made = ready()
    (asked,) = made.tear_down(now=10.0)
    assert asked.message["method"] == "ui/resource-teardown"
    assert made.next_timeout() == 12.0
    assert made.handle_timeout(11.0) == []
    assert made.handle_timeout(12.0) == [ViewClosed("the view did not answer in time")]
    assert made.is_closed
    made = ready()
    (asked,) = made.tear_down(now=10.0)
    assert made.receive({"jsonrpc": "2.0", "id": asked.message["id"], "result": {}}) == [ViewClosed("closed")]
    made = ready()
    assert made.receive(notify("ui/notifications/request-teardown"))[0].message["method"] == "ui/resource-teardown"
    assert bridge().tear_down() == [ViewClosed("closed before it was ready")]


def test_a_preview_joins_the_bridge_to_a_client() -> None:
    apps = Apps()
    server = Server("tides", extensions=[apps])
    chart = apps.view("ui://tides/chart", "<!doctype html>")

    @server.tool(meta=chart.tool())
    def show(year: int) -> list[int]:
        return [year]

    with SyncClient(server) as client:
        (tool,) = client.list_tools()
        preview = Preview.open(client, tool, {"year": 1}, client.call_tool("show", {"year": 1}), allow=lambda _: True)
        assert len(preview.receive(b'{"jsonrpc":"2.0","id":0,"method":"ui/initialize","params":{}}')) == 1
        sent = preview.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
        assert sent[1]["params"]["structuredContent"] == {"result": [1]}
        (answer,) = preview.receive(
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show","arguments":{"year":2}}}'
        )
        assert answer["result"]["structuredContent"] == {"result": [2]}
        (read,) = preview.receive(
            '{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"ui://tides/chart"}}'
        )
        assert read["result"]["contents"][0]["text"] == "<!doctype html>"
        preview = Preview.open(client, tool, {"year": 1})
        preview.receive('{"jsonrpc":"2.0","id":0,"method":"ui/initialize"}')
        preview.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
        (refused,) = preview.receive('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show"}}')
        assert refused["error"]["message"] == "the user did not allow it"
