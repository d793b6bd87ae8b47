"""Table H: configuration, reporting, instrumentation and context. Each test names its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from spoken import HELLO, ask, call, error, result, text_of

import linkspan
from linkspan import (
    Configuration,
    Context,
    Prompt,
    RegistrationError,
    Resource,
    Server,
    UnsupportedProtocolVersion,
    configure,
)
from linkspan.errors import RequestHandlerError
from linkspan.types.base import UNSET

Reports = list[tuple[BaseException, dict[str, Any]]]


def breaking(reports: Reports | None = None, **options: Any) -> Server:
    """Return a server whose tool and prompt raise."""
    if reports is not None:
        options["exception_reporter"] = lambda problem, context: reports.append((problem, dict(context)))
    server = Server(server_context={"user_id": 7}, **options)
    server.define_tool(name="breaks", handler=lambda **args: 1 / 0)
    server.define_prompt(name="breaks", handler=lambda args: 1 / 0)
    return server


# H1
def test_configure_yields_the_one_global_configuration() -> None:
    heard: list[Any] = []
    with configure() as config:
        config.instrumentation_callback = heard.append
    assert config is linkspan.configuration()
    for server in (Server(), Server()):
        ask(server, "ping")
    assert len(heard) == 2


# H2
def test_two_servers_may_have_configurations_of_their_own() -> None:
    first: list[Any] = []
    second: list[Any] = []
    servers = [Server(configuration=Configuration(instrumentation_callback=each.append)) for each in (first, second)]
    ask(servers[0], "ping")
    ask(servers[1], "tools/list")
    assert ([data["method"] for data in first], [data["method"] for data in second]) == (["ping"], ["tools/list"])


# H3
def test_a_configuration_of_a_server_wins_field_by_field_over_the_global_one() -> None:
    reports: Reports = []
    heard: list[Any] = []
    configure(exception_reporter=lambda problem, context: reports.append((problem, {})), protocol_version="2025-03-26")
    server = breaking(configuration=Configuration(instrumentation_callback=heard.append, protocol_version="2025-06-18"))
    call(server, "breaks")
    assert (len(reports), len(heard)) == (1, 1)
    assert server.protocol_version == "2025-06-18"
    later: list[Any] = []
    configure(exception_reporter=lambda problem, context: later.append(problem))
    call(server, "breaks")
    assert (len(reports), len(later)) == (1, 1)


# H4
def test_the_reporter_gets_the_exception_and_a_context() -> None:
    reports: Reports = []
    call(breaking(reports), "breaks")
    ((problem, context),) = reports
    assert isinstance(problem, ZeroDivisionError)
    assert isinstance(context, Mapping)


# H5 with C2 and C3
def test_the_context_says_where_it_happened() -> None:
    reports: Reports = []
    server = breaking(reports)
    call(server, "breaks", a=1)
    ask(server, "prompts/get", {"name": "breaks"})
    tool, prompt = (context for _, context in reports)
    assert tool == {
        "tool_name": "breaks",
        "arguments": {"a": 1},
        "request": {"id": 1, "method": "tools/call", "params": {"name": "breaks", "arguments": {"a": 1}}},
        "server_context": {"user_id": 7},
    }
    assert prompt == {
        "request": {"id": 1, "method": "prompts/get", "params": {"name": "breaks"}},
        "server_context": {"user_id": 7},
    }


# H6
def test_an_exception_is_reported_then_answered_in_general_words_or_raised_for_who_asks() -> None:
    reports: Reports = []
    server = breaking(reports)
    assert text_of(call(server, "breaks")).startswith("Internal error occurred")
    problem = error(server, "prompts/get", name="breaks")
    assert problem["code"] == -32603
    assert "division" not in problem["message"]
    _, (wrapped, _) = reports
    assert isinstance(wrapped, RequestHandlerError)
    assert str(wrapped) == "Internal error handling prompts/get request"
    assert isinstance(wrapped.__cause__, ZeroDivisionError)
    request = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "breaks"}}
    with pytest.raises(ZeroDivisionError):
        server.handle(request, raise_exceptions=True)
    assert len(reports) == 3


# H7
def test_without_a_reporter_an_exception_goes_nowhere_but_to_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = breaking()
    assert linkspan.configuration().exception_reporter is UNSET
    assert call(server, "breaks")["isError"] is True
    assert [record.name for record in caplog.records] == ["linkspan.server"]
    assert capfd.readouterr().out == ""


# H8 and C18
def test_the_callback_hears_of_each_request_whether_it_succeeds_or_fails() -> None:
    heard: list[Any] = []
    server = breaking(instrumentation_callback=heard.append)
    ask(server, "ping")
    ask(server, "tools/call", {"name": "breaks"})
    ask(server, "no/such")
    assert [data["method"] for data in heard] == ["ping", "tools/call", "unsupported_method"]


# H9, H10, with C19 and C20
def test_the_callback_gets_a_name_only_for_what_exists_and_the_error_of_a_lookup() -> None:
    heard: list[dict[str, Any]] = []
    server = Server(
        instrumentation_callback=lambda data: heard.append(dict(data)),
        prompts=[Prompt.define(name="p", arguments=[Prompt.Argument("a", required=True)], handler=lambda args: "x")],
        resources=[Resource(uri="x://y", name="y", text="Y")],
    )
    server.define_tool(name="t", handler=lambda **args: "x")
    ask(server, "ping")
    for name in ("t", "nope"):
        ask(server, "tools/call", {"name": name})
    for name in ("p", "nope"):
        ask(server, "prompts/get", {"name": name, "arguments": {"a": "x"}})
    for uri in ("x://y", "x://nope"):
        ask(server, "resources/read", {"uri": uri})
    durations = [data.pop("duration") for data in heard]
    assert all(isinstance(each, float) and 0 <= each < 10 for each in durations)
    assert heard == [
        {"method": "ping"},
        {"method": "tools/call", "tool_name": "t"},
        {"method": "tools/call", "error": "tool_not_found"},
        {"method": "prompts/get", "prompt_name": "p"},
        {"method": "prompts/get", "error": "prompt_not_found"},
        {"method": "resources/read", "resource_uri": "x://y"},
        {"method": "resources/read", "error": "resource_not_found"},
    ]


# H11
def test_the_server_context_reaches_tools_prompts_the_reporter_and_if_wanted_the_callback() -> None:
    reports: Reports = []
    heard: list[Any] = []
    server = breaking(
        reports, configuration=Configuration(instrumentation_callback=heard.append, instrument_server_context=True)
    )
    server.define_tool(name="who", handler=lambda args, server_context: str(server_context["user_id"]))
    server.define_prompt(name="who", handler=lambda args, server_context: str(server_context["user_id"]))
    assert text_of(call(server, "who")) == "7"
    assert result(server, "prompts/get", name="who")["messages"][0]["content"]["text"] == "7"
    call(server, "breaks")
    assert reports[0][1]["server_context"] == {"user_id": 7}
    assert [data["server_context"] for data in heard] == [{"user_id": 7}] * 3
    private: list[Any] = []
    ask(Server(server_context={"secret": 1}, instrumentation_callback=private.append), "ping")
    assert "server_context" not in private[0]


def proposed(server: Server) -> Any:
    """Return what is proposed to a client that asks for a version of another world."""
    return result(server, "initialize", **HELLO | {"protocolVersion": "1999-01-01"})["protocolVersion"]


# H12 and C7
def test_the_class_has_a_protocol_version_for_new_servers() -> None:
    before = Server()
    Server.protocol_version = "2024-11-05"
    pinned = Server()
    assert (proposed(before), proposed(pinned)) == ("2025-11-25", "2024-11-05")
    Server.protocol_version = None
    assert (proposed(Server()), proposed(pinned)) == ("2025-11-25", "2024-11-05")


# H13 and C17
def test_a_configuration_has_a_protocol_version_too_and_none_resets_it() -> None:
    config = Configuration(protocol_version="2024-11-05")
    assert proposed(Server(configuration=config)) == "2024-11-05"
    config.protocol_version = None
    assert proposed(Server(configuration=config)) == "2025-11-25"
    assert proposed(Server(configuration=Configuration(protocol_version=None))) == "2025-11-25"
    for attempt in (lambda: Configuration(protocol_version="2020-01-01"), lambda: configure(protocol_version="x")):
        with pytest.raises(ValueError, match=r"protocol_version must be .*, .*, or ") as caught:
            attempt()
        assert isinstance(caught.value, UnsupportedProtocolVersion)


# H14
def test_what_the_chosen_version_cannot_say_is_refused() -> None:
    Server.protocol_version = "2024-11-05"
    with pytest.raises(RegistrationError, match=r"`annotations` .* 2025-03-26 or higher"):
        Server().define_tool(name="t", annotations={"title": "T"}, handler=lambda: None)


# H11
def test_the_context_is_a_mapping_that_is_never_missing() -> None:
    server = Server()

    @server.tool
    def look(ctx: Context) -> str:
        return f"{ctx.get('user_id')} {dict(ctx)}"

    assert text_of(call(server, "look")) == "None {}"
