"""A directory as resources: a list of its files, a template that reads them, and notifications when they change.

The directory is looked at when a client lists resources, and every few seconds while a client listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.runtime.files import Directory, FileFacts, type_of_name
from linkspan.runtime.forks import ForkedLock
from linkspan.serve.media import File
from linkspan.server.observation import warn
from linkspan.server.resources import OF_A_FILE, BoundResource
from linkspan.types.base import Annotations

if TYPE_CHECKING:
    from linkspan.revisions.record import Revision
    from linkspan.server.catalogue import Registry


class FileResources:
    """The files below one directory, as resources below one URI."""

    def __init__(
        self,
        directory: Directory,
        uri: str,
        pattern: BoundResource,
        registry: Registry[BoundResource],
        pinned: Revision | None,
        *,
        notify: Callable[[Sequence[BoundResource]], object],
        notify_updated: Callable[[str], object],
        max_files: int,
        max_bytes: int,
    ) -> None:
        """List each file in `registry` as `pattern` is, beside what follows from the file.

        `notify` notifies of changed items of the list, `notify_updated` of one URI.
        """
        self._directory = directory
        self._uri = uri
        self._pattern = pattern
        self._registry = registry
        self._pinned = pinned
        self._notify = notify
        self._notify_updated = notify_updated
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._known: dict[str, FileFacts] | None = None
        self._lock = ForkedLock()
        self._refreshed = 0.0
        """When the last look began whose findings are listed."""
        self._warned = False

    def read(self, path: str) -> File | None:
        """Return a file, or None where there is none that may be read. Raises: RemoteProtocolError for a large one."""
        data = self._directory.read(path, self._max_bytes + 1)
        if data is not None and len(data) > self._max_bytes:
            problem = f"{self._uri}{quote(path)} has more than {self._max_bytes} bytes, which this server does not send"
            raise RemoteProtocolError(INVALID_PARAMS, problem)
        return None if data is None else File(data, path.rpartition("/")[2], mime_type=self._pattern.spec.mime_type)

    def refresh(self) -> None:
        """Look at the directory, and publish what has changed. It reads the disk, so no event loop may wait for it."""
        arrived = time.monotonic()
        with self._lock:
            if self._refreshed > arrived:
                return  # while this thread waited, another one has looked
            began = time.monotonic()
            found = self._directory.scan(self._max_files + 1)
            if len(found) > self._max_files:
                found.popitem()
                if not self._warned:
                    warn(
                        f"{self._uri}: only {self._max_files} files are listed, and all can be read (max_files, logged once)"
                    )
                self._warned = True
            known = self._known
            notify = self._publish(known or {}, found)
            self._known, self._refreshed = found, began
        if known is not None:  # before, no client has seen a list
            notify()

    def _publish(self, known: Mapping[str, FileFacts], found: Mapping[str, FileFacts]) -> Callable[[], object]:
        """Change the list, and return what notifies clients of that. Resources that are not files keep their URIs."""
        registry = self._registry
        mine = {each.spec.uri: each for each in registry.all() if each.derived is OF_A_FILE}
        gone = [uri for path in known if path not in found and (uri := self._uri_of(path)) in mine]
        on = [mine[uri] for uri in gone if registry.is_on(mine[uri])]
        differing = [self._bound(path, facts) for path, facts in found.items() if known.get(path) != facts]
        changed = [each for each in differing if each.spec.uri in mine]
        new = [each for each in differing if each.spec.uri not in registry]
        for uri in gone:
            registry.remove(uri)
        for each in changed:
            registry.replace(each)
        registry.add(new, self._pinned)
        changed_list = [*on, *(each for each in new if registry.is_on(each))]

        def notify() -> None:
            if changed_list:
                self._notify(changed_list)
            for uri in (*gone, *(each.spec.uri for each in changed)):
                self._notify_updated(uri)

        return notify

    def _uri_of(self, path: str) -> str:
        return self._uri + quote(path)

    def _bound(self, path: str, facts: FileFacts) -> BoundResource:
        pattern = self._pattern
        shape, handler = pattern.spec, pattern.handler
        assert handler is not None
        changed = datetime.fromtimestamp(facts.changed // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        shape = replace(
            shape,
            uri=self._uri_of(path),
            name=path,
            mime_type=shape.mime_type or type_of_name(path),
            size=facts.size,
            annotations=replace(shape.annotations or Annotations(), last_modified=changed),
        )
        return replace(
            pattern, spec=shape, handler=replace(handler, function=partial(self.read, path)), derived=OF_A_FILE
        )
