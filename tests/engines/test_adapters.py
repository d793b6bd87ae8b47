"""The adapters of engines: a task that is submitted reaches the function of its server in a worker."""

from __future__ import annotations

import os
import signal
import sys
from queue import Queue
from threading import Barrier, Lock

import pytest

from linkspan import LinkspanError
from linkspan.runtime.background import background_loop


def test_dramatiq_runs_a_task_in_a_worker_of_its_own_queue() -> None:
    dramatiq = pytest.importorskip("dramatiq", reason="dramatiq is not installed")
    from dramatiq.brokers.stub import StubBroker

    from linkspan.engines import Dramatiq

    broker, ran = StubBroker(), Queue[str]()
    engine = Dramatiq(broker)
    engine.bind("indexer", ran.put)
    engine.submit("t1")
    worker = dramatiq.Worker(broker, queues={"linkspan"}, worker_threads=1)
    worker.start()
    try:
        assert ran.get(timeout=20) == "t1"
        broker.join("linkspan", timeout=20_000)
    finally:
        worker.stop()
    assert broker.get_declared_actors() == {"linkspan:indexer"}


def test_procrastinate_defers_a_task_and_runs_it() -> None:
    procrastinate = pytest.importorskip("procrastinate", reason="procrastinate is not installed")
    from procrastinate.testing import InMemoryConnector

    from linkspan.engines import Procrastinate

    connector, ran = InMemoryConnector(), Queue[str]()
    app = procrastinate.App(connector=connector)
    engine = Procrastinate(app, priority=5)
    engine.bind("indexer", ran.put)
    engine.submit("t1")
    (job,) = connector.jobs.values()
    assert (job["queue_name"], job["priority"], job["args"]) == ("linkspan", 5, {"task_id": "t1"})
    app.run_worker(queues=["linkspan"], wait=False, install_signal_handlers=False)
    assert ran.get(timeout=20) == "t1"


def test_procrastinate_has_one_waiting_job_of_a_task_however_often_it_is_submitted() -> None:
    procrastinate = pytest.importorskip("procrastinate", reason="procrastinate is not installed")
    from procrastinate.testing import InMemoryConnector

    from linkspan.engines import Procrastinate

    connector = InMemoryConnector()
    engine = Procrastinate(procrastinate.App(connector=connector))
    engine.bind("indexer", print)
    for _ in range(3):
        engine.submit("t1")
    engine.submit("t2")
    assert [job["args"]["task_id"] for job in connector.jobs.values()] == ["t1", "t2"]
    connector.jobs[1]["status"] = "doing"
    engine.submit("t1")  # it asked its client something, and was answered before this job has ended
    assert [job["args"]["task_id"] for job in connector.jobs.values()] == ["t1", "t2", "t1"]


def test_docket_has_one_waiting_job_of_a_task_however_often_it_is_submitted() -> None:
    docket = pytest.importorskip("docket", reason="docket is not installed")

    from linkspan.engines import Docket

    engine, url = Docket("memory://", name="waiting"), "memory://"
    engine.bind("indexer", lambda _: None)

    async def waiting() -> list[str]:
        async with docket.Docket(url=url, name="waiting") as found:
            found.register(engine._job)
            snapshot = await found.snapshot()
            return [each.args[0] for each in snapshot.future]

    for task_id in ("t1", "t1", "t2", "t1"):
        engine.submit(task_id)
    assert sorted(background_loop().run(waiting)) == ["t1", "t2"]
    background_loop().run(lambda: engine._docket.__aexit__(None, None, None))


def test_docket_takes_a_task_again_whose_job_runs() -> None:
    """Its client has answered before the job ended, or the worker of that job is dead."""
    docket = pytest.importorskip("docket", reason="docket is not installed")

    from linkspan.engines import Docket

    engine, ran = Docket("memory://", name="again"), Queue[str]()

    def run(task_id: str) -> None:
        ran.put(task_id)
        if ran.qsize() == 1:
            engine.submit(task_id)
            engine.submit(task_id)

    async def work() -> None:
        async with docket.Docket(url="memory://", name="again") as found:
            found.register(engine._job)
            async with docket.Worker(found, concurrency=1) as worker:
                await worker.run_until_finished()

    engine.bind("indexer", run)
    engine.submit("t1")
    background_loop().run(work)
    background_loop().run(lambda: engine._docket.__aexit__(None, None, None))
    assert list(ran.queue) == ["t1", "t1"]


def test_a_worker_of_procrastinate_runs_as_many_tasks_at_once_as_it_has_threads() -> None:
    procrastinate = pytest.importorskip("procrastinate", reason="procrastinate is not installed")
    from procrastinate.testing import InMemoryConnector

    from linkspan.engines import Procrastinate

    count = 33  # more than the threads that asyncio has by itself, on any machine
    together, passed, is_over = Barrier(count), Queue[str](), Lock()
    engine = Procrastinate(procrastinate.App(connector=InMemoryConnector()), retry=0)

    def run(task_id: str) -> None:
        try:
            together.wait(20)
            passed.put(task_id)
        finally:
            if (together.broken or passed.qsize() == count) and is_over.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)  # stops the worker

    engine.bind("indexer", run)
    for number in range(count):
        engine.submit(f"t{number}")
    engine.work(count, 20.0)
    assert passed.qsize() == count


def test_celery_runs_a_task_and_acknowledges_it_at_its_end() -> None:
    celery = pytest.importorskip("celery", reason="celery is not installed")

    from linkspan.engines import Celery

    app, ran = celery.Celery(broker="memory://", set_as_current=False), Queue[str]()
    app.conf.task_always_eager = True
    other = celery.Celery(broker="memory://", set_as_current=False)
    Celery(other).bind("indexer", lambda _: None)  # another app of this process, with a server of the same name
    engine = Celery(app)
    engine.bind("indexer", ran.put)
    engine.submit("t1")
    assert ran.get(timeout=20) == "t1"
    assert app.tasks["linkspan:indexer"].acks_late


@pytest.mark.parametrize(
    ("package", "name", "argument"), [("dramatiq", "Dramatiq", None), ("docket", "Docket", "redis://host")]
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str, name: str, argument: object) -> None:
    import linkspan.engines

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LinkspanError, match=rf"tasks={name}\(...\) needs \w+: run pip install"):
        getattr(linkspan.engines, name)(argument)
