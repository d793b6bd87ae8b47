"""Where an extension is on: one server, as the extension sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from linkspan.core.waiting import ServerChange
from linkspan.errors import RegistrationError
from linkspan.server.announcing import Announcer
from linkspan.server.catalogue import Catalogue, Listed, Registry
from linkspan.server.items import Items
from linkspan.server.resources import BoundResource, BoundTemplate, Resource, ResourceTemplate
from linkspan.types.messages import Resource as ResourceShape
from linkspan.types.messages import ResourceTemplate as ResourceTemplateShape

Source = Resource | ResourceTemplate


class _RegisterOnPlace(Protocol):
    def __call__(self, registry: Registry[Any], items: Sequence[Any]) -> None: ...


class Place:
    """A server, for what an extension registers on it. Nothing is announced before `announce`, also with `auto_notify`."""

    def __init__(
        self,
        server: Any,
        catalogue: Catalogue,
        announcer: Announcer,
        register: _RegisterOnPlace,
        bind: Callable[[Source], BoundResource | BoundTemplate],
    ) -> None:
        """Made for `Extension.attach`."""
        self.server = server  # a BaseServer, whose module imports this one
        self._catalogue = catalogue
        self._announcer = announcer
        self._register = register
        self._bind = bind

    def items(self, method: str) -> Items:
        """Return the items of a list of the extension. Raises: RegistrationError for another one."""
        if (registry := self._catalogue.lists.get(method)) is None:
            raise RegistrationError(f"there is no list {method!r}")
        return Items(registry, self._add, self._remove, self._announcer.list_changed)

    def resource(self, uri: str) -> ResourceShape | ResourceTemplateShape | None:
        """Return what answers a URI as lists show it, hidden or not; None where nothing does."""
        found = self._catalogue.registered_for(uri)
        return found[0].spec if found else None

    def add(self, sources: Sequence[Source]) -> None:
        """Register resources and templates. Raises: RegistrationError, and then none is registered."""
        bound = [self._bind(each) for each in sources]
        resources = [each for each in bound if isinstance(each, BoundResource)]
        templates = [each for each in bound if isinstance(each, BoundTemplate)]
        self._register(self._catalogue.resources, resources)
        try:
            self._register(self._catalogue.templates, templates)
        except RegistrationError:
            for each in resources:
                self._remove(each.spec.uri, self._catalogue.resources)
            raise

    def replace(self, source: Source) -> None:
        """Put a resource or a template in the place of the one with its URI, which keeps its condition, its tags and its scopes.

        At no moment is there none. Raises: KeyError if there was none.
        """
        bound = self._bind(source)
        registry: Registry[Any] = (
            self._catalogue.resources if isinstance(bound, BoundResource) else self._catalogue.templates
        )
        if (before := registry.registered(registry.key_of(bound))) is None:
            raise KeyError(registry.key_of(bound))
        registry.replace(replace(bound, tags=before.tags, when=before.when, scopes=before.scopes))

    def remove(self, uri: str) -> None:
        """Remove the resource or the template of that URI, if there is one."""
        for registry in (self._catalogue.resources, self._catalogue.templates):
            self._remove(uri, registry)

    def is_listened_to(self) -> bool | None:
        """Return whether a client listens for changes; None if there is no connection."""
        return self._announcer.is_listened_to()

    def announce(self, kind: str, uris: Sequence[str] = ()) -> None:
        """Notify the clients of this process that the list `kind` has changed, and the resources at `uris`."""
        self._announcer.list_changed(kind, everywhere=False)
        for uri in uris:
            self._announcer.send(ServerChange.of_resource(uri), self._catalogue.audience_of(uri), everywhere=False)

    def notify(self, change: ServerChange) -> int:
        """Notify the clients of this process that listen for a change; return how many it has reached."""
        return self._announcer.send(change, None, everywhere=False)

    def _add(self, registry: Registry[Any], items: Sequence[Listed], *, notify: bool = False) -> None:
        self._register(registry, items)

    def _remove(self, key: str, registry: Registry[Any]) -> bool:
        if key not in registry:
            return False
        self._catalogue.remove(registry, key)
        return True
