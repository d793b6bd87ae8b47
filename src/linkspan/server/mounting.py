"""Servers inside servers: what a mounted server offers is listed by the server around it, and served where it was registered.

Law: an item of a mounted server is not copied. It is listed under the name that the mount gives it, with what the mount adds; a
request about it passes the scopes, the conditions and the middleware of the server around it, and is then served by the mounted
server as that would serve a client of its own: under its own name, with its own middleware, context and reports.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import structs

from linkspan.core.call import Call
from linkspan.core.waiting import ServerChange
from linkspan.errors import INVALID_PARAMS, RegistrationError, RemoteProtocolError, ResourceNotFoundError, ToolError
from linkspan.naming import MAX_NAME, fitted
from linkspan.revisions.neutral import NOTHING_SHOWN, Alias, InputRequired, Outcome, Request
from linkspan.schema.annotations import name_of
from linkspan.server.announcing import Announcer
from linkspan.server.asking import NO_QUESTIONS, Rounds
from linkspan.server.catalogue import Catalogue, Listed, Registry, check_pinned
from linkspan.server.configuration import MountedProfile, Settings
from linkspan.server.context import Context
from linkspan.server.dispatch import Dispatcher
from linkspan.server.editing import Edit, EditedItem, EditHost, compile_edit
from linkspan.server.handlers import Run
from linkspan.server.observation import Failures, Observation, observe, warn
from linkspan.server.serving_inside import call_around, outcome_inside
from linkspan.server.steps import Step, Steps, driven, run_steps
from linkspan.server.tools import BoundTool
from linkspan.server.visibility import Condition, When, check_scopes, check_tags, compile_condition
from linkspan.text import did_you_mean
from linkspan.types.base import ABSENT
from linkspan.types.messages import CompleteParams, Params, PromptReference, ReadResourceParams, Tool

T = TypeVar("T")

_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_MAX_DEPTH: Final = 8
_NAME: Final = "name"
"""The key of the items to which a mount gives other names. Other keys are URIs, to which results link."""


class _RegisterOnMount(Protocol):
    def __call__(self, registry: Registry[Any], items: Sequence[Any]) -> None: ...


class Site(msgspec.Struct, frozen=True, eq=False):
    """What mounting needs of a server: of the one that is mounted, and of the one around it."""

    catalogue: Catalogue
    dispatcher: Dispatcher
    announcer: Announcer
    register: _RegisterOnMount
    auto_notify: bool
    edit_host: EditHost

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.dispatcher.profile.implementation.name

    def serves_plainly(self, method: str) -> bool:
        """Return whether nothing surrounds the functions of a method, and nothing has to come before them."""
        dispatcher = self.dispatcher
        is_ready = dispatcher.lifespan is None or dispatcher.lifespan.entered
        is_alone = method not in dispatcher.table.surrounded and not dispatcher.settings.current.observed
        return is_ready and is_alone and method in dispatcher.table.shortcuts

    def serves_directly(self, method: str) -> bool:
        """Return whether the author's code does nothing about a method before a handler runs, nor around it."""
        dispatcher = self.dispatcher
        is_ready = dispatcher.lifespan is None or dispatcher.lifespan.entered
        is_alone = method not in dispatcher.table.surrounded and not dispatcher.settings.current.observed
        return is_ready and is_alone and not callable(dispatcher.profile.server_context)

    def begin_directly(self, request: Request, observation: Observation | None) -> Outcome | Call:
        """Begin a request of the server around, at once. Raises: RemoteProtocolError; what its checks raise."""
        dispatcher = self.dispatcher
        return dispatcher.table.inside[request.method](request, dispatcher.settings.current, observation)

    def begin_inside(self, request: Request, *, noted: bool) -> tuple[Outcome | Call, Observation | None]:
        """Begin a request of the server around, where the author's code may run; it is `noted` why it fails."""
        dispatcher = self.dispatcher
        settings, clock = dispatcher.settings.current, dispatcher.system.clock
        observation: Observation | None = None
        if settings.observed or noted:
            try:
                observation = observe(request, settings, dispatcher.profile, clock, clock())
            except BaseException as error:
                return dispatcher.failed(request, None, error), None
        return dispatcher.serve(dispatcher.table.inside[request.method], request, settings, observation), observation


class MountOptions(msgspec.Struct, frozen=True):
    """The arguments of `Server.mount`."""

    prefix: str | None
    name: str | None
    only: Sequence[str]
    hide: Sequence[str]
    rename: Mapping[str, str]
    when: When | None
    scopes: Sequence[str]
    tags: Sequence[str] | set[str] | frozenset[str]
    edits: Mapping[str, Edit]


class Removable(Protocol):
    """What is mounted."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    def remove(self) -> None: ...


class Mounted:
    """A server in its place inside another one, as `Server.mount` returned it."""

    def __init__(self, mount: Removable) -> None:
        """Made by `Server.mount`."""
        self._mount = mount

    def __repr__(self) -> str:
        return f"<Mounted {self.name}>"

    @property
    def name(self) -> str:
        """What logs and instructions call the server here."""
        return self._mount.name

    @property
    def status(self) -> str:
        """How the server is: `"here"` in this process; elsewhere `"not asked yet"`, `"connected"`, or what is wrong.

        Where each caller has a connection of their own, it is how the last of them fared.
        """
        return self._mount.status

    def remove(self) -> None:
        """Take the server out again. Calls that run go on; its lifespan, once it is entered, stays until the end."""
        self._mount.remove()


def mount(outer: Site, inner: Site, options: MountOptions) -> Mounted:
    """Show what `inner` offers in `outer` from now on. Raises: RegistrationError."""
    if outer.catalogue in _all_inside(inner.catalogue):
        raise RegistrationError(f"mount({inner.name!r}): the server would be inside itself")
    if _levels_inside(inner.catalogue) + _levels_around(outer.catalogue) > _MAX_DEPTH:
        raise RegistrationError(f"mount({inner.name!r}): servers may be {_MAX_DEPTH} levels deep inside each other")
    made = Mount(outer, inner, options)
    made.begin()
    return Mounted(made)


def _all_inside(catalogue: Catalogue) -> Iterator[Catalogue]:
    yield catalogue
    for each in catalogue.inner:
        yield from _all_inside(each)


def _levels_inside(catalogue: Catalogue) -> int:
    return 1 + max(map(_levels_inside, catalogue.inner), default=0)


def _levels_around(catalogue: Catalogue) -> int:
    return max((1 + _levels_around(each) for each in catalogue.outer), default=0)


class _Pattern(msgspec.Struct, frozen=True):
    """Means items by their key, by a tag, or by the annotations of a tool."""

    text: str

    def matches(self, registry: Registry[Any], item: Listed) -> bool:
        """Return whether it means an item."""
        if self.text.startswith("tag:"):
            return self.text.removeprefix("tag:") in item.tags
        annotations = item.spec.annotations if isinstance(item.spec, Tool) else None
        if self.text == "readOnly":
            return annotations is not None and annotations.read_only_hint is True
        if self.text == "destructive":
            return annotations is not None and annotations.destructive_hint is True
        return fnmatchcase(registry.key_of(item), self.text)


def _patterns(given: Sequence[str], argument: str) -> tuple[_Pattern, ...]:
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegistrationError(f"mount({argument}={given!r}): {argument}= takes a list of patterns, such as ['get_*']")
    return tuple(map(_Pattern, given))


class Selection:
    """Which items of another server are shown, and what they are called."""

    def __init__(self, options: MountOptions) -> None:
        """Check the options. Raises: RegistrationError."""
        if options.prefix is not None and not _PREFIX.fullmatch(options.prefix):
            raise RegistrationError(
                f"mount(prefix={options.prefix!r}): a prefix has up to 32 letters, digits, _ and -, and begins with a letter or "
                "a digit"
            )
        self._prefix = options.prefix
        self._only = _patterns(options.only, "only")
        self._hide = _patterns(options.hide, "hide")
        self.edits = dict(options.edits)
        self._rename = {each: edit.name for each, edit in self.edits.items() if edit.name} | dict(options.rename)

    def shows(self, registry: Registry[Any], item: Listed) -> bool:
        """Return whether an item of the other server is shown."""
        if self._only and not any(each.matches(registry, item) for each in self._only):
            return False
        return not any(each.matches(registry, item) for each in self._hide)

    def named(self, registry: Registry[Any], key: str) -> str:
        """Return what an item of the other server is called."""
        if registry.spec.key != _NAME:
            return key
        if key in self._rename:
            return self._rename[key]
        return key if self._prefix is None else fitted(f"{self._prefix}_{key}", (self._prefix, key))

    def unmeant(self, items: Sequence[tuple[Registry[Any], Listed]]) -> list[str]:
        """Return the patterns and names that mean none of the items of the other server."""
        texts = [each.text for each in (*self._only, *self._hide) if not any(each.matches(*item) for item in items)]
        keys = {registry.key_of(item) for registry, item in items if registry.spec.key == _NAME}
        return [*texts, *(each for each in self._rename if each not in keys)]


class Mount:
    """One server inside another one."""

    status: str = "here"

    def __init__(self, outer: Site, inner: Site, options: MountOptions) -> None:
        """Check the options. Raises: RegistrationError."""
        self.selection = Selection(options)
        self.name = options.name or inner.name
        self.outer = outer
        self.inner = inner
        self.removed = False
        self._edits = self.selection.edits
        self._when = compile_condition(options.when, f"mount({self.name!r})")
        self.scopes = check_scopes(options.scopes, f"mount({self.name!r})")
        self._tags = check_tags(options.tags, f"mount({self.name!r})")
        self._conditions: dict[int, Condition] = {}
        self._functions: dict[int, partial[Any]] = {}
        self._profile = MountedProfile(self.name, inner.dispatcher.profile)
        self._opens_lifespan = self._has_begun = False
        self._mirrors = [
            InnerList(self, registry, outer.catalogue.lists[method])
            for method, registry in inner.catalogue.lists.items()
            if method in outer.catalogue.lists
        ]

    def begin(self) -> None:
        """Show all that there is, or nothing. Raises: RegistrationError."""
        outer, inner, profile = self.outer, self.inner, self.outer.dispatcher.profile
        tools = inner.catalogue.tools
        for name in self._edits:
            if name not in tools:
                known = [each.spec.name for each in tools.all()]
                raise RegistrationError(
                    f"mount({self.name!r}): there is no tool {name!r} to edit{did_you_mean(name, known)}"
                )
        for each in self._mirrors:
            each.check(each.inner.all())
        self._open_lifespan()
        for each in self._mirrors:
            each.begin()
        outer.catalogue.inner = (*outer.catalogue.inner, inner.catalogue)
        inner.catalogue.outer = (*inner.catalogue.outer, outer.catalogue)
        outer.catalogue.mark_sourced(inner.catalogue.sourced)
        inner.announcer.outer = (*inner.announcer.outer, self.forward)
        inner.dispatcher.on_lifespan = (*inner.dispatcher.on_lifespan, self._open_lifespan)
        outer.dispatcher.on_session_end = (*outer.dispatcher.on_session_end, inner.dispatcher.end_session)
        profile.mounted = (*profile.mounted, self._profile)
        self._has_begun = True
        self._warn_of_names()

    def remove(self) -> None:
        """Show nothing any more."""
        if self.removed:
            return
        self.removed = True
        outer, inner, profile = self.outer, self.inner, self.outer.dispatcher.profile
        for each in self._mirrors:
            each.end()
        outer.catalogue.inner = _without(outer.catalogue.inner, inner.catalogue)
        inner.catalogue.outer = _without(inner.catalogue.outer, outer.catalogue)
        inner.announcer.outer = _without(inner.announcer.outer, self.forward)
        inner.dispatcher.on_lifespan = _without(inner.dispatcher.on_lifespan, self._open_lifespan)
        outer.dispatcher.on_session_end = _without(outer.dispatcher.on_session_end, inner.dispatcher.end_session)
        profile.mounted = _without(profile.mounted, self._profile)

    def _open_lifespan(self) -> None:
        """Open the lifespan of the server inside with that of the server around it, if it has one by now."""
        plan = self.inner.dispatcher.lifespan_plan
        if plan is not None and not self._opens_lifespan:
            self.outer.dispatcher.live(MountedLifespan(self), plan.timeout)
            self._opens_lifespan = True

    def _warn_of_names(self) -> None:
        """Warn of patterns and names that mean nothing, as far as that is known yet."""
        items = [(each.inner, item) for each in self._mirrors for item in each.inner.all()]
        for text in self.selection.unmeant(items):
            if items:
                warn(f"mount({self.name!r}): nothing that the server has so far is meant by {text!r}")

    # Items.

    def shows(self, registry: Registry[Any], item: Listed) -> bool:
        """Return whether an item of the server inside exists in the one around it."""
        return self.selection.shows(registry, item) and self._fits(registry, item)

    def _fits(self, registry: Registry[Any], item: Listed) -> bool:
        """Return whether an edit fits a tool, if it has one: one that came later is not shown else. Raises: RegistrationError."""
        if registry is not self.inner.catalogue.tools or registry.key_of(item) not in self._edits:
            return True
        try:
            self.shown(registry, item)
        except RegistrationError as problem:
            if not self._has_begun:
                raise
            warn(f"mount({self.name!r}): the tool {registry.key_of(item)!r} is not shown any more: {problem}")
            return False
        return True

    def named(self, registry: Registry[Any], key: str) -> str:
        """Return what an item is called in the server around it."""
        return self.selection.named(registry, key)

    def shown(self, registry: Registry[Any], item: Any) -> Any:
        """Return an item as the server around it lists it."""
        key = registry.key_of(item)
        name = self.named(registry, key)
        changed: dict[str, Any] = {
            "tags": item.tags | self._tags,
            "when": self._condition(item.when),
            "scopes": tuple(dict.fromkeys((*item.scopes, *self.scopes))),
            "mounted": InnerItem(self, registry, item, key, Alias(name, self.name)),
        }
        if name != key:
            changed["spec"] = structs.replace(item.spec, **{_NAME: name})
        if not isinstance(item, BoundTool):
            return structs.replace(item, **changed)
        tool = structs.replace(item, **changed, is_plain=False)
        edit = self._edits.get(key)
        return tool if edit is None else compile_edit(tool, structs.replace(edit, name=name), self.outer.edit_host)

    def _condition(self, own: Condition | None) -> Condition | None:
        """Return the condition of the mount and that of an item as one."""
        if own is None:
            return self._when
        known = self._conditions.get(id(own))
        if known is None:
            is_async = own.is_async or (self._when is not None and self._when.is_async)
            # One function is asked once for a request.
            function = self._functions.setdefault(id(own.function), partial(own.function))
            known = MountedCondition(function, own.takes_context, is_async, self._when, mount=self, own=own)
            self._conditions[id(own)] = known
        return known

    def ask(self, own: Condition, request: Request) -> Steps:
        """Yield the steps that ask the condition of an item with the context of its own server."""
        if own.before is not None and not (yield from self.ask(own.before, request)):
            return False
        dispatcher = self.inner.dispatcher
        make_inner = partial(dispatcher.make_context, request, dispatcher.rounds.closed("when="))
        run = partial(own.holds, make_inner, request)
        try:
            return (yield Step(run if Context.ambient is None else partial(Context.ambient, make_inner, run)))
        except Exception as error:  # reported by the server whose condition it is
            dispatcher.failures.report(request, error, f"when={name_of(own.function)}")
            return False

    # Changes.

    def forward(self, change: ServerChange, changed: Sequence[Listed] | None, everywhere: bool) -> int:
        """Notify the clients of the server around of a change in the one inside; return how many it has reached."""
        announcer = self.outer.announcer
        if change.uri is not None:
            items = self.outer.catalogue.registered_for(change.uri)
            ours = any(inner is not None and inner.mount is self for inner in map(_inner_of, items))
            audience = self.outer.catalogue.audience_of(change.uri)
            return announcer.send(change, audience, everywhere=everywhere) if ours else 0
        if change.kind is None:
            return 0
        if changed is None:
            return announcer.list_changed(change.kind, everywhere=everywhere)
        shown = [found for item in changed if (found := self._shown_in(item)) is not None]
        return announcer.list_changed(change.kind, shown, everywhere=everywhere) if shown else 0

    def _shown_in(self, item: Listed) -> Listed | None:
        registry = next((each.inner for each in self._mirrors if type(item.spec) is each.inner.spec.item), None)
        return self.shown(registry, item) if registry is not None and self.shows(registry, item) else None


class InnerList:
    """A list of the server inside, as a part of the same list of the server around it."""

    def __init__(self, mount: Mount, inner: Registry[Any], outer: Registry[Any]) -> None:
        """Show nothing yet."""
        self.mount = mount
        self.inner = inner
        self.outer = outer

    def begin(self) -> None:
        """Show what there is, and follow changes."""
        self._announce(self._add(self.inner.all()), self.mount.outer.auto_notify)
        self.inner.mirrors = (*self.inner.mirrors, self)

    def end(self) -> None:
        """Show nothing any more."""
        self.inner.mirrors = _without(self.inner.mirrors, self)
        found = [self._remove(self.inner.key_of(item)) for item in self.inner.all()]
        self._announce([each for each in found if each is not None], self.mount.outer.auto_notify)

    def check(self, items: Sequence[Any]) -> None:
        """Refuse items that are about to be added. Raises: RegistrationError."""
        new = [self.mount.shown(self.inner, item) for item in items if self._is_new(item)]
        names: set[str] = set()
        for item in new:
            check_pinned(self.mount.outer.dispatcher.profile.pinned, item.spec, derived=item.derived)
            name = self.outer.key_of(item)
            taken = self.outer.registered(name)
            if name in names or (taken is not None and not self._is_mine(taken)):
                raise self._collision(_key_inside(item), name, taken)
            names.add(name)
        for mirror in self.outer.mirrors:
            mirror.check(new)

    def _collision(self, key: str, name: str, taken: Any) -> RegistrationError:
        outer = self.mount.outer.name
        other = None if taken is None or taken.mounted is None else taken.mounted.server
        owner = repr(outer) if other is None else f"the mounted server {other!r}"
        way = "prefix= or rename=" if self.inner.spec.key == _NAME else "hide="
        return RegistrationError(
            f"the {self.outer.spec.words} {key!r} of {self.mount.name!r} would be {name!r} in {outer!r}, and {owner} has one of "
            f"that name: mount it with {way}"
        )

    def add(self, items: Sequence[Any]) -> None:
        """Show items that were added."""
        for item in items:  # one that was defined again at a prompt has another in its place
            self._remove(self.inner.key_of(item))
        self._announce(self._add(items), self._announces)

    def replace(self, item: Any) -> None:
        """Show an item in the place of the one with its key."""
        if self._found(self.inner.key_of(item)) is not None:
            self.outer.replace(self.mount.shown(self.inner, item))

    def remove(self, key: str) -> None:
        """Show an item no more."""
        if (item := self._remove(key)) is not None:
            self._announce([item], self._announces)

    def switch(self) -> None:
        """Follow the switches of the server inside, which announces what they have moved."""
        self.outer.switch()

    @property
    def _announces(self) -> bool:
        """Whether a change is announced here: the server inside does not, and its announcements would be passed on."""
        return self.mount.outer.auto_notify and not self.mount.inner.auto_notify

    def _announce(self, items: Sequence[Listed], wanted: bool) -> None:
        if wanted and items:
            self.mount.outer.announcer.list_changed(self.outer.spec.capability, items)

    def _add(self, items: Sequence[Any]) -> list[Any]:
        """Add items to the list of the server around; return those that are on."""
        new = [self.mount.shown(self.inner, item) for item in items if self._is_new(item)]
        self.mount.outer.register(self.outer, new)
        for item in new:
            name, key = self.outer.key_of(item), _key_inside(item)
            if self.outer.spec.key == _NAME and len(key) < MAX_NAME <= len(name) and not name.endswith(key):
                warn(
                    f"mount({self.mount.name!r}): {key!r} is called {name!r}, because names have up to {MAX_NAME} characters"
                )
        return [item for item in new if self.outer.is_on(item)]

    def _remove(self, key: str) -> Listed | None:
        """Remove what shows an item; return it if it was on."""
        if self._found(key) is None:
            return None
        return self.mount.outer.catalogue.remove(self.outer, self.mount.named(self.inner, key))

    def _found(self, key: str) -> Any:
        """Return what shows the item under a key of the server inside, if anything does."""
        found = self.outer.registered(self.mount.named(self.inner, key))
        return found if found is not None and self._is_mine(found) else None

    def _is_mine(self, item: Any) -> bool:
        inner = _inner_of(item)
        return inner is not None and inner.mount is self.mount

    def _is_new(self, item: Any) -> bool:
        """Return whether an item is to be shown. Another mount of its server may show it already, if both call it the same."""
        if not self.mount.shows(self.inner, item):
            return False
        found = self.outer.registered(self.mount.named(self.inner, self.inner.key_of(item)))
        inner = None if found is None else _inner_of(found)
        return inner is None or inner.item is not item or inner.mount is self.mount


def _inner_of(item: Any) -> InnerItem | None:
    """Return where an item is from, if a mounted server has it, edited or not."""
    mounted = item.mounted
    if isinstance(mounted, EditedItem):
        return _inner_of(mounted.tool)
    return mounted if isinstance(mounted, InnerItem) else None


def _key_inside(item: Any) -> str:
    """Return the key that an item has in its own server."""
    inner = _inner_of(item)
    assert inner is not None
    return inner.key


class InnerItem(msgspec.Struct, frozen=True, eq=False):
    """An item of a mounted server, and what the server around calls it."""

    mount: Mount
    registry: Registry[Any]
    item: Any
    key: str
    alias: Alias

    @property
    def server(self) -> str:
        """The name of the mounted server."""
        return self.mount.name

    @property
    def is_on(self) -> bool:
        """Whether the mounted server has not switched it off."""
        return self.registry.is_on(self.item)

    @property
    def completes(self) -> bool:
        """Whether the mounted server completes arguments."""
        return self.mount.inner.catalogue.offers("completions")

    def plain(self, request: Request) -> tuple[BoundTool, Settings, Failures] | None:
        """Return the tool, its settings and its failures, where nothing but its function runs for a call; else None."""
        dispatcher, tool = self.mount.inner.dispatcher, self.item
        if self.mount.scopes or not self.mount.inner.serves_plainly(request.method):
            return None
        if tool.is_plain and tool.handler.needs is None:
            request.alias = self.alias
            return tool, dispatcher.settings.current, dispatcher.failures
        found: tuple[BoundTool, Settings, Failures] | None = tool.mounted.plain(request) if tool.mounted else None
        if found is not None and request.alias is not None:
            request.alias = Alias(self.alias.name, request.alias.server)
        return found

    def begin(
        self,
        request: Request,
        settings: Settings,
        observation: Observation | None,
        rounds: Rounds,
        failures: Failures,
        target: str,
    ) -> Outcome | Call:
        """Begin a request about it. Raises: RemoteProtocolError for a state of questions that is not good."""
        is_first = request.round is None and request.request_state is None and request.input_responses is ABSENT
        handler = self.item.handler
        # Its questions belong to the rounds of this server.
        asks_first = handler is not None and handler.parameters.asks
        is_direct = is_first and not asks_first and settings.around_request is None
        if is_direct and self.mount.inner.serves_directly(request.method):
            return self._begin_directly(request, observation, rounds, target)
        is_async = self.is_async(request.method)
        request.round = current = rounds.open(request, target)
        steps = self._steps(request, observation)
        return call_around(
            driven(steps, self.mount.inner.dispatcher.system, is_async=is_async),
            request,
            is_async=is_async,
            inline=handler is not None and handler.inline,
            rounds=rounds,
            failures=failures,
            current=current,
            target=target,
            observation=observation,
            settings=settings,
        )

    def _begin_directly(
        self, request: Request, observation: Observation | None, rounds: Rounds, target: str
    ) -> Outcome | Call:
        """Begin a request whose handler nothing surrounds: its call is that of the mounted server."""
        dispatcher = self.mount.inner.dispatcher
        noted = observation.data.copy() if observation is not None else None
        params, shown = request.params, request.shown
        self._enter(request)
        try:
            step = self._gone(request) or self.mount.inner.begin_directly(request, observation)
        except RemoteProtocolError:
            raise
        except Exception as error:
            step = dispatcher.failures.outcome(request, observation, error)
        finally:
            request.params, request.shown = params, shown
        if observation is not None and noted is not None:
            observation.data.update(noted)
        if isinstance(step, Run):
            step.rounds, step.target = rounds, target
            if step.current is not NO_QUESTIONS:
                rounds.adopt(step.current)
        return step

    def is_async(self, method: str) -> bool:
        """Return whether the call of a request begins on an event loop: for its function, or for a middleware on the way."""
        handler, nested = self.item.handler, self.item.mounted
        if (handler is not None and handler.is_async) or self.mount.inner.dispatcher.table.awaits_around(method):
            return True
        return nested is not None and nested.is_async(method)

    def _enter(self, request: Request) -> None:
        """Let a request be about the item as its own server calls it, and let that exist for its caller."""
        outer, own = request.alias, self.item.when
        request.alias = self.alias if outer is None else Alias(outer.name, self.server, outer.renamed)
        request.params = _about(self.key, request.params)
        request.shown = NOTHING_SHOWN if own is None else frozenset((own,))

    def _steps(self, request: Request, outer: Observation | None) -> Steps:
        """Yield the steps of a request that the mounted server serves, and return its outcome; note its error in `outer`."""
        params, shown = request.params, request.shown
        self._enter(request)
        try:
            if (gone := self._gone(request)) is not None:
                return gone
            step, observation = self.mount.inner.begin_inside(request, noted=outer is not None)
            outcome = (yield from self._run(step, request, observation)) if isinstance(step, Run) else step
            if outer is not None and observation is not None and "error" in observation.data:
                outer.record_error(observation.data["error"])
            return outcome
        finally:
            request.params, request.shown = params, shown

    def _run(self, run: Run, request: Request, observation: Observation | None) -> Steps:
        """Yield the steps of the handler, and return its outcome: the mounted server reports what it raises."""
        outcome: Any
        try:
            outcome = yield from outcome_inside(run)
        except Exception as error:
            outcome = self.mount.inner.dispatcher.failures.outcome(request, observation, error)
        if observation is not None and not isinstance(outcome, InputRequired):
            observation.end(request, outcome)
        return outcome

    def _gone(self, request: Request) -> Outcome | None:
        """Return the error for an item that was removed meanwhile, or whose URI another item of its server answers."""
        params, dispatcher = request.params, self.mount.inner.dispatcher
        if isinstance(params, ReadResourceParams):
            if dispatcher.table.methods[request.method].item(params, request.shown) is self.item:
                return None
            return dispatcher.failures.outcome(request, None, ResourceNotFoundError(params.uri))
        if self.registry.registered(self.key) is self.item:
            return None
        return RemoteProtocolError(INVALID_PARAMS, f"Unknown {self.registry.spec.words}: {request.target}")


def _about(key: str, params: object) -> object:
    """Return params that name an item by its key in its own server."""
    if isinstance(params, CompleteParams):
        ref = params.ref
        return (
            structs.replace(params, ref=structs.replace(ref, name=key)) if isinstance(ref, PromptReference) else params
        )
    if isinstance(params, ReadResourceParams) or not isinstance(params, Params) or params.named_by is None:
        return params  # the URI of a template names what to read
    return params if params.target == key else structs.replace(params, **{params.named_by: key})


class MountedCondition(Condition, frozen=True, eq=False, kw_only=True):
    """The condition of an item of a mounted server; that of the mount comes before it."""

    mount: Mount
    own: Condition

    def holds(self, make_context: Callable[[], Context], request: Request) -> object:
        """Ask that of the item; returns whether it holds, or an awaitable of that."""
        return run_steps(self.mount.ask(self.own, request), self.mount.inner.dispatcher.system)


class MountedLifespan:
    """The lifespan of a mounted server, as a part of that of the server around it."""

    def __init__(self, mount: Mount) -> None:
        """Open nothing yet."""
        self._mount = mount
        self.provides: type | None = None
        self.is_own = False

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"of {self._mount.name!r}"

    @property
    def is_async(self) -> bool:
        """Whether it lives on an event loop."""
        plan = self._mount.inner.dispatcher.lifespan_plan
        return plan is not None and plan.is_async

    def open(self) -> AbstractContextManager[object]:
        """Return what is entered and left in one thread. Raises: ToolError, once it is entered, if it could not be opened."""
        return self._open()

    def open_async(self) -> AbstractAsyncContextManager[object]:
        """Return what is entered and left in one task. Raises: ToolError, once it is entered, if it could not be opened."""
        return self._open_async()

    @contextmanager
    def _open(self) -> Generator[None]:
        lifespan = None if self._mount.removed else self._mount.inner.dispatcher.lifespan
        if lifespan is None:
            yield
            return
        lifespan.begin(self, _no_loop)
        lifespan.wait()
        try:
            self._check(lifespan.refusal)
            yield
        finally:
            lifespan.close(self)

    @asynccontextmanager
    async def _open_async(self) -> AsyncGenerator[None]:
        lifespan = None if self._mount.removed else self._mount.inner.dispatcher.lifespan
        if lifespan is None:
            yield
            return
        try:
            await lifespan.abegin(self)
            self._check(lifespan.refusal)
            yield
        finally:
            await lifespan.aclose(self)

    def _check(self, refusal: str | None) -> None:
        if refusal is not None:
            reason = refusal.partition(": ")[2] or refusal  # the words before it are added here, too
            raise ToolError(f"{self._mount.name}: {reason}")


def _no_loop() -> None:
    """Stand in for the event loop of a lifespan that needs none."""


def _without(values: tuple[T, ...], gone: object) -> tuple[T, ...]:
    """Return the values but the first that equals `gone`."""
    found = next((n for n, each in enumerate(values) if each == gone), len(values))
    return (*values[:found], *values[found + 1 :])
