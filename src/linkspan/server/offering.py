"""What a server offers, from what its author registers: it is bound, added to the catalogue, and announced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.server.announcing import Announcer
from linkspan.server.catalogue import Catalogue, ItemT, Listed, Registry
from linkspan.server.configuration import SettingsSource
from linkspan.server.dispatch import Dispatcher
from linkspan.server.resources import (
    BoundResource,
    BoundTemplate,
    Resource,
    ResourceSource,
    ResourceTemplate,
    TemplateSource,
    bind_resource,
    bind_template,
)
from linkspan.server.tools import BoundTool, ToolInfo, ToolSource, bind_tool
from linkspan.server.visibility import Kind
from linkspan.text import did_you_mean
from linkspan.types.methods import ITEM_METHODS

if TYPE_CHECKING:
    from linkspan.core.extension import Attached, Extension, MakesExtension
    from linkspan.server.editing import Edit
    from linkspan.server.items import Items
    from linkspan.server.prompts import PromptInfo, PromptSource


class OfferOptions(msgspec.Struct, frozen=True):
    """How items are bound and announced: arguments of `Server`."""

    auto_notify: bool
    structured_text: bool
    coerce: bool


class Offering:
    """Binds tools, prompts, resources and items of extensions, and keeps them in the catalogue of one server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        announcer: Announcer,
        settings: SettingsSource,
        options: OfferOptions,
        prepare: Callable[[Sequence[Listed]], object],
    ) -> None:
        """Offer what `dispatcher` serves. `prepare` is called with items before they are registered."""
        self.catalogue: Catalogue = dispatcher.catalogue
        self._dispatcher = dispatcher
        self._announcer = announcer
        self._settings = settings
        self.options = options
        self._prepare = prepare

    # Tools, prompts, resources.

    def add_tools(self, sources: Iterable[ToolSource], info: ToolInfo | None = None, *, notify: bool = False) -> None:
        """Offer tools, all or none. Raises: RegistrationError."""
        settings = self._settings.current
        bind = partial(
            bind_tool,
            portable=settings.portable_schemas,
            check_arguments=settings.validate_tool_call_arguments,
            structured_text=self.options.structured_text,
            coerce=self.options.coerce,
            limit=self._limit,
            provided=self._dispatcher.provided,
        )
        tools = [bind(each, info) for each in sources]
        if any(each.handler.holds for each in tools):
            self._dispatcher.held_calls  # noqa: B018  drivers that begin from now on see it
        self.add(self.catalogue.tools, tools, notify=notify)

    def _limit(self, tool: BoundTool, info: ToolInfo) -> BoundTool:
        from linkspan.server.isolation import within_limits

        options, system = self.options, self._dispatcher.system
        return within_limits(
            tool, info, system=lambda: system, structured_text=options.structured_text, coerce=options.coerce
        )

    def add_prompts(
        self, sources: Iterable[PromptSource], info: PromptInfo | None = None, *, notify: bool = False
    ) -> None:
        """Offer prompts, all or none. Raises: RegistrationError."""
        if not (given := list(sources)):
            return
        from linkspan.server.prompts import bind_prompt

        prompts = [bind_prompt(each, info, provided=self._dispatcher.provided) for each in given]
        self.add(self.catalogue.prompts, prompts, notify=notify)

    def add_resources(self, sources: Iterable[ResourceSource]) -> None:
        """Offer resources, all or none. Raises: RegistrationError."""
        dispatcher = self._dispatcher
        bound = [bind_resource(each, lambda: dispatcher.system, provided=dispatcher.provided) for each in sources]
        self.add(self.catalogue.resources, bound)

    def add_templates(self, sources: Iterable[TemplateSource]) -> None:
        """Offer templates of resources, all or none. Raises: RegistrationError."""
        bound = [bind_template(each, provided=self._dispatcher.provided) for each in sources]
        self.add(self.catalogue.templates, bound)

    def bind_resource(self, source: Resource | ResourceTemplate) -> BoundResource | BoundTemplate:
        """Bind a resource or a template, which is offered later. Raises: RegistrationError."""
        if isinstance(source, ResourceTemplate):
            return bind_template(source, provided=self._dispatcher.provided)
        dispatcher = self._dispatcher
        return bind_resource(source, lambda: dispatcher.system, provided=dispatcher.provided)

    def link_large_results(self, most: int) -> None:
        """Send links instead of results of tools that are longer than `most` bytes."""
        from linkspan.server.large_results import LargeResults
        from linkspan.server.middleware import compile_layer

        dispatcher = self._dispatcher
        large = LargeResults(most, dispatcher.system, dispatcher.profile.implementation.name)
        dispatcher.table.add_layer(compile_layer(large.surround, (ITEM_METHODS["tool"].name,), blocking=False))
        about = "A result that was too large."
        self.add_templates([ResourceTemplate(large.template, "result", read=large.read, description=about)])

    def edit(self, name: str, edit: Edit) -> None:
        """Let callers see a tool otherwise. Raises: RegistrationError."""
        from linkspan.server.editing import compile_edit

        registry = self.catalogue.tools
        tool = registry.registered(name)
        if tool is None:
            known = [each.spec.name for each in registry.all()]
            raise RegistrationError(f"edit({name!r}): there is no such tool{did_you_mean(name, known)}")
        edited = compile_edit(tool, edit, self._dispatcher.edit_host())
        registry.exchange(name, edited)
        self._changed(registry, [tool, edited])

    # What all kinds do.

    def register(self, registry: Registry[ItemT], items: Sequence[ItemT]) -> None:
        """Add items without announcing them. Raises: RegistrationError."""
        self._prepare(items)
        self.catalogue.add(registry, items, self._dispatcher.profile.pinned)

    def add(self, registry: Registry[ItemT], items: Sequence[ItemT], *, notify: bool = False) -> None:
        """Add items; with `notify`, or where the server has `auto_notify`, notify the clients. Raises: RegistrationError."""
        self.register(registry, items)
        shown = [each for each in items if registry.is_on(each)]
        if shown and self.options.auto_notify:
            self._changed(registry, shown)
        elif notify:
            self._announcer.list_changed(registry.spec.capability, shown, warn=True)

    def remove(self, key: str, *registries: Registry[Any]) -> bool:
        """Remove an item from the first registry that has it; returns whether there was one."""
        registry = next((each for each in registries if key in each), None)
        if registry is None:
            return False
        item = self.catalogue.remove(registry, key)
        if item is not None:
            self._changed(registry, [item])
        return True

    def _changed(self, registry: Registry[Any], items: Sequence[Listed]) -> None:
        if self.options.auto_notify:
            self._announcer.list_changed(registry.spec.capability, items)

    def switch(self, name_or_tag: str, kind: Kind | str | None, *, on: bool) -> int:
        """Show items, or hide them; returns how many have changed. Raises: RegistrationError."""
        moved = self.catalogue.switch(name_or_tag, kind, on=on)
        for each, items in moved.items():
            self._announcer.list_changed(each, items)
        return sum(map(len, moved.values()))

    # Extensions.

    def extend(self, server: object, given: Extension | MakesExtension) -> Attached | None:
        """Put an extension on `server`; returns what it does there besides its methods. Raises: RegistrationError."""
        from linkspan.core.extension import extension_of

        extension = extension_of(given)
        self._dispatcher.extend(extension)
        if extension.attach is None:
            return None
        from linkspan.server.places import Place

        attached = extension.attach(Place(server, self.catalogue, self._announcer, self.register, self.bind_resource))
        if attached is not None:
            self.catalogue.add_sources(attached.sources)
        return attached

    def items(self, registry: Registry[Any]) -> Items:
        """Return the items of a list, for the author of an extension."""
        from linkspan.server.items import Items

        return Items(registry, self.add, self.remove, self._announcer.list_changed)
