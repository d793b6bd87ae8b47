"""Every operation of a client, through both faces, in memory and over stdio, in both eras."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from faces import ERAS, FACES, outcome

from linkspan import Configuration, Server, SyncClient, ToolResponse
from linkspan.flows.client_errors import InputUnavailable, InvalidResponse, ServerError, ToolFailed
from linkspan.types.base import ImageContent, UnknownContent
from linkspan.types.messages import CreateMessageResult, PromptReference, ResourceTemplateReference
from over_http import serving

EVERYTHING = Path(__file__).parents[2] / "examples" / "everything.py"


def everything() -> Server:
    """The example as a server in this process, made anew."""
    spec = importlib.util.spec_from_file_location("everything_for_clients", EVERYTHING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    server: Server = module.server
    server.configuration.instrumentation_callback = None
    return server


Step = Callable[[Any], Any]
TABLE: dict[str, tuple[Step, Callable[[Any], bool]]] = {
    "call": (
        lambda c: c.call_tool("price", {"km": 100}),
        lambda r: r.structured == {"result": 12.0} and r.text == "12.0",
    ),
    "call without arguments": (lambda c: c.call_tool("opening_hours"), lambda r: r.text == "9 to 5" and not r.is_error),
    "structured": (
        lambda c: c.call_tool("convert_money", {"euros": 2, "currency": "CZK"}),
        lambda r: r.structured == {"amount": 50.0} and r.text == "50.00 CZK",
    ),
    "typed": (lambda c: c.call_tool("price", {"km": 10}), lambda r: r.decode(float) == 1.2),
    "all content": (
        lambda c: c.call_tool("brochure"),
        lambda r: (
            [type(each).__name__ for each in r.content]
            == ["TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink"]
            and isinstance(r.content[1], ImageContent)
        ),
    ),
    "a tool's failure is a result": (
        lambda c: c.call_tool("find_trains", {"city": "Atlantis", "after": "2026-05-01T10:00:00Z"}),
        lambda r: r.is_error and r.text.startswith("No train goes to Atlantis"),
    ),
    "wrong arguments are a result": (
        lambda c: c.call_tool("price", {"kn": 1}),
        lambda r: r.is_error and "km" in r.text,
    ),
    "list tools": (lambda c: c.list_tools(), lambda r: {"price", "convert_money"} <= {each.name for each in r}),
    "tools page": (lambda c: c.list_tools_page(), lambda r: r.next_cursor is None and len(r.tools) > 5),
    "iterate tools": (lambda c: c.iter_tools(), lambda r: "price" in {each.name for each in r}),
    "list resources": (lambda c: c.list_resources(), lambda r: "travel://terms" in {each.uri for each in r}),
    "resources page": (lambda c: c.list_resources_page(), lambda r: len(r.resources) == 3),
    "iterate resources": (lambda c: c.iter_resources(), lambda r: len([*r]) == 3),
    "list templates": (
        lambda c: c.list_resource_templates(),
        lambda r: r[0].uri_template.startswith("travel://cities"),
    ),
    "templates page": (lambda c: c.list_resource_templates_page(), lambda r: len(r.resource_templates) == 1),
    "iterate templates": (lambda c: c.iter_resource_templates(), lambda r: len([*r]) == 1),
    "list prompts": (lambda c: c.list_prompts(), lambda r: [each.name for each in r] == ["trip", "check_terms"]),
    "prompts page": (lambda c: c.list_prompts_page(), lambda r: len(r.prompts) == 2),
    "iterate prompts": (lambda c: c.iter_prompts(), lambda r: len([*r]) == 2),
    "read text": (lambda c: c.read_resource("travel://terms"), lambda r: r.contents[0].text == "No refunds."),
    "read bytes": (lambda c: c.read_resource("travel://logo"), lambda r: r.contents[0].blob.startswith("R0lGOD")),
    "read template": (lambda c: c.read_resource("travel://cities/Rome/2026"), lambda r: "Rome" in r.contents[0].text),
    "prompt": (
        lambda c: c.get_prompt("trip", {"city": "Rome"}),
        lambda r: r.messages[0].content.text == "Plan a relaxed trip to Rome for 3 days.",
    ),
    "complete a prompt": (
        lambda c: c.complete(PromptReference("trip"), "city", "P"),
        lambda r: r.values == ["Paris", "Prague"],
    ),
    "complete a template": (
        lambda c: c.complete(ResourceTemplateReference("travel://cities/{city}/{year}"), "year", "", {"city": "Rome"}),
        lambda r: r.values == ["2025", "2026"],
    ),
    "complete by name": (lambda c: c.complete("trip", "city", "P"), lambda r: r.values == ["Paris", "Prague"]),
    "complete by template": (
        lambda c: c.complete("travel://cities/{city}/{year}", "year", "", {"city": "Rome"}),
        lambda r: r.values == ["2025", "2026"],
    ),
    "ping": (lambda c: c.ping(), lambda r: r is None),
    "logging level": (lambda c: c.set_logging_level("warning"), lambda r: r is None),
    "a method of its own": (lambda c: c.request("travel/rate", {"currency": "USD"}), lambda r: r["rate"] == 1.1),
}


@pytest.fixture(scope="module")
def memory() -> Server:
    return everything()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", TABLE)
def test_an_operation_works_in_memory(name: str, face: str, era: Any, memory: Server) -> None:
    step, holds = TABLE[name]
    assert holds(outcome(face, memory, step, era=era))


@pytest.mark.parametrize("era", ERAS)
def test_every_operation_works_over_stdio(era: Any) -> None:
    with SyncClient(EVERYTHING, era=era) as client:
        for name, (step, holds) in TABLE.items():
            assert holds(step(client)), name


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(everything().asgi()) as address:
        yield address


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", TABLE)
def test_an_operation_works_over_http(name: str, face: str, era: Any, url: str) -> None:
    step, holds = TABLE[name]
    assert holds(outcome(face, url, step, era=era))


# Answers to the server: the same handlers serve both eras.


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("target", ["memory", "url"])
class TestAnswers:
    """One handler for each kind of question."""

    @pytest.fixture
    def memory(self, target: str, request: pytest.FixtureRequest) -> Any:
        """The server in this process, or its URL."""
        return request.getfixturevalue(target)

    def test_a_form_is_filled_in(self, face: str, era: Any, memory: Server) -> None:
        def answer(asked: Any) -> Any:
            assert asked.message == "Who travels?"
            return {"name": "Ada", "born": "1815-12-10"}  # the seat is left to its default

        result = outcome(
            face, memory, lambda c: c.call_tool("check_in", {"train": "EC 7"}), era=era, elicitation=answer
        )
        assert result.text == "Ada, born in 1815, at the window on EC 7"

    def test_a_form_is_filled_in_by_a_coroutine_function(self, face: str, era: Any, memory: Server) -> None:
        async def answer(asked: Any) -> Any:
            return {"seats": 3}

        result = outcome(face, memory, lambda c: c.call_tool("book", {"train": "EC 7"}), era=era, elicitation=answer)
        assert result.text == "3 seats on EC 7"

    @pytest.mark.parametrize("refusal", [False, None])
    def test_a_form_is_declined_or_cancelled(self, face: str, era: Any, memory: Server, refusal: Any) -> None:
        step: Step = lambda c: c.call_tool("check_in", {"train": "EC 7"})  # noqa: E731
        result = outcome(face, memory, step, era=era, elicitation=lambda asked: refusal)
        assert result.text == "Nobody checked in"

    def test_a_page_is_opened(self, face: str, era: Any, memory: Server) -> None:
        seen: list[str] = []

        def answer(asked: Any) -> bool:
            seen.append(asked.url)
            return True

        result = outcome(face, memory, lambda c: c.call_tool("pay"), era=era, elicitation=answer)
        assert (result.text, seen) == ("Thank you", ["https://example.com/pay"])

    def test_the_model_writes(self, face: str, era: Any, memory: Server) -> None:
        step: Step = lambda c: c.call_tool("praise", {"city": "Rome"})  # noqa: E731
        result = outcome(face, memory, step, era=era, sampling=lambda wanted: "Rome is eternal.")
        assert result.text == "Rome is eternal."

    def test_the_folders_are_listed(self, face: str, era: Any, memory: Server, tmp_path: Path) -> None:
        result = outcome(face, memory, lambda c: c.call_tool("where_to_save"), era=era, roots=[tmp_path])
        assert result.decode(list[str]) == [tmp_path.as_uri()]

    def test_what_has_no_handler_is_not_declared(self, face: str, era: Any, memory: Server) -> None:
        wanted = pytest.raises(ServerError, match="roots") if era == "modern" else nullcontext()
        with wanted:
            result = outcome(face, memory, lambda c: c.call_tool("where_to_save"), era=era)
            assert result.is_error

    def test_progress_arrives_in_order(self, face: str, era: Any, memory: Server) -> None:
        heard: list[tuple[float, float | None, str | None]] = []
        step: Step = lambda c: c.call_tool(  # noqa: E731
            "plan_tour",
            {"cities": ["Rome", "Paris"]},
            on_progress=lambda p: heard.append((p.progress, p.total, p.message)),
        )
        assert outcome(face, memory, step, era=era).text == "Rome - Paris"
        assert heard == [(1, 2, "Rome"), (2, 2, "Paris")]


@pytest.mark.parametrize("face", FACES)
def test_a_handlers_own_exception_reaches_its_caller_as_a_cause(face: str, memory: Server) -> None:
    def answer(asked: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(InputUnavailable, match="handler failed: KeyError: 'mine'") as caught:
        outcome(face, memory, lambda c: c.call_tool("book", {"train": "1"}), elicitation=answer)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_answer_that_does_not_fit_the_form_is_refused_here(memory: Server) -> None:
    from linkspan.flows.answers import InvalidAnswer

    with pytest.raises(InvalidAnswer, match="'seats' must be a whole number, got 'many'"):
        outcome(
            "sync", memory, lambda c: c.call_tool("book", {"train": "1"}), elicitation=lambda asked: {"seats": "many"}
        )


def test_a_refused_sampling_request_ends_the_call(memory: Server) -> None:
    from linkspan import Refused

    def refuse(wanted: Any) -> CreateMessageResult:
        raise Refused("not today")

    step: Step = lambda c: c.call_tool("praise", {"city": "Rome"})  # noqa: E731
    with pytest.raises(InputUnavailable, match="not today"):
        outcome("sync", memory, step, sampling=refuse, era="modern")
    result = outcome("sync", memory, step, sampling=refuse, era="legacy")
    assert result.is_error
    assert "not today" in result.text


# Results.


def test_raise_for_error_names_the_tool_and_its_words(memory: Server) -> None:
    result = outcome("sync", memory, lambda c: c.call_tool("lose_luggage"))
    with pytest.raises(
        ToolFailed, match=r"travel: tool 'lose_luggage' failed: Internal error occurred \(incident \w+\)"
    ):
        result.raise_for_error()


def test_results_decode_into_classes(memory: Server) -> None:
    from dataclasses import dataclass

    @dataclass
    class Stop:
        city: str
        at: date

    @dataclass
    class Train:
        number: str
        stops: list[Any]

    arguments = {"city": "Rome", "after": "2026-05-01T10:00:00Z"}
    result = outcome("sync", memory, lambda c: c.call_tool("find_trains", arguments))
    (train,) = result.decode(list[Train])
    assert (train.number, len(train.stops)) == ("EC 7", 2)
    with pytest.raises(InvalidResponse, match="'find_trains' is not a valid int"):
        result.decode(int)


def test_members_that_a_model_does_not_have_are_passed_over() -> None:
    """Like the classes of other kinds: a server may send more than its client knows."""
    pydantic = pytest.importorskip("pydantic")

    class Stop(pydantic.BaseModel):
        city: str

    class Train(pydantic.BaseModel):
        number: str
        stops: list[Stop]

    class Open(pydantic.BaseModel, extra="allow"):
        number: str

    server = Server("trains")

    @server.tool
    def train() -> dict[str, Any]:
        return {"number": "EC 7", "operator": "SBB", "stops": [{"city": "Rome", "track": 4}]}

    with SyncClient(server) as client:
        result = client.call_tool("train")
    assert result.decode(Train) == Train(number="EC 7", stops=[Stop(city="Rome")])
    assert result.decode(Train | None) == result.decode(Train)
    assert result.decode(Open).operator == "SBB"
    with pytest.raises(InvalidResponse, match=r"is not a valid Stop: .*city is missing"):
        result.decode(Stop)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": "many"}, "n"),
        ({"type": "object", "required": ["n"]}, {}, "n"),
    ],
)
def test_structured_output_is_checked_as_strictly_as_the_caller_wants(
    schema: dict[str, Any], value: Any, problem: str
) -> None:
    server = Server("promises", configuration=Configuration(validate_tool_call_results=False))
    server.define_tool(
        "broken",
        output_schema=schema,
        handler=lambda: ToolResponse("x", structured_content=value),
    )

    def step(client: SyncClient) -> Any:
        client.list_tools()
        return client.call_tool("broken")

    lenient = outcome("sync", server, step)
    assert problem in lenient.problems[0]
    assert not outcome("sync", server, step, check_output="off").problems
    with pytest.raises(InvalidResponse, match="does not fit its schema"):
        outcome("sync", server, lambda c: c.call_tool("broken"), check_output="strict")


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ({"properties": {"n": {"type": "string", "pattern": "(a|aa)$"}}}, '"pattern" in the tool\'s output schema'),
        ({"properties": {"n": {}}, "not": {"required": ["m"]}}, '"not" in the tool\'s output schema'),
    ],
)
def test_what_is_not_checked_of_an_output_schema_is_said(
    schema: dict[str, Any], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns of others go to a linear engine or to none."""
    server = Server("promises", configuration=Configuration(validate_tool_call_results=False))
    server.define_tool("t", output_schema=schema, handler=lambda: ToolResponse("x", structured_content={"n": "a"}))

    def step(client: SyncClient) -> Any:
        client.list_tools()
        return client.call_tool("t")

    assert not outcome("sync", server, step).problems
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    (problem,) = outcome("sync", server, step).problems
    assert problem.startswith("not checked: ")
    assert note in problem
    with pytest.raises(InvalidResponse, match="not checked"):
        outcome("sync", server, step, check_output="strict")


def test_unknown_members_and_blocks_survive() -> None:
    from linkspan.flows.client_errors import ServerOrigin
    from linkspan.flows.tool_results import ToolResult, read_head

    raw = b'{"content":[{"type":"hologram","data":1},{"type":"text"},{"type":"text","text":"hi","x":1}],"extra":true}'
    result = ToolResult(read_head(raw), raw, ServerOrigin("s"), "t")
    assert [type(each) for each in result.content[:2]] == [UnknownContent, UnknownContent]
    assert result.text == "hi"
    assert vars(result.content[2])["unknown"] == {"x": 1}
    assert b"extra" in bytes(result.raw)


# Bounds.


@pytest.mark.parametrize("face", FACES)
def test_the_bound_of_pages_that_an_error_names_can_be_set(face: str) -> None:
    server = Server("pages", page_size=1)
    for name in "abc":
        server.define_tool(name, handler=lambda: "")
    assert [each.name for each in outcome(face, server, lambda c: c.list_tools(), max_pages=3)] == ["a", "b", "c"]
    with pytest.raises(InvalidResponse, match=r"more than 2 pages \(max_pages\)"):
        outcome(face, server, lambda c: c.list_tools(), max_pages=2)


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "3"])
def test_a_bound_of_pages_is_a_whole_number(given: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"max_pages must be a whole number, 1 or more|takes an integer"):
        SyncClient(Server("pages"), max_pages=given)
