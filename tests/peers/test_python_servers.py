"""Our clients use servers that were written with the official SDK and with FastMCP, over stdio and HTTP, in both eras."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from listening import listening
from ours import Ours

from linkspan import CallStopped, CallTimeout, Change, ServerError, Stopper
from linkspan.types.messages import PromptReference, ResourceTemplateReference

SERVER = Path(__file__).parent / "python_server.py"
REVISIONS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
MATRIX = [
    ("mcp", "modern", "async", "stdio"),
    ("mcp", "modern", "sync", "stdio"),
    ("mcp", "legacy", "async", "stdio"),
    ("mcp", "legacy", "sync", "stdio"),
    ("fastmcp", "modern", "async", "stdio"),
    ("fastmcp", "legacy", "sync", "stdio"),
    ("mcp", "modern", "async", "http"),
    ("mcp", "modern", "sync", "http"),
    ("mcp", "legacy", "async", "http"),
    ("mcp", "legacy", "sync", "http"),
    ("fastmcp", "modern", "sync", "http"),
    ("fastmcp", "legacy", "async", "http"),
]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module", params=MATRIX, ids="-".join)
def ours(request: pytest.FixtureRequest) -> Iterator[Ours]:
    kind, era, face, transport = request.param
    if importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed: pip install -e '.[peers]'")
    command = [sys.executable, str(SERVER), kind]
    with ExitStack() as stack:
        target: Any = command
        if transport == "http":
            target = stack.enter_context(listening(lambda port: [*command, str(port)]))
        client = Ours(face, target, era=era, name=kind)
        client.era = era  # type: ignore[attr-defined]
        client.kind = kind  # type: ignore[attr-defined]
        yield client
        client.close()


Step = Callable[[Any], Any]
TABLE: dict[str, tuple[Step, Callable[[Any], bool]]] = {
    "ping": (lambda c: c.ping(), lambda r: r is None),
    "list tools": (lambda c: c.list_tools(), lambda r: {"forecast", "add", "book"} <= {each.name for each in r}),
    "iterate tools": (lambda c: c.iter_tools(), lambda r: "add" in {each.name for each in r}),
    "tools page": (lambda c: c.list_tools_page(), lambda r: r.next_cursor is None),
    "annotations": (
        lambda c: c.list_tools(),
        lambda r: [each.name for each in r if each.annotations and each.annotations.read_only_hint] == ["forecast"],
    ),
    "schemas": (
        lambda c: c.list_tools(),
        lambda r: next(each for each in r if each.name == "add").input_schema["required"] == ["a", "b"],
    ),
    "list resources": (
        lambda c: c.list_resources(),
        lambda r: sorted(each.uri for each in r) == ["peer://bytes", "peer://text"],
    ),
    "list templates": (
        lambda c: c.list_resource_templates(),
        lambda r: [each.uri_template for each in r] == ["peer://people/{name}"],
    ),
    "list prompts": (
        lambda c: c.list_prompts(),
        lambda r: (
            [[(a.name, bool(a.required)) for a in each.arguments] for each in r]
            == [[("code", True), ("language", False)]]
        ),
    ),
    "call": (
        lambda c: c.call_tool("add", {"a": 1, "b": 2}),
        lambda r: (r.text, r.structured, r.decode(int)) == ("3", {"result": 3}, 3),
    ),
    "structured": (
        lambda c: c.call_tool("forecast", {"city": "Rome"}),
        lambda r: r.structured == {"city": "Rome", "degrees": 21.5} and not r.problems,
    ),
    "failure": (lambda c: c.call_tool("fail"), lambda r: r.is_error and "fail" in r.text),
    "wrong arguments": (lambda c: c.call_tool("add", {"a": "x"}), lambda r: r.is_error),
    "read text": (lambda c: c.read_resource("peer://text"), lambda r: r.contents[0].text == "some text"),
    "read bytes": (lambda c: c.read_resource("peer://bytes"), lambda r: r.contents[0].blob == "AAE="),
    "read template": (lambda c: c.read_resource("peer://people/Ada"), lambda r: r.contents[0].text == "Dear Ada"),
    "prompt": (
        lambda c: c.get_prompt("review", {"code": "x = 1"}),
        lambda r: r.messages[0].content.text == "Review this python: x = 1",
    ),
    "complete a prompt": (
        lambda c: c.complete(PromptReference("review"), "language", "p", {"code": "x"}),
        lambda r: r.values == ["python", "perl"],
    ),
    "complete a template": (
        lambda c: c.complete(ResourceTemplateReference("peer://people/{name}"), "name", "A"),
        lambda r: r.values == ["A1"],
    ),
}


def test_every_operation_works(ours: Ours) -> None:
    for name, (step, holds) in TABLE.items():
        found = ours.do(step)
        assert holds(found), (name, found)


def test_what_was_agreed_is_known(ours: Any) -> None:
    ours.do(lambda c: c.ping())
    client = ours.client
    assert client.protocol_version == REVISIONS[ours.era]
    assert (client.server_info.name, client.server_info.version) == ("peer", "1.0.0")
    assert client.instructions == "Be kind."
    assert client.server_capabilities.tools is not None


def test_what_does_not_exist_is_an_error_of_the_server(ours: Ours) -> None:
    steps: list[Step] = [lambda c: c.read_resource("peer://nowhere"), lambda c: c.get_prompt("nothing")]
    for step in steps:
        with pytest.raises(ServerError) as caught:
            ours.do(step)
        assert caught.value.code is not None
        assert caught.value.delivery == "answered"


def test_progress_arrives_in_order(ours: Ours) -> None:
    heard: list[Any] = []
    step: Step = lambda c: c.call_tool("count", {"to": 3}, on_progress=heard.append)  # noqa: E731
    assert ours.do(step).text == "counted"
    assert [(each.progress, each.total, each.message) for each in heard] == [
        (1, 3, "at 1"),
        (2, 3, "at 2"),
        (3, 3, "at 3"),
    ]


def test_a_stopped_call_is_cancelled_there(ours: Ours) -> None:
    before = ours.do(lambda c: c.call_tool("times_cancelled")).decode(int)
    stopper = Stopper()
    with pytest.raises(CallStopped):
        ours.do(lambda c: c.call_tool("wait", on_progress=lambda _: stopper.stop("enough"), stopper=stopper))
    with pytest.raises(CallTimeout):
        ours.do(lambda c: c.call_tool("wait", timeout=1.5))
    # Over HTTP a call is cancelled by closing its connection, which the server may notice after it answers another one.
    patience = time.monotonic() + 30
    while (count := ours.do(lambda c: c.call_tool("times_cancelled")).decode(int)) < before + 2:
        assert time.monotonic() < patience, count
    assert count == before + 2


def test_log_messages_come(ours: Any) -> None:
    if (ours.kind, ours.era) == ("mcp", "legacy"):  # it logs without having declared that it does
        with pytest.raises(ServerError, match="logging/setLevel was refused"):
            ours.do(lambda c: c.set_logging_level("info"))
    else:
        ours.do(lambda c: c.set_logging_level("info"))
    ours.do(lambda c: c.call_tool("log"))
    message = ours.wait_for(ours.logs, lambda item: "alas" in str(item.data))
    assert message.level == "error"
    assert [each.level for each in ours.logs.items] == ["info", "error"]


def test_changes_are_heard(ours: Any) -> None:
    if (ours.kind, ours.era) == ("fastmcp", "modern"):  # it announces changes, but has no subscriptions
        with pytest.raises(ServerError, match=r"the subscription was refused: Method not found \(-32601\)"):
            ours.changes(lambda c: c.call_tool("change"), 1, tools=True)
        return
    assert ours.changes(lambda c: c.call_tool("change"), 1, tools=True) == [Change("tools")]


def test_a_resource_is_watched(ours: Any) -> None:
    if (ours.kind, ours.era) != ("mcp", "modern"):
        pytest.skip("that server offers no subscriptions to resources there")
    found = ours.changes(lambda c: c.call_tool("change"), 1, "peer://text")
    assert found == [Change("resource", "peer://text")]


def test_the_user_is_asked(ours: Ours) -> None:
    ours.answers["form"] = {"seats": 3}  # the window is left to its default
    assert ours.do(lambda c: c.call_tool("book")).text == "3 seats at the window"
    assert ours.questions[-1].message == "How many seats?"


@pytest.mark.parametrize("refusal", [False, None])
def test_the_user_says_no(ours: Any, refusal: Any) -> None:
    ours.answers["form"] = refusal
    result = ours.do(lambda c: c.call_tool("book"))
    assert result.is_error if ours.kind == "mcp" else result.text == ("decline" if refusal is False else "cancel")


def test_the_model_is_asked(ours: Ours) -> None:
    ours.answers["text"] = "Rome is eternal."
    assert ours.do(lambda c: c.call_tool("praise")).text == "Rome is eternal."
    assert ours.questions[-1].max_tokens == 10


def test_the_folders_are_asked_for(ours: Ours, tmp_path: Path) -> None:
    ours.answers["roots"] = [tmp_path]
    assert ours.do(lambda c: c.call_tool("folders")).text == tmp_path.as_uri()


def test_the_connection_was_never_lost(ours: Ours) -> None:
    assert [type(each).__name__ for each in ours.events.items] == ["Connected"]
