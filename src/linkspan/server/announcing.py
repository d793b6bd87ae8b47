"""The open connections of a server, and the notifications of changes that go to those of their clients that listen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import msgspec

from linkspan.core.connection import ServerConnection
from linkspan.core.waiting import ServerChange
from linkspan.revisions.neutral import Request
from linkspan.server import observation
from linkspan.server.catalogue import Listed
from linkspan.server.dispatch import Dispatcher
from linkspan.server.steps import Step, run_steps
from linkspan.server.visibility import Condition
from linkspan.wire.jsonrpc import RequestId

Forward: TypeAlias = Callable[[ServerChange, Sequence[Listed] | None, bool], int]
"""Takes a change, the items of a list that have changed or None for all, and whether it is for other processes, too."""


class _Announcement(msgspec.Struct, array_like=True):
    """A change as other processes receive it: each judges for its own clients who sees what has changed."""

    change: ServerChange
    keys: list[str] | None = None
    """The items of a list that have changed; None for all."""
    caller: tuple[str, str] | None = None
    """The source whose change it is, and what stands for its caller: no other caller is notified."""


_encode = msgspec.json.Encoder().encode


class Announcer:
    """Notifies the clients of one server: those of this process, and through other processes theirs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Begin without connections."""
        self._dispatcher = dispatcher
        self._connections = WeakKeyDictionary[ServerConnection, None]()
        self._forks: int = 0
        self._unlistened: set[str] = set()  # lists whose changes reached no client, which was logged
        self.outer: tuple[Forward, ...] = ()
        """What notifies the clients of the servers that this one is mounted in."""
        self.callers: dict[str, Callable[[str], Condition]] = {}
        """By source, what returns the condition that holds for one of its callers."""

    def add(self, connection: ServerConnection) -> None:
        """Notify the clients of a connection as long as it is there."""
        self.connections()
        self._connections[connection] = None
        if (sharing := self._dispatcher.profile.sharing) is not None:
            sharing.listen(self.receive)

    def list_changed(
        self,
        kind: str,
        changed: Sequence[Listed] | None = None,
        *,
        warn: bool = False,
        everywhere: bool = True,
        caller: tuple[str, str] | None = None,
    ) -> int:
        """Notify those who listen for a list: all, or those who see one of the items that have changed.

        Returns how many it has reached in this process. `warn` logs, once for each list, that there was none, unless other
        processes have clients, too. Not `everywhere`: what has changed is for the clients of this process only. `caller` is
        that of `send`.
        """
        audience = None if changed is None else [each.when for each in changed]
        reached = self.send(ServerChange.of_list(kind), audience, changed, everywhere=everywhere, caller=caller)
        warn = warn and self._dispatcher.profile.sharing is None
        if warn and not reached and kind not in self._unlistened and (audience is None or None in audience):
            self._unlistened.add(kind)
            observation.warn(
                f"notify_{kind}_list_changed() reached no client of {self._dispatcher.profile.implementation.name!r}: a "
                f"handshake client is notified if the server declared {kind}.listChanged when it connected, a modern one "
                "while it listens for that (logged once)"
            )
        return reached

    def send(
        self,
        change: ServerChange,
        audience: Collection[Condition | None] | None,
        changed: Sequence[Listed] | None = None,
        *,
        everywhere: bool = True,
        caller: tuple[str, str] | None = None,
    ) -> int:
        """Notify those who listen for a change: all, or where all that has changed has conditions those for whom one holds.

        `changed` are the items of a list. A `caller` of a source, by the names of both in `callers`, is the only one whom other
        processes notify. Returns how many it has reached by now in this process; conditions that are async
        take longer. Never raises.
        """
        sharing = self._dispatcher.profile.sharing
        if sharing is not None and everywhere:
            keys = None if changed is None or caller is not None else [*map(_key, changed)]
            sharing.publish(_encode(_Announcement(change, keys, caller)))
        conditions = None if audience is None or None in audience else [each for each in audience if each is not None]
        reached = 0
        for connection in self.connections():
            try:
                if conditions is None:
                    reached += connection.notify(change)
                elif conditions and (listeners := connection.listeners(change)):
                    reached += self._start(self._judged(connection, change, conditions, listeners))
            except Exception as error:
                self._report(change, error)
        for forward in self.outer:
            reached += forward(change, changed, everywhere and caller is None)
        return reached

    def receive(self, data: bytes | None) -> None:
        """Notify clients of what another process has announced; without data, of all that may have changed."""
        try:
            found = [msgspec.json.decode(data, type=_Announcement)] if data is not None else self._anything()
        except msgspec.DecodeError:  # of another version
            found = self._anything()
        for each in found:
            if each.caller is None:
                self.send(each.change, self._audience(each.change, each.keys), everywhere=False)
            elif (condition_of := self.callers.get(each.caller[0])) is not None:
                self.send(each.change, [condition_of(each.caller[1])], everywhere=False)

    def _anything(self) -> list[_Announcement]:
        """Return the changes of all lists, and of all resources that clients of this process subscribed to."""
        uris = set[str]().union(*(each.watched_resources() for each in self.connections()))
        lists = sorted({each.spec.capability for each in self._dispatcher.catalogue.lists.values()})
        return [
            _Announcement(each)
            for each in (*map(ServerChange.of_list, lists), *map(ServerChange.of_resource, sorted(uris)))
        ]

    def _audience(self, change: ServerChange, keys: Sequence[str] | None) -> list[Condition | None] | None:
        """Return the conditions of what has changed, of which one must hold for a client; None for all clients."""
        catalogue = self._dispatcher.catalogue
        if change.uri is not None:
            return catalogue.audience_of(change.uri)
        if keys is None:
            return None
        registries = [each for each in catalogue.lists.values() if each.spec.capability == change.kind]
        found = {key: item for each in registries for key in keys if (item := each.registered(key)) is not None}
        return [found[key].when if key in found else None for key in keys]

    def _judged(
        self,
        connection: ServerConnection,
        change: ServerChange,
        conditions: Sequence[Condition],
        listeners: Mapping[RequestId | None, Request],
    ) -> Generator[Step, Any, bool]:
        """Ask the conditions for each listener, without a lock, and notify those for whom one holds."""
        to: list[RequestId | None] = []
        try:
            for request_id, request in listeners.items():
                if (yield from self._dispatcher.judges.judge(request, conditions)):
                    to.append(request_id)
            return bool(to) and connection.notify(change, to)
        except Exception as error:
            self._report(change, error)
            return False

    def _start(self, steps: Generator[Step, Any, bool]) -> bool:
        """Take steps here, and from the first wait on in the background; return what they have come to by now."""
        system = self._dispatcher.system
        value = run_steps(steps, system)
        if not hasattr(type(value), "__await__"):
            return bool(value)
        awaitable = cast("Awaitable[object]", value)
        try:
            system.share(awaitable)
        except RuntimeError:  # no event loop runs here
            system.later(awaitable)
        return False

    def _report(self, change: ServerChange, error: Exception) -> None:
        dispatcher = self._dispatcher
        what = change.method.removeprefix("notifications/").replace("/", "_")
        observation.warn(f"{change.method} could not be announced to a client", error)
        observation.report(dispatcher.settings.current, error, lambda: {"notification": what}, dispatcher.system)

    def connections(self) -> list[ServerConnection]:
        """Return the open connections of this process; those that a parent had before it forked are not ours to use."""
        forks = self._dispatcher.system.forks()
        if forks != self._forks:
            self._forks, self._connections = forks, WeakKeyDictionary[ServerConnection, None]()
        found: list[ServerConnection] = []
        for reference in self._connections.keyrefs():  # a copy: others come and go in other threads
            if (connection := reference()) is not None:
                found.append(connection)
        return found

    def is_listened_to(self) -> bool | None:
        """Return whether a client listens for changes; None if there is no connection."""
        connections = self.connections()
        return any(each.is_listened_to for each in connections) if connections else None


def _key(item: Listed) -> str:
    """Return what an item of a list is registered under."""
    found: list[str | None] = [getattr(item.spec, name, None) for name in ("uri", "uri_template", "name")]
    return next(each for each in found if each is not None)
