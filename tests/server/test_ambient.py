"""`current_context`: right wherever the code runs that a handler calls, and free for servers that do not use it."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from linkspan import Call, Client, Context, Depends, Server, SyncClient, current_context
from linkspan.server.ambient import run_with


@pytest.fixture(autouse=True)
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls carry their context here, whatever other tests have done."""
    monkeypatch.setattr(Context, "ambient", run_with)


def who() -> str:
    return str(current_context().request_id)


def ambient_server() -> Server:
    server = Server("ambient")

    @server.tool
    def plain() -> str:
        return who()

    @server.tool(inline=True)
    def inline() -> str:
        return who()

    @server.tool
    async def later() -> str:
        before = who()
        await asyncio.sleep(0)
        in_thread = await asyncio.to_thread(who)

        async def inner() -> str:
            await asyncio.sleep(0)
            return who()

        in_task = await asyncio.create_task(inner())
        assert before == in_thread == in_task
        return before

    @server.tool
    def own_thread() -> str:
        found: list[str] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: found.append(context.run(who)))
        thread.start()
        thread.join()
        return found[0]

    @server.tool
    def bare_thread() -> str:
        found: list[str] = []

        def look() -> None:
            try:
                who()
            except RuntimeError as error:
                found.append(str(error))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0]

    def dependency() -> str:
        return who()

    @server.tool
    def depends(value: str = Depends(dependency)) -> str:
        return value

    @server.tool(timeout=5)
    def limited() -> str:
        return who()

    return server


TOOLS = ["plain", "inline", "later", "own_thread", "depends", "limited"]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_context_is_that_of_the_call(tool: str) -> None:
    server = ambient_server()
    for number in (7, 8):
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool}}
        assert server.handle(request)["result"]["content"][0]["text"] == str(number)
    with SyncClient(server) as client:
        assert client.call_tool(tool).text.isdigit()

    async def main() -> None:
        async with Client(server) as client:
            texts = [each.text for each in await asyncio.gather(*(client.call_tool(tool) for _ in range(5)))]
            assert len(set(texts)) == 5
            assert all(text.isdigit() for text in texts)

    asyncio.run(main())
    with pytest.raises(RuntimeError):
        current_context()


def test_outside_a_call_one_line_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"^current_context\(\) .*copy_context\(\)\.run.*$"):
        current_context()
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bare_thread"}}
    assert "copy_context().run" in ambient_server().handle(request)["result"]["content"][0]["text"]


def test_middleware_and_conditions_have_it_too() -> None:
    server = Server("ambient")
    seen: list[str] = []

    @server.middleware
    def watch(call: Call) -> Iterator[None]:
        seen.append(f"in {who()}")
        yield
        seen.append(f"out {who()}")

    @server.tool(when=lambda: seen.append(f"when {who()}") is None)
    def plain() -> str:
        seen.append(f"run {who()}")
        return "ok"

    server.handle({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "plain"}})
    assert seen == ["when 5", "in 5", "run 5", "out 5"]


def test_a_question_asked_by_the_way_is_the_calls() -> None:
    server = Server("ambient", request_state_keys=["a key for tests that is long enough"])

    @server.tool
    def order() -> str:
        return f"for {current_context().ask('who', str, 'For whom?')}"

    with SyncClient(server, elicitation=lambda _: {"who": "Ann"}) as client:
        assert client.call_tool("order").text == "for Ann"


def test_servers_that_do_not_use_it_do_not_load_it() -> None:
    code = """
import sys, linkspan
server = linkspan.Server()
@server.tool
def add(a: int, b: int) -> int: return a + b
server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}})
assert "linkspan.server.ambient" not in sys.modules
assert linkspan.Context.ambient is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)
