"""What a result promises and keeps: output schemas that follow from hints, plain texts, bytes, and how to do without."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from linkspan import Configuration, RegistrationError, Server, SyncClient, Tool, ToolResponse
from linkspan.types.base import TextContent, UnknownContent
from linkspan.types.messages import CallToolResult

WRAPPED_TEXT = {
    "type": "object",
    "properties": {"result": {"type": "string"}},
    "required": ["result"],
    "x-fastmcp-wrap-result": True,
}


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


class Movie(TypedDict):
    year: int


class Struct(msgspec.Struct):
    first: int


class Model(pydantic.BaseModel):
    a: int = pydantic.Field(ge=0)


def ask(server: Server, method: str, params: dict[str, Any] | None = None) -> Any:
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})["result"]


def called(server: Server, name: str = "tool") -> Any:
    return ask(server, "tools/call", {"name": name, "arguments": {}})


def schema_of(server: Server) -> Any:
    (tool,) = ask(server, "tools/list")["tools"]
    return tool.get("outputSchema")


def returning(value: Any, hint: Any, **keywords: Any) -> Any:
    """Return the output schema of a tool that returns `value`, its result, and what its author is told."""
    told: list[BaseException] = []
    server = Server(exception_reporter=lambda error, _: told.append(error), **keywords)

    def tool() -> Any:
        return value

    tool.__annotations__["return"] = hint
    server.tool(tool)
    return schema_of(server), called(server), [str(each) for each in told]


def odd(x: Any) -> Point:
    return Point(x)


MODEL = Model.model_construct(a=-1)
BROKEN = [
    (Point, odd("one"), 'x must be an integer, got the string "one"'),
    (Point, {"label": "a"}, "x is missing"),
    (Point, {"x": 1, "label": 5}, "label must be a string or null, got the number 5"),
    (list[Point], [Point(1), odd(None)], "result[1].x must be an integer, got null"),
    (dict[str, Point], {"p": {}}, "p.x is missing"),
    (Point | None, {"x": "one"}, 'result.x must be an integer, got the string "one"'),
    (Movie, {}, "year is missing"),
    (Struct, Struct("x"), 'first must be an integer, got the string "x"'),  # type: ignore[arg-type]
    (Model, MODEL, "a must be at least 0, got -1"),
    (Model, {"b": 1}, "a is missing"),
    (dict[str, int], {"a": "b"}, 'a must be an integer, got the string "b"'),
    (str, 5, "result must be a string, got the number 5"),
    (str, None, "result must be a string, got null"),
    (str, TextContent("x"), "the function returned content only"),
    (int, ToolResponse("x"), "the function returned content only"),
    (Point, ToolResponse("x", structured_content={"x": "one"}), 'x must be an integer, got the string "one"'),
    (int, CallToolResult(content=[], structured_content={"result": "one"}), "result must be an integer"),
    (Point, None, "the return type promises an object, but the function returned null"),
]


@pytest.mark.parametrize(("hint", "value", "words"), BROKEN)
def test_a_value_that_breaks_the_promise_of_its_type_is_the_authors_error(hint: Any, value: Any, words: str) -> None:
    """TOOL-5: it does not go out, for clients would refuse it."""
    schema, result, told = returning(value, hint)
    assert schema is not None
    assert result["isError"]
    assert result["content"][0]["text"].startswith("Internal error occurred")
    assert "structuredContent" not in result
    (text,) = told
    assert words in text


KEPT = [
    (Point, Point(1), {"x": 1, "label": None}),
    (Point, {"x": 1, "more": 2}, {"x": 1, "more": 2}),
    (Movie, {"year": 1999}, {"year": 1999}),
    (Model, Model(a=1), {"a": 1}),
    (list[Point], [Point(1)], {"result": [{"x": 1, "label": None}]}),
    (float, 5, {"result": 5}),
    (Point, ToolResponse("x", structured_content={"x": 1}), {"x": 1}),
    (Literal["a", "b"], "a", {"result": "a"}),
]


@pytest.mark.parametrize(("hint", "value", "structured"), KEPT)
def test_what_keeps_the_promise_goes_out(hint: Any, value: Any, structured: Any) -> None:
    _, result, told = returning(value, hint)
    assert (result["structuredContent"], told) == (structured, [])


def test_an_error_result_promises_nothing() -> None:
    _, result, told = returning(ToolResponse("no room", is_error=True), int)
    assert (result["isError"], result["content"][0]["text"], told) == (True, "no room", [])


@pytest.mark.parametrize("text", ["plain", "", 'quotes " and\nlines', "é😀", "x" * 10_000])
def test_a_plain_text_is_structured_content_too(text: str) -> None:
    schema, result, told = returning(text, str)
    assert schema == WRAPPED_TEXT
    assert result["content"] == [{"type": "text", "text": text}]
    assert (result["structuredContent"], told) == ({"result": text}, [])


def test_a_revision_without_structured_content_gets_the_text_alone() -> None:
    server = Server()
    server.tool(plain)
    with SyncClient(server, protocol_version="2025-03-26") as client:
        result = client.call_tool("plain")
    assert (result.text, result.has_structured) == ("a text", False)


def plain() -> str:
    """Return a text."""
    return "a text"


def point() -> Point:
    """Return a point."""
    return Point(1)


class ClassTool(Tool):
    output_schema = None

    @staticmethod
    def call() -> str:
        return "a text"


class Unstructured(Tool):
    structured = False

    @staticmethod
    def call() -> dict[str, int]:
        return {"a": 1}


def test_structured_content_is_switched_off_for_a_tool() -> None:
    server = Server(tools=[ClassTool, Unstructured])
    server.tool(structured=False, name="off")(plain)
    server.tool(output_schema=None, name="none")(point)
    server.define_tool("defined", handler=plain, structured=False)
    server.define_tool("defined_none", handler=plain, output_schema=None)
    assert not [each for each in ask(server, "tools/list")["tools"] if "outputSchema" in each]
    for name, text in {
        "class_tool": "a text",
        "unstructured": '{"a":1}',
        "off": "a text",
        "none": '{"x":1,"label":null}',
        "defined": "a text",
        "defined_none": "a text",
    }.items():
        assert called(server, name) == {"content": [{"type": "text", "text": text}]}, name


def test_structured_content_is_switched_off_for_plain_texts() -> None:
    assert returning("x", str, structured_text=False) == (None, {"content": [{"type": "text", "text": "x"}]}, [])
    assert returning("x", str | None, structured_text=False)[0] is None
    schema, result, _ = returning(1, int, structured_text=False)
    assert (schema is not None, result["structuredContent"]) == (True, {"result": 1})


def test_a_schema_for_what_is_switched_off_is_refused() -> None:
    with pytest.raises(RegistrationError, match="leave out structured=False"):
        Server().tool(output_schema={"type": "object"}, structured=False)(plain)


@pytest.mark.parametrize(
    ("data", "block"),
    [
        (b"\x89PNG\r\n\x1a\n1", {"type": "image", "data": "iVBORw0KGgox", "mimeType": "image/png"}),
        (b"RIFF1234WAVE", {"type": "audio", "data": "UklGRjEyMzRXQVZF", "mimeType": "audio/wav"}),
        (
            bytearray(b"abc"),
            {
                "type": "resource",
                "resource": {"uri": "result:tool", "blob": "YWJj", "mimeType": "application/octet-stream"},
            },
        ),
    ],
)
@pytest.mark.parametrize("hint", [bytes, Any, bytes | str])
def test_bytes_are_content(hint: Any, data: Any, block: dict[str, Any]) -> None:
    schema, result, told = returning(data, hint)
    assert (schema, result, told) == (None, {"content": [block]}, [])


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "text"}, "the content 'text' cannot be sent: Object missing required field `text`"),
        ({"type": "image", "data": "eA==", "mime_type": "image/png"}, "missing required field `mimeType`"),
        ({"type": "imge", "data": "eA=="}, "'imge' is not a type of content: use text, image, audio"),
        ({"text": "x"}, "None is not a type of content"),
    ],
)
def test_a_content_mapping_that_clients_could_not_read_is_the_authors_error(block: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        ToolResponse([block])
    assert words in str(caught.value)
    assert ToolResponse([UnknownContent({"type": "new", "x": 1})]).content == [{"type": "new", "x": 1}]


def test_hand_written_output_schemas_are_held_to_their_word_where_that_is_wanted() -> None:
    server = Server(configuration=Configuration(validate_tool_call_results=True))
    server.define_tool("t", handler=lambda: {"n": "x"}, output_schema={"properties": {"n": {"type": "integer"}}})
    assert called(server, "t")["isError"]
