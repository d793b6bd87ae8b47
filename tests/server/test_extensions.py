"""Extensions of a server, beyond what the transcripts show: registration, hooks, notifications, other transports."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from msgspec import Raw

from linkspan import Context, RegistrationError, RemoteProtocolError, Server, configure, reset_configuration
from linkspan.core.call import Hook
from linkspan.core.extension import Extension, ExtensionMethod, ListenMember
from linkspan.errors import MISSING_CLIENT_CAPABILITY, MethodAlreadyDefinedError
from linkspan.revisions.neutral import EncodedToolResult
from linkspan.types.messages import ServerCapabilities
from parcels import COLOURS, EXTENSION, PARCELS, arrived, shop
from test_transcripts import feed

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {PARCELS: {}}},
}


def request(method: str, number: int = 1, meta: dict[str, Any] = ENVELOPE, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}).encode()


def ask(server: Server, method: str, **params: Any) -> Any:
    reply = server.handle_json(request(method, **params))
    assert reply is not None
    return json.loads(reply)


@pytest.mark.parametrize(
    "wrong", ["echo", "/echo", "com.example/", "com..example/x", "-com/x", "com.example/x y", "1a/x"]
)
def test_an_id_has_a_prefix_and_a_name(wrong: str) -> None:
    with pytest.raises(RegistrationError, match="write a prefix and a name"):
        Extension(id=wrong)


@pytest.mark.parametrize("right", ["com.example/echo", "io.modelcontextprotocol/ui", "a/b", "com.ex-ample/e.c-h_o"])
def test_an_id_follows_the_grammar_of_meta_keys(right: str) -> None:
    assert Extension(id=right).id == right


def test_nothing_is_on_unless_it_was_asked_for() -> None:
    server = Server()
    assert ask(server, "parcels/find", parcelId="p")["error"]["code"] == -32601
    assert "extensions" not in ask(server, "server/discover")["result"]["capabilities"]


@pytest.mark.parametrize(
    "second",
    [
        EXTENSION,
        Extension(id="com.example/x", methods={"parcels/find": ExtensionMethod(begin=lambda _: Raw(b"{}"))}),
        Extension(id="com.example/x", methods={"tools/call": ExtensionMethod(begin=lambda _: Raw(b"{}"))}),
        Extension(id="com.example/x", methods={"mine": ExtensionMethod(begin=lambda _: Raw(b"{}"))}),
        Extension(id="com.example/x", listen={"parcelIds": ListenMember(honoured=lambda _, wanted: wanted)}),
        Extension(id="com.example/x", listen={"toolsListChanged": ListenMember(honoured=lambda _, wanted: wanted)}),
    ],
)
def test_what_exists_already_is_refused(second: Extension) -> None:
    server = shop()
    server.define_custom_method("mine", lambda params: None)
    with pytest.raises(RegistrationError, match=f"{second.id}: it is on already, or defines"):
        server._dispatcher.extend(second)


def test_a_custom_method_cannot_have_the_name_of_an_extensions_method() -> None:
    server = shop()
    with pytest.raises(MethodAlreadyDefinedError):
        server.define_custom_method("parcels/find", lambda params: None)


@pytest.mark.parametrize("declared", [{"extensions": {"com.example/own": {}}}, {"extensions": None}])
def test_extensions_are_announced_beside_what_the_author_declared(declared: dict[str, Any]) -> None:
    own = {} if declared["extensions"] is None else declared["extensions"]
    for capabilities in (declared, ServerCapabilities(extensions=declared["extensions"])):
        server = Server(capabilities=capabilities, extensions=[COLOURS])
        announced = ask(server, "server/discover")["result"]["capabilities"]["extensions"]
        assert announced == {**own, "com.example/colours": {"dark": True}}


def test_a_handshake_client_negotiates_an_extension_that_has_settings_only() -> None:
    server = Server(extensions=[COLOURS, EXTENSION])
    seen: list[bool] = []

    @server.tool
    def look(ctx: Context) -> str:
        seen.extend(each.declared_by(ctx.peer) for each in (COLOURS, EXTENSION))
        return "seen"

    connection = server.connect()
    declared = {"extensions": {COLOURS.id: {}, PARCELS: {}}}
    hello = {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": {"name": "c", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "look", "arguments": {}}},
    ):
        feed(connection, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", None)
    assert seen == [True, False]


def test_a_listener_gets_the_notifications_of_what_it_asked_for() -> None:
    server = shop()
    connection = server.connect()
    feed(connection, request("subscriptions/listen", 5, notifications={"parcelIds": ["p7", "p8"]}) + b"\n", None)
    connection.messages_to_send()
    assert [server._announcer.send(arrived(each), None) for each in ("p7", "p9", "p8")] == [1, 0, 1]
    assert [json.loads(each) for each in connection.messages_to_send()] == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/parcels",
            "params": {
                "parcelId": each,
                "status": "arrived",
                "_meta": {"io.modelcontextprotocol/subscriptionId": 5},
            },
        }
        for each in ("p7", "p8")
    ]


def test_a_listener_that_does_not_read_gets_the_last_notification_of_each() -> None:
    from contextlib import nullcontext

    from linkspan.core.call import Ports

    sending = True
    server = shop()
    connection = server.connect(ports=Ports(nullcontext(), sending=lambda: sending))
    feed(connection, request("subscriptions/listen", notifications={"parcelIds": ["p7", "p8"]}) + b"\n", None)
    connection.messages_to_send()
    for parcel in ("p7", "p8"):
        for status in ("packed", "sent", "arrived"):
            change = arrived(parcel)
            params = Raw(json.dumps({"parcelId": parcel, "status": status}).encode())
            server._announcer.send(type(change)(change.method, member="parcelIds", value=parcel, params=params), None)
    sending = False
    found = [json.loads(each)["params"] for each in connection.data_to_send().splitlines()]
    assert [(each["parcelId"], each["status"]) for each in found] == [("p7", "arrived"), ("p8", "arrived")]


def test_no_more_values_are_listened_for_than_the_limits_allow() -> None:
    from linkspan import Limits

    server = Server(limits=Limits(max_subscriptions=2), extensions=[EXTENSION])
    connection = server.connect()
    feed(connection, request("subscriptions/listen", notifications={"parcelIds": ["a", "b", "c"]}) + b"\n", None)
    assert json.loads(connection.messages_to_send()[0])["error"]["message"] == "More than 2 subscriptions"


def test_conditions_are_asked_before_an_extension_is() -> None:
    server = shop()
    order: list[str] = []

    @server.tool(when=lambda ctx: order.append("condition") or True)  # type: ignore[func-returns-value]
    def hidden() -> str:
        return ""

    @server.resource("note://one", when=lambda ctx: order.append("condition") or True)  # type: ignore[func-returns-value]
    def one() -> str:
        return ""

    def honoured(_: Any, wanted: Any) -> Any:
        order.append("extension")
        return wanted

    server._dispatcher.extend(Extension(id="com.example/x", listen={"x": ListenMember(honoured=honoured)}))
    connection = server.connect()
    meta = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"com.example/x": {}}}}
    wanted = {"x": True, "resourceSubscriptions": ["note://one"]}
    feed(connection, request("subscriptions/listen", meta=meta, notifications=wanted) + b"\n", None)
    (answer,) = [json.loads(each) for each in connection.messages_to_send()]
    assert answer["params"]["notifications"] == wanted
    assert order == ["condition", "extension"]


def test_a_failing_method_reveals_nothing_and_is_reported() -> None:
    reported: list[BaseException] = []
    seen: list[Any] = []
    server = shop()
    configure(exception_reporter=lambda error, _: reported.append(error), instrumentation_callback=seen.append)
    try:
        answer = ask(server, "parcels/find", parcelId="broken")
        far = ask(server, "parcels/find", parcelId="far")
        near = ask(server, "parcels/find", parcelId="near")
        parcel = ask(server, "tools/call", name="ship", arguments={"what": "x"})
    finally:
        reset_configuration()
    assert answer["error"]["code"] == -32603
    assert "secret" not in json.dumps(answer)
    assert [str(each.__cause__) for each in reported] == ["a secret of the author"]
    assert far["result"]["parcelId"] == "far"
    assert near["result"]["parcelId"] == "near"
    assert parcel["result"]["resultType"] == "parcel"
    assert [(each["method"], each.get("error")) for each in seen] == [
        ("parcels/find", "internal_error"),
        ("parcels/find", None),
        ("parcels/find", None),
        ("tools/call", None),
    ]


@pytest.mark.parametrize("first", ["middleware", "extension"])
def test_a_hook_around_calls_is_outside_of_middleware_whichever_came_first(first: str) -> None:
    order: list[str] = []

    def around(request: Any, begin: Any) -> Any:
        order.append("extension")
        return begin()

    def middleware(call: Any) -> None:
        order.append("middleware")

    server = Server()
    extension = Extension(id="com.example/x", around_call=around)
    steps = [lambda: server.middleware(middleware), lambda: server._dispatcher.extend(extension)]
    for step in steps if first == "middleware" else reversed(steps):
        step()

    @server.tool
    def add(a: int, b: int) -> int:
        order.append("tool")
        return a + b

    assert ask(server, "tools/call", name="add", arguments={"a": 1, "b": 2})["result"]["content"][0]["text"] == "3"
    assert order == ["extension", "middleware", "tool"]


def test_a_hook_may_run_a_call_itself_and_make_something_else_of_it() -> None:
    seen: list[Any] = []

    def around(request: Any, begin: Any) -> Any:
        call = begin()

        def run() -> Any:
            outcome = call.finish(call.run())
            assert isinstance(outcome, EncodedToolResult)
            return Raw(b'{"resultType":"boxed","text":%b}' % outcome.text)

        return Hook(request, run)

    server = Server(
        extensions=[Extension(id="com.example/x", around_call=around)], instrumentation_callback=seen.append
    )

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    result = ask(server, "tools/call", name="add", arguments={"a": 1, "b": 2})["result"]
    assert (result["resultType"], result["text"]) == ("boxed", "3")
    assert [each["method"] for each in seen] == ["tools/call"]


def test_a_hook_that_raises_ends_one_call() -> None:
    def around(request: Any, begin: Any) -> Any:
        raise RemoteProtocolError(
            MISSING_CLIENT_CAPABILITY, "no", {"requiredCapabilities": {"extensions": {"a/b": {}}}}
        )

    server = Server(extensions=[Extension(id="com.example/x", around_call=around)])
    server.define_tool("x", handler=lambda: "", input_schema={})
    assert ask(server, "tools/call", name="x", arguments={})["error"]["code"] == MISSING_CLIENT_CAPABILITY


def test_a_server_without_extensions_loads_no_module_for_them() -> None:
    code = "import sys, linkspan; linkspan.Server().handle_json('{}'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"linkspan.core.extension", "linkspan.server.extending"} & set(loaded)
