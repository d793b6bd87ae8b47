"""Tasks whose states a test decides: a server that makes a task of each call of `work`."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Raw

from linkspan import Server
from linkspan.core.call import Call
from linkspan.core.extension import Extension, ExtensionMethod, ListenMember
from linkspan.core.waiting import ServerChange
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.revisions.neutral import Outcome, Request
from linkspan.types.base import JSON
from linkspan.types.messages import CallToolParams, Params
from linkspan.types.task_messages import TASKS
from linkspan.wire.jsonrpc import encode

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": FORM}}


class TaskParams(Params, frozen=True, kw_only=True):
    """Which task, and answers."""

    named_by: ClassVar[str | None] = "task_id"
    task_id: str
    input_responses: Raw = Raw(b"{}")


class FakeTasks:
    """The server, and its tasks by id: `t1`, `t2` and so on."""

    def __init__(self, *, poll_ms: int = 50, listens: bool = True) -> None:
        self.poll_ms = poll_ms
        self.states: dict[str, dict[str, Any]] = {}
        self.answers: list[bytes] = []
        self.polls = 0
        self.changed = threading.Condition()
        self.plan: Callable[[str], None] = lambda task_id: None
        self._ids = itertools.count(1)
        self.extension = Extension(
            id=TASKS,
            server={},
            methods={
                "tasks/get": ExtensionMethod(params=TaskParams, begin=self.get),
                "tasks/update": ExtensionMethod(params=TaskParams, begin=self.update),
                "tasks/cancel": ExtensionMethod(params=TaskParams, begin=self.cancel),
            },
            listen={"taskIds": ListenMember(honoured=self.honoured if listens else lambda _, wanted: None)},
            around_call=self.around,
        )
        self.server = Server("tasks", extensions=[self.extension])
        self.server.define_tool("work", handler=lambda: "worked at once", input_schema={"type": "object"})
        self.server.define_tool("add", handler=lambda: "3", input_schema={"type": "object"})

    def around(self, request: Request, begin: Callable[[], Outcome | Call]) -> Outcome | Call:
        assert isinstance(request.params, CallToolParams)
        if request.params.name != "work" or not self.extension.declared_by(request.peer):
            return begin()
        task_id = f"t{next(self._ids)}"
        self.set(task_id, "working")
        self.plan(task_id)
        return Raw(encode(self.states[task_id] | {"status": "working", "resultType": "task"}))

    def honoured(self, request: Request, wanted: JSON) -> JSON:
        return [each for each in wanted if each in self.states]

    def set(self, task_id: str, status: str, **members: Any) -> None:
        """Change a task, and notify those who listen."""
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60_000}
        with self.changed:
            state = {"taskId": task_id, "status": status, **times, "pollIntervalMs": self.poll_ms, **members}
            self.states[task_id] = state
            self.changed.notify_all()
        change = ServerChange("notifications/tasks", member="taskIds", value=task_id, params=Raw(encode(state)))
        self.server._announcer.send(change, None)

    def complete(self, task_id: str, text: str = "done") -> None:
        self.set(task_id, "completed", result={"content": [{"type": "text", "text": text}]})

    def wait_for(self, task_id: str, status: str) -> None:
        """Wait until a task is in a state."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.states.get(task_id, {}).get("status") == status, 20.0)

    def find(self, request: Request) -> tuple[TaskParams, dict[str, Any]]:
        params = request.params
        assert isinstance(params, TaskParams)
        if params.task_id not in self.states:
            raise RemoteProtocolError(INVALID_PARAMS, "Unknown task")
        return params, self.states[params.task_id]

    def get(self, request: Request) -> Outcome:
        self.polls += 1
        return Raw(encode(self.find(request)[1]))

    def update(self, request: Request) -> Outcome:
        params, _ = self.find(request)
        self.answers.append(bytes(params.input_responses))
        self.set(params.task_id, "working")
        self.complete(params.task_id, "answered")
        return Raw(b"{}")

    def cancel(self, request: Request) -> Outcome:
        params, _ = self.find(request)
        self.set(params.task_id, "cancelled")
        return Raw(b"{}")
