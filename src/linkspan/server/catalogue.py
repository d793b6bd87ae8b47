"""What one server offers: registries of named items, the lists of them in pages, and the capabilities that follow.

A list's cursors stay right when items come and go. Every item has a sequence number, given at registration, rising, and never
given twice; a cursor holds the number of the last item that was shown. What is added or removed elsewhere is then neither
skipped nor repeated, and when that item itself is gone the list goes on behind the place where it was. Processes that register
the same things in the same order understand one another's cursors.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Protocol, TypeVar

import msgspec

from linkspan.core.call import Readiness
from linkspan.errors import (
    INVALID_PARAMS,
    DuplicateNameError,
    LocalProtocolError,
    MethodAlreadyDefinedError,
    RegistrationError,
    RemoteProtocolError,
)
from linkspan.revisions import LATEST, MESSAGES, METHODS, REVISIONS
from linkspan.revisions.neutral import NOTHING_SHOWN, Encoded, Request
from linkspan.revisions.record import Revision
from linkspan.revisions.stepdown import knows_field, step_down
from linkspan.server.content_blocks import check_shown, is_plain
from linkspan.server.handlers import Function, Handler, MountedItem, is_defined_again
from linkspan.server.visibility import KINDS, Condition, Switches
from linkspan.text import did_you_mean
from linkspan.types.base import JSON, UNSET, JSONObject, Wire, is_array, is_mapping, unknown_members
from linkspan.types.messages import (
    PromptReference,
    ResourceTemplateReference,
    ServerCapabilities,
)
from linkspan.types.methods import (
    COMPLETE,
    FEATURES,
    LISTED,
    LISTS,
    PROMPT_LIST,
    RESOURCE_LIST,
    RESOURCE_READ,
    TEMPLATE_LIST,
    TOOL_LIST,
    ListSpec,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import from_builtins, to_builtins

if TYPE_CHECKING:
    from linkspan.core.extension import Extension
    from linkspan.server.context import Context
    from linkspan.server.prompts import BoundPrompt
    from linkspan.server.resources import BoundResource, BoundTemplate
    from linkspan.server.tools import BoundTool

T = TypeVar("T")
ItemT = TypeVar("ItemT", bound="Listed")
_MARK = b"after:"
_MAX_DIGITS = 18
_MAX_PAGES = 256
_ABOUT_ANY_URI = (RESOURCE_READ.name, "resources/subscribe")
"""Methods whose functions decide themselves which resources exist."""
_VIEW: Final = 10**9
"""How far apart the sequence numbers of views are: more than any list has items."""
_RESERVED = MESSAGES | {"notifications/tasks"}
_RESERVED_PREFIXES = ("rpc.", "tasks/", "notifications/tasks/", "skills/")
"""Those of JSON-RPC and of the official extensions, on or off."""


class Catalogue:
    """The registries of one server."""

    def __init__(self, capabilities: object = None) -> None:
        """Take what the author declares instead of, or besides, what is registered. Raises: RegistrationError."""
        self.switches = switches = Switches()
        self.lists: dict[str, Registry[Any]] = {name: Registry(spec, switches) for name, spec in LISTS.items()}
        """What is registered, by the method that lists it."""
        self.tools: Registry[BoundTool] = self.lists[TOOL_LIST.method]
        self.resources: Registry[BoundResource] = self.lists[RESOURCE_LIST.method]
        self.templates: Registry[BoundTemplate] = self.lists[TEMPLATE_LIST.method]
        self.prompts: Registry[BoundPrompt] = self.lists[PROMPT_LIST.method]
        self.custom_methods: dict[str, Handler] = {}
        self.read_handler: Handler | None = None
        self.completers: dict[tuple[str, str], Handler] = {}
        self.completion_handler: Handler | None = None
        self.answered: dict[str, Handler] = {}
        """The functions that answer methods of the protocol entirely."""
        self.declared = _checked(capabilities) if capabilities is not None else None
        self.extensions: dict[str, Extension] = {}
        self.sources: dict[str, tuple[Callable[[], object], ...]] = {}
        """What brings a list up to date, by the method that asks for it; it may block."""
        self.sourced: frozenset[str] = frozenset()
        """The methods besides those of lists that have sources, here or in a mounted server."""
        self.is_conditional = False
        """Whether anything that was ever registered has a condition."""
        self.is_scoped = False
        """Whether anything that was ever registered needs scopes."""
        self.inner: tuple[Catalogue, ...] = ()
        """Those of the servers that are mounted in this one."""
        self.outer: tuple[Catalogue, ...] = ()
        """Those of the servers that this one is mounted in."""
        self.item_sources: tuple[ItemSource, ...] = ()
        """What offers items besides those that are registered."""
        self._promised: set[str] = set()  # lists that a client has seen stay, even when they are empty

    def add_list(self, spec: ListSpec[Any, Any]) -> Registry[Any]:
        """Return a new list, for the items of an extension. Raises: RegistrationError for one that exists."""
        if spec.method in self.lists or any(spec.noun == each.spec.noun for each in self.lists.values()):
            raise RegistrationError(f"{spec.method}: there is a list of that method, or of items called {spec.noun!r}")
        self.lists[spec.method] = added = Registry[Any](spec, self.switches)
        return added

    def views_for(self, request: Request) -> tuple[list[CallerView], list[AwaitedView]]:
        """Return what the sources of items offer to the caller of a request, and what has to be waited for."""
        views: list[CallerView] = []
        awaited: list[AwaitedView] = []
        for source in self.item_sources:
            found = source.view(request)
            if isinstance(found, CallerView):
                views.append(found)
            elif found is not None:
                awaited.append(found)
        return views, awaited

    def sources_of(self, method: str) -> Sequence[Callable[[], object]]:
        """Return what brings a list up to date, with the lists of mounted servers."""
        own = self.sources.get(method, ())
        return (*own, *chain.from_iterable(each.sources_of(method) for each in self.inner)) if self.inner else own

    def add_sources(self, sources: Mapping[str, Callable[[], object]]) -> None:
        """Bring up to date what methods show, each time before they are served."""
        for method, source in sources.items():
            self.sources[method] = (*self.sources.get(method, ()), source)
        self.mark_sourced(self.sourced.union(sources))

    def mark_sourced(self, methods: frozenset[str]) -> None:
        """Note the methods that have sources, in the servers around this one, too."""
        self.sourced |= methods
        for each in self.outer:
            each.mark_sourced(methods)

    def promise(self, capabilities: Collection[str]) -> None:
        """Offer capabilities that have lists, even when these are empty."""
        self._promised.update(capabilities)

    def check_method(self, name: str, function: Function) -> None:
        """Refuse a name for a custom method. Raises: RegistrationError, MethodAlreadyDefinedError."""
        before = self.custom_methods.get(name)
        if before is not None and is_defined_again(before.function, function):
            return
        if not name:
            raise RegistrationError("a custom method needs a name, such as 'acme/add'")
        if self.knows_method(name):
            raise MethodAlreadyDefinedError(name)
        if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            raise MethodAlreadyDefinedError(name, reserved=True)

    def knows_method(self, method: str) -> bool:
        """Return whether a method is served: the protocol's, in any revision, the author's, or an extension's."""
        known = method in METHODS or method in self.custom_methods or method in self.lists
        return known or any(method in each.methods for each in self.extensions.values())

    def handlers(self) -> Iterator[Handler]:
        """Return every function that is registered."""
        for registry in self.lists.values():
            yield from (each.handler for each in registry.all() if each.handler is not None)
        yield from (*self.custom_methods.values(), *self.completers.values(), *self.answered.values())
        yield from (each for each in (self.read_handler, self.completion_handler) if each is not None)

    def add(self, registry: Registry[ItemT], items: Sequence[ItemT], pinned: Revision | None) -> None:
        """Register items that `pinned` can name. Raises: RegistrationError, and then none was registered."""
        self.is_conditional = self.is_conditional or any(each.when is not None for each in items)
        self.is_scoped = self.is_scoped or any(each.scopes for each in items)
        registry.add(items, pinned)

    def scopes(self) -> dict[str, tuple[str, ...]]:
        """Return the scopes of all items that need any, by what sentences call the item."""
        return {
            f"{registry.spec.words} {getattr(each.spec, registry.spec.key)!r}": each.scopes
            for registry in self.lists.values()
            for each in registry.all()
            if each.scopes
        }

    def remove(self, registry: Registry[Any], key: str) -> Listed | None:
        """Remove an item, and return it if it was on; what is registered under its name later is on."""
        item: Listed | None = registry.registered(key)
        was_on = registry.is_on(item)
        registry.remove(key)
        if self.switches.calls and key not in self._names():
            self.switches.forget(key)
        return item if was_on else None

    def switch(self, name_or_tag: str, kind: str | None, *, on: bool) -> dict[str, list[Listed]]:
        """Switch items on or off; return those that changed, by the list that has them. Raises: RegistrationError."""
        kinds = [*KINDS, *(each.spec.noun for each in self.lists.values() if each.spec.noun not in KINDS)]
        if kind is not None and kind not in kinds:
            raise RegistrationError(f"kind must be one of {', '.join(kinds)}; got {kind!r}")
        names = self._names(kind)
        if name_or_tag not in names and not self.item_sources:  # what those offer is not known to all
            raise RegistrationError(
                f"There is no {kind or 'item'} with the name or the tag {name_or_tag!r}{did_you_mean(name_or_tag, names)}"
            )
        self.switches.turn(name_or_tag, kind, on=on)
        moved: dict[str, list[Listed]] = {}
        for registry in self.lists.values():
            if found := registry.switch():
                moved.setdefault(registry.spec.capability, []).extend(found)
        for each in self.item_sources:
            each.switch()
        return moved

    def _names(self, kind: str | None = None) -> set[str]:
        """Return the names and tags of all items, or of those of one kind."""
        return set[str]().union(*(each.names() for each in self.lists.values() if kind in (None, each.spec.noun)))

    def find_resource(
        self, uri: str, shown: Collection[object] = NOTHING_SHOWN
    ) -> tuple[BoundResource | BoundTemplate, dict[str, str]] | None:
        """Return what answers `uri`, and the variables in it: an exact resource first, then templates in their order.

        A resource that is hidden keeps its URI: no template answers in its place.
        """
        exact = self.resources.get(uri, shown)
        if exact is not None:
            return exact, {}
        if uri in self.resources:
            return None
        for template in self.templates.visible(shown):
            variables = template.template.match(uri)
            if variables is not None:
                return template, variables
        if shown and not self.registered_for(uri):
            for view in sorted(views_in(shown), key=attrgetter("place")):
                if view.unlisted is not None and (found := view.unlisted(uri)) is not None:
                    return found, {}
        return None

    def knows_resource(self, uri: str, shown: Collection[object] = NOTHING_SHOWN) -> bool:
        """Return whether a read of `uri` could be answered."""
        if self.find_resource(uri, shown) is not None:
            return True
        reads_all = self.read_handler is not None or not self.answered.keys().isdisjoint(_ABOUT_ANY_URI)
        return reads_all and not self.registered_for(uri)

    def has_reference(self, ref: PromptReference | ResourceTemplateReference, shown: Collection[object]) -> bool:
        """Return whether what a completion is for exists for a caller."""
        if isinstance(ref, PromptReference):
            return self.prompts.get(ref.name, shown) is not None
        if ref.uri in self.templates:
            return self.templates.get(ref.uri, shown) is not None
        return self.templates.get(ref.uri, shown) is not None or self.knows_resource(ref.uri, shown)

    def audience_of(self, uri: str) -> list[Condition | None] | None:
        """Return the conditions of what answers `uri` and is on; None for all callers, and where nothing is registered for it."""
        found = self.registered_for(uri)
        on = [each.when for each in found if self.resources.is_on(each) or self.templates.is_on(each)]
        return on if found else None

    def registered_for(self, uri: str) -> list[BoundResource | BoundTemplate]:
        """Return what is registered for `uri`, hidden or not: the exact resource, or the templates that match it."""
        exact = self.resources.registered(uri)
        if exact is not None:
            return [exact]
        return [each for each in self.templates.all() if each.template.match(uri) is not None]

    def conditions_of(self, *uris: str) -> tuple[Condition, ...]:
        """Return the conditions of all that may answer one of `uris`."""
        found = (each.when for uri in uris for each in self.registered_for(uri))
        return tuple(each for each in found if each is not None)

    def completes(self) -> bool:
        """Return whether there is anything to complete."""
        own = self.completers or self.completion_handler or COMPLETE.name in self.answered
        prompts = any(_has_choices(prompt.handler.parameters.json_schema) for prompt in self.prompts)
        others = any(each.offers("completions") for each in self.item_sources)
        return bool(own) or prompts or others or any(each.completes() for each in self.inner)

    def offers(self, kind: str) -> bool:
        """Return whether a capability such as "tools" is offered: what is declared is what is served (SRV-3).

        A server without anything in any list may get something later, and so offers all lists unless its author declared one.
        """
        if isinstance(self.declared, ServerCapabilities):
            return getattr(self.declared, kind) is not None
        if self.declared is not None and kind in self.declared:
            return self.declared[kind] is not None
        if kind in LISTED:
            return self._has(kind) or kind in self._promised or self._is_empty()
        return self.completes() if kind == "completions" else True

    def _is_empty(self) -> bool:
        """Return whether nothing is registered in any list, and none was declared."""
        said = self.declared if self.declared is not None and is_mapping(self.declared) else ()
        return not any(kind in said or self._has(kind) for kind in LISTED)

    def _has(self, kind: str) -> bool:
        has_items = any(len(each) for each in self.lists.values() if each.spec.capability == kind)
        has_items = has_items or any(each.offers(kind) for each in self.item_sources)
        is_answered = any(each.partition("/")[0] == kind for each in self.answered)
        return has_items or is_answered or (kind == "resources" and self.read_handler is not None)

    def capabilities(self, revision: Revision = LATEST) -> ServerCapabilities:
        """Return what is offered now, and what the author declared besides (SRV-1, SRV-3).

        A list that is offered once stays offered: clients keep what they receive here.
        """
        offered = self._offered()
        settings = {
            each.id: said
            for each in self.extensions.values()
            if (said := self.settings_of(each)) is not None and (revision.extends_by_request or not each.needs_envelope)
        }
        if not settings:
            return offered
        return msgspec.structs.replace(offered, extensions={**(offered.extensions or {}), **settings})

    def settings_of(self, extension: Extension) -> JSONObject | None:
        """Return what is announced of an extension; None if nothing is."""
        if not extension.passes_on:
            return extension.server
        said = (each.settings(extension) for each in self.item_sources)
        found = next((each for each in said if each is not None), None)
        return None if found is None else {**found, **(extension.server or {})}

    def _offered(self) -> ServerCapabilities:
        self._promised.update([kind for kind in LISTED if self.offers(kind)])
        offered = {each.capability: each.announced for each in FEATURES if self.offers(each.capability)}
        derived = ServerCapabilities(**offered)  # type: ignore[arg-type]
        if self.declared is None:
            return derived
        if isinstance(self.declared, ServerCapabilities):
            return self.declared
        merged: dict[str, Any] = to_builtins(derived)
        for name, value in self.declared.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return from_builtins(merged, ServerCapabilities)


def _checked(capabilities: object) -> Mapping[str, JSON] | ServerCapabilities:
    """Hold a declaration to its shape now: every handshake and every list would fail over it later."""
    if not isinstance(capabilities, ServerCapabilities) and not is_mapping(capabilities):
        raise RegistrationError(f"capabilities are a mapping or ServerCapabilities, not {type(capabilities).__name__}")
    given: JSON = to_builtins(capabilities)
    try:
        encode(given)
        from_builtins({name: value for name, value in given.items() if value is not None}, ServerCapabilities)
    except (msgspec.MsgspecError, TypeError, ValueError) as problem:
        raise RegistrationError(
            f"capabilities: {problem}; write an object for each one, such as {{'tools': {{'listChanged': True}}}}"
        ) from None
    return capabilities if isinstance(capabilities, ServerCapabilities) else given


def _has_choices(schema: Mapping[str, JSON]) -> bool:
    properties: Mapping[str, JSON] = schema.get("properties") or {}
    return any("enum" in each for each in properties.values())


class Listed(Protocol):
    """Something that a list shows."""

    @property
    def spec(self) -> Wire:
        """Its wire shape."""
        ...

    @property
    def handler(self) -> Handler | None:
        """The function that serves it, if there is one."""
        ...

    @property
    def derived(self) -> Collection[str]:
        """The members of its shape that the author did not write."""
        ...

    @property
    def tags(self) -> frozenset[str]:
        """What `disable` and `enable` may call it besides its name."""
        ...

    @property
    def when(self) -> Condition | None:
        """Which callers see it; None for all."""
        ...

    @property
    def scopes(self) -> tuple[str, ...]:
        """What the token of a call needs, where the server verifies tokens. All callers see it."""
        ...

    @property
    def mounted(self) -> MountedItem | None:
        """What serves it, if that is a server that is mounted in this one."""
        ...


class Mirror(Protocol):
    """A registry elsewhere that shows the items of a registry too."""

    def check(self, items: Sequence[Any]) -> None:
        """Refuse items that are about to be added. Raises: RegistrationError."""
        ...

    def add(self, items: Sequence[Any]) -> None:
        """Show items that were added."""
        ...

    def replace(self, item: Any) -> None:
        """Show an item in the place of the one with its key."""
        ...

    def remove(self, key: str) -> None:
        """Show an item no more."""
        ...

    def switch(self) -> None:
        """Follow the switches."""
        ...


class Registry(Generic[ItemT]):
    """Items by key. Changes are checked first and made then, so a refused one leaves nothing behind.

    Items that are switched off are kept aside, with their sequence numbers, so that they come back to their places. Of the
    items with a condition, a caller sees those whose condition is in `shown`.
    """

    def __init__(self, spec: ListSpec[Any, Any], switches: Switches) -> None:
        """Hold the items of one list."""
        self.spec = spec
        self._key = spec.key
        self._switches = switches
        self._items: dict[str, tuple[int, ItemT]] = {}
        self._off: dict[str, tuple[int, ItemT]] = {}
        self._sequence = 0
        self._pages: dict[tuple[object, ...], Encoded] = {}
        self.conditions: dict[str, Condition] = {}
        """Those of the items that are on, by key."""
        self.mirrors: tuple[Mirror, ...] = ()
        """Those of the servers that this one is mounted in."""

    def __len__(self) -> int:
        return len(self._items) + len(self._off)

    def __iter__(self) -> Iterator[ItemT]:
        return (item for _, item in self._in_order())

    def __contains__(self, key: str) -> bool:
        return key in self._items or key in self._off

    def key_of(self, item: Listed) -> str:
        """Return what an item is found by."""
        key: str = getattr(item.spec, self._key)
        return key

    def get(self, key: str, shown: Collection[object] = NOTHING_SHOWN) -> ItemT | None:
        """Return the item under `key`, if it exists for a caller."""
        found = self._items.get(key)
        if found is None and shown and key not in self._off:
            for view in shown if len(shown) == 1 else sorted(views_in(shown), key=attrgetter("place")):
                others: Registry[ItemT] | None = (
                    view.lists.get(self.spec.method) if isinstance(view, CallerView) else None
                )
                if others is not None and (found := others._items.get(key)) is not None:
                    break
        if found is None:
            return None
        item = found[1]
        return item if item.when is None or item.when in shown else None

    def registered(self, key: str) -> ItemT | None:
        """Return the item under `key`, hidden or not."""
        found = self._items.get(key) or self._off.get(key)
        return found[1] if found is not None else None

    def is_on(self, item: object) -> bool:
        """Return whether an item is registered here and not switched off."""
        found = self._items.get(getattr(getattr(item, "spec", None), self._key, ""))
        return found is not None and found[1] is item

    def visible(self, shown: Collection[object]) -> Iterator[ItemT]:
        """Return what exists for a caller, in order."""
        return (item for _, item in self._shown_to(shown))

    def all(self) -> list[ItemT]:
        """Return what is registered, hidden or not, in order."""
        return [item for _, item in sorted((*self._items.values(), *self._off.values()), key=itemgetter(0))]

    def keys(self, shown: Collection[object]) -> list[str]:
        """Return the keys of what exists for a caller."""
        return [getattr(item.spec, self._key) for item in self.visible(shown)]

    def names(self) -> set[str]:
        """Return all keys and tags, by which items can be switched off and on."""
        return {*self._items, *self._off}.union(*(item.tags for item in self.all()))

    def add(self, items: Sequence[ItemT], pinned: Revision | None = None) -> None:
        """Add items that `pinned` can name. Raises: RegistrationError, and then none was added."""
        keys: list[str] = [getattr(item.spec, self._key) for item in items]
        for item in items:
            check_pinned(pinned, item.spec, derived=item.derived)
        again = {key for key, item in zip(keys, items, strict=True) if self._redefines(key, item)}
        taken = next((key for n, key in enumerate(keys) if (key in self and key not in again) or key in keys[:n]), None)
        if taken is not None:
            self._refuse(taken)
        for item in items:
            check_shown(item.spec)
        for mirror in self.mirrors:
            mirror.check(items)
        for key, item in zip(keys, items, strict=True):
            self._take(key)
            self._sequence += 1
            self._put(key, self._sequence, item, is_on=self._wants(key, item))
        self._pages = {}
        for mirror in self.mirrors:
            mirror.add(items)

    def _refuse(self, key: str) -> Never:
        words, item = self.spec.words, self.registered(key)
        if item is not None and item.mounted is not None and item.mounted.server is not None:
            raise DuplicateNameError(
                f"The mounted server {item.mounted.server!r} has a {words} {key!r} already: choose another name, or mount it "
                "with prefix= or hide= [LS-705]"
            )
        raise DuplicateNameError(
            f"There is already a {words} {key!r}: choose another name, or remove the first one [LS-705]"
        )

    def _wants(self, key: str, item: ItemT) -> bool:
        """Return whether the switches want an item on: here, and where it is from."""
        is_on = self._switches.is_on(self.spec.noun, key, item.tags)
        return is_on and (item.mounted is None or item.mounted.is_on)

    def _redefines(self, key: str, item: ItemT) -> bool:
        """Return whether an item takes the place of the one under its key: its function was defined again at a prompt."""
        before = self.registered(key)
        if before is None or before.handler is None or item.handler is None:
            return False
        return is_defined_again(before.handler.function, item.handler.function)

    def replace(self, item: ItemT) -> None:
        """Put an item in the place of the one with its key, which has the same tags and condition."""
        key: str = getattr(item.spec, self._key)
        place = self._items if key in self._items else self._off
        place[key] = (place[key][0], item)
        self._pages = {}
        for mirror in self.mirrors:
            mirror.replace(item)

    def exchange(self, key: str, item: ItemT) -> None:
        """Put an item, which may have another key, in the place of the one under `key`. Raises: DuplicateNameError."""
        name = self.key_of(item)
        if name != key and name in self:
            self._refuse(name)
        found = self._items.get(key) or self._off[key]
        for mirror in self.mirrors:
            mirror.remove(key)
        self._take(key)
        self._put(name, found[0], item, is_on=self._wants(name, item))
        self._pages = {}
        for mirror in self.mirrors:
            mirror.add([item])

    def remove(self, key: str) -> None:
        """Remove the item under `key`, if there is one."""
        self._take(key)
        self._pages = {}
        for mirror in self.mirrors:
            mirror.remove(key)

    def switch(self) -> list[ItemT]:
        """Put every item where the switches want it now; return those that were moved."""
        moved: list[ItemT] = []
        for now_on, items in ((True, self._items), (False, self._off)):
            for key, (_, item) in list(items.items()):
                is_on = self._wants(key, item)
                if is_on is not now_on and (found := self._take(key)) is not None:
                    self._put(key, *found, is_on=is_on)
                    moved.append(item)
        self._pages = {}
        for mirror in self.mirrors:
            mirror.switch()
        return moved

    def _put(self, key: str, sequence: int, item: ItemT, *, is_on: bool) -> None:
        if not is_on:
            self._off[key] = (sequence, item)
            return
        if item.when is not None:
            self.conditions[key] = item.when
        self._items[key] = (sequence, item)

    def _take(self, key: str) -> tuple[int, ItemT] | None:
        found = self._items.pop(key, None) or self._off.pop(key, None)
        self.conditions.pop(key, None)
        return found

    def _in_order(self) -> list[tuple[int, ItemT]]:
        return sorted(self._items.values(), key=itemgetter(0))

    def page(
        self,
        revision: Revision,
        cursor: str | None,
        page_size: int | None,
        *,
        ttl_ms: int,
        cache_scope: str,
        shown: frozenset[object] = NOTHING_SHOWN,
    ) -> Encoded:
        """Return one page of the list, encoded for `revision`. Raises: RemoteProtocolError for a foreign cursor (PAG-2).

        Callers get the same bytes only if they see the same items.
        """
        key = (revision.date, cursor, page_size, ttl_ms, cache_scope, shown)
        page = self._pages.get(key)
        if page is None:
            pages = self._pages  # a change from another thread brings new ones, so a stale page is never kept
            page = self._encode(revision, cursor, page_size, ttl_ms, cache_scope, shown)
            if len(pages) < _MAX_PAGES:
                pages[key] = page
        return page

    def result(
        self,
        cursor: str | None,
        page_size: int | None,
        *,
        ttl_ms: int,
        cache_scope: str,
        shown: frozenset[object] = NOTHING_SHOWN,
        caches: bool = True,
    ) -> Wire:
        """Return the same page as a result with its items, without hints for a cache where none `caches`.

        Raises: RemoteProtocolError for a foreign cursor (PAG-2).
        """
        page = self._paginate(cursor, page_size, shown)
        specs = [each.spec for each in page.items]
        hints = (ttl_ms, self.scope(cache_scope, shown)) if caches else ()
        result: Wire = self.spec.result(specs, page.next_cursor, *hints)
        return result

    def _paginate(self, cursor: str | None, page_size: int | None, shown: Collection[object]) -> ListPage[ItemT]:
        return paginate(self._shown_to(shown), cursor, page_size)

    def _shown_to(self, shown: Collection[object]) -> list[tuple[int, ItemT]]:
        """Return what exists for a caller, in order, with its sequence numbers: own items, and then those of views."""
        items = self._in_order()
        if self.conditions:
            items = [each for each in items if each[1].when is None or each[1].when in shown]
        taken = {*self._items, *self._off} if shown else set[str]()
        for place, others in enumerate(_in_views(self.spec.method, shown), 1):
            found = [each for each in others._in_order() if self.key_of(each[1]) not in taken]
            items += [(place * _VIEW + number, item) for number, item in found]
            taken.update(self.key_of(item) for _, item in found)
        return items

    def scope(self, cache_scope: str, shown: Collection[object] = NOTHING_SHOWN) -> str:
        """Return for whom a page may be kept: for its caller only, where callers may see or use different items."""
        is_private = self.conditions or any(views_in(shown)) or any(item.scopes for item in self.all())
        return "private" if is_private else cache_scope

    def forget_pages(self) -> None:
        """Encode pages anew: a view has changed."""
        self._pages = {}

    def _encode(
        self,
        revision: Revision,
        cursor: str | None,
        page_size: int | None,
        ttl_ms: int,
        cache_scope: str,
        shown: frozenset[object],
    ) -> Encoded:
        page = self._paginate(cursor, page_size, shown)
        items: list[JSON] = [_shown(step_down(revision, item.spec)) for item in page.items]
        body: JSONObject = {self.spec.member: items}
        if page.next_cursor is not None:
            body["nextCursor"] = page.next_cursor
        if revision.caches_results:
            body |= {"ttlMs": ttl_ms, "cacheScope": self.scope(cache_scope, shown)}
        try:
            return Encoded(encode(body))
        except TypeError:  # a schema of the author's is made of mappings that are not dictionaries
            return Encoded(encode(to_builtins(body)))


class CallerView(Condition, frozen=True, eq=False, kw_only=True):
    """What one source offers to one caller, besides what is registered: a condition that holds for this caller alone.

    It is in `Request.shown` of the caller's requests. A view never changes: another one takes its place.
    """

    lists: Mapping[str, Registry[Any]]
    """Its items, by the methods of their lists. The condition of each is this view."""
    place: int
    """Its place among the sources of the server, from 1 on: what is registered comes first."""
    belongs_to: Callable[[Request], bool]
    """Whether a request is of its caller."""
    unlisted: Callable[[str], BoundResource | None] | None = None
    """Returns what reads a URI that nothing names, if its source may know that."""

    def holds(self, make_context: Callable[[], Context], request: Request) -> object:
        """Return whether a request is of its caller."""
        return self.belongs_to(request)


def views_in(shown: Collection[object]) -> Iterator[CallerView]:
    """Return the views among what is shown to a caller."""
    return (each for each in shown if isinstance(each, CallerView))


def _in_views(method: str, shown: Collection[object]) -> Iterator[Registry[Any]]:
    """Return a list of each view, in the order of their sources."""
    views = sorted(views_in(shown), key=attrgetter("place"))
    return (each.lists[method] for each in views if method in each.lists)


class AwaitedView(Readiness, Protocol):
    """A view on its way, or several."""

    def beside(self, others: Sequence[AwaitedView]) -> Readiness:
        """Return what waits for the others, too."""
        ...


class ItemSource(Protocol):
    """Offers items besides those that are registered, to each caller others: the tools of a server elsewhere, for instance."""

    def view(self, request: Request) -> CallerView | AwaitedView | None:
        """Return what it offers to the caller of a request: a view, what has to be waited for before, or nothing.

        What was waited for once, and did not come in time, is nothing from then on, until it is there.
        """
        ...

    def introduction(self, request: Request) -> AwaitedView | None:
        """Return what has to be waited for before this server is described to a client, if anything has to."""
        ...

    def listens(self, request: Request) -> None:
        """Receive what a client is about to listen for: `subscriptions/listen` or `resources/subscribe`."""
        ...

    def switch(self) -> None:
        """Follow the switches."""
        ...

    def offers(self, kind: str) -> bool:
        """Return whether it offers a capability, such as "tools", as far as that is known; if not, that it does."""
        ...

    def settings(self, extension: Extension) -> JSONObject | None:
        """Return what it announces of an extension, if it has that; before that is known, what the record announces."""
        ...


def _shown(spec: Wire | JSON) -> JSON:
    """Return what is encoded for an item: the shape itself, where encoding loses nothing of it."""
    return spec if isinstance(spec, Wire) and is_plain(spec) and not unknown_members(spec) else to_builtins(spec)


def check_pinned(pinned: Revision | None, spec: Wire, *, derived: Collection[str] = ()) -> None:
    """Refuse members that the pinned revision does not know, naming the first one that does (H14).

    Members that were `derived` from hints are left out on the way instead: the author did not write them.
    Raises: RegistrationError.
    """
    if pinned is None:
        return
    for field in spec.__struct_fields__:
        value = getattr(spec, field)
        if value is None or value is UNSET or field in derived:
            continue
        if not knows_field(pinned, type(spec), field):
            since = next(each.date for each in REVISIONS.values() if knows_field(each, type(spec), field))
            raise RegistrationError(
                f"`{field}` of {type(spec).__name__} supported by protocol version {since} or higher"
            )
        for inner in value if is_array(value) else (value,):
            if isinstance(inner, Wire):
                check_pinned(pinned, inner)


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, and where it goes on (None at the end)."""

    items: list[T]
    next_cursor: str | None


def paginate(items: Sequence[tuple[int, T]], cursor: str | None, page_size: int | None) -> ListPage[T]:
    """Return the page after `cursor` of `(sequence, item)` with rising sequences; all of the rest if `page_size` is None.

    Raises: RemoteProtocolError (-32602) for a cursor that was not made here (PAG-2), as the empty string is not;
    LocalProtocolError for a `page_size` below 1.
    """
    if page_size is not None and page_size < 1:
        raise LocalProtocolError(f"page_size must be at least 1, or None for all; got {page_size}")
    from bisect import bisect_right  # not before a list is asked for

    start = 0 if cursor is None else bisect_right(items, _sequence(cursor), key=itemgetter(0))
    end = len(items) if page_size is None else min(start + page_size, len(items))
    next_cursor = _cursor(items[end - 1][0]) if end < len(items) else None
    return ListPage([item for _, item in items[start:end]], next_cursor)


def _cursor(sequence: int) -> str:
    return binascii.b2a_base64(b"%b%d" % (_MARK, sequence), newline=False).decode()


def _sequence(cursor: str) -> int:
    try:
        text = binascii.a2b_base64(cursor.encode("ascii"), strict_mode=True)
    except ValueError:  # binascii.Error and UnicodeEncodeError are some
        text = b""
    digits = text.removeprefix(_MARK)
    if digits.isdigit() and len(digits) <= _MAX_DIGITS and cursor == _cursor(int(digits)):
        return int(digits)
    raise RemoteProtocolError(INVALID_PARAMS, "Invalid cursor: use the nextCursor of the page before, unchanged")
