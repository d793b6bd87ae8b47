"""What a server offers of one kind: named, in the order of registration, listed in pages that are encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from linkspan.errors import DuplicateNameError
from linkspan.revisions.neutral import Encoded
from linkspan.revisions.record import Revision
from linkspan.revisions.stepdown import step_down
from linkspan.server.content import check_shown
from linkspan.server.handlers import Handler
from linkspan.server.pagination import paginate
from linkspan.types.base import JSON, JSONObject, Wire
from linkspan.wire.messages import encode
from linkspan.wire.values import to_builtins

__all__ = ["Listed", "Registry"]


class Listed(Protocol):
    """Something that a list shows."""

    @property
    def spec(self) -> Wire:
        """Its wire shape."""
        ...


ItemT = TypeVar("ItemT", bound=Listed)


class Registry(Generic[ItemT]):
    """Items by key. Changes are checked first and made then, so a refused one leaves nothing behind."""

    def __init__(self, noun: str, member: str) -> None:
        """Hold items that messages call `noun` and that list results carry under `member`."""
        self._noun = noun
        self._member = member
        self.runs_code = False
        """Whether reading the arguments of any item runs, or once ran, code of the author."""
        self._items: dict[str, tuple[int, ItemT]] = {}
        self._sequence = 0
        self._pages: dict[tuple[object, ...], Encoded] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ItemT]:
        return (item for _, item in list(self._items.values()))

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str) -> ItemT | None:
        """Return the item under `key`."""
        found = self._items.get(key)
        return found[1] if found is not None else None

    def keys(self) -> Iterable[str]:
        """Return all keys, in order."""
        return self._items.keys()

    def add(self, items: Iterable[tuple[str, ItemT]]) -> None:
        """Add items. Raises: RegistrationError, and then none was added."""
        new = list(items)
        keys = [key for key, _ in new]
        taken = next((key for n, key in enumerate(keys) if key in self._items or key in keys[:n]), None)
        if taken is not None:
            raise DuplicateNameError(
                f"There is a {self._noun} {taken!r} already: choose another name, or remove the first one"
            )
        for _, item in new:
            check_shown(item.spec)
        for key, item in new:
            self._sequence += 1
            self._items[key] = (self._sequence, item)
            handler: Handler | None = getattr(item, "handler", None)
            self.runs_code = self.runs_code or (handler is not None and handler.parameters.runs_code)
        self._pages = {}

    def remove(self, key: str) -> ItemT | None:
        """Remove and return the item under `key`."""
        found = self._items.pop(key, None)
        self._pages = {}
        return found[1] if found is not None else None

    def page(
        self, revision: Revision, cursor: str | None, page_size: int | None, *, ttl_ms: int, cache_scope: str
    ) -> Encoded:
        """Return one page of the list, encoded for `revision`. Raises: RemoteProtocolError for a foreign cursor (PAG-2)."""
        key = (revision.date, cursor, page_size, ttl_ms, cache_scope)
        page = self._pages.get(key)
        if page is None:
            pages = self._pages  # a change from another thread brings new ones, so a stale page is never kept
            page = self._encode(revision, cursor, page_size, ttl_ms, cache_scope)
            if len(pages) < _MAX_PAGES:
                pages[key] = page
        return page

    def _encode(
        self, revision: Revision, cursor: str | None, page_size: int | None, ttl_ms: int, cache_scope: str
    ) -> Encoded:
        page = paginate(list(self._items.values()), cursor, page_size)
        shown: list[JSON] = [to_builtins(step_down(revision, item.spec)) for item in page.items]
        body: JSONObject = {self._member: shown}
        if page.next_cursor is not None:
            body["nextCursor"] = page.next_cursor
        if revision.caches_results:
            body |= {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        return Encoded(encode(body))


_MAX_PAGES = 256
