"""What an upstream offers, as items of the server around it: under the names that its mount gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from msgspec import structs

from linkspan.core.call import Call
from linkspan.core.flow import RequestSpec
from linkspan.errors import INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.flows.requesting import READS, Repeatable
from linkspan.naming import MAX_NAME, prefixed
from linkspan.revisions.neutral import Alias, Outcome, Request
from linkspan.schema.validate import RawParameters
from linkspan.server.asking import Round, Rounds
from linkspan.server.catalogue import CallerView, Registry
from linkspan.server.configuration import Settings
from linkspan.server.editing import compile_edit
from linkspan.server.handlers import Handler
from linkspan.server.items import BoundItem
from linkspan.server.mounting import Selection, Site
from linkspan.server.observation import Failures, Observation, warn
from linkspan.server.prompts import BoundPrompt
from linkspan.server.resources import BoundResource, BoundTemplate
from linkspan.server.serving_inside import call_around
from linkspan.server.steps import Offloads, Step, Steps, run_steps
from linkspan.server.tools import BoundTool
from linkspan.server.uri_template import compile_template
from linkspan.types.base import Wire, keep_unknown, unknown_members
from linkspan.types.messages import CallToolParams, Prompt, Resource, ResourceTemplate, Tool
from linkspan.types.methods import COMPLETE, RESOURCE_LIST
from linkspan.upstreams.relaying import (
    ASKED,
    KEPT,
    PARKED,
    Marked,
    RelayCaller,
    RelayedRequest,
    params_of,
    params_of_call,
    passed_on,
    with_answers,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import neutral

_MAX_NAME: Final = 128
_MAX_ITEMS: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9_./:@+ -]+")


class ItemCaller(RelayCaller, Protocol):
    """Whose items they are."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether each of its requests has a token of its own."""
        ...

    @property
    def system(self) -> Offloads:
        """Has threads for functions that would block an event loop."""
        ...

    def token_for(self, request: Request) -> object:
        """Return the token of a request, or an awaitable of it."""
        ...

    def use(self, token: object) -> None:
        """Bring a token from now on. Raises: ValueError for anything but a text."""
        ...

    def envelope_of(self, request: Request) -> bytes | None:
        """Return the envelope of a request upstream, which declares what its caller can do; None for that of the client."""
        ...


class UpstreamItem:
    """An item of an upstream, as one caller sees it."""

    __slots__ = ("_caller", "_encoded_key", "_headers", "_key", "_repeatable", "server")

    def __init__(self, caller: ItemCaller, server: str, key: str, spec: Wire) -> None:
        """Serve requests about what its own server calls `key`."""
        self._caller = caller
        self.server: str | None = server
        self._key = key
        self._encoded_key = encode(key)
        self._repeatable: Repeatable = READS
        self._headers: Mapping[tuple[str, ...], str] | None = None
        if isinstance(spec, Tool):
            self._repeatable = Marked(spec.annotations is not None and spec.annotations.is_repeatable)

    def plan(self, headers: Mapping[tuple[str, ...], str]) -> None:
        """Repeat arguments in headers, where the upstream is reached over HTTP."""
        self._headers = headers or None

    @property
    def is_on(self) -> bool:
        """Whether it exists there, as it does."""
        return True

    @property
    def completes(self) -> bool:
        """Whether its arguments may be completed, which its own server knows."""
        return True

    def plain(self, request: Request) -> None:
        """Return None: no function of this process runs."""

    def is_async(self, method: str) -> bool:
        """Return whether the call of a request begins on an event loop."""
        return False

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
        typed = request.round is not None  # middleware will read the result
        request.round = current = rounds.open(request, target)
        if request.alias is None:
            request.alias = Alias(target, self.server)
        run: Callable[[], object] = partial(self._start, request, current, typed)
        is_inline = not self._caller.asks_for_tokens
        if (current.state or "").startswith(KEPT):
            is_inline, run = False, partial(self._start_kept, request, current, run)
        if self._caller.asks_for_tokens:
            run = with_token(self._caller, request, run)
        return call_around(
            run,
            request,
            is_async=False,
            inline=is_inline,
            rounds=rounds,
            failures=failures,
            current=current,
            target=target,
            observation=observation,
            settings=settings,
        )

    def _start(self, request: Request, current: Any, typed: bool) -> object:
        """Send the request, or the answers that it brings; return its outcome, which comes later."""
        state: str = current.state or ""
        if state.startswith(PARKED):
            parked: RelayedRequest | None = self._caller.call_of(state.removeprefix(PARKED))
            if parked is None:
                return RemoteProtocolError(INVALID_PARAMS, _OVER)
            return parked.resume(request, current.fresh)
        called = request.params
        if isinstance(called, CallToolParams):
            params = params_of_call(called, self._encoded_key)
        else:
            params = params_of(request, self._key)
        if state.startswith(ASKED):
            params = with_answers(params, current.fresh, state.removeprefix(ASKED))
        caller = self._caller
        timeouts = caller.client.state.options.timeouts
        relay = RelayedRequest(caller, request, typed=typed)
        spec = RequestSpec(
            request.method,
            params,
            timeout=timeouts.list if request.method == COMPLETE.name else timeouts.call,
            on_progress=relay.on_progress,
            stopper=relay.stopper,
            meta=passed_on(request.meta),
            envelope=caller.envelope_of(request),
            header_plan=self._headers,
        )
        return relay.begin(spec, self._repeatable)

    def _start_kept(self, request: Request, current: Round, run: Callable[[], object]) -> object:
        """Find what the server wants back, which may block, and send the answers."""

        def steps() -> Steps:
            find = partial(self._caller.states.find, (current.state or "").removeprefix(KEPT))
            state: str | None = yield Step(find, blocking=True)
            if state is None:
                return RemoteProtocolError(INVALID_PARAMS, _OVER)
            current.state = f"{ASKED}={state}"
            return (yield Step(run))

        return run_steps(steps(), self._caller.system)


_OVER: Final = "Invalid params: the call of this requestState is over; begin again without it"


def with_token(caller: ItemCaller, request: Request, run: Callable[[], object]) -> Callable[[], object]:
    """Return what finds the token of a request before `run`. It may block."""

    def steps() -> Steps:
        caller.use((yield Step(partial(caller.token_for, request), blocking=True)))
        return (yield Step(run))

    return lambda: run_steps(steps(), caller.system)


def _sink(*_: object) -> NoReturn:
    raise AssertionError("an item of an upstream has no function here")


class ItemBuilder:
    """Makes the items of one caller's view."""

    def __init__(self, site: Site, selection: Selection, name: str, *, over_http: bool) -> None:
        """Show them in `site`, as `selection` says."""
        self._site = site
        self._selection = selection
        self._name = name
        self._over_http = over_http
        self._warned: set[str] = set()

    def fill(
        self,
        view: CallerView,
        caller: ItemCaller,
        found: Mapping[str, Sequence[Any]],
        *,
        tags: frozenset[str],
        scopes: tuple[str, ...],
        taken: Callable[[str, str], bool],
    ) -> None:
        """Add what the lists of an upstream hold to the lists of a view.

        `taken(method, key)` returns whether another item has a key already.
        """
        for method, registry in view.lists.items():
            for info in found.get(method, ())[:_MAX_ITEMS]:
                try:
                    item = self._bound(registry, info, caller)
                    if item is None or registry.registered(registry.key_of(item)) is not None:
                        continue
                    key = registry.key_of(item)
                    if taken(method, key):
                        item = self._elsewhere(registry, item, key)
                    registry.add([structs.replace(item, tags=item.tags | tags, when=view, scopes=scopes)])
                except (RegistrationError, TypeError, ValueError) as problem:
                    key = str(getattr(info, registry.spec.key, "?"))
                    self._warn(f"the {registry.spec.words} {key[:_MAX_NAME]!r} is not shown: {problem}")

    def unlisted(
        self, view: CallerView, caller: ItemCaller, uri: str, *, scopes: tuple[str, ...]
    ) -> BoundResource | None:
        """Return what reads a URI that no list names: the server may know it nevertheless. None if it is not to be shown."""
        resource = Resource(uri, uri)
        item = BoundResource(
            resource, when=view, scopes=scopes, mounted=UpstreamItem(caller, self._name, uri, resource)
        )
        return item if self._selection.shows(view.lists[RESOURCE_LIST.method], item) else None

    def _elsewhere(self, registry: Registry[Any], item: Any, key: str) -> Any:
        """Return an item with its server's name in front, because its own name is another's."""
        if registry.spec.key != "name":
            raise RegistrationError("another server has this URI")
        name = prefixed(self._name, key)
        self._warn(f"{key!r} is called {name!r}, because another server has one of that name: mount it with prefix=")
        return structs.replace(item, spec=changed(item.spec, name=name))

    def _bound(self, registry: Registry[Any], info: Any, caller: ItemCaller) -> Any:
        """Return one item under its name here; None if it is not to be shown. Raises: RegistrationError, ValueError."""
        own: str = getattr(info, registry.spec.key)
        if registry.spec.key == "name" and (len(own) > _MAX_NAME or not _NAME.fullmatch(own)):
            raise RegistrationError("a name has up to 128 letters, digits and _ . / : @ + -")
        item = self._made(_harmless(info), UpstreamItem(caller, self._name, own, info))
        if not self._selection.shows(registry, item):
            return None
        name = self._selection.named(registry, own)
        if name != own:
            item = structs.replace(item, spec=changed(item.spec, name=name))
            if len(own) < MAX_NAME <= len(name) and not name.endswith(own):
                self._warn(f"{own!r} is called {name!r}, because names have up to {MAX_NAME} characters")
        edit = self._selection.edits.get(own) if isinstance(item, BoundTool) else None
        return item if edit is None else compile_edit(item, structs.replace(edit, name=name), self._site.edit_host)

    def _made(self, info: Any, mounted: UpstreamItem) -> Any:
        match info:
            case Tool():
                if info.input_schema.get("type") != "object":
                    raise RegistrationError("its inputSchema is not that of an object")
                parameters = RawParameters(info.input_schema, "never", coerce=False)
                if self._over_http:
                    mounted.plan(parameters.headers)
                return BoundTool(info, Handler(_sink, parameters, False, True), mounted=mounted)
            case Prompt():
                parameters = RawParameters({"type": "object"}, "never", coerce=False)
                return BoundPrompt(info, Handler(_sink, parameters, False, True), mounted=mounted)
            case Resource():
                return BoundResource(info, mounted=mounted)
            case ResourceTemplate():
                return BoundTemplate(info, compile_template(info.uri_template), mounted=mounted)
            case _:
                return BoundItem(spec=info, tags=frozenset(), when=None, scopes=(), mounted=mounted)

    def _warn(self, problem: str) -> None:
        if problem not in self._warned and len(self._warned) < 100:
            self._warned.add(problem)
            warn(f"mount({self._name!r}): {problem}")


def _harmless(info: Any) -> Any:
    """Return a definition whose texts hide nothing from people."""
    texts: dict[str, str] = {}
    for name in ("title", "description"):
        text = getattr(info, name, None)
        if isinstance(text, str) and (shown := neutral(text)) != text:
            texts[name] = shown
    return changed(info, **texts) if texts else info


def changed(value: Any, **fields: object) -> Any:
    """Return a shape with other fields, and with the members that its type does not name."""
    made = structs.replace(value, **fields)
    if unknown := unknown_members(value):
        keep_unknown(made, unknown)
    return made
