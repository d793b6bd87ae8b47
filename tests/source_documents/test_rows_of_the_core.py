"""Tables A and B: the server core, and the methods of the protocol. Each test names its row."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from spoken import HELLO, ask, call, error, result, text_of

from linkspan import Configuration, Prompt, Resource, ResourceTemplate, Server, Tool, ToolResponse

ROOT = Path(__file__).parent.parent.parent
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class ExampleTool(Tool):
    description = "A simple example tool that echoes back its arguments"
    input_schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}

    @staticmethod
    def call(message: str, server_context: Any) -> ToolResponse:
        return ToolResponse([{"type": "text", "text": f"Hello from example tool! Message: {message}"}])


class MyPrompt(Prompt):
    description = "A prompt"
    arguments = [Prompt.Argument(name="message", description="Input message", required=True)]

    @staticmethod
    def template(args: Any, server_context: Any) -> Prompt.Result:
        return Prompt.Result(description="Response", messages=[Prompt.Message("user", args["message"])])


def full_server(**options: Any) -> Server:
    return Server(
        name="my_server",
        version="1.0.0",
        instructions="Use the tools of this server as a last resort",
        tools=[ExampleTool],
        prompts=[MyPrompt],
        resources=[Resource(uri="file:///a", name="a", description="An a", mime_type="text/plain", text="A")],
        resource_templates=[
            ResourceTemplate("users://{id}", name="user", description="A user", mime_type="text/plain")
        ],
        server_context={"user_id": 7},
        **options,
    )


# A1
def test_one_distribution_is_installed_and_one_import_brings_the_server_and_stdio() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "linkspan"
    code = "from linkspan import Server, StdioTransport; import sys; print([m for m in sys.modules if 'http' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


# A2
def test_a_server_takes_what_the_source_documents_give_it_and_has_their_defaults() -> None:
    server = full_server(configuration=Configuration())
    assert (server.name, server.version, server.server_context) == ("my_server", "1.0.0", {"user_id": 7})
    plain = Server()
    assert (plain.name, plain.version) == ("model_context_protocol", "0.1.0")
    assert (plain.instructions, plain.server_context, plain.configuration) == (None, None, None)
    capabilities = result(plain, "initialize", **HELLO)["capabilities"]
    assert all(capabilities[kind]["listChanged"] for kind in ("tools", "prompts", "resources"))


# A3
def test_the_key_features_are_all_there() -> None:
    server = full_server()
    assert ask(server, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert set(result(server, "initialize", **HELLO)["capabilities"]) >= {"tools", "prompts", "resources"}
    assert text_of(call(server, "example_tool", message="hi")) == "Hello from example tool! Message: hi"
    assert result(server, "prompts/get", name="my_prompt", arguments={"message": "hi"})["messages"]
    assert result(server, "resources/read", uri="file:///a")["contents"][0]["text"] == "A"
    assert callable(server.asgi())
    assert server.notify_tools_list_changed() == 0


# A4
def test_handle_takes_a_parsed_request_and_gives_a_parsed_response_or_none() -> None:
    server = Server()
    assert server.handle(PING) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert server.handle({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert server.handle([PING, PING | {"id": 2}]) == [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
    ]
    assert server.handle([{"jsonrpc": "2.0", "method": "notifications/initialized"}]) is None
    assert server.handle([])["error"]["code"] == -32600


# A5 and C8
def test_handle_json_takes_a_text_and_gives_a_text_or_none() -> None:
    server = Server()
    assert server.handle_json(json.dumps(PING)) == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert server.handle_json('{"jsonrpc":"2.0","method":"notifications/initialized"}') is None
    broken = json.loads(server.handle_json("{nope") or "")
    assert (broken["jsonrpc"], broken["error"]["code"]) == ("2.0", -32700)
    assert "id" not in broken  # the row says null, which is no id of the protocol (MSG-5)


# A6
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "no/such"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "broken"}, -32603),
    ],
)
def test_json_rpc_errors_have_their_codes(message: Any, code: int) -> None:
    server = full_server()
    server.define_custom_method("broken", lambda params: 1 / 0)
    assert server.handle(message)["error"]["code"] == code


# A6
@pytest.mark.parametrize("request_id", [1, -1, "1", "req:1", ""])
def test_an_id_is_an_integer_or_any_text_and_comes_back_as_it_was(request_id: Any) -> None:
    assert Server().handle(PING | {"id": request_id}) == {"jsonrpc": "2.0", "id": request_id, "result": {}}


# A6
def test_a_notification_is_never_answered_even_on_an_error() -> None:
    assert Server().handle({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "nope"}}) is None


# A7
def test_the_server_says_who_it_is() -> None:
    assert result(full_server(), "initialize", **HELLO)["serverInfo"] == {"name": "my_server", "version": "1.0.0"}


# A8
def test_instructions_are_told_and_left_out_where_there_are_none() -> None:
    told = result(full_server(), "initialize", **HELLO)
    assert told["instructions"] == "Use the tools of this server as a last resort"
    assert "instructions" not in result(Server(), "initialize", **HELLO)
    # The row holds them back from 2024-11-05, whose schema has them: the revision counts, not the older SDK's belief.
    oldest = result(full_server(), "initialize", **HELLO | {"protocolVersion": "2024-11-05"})
    assert oldest["instructions"] == told["instructions"]


# A9
def test_an_unknown_method_is_refused_and_counted_under_one_label() -> None:
    heard: list[Any] = []
    server = Server(instrumentation_callback=heard.append)
    assert error(server, "no/such")["code"] == -32601
    assert server.handle({"jsonrpc": "2.0", "method": "no/such"}) is None
    assert {data["method"] for data in heard} == {"unsupported_method"}


# B1
def test_initialize_agrees_on_a_version_and_tells_capabilities_of_what_is_there() -> None:
    told = result(full_server(), "initialize", **HELLO)
    assert set(told) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
    assert told["protocolVersion"] == "2025-06-18"
    assert {name: told["capabilities"][name]["listChanged"] for name in ("tools", "prompts", "resources")} == {
        "tools": True,
        "prompts": True,
        "resources": True,
    }
    strange = HELLO | {"protocolVersion": "1999-01-01"}
    assert result(Server(), "initialize", **strange)["protocolVersion"] == "2025-11-25"


# B2
def test_the_initialized_notification_is_answered_with_nothing() -> None:
    assert Server().handle({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None


# B3 and C10
def test_ping_is_answered_with_an_empty_object() -> None:
    assert result(Server(), "ping") == {}


# B4
def test_tools_are_listed() -> None:
    assert result(full_server(), "tools/list") == {
        "tools": [
            {
                "name": "example_tool",
                "description": "A simple example tool that echoes back its arguments",
                "inputSchema": {
                    "type": "object",
                    "properties": {"message": {"type": "string"}},
                    "required": ["message"],
                },
            }
        ]
    }


# B5
def test_a_tool_is_called_an_unknown_one_refused_and_missing_arguments_told_to_the_model() -> None:
    server = full_server()
    assert call(server, "example_tool", message="hi")["content"] == [
        {"type": "text", "text": "Hello from example tool! Message: hi"}
    ]
    unknown = error(server, "tools/call", name="nope", arguments={})
    assert unknown["code"] == -32602
    assert "nope" in unknown["message"]
    missing = call(server, "example_tool")
    assert missing["isError"] is True
    assert "message" in text_of(missing)


# B6
def test_prompts_are_listed_with_their_arguments() -> None:
    assert result(full_server(), "prompts/list") == {
        "prompts": [
            {
                "name": "my_prompt",
                "description": "A prompt",
                "arguments": [{"name": "message", "description": "Input message", "required": True}],
            }
        ]
    }


# B7
def test_a_prompt_is_retrieved_and_executed() -> None:
    server = full_server()
    assert result(server, "prompts/get", name="my_prompt", arguments={"message": "hi"}) == {
        "description": "Response",
        "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    }
    unknown = error(server, "prompts/get", name="nope")
    assert unknown["code"] == -32602
    assert "nope" in unknown["message"]
    missing = error(server, "prompts/get", name="my_prompt", arguments={})
    assert missing == {"code": -32602, "message": "Missing required arguments: message"}


# B8
def test_resources_are_listed() -> None:
    assert result(full_server(), "resources/list") == {
        "resources": [{"uri": "file:///a", "name": "a", "description": "An a", "mimeType": "text/plain"}]
    }


# B9
def test_what_the_read_handler_returns_is_the_contents() -> None:
    server = full_server()
    contents = [{"uri": "any://thing", "mimeType": "text/plain", "text": "Hello"}]
    server.resources_read_handler(lambda params: contents)
    assert result(server, "resources/read", uri="any://thing") == {"contents": contents}


# B10
def test_resource_templates_are_listed() -> None:
    assert result(full_server(), "resources/templates/list") == {
        "resourceTemplates": [
            {"uriTemplate": "users://{id}", "name": "user", "description": "A user", "mimeType": "text/plain"}
        ]
    }


# B11
def test_a_method_whose_capability_is_not_declared_is_not_there() -> None:
    server = Server(tools=[ExampleTool], capabilities={"prompts": None})
    assert error(server, "prompts/list")["code"] == -32601


# B12
def test_lists_come_in_pages_and_the_last_has_no_cursor() -> None:
    server = Server(page_size=10)
    for number in range(25):
        server.define_tool(name=f"tool{number}", handler=lambda: None)
    names, cursor, pages = [], None, 0
    while True:
        page = result(server, "tools/list", **({"cursor": cursor} if cursor else {}))
        assert len(page["tools"]) <= 10
        names += [tool["name"] for tool in page["tools"]]
        pages += 1
        if "nextCursor" not in page:
            break
        cursor = page["nextCursor"]
    assert (names, pages) == ([f"tool{number}" for number in range(25)], 3)
    assert error(server, "tools/list", cursor="nonsense")["code"] == -32602
