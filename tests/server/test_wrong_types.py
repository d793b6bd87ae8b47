"""What an author makes with the wrong types never reaches a client: it would choke on the whole answer."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from linkspan import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    Context,
    EmbeddedResource,
    ImageContent,
    RegistrationError,
    RemoteProtocolError,
    Server,
    TextContent,
    TextResourceContents,
    ToolResponse,
)
from linkspan.types.messages import CompleteResult, Completion, GetPromptResult, PromptMessage, ReadResourceResult
from test_transcripts import feed


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def ask(server: Server, method: str, **params: Any) -> Any:
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def fails(answer: Any) -> bool:
    """Tell whether an answer says that the author failed, and nothing else."""
    said = str(answer)
    return "Internal error" in said and "incident" in said


def giving(make: Any) -> Any:
    """Return a handler that takes anything and gives what `make` makes."""
    return lambda **args: make()


ANY: Any = None
BAD_BLOCKS: list[Any] = [
    TextContent(ANY),
    TextContent("x", annotations={"audience": ["everybody"]}),  # type: ignore[arg-type]
    TextContent("x", meta=5),  # type: ignore[arg-type]
    ImageContent("aGk=", ANY),
    EmbeddedResource(TextResourceContents("x://a", ANY)),
    EmbeddedResource(5),
]


@pytest.mark.parametrize("block", BAD_BLOCKS, ids=repr)
def test_a_block_of_the_wrong_shape_fails_its_tool_and_its_prompt(block: Any) -> None:
    server = Server()
    for number, value in enumerate([lambda: block, lambda: [block], lambda: CallToolResult(content=[block])]):
        server.define_tool(name=f"t{number}", handler=giving(value))
        assert fails(ask(server, "tools/call", name=f"t{number}")), number
    for number, value in enumerate([lambda: block, lambda: PromptMessage("user", block)]):
        server.define_prompt(name=f"p{number}", handler=giving(value))
        assert fails(ask(server, "prompts/get", name=f"p{number}")), number


@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolResponse("x", is_error="no"),  # type: ignore[arg-type]
        lambda: ToolResponse("x", meta=5),  # type: ignore[arg-type]
        lambda: CallToolResult(content=["x"], is_error="no"),  # type: ignore[arg-type]
        lambda: CallToolResult(content=["x"], meta=5),  # type: ignore[arg-type]
        lambda: CallToolResult(content=["x"], structured_content=object()),
        lambda: CallToolResult(content=object()),  # type: ignore[arg-type]
    ],
)
def test_a_result_of_the_wrong_shape_fails_its_tool(make: Any) -> None:
    server = Server()
    server.define_tool(name="t", handler=lambda **args: make())
    assert fails(ask(server, "tools/call", name="t"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PromptMessage("boss", TextContent("x")),  # type: ignore[arg-type]
        lambda: PromptMessage("user", 5),
        lambda: GetPromptResult(messages=[5]),  # type: ignore[list-item]
        lambda: GetPromptResult(messages=[], description=5),  # type: ignore[arg-type]
    ],
)
def test_messages_of_the_wrong_shape_fail_their_prompt(make: Any) -> None:
    server = Server()
    server.define_prompt(name="p", handler=lambda **args: make())
    assert fails(ask(server, "prompts/get", name="p"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextResourceContents("x://a", ANY),
        lambda: [TextResourceContents(ANY, "x")],
        lambda: ReadResourceResult(contents=[TextResourceContents("x://a", ANY)]),
        lambda: {"contents": "x", "ttlMs": "soon"},
        lambda: {"uri": "x://a", "text": 5},
    ],
)
def test_contents_of_the_wrong_shape_fail_their_resource(make: Any) -> None:
    server = Server()
    server.define_resource("x://a", read=make)
    assert fails(ask(server, "resources/read", uri="x://a"))


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Named(str, enum.Enum):  # noqa: UP042
    RED = "red"


def completed(value: Any) -> Any:
    server = Server()
    server.define_prompt(name="p", handler=lambda a: a)
    server.completion("p", "a")(lambda value=None, found=value: found)
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    return ask(server, "completion/complete", **params)


@pytest.mark.parametrize(
    "value",
    [
        {"values": [1, "x"]},
        {"values": "text"},
        {"values": ["x"], "total": "many"},
        {"values": ["x"], "hasMore": "no"},
        Completion(values=[1]),  # type: ignore[list-item]
        CompleteResult(completion=Completion(values=[None])),  # type: ignore[list-item]
        [None],
        [True],
        [{"value": "x"}],
    ],
    ids=repr,
)
def test_a_completion_of_the_wrong_shape_fails(value: Any) -> None:
    assert fails(completed(value))


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (["x", 5], ["x", "5"]),
        (Colour, ["red", "2"]),
        (Named, ["red"]),
        ({"values": ["x"], "total": 3, "hasMore": True}, ["x"]),
        ({"completion": {"values": ["x"]}}, ["x"]),
        (CompleteResult(completion=Completion(values=[f"v{n}" for n in range(101)])), [f"v{n}" for n in range(100)]),
    ],
)
def test_whatever_a_completer_naturally_returns_becomes_texts(value: Any, values: list[str]) -> None:
    assert completed(value)["result"]["completion"]["values"] == values


def test_an_error_that_is_none_is_the_authors_failure() -> None:
    def refuse(params: Any) -> None:
        raise RemoteProtocolError("abc", "x")  # type: ignore[arg-type]

    server = Server()
    server.define_custom_method("mine", refuse)
    assert fails(ask(server, "mine"))


def test_progress_that_is_no_number_is_not_sent() -> None:
    server = Server()

    @server.tool
    def count(ctx: Context) -> str:
        ctx.progress(float("nan"))
        ctx.progress(1, total=float("inf"))
        ctx.progress(float("inf"))
        ctx.progress(2)
        return "done"

    connection = server.connect(one_shot=True)
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","_meta":{"progressToken":1}}}\n'
    feed(connection, line, None)
    told = [msgspec.json.decode(each)["params"] for each in connection.messages_to_send()[:-1]]
    assert told == [{"progressToken": 1, "progress": 1}, {"progressToken": 1, "progress": 2}]


def test_raw_bytes_in_blocks_travel_as_base64() -> None:
    server = Server()
    blocks = [
        ImageContent(b"hi", "image/png"),  # type: ignore[arg-type]
        AudioContent(b"hi", "audio/wav"),  # type: ignore[arg-type]
        EmbeddedResource(BlobResourceContents("x://a", b"hi")),  # type: ignore[arg-type]
    ]
    server.define_tool(name="t", handler=lambda **args: blocks)
    image, audio, resource = ask(server, "tools/call", name="t")["result"]["content"]
    assert (image["data"], audio["data"], resource["resource"]["blob"]) == ("aGk=", "aGk=", "aGk=")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_handshake_clients_get_a_schema_object_for_each_property(revision: str) -> None:
    server = Server()
    properties = {"a": True, "b": False, "c": {"type": "string"}}
    server.define_tool(
        name="t",
        handler=lambda args: {},
        input_schema={"properties": properties},
        output_schema={"type": "object", "properties": properties},
    )
    connection = server.connect()
    hello = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%b"}}\n'
    connection.receive_data(hello % revision.encode())
    connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    (tool,) = msgspec.json.decode(connection.messages_to_send()[-1])["result"]["tools"]
    plain = {"a": {}, "b": {"not": {}}, "c": {"type": "string"}}
    assert tool["inputSchema"]["properties"] == plain
    assert tool.get("outputSchema", {"properties": plain})["properties"] == plain


@pytest.mark.parametrize(
    "make",
    [
        lambda: Server(5),  # type: ignore[arg-type]
        lambda: Server(icons=["x.png"]),  # type: ignore[list-item]
        lambda: Server().define_tool(name="t", handler=lambda args: "", title=5),  # type: ignore[arg-type]
        lambda: Server().define_tool(name="t", handler=lambda args: "", annotations={"read_only_hint": "yes"}),
        lambda: Server().define_prompt(name="p", handler=lambda args: "", meta=5),  # type: ignore[arg-type]
        lambda: Server().define_resource("x://a", mime_type=5),
        lambda: Server().define_resource_template("x://{a}", icons=[5]),
    ],
)
def test_what_a_list_would_show_with_the_wrong_type_is_refused_when_it_is_registered(make: Any) -> None:
    with pytest.raises((RegistrationError, TypeError), match=r"Expected|takes a (string|mapping)"):
        make()
