"""What a program does with the result of a tool: look at it, save what it holds, write names of other SDKs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkspan import Audio, File, Image, Server, SyncClient, ToolError, ToolResult
from linkspan.types.base import Block, ImageContent, UnknownContent

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(10)
SERVER = Server("gallery")


@SERVER.tool
def picture() -> Image:
    return Image(PICTURE)


@SERVER.tool
def everything() -> list[Any]:
    return ["a text", Image(PICTURE), Audio(b"RIFF....WAVE", "wav"), File(b"\0\1", "../evil.sh"), File("hi", "a.txt")]


@SERVER.tool
def count() -> int:
    return 3


@SERVER.tool
def fail() -> str:
    raise ToolError("no")


def call(name: str) -> ToolResult:
    with SyncClient(SERVER) as client:
        return client.call_tool(name)


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        ("picture", "ToolResult(<image/png, 18 bytes>)"),
        ("count", "ToolResult({'result': 3})"),
        ("fail", "ToolResult(is_error=True, 'no')"),
        (
            "everything",
            "ToolResult('a text', <image/png, 18 bytes>, <audio/wav, 12 bytes>, <resource result:../evil.sh>, <resource "
            "result:a.txt>)",
        ),
    ],
)
def test_a_result_shows_what_it_holds(tool: str, shown: str) -> None:
    assert repr(call(tool)) == shown


def test_a_block_has_its_type_and_its_bytes() -> None:
    [block] = call("picture").content
    assert isinstance(block, ImageContent)
    assert (block.type, block.bytes) == ("image", PICTURE)
    types = [each.type for each in call("everything").content if isinstance(each, Block)]
    assert types == ["text", "image", "audio", "resource", "resource"]
    assert [UnknownContent({"type": "x"}).type, UnknownContent({}).type, UnknownContent({"type": 1}).type] == [
        "x",
        "",
        "",
    ]
    with pytest.raises(ValueError, match="not valid base64"):
        _ = ImageContent("?", "image/png").bytes


def test_what_a_result_holds_is_saved_under_names_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    result = call("everything")
    first = result.save(folder)
    assert [path.name for path in first] == ["result-1.png", "result-1.wav", "result-1.bin", "result-1.txt"]
    assert [path.read_bytes() for path in first] == [PICTURE, b"RIFF....WAVE", b"\0\1", b"hi"]
    first[0].write_bytes(b"mine")
    again = result.save(str(folder))
    assert [path.name for path in again] == ["result-2.png", "result-2.wav", "result-2.bin", "result-2.txt"]
    assert first[0].read_bytes() == b"mine"
    assert call("count").save(folder) == []


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("isError", "use result.is_error"),
        ("data", "use result.structured, or result.decode(Type) for a value of a type"),
        ("structured_content", "use result.structured"),
        ("structuredContent", "use result.structured"),
    ],
)
def test_a_name_of_another_sdk_raises_the_line_to_write(name: str, advice: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(call("count"), name)
    assert str(raised.value) == f"ToolResult has no {name!r}: {advice}"


def test_a_name_of_the_wire_raises_the_name_here() -> None:
    with SyncClient(SERVER) as client:
        tool, *_ = client.list_tools()
    with pytest.raises(AttributeError, match=r"^Tool has no 'inputSchema': use \.input_schema$"):
        _ = tool.inputSchema  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"^ImageContent has no 'mimeType': use \.mime_type$"):
        _ = call("picture").content[0].mimeType  # type: ignore[attr-defined]
    assert not hasattr(tool, "nonsense")


def test_a_structure_that_was_not_checked_is_listed_as_such() -> None:
    with SyncClient(SERVER) as client:
        [problem] = client.call_tool("count").problems
        assert problem.startswith("not checked: the tools were not listed")
        assert client.call_tool("picture").problems == ()  # nothing was promised that could be missing
        client.list_tools()
        assert not client.call_tool("count").problems
    with SyncClient(SERVER, check_output="off") as client:
        assert not client.call_tool("count").problems
