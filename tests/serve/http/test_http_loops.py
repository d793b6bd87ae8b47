"""One ASGI callable on two event loops at the same time: neither disturbs what waits on the other. H5-7."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http_talk import body, mirror

from linkspan import Server
from linkspan.core.call import Delivery, Ports
from linkspan.core.http_checks import HttpPolicy
from linkspan.runtime.calls import CallRunner
from linkspan.serve.asgi import AsgiApp, _Timers  # pyright: ignore[reportPrivateUsage]
from linkspan.wire.jsonrpc import RpcRequest, decode

Message = dict[str, Any]


def ask(app: AsgiApp, tool: str, receive: Callable[[], Awaitable[Message]], sent: list[Message]) -> Awaitable[None]:
    """Send a modern call, whose client is heard with `receive`."""
    request = body("tools/call", {"name": tool, "arguments": {}})
    headers = {**mirror(request), "content-type": "application/json", "host": "localhost"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    return app(scope, receive, send)


def ask_on_another_loop(app: AsgiApp) -> int:
    """Ask on a loop of its own; return the status."""
    request = json.dumps(body("tools/call", {"name": "quick", "arguments": {}})).encode()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": request}

    async def run() -> None:
        await ask(app, "quick", receive, sent)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    status: int = sent[0]["status"]
    return status


def an_app() -> tuple[AsgiApp, list[str]]:
    server, seen = Server("desk"), list[str]()

    @server.tool
    async def hold() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "held"

    @server.tool
    async def quick() -> str:
        return "done"

    @server.tool
    async def where() -> str:
        return threading.current_thread().name

    @server.tool(name="where_later")
    def later() -> Any:
        return where()

    return server.asgi(), seen


def test_who_goes_away_is_seen_though_another_loop_serves_too() -> None:
    app, seen = an_app()
    request = json.dumps(body("tools/call", {"name": "hold", "arguments": {}})).encode()

    async def run() -> None:
        first = [request]

        async def receive() -> Message:
            if first:
                return {"type": "http.request", "body": first.pop()}
            return {"type": "http.disconnect"}

        asking = asyncio.ensure_future(ask(app, "hold", receive, []))
        await asyncio.sleep(0)  # it is being served, and looked at in a moment
        assert ask_on_another_loop(app) == 200
        await asking

    asyncio.run(run())
    assert seen == ["cancelled"]


def test_a_server_that_cancels_a_request_is_obeyed_though_another_loop_serves_too() -> None:
    app, _ = an_app()
    sent: list[Message] = []

    async def run() -> bool:
        async def receive() -> Message:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        asking = asyncio.ensure_future(ask(app, "hold", receive, sent))
        await asyncio.sleep(0)
        assert ask_on_another_loop(app) == 200
        asking.cancel()
        await asyncio.wait([asking])
        return asking.cancelled()

    assert asyncio.run(run())
    assert sent == []


@pytest.mark.parametrize("tool", ["where", "where_later"])
def test_an_async_function_runs_on_the_loop_of_its_request_though_another_loop_serves_too(tool: str) -> None:
    app, _ = an_app()
    sent: list[Message] = []
    request = json.dumps(body("tools/call", {"name": tool, "arguments": {}})).encode()

    async def receive() -> Message:
        assert ask_on_another_loop(app) == 200  # and that one is closed by now
        return {"type": "http.request", "body": request}

    async def run() -> None:
        await ask(app, tool, receive, sent)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="of the request")
    thread.start()
    thread.join(60)
    found = json.loads(sent[1]["body"])["result"]
    assert found["content"][0]["text"] == "of the request", found


def test_loops_that_were_closed_are_not_kept() -> None:
    app, _ = an_app()
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        request = json.dumps(body("tools/call", {"name": "quick", "arguments": {}})).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": request}

        await ask(app, "quick", receive, [])

    for _ in range(5):
        asyncio.run(run())
    gc.collect()
    assert [each() for each in loops[:-1]] == [None] * 4


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="tasks are eager from Python 3.12 on")
def test_an_eager_task_that_ends_at_once_answers() -> None:
    app, _ = an_app()
    sent: list[Message] = []

    async def run() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        request = json.dumps(body("tools/call", {"name": "quick", "arguments": {}})).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": request}

        await asyncio.wait_for(ask(app, "quick", receive, sent), 60)

    asyncio.run(run())
    assert sent[0]["status"] == 200


def test_a_call_whose_loop_was_closed_ends() -> None:
    """A thread may return an awaitable when no loop is left to run it: the request must not count as running for ever."""
    loop = asyncio.new_event_loop()
    server = Server("loops")

    async def awaited() -> str:
        return "never"

    @server.tool
    def later() -> Any:
        loop.close()
        return awaited()

    sent: list[Delivery] = []
    connection = server.connect(ports=Ports(threading.RLock(), send=sent.append))
    calls = CallRunner(lambda: loop, share=HttpPolicy().share)
    request = decode(json.dumps(body("tools/call", {"name": "later", "arguments": {}})).encode(), connection.limits)
    assert isinstance(request, RpcRequest)
    calls.perform(connection, connection.receive(request))
    deadline = time.monotonic() + 60
    while connection.running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert connection.running == 0
    assert [each.final for each in sent] == [True]


class Bare:
    """The handle of a timer that tells nothing, as uvloop's for a time that has come."""

    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self.cancel = handle.cancel


def test_a_loop_whose_timers_do_not_know_their_time_serves() -> None:
    app = Server("loops").asgi(body_timeout=5.0)
    sent: list[list[Message]] = [[], []]
    request = json.dumps(body("tools/list", {})).encode()

    async def run() -> None:
        loop: Any = asyncio.get_running_loop()
        really = loop.call_at
        loop.call_at = lambda when, act, *arguments: Bare(really(when, act, *arguments))
        arrived = asyncio.Event()

        async def late() -> Message:
            await arrived.wait()
            return {"type": "http.request", "body": request}

        async def at_once() -> Message:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": request}

        first = asyncio.ensure_future(ask(app, "quick", late, sent[0]))
        await asyncio.sleep(0)
        await ask(app, "quick", at_once, sent[1])
        arrived.set()
        await first

    asyncio.run(run())
    assert [messages[0]["type"] for messages in sent] == ["http.response.start"] * 2


def test_a_timer_function_that_raises_does_not_stop_the_others() -> None:
    loop = asyncio.new_event_loop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    timers = _Timers(Server("loops").asgi(), loop)

    class Due:
        def __init__(self, act: Callable[[], object]) -> None:
            self.on_time = act

    def fail() -> None:
        raise ValueError("a mistake")

    timers.after(0.0, Due(fail))
    timers.after(0.0, Due(loop.stop))
    loop.call_later(60.0, loop.stop)
    begun = time.monotonic()
    loop.run_forever()
    loop.close()
    assert [type(each) for each in reported] == [ValueError]
    assert time.monotonic() - begun < 30.0
