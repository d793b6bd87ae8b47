"""Answers count only where their question was asked: the seal names each open question and its text (MRTR-S5, MRTR-S6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from test_asking import Client, accept, text

import mounts
from linkspan import Ask, Context, InputRequired, Server, ask_form

way = mounts.way

YES = {"sure": accept(sure=True)}


def shop(**options: Any) -> tuple[Client, list[str]]:
    """A server that asks before it acts, in three ways, and what it did."""
    server = Server("shop", **options)
    done: list[str] = []

    @server.tool
    def wipe(ctx: Context) -> str:
        if ctx.ask("sure", bool, "Wipe all?"):
            done.append("wiped")
        return "ok"

    @server.tool
    def charge(sure: Annotated[bool, Ask("Charge 5?")]) -> str:
        if sure:
            done.append("charged")
        return "ok"

    @server.tool
    def by_hand(ctx: Context) -> object:
        if "sure" not in ctx.input_responses:
            return InputRequired({"sure": ask_form("Really?", bool)})
        done.append("by hand")
        return "ok"

    @server.prompt
    def secret(ctx: Context) -> str:
        return f"{ctx.ask('sure', bool, 'Tell it?')}"

    return Client(server), done


@pytest.mark.parametrize("capabilities", [None, {}])
@pytest.mark.parametrize("tool", ["wipe", "charge", "by_hand"])
def test_without_a_state_there_are_no_answers(tool: str, capabilities: dict[str, Any] | None) -> None:
    client, done = shop()
    client.capabilities = client.capabilities if capabilities is None else capabilities
    found = client.call(tool, inputResponses=YES)
    assert (found.get("resultType") == "input_required") is (capabilities is None)
    assert capabilities is None or found["code"] == -32021
    assert done == []


def test_a_prompt_believes_no_answer_without_a_state_either() -> None:
    client, _ = shop()
    params = {"name": "secret", "inputResponses": YES}
    assert client.ask("prompts/get", params)["resultType"] == "input_required"


def two_steps() -> Client:
    server = Server("steps")

    @server.tool
    def go(ctx: Context) -> str:
        first = ctx.ask("first", int, "First?")
        return f"{first} {ctx.ask('second', int, 'Second?')}"

    @server.tool
    def by_hand(ctx: Context) -> object:
        if ctx.request_state is None:
            return InputRequired({"first": ask_form("First?", int)}, "1")
        return f"{ctx.request_state}: {sorted(ctx.input_responses)}"

    return Client(server)


def test_an_answer_to_a_later_question_cannot_be_sent_ahead() -> None:
    client = two_steps()
    asked = client.call("go")
    again = client.answer(asked, {"first": accept(first=1), "second": accept(second=2)}, "go")
    assert list(again["inputRequests"]) == ["second"]
    assert text(client.answer(again, {"second": accept(second=3)}, "go")) == "1 3"


def test_an_answer_that_was_given_cannot_be_changed_in_a_later_round() -> None:
    client = two_steps()
    again = client.answer(client.call("go"), {"first": accept(first=1)}, "go")
    assert text(client.answer(again, {"first": accept(first=9), "second": accept(second=2)}, "go")) == "1 2"


def test_a_handler_that_keeps_its_own_state_sees_only_what_it_asked() -> None:
    client = two_steps()
    answers = {"first": accept(first=1), "other": accept(other=2)}
    assert text(client.answer(client.call("by_hand"), answers, "by_hand")) == "1: ['first']"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda ctx, run: ctx.ask("sure", bool, f"Pay {run}?"), True),
        (lambda ctx, run: ctx.ask("sure", (bool, int)[run > 1], "Pay?"), 1),
        (lambda ctx, run: ctx.ask_url("sure", f"https://example.com/{run}", "Pay there"), None),
        (lambda ctx, run: ctx.sample(f"Praise {run}", max_tokens=5, key="sure"), None),
        (lambda ctx, run: ctx.roots(key="sure") if run > 1 else ctx.ask("sure", bool, "Pay?"), None),
    ],
    ids=["text", "schema", "url", "sampling", "method"],
)
def test_an_answer_to_another_question_under_the_same_key_is_not_believed(
    change: Callable[[Context, int], object], value: object, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("changing")
    runs: list[int] = []

    @server.tool
    def pay(ctx: Context) -> str:
        runs.append(1)
        change(ctx, min(len(runs), 2))
        return "paid"

    client = Client(server)
    content = {"type": "text", "text": "x", "sure": value}
    fits = {"sure": {"action": "accept", "role": "assistant", "content": content, "model": "m", "roots": []}}
    again = client.answer(client.call("pay"), fits, "pay")
    assert again["resultType"] == "input_required"
    assert "'sure' is not the one that was answered" in caplog.text
    assert client.answer(again, fits, "pay")["resultType"] == "complete"


def test_a_kept_answer_is_not_believed_for_another_question() -> None:
    server = Server("changing")
    prices = iter([5, 5, 500, 500])

    @server.tool
    def pay(ctx: Context) -> str:
        price = next(prices)
        sure = ctx.ask("sure", bool, f"Pay {price}?")
        return f"{sure} {price} {ctx.ask('where', str, 'Where to?')}"

    client = Client(server)
    second = client.answer(client.call("pay"), YES, "pay")
    assert list(second["inputRequests"]) == ["where"]
    third = client.answer(second, {"where": accept(where="Rome")}, "pay")
    assert third["inputRequests"]["sure"]["params"]["message"] == "Pay 500?"
    fourth = client.answer(third, YES, "pay")
    assert text(fourth) == "True 500 Rome"


def test_a_question_that_is_asked_again_after_a_mistake_is_still_the_same_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = two_steps()
    asked = client.call("go")
    for wrong in ("one", "two", True):
        asked = client.answer(asked, {"first": accept(first=wrong)}, "go")
        assert "integer" in asked["inputRequests"]["first"]["params"]["message"]
    again = client.answer(asked, {"first": accept(first=1)}, "go")
    assert list(again["inputRequests"]) == ["second"]
    assert caplog.text == ""


def test_a_state_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """MRTR-S5: it was sealed with the same keys, but says other things."""
    client, done = shop()
    with monkeypatch.context() as older:
        older.setattr("linkspan.server.asking.Rounds._kept", lambda *_: {"answers": {"sure": accept(sure=True)}})
        state = client.call("wipe")["requestState"]
    found = client.call("wipe", inputResponses=YES, requestState=state)
    assert found["code"] == -32602
    assert done == []
