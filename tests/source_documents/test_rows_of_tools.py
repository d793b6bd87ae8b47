"""Table C: tools. Each test names its row: C-1 is a row, C1 a contradiction that had to be settled."""

from __future__ import annotations

from typing import Any

import pytest
from spoken import call, result, text_of

from linkspan import (
    Configuration,
    Context,
    DuplicateNameError,
    RegistrationError,
    Server,
    Tool,
    ToolAnnotations,
    ToolError,
    ToolResponse,
)


class MyTool(Tool):
    description = "This tool performs specific functionality..."
    input_schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}
    annotations = ToolAnnotations(
        title="My Tool", read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    @classmethod
    def call(cls, message: str, server_context: Context) -> ToolResponse:
        assert cls is MyTool
        return ToolResponse([{"type": "text", "text": f"OK {message}"}])


# C-1
def test_a_class_is_a_tool_and_its_call_gets_the_arguments_as_keywords() -> None:
    tool = MyTool
    server = Server(tools=[tool])
    (listed,) = result(server, "tools/list")["tools"]
    assert (listed["name"], listed["description"]) == ("my_tool", "This tool performs specific functionality...")
    assert text_of(call(server, "my_tool", message="hi")) == "OK hi"


# C-2
@pytest.mark.parametrize(
    ("written", "name"),
    [("MyTool", "my_tool"), ("HTTPServerTool2", "http_server_tool2"), ("ExampleTool", "example_tool")],
)
def test_a_tool_is_named_after_its_class(written: str, name: str) -> None:
    made: Any = type(written, (Tool,), {"call": staticmethod(lambda: "x")})
    assert [tool["name"] for tool in result(Server(tools=[made]), "tools/list")["tools"]] == [name]


# C-2
def test_a_tool_may_be_named_otherwise_but_not_badly_and_not_twice() -> None:
    class Other(MyTool):
        tool_name = "x"

    server = Server(tools=[Other])
    assert result(server, "tools/list")["tools"][0]["name"] == "x"
    assert Tool.define(name="a-Z_0." * 21, handler=lambda: None).name == "a-Z_0." * 21
    for bad in ("a b", "x" * 129):
        with pytest.raises(RegistrationError):
            Tool.define(name=bad, handler=lambda: None)
    with pytest.raises(DuplicateNameError):
        Server(tools=[MyTool, MyTool])


# C-3
def test_an_input_schema_is_an_object_and_required_is_left_out_where_nothing_is() -> None:
    class Free(Tool):
        input_schema = {"properties": {"message": {"type": "string"}}}

        @staticmethod
        def call(message: str = "") -> str:
            return message

    required, free = (tool["inputSchema"] for tool in result(Server(tools=[MyTool, Free]), "tools/list")["tools"])
    properties = {"message": {"type": "string"}}
    assert required == {"type": "object", "properties": properties, "required": ["message"]}
    assert free == {"type": "object", "properties": properties}
    with pytest.raises(ValueError):
        type("Wrong", (Tool,), {"input_schema": {"properties": {"a": {"type": "nope"}}}})


# C-4
def test_arguments_are_checked_before_the_call_unless_that_is_turned_off() -> None:
    server = Server(tools=[MyTool])
    missing, wrong = call(server, "my_tool"), call(server, "my_tool", message=5)
    assert (missing["isError"], wrong["isError"]) == (True, True)
    assert "message" in text_of(missing)
    assert "message must be a string" in text_of(wrong)
    trusting = Server(tools=[MyTool], configuration=Configuration(validate_tool_call_arguments=False))
    assert text_of(call(trusting, "my_tool", message=5)) == "OK 5"


# C-5 and C4
@pytest.mark.parametrize(
    "handler",
    [
        lambda args, server_context: ToolResponse(
            [{"type": "text", "text": f"{args['message']} {server_context['id']}"}]
        ),
        lambda args, *, server_context: f"{args['message']} {server_context['id']}",
        lambda message, server_context: f"{message} {server_context['id']}",
        lambda args: f"{args['message']} 7",
    ],
)
def test_a_tool_is_defined_with_a_function_of_any_style(handler: Any) -> None:
    tool = Tool.define(
        name="my_tool",
        description="d",
        input_schema={"properties": {"message": {"type": "string"}}, "required": ["message"]},
        annotations={"title": "My Tool", "read_only_hint": True},
        handler=handler,
    )
    server = Server(tools=[tool], server_context={"id": 7})
    (listed,) = result(server, "tools/list")["tools"]
    assert (listed["name"], listed["description"]) == ("my_tool", "d")
    assert listed["annotations"] == {"title": "My Tool", "readOnlyHint": True}
    assert text_of(call(server, "my_tool", message="hi")) == "hi 7"


# C-6 and C11
def test_a_tool_is_added_to_a_live_server_and_may_return_a_mapping() -> None:
    server = Server(tools=[MyTool])
    assert len(result(server, "tools/list")["tools"]) == 1
    server.define_tool(name="new_tool", handler=lambda **args: {"result": "ok"})
    assert [tool["name"] for tool in result(server, "tools/list")["tools"]] == ["my_tool", "new_tool"]
    assert call(server, "new_tool", any=1) == {
        "content": [{"type": "text", "text": '{"result":"ok"}'}],
        "structuredContent": {"result": "ok"},
    }


# C-7
def test_a_response_is_a_list_of_content_and_may_be_an_error() -> None:
    server = Server()
    server.define_tool(name="good", handler=lambda: ToolResponse([{"type": "text", "text": "OK"}]))
    server.define_tool(name="bad", handler=lambda: ToolResponse([{"type": "text", "text": "No"}], True))
    good = call(server, "good")
    assert good["content"] == [{"type": "text", "text": "OK"}]
    assert good.get("isError", False) is False  # absent means false
    assert call(server, "bad") == {"content": [{"type": "text", "text": "No"}], "isError": True}


# C-8
def test_annotations_have_five_fields_and_leave_out_what_is_not_set() -> None:
    (listed,) = result(Server(tools=[MyTool]), "tools/list")["tools"]
    assert listed["annotations"] == {
        "title": "My Tool",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    some = Tool.define(name="some", annotations={"open_world_hint": True}, handler=lambda: None)
    assert result(Server(tools=[some]), "tools/list")["tools"][0]["annotations"] == {"openWorldHint": True}


# C-9
def test_a_tool_gets_the_server_context_only_if_it_wants_it() -> None:
    class Wants(Tool):
        @staticmethod
        def call(server_context: Context) -> str:
            return str(server_context["user_id"])

    class Ignores(Tool):
        @staticmethod
        def call() -> str:
            return "nobody"

    server = Server(tools=[Wants, Ignores], server_context={"user_id": 7})
    assert text_of(call(server, "wants")) == "7"
    assert text_of(call(server, "ignores")) == "nobody"
    schemas = [tool["inputSchema"] for tool in result(server, "tools/list")["tools"]]
    assert all("server_context" not in schema.get("properties", {}) for schema in schemas)


# C-10 and C1
def test_a_tool_that_raises_is_reported_and_answered_without_its_text() -> None:
    reported: list[BaseException] = []
    server = Server(exception_reporter=lambda error, context: reported.append(error))
    problem = ValueError("the password is hunter2")

    @server.tool
    def breaks() -> str:
        raise problem

    @server.tool
    def says() -> str:
        raise ToolError("try a real date")

    broken = call(server, "breaks")
    assert broken["isError"] is True
    assert text_of(broken).startswith("Internal error occurred")
    assert "hunter2" not in text_of(broken)
    assert call(server, "says") == {"content": [{"type": "text", "text": "try a real date"}], "isError": True}
    assert reported == [problem]
