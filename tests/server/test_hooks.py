"""Hooks of an application may raise anything: answers stay the same, and the connection lives."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from linkspan import Configuration, Context, Server
from linkspan.serve.memory import MemoryTransport

ERRORS = [RuntimeError("hook"), SystemExit(2), asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt()]
HOOKS = ["instrumentation_callback", "exception_reporter", "around_request"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def raising(error: BaseException) -> Any:
    def hook(*_: object) -> NoReturn:
        raise error

    return hook


def serve(**options: Any) -> Server:
    server = Server(**options)

    @server.tool
    def plain(ctx: Context) -> str:
        raise ValueError("secret")

    @server.tool
    async def coroutine(ctx: Context) -> str:
        raise ValueError("secret")

    @server.tool(inline=True)
    def inline(ctx: Context) -> str:
        raise ValueError("secret")

    return server


def ask(pipe: MemoryTransport, number: int, name: str) -> Any:
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}
    pipe.send(json.dumps(request).encode() + b"\n")
    return json.loads(pipe.receive(10))


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_calls_are_answered_whatever_a_hook_raises(hook: str, error: BaseException) -> None:
    server = serve(configuration=Configuration(**{hook: raising(error)}))
    with MemoryTransport(server, max_workers=1) as pipe:
        for number, name in enumerate(("plain", "coroutine", "inline", "plain"), 1):
            answer = ask(pipe, number, name)
            assert (answer["id"], answer["result"]["isError"]) == (number, True)


@pytest.mark.parametrize("error", ERRORS[:-1], ids=repr)
def test_calls_are_answered_whatever_a_server_context_raises(error: BaseException) -> None:
    with MemoryTransport(serve(server_context=raising(error))) as pipe:
        for number, name in enumerate(("plain", "coroutine", "inline"), 1):
            assert ask(pipe, number, name)["id"] == number
