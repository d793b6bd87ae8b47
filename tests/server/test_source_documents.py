"""The API of the source documents, row by row; the names of rows and contradictions are theirs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import linkspan
from linkspan import (
    Configuration,
    Content,
    Context,
    DuplicateNameError,
    MethodAlreadyDefinedError,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptResult,
    RegistrationError,
    Resource,
    ResourceNotFoundError,
    ResourceTemplate,
    Server,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolError,
    ToolResponse,
    UnsupportedProtocolVersion,
    configure,
    reset_configuration,
)
from linkspan.runtime.background import run_awaitable


@pytest.fixture(autouse=True)
def _fresh_configuration() -> Iterator[None]:
    yield
    reset_configuration()
    Server.protocol_version = None


def ask(server: Server, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Send one request and return its whole answer."""
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params or {})}, **more)


def call(server: Server, name: str, **arguments: Any) -> Any:
    """Call a tool and return its result."""
    return ask(server, "tools/call", {"name": name, "arguments": arguments})["result"]


def texts(result: Any) -> list[str]:
    return [block["text"] for block in result["content"]]


# A: the server core.


def test_handle_takes_and_gives_parsed_messages_and_none_for_notifications() -> None:
    server = Server()
    assert server.handle({"jsonrpc": "2.0", "id": "x", "method": "ping"}) == {"jsonrpc": "2.0", "id": "x", "result": {}}
    assert server.handle({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert server.handle([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert server.handle([])["error"]["code"] == -32600
    assert server.handle(object())["error"]["code"] == -32600


def test_handle_json_takes_text_or_bytes_and_gives_text() -> None:
    server = Server()
    assert server.handle_json('{"jsonrpc":"2.0","id":1,"method":"ping"}') == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert server.handle_json(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') is None
    pretty = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}, indent=2)
    assert server.handle_json(pretty) == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert json.loads(server.handle_json("{nope") or "")["error"]["code"] == -32700


def test_the_identity_is_live() -> None:
    server = Server(name="a", version="1")
    server.version = "2"
    info = ask(server, "initialize", {"protocolVersion": "2025-11-25"})["result"]["serverInfo"]
    assert info == {"name": "a", "version": "2"}


# C: tools.


class MyTool(Tool):
    description = "This tool performs specific functionality..."
    input_schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}
    annotations = ToolAnnotations(
        title="My Tool", read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    @staticmethod
    def call(message: str, server_context: Context) -> ToolResponse:
        return ToolResponse([{"type": "text", "text": f"OK {message}"}])


def test_a_class_tool_is_listed_and_called() -> None:
    server = Server(tools=[MyTool], server_context={"user": 1})
    assert ask(server, "tools/list")["result"]["tools"] == [
        {
            "name": "my_tool",
            "description": "This tool performs specific functionality...",
            "inputSchema": {
                "type": "object",
                "properties": {"message": {"type": "string"}},
                "required": ["message"],
            },
            "annotations": {
                "title": "My Tool",
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }
    ]
    assert call(server, "my_tool", message="hi") == {"content": [{"type": "text", "text": "OK hi"}]}


@pytest.mark.parametrize(
    ("written", "name"), [("MyTool", "my_tool"), ("HTTPServerTool2", "http_server_tool2"), ("a_b", "a_b")]
)
def test_a_class_is_named_in_snake_case(written: str, name: str) -> None:
    assert type(written, (Tool,), {"call": staticmethod(lambda: None)}).name == name  # type: ignore[attr-defined]


def getWeather(city: str = "") -> str:
    return city


class Forecast:
    def __call__(self, city: str = "") -> str:
        return city


@pytest.mark.parametrize(
    ("function", "name"),
    [(getWeather, "getWeather"), (partial(partial(getWeather), city="Rome"), "getWeather"), (Forecast(), "forecast")],
)
def test_a_function_keeps_its_name(function: Any, name: str) -> None:
    server = Server()
    server.tool(function)
    server.prompt(function)
    server.resource("weather://all")(function)
    server.define_tool("prefix." + Tool.define(handler=function).name, handler=function)
    listed = [
        server.handle({"jsonrpc": "2.0", "id": 1, "method": f"{kind}/list"})
        for kind in ("tools", "prompts", "resources")
    ]
    assert [
        [each["name"] for each in items]
        for reply in listed
        for items in reply["result"].values()
        if isinstance(items, list)
    ] == [
        [name, f"prefix.{name}"],
        [name],
        [name],
    ]


def test_call_may_be_static_class_or_plain_method_sync_or_async() -> None:
    class Static(Tool):
        @staticmethod
        def call(n: int) -> int:
            return n

    class OfClass(Tool):
        @classmethod
        def call(cls, n: int) -> str:
            return f"{cls.name} {n}"

    class Plain(Tool):
        async def call(self, n: int) -> int:
            await asyncio.sleep(0)
            return n + 1

    server = Server(tools=[Static, OfClass, Plain])
    assert texts(call(server, "static", n=1)) == ["1"]
    assert texts(call(server, "of_class", n=1)) == ["of_class 1"]
    assert texts(call(server, "plain", n=1)) == ["2"]


@pytest.mark.parametrize(
    "handler",
    [
        lambda message: message,
        lambda message, server_context: message,
        lambda args: args["message"],
        lambda args, server_context: args["message"],
        lambda args, *, server_context: args["message"],
        lambda **args: args["message"],
        lambda: "hi",
    ],
)
def test_every_style_of_handler_works(handler: Any) -> None:
    schema = {"properties": {"message": {"type": "string"}}, "required": ["message"]}
    server = Server()
    server.define_tool(name="t", input_schema=schema, handler=handler)
    assert texts(call(server, "t", message="hi")) == ["hi"]


def test_define_gives_a_tool_that_can_be_registered_anywhere() -> None:
    tool = Tool.define(
        name="my_tool",
        description="d",
        annotations={"title": "My Tool", "read_only_hint": True},
        handler=lambda args, server_context: ToolResponse([TextContent("OK")]),
    )
    for server in (Server(tools=[tool]), Server(tools=[tool])):
        assert texts(call(server, "my_tool")) == ["OK"]
        assert ask(server, "tools/list")["result"]["tools"][0]["annotations"] == {
            "title": "My Tool",
            "readOnlyHint": True,
        }


def test_define_decorates_too() -> None:
    @Tool.define(name="twice")
    def twice(n: int) -> int:
        """Double it."""
        return 2 * n

    assert texts(call(Server(tools=[twice]), "twice", n=4)) == ["8"]


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ("a text", ["a text"], None),
        (None, [], None),
        ({"result": "ok"}, ['{"result":"ok"}'], {"result": "ok"}),
        (3, ["3"], None),
        (True, ["true"], None),
        ([1, 2], ["[1,2]"], None),
        (TextContent("x"), ["x"], None),
        ([TextContent("x"), TextContent("y")], ["x", "y"], None),
        (ToolResponse("x", structured_content={"a": 1}), ["x"], {"a": 1}),
        (ToolResponse(structured_content={"a": 1}), ['{"a":1}'], {"a": 1}),
    ],
)
def test_whatever_a_tool_naturally_returns_becomes_a_result(value: Any, content: list[str], structured: Any) -> None:
    server = Server()
    server.define_tool(name="t", handler=lambda **args: value)
    result = call(server, "t")
    assert texts(result) == content
    assert result.get("structuredContent") == structured


def test_a_raising_tool_is_answered_without_its_text_and_reported_once() -> None:
    reported: list[tuple[BaseException, Mapping[str, Any]]] = []
    server = Server(
        server_context={"user": 7},
        configuration=Configuration(exception_reporter=lambda error, context: reported.append((error, context))),
    )

    @server.tool
    def boom(x: int) -> str:
        raise ValueError("postgres://user:secret@host")

    result = call(server, "boom", x=1)
    assert result["isError"] is True
    assert texts(result)[0].startswith("Internal error occurred (incident ")
    ((error, context),) = reported
    assert isinstance(error, ValueError)
    assert context["tool_name"] == "boom"
    assert context["arguments"] == {"x": 1}
    assert context["request"]["method"] == "tools/call"
    assert context["server_context"] == {"user": 7}


@pytest.mark.parametrize(("mode", "text"), [("message", "kaboom"), ("protocol", None)])
def test_the_mode_of_tool_errors_can_be_chosen(mode: Any, text: str | None) -> None:
    server = Server(configuration=Configuration(tool_error_mode=mode))
    server.define_tool(name="boom", handler=_raiser(ValueError("kaboom")))
    answer = ask(server, "tools/call", {"name": "boom"})
    if text is None:
        assert answer["error"]["code"] == -32603
    else:
        assert texts(answer["result"]) == [text]


def test_exceptions_can_be_raised_through_after_they_were_reported() -> None:
    reported: list[BaseException] = []
    server = Server(exception_reporter=lambda error, _: reported.append(error))
    server.define_tool(name="boom", handler=_raiser(KeyError("x")))
    with pytest.raises(KeyError):
        ask(server, "tools/call", {"name": "boom"}, raise_exceptions=True)
    assert len(reported) == 1


def _raiser(error: BaseException) -> Any:
    def boom(**args: Any) -> None:
        raise error

    return boom


def test_names_are_unique_and_a_refused_tool_changes_nothing() -> None:
    server = Server(tools=[MyTool])
    with pytest.raises(DuplicateNameError, match="my_tool"):
        server.define_tool(name="my_tool", handler=lambda **args: None)
    server.define_tool(name="other", handler=lambda **args: "still works")
    assert texts(call(server, "my_tool", message="x")) == ["OK x"]
    assert texts(call(server, "other")) == ["still works"]
    assert server.remove_tool("other")
    assert not server.remove_tool("other")


@pytest.mark.parametrize("name", ["bad name!", "", "x" * 129, "tool/x"])
def test_a_bad_name_is_refused_with_a_better_one(name: str) -> None:
    with pytest.raises(RegistrationError, match="cannot name a tool"):
        Server().define_tool(name=name, handler=lambda **args: None) if name else type("É", (Tool,), {})


def test_an_unknown_annotation_is_refused() -> None:
    with pytest.raises(TypeError, match="readonly"):
        Tool.define(name="t", annotations={"readonly": True}, handler=lambda: None)


# D: prompts.


class MyPrompt(Prompt):
    prompt_name = "my_prompt"
    description = "This prompt performs specific functionality..."
    arguments = [Prompt.Argument(name="message", description="Input message", required=True)]

    @staticmethod
    def template(args: Mapping[str, str], server_context: Context) -> Prompt.Result:
        return Prompt.Result(
            description="Response description",
            messages=[
                Prompt.Message(role="user", content=TextContent("User message")),
                Prompt.Message(role="assistant", content=TextContent(args["message"])),
            ],
        )


def test_a_class_prompt_is_listed_and_executed() -> None:
    server = Server(prompts=[MyPrompt], server_context={"user_id": 1})
    assert ask(server, "prompts/list")["result"]["prompts"] == [
        {
            "name": "my_prompt",
            "description": "This prompt performs specific functionality...",
            "arguments": [{"name": "message", "description": "Input message", "required": True}],
        }
    ]
    result = ask(server, "prompts/get", {"name": "my_prompt", "arguments": {"message": "hi"}})["result"]
    assert result["messages"][1] == {"role": "assistant", "content": {"type": "text", "text": "hi"}}
    assert ask(server, "prompts/get", {"name": "my_prompt"})["error"] == {
        "code": -32602,
        "message": "Missing required arguments: message",
    }


def test_a_prompt_may_be_written_with_the_names_of_the_package() -> None:
    def greet(args: Mapping[str, str]) -> PromptResult:
        return PromptResult([PromptMessage("user", Content.Text(f"hello {args['who']}"))])

    server = Server()
    server.define_prompt(name="greet", arguments=[PromptArgument("who", required=True)], handler=greet)
    (message,) = ask(server, "prompts/get", {"name": "greet", "arguments": {"who": "Ann"}})["result"]["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "hello Ann"}}
    assert (Prompt.Argument, Prompt.Result) == (PromptArgument, PromptResult)
    shorts = (Content.Image, Content.Audio, Content.EmbeddedResource, Content.ResourceLink)
    assert shorts == (linkspan.ImageContent, linkspan.AudioContent, linkspan.EmbeddedResource, linkspan.ResourceLink)


def test_a_role_is_user_or_assistant() -> None:
    with pytest.raises(ValueError, match="role"):
        Prompt.Message("用户", "x")


def test_a_prompt_may_raise_without_leaking() -> None:
    server = Server()
    server.define_prompt(name="p", handler=_raiser(RuntimeError("secret")))
    error = ask(server, "prompts/get", {"name": "p"})["error"]
    assert error["code"] == -32603
    assert "secret" not in json.dumps(error)


# E: resources.


def test_a_resource_with_a_read_handler() -> None:
    resource = Resource(uri="https://example.com/my_resource", name="My Resource", mime_type="text/html")
    server = Server(resources=[resource])

    @server.resources_read_handler
    def read(params: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"uri": params["uri"], "mimeType": "text/plain", "text": "Hello, world!"}]

    assert ask(server, "resources/list")["result"]["resources"] == [
        {"uri": "https://example.com/my_resource", "name": "My Resource", "mimeType": "text/html"}
    ]
    assert ask(server, "resources/read", {"uri": "any://thing"})["result"]["contents"] == [
        {"uri": "any://thing", "mimeType": "text/plain", "text": "Hello, world!"}
    ]


def test_reading_without_anything_registered_is_the_error_of_the_specification() -> None:
    error = ask(Server(), "resources/read", {"uri": "x://y"})["error"]
    assert error == {"code": -32002, "message": "Resource not found: x://y", "data": {"uri": "x://y"}}


@pytest.mark.parametrize(
    ("register", "uri"),
    [
        (lambda server: server.define_resource("x://a", read=lambda: None), "x://a"),
        (lambda server: server.define_resource_template("y://{n}", read=lambda n: None), "y://1"),
        (lambda server: server.resources_read_handler(lambda params: None), "z://a"),
    ],
)
def test_a_resource_that_gives_none_is_not_found(register: Any, uri: str) -> None:
    server = Server()
    register(server)
    error = ask(server, "resources/read", {"uri": uri})["error"]
    assert error == {"code": -32002, "message": f"Resource not found: {uri}", "data": {"uri": uri}}


def test_what_is_declared_is_what_is_served() -> None:
    """SRV-3: a declared list is empty rather than missing, an undeclared one is missing."""
    declared = Server(capabilities={"tools": {"listChanged": True}, "resources": {}})
    assert ask(declared, "tools/list")["result"] == {"tools": []}
    assert ask(declared, "resources/list")["result"] == {"resources": []}
    assert ask(declared, "prompts/list")["error"]["code"] == -32601
    assert ask(declared, "resources/read", {"uri": "x://y"})["error"]["code"] == -32002
    hidden = Server(tools=[MyTool], capabilities={"tools": None})
    assert ask(hidden, "tools/list")["error"]["code"] == -32601
    assert ask(hidden, "tools/call", {"name": "my_tool"})["error"]["code"] == -32601
    assert "tools" not in ask(hidden, "initialize", {"protocolVersion": "2025-11-25"})["result"]["capabilities"]


def test_class_resources_and_templates() -> None:
    class Readme(Resource):
        uri = "file:///readme"
        mime_type = "text/plain"

        @staticmethod
        def contents(server_context: Context) -> str:
            return f"for {server_context['user']}"

    class Profile(ResourceTemplate):
        uri_template = "users://{user_id}/profile"

        @staticmethod
        def contents(user_id: str) -> dict[str, str]:
            if user_id == "0":
                raise ResourceNotFoundError("users://0/profile")
            return {"id": user_id}

    server = Server(resources=[Readme], resource_templates=[Profile], server_context={"user": "ann"})
    assert ask(server, "resources/read", {"uri": "file:///readme"})["result"]["contents"][0]["text"] == "for ann"
    found = ask(server, "resources/read", {"uri": "users://5/profile"})["result"]["contents"]
    assert found == [{"uri": "users://5/profile", "text": '{"id":"5"}', "mimeType": "application/json"}]
    assert ask(server, "resources/read", {"uri": "users://0/profile"})["error"]["code"] == -32002


def test_template_and_contents_may_be_static_class_or_plain_methods_too() -> None:
    class Greet(Prompt):
        arguments = [Prompt.Argument("who", required=True)]
        greeting = "hello"

        def template(self, args: Mapping[str, str], server_context: Context) -> str:
            return f"{self.greeting} {args['who']} of {server_context['city']}"

    class OfClass(Prompt):
        @classmethod
        async def template(cls, args: Mapping[str, str]) -> str:
            return cls.name

    class Readme(Resource):
        uri = "x://readme"

        async def contents(self) -> str:
            return f"this is {self.uri}"

    class Line(ResourceTemplate):
        uri_template = "x://{file}/{n}"

        def contents(self, file: str, n: int) -> str:
            return f"{file} {n + 1} {self.name}"

    class Counted(Resource):
        uri = "x://counted"

        def __init__(self) -> None:
            self.reads = 0

        def contents(self) -> str:
            self.reads += 1
            return str(self.reads)

    server = Server(
        prompts=[Greet, OfClass],
        resources=[Readme, Counted],
        resource_templates=[Line],
        server_context={"city": "Rome"},
    )

    def got(name: str, **arguments: str) -> Any:
        return ask(server, "prompts/get", {"name": name, "arguments": arguments})["result"]["messages"][0]["content"]

    def read(uri: str) -> Any:
        return ask(server, "resources/read", {"uri": uri})["result"]["contents"][0]["text"]

    assert got("greet", who="Ann")["text"] == "hello Ann of Rome"
    assert got("of_class")["text"] == "of_class"
    assert read("x://readme") == "this is x://readme"
    assert read("x://file/4") == "file 5 line"
    assert [read("x://counted"), read("x://counted")] == ["1", "2"]


# G: custom methods.


def test_custom_methods_protect_what_exists() -> None:
    server = Server()
    server.define_custom_method(method_name="add", handler=lambda params: params["a"] + params["b"])
    assert ask(server, "add", {"a": 5, "b": 3})["result"] == 8
    from_server = ("elicitation/create", "sampling/createMessage", "roots/list")
    tasks = ("tasks/get", "tasks/anything", "notifications/tasks", "notifications/tasks/status")
    others = ("ping", "add", "server/discover", "notifications/cancelled", "rpc.x")
    for taken in (*others, *from_server, *tasks, "skills/list", "skills/get"):
        problem = (
            "already defined"
            if taken in ("ping", "add", "server/discover")
            else "is reserved: choose a name with a prefix"
        )
        with pytest.raises(MethodAlreadyDefinedError, match=problem) as caught:
            server.define_custom_method(method_name=taken, handler=lambda params: None)
        assert caught.value.method_name == taken
    with pytest.raises(RegistrationError, match="needs a name"):
        server.define_custom_method(method_name="", handler=lambda params: None)


def add(data: Mapping[str, Any]) -> Any:
    return data["a"] + data["b"]


def add_with_context(request: dict[str, Any], ctx: Context) -> Any:
    return request["a"] + request["b"]


@pytest.mark.parametrize(
    "handler", [lambda p: p["a"] + p["b"], lambda x, /: x["a"] + x["b"], lambda a, b: a + b, add, add_with_context]
)
def test_a_lone_parameter_of_a_custom_method_takes_all_params_whatever_its_name(handler: Any) -> None:
    server = Server()
    server.define_custom_method(method_name="add", handler=handler)
    assert ask(server, "add", {"a": 5, "b": 3})["result"] == 8


def test_a_lone_parameter_with_the_hint_of_a_value_takes_its_own_member() -> None:
    def double(n: int) -> int:
        return 2 * n

    server = Server()
    server.define_custom_method("double", double)
    assert ask(server, "double", {"n": 4})["result"] == 8


@pytest.mark.parametrize("handler", [lambda p: f"got {p['uri']}", lambda uri: f"got {uri}", lambda **any: str(any)])
def test_a_lone_parameter_of_a_read_handler_takes_all_params_whatever_its_name(handler: Any) -> None:
    server = Server()
    server.resources_read_handler(handler)
    assert "x://a" in ask(server, "resources/read", {"uri": "x://a"})["result"]["contents"][0]["text"]


def test_a_custom_notification_runs_and_is_not_answered() -> None:
    heard: list[Any] = []
    server = Server()

    @server.custom_method("notifications/mine")
    def mine(params: dict[str, Any]) -> None:
        heard.append(params)

    assert server.handle({"jsonrpc": "2.0", "method": "notifications/mine", "params": {"a": 1}}) is None
    assert heard == [{"a": 1}]


# H: configuration, reporting, instrumentation.


def test_instrumentation_tells_exactly_the_keys_of_the_table() -> None:
    heard: list[dict[str, Any]] = []
    server = Server(tools=[MyTool], prompts=[MyPrompt], instrumentation_callback=lambda data: heard.append(dict(data)))
    server.define_resource("x://y", text="t")
    call(server, "my_tool", message="x")
    ask(server, "tools/call", {"name": "nope"})
    ask(server, "tools/call", {"name": "my_tool", "arguments": {}})
    ask(server, "prompts/get", {"name": "my_prompt", "arguments": {"message": "x"}})
    ask(server, "prompts/get", {"name": "nope"})
    ask(server, "prompts/get", {"name": "my_prompt", "arguments": {}})
    ask(server, "resources/read", {"uri": "x://y"})
    ask(server, "resources/read", {"uri": "x://nope"})
    ask(server, "ping")
    ask(server, "no/such")
    durations = [data.pop("duration") for data in heard]
    assert all(duration >= 0 for duration in durations)
    assert heard == [
        {"method": "tools/call", "tool_name": "my_tool"},
        {"method": "tools/call", "error": "tool_not_found"},
        {"method": "tools/call", "tool_name": "my_tool", "error": "missing_required_arguments"},
        {"method": "prompts/get", "prompt_name": "my_prompt"},
        {"method": "prompts/get", "error": "prompt_not_found"},
        {"method": "prompts/get", "prompt_name": "my_prompt", "error": "missing_required_arguments"},
        {"method": "resources/read", "resource_uri": "x://y"},
        {"method": "resources/read", "error": "resource_not_found"},
        {"method": "ping"},
        {"method": "unsupported_method", "error": "method_not_found"},
    ]


def test_hooks_cannot_change_an_answer() -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("hook")

    server = Server(
        tools=[MyTool],
        configuration=Configuration(exception_reporter=broken, instrumentation_callback=broken),
    )
    server.define_tool(name="boom", handler=_raiser(ValueError("x")))
    assert texts(call(server, "my_tool", message="x")) == ["OK x"]
    assert call(server, "boom")["isError"] is True
    assert ask(server, "ping")["result"] == {}


def test_around_request_is_open_while_the_function_runs() -> None:
    seen: list[str] = []

    @contextmanager
    def around(data: Mapping[str, Any]) -> Iterator[None]:
        seen.append(f"before {data['tool_name']}")
        try:
            yield
        finally:
            seen.append("after")

    server = Server(configuration=Configuration(around_request=around))
    server.define_tool(name="t", handler=lambda **args: seen.append("inside"))

    @server.tool
    async def slow() -> str:
        await asyncio.sleep(0)
        seen.append("inside slow")
        return "x"

    call(server, "t")
    call(server, "slow")
    assert seen == ["before t", "inside", "after", "before slow", "inside slow", "after"]


def test_configurations_merge_field_by_field_and_follow_the_global_one() -> None:
    first: list[Any] = []
    second: list[Any] = []
    server = Server(configuration=Configuration(exception_reporter=lambda e, c: second.append(e)))
    configure(instrumentation_callback=lambda data: first.append(data))
    with configure() as config:
        config.validate_tool_call_arguments = False
    ask(server, "ping")
    assert len(first) == 1
    merged = linkspan.configuration().merge(Configuration(tool_error_mode="message"))
    assert merged.validate_tool_call_arguments is False
    assert merged.tool_error_mode == "message"


def test_a_server_follows_changes_of_its_own_configuration() -> None:
    heard: list[Any] = []
    own = Configuration()
    server = Server(configuration=own)
    ask(server, "ping")
    own.instrumentation_callback = heard.append
    ask(server, "ping")
    assert len(heard) == 1
    with pytest.raises(AttributeError, match="Configuration has no setting 'callback'; there are exception_reporter, "):
        own.callback = heard.append  # type: ignore[attr-defined]  # pyright: ignore


def test_the_protocol_version_is_pinned_by_class_by_configuration_and_globally() -> None:
    def proposed(server: Server) -> str:
        answer = ask(server, "initialize", {"protocolVersion": "1999-01-01", "capabilities": {}})
        return str(answer["result"]["protocolVersion"])

    assert proposed(Server()) == "2025-11-25"
    configure(protocol_version="2025-06-18")
    assert proposed(Server()) == "2025-06-18"
    Server.protocol_version = "2025-03-26"
    assert proposed(Server()) == "2025-03-26"
    assert proposed(Server(configuration=Configuration(protocol_version="2024-11-05"))) == "2024-11-05"
    Server.protocol_version = None
    with pytest.raises(UnsupportedProtocolVersion, match=r"protocol_version must be .*, or 2024-11-05"):
        Server.protocol_version = "2024-01-01"
    config = Configuration(protocol_version=None)
    config.protocol_version = None


def test_a_pinned_revision_refuses_what_it_cannot_say() -> None:
    Server.protocol_version = "2024-11-05"
    with pytest.raises(RegistrationError, match=r"`annotations` .* 2025-03-26 or higher"):
        Server(tools=[MyTool])


def test_the_server_context_may_be_made_for_each_request() -> None:
    server = Server(server_context=lambda request: {"id": request.id})

    @server.tool
    def who(ctx: Context) -> str:
        return f"{ctx['id']} {ctx.get('nothing')} {dict(ctx)}"

    assert texts(call(server, "who")) == ["1 None {'id': 1}"]


def test_the_context_is_never_missing() -> None:
    server = Server()
    server.define_tool(name="t", handler=lambda args, server_context: str(server_context.get("x")))
    assert texts(call(server, "t")) == ["None"]


def test_two_calls_at_once_report_their_own_names() -> None:
    heard: list[dict[str, Any]] = []
    server = Server(instrumentation_callback=lambda data: heard.append(dict(data)))
    server.define_tool(name="outer", handler=lambda **args: texts(call(server, "inner"))[0])
    server.define_tool(name="inner", handler=lambda **args: "in")
    assert texts(call(server, "outer")) == ["in"]
    assert [data["tool_name"] for data in heard] == ["inner", "outer"]


def test_a_tool_error_shows_its_text() -> None:
    server = Server()
    server.define_tool(name="t", handler=_raiser(ToolError("try a real date")))
    assert call(server, "t") == {"content": [{"type": "text", "text": "try a real date"}], "isError": True}


def test_the_names_of_the_package_are_all_there() -> None:
    for name in linkspan.__all__:
        assert getattr(linkspan, name) is not None
    assert dir(linkspan) == sorted(linkspan.__all__)


def test_an_async_exception_reporter_is_awaited() -> None:
    heard: list[str] = []
    done = threading.Event()

    async def report(error: BaseException, context: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(f"{type(error).__name__} in {context['tool_name']}")
        done.set()

    server = Server(exception_reporter=report)
    server.define_tool(name="boom", handler=_raiser(ValueError("x")))
    assert call(server, "boom")["isError"]
    assert done.wait(10)
    assert heard == ["ValueError in boom"]


def test_an_async_exception_reporter_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def report(error: BaseException, context: Mapping[str, Any]) -> None:
        raise RuntimeError("hook")

    server = Server(exception_reporter=report)
    server.define_tool(name="boom", handler=_raiser(ValueError("x")))
    assert call(server, "boom")["isError"]
    run_awaitable(asyncio.sleep(0))  # the report began first, so it has ended
    assert "the exception reporter failed" in caplog.text


async def _nobody_awaits_this(data: Any) -> None: ...


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("tool_error_mode", "bogus", "must be generic, message, or protocol; got 'bogus'"),
        ("tool_error_mode", None, "must be generic"),
        ("exception_reporter", 5, "must be a function, not int"),
        ("instrumentation_callback", _nobody_awaits_this, "must be a plain function"),
        ("around_request", _nobody_awaits_this, "must be a plain function"),
    ],
)
def test_a_setting_that_is_none_is_refused_where_it_is_set(setting: str, value: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        Configuration(**{setting: value})
    with pytest.raises((ValueError, TypeError), match=said):
        configure(**{setting: value})


WITH_SCHEMA = {"properties": {"message": {"type": "string"}}, "required": ["message"]}


@pytest.mark.parametrize("before", [True, False])
def test_the_check_of_arguments_can_be_turned_on_and_off_while_serving(before: bool) -> None:
    configure(validate_tool_call_arguments=before)
    server = Server()
    server.define_tool(name="t", input_schema=WITH_SCHEMA, handler=lambda args: "called")
    server.define_tool(name="loose", handler=lambda **args: "called")
    for checked in (not before, before, not before):
        configure(validate_tool_call_arguments=checked)
        said = ["t: message must be a string, got the number 5"] if checked else ["called"]
        assert texts(call(server, "t", message=5)) == said
        assert texts(call(server, "loose", message=5)) == ["called"]


@pytest.mark.parametrize("member", ["input_schema", "output_schema"])
@pytest.mark.parametrize("schema", [{"type": "nope"}, {"type": "object", "properties": {"a": {"type": "nope"}}}])
def test_a_schema_that_is_not_valid_is_refused_when_the_class_is_made(member: str, schema: Any) -> None:
    configure(validate_tool_call_arguments=False)
    members = {"call": staticmethod(lambda a: ""), member: schema}
    with pytest.raises(RegistrationError, match=r"bad_tool: .*nope"):
        type("BadTool", (Tool,), members)
    with pytest.raises(RegistrationError, match=r"bad_tool: .*nope"):
        Tool.define(name="bad_tool", handler=lambda args: "", **{member: schema})
