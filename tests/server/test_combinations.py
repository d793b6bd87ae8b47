"""Everything that can stand around a tool, in every combination: what each does alone it does beside the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Annotated, Any

import pytest

from linkspan import Depends, Server, SyncClient

KINDS = ("def", "inline", "async")
DEPENDENCIES = (None, "plain", "generator", "async")
MIDDLEWARE = (None, "generator", "async")
LIFESPANS = (None, "plain", "async")
CONDITIONS = (None, "plain", "async")
TIMEOUTS = (None, 30.0)


class Pool:
    """What a lifespan opens."""

    def __init__(self) -> None:
        self.number = 1


def dependency(kind: str | None, log: list[str]) -> Any:
    def plain() -> int:
        return 10

    def generator() -> Iterator[int]:
        yield 10
        log.append("cleaned up")

    async def later() -> int:
        await asyncio.sleep(0)
        return 10

    return {None: None, "plain": plain, "generator": generator, "async": later}[kind]


def surround(server: Server, kind: str | None, log: list[str]) -> None:
    def plain(call: Any) -> Any:
        result = yield
        log.append("seen")
        return result

    async def later(call: Any, call_next: Any) -> Any:
        result = await call_next()
        log.append("seen")
        return result

    if kind is not None:
        server.middleware(only=["tools/call"])({"generator": plain, "async": later}[kind])


def live(server: Server, kind: str | None, log: list[str]) -> None:
    def plain() -> Iterator[Pool]:
        yield Pool()
        log.append("closed")

    async def later() -> AsyncIterator[Pool]:
        yield Pool()
        log.append("closed")

    if kind is not None:
        server.lifespan({"plain": plain, "async": later}[kind])


def condition(kind: str | None) -> Any:
    async def later() -> bool:
        return True

    return {None: None, "plain": lambda: True, "async": later}[kind]


def made(kind: str, needs: str | None, around: str | None, span: str | None, shown: str | None, timeout: Any) -> Any:
    """Return a server with one tool, what the tool must answer, and the log of what stood around it."""
    log: list[str] = []
    server = Server("combination")
    surround(server, around, log)
    live(server, span, log)
    provider, pool = dependency(needs, log), Pool if span is not None else None
    hints: dict[str, Any] = {"number": int}
    if provider is not None:
        hints["ten"] = Annotated[int, Depends(provider)]
    if pool is not None:
        hints["pool"] = Pool

    def total(number: int, ten: int = 0, pool: Pool | None = None) -> int:
        return number + ten + (pool.number if pool is not None else 0)

    names = ", ".join(hints)
    body = f"({names}): return total({', '.join(f'{each}={each}' for each in hints)})"
    scope: dict[str, Any] = {"total": total}
    exec(f"{'async ' if kind == 'async' else ''}def tool{body}", scope)
    tool = scope["tool"]
    tool.__annotations__ = hints | {"return": int}
    server.tool(name="tool", inline=kind == "inline", timeout=timeout, when=condition(shown))(tool)
    expected = 100 + (10 if needs is not None else 0) + (1 if span is not None else 0)
    logged = [*(["cleaned up"] if needs == "generator" else []), *(["seen"] if around is not None else [])]
    return server, expected, log, logged


@pytest.mark.parametrize("span", LIFESPANS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_combination_answers_and_leaves_nothing_open(kind: str, span: str | None) -> None:
    for needs, around, shown, timeout in product(DEPENDENCIES, MIDDLEWARE, CONDITIONS, TIMEOUTS):
        if kind == "inline" and timeout is not None:
            continue  # what runs where the transport is cannot be timed; it is refused
        server, expected, log, logged = made(kind, needs, around, span, shown, timeout)
        combination = (kind, needs, around, span, shown, timeout)
        with SyncClient(server) as client:
            assert [each.name for each in client.list_tools()] == ["tool"], combination
            assert client.call_tool("tool", {"number": 100}).structured == {"result": expected}, combination
            assert log == logged, combination
        assert log == [*logged, *(["closed"] if span is not None else [])], combination


@pytest.mark.parametrize("span", LIFESPANS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_combination_answers_without_a_transport(kind: str, span: str | None) -> None:
    for needs, around, shown, timeout in product(DEPENDENCIES, MIDDLEWARE, CONDITIONS, TIMEOUTS):
        if kind == "inline" and timeout is not None:
            continue
        server, expected, log, logged = made(kind, needs, around, span, shown, timeout)
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tool"}}
        request["params"]["arguments"] = {"number": 100}  # type: ignore[index]
        answer = server.handle(request)
        assert answer["result"]["structuredContent"] == {"result": expected}, (kind, needs, around, span, shown)
        assert log[: len(logged)] == logged
