"""Our clients use servers that were written with the TypeScript SDK: everything, filesystem and memory, from npm.

`everything` over stdio, Streamable HTTP and the first HTTP transport.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from listening import listening
from npm_servers import INSTALLING, node_modules
from ours import Ours

from linkspan import CallStopped, CallTimeout, Change, ServerError, Stopper
from linkspan.types.messages import PromptReference, ResourceTemplateReference

pytestmark = INSTALLING
Step = Callable[[Any], Any]
FACES = ("async", "sync")


def command(name: str, *arguments: str) -> list[str]:
    package = node_modules() / "@modelcontextprotocol" / f"server-{name}"
    (start,) = json.loads((package / "package.json").read_text())["bin"].values()
    return ["node", str(package / start), *arguments]


WAYS = [
    ("async", "stdio"),
    ("sync", "stdio"),
    ("async", "streamableHttp"),
    ("sync", "streamableHttp"),
    ("async", "sse"),
]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def everything(request: pytest.FixtureRequest) -> Iterator[Ours]:
    face, transport = request.param
    with ExitStack() as stack:
        target: Any = command("everything")
        if transport != "stdio":
            path = "/sse" if transport == "sse" else "/mcp"
            target = stack.enter_context(listening(lambda _: command("everything", transport), path))
        ours = Ours(face, target)
        ours.transport = transport  # type: ignore[attr-defined]
        ours.answers["roots"] = [Path("/srv/one")]
        ours.do(lambda c: c.ping())
        yield ours
        ours.close()


TABLE: dict[str, tuple[Step, Callable[[Any], bool]]] = {
    "ping": (lambda c: c.ping(), lambda r: r is None),
    "list tools": (
        lambda c: c.list_tools(),
        lambda r: {"get-sum", "trigger-elicitation-request", "trigger-sampling-request"} <= {each.name for each in r},
    ),
    "iterate tools": (lambda c: c.iter_tools(), lambda r: "echo" in {each.name for each in r}),
    "list resources": (lambda c: c.list_resources(), lambda r: len(r) >= 7),
    "list templates": (lambda c: c.list_resource_templates(), lambda r: len(r) == 2),
    "list prompts": (lambda c: c.list_prompts(), lambda r: "completable-prompt" in {each.name for each in r}),
    "call": (lambda c: c.call_tool("get-sum", {"a": 1, "b": 2}), lambda r: r.text == "The sum of 1 and 2 is 3."),
    "structured": (
        lambda c: c.call_tool("get-structured-content", {"location": "Chicago"}),
        lambda r: r.structured["temperature"] == 36 and not r.problems,
    ),
    "content of every kind": (
        lambda c: c.call_tool("get-annotated-message", {"messageType": "success", "includeImage": True}),
        lambda r: [type(each).__name__ for each in r.content] == ["TextContent", "ImageContent"],
    ),
    "links": (
        lambda c: c.call_tool("get-resource-links", {"count": 2}),
        lambda r: [type(each).__name__ for each in r.content] == ["TextContent", "ResourceLink", "ResourceLink"],
    ),
    "wrong arguments": (lambda c: c.call_tool("get-sum", {"a": "x"}), lambda r: r.is_error and "-32602" in r.text),
    "read text": (
        lambda c: c.read_resource("demo://resource/dynamic/text/7"),
        lambda r: "Resource 7" in r.contents[0].text,
    ),
    "read bytes": (
        lambda c: c.read_resource("demo://resource/dynamic/blob/7"),
        lambda r: b"Resource 7" in base64.b64decode(r.contents[0].blob),
    ),
    "prompt": (
        lambda c: c.get_prompt("args-prompt", {"city": "Rome"}),
        lambda r: r.messages[0].content.text == "What's weather in Rome?",
    ),
    "complete a prompt": (
        lambda c: c.complete(PromptReference("completable-prompt"), "name", "E", {"department": "Sales"}),
        lambda r: r.values == ["Eve"],
    ),
    "complete a template": (
        lambda c: c.complete(ResourceTemplateReference("demo://resource/dynamic/text/{resourceId}"), "resourceId", "1"),
        lambda r: "1" in r.values,
    ),
}


def test_every_operation_works(everything: Ours) -> None:
    for name, (step, holds) in TABLE.items():
        found = everything.do(step)
        assert holds(found), (name, found)


def test_what_was_agreed_is_known(everything: Ours) -> None:
    client = everything.client
    assert client.protocol_version == "2025-11-25"
    assert client.server_info.name == "mcp-servers/everything"
    assert client.instructions


def test_what_does_not_exist_is_an_error_of_the_server(everything: Ours) -> None:
    for step in (lambda c: c.read_resource("demo://nowhere"), lambda c: c.get_prompt("nothing")):
        with pytest.raises(ServerError) as caught:
            everything.do(step)
        assert caught.value.delivery == "answered"


def test_progress_extends_the_deadline(everything: Ours) -> None:
    heard: list[Any] = []
    arguments = {"duration": 4, "steps": 5}
    result = everything.do(
        lambda c: c.call_tool("trigger-long-running-operation", arguments, timeout=3.0, on_progress=heard.append)
    )
    assert not result.is_error
    assert [(each.progress, each.total) for each in heard] == [(number, 5) for number in range(1, 6)]


def test_a_call_is_stopped_and_another_runs_into_its_bound(everything: Ours) -> None:
    stopper = Stopper()
    arguments = {"duration": 30, "steps": 300}
    with pytest.raises(CallStopped):
        everything.do(
            lambda c: c.call_tool(
                "trigger-long-running-operation",
                arguments,
                on_progress=lambda _: stopper.stop("enough"),
                stopper=stopper,
            )
        )
    with pytest.raises(CallTimeout):
        everything.do(lambda c: c.call_tool("trigger-long-running-operation", arguments, total=0.3))
    assert everything.do(lambda c: c.call_tool("echo", {"message": "hi"})).text == "Echo: hi"


def test_log_messages_come(everything: Ours) -> None:
    everything.do(lambda c: c.set_logging_level("debug"))
    everything.do(lambda c: c.call_tool("toggle-simulated-logging"))
    message = everything.wait_for(everything.logs, lambda item: "essage" in str(item.data))
    assert message.level in str(message.data).lower()
    everything.do(lambda c: c.call_tool("toggle-simulated-logging"))


def test_changes_of_a_list_are_heard(everything: Ours) -> None:
    data = "data:text/plain,hello"
    arguments = {"name": f"{everything.face}.gz", "data": data, "outputType": "resourceLink"}
    found = everything.changes(lambda c: c.call_tool("gzip-file-as-resource", arguments), 1, resources=True)
    assert found == [Change("resources")]
    uri = next(each.uri for each in everything.do(lambda c: c.list_resources()) if each.name == arguments["name"])
    (contents,) = everything.do(lambda c: c.read_resource(uri)).contents
    assert gzip.decompress(base64.b64decode(contents.blob)) == b"hello"


def test_a_resource_is_watched(everything: Ours) -> None:
    uri = "demo://resource/dynamic/text/1"
    found = everything.changes(lambda c: c.call_tool("toggle-subscriber-updates"), 1, uri)
    assert found == [Change("resource", uri)]
    everything.do(lambda c: c.call_tool("toggle-subscriber-updates"))


def test_the_user_is_asked(everything: Ours) -> None:
    everything.answers["form"] = {"name": "Ada", "check": True, "integer": 7, "untitledMultipleSelectEnum": ["Piano"]}
    result = everything.do(lambda c: c.call_tool("trigger-elicitation-request"))
    assert "User provided the requested information" in result.text
    assert "- Name: Ada" in result.text
    raw = json.loads(result.text.partition("Raw result: ")[2])
    assert raw["content"]["firstLine"] == "It was a dark and stormy night."  # the defaults of the form
    assert raw["content"]["titledSingleSelectEnum"] == "hero-1"
    everything.answers["form"] = False
    assert "declined" in everything.do(lambda c: c.call_tool("trigger-elicitation-request")).text
    everything.answers["form"] = None
    assert "cancelled" in everything.do(lambda c: c.call_tool("trigger-elicitation-request")).text


def test_the_user_is_sent_to_a_page(everything: Ours) -> None:
    everything.answers["form"] = True
    arguments = {"url": "https://example.com/pay", "message": "Pay", "elicitationId": everything.face}
    result = everything.do(lambda c: c.call_tool("trigger-url-elicitation", arguments))
    assert not result.is_error, result
    assert everything.questions[-1].url == "https://example.com/pay"


def test_the_model_is_asked(everything: Ours) -> None:
    everything.answers["text"] = "Rome is eternal."
    result = everything.do(lambda c: c.call_tool("trigger-sampling-request", {"prompt": "praise", "maxTokens": 10}))
    assert "Rome is eternal." in result.text
    assert everything.questions[-1].system_prompt == "You are a helpful test server."


def test_the_folders_are_asked_for(everything: Ours) -> None:
    assert "file:///srv/one" in everything.do(lambda c: c.call_tool("get-roots-list")).text
    everything.answers["roots"] = [Path("/srv/two")]
    everything.client.notify_roots_changed()
    if everything.transport == "stdio":  # type: ignore[attr-defined]
        everything.wait_for(everything.stderr, lambda _: True)  # it starts with a word there
    give_up = time.monotonic() + 30  # a client for asyncio hears of things while its loop runs
    while not any("root" in str(item.data).lower() for item in everything.logs.items):
        assert time.monotonic() < give_up
        everything.do(lambda c: c.ping())


def test_the_connection_was_never_lost(everything: Ours) -> None:
    assert [type(each).__name__ for each in everything.events.items] == ["Connected"]


@pytest.mark.parametrize("face", FACES)
def test_files_are_written_read_and_refused(face: str, tmp_path: Path) -> None:
    ours = Ours(face, command("filesystem", str(tmp_path)))
    ours.answers["roots"] = [tmp_path]
    file = str(tmp_path / "note.txt")
    try:
        assert not ours.do(lambda c: c.call_tool("write_file", {"path": file, "content": "Grüße\n世界\n"})).is_error
        assert Path(file).read_text("utf-8") == "Grüße\n世界\n"
        ours.do(lambda c: c.list_tools())
        read = ours.do(lambda c: c.call_tool("read_text_file", {"path": file, "head": 1}))
        assert (read.text, read.structured, list(read.problems)) == ("Grüße", {"content": "Grüße"}, [])
        listed = ours.do(lambda c: c.call_tool("list_directory", {"path": str(tmp_path)}))
        assert listed.text == "[FILE] note.txt"
        refused = ours.do(lambda c: c.call_tool("read_text_file", {"path": "/etc/passwd"}))
        assert refused.is_error
        assert "Access denied" in refused.text
    finally:
        ours.close()


@pytest.mark.parametrize("face", FACES)
def test_what_is_remembered_outlives_the_server(face: str, tmp_path: Path) -> None:
    ours = Ours(face, command("memory"), env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    try:
        ours.do(lambda c: c.list_tools())
        made = ours.do(lambda c: c.call_tool("create_entities", {"entities": [entity]}))
        assert (made.structured, list(made.problems)) == ({"entities": [entity]}, [])
        ours.client.close_now()
        ours.do(lambda c: c.connect())
        found = ours.do(lambda c: c.call_tool("search_nodes", {"query": "programs"}))
        assert found.structured == {"entities": [entity], "relations": []}
    finally:
        ours.close()
