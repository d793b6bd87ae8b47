"""Each fixture of the conformance server, as the official suite looks at it, in memory and in both eras.

What the suite sends and what it accepts is written here as asserts, scenario by scenario, so that a fixture that drifts is
found without node and without a network. Rounds of questions are gone through by hand: a client would answer by itself.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from linkspan import Change, Refused, Server, ServerError, SyncClient, TextContent
from linkspan.revisions import LATEST, LATEST_LEGACY
from linkspan.types.messages import CreateMessageResult, ElicitResult, PromptReference

FILE = Path(__file__).parents[2] / "conformance" / "server.py"
PREFIX = "io.modelcontextprotocol/"
ERAS = {"modern": LATEST.date, "legacy": LATEST_LEGACY.date}
SUITE: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
"""What the suite declares with each modern request unless a scenario says otherwise."""

WITHOUT_ARGUMENTS = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_progress",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_reconnection",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_x_mcp_header",
]
ASKING = [
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
]
TOOLS = {*WITHOUT_ARGUMENTS, *ASKING, "test_error_handling", "test_sampling", "test_elicitation"}
TOOLS |= {"json_schema_2020_12_tool"}
AS_TASKS = {
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
}
TOOLS |= AS_TASKS
PROMPTS = {
    "test_simple_prompt",
    "test_prompt_with_arguments",
    "test_prompt_with_embedded_resource",
    "test_prompt_with_image",
    "test_input_required_result_prompt",
}


def load() -> ModuleType:
    """Run the file anew: some fixtures change their server."""
    spec = importlib.util.spec_from_file_location("conformance_server", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in their hints
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server() -> Server:
    found: Server = load().server
    return found


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def client(server: Server, era: Any) -> Iterator[SyncClient]:
    """A client that answers as the suite's client does: a name to whoever asks, one sentence, one root."""
    with answering(server, era, {"name": "Alice"}) as connected:
        assert connected.protocol_version == ERAS[era]
        yield connected


def answering(server: Server, era: Any, content: dict[str, Any] | None = None, **options: Any) -> SyncClient:
    def accept(asked: Any) -> ElicitResult:
        return ElicitResult("accept", content)

    def write(asked: Any) -> CreateMessageResult:
        return CreateMessageResult("assistant", TextContent("This is a test response"), "test-model", "endTurn")

    options = {"elicitation": accept, "sampling": write, "roots": ["file:///test/root"]} | options
    return SyncClient(server, era=era, **options)


def call(server: Server, name: str, *, capabilities: Any = None, meta: Any = None, **more: Any) -> Any:
    """Call a tool over the modern wire, a message at a time, and return the whole answer."""
    return ask(server, "tools/call", {"name": name, "arguments": {}} | more, capabilities=capabilities, meta=meta)


def ask(server: Server, method: str, params: dict[str, Any], *, capabilities: Any = None, meta: Any = None) -> Any:
    declared = SUITE if capabilities is None else capabilities
    envelope = {f"{PREFIX}protocolVersion": LATEST.date, f"{PREFIX}clientCapabilities": declared} | (meta or {})
    return server.handle({"jsonrpc": "2.0", "id": 7, "method": method, "params": params | {"_meta": envelope}})


def accepted(content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


WRITTEN = {"role": "assistant", "content": {"type": "text", "text": "Hello there!"}, "model": "test-model"}
ROOTS = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}


def asked_by(answer: Any) -> dict[str, Any]:
    """Return the questions of an interim result."""
    result = answer["result"]
    assert result["resultType"] == "input_required"
    assert result["inputRequests"]
    questions: dict[str, Any] = result["inputRequests"]
    return questions


def complete(answer: Any) -> Any:
    """Return a final result."""
    result = answer["result"]
    assert result["resultType"] == "complete"
    assert not result.get("isError")
    return result


# Lists: server-initialize, server-stateless, tools-list, prompts-list, resources-list, caching.


def test_all_that_the_suite_looks_for_is_declared(client: SyncClient) -> None:
    offered = client.server_capabilities
    assert offered is not None
    assert offered.tools is not None
    assert offered.tools.list_changed
    assert offered.prompts is not None
    assert offered.prompts.list_changed
    assert offered.resources is not None
    assert offered.resources.subscribe
    assert offered.completions is not None
    assert offered.logging is not None


def test_the_tools_are_those_of_the_suite_in_an_order_that_stays(client: SyncClient) -> None:
    tools = client.list_tools()
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
    assert [tool.name for tool in client.list_tools()] == [tool.name for tool in tools]


def test_the_first_tool_succeeds_with_no_arguments(client: SyncClient) -> None:
    first = client.list_tools()[0].name
    assert first == "test_simple_text"
    assert not client.call_tool(first, {}).is_error


def test_prompts_and_resources_have_what_lists_must_have(client: SyncClient) -> None:
    prompts = client.list_prompts()
    assert {prompt.name for prompt in prompts} == PROMPTS
    assert all(prompt.description for prompt in prompts)
    resources = client.list_resources()
    assert {each.uri for each in resources if not each.uri.startswith("skill://")} == {
        "test://static-text",
        "test://static-binary",
        "test://watched-resource",
    }
    assert all(each.name and each.mime_type for each in resources)
    templates = [each.uri_template for each in client.list_resource_templates()]
    assert [each for each in templates if not each.startswith("skill://")] == ["test://template/{id}/data"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "test://static-text"}),
        ("server/discover", {}),
    ],
)
def test_lists_say_how_long_they_may_be_kept(server: Server, method: str, params: dict[str, Any]) -> None:
    result = complete(ask(server, method, params))
    assert type(result["ttlMs"]) is int
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")


# Tools that answer: tools-call-*, json-schema-2020-12, http-custom-header-server-validation.


@pytest.mark.parametrize("name", WITHOUT_ARGUMENTS)
def test_tools_may_be_called_without_any_arguments(client: SyncClient, name: str) -> None:
    assert not client.call_tool(name).is_error
    if client.protocol_version == LATEST.date:
        assert client.request("tools/call", {"name": name})["content"]


def test_simple_text(client: SyncClient) -> None:
    assert client.call_tool("test_simple_text").text == "This is a simple text response for testing."


def test_image_audio_and_resource(client: SyncClient) -> None:
    for name, kind, mime_type in (
        ("test_image_content", "image", "image/png"),
        ("test_audio_content", "audio", "audio/wav"),
    ):
        (block,) = client.request("tools/call", {"name": name, "arguments": {}})["content"]
        assert (block["type"], block["mimeType"]) == (kind, mime_type)
        assert block["data"]
    (block,) = client.request("tools/call", {"name": "test_embedded_resource", "arguments": {}})["content"]
    assert block["type"] == "resource"
    assert block["resource"]["uri"] == "test://embedded-resource"
    assert block["resource"]["mimeType"]
    assert block["resource"]["text"]


def test_multiple_content_types(client: SyncClient) -> None:
    content = client.request("tools/call", {"name": "test_multiple_content_types", "arguments": {}})["content"]
    assert [block["type"] for block in content] == ["text", "image", "resource"]


def test_error_handling(client: SyncClient) -> None:
    result = client.call_tool("test_error_handling")
    assert result.is_error
    assert result.text == "This tool intentionally returns an error for testing"


def test_an_unknown_tool_is_a_protocol_error(client: SyncClient) -> None:
    with pytest.raises(ServerError) as error:
        client.call_tool("nonsense")
    assert error.value.code == -32602


def test_a_schema_keeps_every_keyword(client: SyncClient) -> None:
    (tool,) = [each for each in client.list_tools() if each.name == "json_schema_2020_12_tool"]
    assert tool.input_schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
    assert not client.call_tool(tool.name, {"email": "a@example.com", "address": {"city": "Rome"}}).is_error
    assert client.call_tool(tool.name, {"name": "nobody"}).is_error


def test_one_tool_has_one_optional_text_in_a_header(client: SyncClient) -> None:
    marked = [tool for tool in client.list_tools() if "x-mcp-header" in str(tool.input_schema)]
    assert [tool.name for tool in marked] == ["test_x_mcp_header"]
    schema = marked[0].input_schema
    (property,) = schema["properties"].values()
    assert (property["type"], property["x-mcp-header"]) == ("string", "Region")
    assert not schema.get("required")
    assert client.call_tool("test_x_mcp_header", {"region": "Hello"}).text == "Running in Hello"


# What tools say meanwhile: tools-call-with-progress, tools-call-with-logging, server-stateless.


def test_progress_comes_three_times_in_order_before_the_result(client: SyncClient) -> None:
    heard: list[tuple[float, float | None]] = []
    began = time.monotonic()
    result = client.call_tool(
        "test_tool_with_progress", on_progress=lambda said: heard.append((said.progress, said.total))
    )
    assert heard == [(0, 100), (50, 100), (100, 100)]
    assert result.text
    assert time.monotonic() - began >= 0.09


def test_logs_come_three_times_at_info(server: Server, era: Any) -> None:
    heard: list[Any] = []
    arrived = threading.Event()

    def hear(said: Any) -> None:
        heard.append((said.level, said.data))
        if len(heard) == 3:
            arrived.set()

    with SyncClient(server, era=era, on_log=hear) as client:
        client.set_logging_level("debug")
        assert client.call_tool("test_tool_with_logging").text
        assert arrived.wait(30)
    assert heard == [
        ("info", "Tool execution started"),
        ("info", "Tool processing data"),
        ("info", "Tool execution completed"),
    ]


def test_nothing_is_logged_to_a_modern_client_that_asked_for_no_level(server: Server) -> None:
    heard: list[Any] = []
    with SyncClient(server, era="modern", on_log=heard.append) as client:
        client.call_tool("test_logging_tool")
        assert heard == []
        client.set_logging_level("error")
        client.call_tool("test_logging_tool")
        client.call_tool("test_simple_text")  # what came with the call before it has been heard by now
    assert [said.level for said in heard] == ["error"]


# Prompts, resources, utilities.


def messages(client: SyncClient, name: str, arguments: dict[str, str] | None = None) -> list[Any]:
    params: dict[str, Any] = {"name": name} | ({"arguments": arguments} if arguments is not None else {})
    found: list[Any] = client.request("prompts/get", params)["messages"]
    assert all(message["role"] in ("user", "assistant") for message in found)
    return [message["content"] for message in found]


def test_prompts(client: SyncClient) -> None:
    assert messages(client, "test_simple_prompt")[0]["text"]
    (text,) = messages(client, "test_prompt_with_arguments", {"arg1": "testValue1", "arg2": "testValue2"})
    assert "testValue1" in text["text"]
    assert "testValue2" in text["text"]
    uri = "test://example-resource"
    resource, text = messages(client, "test_prompt_with_embedded_resource", {"resourceUri": uri})
    assert (resource["type"], resource["resource"]["uri"], text["type"]) == ("resource", uri, "text")
    picture, text = messages(client, "test_prompt_with_image")
    assert (picture["type"], picture["mimeType"], text["type"]) == ("image", "image/png", "text")
    assert picture["data"]


def test_prompt_arguments_are_required(client: SyncClient) -> None:
    (prompt,) = [each for each in client.list_prompts() if each.name == "test_prompt_with_arguments"]
    assert [(each.name, each.required) for each in prompt.arguments or ()] == [("arg1", True), ("arg2", True)]


def test_resources(client: SyncClient) -> None:
    (text,) = client.request("resources/read", {"uri": "test://static-text"})["contents"]
    assert (text["uri"], text["mimeType"]) == ("test://static-text", "text/plain")
    assert text["text"]
    (blob,) = client.request("resources/read", {"uri": "test://static-binary"})["contents"]
    assert (blob["uri"], blob["mimeType"]) == ("test://static-binary", "image/png")
    assert blob["blob"]
    (made,) = client.request("resources/read", {"uri": "test://template/123/data"})["contents"]
    assert made["uri"] == "test://template/123/data"
    assert msgspec.json.decode(made["text"])["id"] == "123"


def test_a_resource_that_does_not_exist(client: SyncClient) -> None:
    uri = "test://nonexistent-resource-for-conformance-testing"
    with pytest.raises(ServerError) as error:
        client.read_resource(uri)
    assert error.value.code == (-32602 if client.protocol_version == LATEST.date else -32002)
    assert error.value.data == {"uri": uri}


def test_completion(client: SyncClient) -> None:
    found = client.complete(PromptReference("test_prompt_with_arguments"), "arg1", "test")
    assert found.values == ["test", "testing"]


def test_what_handshake_clients_may_also_call_answers_nothing(server: Server) -> None:
    with SyncClient(server, era="legacy") as client:
        watched = {"uri": "test://watched-resource"}
        assert client.request("ping") == {}
        assert client.request("logging/setLevel", {"level": "info"}) == {}
        assert client.request("resources/subscribe", watched) == {}
        assert client.request("resources/unsubscribe", watched) == {}


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"],
)
def test_what_the_newest_revision_does_not_have_does_not_exist(server: Server, method: str) -> None:
    answer = ask(server, method, {})
    assert (answer["id"], answer["error"]["code"]) == (7, -32601)


# Changes: server-stateless.


@pytest.mark.parametrize("kind", ["tools", "prompts"])
def test_each_trigger_is_a_change_that_listeners_hear_of(client: SyncClient, kind: Any) -> None:
    trigger = f"test_trigger_{kind[:-1]}_change"
    names = client.list_tools if kind == "tools" else client.list_prompts
    before = {each.name for each in names()}
    with client.listen(tools=kind == "tools", prompts=kind == "prompts") as changes:
        for differ in (True, False, True):
            client.call_tool(trigger)
            assert next(changes) == Change(kind)
            assert ({each.name for each in names()} != before) is differ


def test_who_listens_for_prompts_hears_nothing_of_tools(client: SyncClient) -> None:
    with client.listen(prompts=True) as changes:
        client.call_tool("test_trigger_tool_change")
        client.call_tool("test_trigger_prompt_change")
        assert next(changes) == Change("prompts")


# Questions that mean the same in both eras: tools-call-sampling, tools-call-elicitation, elicitation-sep1034-defaults,
# elicitation-sep1330-enums.


def test_sampling(server: Server, era: Any) -> None:
    wanted: list[Any] = []

    def write(params: Any) -> str:
        wanted.append(params)
        return "This is a test response from the client"

    with SyncClient(server, era=era, sampling=write) as client:
        text = client.call_tool("test_sampling", {"prompt": "Test prompt for sampling"}).text
    assert text == "LLM response: This is a test response from the client"
    (params,) = wanted
    assert params.max_tokens == 100
    assert [(each.role, each.content.text) for each in params.messages] == [("user", "Test prompt for sampling")]


def elicited(server: Server, era: Any, tool: str, content: dict[str, Any], **arguments: Any) -> tuple[Any, Any]:
    """Call a tool that asks once; return the question and the result."""
    asked: list[Any] = []

    def accept(params: Any) -> ElicitResult:
        asked.append(params)
        return ElicitResult("accept", content)

    with SyncClient(server, era=era, elicitation=accept) as client:
        result = client.call_tool(tool, arguments)
    (params,) = asked
    assert params.message
    return params, result


def test_elicitation(server: Server, era: Any) -> None:
    reply = {"username": "testuser", "email": "test@example.com"}
    params, result = elicited(server, era, "test_elicitation", reply, message="Please provide your information")
    assert params.message == "Please provide your information"
    assert set(params.requested_schema["properties"]) == set(reply)
    assert result.text == "User response: testuser, test@example.com"
    assert not result.is_error


def test_elicitation_of_defaults(server: Server, era: Any) -> None:
    reply = {"name": "Jane Smith", "age": 25, "score": 88, "status": "inactive", "verified": False}
    params, result = elicited(server, era, "test_elicitation_sep1034_defaults", reply)
    assert params.requested_schema["properties"] == {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    assert "Jane Smith" in result.text
    assert not result.is_error


def test_elicitation_of_choices(server: Server, era: Any) -> None:
    reply: dict[str, Any] = {
        "untitledSingle": "option1",
        "titledSingle": "value1",
        "legacyEnum": "opt1",
        "untitledMulti": ["option1", "option2"],
        "titledMulti": ["value1", "value2"],
    }
    params, result = elicited(server, era, "test_elicitation_sep1330_enums", reply)
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]
    assert params.requested_schema["properties"] == {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    assert "opt1" in result.text
    assert not result.is_error


def test_a_client_that_cannot_be_asked_gets_an_answer_all_the_same(server: Server, era: Any) -> None:
    with SyncClient(server, era=era) as client:
        assert client.call_tool("test_simple_text").text
        if era == "legacy":
            assert client.call_tool("test_sampling", {"prompt": "x"}).is_error
        else:
            with pytest.raises(ServerError) as error:
                client.call_tool("test_sampling", {"prompt": "x"})
            assert error.value.code == -32021


def test_who_refuses_gets_an_answer_too(server: Server, era: Any) -> None:
    def refuse(asked: Any) -> None:
        raise Refused("not today")

    with SyncClient(server, era=era, elicitation=lambda asked: False, sampling=refuse) as client:
        declined = client.call_tool("test_elicitation", {"message": "x"})
        assert declined.is_error
        assert "declined" in declined.text


# server-stateless.


def test_a_capability_that_is_missing_is_named(server: Server) -> None:
    answer = call(server, "test_missing_capability", capabilities={})
    assert (answer["id"], answer["error"]["code"]) == (7, -32021)
    assert answer["error"]["data"]["requiredCapabilities"] == {"sampling": {}}


def test_a_question_in_a_stream_is_a_result(server: Server) -> None:
    assert asked_by(call(server, "test_streaming_elicitation", capabilities={"elicitation": {}}))


# Rounds, as they are on the wire: input-required-result-*. A retry is a new request, and nothing is remembered for it.


def test_the_whole_talk_with_a_client_that_answers(client: SyncClient) -> None:
    assert client.call_tool("test_input_required_result_elicitation").text == "Hello, Alice!"
    assert client.call_tool("test_input_required_result_sampling").text == "This is a test response"
    assert "file:///test/root" in client.call_tool("test_input_required_result_list_roots").text
    assert (
        client.call_tool("test_input_required_result_multiple_inputs").text == "Got user_name, greeting, client_roots"
    )
    assert client.call_tool("test_input_required_result_capabilities").text == "Got greeting, user_name"


def test_basic_elicitation(server: Server) -> None:
    name = "test_input_required_result_elicitation"
    first = call(server, name)
    (key, question), *others = asked_by(first).items()
    assert (key, question["method"], others) == ("user_name", "elicitation/create", [])
    assert question["params"]["requestedSchema"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    state = first["result"]["requestState"]
    second = call(server, name, inputResponses={key: accepted({"name": "Alice"})}, requestState=state)
    assert complete(second)["content"] == [{"type": "text", "text": "Hello, Alice!"}]


def test_answers_that_nobody_asked_for_do_no_harm_and_do_not_count(server: Server) -> None:
    name = "test_input_required_result_elicitation"
    wrong = {"wrong_key": accepted({"data": "wrong"})}
    first = call(server, name, inputResponses=wrong)
    assert list(asked_by(first)) == ["user_name"]
    extra = wrong | {"user_name": accepted({"name": "Alice"}), "another": accepted({})}
    assert list(asked_by(call(server, name, inputResponses=extra))) == ["user_name"]  # nothing was asked yet
    state = first["result"]["requestState"]
    found = complete(call(server, name, inputResponses=extra, requestState=state))
    assert found["content"][0]["text"] == "Hello, Alice!"


@pytest.mark.parametrize("responses", [{"user_name": 12345}, None, {"user_name": accepted({"name": 12345})}])
def test_answers_that_are_none_do_not_complete(server: Server, responses: Any) -> None:
    name = "test_input_required_result_elicitation"
    state = call(server, name)["result"]["requestState"]
    answer = call(server, name, inputResponses=responses, requestState=state)
    assert answer["id"] == 7
    assert answer.get("result", {}).get("resultType") != "complete"


@pytest.mark.parametrize(
    ("tool", "method", "reply", "text"),
    [
        ("sampling", "sampling/createMessage", WRITTEN, "Hello there!"),
        ("list_roots", "roots/list", ROOTS, "Roots: file:///test/root"),
    ],
)
def test_basic_sampling_and_roots(server: Server, tool: str, method: str, reply: Any, text: str) -> None:
    name = f"test_input_required_result_{tool}"
    first = call(server, name)
    ((key, question),) = asked_by(first).items()
    assert question["method"] == method
    state = first["result"]["requestState"]
    second = call(server, name, inputResponses={key: reply}, requestState=state)
    assert complete(second)["content"][0]["text"] == text


def test_request_state(server: Server) -> None:
    name = "test_input_required_result_request_state"
    first = call(server, name)
    ((key, question),) = asked_by(first).items()
    assert question["params"]["requestedSchema"]["properties"] == {"ok": {"type": "boolean"}}
    state = first["result"]["requestState"]
    assert isinstance(state, str)
    second = call(server, name, inputResponses={key: accepted({"ok": True})}, requestState=state)
    assert "state-ok" in complete(second)["content"][0]["text"]
    assert asked_by(call(server, name, requestState=state))


def test_multiple_input_requests(server: Server) -> None:
    name = "test_input_required_result_multiple_inputs"
    first = call(server, name)
    replies = {
        "elicitation/create": accepted({"name": "Alice"}),
        "sampling/createMessage": WRITTEN,
        "roots/list": ROOTS,
    }
    questions = {key: question["method"] for key, question in asked_by(first).items()}
    assert sorted(questions.values()) == sorted(replies)
    state = first["result"]["requestState"]
    assert state
    some = {key: replies[method] for key, method in questions.items() if method != "roots/list"}
    between = call(server, name, inputResponses=some, requestState=state)
    assert [each["method"] for each in asked_by(between).values()] == ["roots/list"]
    every = {key: replies[method] for key, method in questions.items()}
    assert complete(call(server, name, inputResponses=every, requestState=state))["content"]


def test_multi_round(server: Server) -> None:
    name = "test_input_required_result_multi_round"
    first = call(server, name)
    ((step1, _),) = asked_by(first).items()
    state1 = first["result"]["requestState"]
    second = call(server, name, inputResponses={step1: accepted({"name": "Alice"})}, requestState=state1)
    ((step2, question),) = asked_by(second).items()
    assert question["method"] == "elicitation/create"
    state2 = second["result"]["requestState"]
    assert step2 != step1
    assert state2 != state1
    third = call(server, name, inputResponses={step2: accepted({"color": "blue"})}, requestState=state2)
    assert complete(third)["content"][0]["text"] == "Alice likes blue"


def test_a_tampered_state_is_an_error(server: Server) -> None:
    name = "test_input_required_result_tampered_state"
    first = call(server, name)
    ((key, _),) = asked_by(first).items()
    state = first["result"]["requestState"]
    answers = {key: accepted({"ok": True})}
    for changed in (state + "-TAMPERED", state[:-1], "A" + state[1:], "nonsense"):
        answer = call(server, name, inputResponses=answers, requestState=changed)
        assert (answer["id"], answer["error"]["code"]) == (7, -32602)
    elsewhere = call(server, "test_input_required_result_request_state", inputResponses=answers, requestState=state)
    assert elsewhere["error"]["code"] == -32602
    assert complete(call(server, name, inputResponses=answers, requestState=state))


def test_only_what_the_client_can_answer_is_asked(server: Server) -> None:
    name = "test_input_required_result_capabilities"
    questions = asked_by(call(server, name, capabilities={"sampling": {}}))
    assert [each["method"] for each in questions.values()] == ["sampling/createMessage"]
    questions = asked_by(call(server, name, capabilities={"elicitation": {}}))
    assert [each["method"] for each in questions.values()] == ["elicitation/create"]
    assert complete(call(server, name, capabilities={}))["content"]


def test_a_prompt_asks_too(server: Server) -> None:
    params: dict[str, Any] = {"name": "test_input_required_result_prompt"}
    first = ask(server, "prompts/get", params)
    ((key, question),) = asked_by(first).items()
    assert (key, question["method"]) == ("user_context", "elicitation/create")
    answers = {key: accepted({"context": "test context"})}
    state = first["result"]["requestState"]
    second = ask(server, "prompts/get", params | {"inputResponses": answers, "requestState": state})
    assert "test context" in complete(second)["messages"][0]["content"]["text"]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
def test_lists_never_ask(server: Server, method: str) -> None:
    complete(ask(server, method, {}))


def test_the_program_serves_over_http_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load()
    served: list[Any] = []
    monkeypatch.setattr(module.server, "run", lambda transport, **options: served.append((transport, options)))
    monkeypatch.setattr(sys, "argv", ["server.py", "--port", "3101"])
    module.main()
    assert served == [("http", {"host": "127.0.0.1", "port": 3101, "path": "/mcp", "workers": 1})]


# The tasks extension.

WITH_TASKS = {**SUITE, "extensions": {"io.modelcontextprotocol/tasks": {}}}
ALICE = {"action": "accept", "content": {"name": "Alice"}}


def make_task(server: Server, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return the task that it becomes once it has a state other than "working"."""
    task: dict[str, Any] = call(server, name, capabilities=WITH_TASKS, arguments=arguments)["result"]
    assert task["resultType"] == "task"
    return follow(server, task)


def follow(server: Server, task: dict[str, Any]) -> dict[str, Any]:
    give_up = time.monotonic() + 60
    while task["status"] == "working":
        assert time.monotonic() < give_up
        time.sleep(0.01)
        task = ask(server, "tasks/get", {"taskId": task["taskId"]}, capabilities=WITH_TASKS)["result"]
    return task


def respond(server: Server, task: dict[str, Any], **responses: Any) -> dict[str, Any]:
    update = {"taskId": task["taskId"], "inputResponses": responses}
    acknowledged = ask(server, "tasks/update", update, capabilities=WITH_TASKS)["result"]
    assert set(acknowledged) == {"resultType", "_meta"}
    return follow(server, ask(server, "tasks/get", {"taskId": task["taskId"]}, capabilities=WITH_TASKS)["result"])


def test_tasks_end_as_the_suite_expects(server: Server) -> None:
    assert call(server, "greet", capabilities=WITH_TASKS, arguments={"name": "a"})["result"]["resultType"] == "complete"
    assert make_task(server, "slow_compute", seconds=0.01)["status"] == "completed"
    assert make_task(server, "failing_job")["result"]["isError"]
    failed = make_task(server, "protocol_error_job")
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32603)
    running = call(server, "slow_compute", capabilities=WITH_TASKS, arguments={"seconds": 20})["result"]
    ask(server, "tasks/cancel", {"taskId": running["taskId"]}, capabilities=WITH_TASKS)
    assert follow(server, running)["status"] == "cancelled"


def test_tasks_ask_as_the_suite_expects(server: Server) -> None:
    asked = make_task(server, "confirm_delete", filename="a.txt")
    (key,) = asked["inputRequests"]
    done = respond(server, asked, **{key: {"action": "accept", "content": {"confirm": True}}})
    assert done["result"]["content"][0]["text"] == "Deleted a.txt"
    both = make_task(server, "multi_input")
    half = respond(server, both, first=ALICE)
    assert (half["status"], list(half["inputRequests"])) == ("input_required", ["second"])
    assert respond(server, half, second={"action": "accept", "content": {"color": "red"}})["status"] == "completed"


def test_questions_before_a_task_are_asked_in_rounds(server: Server) -> None:
    asked = call(server, "test_tool_with_task", capabilities=WITH_TASKS)["result"]
    assert asked["resultType"] == "input_required"
    answered = {"inputResponses": {"user": ALICE}, "requestState": asked["requestState"]}
    created = call(server, "test_tool_with_task", capabilities=WITH_TASKS, **answered)["result"]
    assert "Alice" in follow(server, created)["result"]["content"][0]["text"]


def test_a_job_that_needs_a_task_refuses_clients_without_them(server: Server) -> None:
    refused = call(server, "failing_job")["error"]
    assert (refused["code"], list(refused["data"]["requiredCapabilities"]["extensions"])) == (
        -32021,
        ["io.modelcontextprotocol/tasks"],
    )
