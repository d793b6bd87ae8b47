"""What a server elsewhere offers is listed and served through a mount, in all four pairs of eras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NoReturn

import pytest
from elsewhere import Elsewhere, make_server
from msgspec import Raw

from linkspan import Ask, Context, InputRequired, Server, ServerError, SyncClient, ask_form
from linkspan.revisions import LATEST
from linkspan.stores.memory import MemoryStore
from linkspan.stores.port import StoreError
from linkspan.types.messages import ElicitParams
from linkspan.upstreams.relaying import passed_on

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")


class Passage:
    """A client, a server, and a server elsewhere that is mounted in it."""

    def __init__(self, there: Era, here: Era) -> None:
        self.ran: list[str] = []
        self.questions: list[str] = []
        self.progress: list[Any] = []
        self.logs: list[Any] = []
        self.elsewhere = Elsewhere(make_server(self.ran.append))
        self.server = Server("here")

        @self.server.tool
        def own() -> str:
            return "own"

        self.mounted = self.server.mount(self.elsewhere, "there", era=there)
        self.client = SyncClient(self.server, era=here, elicitation=self._answer, on_log=self.logs.append)

    def _answer(self, question: ElicitParams) -> dict[str, int]:
        self.questions.append(question.message)
        return {"age": 7}


@pytest.fixture(scope="module", params=[(there, here) for there in ERAS for here in ERAS], ids="-to-".join)
def passage(request: pytest.FixtureRequest) -> Iterator[Passage]:
    made = Passage(*request.param)
    with made.client:
        yield made
    made.mounted.remove()


def test_the_lists_are_those_of_both_servers(passage: Passage) -> None:
    client = passage.client
    assert [each.name for each in client.list_tools()] == ["own", "there_add", "there_greet", "there_fail"]
    assert [each.uri for each in client.list_resources()] == ["fixed://a"]
    assert [each.uri_template for each in client.list_resource_templates()] == ["note://{name}"]
    assert [each.name for each in client.list_prompts()] == ["there_review"]


def test_a_call_returns_what_the_other_server_returned(passage: Passage) -> None:
    result = passage.client.call_tool("there_add", {"a": 1, "b": 2})
    assert (result.text, result.structured) == ("3", {"result": 3})
    assert passage.client.call_tool("own").text == "own"


def test_a_failure_is_that_of_the_other_server(passage: Passage) -> None:
    result = passage.client.call_tool("there_fail")
    assert (result.is_error, result.text) == (True, "not today")


def test_resources_and_prompts_are_read_there(passage: Passage) -> None:
    client = passage.client
    assert client.read_resource("note://b").contents[0].text == "note b"
    assert client.read_resource("fixed://a").contents[0].text == "A"
    assert client.get_prompt("there_review", {"code": "x"}).messages[0].content.text == "Review x"
    assert client.complete("there_review", "code", "a").values == ["alpha"]


def test_a_question_is_put_to_the_caller(passage: Passage) -> None:
    passage.questions.clear()
    assert passage.client.call_tool("there_greet", {"name": "Bo"}).text == "Bo is 7"
    assert passage.questions == ["How old?"]


def test_progress_arrives(passage: Passage) -> None:
    passage.progress.clear()
    passage.client.call_tool("there_greet", {"name": "Bo"}, on_progress=passage.progress.append)
    assert {(each.progress, each.total, each.message) for each in passage.progress} == {(1.0, 2.0, "half")}


def test_an_unknown_name_is_refused_with_the_names_of_both(passage: Passage) -> None:
    with pytest.raises(ServerError, match="did you mean 'there_add'"):
        passage.client.call_tool("there_ad", {})
    with pytest.raises(ServerError, match="Resource not found: nope://b"):
        passage.client.read_resource("nope://b")


def test_a_call_without_an_answer_does_not_take_the_questions_of_others() -> None:
    server = Server("here")
    server.mount(Elsewhere(make_server()), era="legacy", shared=True)
    call = {"name": "greet", "arguments": {"name": "Bo"}, "_meta": ENVELOPE}
    for request_id in (1, 2):  # the first is left alone
        reply = server.handle({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": call})
        assert reply["result"]["resultType"] == "input_required"
    (key,) = reply["result"]["inputRequests"]
    state, answer = reply["result"]["requestState"], {key: {"action": "accept", "content": {"age": 7}}}
    again = call | {"inputResponses": answer, "requestState": state}
    reply = server.handle({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": again})
    assert reply["result"]["content"] == [{"type": "text", "text": "Bo is 7"}]


ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


def test_questions_of_a_handshake_server_that_come_together_are_put_together() -> None:
    there = Server("there")

    @there.tool
    def book(city: Annotated[str, Ask("Where?")], nights: Annotated[int, Ask("How long?")]) -> str:
        return f"{nights} nights in {city}"

    server = Server("here")
    server.mount(Elsewhere(there), era="legacy", shared=True)
    call: dict[str, Any] = {"name": "book", "arguments": {}, "_meta": ENVELOPE}
    answers: dict[str, Any] = {"Where?": {"city": "Oslo"}, "How long?": {"nights": 3}}

    def send(**more: Any) -> Any:
        return server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call | more})["result"]

    first = send()
    asked = {key: each["params"]["message"] for key, each in first["inputRequests"].items()}
    assert sorted(asked.values()) == ["How long?", "Where?"]
    given = {key: {"action": "accept", "content": answers[message]} for key, message in asked.items()}
    one, other = given
    second = send(requestState=first["requestState"], inputResponses={one: given[one]})
    assert [*second["inputRequests"]] == [other]  # what was not answered is asked again
    last = send(requestState=second["requestState"], inputResponses={other: given[other]})
    assert last["content"] == [{"type": "text", "text": "3 nights in Oslo"}]


def with_a_large_state() -> Server:
    """Return a server whose question has a state that is nearly as large as a state can be."""
    there = Server("there")

    @there.tool
    def book(note: str, ctx: Context) -> InputRequired | str:
        if ctx.request_state is None:
            return InputRequired({"sure": ask_form("Really?", bool)}, note * 45_000)
        return f"{ctx.request_state[0]} {len(ctx.request_state)} {ctx.input_responses['sure']['content']}"

    return there


def test_a_state_that_is_too_large_for_ours_comes_back_whole() -> None:
    server = Server("here")
    server.mount(Elsewhere(with_a_large_state()))
    for era in ERAS:
        with SyncClient(server, era=era, elicitation=lambda _: {"value": True}) as client:
            assert client.call_tool("book", {"note": "x"}).text == "x 45000 {'value': True}"


def test_a_large_state_is_there_for_a_round_that_is_sent_again_and_its_loss_is_said() -> None:
    server = Server("here")
    server.mount(Elsewhere(with_a_large_state()), shared=True)
    call: dict[str, Any] = {"name": "book", "arguments": {"note": "x"}, "_meta": ENVELOPE}

    def send(**more: Any) -> Any:
        return server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call | more})

    first = send()["result"]
    assert len(first["requestState"]) < 2000
    given = {"sure": {"action": "accept", "content": {"value": True}}}
    again = {"requestState": first["requestState"], "inputResponses": given}
    for _ in range(2):
        assert send(**again)["result"]["content"][0]["text"] == "x 45000 {'value': True}"
    for _ in range(64):
        send()
    assert "begin again without it" in send(**again)["error"]["message"]


class DownStore(MemoryStore):
    def put(self, *_: object, **__: object) -> NoReturn:
        raise StoreError("not now")


def test_a_large_state_that_cannot_be_kept_is_an_error_that_says_so() -> None:
    server = Server("here", store=DownStore())
    server.mount(Elsewhere(with_a_large_state()))
    with SyncClient(server, elicitation=lambda _: {"value": True}) as client:
        result = client.call_tool("book", {"note": "x"})
    assert (result.is_error, result.text) == (True, "there: its requestState cannot be kept: not now")


@pytest.mark.parametrize(
    ("meta", "there"),
    [
        (b'{"progressToken":7,"a.b/c":1}', b'"a.b/c":1'),
        (b'{"a.b/c":{"progressToken":7}}', b'"a.b/c":{"progressToken":7}'),
        (b'{"a.b/c":1,"progressToken":7}', b'"a.b/c":1'),
        (b'{"a.b/c":{"x":1,"progressToken":7},"progressToken":"x"}', b'"a.b/c":{"x":1,"progressToken":7}'),
        (b'{"a.b/c":"{\\"progressToken\\":7,"}', b'"a.b/c":"{\\"progressToken\\":7,"'),
        (b'{"progressToken":7}', b""),
        (b"null", b""),
    ],
)
def test_members_of_a_meta_go_on_without_those_of_the_connection(meta: bytes, there: bytes) -> None:
    assert passed_on(Raw(meta)) == there
