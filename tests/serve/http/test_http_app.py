"""What the callables of web servers share, where the timing matters: requests that are taken in slowly, and the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from http_faces import Asgi, Http
from http_talk import BOTH
from http_world import World

from linkspan import Server
from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.runtime.calls import CallRunner
from linkspan.serve.asgi import AsgiApp
from linkspan.serve.http import make_endpoint
from linkspan.serve.http_protocol import DirectApp, EndpointProtocol


@pytest.mark.parametrize("face", [Asgi, Http])
def test_a_client_that_leaves_while_its_request_is_taken_in_cancels_nothing(
    face: type[Asgi | Http], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that waits for the store cannot be stopped: the call of a session runs, and leaves nothing behind."""
    world = World()
    served = face(world.server, require_session=False)
    begun, go, left = threading.Event(), threading.Event(), threading.Event()
    take_in: Callable[..., Opened] = served.endpoint.open
    lose = EndpointProtocol.connection_lost

    def take_in_slowly(*request: Any, **more: Any) -> Opened:
        begun.set()
        go.wait(60)
        return take_in(*request, **more)

    def lose_noted(connection: EndpointProtocol, problem: Exception | None) -> None:
        lose(connection, problem)
        left.set()

    monkeypatch.setattr(EndpointProtocol, "connection_lost", lose_noted)
    monkeypatch.setattr(served.endpoint, "open", take_in_slowly)
    monkeypatch.setattr(served.app, "slow", SimpleNamespace(may_wait=lambda *_: True))
    params = {"name": "hold", "arguments": {}}
    live = served.open("POST", {"accept": BOTH}, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert begun.wait(60)
    if isinstance(served, Http):
        live.close()
        assert left.wait(60)
    else:
        served.until(lambda: live.task is not None)
        served.loop.loop.call_soon_threadsafe(live.task.cancel)  # type: ignore[union-attr]
    go.set()
    world.wait_for("holding")
    world.let_go.set()
    served.until(lambda: served.app.tick(time.monotonic()) is False)
    assert len(served.endpoint.streams) == 0
    assert world.seen == ["holding"]
    served.stop()


class _Background:
    """What a server does besides answering, as a list of what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def attach(self, user: CallRunner, loop: Callable[[], object]) -> None:
        self.asked.append(("attach", user))

    def drain(self, user: CallRunner) -> None:
        self.asked.append(("drain", user))

    def leave(self, user: CallRunner, within: float, cleanup: float) -> None:
        self.asked.append(("leave", user, within, cleanup))


def test_a_server_that_stops_begins_no_more_tasks_and_leaves_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    app: AsgiApp = World().server.asgi(cleanup=3.0)
    background = _Background()
    monkeypatch.setattr(Endpoint, "background", background)

    async def main() -> None:
        await app.enter()
        app.drain()
        await app.leave(7.0)

    asyncio.run(main())
    assert background.asked == [("attach", app.calls), ("drain", app.calls), ("leave", app.calls, 7.0, 3.0)]


def test_what_other_processes_send_is_performed_on_the_loop_that_serves() -> None:
    app, done = DirectApp(make_endpoint(Server("desk"), HttpPolicy())), list[object]()
    app.call_soon(lambda: done.append("before there is a loop"))

    async def main() -> None:
        app.serve_on(asyncio.get_running_loop())
        await asyncio.to_thread(app.call_soon, lambda: done.append(threading.get_ident()))
        async with asyncio.timeout(60):
            while not done:
                await asyncio.sleep(0.005)
        assert done == [threading.get_ident()]

    asyncio.run(main())
    app.call_soon(lambda: done.append("after its end"))
    assert len(done) == 1
