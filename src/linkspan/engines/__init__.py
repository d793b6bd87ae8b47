"""Engines for jobs that run the tasks of a server on other machines: `Server(store=URL, tasks=Dramatiq(broker))`.

An engine gets the id of a task, has one of its workers call `run_task`, and brings its own queues, priorities and dashboards. The
record in the store stays the truth: an engine that delivers twice runs twice only what `Task(restart=...)` allows. Whatever has
`submit(task_id)` is an engine. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.engines.celery import Celery as Celery
    from linkspan.engines.docket import Docket as Docket
    from linkspan.engines.dramatiq import Dramatiq as Dramatiq
    from linkspan.engines.procrastinate import Procrastinate as Procrastinate

__all__ = ["Celery", "Docket", "Dramatiq", "Procrastinate"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "celery": ("Celery",),
        "docket": ("Docket",),
        "dramatiq": ("Dramatiq",),
        "procrastinate": ("Procrastinate",),
    },
)
