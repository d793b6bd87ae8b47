"""A server with tasks of all kinds, whose processes `soak_tasks.py` and `soak_deploys.py` kill.

Each body notes in a file that it begins. STORE is the URL of its store, JOURNAL the file, ENGINE the engine that runs the tasks
(none if it is empty), and ATTEMPTS how many runs a task may lose. RELEASE is "old" or "new" (the default): the new one has a tool
more, and one that takes an argument more.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from linkspan import Context, Server, Task
from linkspan.types.messages import ToolAnnotations


def dramatiq(url: str) -> Any:
    from dramatiq.brokers.redis import RedisBroker

    from linkspan.engines import Dramatiq

    return Dramatiq(RedisBroker(url=url, namespace="jobs"))


def procrastinate(url: str) -> Any:
    from procrastinate import App, PsycopgConnector

    from linkspan.engines import Procrastinate

    return Procrastinate(App(connector=PsycopgConnector(conninfo=url)))


def celery(url: str) -> Any:
    from celery import Celery as App  # type: ignore[import-untyped]

    from linkspan.engines import Celery

    app = App(broker=url, set_as_current=False)
    app.conf.worker_prefetch_multiplier = 1
    return Celery(app)


def docket(url: str) -> Any:
    from linkspan.engines import Docket

    return Docket(url, name="jobs")


ENGINES: dict[str, Callable[[str], Any]] = {
    "": lambda _: None,
    "dramatiq": dramatiq,
    "procrastinate": procrastinate,
    "celery": celery,
    "docket": docket,
}


def work(number: int, seconds: float) -> str:
    note(number)
    time.sleep(seconds)
    return f"done {number}"


def work_with_a_note(number: int, seconds: float, note: str = "") -> str:
    return work(number, seconds) + note


async def work_on_loop(number: int, seconds: float) -> str:
    note(number)
    await asyncio.sleep(seconds)
    return f"done {number}"


def ask(number: int, seconds: float, ctx: Context) -> str:
    note(number)
    time.sleep(seconds / 2)
    return f"done {ctx.ask('number', int, 'Which number?')}"


async def rest(number: int, seconds: float) -> str:
    note(number)
    await asyncio.sleep(600 + seconds)
    return f"done {number}"


def note(number: int) -> None:
    os.write(journal, f"{number}\n".encode())


def make(store: str, engine: str) -> Server:
    """Make the server with a tool of each kind."""
    room = int(os.environ.get("ROOM", "16" if engine else "100"))  # an engine's workers fetch more than they run
    keys = ["a key for soaking that is long enough"]
    made = Server(
        "soaked",
        store=store,
        tasks=ENGINES[engine](store),
        max_tasks=room,
        max_tasks_per_principal=10_000,
        request_state_keys=keys,
    )
    idempotent = ToolAnnotations(idempotent_hint=True)

    def add(name: str, function: Any, restart: Any, annotations: ToolAnnotations | None = None) -> None:
        settings = Task(restart=restart, attempts=int(os.environ["ATTEMPTS"]), poll=0.2)
        made.define_tool(name, handler=function, task=settings, annotations=annotations)

    add("safe_read", work, "safe", ToolAnnotations(read_only_hint=True))
    add("safe_write", work, "safe")
    add("never", work, "never", idempotent)
    add("always", work, "always")
    add("coroutine", work_on_loop, "safe", idempotent)
    add("asks", ask, "always")
    add("endless", rest, "always")
    if os.environ.get("RELEASE", "new") == "new":
        add("fresh", work, "always")
        add("noted", work_with_a_note, "always")
    else:
        add("noted", work, "always")
    return made


journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
server = make(os.environ["STORE"], os.environ["ENGINE"])

if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), workers=int(sys.argv[2]), drain=1.0)
