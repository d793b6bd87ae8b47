"""The loop of a turn: what the model says, which tools it calls, and how a turn ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from host.saying import Says, sendable, turn, use
from linkspan import Server, Timeouts, ToolError
from linkspan.host.consent import Approval, Policy, Verdict
from linkspan.host.conversation import (
    CallEnded,
    CallProgressed,
    CallStarted,
    Conversation,
    RoundEnded,
    TurnBounds,
    TurnEnded,
)
from linkspan.host.host import Host
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolAnswer,
    ToolMessage,
    Usage,
    UserMessage,
)

READS = {"readOnlyHint": True}
FREE = Policy(otherwise="allow")
ODD = [sys.executable, "-S", str(Path(__file__).parent.parent / "cli" / "odd_server.py")]


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(bounded())


def dice() -> Server:
    server = Server("dice", instructions="Roll dice. Never more than 100.")

    @server.tool
    def roll(sides: int) -> int:
        """Roll a die."""
        if sides < 1:
            raise ToolError("a die has at least one side")
        return 4

    return server


def marked(text: str, tool: str = "roll", server: str = "dice") -> str:
    return f'<tool_output server="{server}" tool="{tool}">\n{text}\n</tool_output>'


def test_the_dice_question() -> None:
    call = use("roll", sides=6)
    model = Says([ThoughtDelta("hm"), "I roll.", call], "You rolled a four.")

    async def work() -> None:
        async with Host({"dice": dice()}, policy=FREE) as host:
            ticks = iter(range(1000))
            chat = Conversation(host, model, system="Be brief.", clock=lambda: float(next(ticks)))
            events = await turn(chat, "Roll a die")
            answer = ToolAnswer(call.id, "roll", marked("4"), images=[])
            said = AssistantMessage([Text("I roll."), call])
            ended = next(event for event in events if isinstance(event, CallEnded))
            assert ended.seconds is not None
            assert events == [
                ThoughtDelta("hm"),
                TextDelta("I "),
                TextDelta("roll."),
                RoundEnded(said, Usage()),
                CallStarted(call, "dice"),
                CallEnded(call, "dice", answer, ended.seconds),
                TextDelta("You "),
                TextDelta("rolled "),
                TextDelta("a "),
                TextDelta("four."),
                RoundEnded(AssistantMessage([Text("You rolled a four.")]), Usage()),
                TurnEnded("answered", "You rolled a four.", Usage()),
            ]
            assert chat.messages == [
                UserMessage([Text("Roll a die")]),
                said,
                ToolMessage([answer]),
                AssistantMessage([Text("You rolled a four.")]),
            ]
            first = model.requests[0]
            assert [spec.name for spec in first.tools] == ["roll"]
            system = first.system or ""
            assert system.startswith("Be brief.")
            assert '<server_notes server="dice">\nRoll dice. Never more than 100.\n</server_notes>' in system

    run(work)


def test_the_conversation_goes_on_from_turn_to_turn_until_it_is_reset() -> None:
    model = Says("One.", "Two.", "Three.")

    async def work() -> None:
        async with Host({}) as host:
            chat = Conversation(host, model)
            assert await chat.answer("1") == "One."
            assert await chat.answer("2") == "Two."
            assert len(model.requests[1].messages) == 3
            chat.reset()
            await chat.answer("3")
            assert model.requests[2].messages == [UserMessage([Text("3")])]

    run(work)


def test_calls_that_only_read_run_side_by_side_and_go_back_together() -> None:
    server = Server("meeting")
    both = asyncio.Barrier(2)

    @server.tool(annotations=READS)
    async def meet(who: str) -> str:
        async with asyncio.timeout(10):
            await both.wait()
        return f"{who} was there"

    first, second = use("meet", who="Ada"), use("meet", who="Bo")
    model = Says([first, second], "They met.")

    async def work() -> None:
        async with Host({"meeting": server}, policy=FREE) as host:
            chat = Conversation(host, model)
            await turn(chat)
            assert [marked(f"{who} was there", "meet", "meeting") for who in ("Ada", "Bo")] == model.told()

    run(work)


def test_calls_that_change_something_wait_for_each_other() -> None:
    server, running, most = Server("bank"), 0, 0

    @server.tool
    async def pay() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "paid"

    model = Says([use("pay"), use("pay"), use("pay")], "Done.")

    async def work() -> None:
        async with Host({"bank": server}, policy=FREE) as host:
            events = await turn(Conversation(host, model))
            order = [type(event) for event in events if isinstance(event, CallStarted | CallEnded)]
            assert order == [CallStarted, CallEnded] * 3
            assert most == 1

    run(work)


def test_the_model_recovers_from_an_error_result() -> None:
    model = Says([use("roll", sides=0)], [use("roll", sides="six")], [use("role")], [use("roll", sides=6)], "Four.")

    async def work() -> None:
        async with Host({"dice": dice()}, policy=FREE) as host:
            events = await turn(Conversation(host, model))
            answers = [event.answer for event in events if isinstance(event, CallEnded)]
            assert [answer.is_error for answer in answers] == [True, True, True, False]
            assert "a die has at least one side" in answers[0].text
            assert "sides" in answers[1].text
            assert "did you mean 'roll'?" in answers[2].text
            assert events[-1] == TurnEnded("answered", "Four.", Usage())

    run(work)


def test_a_refused_call_is_not_made_and_the_model_is_told() -> None:
    asked: list[Approval] = []

    def refuse(approval: Approval) -> Verdict:
        asked.append(approval)
        return "no"

    model = Says([use("roll", sides=6)], "Then not.")

    async def work() -> None:
        async with Host({"dice": dice()}, approve=refuse) as host:
            events = await turn(Conversation(host, model))
            assert not any(isinstance(event, CallStarted) for event in events)
            ended = next(event for event in events if isinstance(event, CallEnded))
            assert ended.seconds is None
            assert ended.answer.text.startswith("The user refused this call.")
            assert [(each.server, each.tool.name, each.arguments) for each in asked] == [("dice", "roll", {"sides": 6})]

    run(work)


def test_a_server_that_dies_in_a_turn_costs_its_call_only() -> None:
    model = Says([use("die")], [use("roll", sides=6)], [use("evil")], "It is back.")

    async def work() -> None:
        async with Host({"odd": ODD, "dice": dice()}, policy=FREE) as host:
            await turn(Conversation(host, model))
            told = [request.messages[-1] for request in model.requests[1:]]
            answers = [message.answers[0] for message in told if isinstance(message, ToolMessage)]
            assert [answer.is_error for answer in answers] == [True, False, False]
            assert "exit status 9" in answers[0].text
            assert "may have been made all the same" in answers[0].text
            assert answers[1].text == marked("4")

    run(work)


@pytest.mark.parametrize("words", [0, 2])
def test_a_turn_that_is_stopped_while_the_model_speaks_can_go_on(words: int) -> None:
    hold = asyncio.Event()
    parts: list[Any] = [TextDelta(f"w{number} ") for number in range(words)]
    model = Says([*parts, hold, "never"], "Yes.")

    async def work() -> None:
        async with Host({}) as host:
            chat = Conversation(host, model)
            task = asyncio.create_task(turn(chat))
            while not (model.requests and len(parts) == words):
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert model.closed == 1
            assert sendable(chat.messages)
            assert [type(each) for each in chat.messages] == [UserMessage, AssistantMessage][: 2 * bool(words)]
            assert await chat.answer("Still there?") == "Yes."
            assert sendable(chat.messages)

    run(work)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_turn_that_is_stopped_in_a_call_can_go_on(how: str) -> None:
    server, began, told = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool(annotations=READS)
    async def wait(seconds: float) -> str:
        began.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            told.set()
            raise
        return "done"

    calls = [use("wait", seconds=0), use("wait", seconds=60), use("wait", seconds=60)]
    model = Says(["Wait.", *calls], "Yes.")

    async def work() -> None:
        async with Host({"slow": server}, policy=FREE) as host:
            chat = Conversation(host, model)
            if how == "cancel":
                task = asyncio.create_task(turn(chat))
                await began.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                async with aclosing(chat.ask("Go on")) as events:
                    async for event in events:
                        if isinstance(event, CallEnded):
                            break
            await told.wait()
            assert sendable(chat.messages)
            answers = chat.messages[2]
            assert isinstance(answers, ToolMessage)
            assert [answer.id for answer in answers.answers] == [call.id for call in calls]
            assert "stopped" in answers.answers[2].text
            assert await chat.answer("Still there?") == "Yes."

    run(work)


def test_a_turn_that_is_stopped_before_its_calls_can_go_on() -> None:
    async def work() -> None:
        async with Host({}) as host:
            chat = Conversation(host, Says(["Wait.", use("wait"), use("wait")], "Yes."))
            async with aclosing(chat.ask("Go on")) as events:
                async for event in events:
                    if isinstance(event, RoundEnded):
                        break
            assert sendable(chat.messages)
            assert [type(each) for each in chat.messages] == [
                UserMessage,
                AssistantMessage,
                ToolMessage,
                AssistantMessage,
            ]
            assert await chat.answer("Still there?") == "Yes."
            assert sendable(chat.messages)

    run(work)


def test_a_model_that_fails_leaves_the_conversation_as_it_was() -> None:
    model = Says("One.", ModelError("the provider is down", status=503), "Two.")

    async def work() -> None:
        async with Host({}) as host:
            chat = Conversation(host, model)
            await chat.answer("1")
            before = list(chat.messages)
            with pytest.raises(ModelError, match="is down"):
                await chat.answer("2")
            assert chat.messages == before
            assert await chat.answer("2") == "Two."

    run(work)


def test_a_model_that_fails_after_a_call_leaves_what_was_done() -> None:
    model = Says([use("roll", sides=6)], ModelError("the provider is down"), "Four.")

    async def work() -> None:
        async with Host({"dice": dice()}, policy=FREE) as host:
            chat = Conversation(host, model)
            with pytest.raises(ModelError):
                await chat.answer("Roll")
            assert sendable(chat.messages)
            assert await chat.answer("And?") == "Four."
            assert any(isinstance(each, ToolMessage) for each in model.requests[-1].messages)

    run(work)


@pytest.mark.parametrize("kind", [RuntimeError, TimeoutError])
def test_an_approver_that_raises_ends_its_turn(kind: type[Exception]) -> None:
    def confused(approval: Approval) -> Verdict:
        raise kind("no terminal")

    model = Says([use("roll", sides=6)], "Still here.")

    async def work() -> None:
        async with Host({"dice": dice()}, approve=confused) as host:
            chat = Conversation(host, model)
            with pytest.raises(kind, match="no terminal"):
                await chat.answer("Roll")
            assert sendable(chat.messages)
            assert await chat.answer("Hello?") == "Still here."

    run(work)


def test_a_turn_ends_at_its_bound_and_says_which() -> None:
    def forever() -> list[Any]:
        return [[use("roll", sides=6)] for _ in range(9)]

    async def ended(bounds: TurnBounds, **more: Any) -> TurnEnded:
        async with Host({"dice": dice()}, policy=FREE) as host:
            chat = Conversation(host, Says(*forever(), tokens=100), bounds=bounds, **more)
            last = (await turn(chat))[-1]
            assert isinstance(last, TurnEnded)
            assert sendable(chat.messages)
            return last

    async def work() -> None:
        assert await ended(TurnBounds(rounds=3)) == TurnEnded("rounds", "", Usage(300, 0))
        assert await ended(TurnBounds(tokens=150)) == TurnEnded("tokens", "", Usage(200, 0))
        ticks = iter(range(0, 100_000, 10))
        timed = await ended(TurnBounds(seconds=100), clock=lambda: float(next(ticks)))
        assert timed.reason == "seconds"

    run(work)


@pytest.mark.parametrize("reason", ["length", "refused"])
def test_an_answer_that_was_cut_says_so(reason: Any) -> None:
    async def work() -> None:
        async with Host({}) as host:
            events = await turn(Conversation(host, Says(["Once upon", Finished(reason)])))
            assert events[-1] == TurnEnded(reason, "Once upon", Usage())

    run(work)


def test_the_time_in_which_the_person_thinks_does_not_count() -> None:
    now = 0.0

    async def think(approval: Approval) -> Verdict:
        nonlocal now
        await asyncio.sleep(0.2)  # longer than the least wait: the turn looks at its time meanwhile
        now += 5000.0
        return "once"

    model = Says([use("roll", sides=6)], "Four.")

    async def work() -> None:
        async with Host({"dice": dice()}, approve=think) as host:
            host.user_lock._clock = lambda: now  # type: ignore[attr-defined]
            chat = Conversation(host, model, bounds=TurnBounds(seconds=0.1), clock=lambda: now)
            assert await chat.answer("Roll") == "Four."

    run(work)


def test_progress_is_told_while_a_call_runs() -> None:
    from linkspan import Context

    server = Server("work")

    @server.tool
    async def pack(ctx: Context) -> str:
        ctx.progress(1, total=2, message="packing")
        return "packed"

    async def work() -> None:
        async with Host({"work": server}, policy=FREE) as host:
            events = await turn(Conversation(host, Says([use("pack")], "Packed.")))
            told = [event.progress for event in events if isinstance(event, CallProgressed)]
            assert [(each.progress, each.total, each.message) for each in told] == [(1, 2, "packing")]

    run(work)


def test_a_conversation_can_be_saved_and_gone_on_with(tmp_path: Path) -> None:
    async def work() -> None:
        async with Host({"dice": dice()}, policy=FREE) as host:
            chat = Conversation(host, Says([use("roll", sides=6)], "Four."))
            await chat.answer("Roll")
            chat.save(tmp_path / "chat.json")
            other = Conversation(host, Says("Again four."))
            other.load(tmp_path / "chat.json")
            assert other.messages == chat.messages
            assert await other.answer("And now?") == "Again four."

    run(work)


def test_a_conversation_with_half_a_character_can_be_saved(tmp_path: Path) -> None:
    async def work() -> None:
        async with Host({}) as host:
            chat, other = Conversation(host, Says()), Conversation(host, Says())
            chat.messages = [UserMessage([Text("caf\u00e9 \udcff")])]
            chat.save(tmp_path / "chat.json")
            assert "caf\u00e9 \\udcff" in (tmp_path / "chat.json").read_text("utf-8")
            other.load(tmp_path / "chat.json")
            assert other.messages == chat.messages

    run(work)


def test_of_five_servers_one_never_starts_and_one_dies_and_the_rest_goes_on() -> None:
    silent = [*ODD, "silent"]
    servers: dict[str, Any] = {
        "silent": silent,
        "missing": ["no-such-command-anywhere"],
        "unset": {"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE_ANYWHERE}"}},
        "odd": ODD,
        "dice": dice(),
    }
    model = Says([use("die")], [use("roll", sides=6)], "Four.")

    async def work() -> None:
        timeouts = Timeouts(connect=6.0, probe=0.5)
        async with Host(servers, policy=FREE, timeouts=timeouts) as host:
            states = {each.server: each.state for each in host.status()}
            assert states == {
                "silent": "failed",
                "missing": "failed",
                "unset": "failed",
                "odd": "connected",
                "dice": "connected",
            }
            assert "NO_SUCH_VARIABLE_ANYWHERE" in str({each.server: each for each in host.status()}["unset"])
            began = asyncio.get_running_loop().time()
            chat = Conversation(host, model)
            assert await chat.answer("Roll") == "Four."
            assert asyncio.get_running_loop().time() - began < 5.0, "nobody waits again for a server that failed"
            assert "cannot be reached now" in (model.requests[0].system or "")
            assert "silent, missing, unset" in (model.requests[0].system or "")

    run(work)
