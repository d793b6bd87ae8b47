"""What many threads of a WSGI server do to one endpoint at the same time."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from linkspan import HttpPolicy, Server
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.revisions.neutral import NO_FACTS, TransportInfo
from linkspan.runtime.system import SYSTEM
from linkspan.serve.http import make_endpoint
from linkspan.server.asking import Rounds
from linkspan.server.configuration import Profile
from linkspan.server.request_state import RequestStateKeys
from linkspan.types.base import Implementation


@pytest.fixture(autouse=True)
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], object]) -> None:
    """Run each work in a thread of its own; raise what the first that failed raised."""
    problems: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def post(endpoint: Endpoint, method: str, params: object = None, facts: TransportInfo = NO_FACTS) -> Opened:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    headers = {"accept": "application/json, text/event-stream"}
    return endpoint.open("POST", "http://here/mcp", headers, json.dumps(body).encode(), facts)


def worker(**policy: object) -> Endpoint:
    server = Server("worker")
    server.define_tool("work", handler=lambda: "done")
    return make_endpoint(server, HttpPolicy(**policy))  # type: ignore[arg-type]


def test_calls_are_orphaned_while_another_thread_looks_for_those_that_ended() -> None:
    endpoint = worker(sessions=False)
    stop = threading.Event()

    def leave() -> None:
        try:
            for _ in range(400):
                endpoint.disconnect(post(endpoint, "tools/call", {"name": "work", "arguments": {}}))
        finally:
            stop.set()

    def look() -> None:
        while not stop.is_set():
            endpoint.tick(0.0)

    together(leave, leave, look)
    assert len(endpoint.streams) == 800


def test_threads_that_need_the_first_sealing_key_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    make = RequestStateKeys.ephemeral

    def made_by_both(random: Callable[[int], bytes]) -> RequestStateKeys:
        both.wait(60)
        return make(random)

    monkeypatch.setattr(RequestStateKeys, "ephemeral", made_by_both)
    profile = Profile(Implementation("x", "1"))
    rounds = Rounds(profile, SYSTEM)
    keys: list[RequestStateKeys] = []
    together(*[lambda: keys.append(rounds.keys())] * 2)
    assert keys[0] is keys[1] is rounds.keys()
