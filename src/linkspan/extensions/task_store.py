"""The tasks of one server in its store: records with leases, the schedule of what is due, and a channel between processes.

All operations may block, and raise StoreError if the store fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from linkspan.extensions.task_record import TaskRecord, decode_record
from linkspan.stores.leases import Lease, amend, claim, create, look
from linkspan.stores.port import Store
from linkspan.wire.values import key_of

__all__ = ["TaskStore", "new_id"]

_ID: Final = re.compile("[0-9a-f]{32}")
_BATCH: Final = 64
"""Tasks that are looked at in one go."""
_FOR_EVER: Final = 253402300799.0
"""When a task without an end is not counted any more: at the end of the year 9999."""


def new_id(random: Callable[[int], bytes]) -> str:
    """Return an id that cannot be guessed: 128 random bits (TSK-S13)."""
    return random(16).hex()


class TaskStore:
    """The tasks of one server. Another server in the same store does not see them."""

    def __init__(self, store: Callable[[], Store], server: str) -> None:
        """Keep the tasks of the server of this name in `store()`, which is opened when it is first used."""
        self._store = store
        self._scope = key_of(server)
        self._name = f"tasks/{self._scope}"

    @property
    def quick(self) -> bool:
        """Whether operations take microseconds."""
        return self._store().quick

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

    # What is due.

    def attend(self, task_id: str, at: float | None) -> None:
        """Let a task be looked at at a time; None lets it be."""
        self._store().schedule(self._name, task_id, at)

    def due(self, now: float) -> Sequence[str]:
        """Return the tasks to look at, some of them if there are many."""
        return self._store().due(self._name, now, _BATCH)

    # How many there are of one principal.

    def count(self, owner: str, now: float, limit: int) -> int:
        """Return how many tasks of a principal have not ended, in all processes; no more than `limit`."""
        store, queue = self._store(), self._queue_of(owner)
        for task_id in store.due(queue, now, limit):  # their records have gone
            store.schedule(queue, task_id, None)
        return len(store.due(queue, _FOR_EVER, limit))

    def note(self, record: TaskRecord, now: float) -> None:
        """Count a new task for its principal, until it has ended or its record goes."""
        if record.owner is not None:
            kept = record.kept_for(now)
            self._store().schedule(self._queue_of(record.owner), record.id, _FOR_EVER if kept is None else now + kept)

    def note_end(self, record: TaskRecord) -> None:
        """Count a task no more."""
        if record.owner is not None:
            self._store().schedule(self._queue_of(record.owner), record.id, None)

    def _queue_of(self, owner: str) -> str:
        return f"{self._name}/{key_of(owner)}"

    # Between processes.

    def publish(self, what: str, task_id: str) -> None:
        """Notify the processes of a task: that it has "changed", is "waiting" to be run, or must be "cancelled"."""
        self._store().publish(self._name, f"{what} {task_id}".encode())

    def subscribe(self, hear: Callable[[str, str], object]) -> Callable[[], None]:
        """Call `hear` with what is published; with empty texts where something may have been missed."""

        def receive(data: bytes | None) -> None:
            what, _, task_id = (data or b"").decode().partition(" ")
            hear(what, task_id)

        return self._store().subscribe(self._name, receive)
