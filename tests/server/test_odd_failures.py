"""What seldom fails, and what its author or its caller then gets: each branch that catches something is run once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_asking import Client, text
from test_once import YES, processes, refuse

from linkspan import Configuration, Context, File, RegistrationError, Server
from linkspan.errors import LinkspanError
from linkspan.revisions.neutral import SAMPLE
from linkspan.serve.http import listen
from talk import connected, say


class Nameless:
    """A callable that does not say what it takes."""

    __signature__ = 5

    def __call__(self, *_: object) -> bool:
        return True


def test_a_condition_without_a_signature_is_refused() -> None:
    with pytest.raises(RegistrationError, match="has no signature: wrap it, as in lambda ctx"):
        Server().define_tool(name="t", handler=lambda: "ok", when=Nameless())


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(20_000):
        schema = {"type": "object", "properties": {"x": schema}}
    with pytest.raises(RegistrationError, match="nested too deeply; flatten it"):
        Server().define_tool(name="t", handler=lambda x: "ok", input_schema=schema)
    while "properties" in schema:  # freed one by one, or the interpreter would recurse as deeply
        schema = schema.pop("properties")["x"]


@pytest.mark.parametrize("params", [{"n": "many"}, {}, {"n": 1, "m": 2}])
def test_wrong_params_of_a_method_of_ones_own_are_named(params: dict[str, Any]) -> None:
    server = Server()

    @server.custom_method("shop/count")
    def count(n: int) -> int:
        return n

    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "shop/count", "params": params})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"].startswith("Invalid params: ")


def test_a_wrong_argument_of_a_prompt_is_named_and_observed() -> None:
    seen: list[Any] = []
    server = Server(instrumentation_callback=seen.append)

    @server.prompt
    def sort(n: int) -> str:
        return str(n)

    request = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "sort", "arguments": {"n": "x"}}}
    answer = server.handle(request)
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"].startswith("Invalid params: sort: ")
    assert [each["error"] for each in seen if each.get("prompt_name") == "sort"]


def test_a_text_that_is_no_utf_8_is_sent_as_bytes() -> None:
    server = Server()
    server.resource("notes://latin")(lambda: File(data=b"caf\xe9", mime_type="text/plain"))
    request = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "notes://latin"}}
    (found,) = server.handle(request)["result"]["contents"]
    assert (found["blob"], found["mimeType"]) == ("Y2Fm6Q==", "text/plain")


def test_an_exception_whose_text_cannot_be_had_is_named_by_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    server = Server(configuration=Configuration(tool_error_mode="message"))

    @server.tool
    def fail() -> str:
        raise Mute

    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail"}}
    assert text(server.handle(request)["result"]) == "Mute"


def test_a_sampled_message_that_is_none_is_asked_for_again() -> None:
    server = Server()

    @server.tool
    async def think(ctx: Context) -> str:
        return str((await ctx.sample("why?")).content)

    client = Client(server)
    first = client.call("think")
    (key,) = first["inputRequests"]
    assert first["inputRequests"][key]["method"] == SAMPLE
    again = client.answer(first, {key: {"role": "assistant", "content": {"type": "text"}}}, "think")
    assert again["resultType"] == "input_required"
    assert again["inputRequests"] == first["inputRequests"]


def test_a_value_that_was_made_counts_though_it_cannot_be_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _), charged = processes(tmp_path)
    first = one.call("buy", {"price": 5})

    def keep(*_: object) -> None:
        refuse()

    monkeypatch.setattr("linkspan.serve.stored_once.StoredValue.keep", keep)
    assert not one.answer(first, YES, "buy", {"price": 5}).get("isError")
    assert charged == [5]
    assert "could not be stored: other processes refuse to run it again" in caplog.text


def test_what_another_version_announces_is_taken_as_a_change_of_everything() -> None:
    server = Server(capabilities={"tools": {"listChanged": True}})
    server.tool(name="t")(lambda: "ok")
    connection = connected(server)
    say(connection, "tools/list", 1)
    server._announcer.receive(b'{"of": "another version"}')
    assert [b"list_changed" in each for each in connection.messages_to_send()] == [True]


def test_a_client_that_cannot_be_notified_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    server = Server(
        capabilities={"tools": {"listChanged": True}}, exception_reporter=lambda *found: reported.append(found)
    )
    server.tool(name="t")(lambda: "ok")
    connections = [connected(server) for _ in range(2)]

    def fail(*_: object) -> bool:
        raise ValueError("a mistake")

    monkeypatch.setattr(connections[0], "notify", fail)
    server.notify_tools_list_changed()
    assert any(b"list_changed" in each for each in connections[1].messages_to_send())
    ((error, context),) = reported
    assert (str(error), context["notification"]) == ("a mistake", "tools_list_changed")
    assert "notifications/tools/list_changed could not be announced to a client" in caplog.text
    assert "a mistake" in caplog.text


def test_an_address_that_is_not_of_this_machine_is_said_to_be_none() -> None:
    with pytest.raises(LinkspanError, match=r"192\.0\.2\.1 is not an address of this machine"):
        listen("192.0.2.1", 0)
    with pytest.raises(LinkspanError, match="is not known"):
        listen("a" * 70, 0)


def test_the_time_is_that_of_this_machine_while_the_store_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _), _ = processes(tmp_path)
    monkeypatch.setattr(one.server.store, "now", refuse)
    monkeypatch.setattr("linkspan.serve.sharing.time", type("Clock", (), {"time": staticmethod(lambda: 5.0)}))
    assert one.server._profile.sharing.now() == 5.0  # type: ignore[union-attr]
