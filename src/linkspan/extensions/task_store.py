"""The tasks of one server in its store: records with leases, the queues of tasks, and a channel between processes.

A task that has not ended is in the queue `schedule`, at the time when a process must look after it. One that waits for a process
to run it is in `waiting`, too, or in the queue of its tool, if a process without that tool has left it to others.

All operations may block, and raise StoreError if the store fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import structs

from linkspan.extensions.task_record import TaskRecord, decode_record
from linkspan.extensions.task_room import TaskRoom
from linkspan.stores.leases import Lease, amend, claim, create, look
from linkspan.stores.port import Due, Store, schedule_together, store_time
from linkspan.wire.values import key_of

_ID: Final = re.compile("[0-9a-f]{32}")
_FOR_EVER: Final = 253402300799.0
"""When a task without an end is not counted any more: at the end of the year 9999."""
_stands_for: Final = lru_cache(64)(key_of)
"""What stands for a tool, or for a principal."""


def new_id(random: Callable[[int], bytes]) -> str:
    """Return an id that cannot be guessed: 128 random bits (TSK-S13)."""
    return random(16).hex()


class Ticket(NamedTuple):
    """What queues hold of a task: enough to find all queues in which it may be, when its record has gone."""

    task_id: str
    tool: str
    """What stands for its tool."""
    owner: str
    """What stands for its principal; callers without one count as one."""

    @classmethod
    def of(cls, record: TaskRecord) -> Ticket:
        """Return the ticket of a task."""
        return cls(record.id, _stands_for(record.tool), _stands_for(record.caller.principal or ""))


class TaskQueue:
    """Tickets, each due at a time."""

    def __init__(self, store: Callable[[], Store], name: str) -> None:
        """Use a queue of the store."""
        self._store = store
        self._name = name

    def change(self, ticket: Ticket, at: float | None) -> Due:
        """Return the change that lets a task be due at a time, or takes it out."""
        return self._name, "/".join(ticket), at

    def put(self, ticket: Ticket, at: float) -> None:
        """Let a task be due at a time, instead of the time that it had."""
        self._store().schedule(*self.change(ticket, at))

    def remove(self, ticket: Ticket) -> None:
        """Take a task out."""
        self._store().schedule(*self.change(ticket, None))

    def due(self, now: float, limit: int) -> Sequence[Ticket]:
        """Return the tasks that are due, those that are due longest first. They stay in the queue."""
        return [Ticket(*each.split("/")) for each in self._store().due(self._name, now, limit)]


class TaskStore:
    """The tasks of one server. Another server in the same store does not see them."""

    def __init__(self, store: Callable[[], Store], server: str) -> None:
        """Keep the tasks of the server of this name in `store()`, which is opened when it is first used."""
        self._store = store
        self._scope = key_of(server)
        self._name = f"tasks/{self._scope}"
        self.schedule = TaskQueue(store, self._name)
        self.waiting = TaskQueue(store, f"{self._name}/waiting")

    @property
    def quick(self) -> bool:
        """Whether operations take microseconds."""
        return self._store().quick

    def now(self) -> float:
        """Return the seconds since 1970 by the clock that all processes have in common. Raises: StoreError."""
        return store_time(self._store())

    def _key(self, task_id: str) -> str:
        return f"task/{self._scope}/{task_id}"

    # Records.

    def create(self, record: TaskRecord, owner: str, now: float, until: float) -> Lease:
        """Write a new task, leased to `owner` until a time; `until=0.0` leaves it to whichever process is first."""
        key, ttl = self._key(record.id), record.kept_for(now)
        lease = create(self._store(), key, record.encoded(), owner, until=until, ttl=ttl)
        assert lease is not None, "two tasks have one id"
        return lease

    def get(self, task_id: str) -> TaskRecord | None:
        """Return a task, if there is one."""
        found = look(self._store(), self._key(task_id)) if _ID.fullmatch(task_id) else None
        return decode_record(found.value) if found is not None else None

    def amend(
        self, record: TaskRecord, now: float, change: Callable[[TaskRecord], TaskRecord]
    ) -> tuple[TaskRecord, TaskRecord] | None:
        """Change a task, whichever process has its lease; return how it was and how it is, None if it has gone."""
        seen = [record, record]

        def step(value: bytes) -> bytes | None:
            seen[0] = decode_record(value)
            seen[1] = change(seen[0])
            return None if seen[1] is seen[0] else seen[1].encoded()

        found = amend(self._store(), self._key(record.id), step, ttl=record.kept_for(now))
        return (seen[0], seen[1]) if found is not None else None

    def claim(
        self, task_id: str, owner: str, now: float, until: float, change: Callable[[TaskRecord], TaskRecord]
    ) -> tuple[Lease | None, TaskRecord | None]:
        """Claim a task, with a change; return its lease if it was claimed, and the task if it is there.

        A task that `change` leaves as it is is not claimed. An owner that claims again, since the store failed, has not begun.
        """
        found = look(self._store(), self._key(task_id))
        if found is None:
            return None, None
        ttl = (record := decode_record(found.value)).kept_for(now)

        def step(value: bytes) -> bytes | None:
            nonlocal record
            if value != found.value:  # another claim was faster, perhaps an earlier one of this owner
                return None
            before = decode_record(value)
            if found.owner == owner:
                before = structs.replace(before, running=False)
            record = change(before)
            return None if record is before else record.encoded()

        lease = claim(self._store(), self._key(task_id), owner, now=now, until=until, change=step, ttl=ttl)
        return lease, record

    @staticmethod
    def change(
        lease: Lease, now: float, change: Callable[[TaskRecord], TaskRecord], *, until: float | None = None
    ) -> TaskRecord | None:
        """Change a task by its lease; return it as it is then, None if another process has claimed it since."""
        record = decode_record(lease.value)

        def step(value: bytes) -> bytes:
            nonlocal record
            record = change(decode_record(value))
            return record.encoded()

        return record if lease.change(step, until=until, ttl=record.kept_for(now)) else None

    def delete(self, task_id: str) -> None:
        """Delete the record of a task that has ended."""
        self._store().delete(self._key(task_id))

    # Queues.

    def left(self, tool: str) -> TaskQueue:
        """Return the tasks of the tool for which a ticket stands that processes without it have left."""
        return TaskQueue(self._store, f"{self._name}/left/{tool}")

    def attend(self, record: TaskRecord, at: float | None) -> None:
        """Let a task be looked after at a time; None lets it be."""
        if at is None:
            self.schedule.remove(Ticket.of(record))
        else:
            self.schedule.put(Ticket.of(record), at)

    def withdraw(self, ticket: Ticket) -> None:
        """Let a task wait no longer for a process to run it."""
        self.waiting.remove(ticket)
        self.left(ticket.tool).remove(ticket)

    def forget(self, ticket: Ticket) -> None:
        """Take a task out of all queues."""
        self.withdraw(ticket)
        self._of(ticket.owner).remove(ticket)
        self.schedule.remove(ticket)

    # How many there are of one principal.

    def count(self, owner: str | None, now: float, limit: int) -> int:
        """Return how many tasks of a principal have not ended, in all processes; no more than `limit`.

        Below it, tasks whose records have gone may count, too.
        """
        queue = self._of(_stands_for(owner or ""))
        found = len(queue.due(_FOR_EVER, limit))
        if found < limit:
            return found
        for ticket in queue.due(now, limit):  # their records have gone
            queue.remove(ticket)
        return len(queue.due(_FOR_EVER, limit))

    def expect(self, record: TaskRecord, at: float, now: float) -> None:
        """Let a new task be looked after at a time, and count it for its principal, until it has ended or its record goes."""
        ticket, kept = Ticket.of(record), record.kept_for(now)
        counted = _FOR_EVER if kept is None else now + kept
        schedule_together(
            self._store(), [self.schedule.change(ticket, at), self._of(ticket.owner).change(ticket, counted)]
        )

    def ended(self, record: TaskRecord) -> Sequence[Due]:
        """Return what takes a task out of the schedule, and counts it no more."""
        ticket = Ticket.of(record)
        return [self._of(ticket.owner).change(ticket, None), self.schedule.change(ticket, None)]

    def _of(self, owner: str) -> TaskQueue:
        return TaskQueue(self._store, f"{self._name}/{owner}")

    # How large those are that have ended.

    def room(self, most: int, most_of_one: int) -> TaskRoom:
        """Return the room for tasks that have ended, in bytes: of all principals together, and of one."""
        return TaskRoom(self._store, f"{self._name}/ended", self.delete, most=most, most_of_one=most_of_one)

    # Between processes.

    def publish(self, what: str, task_id: str) -> None:
        """Notify the processes of a task: that it has "changed", is "waiting" to be run, or must be "cancelled"."""
        self._store().publish(self._name, f"{what} {task_id}".encode())

    def subscribe(self, receive: Callable[[str, str], object]) -> Callable[[], None]:
        """Call `receive` with what is published; with empty texts where something may have been missed."""

        def receive_data(data: bytes | None) -> None:
            what, _, task_id = (data or b"").decode().partition(" ")
            receive(what, task_id)

        return self._store().subscribe(self._name, receive_data)
