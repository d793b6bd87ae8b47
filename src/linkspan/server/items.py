"""The items of a list that an extension adds to a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from linkspan.errors import RegistrationError
from linkspan.revisions.neutral import NO_FACTS, Request
from linkspan.server.catalogue import Listed, Registry
from linkspan.server.handlers import Handler, MountedItem
from linkspan.server.visibility import Condition, When, check_scopes, check_tags, compile_condition
from linkspan.types.base import Wire


class BoundItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item, and who sees it."""

    spec: Wire
    tags: frozenset[str]
    when: Condition | None
    scopes: tuple[str, ...]
    handler: Handler | None = None
    derived: tuple[str, ...] = ()
    mounted: MountedItem | None = None
    """What serves it, if that is a mounted server."""


class _Add(Protocol):
    def __call__(self, registry: Registry[Any], items: Sequence[Listed], *, notify: bool = False) -> None: ...


class Items:
    """The items of one list of a server: `server.items("notes/list")`. They are found by the key that the list names."""

    def __init__(
        self,
        registry: Registry[Any],
        add: _Add,
        remove: Callable[[str, Registry[Any]], bool],
        announce: Callable[[str], int],
    ) -> None:
        """Made by `Server.items`."""
        self._registry = registry
        self._add = add
        self._remove = remove
        self._announce = announce

    def __len__(self) -> int:
        return len(self._registry)

    def __iter__(self) -> Iterator[Wire]:
        """Return the items, in the order in which they were added; none that `disable` has hidden."""
        return (each.spec for each in self._registry)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._registry

    def get(self, key: str) -> Wire | None:
        """Return the item under a key, hidden or not."""
        item = self._registry.registered(key)
        return item.spec if item is not None else None

    def add(
        self,
        item: Wire,
        *,
        when: When | None = None,
        tags: Sequence[str] | set[str] | frozenset[str] = (),
        scopes: Sequence[str] = (),
    ) -> None:
        """Add an item, and notify the clients if the server has `auto_notify`.

        It is a value of the shape that the list's pages hold. `when`, `tags` and `scopes` are those of tools: the callers that
        see it, the names for `disable`, and the scopes that a token needs for it. Raises: RegistrationError.
        """
        if not isinstance(item, Wire):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RegistrationError(f"{self._registry.spec.method}: an item is a Wire shape, not {type(item).__name__}")
        name = str(getattr(item, self._registry.spec.key))
        bound = BoundItem(
            spec=item,
            tags=check_tags(tags, name),
            when=compile_condition(when, name),
            scopes=check_scopes(scopes, name),
        )
        self._add(self._registry, [bound])

    def replace(self, item: Wire) -> None:
        """Put an item in the place of the one with its key, which keeps its condition, its tags and its scopes.

        Raises: KeyError if there is none.
        """
        before: BoundItem | None = self._registry.registered(str(getattr(item, self._registry.spec.key)))
        if before is None:
            raise KeyError(getattr(item, self._registry.spec.key))
        self._registry.replace(msgspec.structs.replace(before, spec=item))

    def usable(self, request: Request) -> list[Wire]:
        """Return the items that exist for the caller of a request, and whose scopes its token has; for a method `among` them."""
        grant = request.facts.grant
        local = request.facts is NO_FACTS

        def permitted(item: Listed) -> bool:
            return local or not item.scopes or (grant is not None and grant.scopes.issuperset(item.scopes))

        return [each.spec for each in self._registry.visible(request.shown) if permitted(each)]

    def remove(self, key: str) -> bool:
        """Remove the item under a key, and notify the clients as `add` does; return whether there was one."""
        return self._remove(key, self._registry)

    def notify_changed(self) -> int:
        """Notify the clients that listen for the list; return how many it has reached in this process."""
        return self._announce(self._registry.spec.capability)
