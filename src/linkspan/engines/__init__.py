"""Engines for jobs that run the tasks of a server on other machines: `Server(store=URL, tasks=Dramatiq(broker))`.

An engine gets the id of a task, has one of its workers call `run_task`, and brings its own queues, priorities and dashboards. The
record in the store stays the truth: an engine that delivers twice runs twice only what `Task(restart=...)` allows. Whatever has
`submit(task_id)` is an engine. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkspan.engines.celery import Celery as Celery
    from linkspan.engines.docket import Docket as Docket
    from linkspan.engines.dramatiq import Dramatiq as Dramatiq
    from linkspan.engines.procrastinate import Procrastinate as Procrastinate

__all__ = ["Celery", "Docket", "Dramatiq", "Procrastinate"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"linkspan.engines.{name.lower()}"), name)
