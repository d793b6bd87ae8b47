"""The middleware that comes with the library."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from linkspan import (
    Ask,
    Audit,
    ErrorMap,
    RateLimit,
    ResultLimit,
    Server,
    SyncClient,
    TextContent,
    ToolError,
    ToolResponse,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def call(server: Server, name: str, **arguments: Any) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return server.handle(request)["result"]


def text(server: Server, name: str, **arguments: Any) -> str:
    found: str = call(server, name, **arguments)["content"][0]["text"]
    return found


class TestRateLimit:
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def server(self, clock: Clock) -> Server:
        server = Server("shop")
        server.middleware(only=["tools/call"])(RateLimit(2, per=60, clock=clock))

        @server.tool
        def one() -> str:
            return "one"

        @server.tool
        async def two() -> str:
            return "two"

        return server

    def test_it_allows_as_many_calls_as_it_says_and_then_says_when(self, server: Server, clock: Clock) -> None:
        assert [text(server, "one") for _ in range(2)] == ["one", "one"]
        refused = call(server, "one")
        assert refused["isError"]
        assert refused["content"][0]["text"] == "Too many calls of one: at most 2 calls in 60 s (try again in 30 s)"
        assert refused["_meta"]["linkspan/retryAfter"] == 30
        clock.now += 29.9
        assert call(server, "one")["isError"]
        clock.now += 0.1
        assert text(server, "one") == "one"
        assert call(server, "one")["isError"]
        clock.now += 60
        assert [text(server, "one") for _ in range(2)] == ["one", "one"]

    def test_tools_are_counted_apart(self, server: Server) -> None:
        assert [text(server, "one") for _ in range(2)] == ["one", "one"]
        assert [text(server, "two") for _ in range(2)] == ["two", "two"]
        assert call(server, "two")["isError"]

    def test_another_key_counts_together(self, clock: Clock) -> None:
        server = Server("shop")
        server.middleware(only=["tools/call"])(RateLimit(1, key=lambda call: call.method, clock=clock))
        for name in ("one", "two"):
            server.define_tool(name, handler=lambda: "done")
        assert text(server, "one") == "done"
        assert call(server, "two")["isError"]

    def test_a_call_with_questions_counts_when_it_begins_and_when_it_ends(self, clock: Clock) -> None:
        server = Server("shop")
        server.middleware(only=["tools/call"])(RateLimit(2, clock=clock))

        @server.tool
        def book(seats: Annotated[int, Ask("How many?")]) -> int:
            return seats

        with SyncClient(server, elicitation=lambda _: {"seats": 2}) as client:
            assert client.call_tool("book").text == "2"
            assert client.call_tool("book").is_error

    def test_the_ends_of_calls_have_twice_the_time(self, clock: Clock) -> None:
        """So that a call which was let in can end; what a client replays is refused all the same."""
        limit = RateLimit(1, per=60, key=lambda call: "one", clock=clock)

        def end(number: int) -> None:
            steps: Any = limit(SimpleNamespace(round=number, name="book", method="tools/call"))  # type: ignore[arg-type]
            next(steps)
            with suppress(StopIteration):
                steps.send("outcome")

        end(1)
        end(2)
        with pytest.raises(ToolError, match="Too many calls of book") as refused:
            end(2)
        assert refused.value.retry_after == 60
        with pytest.raises(ToolError):
            end(1)
        clock.now += 60
        end(3)

    def test_threads_share_the_count(self, clock: Clock) -> None:
        server = Server("shop")
        server.middleware(only=["tools/call"])(RateLimit(20, clock=clock))
        server.define_tool("one", handler=lambda: "done")
        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda: answers.extend(text(server, "one") for _ in range(10))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers.count("done") == 20
        assert len(answers) == 80

    def test_old_callers_are_forgotten(self, clock: Clock) -> None:
        names = iter(range(20_000))
        limit = RateLimit(1, per=1, key=lambda _: next(names), clock=clock)
        server = Server("shop")
        server.middleware(only=["tools/call"])(limit)
        server.define_tool("one", handler=lambda: "done")
        for _ in range(10_001):
            clock.now += 0.001
            call(server, "one")
        assert len(limit._used_until) <= 1_002

    def processes(self, tmp_path: Path, limit: Callable[[], RateLimit] = lambda: RateLimit(2)) -> list[Server]:
        servers: list[Server] = []
        for _ in range(2):
            servers.append(server := Server("shop", store=f"sqlite://{tmp_path / 'store.db'}"))
            server.middleware(only=["tools/call"])(limit())
            server.define_tool("one", handler=lambda: "done")

            @server.tool
            async def two() -> str:
                return "two"

        return servers

    def test_processes_with_a_store_count_together(self, tmp_path: Path) -> None:
        first, second = self.processes(tmp_path)
        assert [text(each, "one") for each in (first, second)] == ["done", "done"]
        for each in (first, second):
            refused = call(each, "one")
            assert refused["content"][0]["text"].startswith(
                "Too many calls of one: at most 2 calls in 60 s (try again in "
            )
            assert 0 < refused["_meta"]["linkspan/retryAfter"] <= 30
        assert [text(each, "two") for each in (second, first)] == ["two", "two"]
        assert call(first, "two")["isError"]

    def test_limits_of_one_server_are_apart(self, tmp_path: Path) -> None:
        first, second = self.processes(tmp_path)
        for each in (first, second):
            each.middleware(only=["tools/call"])(RateLimit(3, per=3600))
        assert [text(each, "one") for each in (first, second)] == ["done", "done"]

    def test_while_the_store_fails_each_process_counts_for_itself(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (server, _) = self.processes(tmp_path)
        server.store.close()
        assert [text(server, "one") for _ in range(2)] == ["done", "done"]
        assert call(server, "one")["isError"]
        assert caplog.text.count("counts within each process") == 1

    @pytest.mark.parametrize(("calls", "per"), [(0, 60.0), (1, 0.0)])
    def test_a_limit_that_allows_nothing_is_refused(self, calls: int, per: float) -> None:
        with pytest.raises(ValueError, match="at least one call"):
            RateLimit(calls, per=per)


class TestResultLimit:
    @pytest.fixture
    def server(self) -> Server:
        server = Server("shop", structured_text=False)
        server.middleware(only=["tools/call"])(ResultLimit(bytes=100))

        @server.tool
        def long(length: int) -> str:
            return "ä" * length

        @server.tool
        def numbers(length: int) -> list[int]:
            return [7] * length

        @server.tool
        def blocks() -> ToolResponse:
            return ToolResponse([TextContent("a" * 60), TextContent("b" * 60), TextContent("c" * 60)])

        return server

    def test_a_short_result_stays(self, server: Server) -> None:
        assert text(server, "long", length=50) == "ä" * 50

    def test_a_long_text_is_cut_and_the_cut_is_stated(self, server: Server) -> None:
        kept, note = call(server, "long", length=51)["content"]
        assert kept["text"] == "ä" * 50
        assert note["text"] == "[2 of 102 bytes were left out: the limit is 100; ask for less]"

    def test_blocks_share_the_limit(self, server: Server) -> None:
        *kept, note = call(server, "blocks")["content"]
        assert "".join(each["text"] for each in kept) == "a" * 60 + "b" * 40
        assert note["text"].startswith("[80 of 180 bytes were left out")

    def test_a_structured_result_becomes_an_error(self, server: Server) -> None:
        result = call(server, "numbers", length=1000)
        assert result["isError"]
        assert "structuredContent" not in result
        assert result["content"][0]["text"].startswith("The result has 20")

    def test_tokens_are_four_bytes(self) -> None:
        server = Server("shop", structured_text=False)
        server.middleware(ResultLimit(tokens=2))
        server.define_tool("long", handler=lambda: "123456789")
        assert text(server, "long") == "12345678"

    def test_it_takes_one_limit(self) -> None:
        for limits in ({}, {"bytes": 1, "tokens": 1}):
            with pytest.raises(TypeError, match=r"bytes=\.\.\. or tokens="):
                ResultLimit(**limits)


class TestAudit:
    @pytest.fixture(autouse=True)
    def _at_info(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "linkspan.audit")

    def test_it_logs_who_called_what_with_which_outcome(self, caplog: pytest.LogCaptureFixture) -> None:
        server = Server("shop")
        server.middleware(only=["tools/call"])(Audit())

        @server.tool
        def divide(a: int, b: int) -> float:
            return a / b

        with SyncClient(server) as client:
            client.call_tool("divide", {"a": 1, "b": 2})
            client.call_tool("divide", {"a": "x", "b": 2})
            client.call_tool("divide", {"a": 1, "b": 0})
        found: list[Any] = [each for each in caplog.records if each.name == "linkspan.audit"]
        assert [each.outcome for each in found] == ["ok", "error", "ZeroDivisionError"]
        assert {each.target for each in found} == {"divide"}
        assert {each.client for each in found} == {"linkspan"}
        assert all(each.duration >= 0 and not hasattr(each, "arguments") for each in found)

    def test_rounds_in_between_are_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        server = Server("shop")
        server.middleware(only=["tools/call"])(Audit(arguments=True))

        @server.tool
        def book(a: int, seats: Annotated[int, Ask("How many?")], why: Annotated[str, Ask("Why?")]) -> int:
            return seats

        with SyncClient(
            server, elicitation=lambda asked: {"seats": 2} if "many" in asked.message else {"why": "fun"}
        ) as client:
            client.call_tool("book", {"a": 1})
        found: list[Any] = [each for each in caplog.records if each.name == "linkspan.audit"]
        assert [each.outcome for each in found] == ["asked", "ok"]
        assert found[0].arguments == {"a": 1}


class TestErrorMap:
    def test_an_exception_has_words(self) -> None:
        class Refused(Exception):
            status = 503

        server = Server("shop")
        server.middleware(ErrorMap({Refused: "The service answered {e.status}", ValueError: "Not a number: {e}"}))

        @server.tool
        def fetch() -> None:
            raise Refused

        @server.tool
        async def parse(text: str) -> int:
            return int(text)

        @server.tool
        def other() -> None:
            raise KeyError("secret")

        assert text(server, "fetch") == "The service answered 503"
        assert text(server, "parse", text="x").startswith("Not a number: invalid literal")
        assert "Internal error" in text(server, "other")
