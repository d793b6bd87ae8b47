"""Tasks of servers behind a bridge: made, polled, answered, listened to, cancelled, and never another principal's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest

from linkspan import Context, Server, ServerError, SyncClient, TaskCancelled, Tasks
from linkspan.bridge import tasks
from linkspan.bridge.gateway import BridgedServer, BridgeOptions, Gateway
from linkspan.bridge.rules import read_rules
from linkspan.revisions.neutral import TransportInfo


class Elsewhere:
    """Hides what a server is: it is reached by a client only; as one principal over HTTP, as it were, where one is given."""

    def __init__(self, server: Server, principal: str | None = None) -> None:
        self.name = server.name
        self._server = server
        self._facts = TransportInfo(headers={"user-agent": "test"}, principal=principal) if principal else None

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        if self._facts is not None:
            ports = msgspec.structs.replace(ports, facts=self._facts, session=None)
        return self._server.connect(ports=ports)


class Yard:
    """A server whose tools run as tasks, and what has happened in it."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.go_on = threading.Event()
        self.server = server = Server("yard")

        @server.tool(task=True)
        def paint(colour: str) -> str:
            return f"painted {colour}"

        @server.tool(task=True)
        def launch(ctx: Context) -> str:
            return f"launched as {ctx.ask('name', str, 'What is it called?')}"

        @server.tool(task=True)
        def dry(ctx: Context) -> str:
            while not ctx.cancelled:
                time.sleep(0.005)
            self.cancelled.append("dry")
            ctx.raise_if_cancelled()
            return "dry"

        @server.tool(task=True)
        def wait() -> str:
            self.go_on.wait(60)
            return "waited"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Yard()
    yield made
    made.go_on.set()


def bridge(*servers: Server, era: Literal["modern", "legacy"] = "modern", **options: Any) -> Server:
    targets = [BridgedServer(each.name, Elsewhere(each), {"era": era}) for each in servers]
    return Gateway(
        targets, BridgeOptions(rules=options.pop("rules", read_rules(None)), is_shared=True, **options)
    ).server


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def test_a_task_is_made_followed_and_ends_with_its_result(yard: Yard) -> None:
    with SyncClient(bridge(yard.server), extensions=[Tasks()]) as client:
        client.connect()
        assert client.server_capabilities is not None
        assert "io.modelcontextprotocol/tasks" in (client.server_capabilities.extensions or {})
        task = client.start_tool("paint", {"colour": "red"})
        assert task.id.startswith("yard.")
        assert task.result().text == "painted red"
        assert client.task(task.id).result().text == "painted red"


def test_a_question_of_a_task_is_answered(yard: Yard) -> None:
    with SyncClient(bridge(yard.server), extensions=[Tasks()], elicitation=lambda _: {"name": "Anna"}) as client:
        assert client.call_tool("launch").text == "launched as Anna"


def test_a_task_is_cancelled_where_it_runs(yard: Yard) -> None:
    with SyncClient(bridge(yard.server), extensions=[Tasks()]) as client:
        task = client.start_tool("dry")
        task.cancel()
        until(lambda: yard.cancelled)
        with pytest.raises(TaskCancelled):
            task.result()


def test_who_listens_is_notified_of_the_end(yard: Yard) -> None:
    with SyncClient(bridge(yard.server), extensions=[Tasks()]) as client:
        task = client.start_tool("wait")
        states: list[Any] = []
        waiting = threading.Thread(target=lambda: states.append(task.result(on_status=states.append).text))
        waiting.start()
        time.sleep(0.1)
        yard.go_on.set()
        waiting.join(60)
        assert states[-1] == "waited"


def test_other_principals_have_no_such_task(yard: Yard) -> None:
    server = bridge(yard.server)
    with (
        SyncClient(Elsewhere(server, "alice"), extensions=[Tasks()]) as alice,
        SyncClient(Elsewhere(server, "bob"), extensions=[Tasks()]) as bob,
    ):
        task = alice.start_tool("paint", {"colour": "red"})
        name, _, mark = task.id.rpartition(".")
        for guess in (task.id, name, f"{name}.", f"{name}.{mark[:-1]}", "yard.1", "", "else.1.2"):
            for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
                with pytest.raises(ServerError, match="Unknown task"):
                    bob.request(method, {"taskId": guess, **more})
        assert task.result().text == "painted red"


def test_of_several_servers_each_task_is_its_own_servers(yard: Yard) -> None:
    other = Yard()
    other.server.name = "yard2"
    with SyncClient(bridge(yard.server, other.server), extensions=[Tasks()]) as client:
        tools = [each.name for each in client.list_tools() if each.name.endswith("paint")]
        tasks = [client.start_tool(each, {"colour": each}) for each in tools]
        assert [each.result().text for each in tasks] == [f"painted {each}" for each in tools]
        assert [each.id.partition(".")[0] for each in tasks] == ["yard", "yard2"]


@pytest.mark.parametrize(("there", "here"), [("modern", "legacy"), ("legacy", "modern"), ("legacy", "legacy")])
def test_where_a_side_has_no_tasks_the_call_runs_to_its_end(
    yard: Yard, there: Literal["modern", "legacy"], here: Literal["modern", "legacy"]
) -> None:
    with SyncClient(bridge(yard.server, era=there), era=here, extensions=[Tasks()]) as client:
        assert client.call_tool("paint", {"colour": "red"}).text == "painted red"


def test_rules_and_budgets_leave_a_task_as_it_is(yard: Yard) -> None:
    server = bridge(yard.server, rules=read_rules(None, deny=["*/dry"], ask=["*/launch"]), budget=1000)
    with SyncClient(server, extensions=[Tasks()]) as client:
        assert client.start_tool("paint", {"colour": "red"}).result().text == "painted red"
        with pytest.raises(ServerError, match="Unknown tool"):
            client.start_tool("dry")


def test_listeners_that_no_server_acknowledges_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_PATIENCE", 0.3)
    silent = SimpleNamespace(listen=lambda wanted, receive: SimpleNamespace(acknowledged={}, close=lambda: None))
    upstream: Any = SimpleNamespace(caller_of=lambda request: SimpleNamespace(client=silent))
    passed = tasks.PassedTasks({"one": upstream})
    request: Any = SimpleNamespace(facts=SimpleNamespace(principal=None))
    began = time.monotonic()
    assert passed._honoured(request, [f"one.{number}" for number in range(100)]) == []
    assert time.monotonic() - began < 15, "each would have had its 0.3 s"
    assert not passed._listening
