"""Rounds of questions in the modern era, and what nobody may do to the state between them (MRTR-S1 to MRTR-S11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import mounts
from linkspan import Ask, Context, Declined, InputRequired, RegistrationError, Server, ask_form, ask_roots
from linkspan.revisions import LATEST
from servers import asking

way = mounts.way
PREFIX = "io.modelcontextprotocol/"
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


class Client:
    """Asks one server, one message at a time, remembering nothing but what it is given."""

    def __init__(self, server: Server, capabilities: dict[str, Any] | None = None) -> None:
        self.server = server
        self.capabilities = EVERYTHING if capabilities is None else capabilities

    def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}} | more)

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        meta = {f"{PREFIX}protocolVersion": LATEST.date, f"{PREFIX}clientCapabilities": self.capabilities}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
        answer = self.server.handle(request)
        return answer.get("result") or answer["error"]

    def answer(self, before: Any, responses: dict[str, Any], name: str, arguments: Any = None, **more: Any) -> Any:
        return self.call(name, arguments, inputResponses=responses, requestState=before["requestState"], **more)


def accept(**content: object) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


def test_a_parameter_for_the_user_is_asked_for_and_the_body_runs_once() -> None:
    client = Client(asking())
    first = client.call("book", {"date": "today"})
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["seats"]["method"] == "elicitation/create"
    assert first["inputRequests"]["seats"]["params"]["message"] == "How many seats?"
    assert text(client.answer(first, {"seats": accept(seats=4)}, "book", {"date": "today"})) == "4 seats on today"


def test_answers_of_earlier_rounds_stay_and_only_new_ones_are_sent() -> None:
    client = Client(asking())
    first = client.call("travel")
    second = client.answer(first, {"trip": accept(city="Rome", seats=2)}, "travel")
    assert list(second["inputRequests"]) == ["sure"]
    assert text(client.answer(second, {"sure": accept(sure=True)}, "travel")) == "2 to Rome"


def test_a_wrong_answer_is_asked_again_and_says_why() -> None:
    client = Client(asking())
    first = client.call("book", {"date": "today"})
    again = client.answer(first, {"seats": accept(seats="many")}, "book", {"date": "today"})
    assert again["resultType"] == "input_required"
    assert "integer" in again["inputRequests"]["seats"]["params"]["message"]
    missing = client.answer(first, {"nobody": accept(nobody=1)}, "book", {"date": "today"})
    assert list(missing["inputRequests"]) == ["seats"]


@pytest.mark.parametrize("responses", [5, [], "x", {"seats": 12345}, {"seats": None}])
def test_answers_that_are_no_object_of_objects_are_refused(responses: Any) -> None:
    client = Client(asking())
    state = client.call("book", {"date": "today"})["requestState"]
    found = client.call("book", {"date": "today"}, inputResponses=responses, requestState=state)
    assert found["code"] == -32602


def test_absent_answers_are_asked_for_again() -> None:
    client = Client(asking())
    state = client.call("book", {"date": "today"})["requestState"]
    found = client.call("book", {"date": "today"}, inputResponses=None, requestState=state)
    assert found["resultType"] == "input_required"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declining_is_told_to_the_model(action: str) -> None:
    client = Client(asking())
    first = client.call("book", {"date": "today"})
    found = client.answer(first, {"seats": {"action": action}}, "book", {"date": "today"})
    assert found["isError"]


def test_sampling_and_roots() -> None:
    client = Client(asking())
    first = client.call("write")
    params = first["inputRequests"]["sample-1"]["params"]
    assert params == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Write a haiku"}}],
        "maxTokens": 50,
    }
    message = {"role": "assistant", "content": {"type": "text", "text": "frogs"}, "model": "m", "vendor": [1]}
    second = client.answer(first, {"sample-1": message}, "write")
    assert second["inputRequests"] == {"roots-1": {"method": "roots/list"}}
    roots = {"roots": [{"uri": "file:///a"}]}
    assert text(client.answer(second, {"roots-1": roots}, "write")) == "frogs in 1 roots"


def test_the_lowest_level_keeps_the_authors_own_state() -> None:
    client = Client(asking())
    first = client.call("by_hand")
    assert "step-1" not in first["requestState"]
    assert text(client.answer(first, {"name": accept(name="Ann")}, "by_hand")) == "step-1: Ann"


def test_a_page_to_open_means_consent() -> None:
    client = Client(asking())
    first = client.call("login")
    assert first["inputRequests"]["page"]["params"]["mode"] == "url"
    assert text(client.answer(first, {"page": {"action": "accept"}}, "login")) == "thanks"


# The state between two rounds.


def test_any_instance_with_the_keys_serves_the_next_round() -> None:
    first = Client(asking()).call("book", {"date": "today"})
    other = Client(asking())
    assert text(other.answer(first, {"seats": accept(seats=4)}, "book", {"date": "today"})) == "4 seats on today"


def test_a_state_is_good_for_its_own_request_only() -> None:
    client = Client(asking())
    state = client.call("book", {"date": "today"})["requestState"]
    answers = {"seats": accept(seats=4), "name": accept(name="x")}
    wrong = [
        client.call("book", {"date": "tomorrow"}, inputResponses=answers, requestState=state),
        client.call("by_hand", {}, inputResponses=answers, requestState=state),
        client.call("book", {"date": "today"}, inputResponses=answers, requestState=state + "-TAMPERED"),
        client.call("book", {"date": "today"}, inputResponses=answers, requestState=state[:-1]),
        client.call("book", {"date": "today"}, inputResponses=answers, requestState=""),
        client.call("book", {"date": "today"}, inputResponses=answers, requestState="é😀"),
    ]
    assert [each.get("code") for each in wrong] == [-32602] * len(wrong)
    reordered = client.call("book", {"date": "today"}, requestState=state, inputResponses=answers)
    assert text(reordered) == "4 seats on today"


def test_every_changed_character_is_noticed() -> None:
    client = Client(asking())
    first = client.call("book", {"date": "today"})
    state = first["requestState"]
    for at, old in enumerate(state):
        changed = state[:at] + ("A" if old != "A" else "B") + state[at + 1 :]
        assert client.call("book", {"date": "today"}, requestState=changed)["code"] == -32602


def test_keys_rotate() -> None:
    def server(*keys: str) -> Client:
        made = Server("s", request_state_keys=keys)

        @made.tool
        def ask(n: Annotated[int, Ask("How many?")]) -> int:
            return n

        return Client(made)

    old, new = "the old key, long enough", "the new key, long enough"
    first = server(old).call("ask")
    assert text(server(new, old).answer(first, {"n": accept(n=1)}, "ask")) == "1"
    assert server(new).answer(first, {"n": accept(n=1)}, "ask")["code"] == -32602
    with pytest.raises(RegistrationError, match="at least 16 bytes"):
        server("short")


def test_a_state_expires() -> None:
    made = Server("s", request_state_ttl=-1)

    @made.tool
    def ask(n: Annotated[int, Ask("How many?")]) -> int:
        return n

    client = Client(made)
    assert client.answer(client.call("ask"), {"n": accept(n=1)}, "ask")["code"] == -32602


# What handlers may do.


def test_a_swallowed_question_is_asked_all_the_same() -> None:
    made = Server("s")

    @made.tool
    def greedy(ctx: Context) -> str:
        try:
            return str(ctx.ask("n", int, "How many?"))
        except BaseException:
            return "swallowed"

    client = Client(made)
    first = client.call("greedy")
    assert first["resultType"] == "input_required"
    assert text(client.answer(first, {"n": accept(n=3)}, "greedy")) == "3"


def test_a_declined_question_can_be_handled_and_defaults_stand_in() -> None:
    made = Server("s")

    @made.tool
    def polite(ctx: Context) -> str:
        try:
            return str(ctx.ask("n", int, "How many?"))
        except Declined as refusal:
            return f"fine: {refusal.action}"

    @made.tool
    def default(n: Annotated[int, Ask("How many?")] = 2) -> int:
        return n

    client = Client(made)
    assert text(client.answer(client.call("polite"), {"n": {"action": "decline"}}, "polite")) == "fine: decline"
    assert text(client.answer(client.call("default"), {"n": {"action": "cancel"}}, "default")) == "2"
    assert text(Client(made, {}).call("default")) == "2"


def test_prompts_and_resources_may_ask_too() -> None:
    made = Server("s")

    @made.prompt
    def greet(ctx: Context) -> str:
        return f"Hello {ctx.ask('name', str, 'Who?')}"

    @made.resource("note://{day}")
    def note(day: str, ctx: Context) -> str:
        return f"{day}: {ctx.ask('what', str, 'What?')}"

    client = Client(made)
    for method, params, key in (
        ("prompts/get", {"name": "greet"}, "name"),
        ("resources/read", {"uri": "note://monday"}, "what"),
    ):
        first = client.ask(method, params)
        assert list(first["inputRequests"]) == [key]
        assert "ttlMs" not in first
        answers = {"inputResponses": {key: accept(**{key: "Ann"})}, "requestState": first["requestState"]}
        assert "Ann" in str(client.ask(method, params | answers))


def test_everything_that_is_missing_is_named() -> None:
    made = Server("s")

    @made.tool
    def many() -> InputRequired:
        return InputRequired({"n": ask_form("How many?", int), "r": ask_roots()})

    error = Client(made, {}).call("many")
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}, "roots": {}}})
    assert Client(made, {"roots": {}}).call("many")["data"] == {"requiredCapabilities": {"elicitation": {}}}
    assert Client(made, {"elicitation": {"url": {}}, "roots": {}}).call("many")["code"] == -32021


def test_a_state_alone_means_try_again() -> None:
    made = Server("s")

    @made.tool
    def later(ctx: Context) -> object:
        return "now" if ctx.request_state == "waited" else InputRequired(state="waited")

    client = Client(made)
    first = client.call("later")
    assert "inputRequests" not in first
    assert text(client.call("later", requestState=first["requestState"])) == "now"
    made.define_tool(name="nothing", handler=lambda **args: InputRequired())
    assert client.call("nothing")["code"] == -32603


def test_a_form_is_flat() -> None:
    @dataclass
    class Nested:
        inner: dict[str, list[int]]

    with pytest.raises(RegistrationError):
        ask_form("?", Nested)
