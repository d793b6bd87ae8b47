"""`linkspan call --task` and `linkspan task`, at a server whose tasks the test decides."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from shell import Shell

import over_http
from fake_tasks import QUESTION, FakeTasks


@pytest.fixture
def tasks() -> FakeTasks:
    return FakeTasks()


@pytest.fixture
def url(tasks: FakeTasks) -> Iterator[str]:
    with over_http.serving(tasks.server.asgi()) as url:
        yield url


def test_a_call_prints_the_id_of_its_task(linkspan: Shell, tasks: FakeTasks, url: str) -> None:
    done = linkspan("call", "--task", url, "work")
    assert done.status == 0
    assert done.out.splitlines()[0] == "t1 working"
    done = linkspan("call", "--task", "--json", url, "work")
    assert (done.json["taskId"], done.json["status"], done.json["pollIntervalMs"]) == ("t2", "working", 50)


def test_a_call_that_does_not_become_a_task_prints_its_result(linkspan: Shell, url: str) -> None:
    assert linkspan("call", "--task", url, "add").out == "3\n"
    assert linkspan("call", url, "work").out == "worked at once\n"


def test_a_task_is_shown_watched_and_cancelled(linkspan: Shell, tasks: FakeTasks, url: str) -> None:
    tasks.set("t1", "working", statusMessage="3 of \x1b[31m12", ttlMs=90_000)
    done = linkspan("task", "get", url, "t1")
    assert done.status == 0
    assert done.out.splitlines()[0] == "t1 working"
    assert "3 of \\x1b[31m12" in done.out
    assert "90 s" in done.out

    def complete() -> None:
        with tasks.changed:
            tasks.changed.wait_for(lambda: tasks.polls > 1, 20.0)
        tasks.complete("t1")

    threading.Timer(0.2, complete).start()
    done = linkspan("task", "watch", url, "t1", "-v")
    assert (done.status, done.out) == (0, "done\n")
    assert "task t1 is working: 3 of" in done.err
    assert "task t1 is completed" in done.err

    tasks.set("t2", "working")
    done = linkspan("task", "cancel", url, "t2", "--json")
    assert (done.status, done.json["status"]) == (0, "cancelled")
    done = linkspan("task", "watch", url, "t2", "--json")
    assert done.status == 1
    assert (done.json["error"]["type"], done.json["error"]["task_id"]) == ("TaskCancelled", "t2")


def test_a_task_that_failed_is_an_error(linkspan: Shell, tasks: FakeTasks, url: str) -> None:
    tasks.set("t1", "failed", error={"code": -32050, "message": "no ferries"})
    assert "no ferries (-32050)" in linkspan("task", "get", url, "t1").out
    done = linkspan("task", "watch", url, "t1")
    assert done.status == 1
    assert "no ferries (-32050)" in done.err


def test_the_questions_of_a_task_are_answered_from_the_command_line(
    linkspan: Shell, tasks: FakeTasks, url: str
) -> None:
    tasks.set("t1", "input_required", inputRequests={"name": QUESTION})
    assert "asks for      name" in linkspan("task", "get", url, "t1").out
    done = linkspan("task", "watch", url, "t1", "--answer", "name=Ada")
    assert (done.status, done.out) == (0, "answered\n")


def test_a_watch_that_takes_too_long_names_the_command_that_goes_on(
    linkspan: Shell, tasks: FakeTasks, url: str
) -> None:
    tasks.set("t1", "working")
    done = linkspan("task", "watch", url, "t1", "--timeout", "0.4")
    assert done.status == 4
    assert "linkspan task watch waits for it" in done.err


@pytest.mark.parametrize("arguments", [(), ("get",), ("list", "url", "t1"), ("get", "url")])
def test_a_wrong_command_line_is_explained(linkspan: Shell, arguments: tuple[str, ...]) -> None:
    done = linkspan("task", *arguments)
    assert done.status == 2
    assert "usage: linkspan task" in done.err


def test_an_unknown_task_is_an_error_of_the_server(linkspan: Shell, url: str) -> None:
    done = linkspan("task", "get", url, "nobody")
    assert done.status == 1
    assert "Unknown task (-32602)" in done.err
