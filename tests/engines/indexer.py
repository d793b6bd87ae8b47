"""A server whose tasks an engine runs, as its author would write it; ENGINE says which one."""

from __future__ import annotations

import os
import time
from typing import Any

from linkspan import Server

URL = os.environ["STORE"]


def engine() -> Any:
    match os.environ.get("ENGINE", ""):
        case "dramatiq":
            from dramatiq.brokers.redis import RedisBroker

            from linkspan.engines import Dramatiq

            return Dramatiq(RedisBroker(url=URL))
        case "procrastinate":
            from procrastinate import App, PsycopgConnector

            from linkspan.engines import Procrastinate

            return Procrastinate(App(connector=PsycopgConnector(conninfo=URL)))
        case "celery":
            import celery

            from linkspan.engines import Celery

            return Celery(celery.Celery(broker=URL, set_as_current=False))
        case "docket":
            from linkspan.engines import Docket

            return Docket(URL)
    return None


server = Server("indexer", store=URL, tasks=engine(), max_tasks=1)


@server.tool(task=True, annotations={"idempotentHint": True})
def index(until: str = "") -> int:
    """Index until a file exists, and tell in which process."""
    while until and not os.path.exists(until):
        time.sleep(0.01)
    return os.getpid()
