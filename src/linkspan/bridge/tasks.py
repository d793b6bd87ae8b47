"""Tasks of servers behind a bridge: their ids name the server, and belong to the principal whose call made the task.

Spec: https://github.com/modelcontextprotocol/ext-tasks.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from linkspan.client.subscriptions import MemberReader
from linkspan.client.transports.base import CallbackWaiter
from linkspan.core.call import Call
from linkspan.core.extension import Extension, ExtensionMethod, ListenMember
from linkspan.core.waiting import ServerChange
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.flows.client_errors import ClientError
from linkspan.revisions.neutral import Outcome, Request
from linkspan.runtime.reactor import reactor
from linkspan.server.places import Place
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.task_messages import TASKS, TaskParams
from linkspan.upstreams.client import UpstreamClient
from linkspan.upstreams.mounting import Upstream
from linkspan.wire.jsonrpc import Notification, encode
from linkspan.wire.values import encode_base64url

_CHANGED: Final = "notifications/tasks"
_MEMBER: Final = "taskIds"
_ENDED: Final = ("completed", "failed", "cancelled")
_MAX_LISTENING: Final = 256
"""Tasks that are listened to at a time; others are polled."""
_PATIENCE: Final = 5.0
"""Seconds that a server has to acknowledge that it reports changes of a task; and within which its client listens."""


class _PassedUpdateParams(TaskParams, frozen=True, kw_only=True):
    input_responses: Raw


class PassedTasks:
    """Passes on tasks, as a value of `extensions=`."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        """Route what clients say of tasks to `upstreams`, by their names."""
        self._upstreams = upstreams
        self._key = secrets.token_bytes(32)
        self._place: Place | None = None
        self._lock = threading.Lock()
        self._listening: dict[str, _TaskListener] = {}
        self.extension = Extension(
            id=TASKS,
            server={},
            client={},
            methods={
                "tasks/get": ExtensionMethod(params=TaskParams, begin=self._begin),
                "tasks/update": ExtensionMethod(params=_PassedUpdateParams, begin=self._begin),
                "tasks/cancel": ExtensionMethod(params=TaskParams, begin=self._begin),
            },
            listen={_MEMBER: ListenMember(honoured=self._honoured)},
            passed_results={"task": self._created},
            attach=self._attach,
            passes_on=True,
        )

    def _attach(self, place: Place) -> None:
        self._place = place

    # Ids.

    def _name(self, principal: str | None, server: str, task_id: str) -> str:
        """Return what a task of a server is called here; with a principal, only that one can use it."""
        name = f"{server}.{task_id}"
        return name if principal is None else f"{name}.{self._mark(principal, name)}"

    def _mark(self, principal: str, name: str) -> str:
        return encode_base64url(hmac.digest(self._key, msgspec.json.encode([principal, name]), "sha256"))

    def _find(self, request: Request, name: str) -> tuple[Upstream, str] | None:
        """Return the server of a task, and what it calls the task; None for one that is not the principal's."""
        principal = request.facts.principal
        if principal is not None:
            name, _, mark = name.rpartition(".")
            if not hmac.compare_digest(mark.encode(), self._mark(principal, name).encode()):
                return None
        owners = [each for each in self._upstreams if name.startswith(f"{each}.")]
        owner = max(owners, key=len, default=None)
        return None if owner is None else (self._upstreams[owner], name.removeprefix(f"{owner}."))

    def _renamed(self, principal: str | None, server: str, raw: bytes | Raw) -> Raw:
        """Return what a server said of a task, with what the task is called here."""
        members: JSON = msgspec.json.decode(raw)
        if is_object(members) and isinstance(task_id := members.get("taskId"), str):
            members["taskId"] = self._name(principal, server, task_id)
        return Raw(encode(members))

    # Requests.

    def _created(self, request: Request, server: str, raw: Raw) -> Raw:
        return self._renamed(request.facts.principal, server, raw)

    def _begin(self, request: Request) -> Outcome | Call:
        params = request.params
        assert isinstance(params, TaskParams)
        found = self._find(request, params.task_id)
        if found is None:
            return RemoteProtocolError(INVALID_PARAMS, "Unknown task: it does not exist, or its time is over")
        upstream, task_id = found
        members: JSONObject = {"taskId": task_id}
        if isinstance(params, _PassedUpdateParams):
            members["inputResponses"] = params.input_responses
        read = partial(self._renamed, request.facts.principal, upstream.name)
        return upstream.pass_on(request, encode(members), read, is_safe=request.method == "tasks/get")

    # Listening.

    def _honoured(self, request: Request, wanted: JSON) -> JSON:
        """Return those of the ids whose tasks are the principal's, and listen to them there."""
        ids = [each for each in (wanted if is_array(wanted) else ()) if isinstance(each, str)]
        # All listen before one is waited for: together they have the time of one.
        listeners = {each: self._listener_of(request, each) for each in dict.fromkeys(ids)}
        return [name for name, each in listeners.items() if each is not None and self._reports(name, each)]

    def _listener_of(self, request: Request, name: str) -> _TaskListener | None:
        """Listen to a task where it runs, unless that is done; None if it is not the caller's, or there are too many."""
        found = self._find(request, name)
        caller = found[0].caller_of(request) if found is not None else None
        if found is None or caller is None:
            return None
        with self._lock:
            if (known := self._listening.get(name)) is not None:
                return known
            if len(self._listening) >= _MAX_LISTENING:
                return None
            listener = self._listening[name] = _TaskListener()
        listener.begin(caller.client, found[1], partial(self._received, name))
        return listener

    def _reports(self, name: str, listener: _TaskListener) -> bool:
        """Return whether the server of a task has acknowledged that it reports changes of it."""
        if listener.is_acknowledged():
            return True
        with self._lock:
            is_ours = self._listening.get(name) is listener
        if is_ours:
            self._end(name)
        return False

    def _received(self, name: str, item: object) -> None:
        """Pass on what a server says of a task, until that has ended, or no client listens any more."""
        if isinstance(item, ClientError):
            self._end(name)
            return
        assert isinstance(item, Notification)
        members: JSON = msgspec.json.decode(item.params or b"{}")
        if not is_object(members) or "taskId" not in members:
            return
        members.pop("_meta", None)
        change = ServerChange(_CHANGED, member=_MEMBER, value=name, params=Raw(encode(members | {"taskId": name})))
        assert self._place is not None
        reached = self._place.notify(change)
        listener = self._listening.get(name)
        if members.get("status") in _ENDED or (listener is not None and not reached and listener.is_settled):
            self._end(name)

    def _end(self, name: str) -> None:
        with self._lock:
            listener = self._listening.pop(name, None)
        if listener is not None:
            listener.end()


class _TaskListener:
    """Listens to one task of a server."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._reader: MemberReader[CallbackWaiter] | None = None
        self._settled = threading.Event()
        self._is_over = False

    def begin(self, client: UpstreamClient, task_id: str, receive: Callable[[object], object]) -> None:
        """Listen from now on; `receive` gets notifications and a ClientError."""

        def came(item: object) -> None:
            self._is_over = self._is_over or isinstance(item, ClientError)
            self._settled.set()
            if item is not None:
                reactor().call(partial(receive, item))

        self._reader = client.listen({_MEMBER: (task_id,)}, came)

    @property
    def is_settled(self) -> bool:
        """Whether its client has had the time to listen."""
        return time.monotonic() - self._began > _PATIENCE

    def is_acknowledged(self) -> bool:
        """Wait until the server has acknowledged it, as long as it has time for that; return whether it has."""
        self._settled.wait(max(0.0, self._began + _PATIENCE - time.monotonic()))
        return self._reader is not None and not self._is_over and bool(self._reader.acknowledged.get(_MEMBER))

    def end(self) -> None:
        """Listen no more."""
        if self._reader is not None:
            self._reader.close()
