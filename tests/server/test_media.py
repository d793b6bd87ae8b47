"""Pictures, sounds and files as results: from bytes, from paths, from other libraries, alone and next to texts."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkspan import Annotations, Audio, CallToolResult, File, Image, PromptMessage, Server, TextContent, ToolResponse

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\0\0\0\0WAVEfmt "
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes = PNG, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": encoded(data), "mimeType": mime_type}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def ask(server: Server, method: str, **params: Any) -> Any:
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, raise_exceptions=True)[
        "result"
    ]


def result_of(value: Any, hint: Any = Any) -> Any:
    """Return the result of a tool that returns `value`, whose list must show no output schema."""
    server = Server()

    def tool() -> Any:
        return value

    tool.__annotations__["return"] = hint
    server.tool(tool)
    assert "outputSchema" not in ask(server, "tools/list")["tools"][0]
    return ask(server, "tools/call", name="tool")


PDF = {"uri": "result:report.pdf", "blob": encoded(b"%PDF"), "mimeType": "application/pdf"}
CSV = {"uri": "result:my%20list.csv", "text": "a,b", "mimeType": "text/csv"}
RESULTS: dict[str, tuple[Any, Any, list[Any]]] = {
    "an image": (Image(PNG), Image, [image()]),
    "an image of a format": (Image(SVG, "svg"), Image, [image(SVG, "image/svg+xml")]),
    "an image of a media type": (Image(b"?", format="image/avif"), Image, [image(b"?", "image/avif")]),
    "a sound": (Audio(WAV), Audio, [{"type": "audio", "data": encoded(WAV), "mimeType": "audio/wav"}]),
    "a file": (File(b"%PDF", "report.pdf"), File, [{"type": "resource", "resource": PDF}]),
    "a text file": (File("a,b", "my list.csv"), File, [{"type": "resource", "resource": CSV}]),
    "a list": (["Look:", Image(PNG)], list[str | Image], [text("Look:"), image()]),
    "a tuple": (("Look:", Image(PNG)), tuple[str, Image], [text("Look:"), image()]),
    "a list with data": ([Image(PNG), {"width": 2}, 3], list, [image(), text('{"width":2}'), text("3")]),
    "a list with bytes": (["Look:", PNG], list, [text("Look:"), image()]),
    "a view of bytes": (memoryview(PNG), memoryview, [image()]),
    "a response": (ToolResponse([Image(PNG), "Look"]), ToolResponse, [image(), text("Look")]),
    "a result": (CallToolResult(content=[Image(PNG), TextContent("Look")]), CallToolResult, [image(), text("Look")]),
    "with annotations": (
        Image(PNG, annotations=Annotations(audience=["user"])),
        Image,
        [{**image(), "annotations": {"audience": ["user"]}}],
    ),
}


@pytest.mark.parametrize("what", RESULTS)
def test_a_tool_returns_media(what: str) -> None:
    value, hint, content = RESULTS[what]
    assert result_of(value, hint)["content"] == content


def test_media_in_a_list_are_shown_beside_the_promise_of_a_hint_or_not_at_all() -> None:
    assert result_of([Image(PNG)], list[Image])["content"] == [image()]
    assert result_of(Image(PNG), Image | None)["content"] == [image()]


def test_lists_without_media_stay_what_they_were() -> None:
    assert result_of([1, {"a": 2}], list)["content"] == [text('[1,{"a":2}]')]


def test_media_come_from_paths(tmp_path: Path) -> None:
    (tmp_path / "plot.PNG").write_bytes(PNG)
    (tmp_path / "logo.svg").write_bytes(SVG)
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "bell.flac").write_bytes(b"fLaC")
    assert Image(path=tmp_path / "plot.PNG").mime_type == "image/png"
    assert Image(path=str(tmp_path / "logo.svg")).mime_type == "image/svg+xml"
    assert Audio(path=tmp_path / "bell.flac").mime_type == "audio/flac"
    notes = File(path=tmp_path / "notes.md")
    assert result_of(notes, File)["content"][0]["resource"] == {
        "uri": "result:notes.md",
        "text": "# Notes",
        "mimeType": "text/markdown",
    }


def test_a_missing_file_is_an_error_where_the_value_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Image(path=tmp_path / "gone.png")


def test_an_unknown_type_names_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write Image\(\.\.\., format="):
        Image(b"no picture")
    with pytest.raises(ValueError, match=r"write Audio\(\.\.\., format="):
        Audio(PNG)


@pytest.mark.parametrize("make", [lambda: Image(), lambda: Image(PNG, path="x.png"), lambda: File()])
def test_media_take_data_or_a_path(make: Any) -> None:
    with pytest.raises(TypeError, match="takes data or path"):
        make()


def test_a_path_in_the_place_of_data_is_refused() -> None:
    made: Any = Image
    with pytest.raises(TypeError, match=r"write Image\(path=\.\.\.\)"):
        made("plot.png")


def test_resources_and_prompts_return_media() -> None:
    server = Server()
    server.resource("plot://one")(lambda: Image(PNG))
    server.resource("plot://two")(lambda: File("a,b", "list.csv"))
    server.prompt(name="look")(lambda: ["Look:", Image(PNG)])
    server.prompt(name="listen")(lambda: PromptMessage("user", Audio(WAV)))
    one = {"uri": "plot://one", "blob": encoded(PNG), "mimeType": "image/png"}
    two = {"uri": "plot://two", "text": "a,b", "mimeType": "text/csv"}
    assert ask(server, "resources/read", uri="plot://one")["contents"] == [one]
    assert ask(server, "resources/read", uri="plot://two")["contents"] == [two]
    shown = [each["content"] for each in ask(server, "prompts/get", name="look")["messages"]]
    assert shown == [text("Look:"), image()]
    assert ask(server, "prompts/get", name="listen")["messages"][0]["content"]["mimeType"] == "audio/wav"


@pytest.mark.parametrize("mode", ["RGB", "CMYK", "F"])
def test_a_pillow_image_is_sent_as_png(mode: str) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (block,) = result_of(pillow.new(mode, (2, 1)), pillow.Image)["content"]
    assert block["mimeType"] == "image/png"
    assert base64.b64decode(block["data"]).startswith(b"\x89PNG")


def test_a_figure_of_matplotlib_is_sent_as_png() -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
    first, second = result_of(["A plot", figure.Figure((1, 1))], list)["content"]
    assert first == text("A plot")
    assert base64.b64decode(second["data"]).startswith(b"\x89PNG")


def test_other_libraries_are_not_imported_to_recognize_their_values() -> None:
    code = (
        "import sys, linkspan; server = linkspan.Server(); server.tool(name='t')(lambda: [linkspan.Image(b'', 'png')]); "
        "server.handle({'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': {'name': 't'}}); "
        "print({'PIL', 'matplotlib', 'mimetypes'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
