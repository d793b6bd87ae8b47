"""`Server(max_result=...)`: a result that is too large is kept for its caller, and the answer has a link to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from linkspan import Image, Server, SyncClient
from linkspan.revisions.neutral import TransportInfo
from linkspan.runtime.system import SYSTEM
from linkspan.server import large_results
from linkspan.server.ports import System

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 200


class Time:
    """A clock that tests set."""

    now = 1000.0


def server_of(time: type[Time] = Time) -> Server:
    class Timed(Server):
        def system(self) -> System:
            return msgspec.structs.replace(SYSTEM, clock=lambda: time.now)

    server = Timed(max_result=100)

    @server.tool
    def text(size: int) -> str:
        return "x" * size

    @server.tool
    def plain(size: int) -> Any:
        return "y" * size

    @server.tool
    def rows(count: int) -> list[int]:
        return list(range(count))

    @server.tool
    def picture() -> list[str | Image]:
        return ["Look", Image(PNG)]

    return server


def ask(server: Server, method: str, principal: str | None = None, **params: Any) -> Any:
    connection = server.connect()
    answers: list[Any] = []
    data = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    from linkspan.wire.jsonrpc import decode
    from linkspan.wire.values import DEFAULT_LIMITS

    todo = connection.receive(decode(data, DEFAULT_LIMITS), TransportInfo(principal=principal))
    for event in todo:
        todo += connection.finish(event.call, event.call.run())
    answers += map(msgspec.json.decode, connection.messages_to_send())
    return answers[-1].get("result") or answers[-1]["error"]["message"]


def call(server: Server, name: str, principal: str | None = None, **arguments: Any) -> Any:
    return ask(server, "tools/call", principal, name=name, arguments=arguments)


def test_a_small_result_stays_as_it_is() -> None:
    assert call(server_of(), "text", size=80)["structuredContent"] == {"result": "x" * 80}
    assert call(server_of(), "plain", size=100)["content"] == [{"type": "text", "text": "y" * 100}]


@pytest.mark.parametrize("tool", ["text", "plain"])
def test_a_large_text_is_offered_as_a_link(tool: str) -> None:
    server = server_of()
    result = call(server, tool, size=101)
    note, link, head = result["content"]
    size = {"text": 114, "plain": 101}[tool]  # with its name as structured content
    told = f"The result has {size} bytes; 100 of them follow. Read all of it as the resource {link['uri']} within 10 minutes."
    assert note["text"] == told
    assert head["text"] == {"text": "x", "plain": "y"}[tool] * 100
    assert (link["type"], link["name"], link["size"], link["mimeType"]) == ("resource_link", tool, size, "text/plain")
    assert result.get("structuredContent", {}).get("result") in (None, f"{told}\n\n{head['text']}")
    (contents,) = ask(server, "resources/read", uri=link["uri"])["contents"]
    assert len(contents["text"]) == 101


def test_a_client_takes_the_link_of_a_tool_that_promises_a_text() -> None:
    with SyncClient(server_of(), check_output="strict") as client:
        client.list_tools()
        result = client.call_tool("text", {"size": 500})
        assert not result.is_error
        (contents,) = client.read_resource(result.content[1].uri).contents
        assert contents.text == "x" * 500


def test_what_a_tool_promises_otherwise_makes_the_link_an_error() -> None:
    server = server_of()
    result = call(server, "rows", count=100)
    assert result["isError"]
    (contents,) = ask(server, "resources/read", uri=result["content"][1]["uri"])["contents"]
    assert contents["mimeType"] == "application/json"
    assert msgspec.json.decode(contents["text"]) == list(range(100))


def test_all_parts_of_a_result_are_kept() -> None:
    server = server_of()
    _, link, head = call(server, "picture")["content"]
    assert head["text"] == "Look"  # a picture is sent whole, or not
    uri = link["uri"]
    first, second = ask(server, "resources/read", uri=uri)["contents"]
    assert first["text"] == "Look"
    assert second["mimeType"] == "image/png"


def test_a_result_is_kept_for_its_caller_alone() -> None:
    server = server_of()
    uri = call(server, "text", "alice", size=200)["content"][1]["uri"]
    assert ask(server, "resources/read", "bob", uri=uri) == f"Resource not found: {uri}"
    assert ask(server, "resources/read", None, uri=uri) == f"Resource not found: {uri}"
    assert ask(server, "resources/read", "alice", uri=uri)["contents"]


def test_a_result_is_kept_for_ten_minutes() -> None:
    class Passing(Time):
        pass

    server = server_of(Passing)
    uri = call(server, "text", size=200)["content"][1]["uri"]
    Passing.now += 599
    assert ask(server, "resources/read", uri=uri)["contents"]
    Passing.now += 2
    assert ask(server, "resources/read", uri=uri) == f"Resource not found: {uri}"


def test_the_oldest_results_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_results, "MAX_KEPT", 500)
    server = server_of()
    uris = [call(server, "text", size=200)["content"][1]["uri"] for _ in range(3)]
    assert ask(server, "resources/read", uri=uris[0]) == f"Resource not found: {uris[0]}"
    assert all(ask(server, "resources/read", uri=uri)["contents"] for uri in uris[1:])
    assert "ask for less" in call(server, "text", size=600)["content"][0]["text"]


def test_a_bound_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no room"):
        Server(max_result=0)


def test_a_result_of_which_nothing_can_be_shown_is_a_link_alone() -> None:
    server = server_of()

    @server.tool
    def only() -> Image:
        return Image(PNG)

    note, link = call(server, "only")["content"]
    assert "none of which can be shown here" in note["text"]
    assert ask(server, "resources/read", uri=link["uri"])["contents"][0]["mimeType"] == "image/png"
