"""`server.mount(TARGET)`: a server elsewhere as a source of items, with a client for each caller."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Raw, structs

from linkspan.client.targets import ServerTarget, resolve
from linkspan.core.call import Call, Hook
from linkspan.core.extension import Extension
from linkspan.core.flow import RequestSpec
from linkspan.core.waiting import ServerChange
from linkspan.errors import INTERNAL_ERROR, RegistrationError, RemoteProtocolError
from linkspan.flows.client_errors import ClientError
from linkspan.revisions.agreement import Agreement
from linkspan.revisions.neutral import Outcome, Peer, Request
from linkspan.runtime.reactor import reactor
from linkspan.schema.annotations import EMPTY, parameters_of
from linkspan.server.catalogue import CallerView, Listed, Registry
from linkspan.server.mounting import MountOptions, Selection, Site
from linkspan.server.observation import warn
from linkspan.server.resources import BoundResource
from linkspan.server.visibility import Condition, check_scopes, check_tags, compile_condition
from linkspan.text import clip
from linkspan.types.base import JSONObject
from linkspan.types.messages import InitializeParams, ListenParams, SubscribeParams
from linkspan.types.methods import LISTED, LISTS, ListSpec
from linkspan.upstreams.callers import Lists, RefusedView, UpstreamCaller, ViewOnItsWay
from linkspan.upstreams.carrying import announced
from linkspan.upstreams.client import UpstreamClient, declared
from linkspan.upstreams.counting import UpstreamCounts
from linkspan.upstreams.items import ItemBuilder, with_token
from linkspan.upstreams.logins import asking
from linkspan.upstreams.pool import CallerKey, CallerPool
from linkspan.upstreams.relaying import Marked, RelayedRequest, passed_on
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import key_of, to_builtins

if TYPE_CHECKING:
    from linkspan.server.context import Context
    from linkspan.server.steps import Offloads
    from linkspan.stores.port import Store

T = TypeVar("T")

_SHARED: Final = "shared"
_MAX_INSTRUCTIONS: Final = 4000
MAX_CALLERS: Final = 1024
MAX_PROCESSES: Final = 16


def mount_target(
    site: Site, store: Callable[[], Store], target: ServerTarget, options: MountOptions, given: Mapping[str, Any]
) -> Upstream:
    """Offer what a server elsewhere offers, from now on; `store` opens that of the server around. Raises: RegistrationError."""
    upstream = Upstream(site, store, target, options, given)
    upstream.begin()
    return upstream


class Attendant(Protocol):
    """What a bridge does besides, for one of its servers."""

    introduces: bool
    """The server is introduced as the one that is mounted."""

    def remembered(self) -> Lists | None:
        """Return what the server offered before; None if that is not known."""
        ...

    def received(self, agreement: Agreement | None, lists: Lists) -> Lists:
        """Receive what the server offers, and return what is to be shown of it."""
        ...

    def failed(self, error: ClientError) -> str:
        """Receive why the lists of the server did not come; return what is to be done: a sentence, or nothing."""
        ...

    def offers(self, kind: str) -> bool | None:
        """Return whether the server offered a capability before; None if that is not known."""
        ...

    @property
    def extensions(self) -> JSONObject | None:
        """What the server announced of extensions before, by their ids; None if that is not known."""
        ...


def _token_function(auth: object) -> Callable[[Context], object] | None:
    """Return what makes a token from the context of a request, if `auth` is such a function: it takes one argument."""
    if not callable(auth) or isinstance(auth, type):
        return None
    try:
        given = [each for each in parameters_of(auth) if each.default is EMPTY]
    except (TypeError, ValueError):
        return None
    return auth if len(given) == 1 else None


class Upstream:
    """A server elsewhere, in its place in a server: a source of items."""

    def __init__(
        self,
        site: Site,
        store: Callable[[], Store],
        target: ServerTarget,
        options: MountOptions,
        given: Mapping[str, Any],
    ) -> None:
        """Check the options. Raises: RegistrationError."""
        profile = site.dispatcher.profile
        self.keeps = store, lambda: profile.request_state_ttl
        own = {"shared": False, "required": False, "list_timeout": 3.0, "max_callers": None, "attendant": None}
        chosen = {name: given.get(name, default) for name, default in own.items()}
        self._client_options = {name: value for name, value in given.items() if name not in own}
        self._attendant: Attendant | None = chosen["attendant"]
        self._token = _token_function(self._client_options.get("auth"))
        named = {name: self._client_options[name] for name in ("env", "cwd") if name in self._client_options}
        try:
            resolved = resolve(target, name=options.name, **named)
        except ValueError as problem:
            raise RegistrationError(f"mount({target!r}): {problem}") from None
        self._target = target
        self.name = options.name or resolved.origin.server
        self.is_shared: bool = bool(chosen["shared"])
        self.is_required: bool = bool(chosen["required"])
        self.list_timeout: float = float(chosen["list_timeout"])
        self._site = site
        self._selection = Selection(options)
        self.when = compile_condition(options.when, f"mount({self.name!r})")
        self._scopes = check_scopes(options.scopes, f"mount({self.name!r})")
        self._tags = check_tags(options.tags, f"mount({self.name!r})")
        self._is_url = resolved.url is not None
        most: int = chosen["max_callers"] or (MAX_CALLERS if resolved.url else MAX_PROCESSES)
        self._builder = ItemBuilder(site, self._selection, self.name, over_http=self._is_url)
        self.counts = UpstreamCounts(self.name)
        self._callers = CallerPool(most, self._make_caller)
        self.passed_results = {kind: made for each in self.extensions for kind, made in each.passed_results.items()}
        self.status: str = "not asked yet"
        self._place = 1
        self._mark = self.name
        """What other processes call this source."""

    def begin(self) -> None:
        """Offer it."""
        sources = self._site.catalogue.item_sources
        self._place = 1 + max((each._place for each in sources if isinstance(each, Upstream)), default=0)
        self._mark = f"{self.name}/{self._place}"
        dispatcher = self._site.dispatcher
        dispatcher.add_source(self, self.when, self._scopes)
        dispatcher.on_session_end = (*dispatcher.on_session_end, self._callers.session_ended)
        self._site.announcer.callers[self._mark] = partial(_condition_of, self._key_of)
        profile = self._site.dispatcher.profile
        if self._attendant is None or not self._attendant.introduces:
            profile.mounted = (*profile.mounted, self)

    def remove(self) -> None:
        """Offer it no more, and close its clients."""
        dispatcher = self._site.dispatcher
        dispatcher.remove_source(self)
        self._site.announcer.callers.pop(self._mark, None)
        dispatcher.on_session_end = tuple(
            each for each in dispatcher.on_session_end if each != self._callers.session_ended
        )
        profile = self._site.dispatcher.profile
        profile.mounted = tuple(each for each in profile.mounted if each is not self)
        threading.Thread(target=self.close, name="linkspan-close", daemon=True).start()

    def close(self) -> None:
        """Close the clients of all callers, and wait until they are closed."""
        self._callers.close()

    @property
    def callers(self) -> list[UpstreamCaller]:
        """Those who have a client now."""
        return self._callers.all()

    def section(self) -> str | None:
        """Return the instructions of the server below its name, as far as they are known."""
        agreements = (each.client.state.agreement for each in self._callers.all())
        said = next((each.instructions for each in agreements if each is not None and each.instructions), None)
        return f"## {self.name}\n\n{clip(said, _MAX_INSTRUCTIONS)}" if said else None

    # A source of items.

    def view(self, request: Request) -> CallerView | ViewOnItsWay | None:
        """Return what the caller of a request sees; see `ItemSource.view`."""
        key = self._key_of(request)
        if isinstance(key, RefusedView):
            return key
        caller = self._callers.admitted(key, request.peer)
        return caller.view(request) if caller is not None else None

    def introduction(self, request: Request) -> ViewOnItsWay | None:
        """Return what has to be waited for before this server is described to a client: the server that it stands for."""
        if self._attendant is None or not self._attendant.introduces:
            return None
        if request.facts.headers and request.method == "initialize":
            return None  # over HTTP its response begins the session
        key, peer, params = self._key_of(request), request.peer, request.params
        if isinstance(key, RefusedView):
            return None
        if isinstance(params, InitializeParams):
            peer = structs.replace(peer, capabilities=params.capabilities or {})
        caller = self._callers.admitted(key, peer)
        return caller.introduction(request) if caller is not None else None

    def _key_of(self, request: Request) -> Hashable | RefusedView:
        if self.is_shared:
            if not self._is_url:
                return _SHARED
            return _shared_key(self._callers.get(_SHARED), partial(declared, request.peer, self.extensions))
        facts = request.facts
        if facts.principal is None and request.session is None and facts.headers:
            return RefusedView(
                f"{self.name}: this server does not know its callers: protect it with auth=, or mount with shared=True"
            )
        return CallerKey(facts.principal, request.session, bool(facts.headers))

    def _make_caller(self, key: Hashable, peer: Peer) -> UpstreamCaller:
        known = self._attendant.remembered() if self._attendant is not None else None
        return UpstreamCaller(self, key, peer, known)

    def switch(self) -> None:
        """Follow the switches of the server around."""
        for each in self._callers.all():
            each.show_again()

    def offers(self, kind: str) -> bool:
        """Return whether the server offers a capability; before that is known, that it does."""
        agreements = [each.client.state.agreement for each in self._callers.all()]
        known = [each.capabilities for each in agreements if each is not None]
        if not known and self._attendant is not None and (before := self._attendant.offers(kind)) is not None:
            return before
        if not known:
            return kind in LISTED or kind == "completions"
        return any(getattr(each, kind, None) is not None for each in known)

    def settings(self, extension: Extension) -> JSONObject | None:
        """Return what the server announces of an extension; before that is known, what the record announces."""
        agreements = [each.client.state.agreement for each in self._callers.all()]
        known = [each for each in agreements if each is not None]
        if known:
            return next((said for each in known if (said := announced(each, extension)) is not None), None)
        before = self._attendant.extensions if self._attendant is not None else None
        return extension.server if before is None else before.get(extension.id)

    @property
    def extensions(self) -> Collection[Extension]:
        """Those of the server around, which pass through."""
        return self._site.catalogue.extensions.values()

    def pass_on(self, request: Request, params: bytes, read: Callable[[Raw], Raw], *, is_safe: bool) -> Outcome | Call:
        """Return the call of a request that goes there with these params, and is about no item.

        `read` makes the result; it may be sent again if it `is_safe`.
        """
        caller = self.caller_of(request)
        if caller is None:
            return RemoteProtocolError(INTERNAL_ERROR, f"{self.name} cannot be asked now; try again later")
        run: Callable[[], object] = partial(_start, caller, request, params, read, is_safe)
        if self.asks_for_tokens:
            run = with_token(caller, request, run)
        return Hook(request, run, inline=not self.asks_for_tokens)

    def caller_of(self, request: Request) -> UpstreamCaller | None:
        """Return the caller whose request it is; None where it is not known, or too many are busy."""
        key = self._key_of(request)
        return None if isinstance(key, RefusedView) else self._callers.admitted(key, request.peer)

    def listens(self, request: Request) -> None:
        """Let the server report changes of what a client is about to listen for."""
        key = self._key_of(request)
        caller = None if isinstance(key, RefusedView) else self._callers.get(key)
        view = caller.view(request) if caller is not None else None
        if caller is None or not isinstance(view, CallerView):
            return
        for uri in _uris_of(request.params):
            known = view.lists["resources/list"].get(uri, (view,)) is not None
            templates = view.lists["resources/templates/list"].visible((view,))
            matches = known or any(each.template.match(uri) is not None for each in templates)
            if matches or self._unlisted(view, caller, uri) is not None:
                caller.watch(uri)

    def refresh(self) -> None:
        """Ask for the lists of all callers anew."""
        for each in self._callers.all():
            each.refresh()

    # What its callers need of it.

    def make_client(self, caller: UpstreamCaller) -> UpstreamClient:
        """Return a client for a caller. Nothing of what the caller has sent is in it."""
        options = dict(self._client_options)
        if self._token is not None:
            options["auth"] = _token_of(caller)
        elif "auth" in options:
            options["auth"] = asking(options["auth"], _weakly(caller, UpstreamCaller.ask_to_log_in, otherwise=False))
        on_login = _on_login_of(caller) if self._attendant is not None else None  # the host of a bridge does not wait
        return UpstreamClient(
            self._target,
            caller.declared,
            stored_login=not (isinstance(caller.key, CallerKey) and caller.key.is_remote),
            extensions=self.extensions,
            on_login=on_login,
            name=self.name,
            on_change=_weakly(caller, UpstreamCaller.changed),
            on_event=_weakly(caller, UpstreamCaller.happened),
            **options,
        )

    def received(self, caller: UpstreamCaller, lists: Lists) -> Lists:
        """Receive what the server offers a caller, and return what is to be shown of it."""
        attendant = self._attendant
        return lists if attendant is None else attendant.received(caller.client.state.agreement, lists)

    def explain(self, error: ClientError) -> str:
        """Return why lists did not come, and what is to be done about it."""
        more = self._attendant.failed(error) if self._attendant is not None else ""
        return f"{error.problem}. {more}" if more else error.problem

    @property
    def asks_for_tokens(self) -> bool:
        """Whether each request has a token of its own upstream."""
        return self._token is not None

    @property
    def system(self) -> Offloads:
        """Has threads for functions that would block an event loop."""
        return self._site.edit_host.system

    def token_of(self, request: Request) -> object:
        """Return the token that a request has upstream, or an awaitable of it. Raises: what the author's function raises."""
        return self._token(self._site.edit_host.make_context(request)) if self._token is not None else None

    def make_view(self, caller: UpstreamCaller, lists: Lists) -> CallerView:
        """Return what a caller sees of what its client was shown."""
        catalogue = self._site.catalogue
        view = CallerView(
            partial(bool, True),  # one for each view: a function is asked once for a request
            takes_context=False,
            is_async=False,
            before=self.when,
            lists={each.method: Registry[Any](each, catalogue.switches) for each in _lists_with(self.extensions)},
            place=self._place,
            belongs_to=partial(_is_of, self._key_of, caller.key),
            unlisted=lambda uri: self._unlisted(view, caller, uri),
        )
        before = self._views_before(caller.key)

        def taken(method: str, key: str) -> bool:
            return key in catalogue.lists[method] or any(key in each.lists[method] for each in before)

        self._builder.fill(view, caller, lists, tags=self._tags, scopes=self._scopes, taken=taken)
        return view

    def _unlisted(self, view: CallerView, caller: UpstreamCaller, uri: str) -> BoundResource | None:
        """Return what reads a URI that no list names: of the only server of a bridge, or beside what lists of it name."""
        is_alone = self._attendant is not None and self._attendant.introduces
        if not is_alone and not any(_is_beside(uri, registry) for registry in view.lists.values()):
            return None
        return self._builder.unlisted(view, caller, uri, scopes=self._scopes)

    def _views_before(self, key: Hashable) -> list[CallerView]:
        """Return the views that the same caller has of the upstreams that were mounted before."""
        sources = [each for each in self._site.catalogue.item_sources if isinstance(each, Upstream)]
        callers = [each._callers.get(key) for each in sources if each._place < self._place]
        found = [each.shown for each in callers if each is not None]
        return [each for each in found if each is not None]

    def announce(self, caller: UpstreamCaller, before: CallerView | None, after: CallerView) -> None:
        """Notify a caller of the lists that have changed, whichever process their client listens to.

        Without a view before, they had none.
        """
        changed: dict[str, list[Listed]] = {}
        for method, registry in self._site.catalogue.lists.items():
            registry.forget_pages()
            if method in after.lists:
                known = before.lists.get(method, ()) if before is not None else ()
                changed.setdefault(registry.spec.capability, []).extend(_changes(known, after.lists[method]))
        for capability, items in changed.items():
            if items:
                self._site.announcer.list_changed(capability, items, caller=(self._mark, _mark_of(caller.key)))

    def announce_resource(self, caller: UpstreamCaller, uri: str) -> None:
        """Notify a caller of a resource that has changed; without listeners, the server need not report it."""
        view = caller.shown
        if view is not None:
            announcer = self._site.announcer
            reached = announcer.send(ServerChange.of_resource(uri), [view], caller=(self._mark, _mark_of(caller.key)))
            if not reached and self._site.dispatcher.profile.sharing is None:
                caller.unwatch(uri)

    def set_status(self, problem: str | None) -> None:
        """Receive why its lists did not come, or None once they have; a new problem is logged."""
        if problem is not None and problem != self.status:
            warn(f"mount: {problem}")
        self.status = problem or "connected"


class _OneCaller(Condition, frozen=True, eq=False, kw_only=True):
    """Holds for the requests of one caller."""

    key_of: Callable[[Request], object]
    mark: str

    def holds(self, make_context: Callable[[], Context], request: Request) -> object:
        """Return whether a request is of the caller."""
        return _mark_of(self.key_of(request)) == self.mark


def _condition_of(keys: Callable[[Request], object], mark: str) -> Condition:
    """Return the condition that holds for the caller whom another process calls so."""
    return _OneCaller(partial(bool, True), takes_context=False, is_async=False, key_of=keys, mark=mark)


def _mark_of(key: object) -> str:
    """Return what stands for the key of a caller in other processes, which does not tell who it is."""
    return key_of(repr(key))


def _start(
    caller: UpstreamCaller, request: Request, params: bytes, read: Callable[[Raw], Raw], is_safe: bool
) -> object:
    """Send a request; return its outcome, which comes later."""
    relay = RelayedRequest(caller, request, typed=False, read=read)
    spec = RequestSpec(
        request.method,
        params,
        timeout=caller.client.state.options.timeouts.list,
        on_progress=relay.on_progress,
        stopper=relay.stopper,
        meta=passed_on(request.meta),
        envelope=caller.envelope_of(request),
    )
    return relay.begin(spec, Marked(is_safe))


def _shared_key(first: UpstreamCaller | None, say: Callable[[], JSONObject]) -> Hashable:
    """Return the key of callers who share: a handshake server has a session for those who can do the same.

    What it may ask is declared once for a session, as `say` returns it. `first` is the caller who came first.
    """
    agreement = first.client.state.agreement if first is not None else None
    if first is None or agreement is None or not agreement.revision.keeps_sessions:
        return _SHARED
    said = say()
    return _SHARED if said == first.declared else (_SHARED, encode(said))


def _lists_with(extensions: Collection[Extension]) -> list[ListSpec[Any, Any]]:
    return [*LISTS.values(), *(spec for each in extensions for spec in each.lists)]


def _is_beside(uri: str, registry: Registry[Any]) -> bool:
    """Return whether a URI is in a folder, or below one, of which a list names something."""
    if registry.spec.key != "uri":
        return False
    folders = (registry.key_of(each).rpartition("/")[0] for each in registry)
    return any(len(each.partition("://")[2]) > 0 and uri.startswith(f"{each}/") for each in folders)


def _changes(before: Iterable[Listed], after: Registry[Any]) -> list[Listed]:
    """Return the items of a list that came, went, or are others now."""
    old, new = {after.key_of(each): each for each in before}, {after.key_of(each): each for each in after}
    changed = [each for key, each in new.items() if key not in old or _differs(old[key], each)]
    return changed + [each for key, each in old.items() if key not in new]


def _differs(one: Listed, other: Listed) -> bool:
    return one.spec != other.spec and encode(to_builtins(one.spec)) != encode(to_builtins(other.spec))


def _is_of(keys: Callable[[Request], object], key: Hashable, request: Request) -> bool:
    return keys(request) == key


def _uris_of(params: object) -> Sequence[str]:
    match params:
        case SubscribeParams(uri=uri):
            return [uri]
        case ListenParams(notifications=wanted):
            return wanted.resource_subscriptions or []
        case _:
            return ()


def _token_of(caller: UpstreamCaller) -> Callable[[], str]:
    """Return what gives a client the token that its caller brought last, and does not keep the caller."""
    reference = weakref.ref(caller)

    def token() -> str:
        found = reference()
        return (found.token if found is not None else None) or ""

    return token


def _on_login_of(caller: UpstreamCaller) -> Callable[[], object]:
    """Return what notifies a caller, if it is still there, that a person has to log in; it does not block."""
    reference = weakref.ref(caller)

    def on_login() -> None:
        if (found := reference()) is not None:
            reactor().call(found.login_awaited)

    return on_login


def _weakly(
    caller: UpstreamCaller, method: Callable[[UpstreamCaller, Any], T], otherwise: T | None = None
) -> Callable[[Any], T]:
    """Return a callback that does not keep its caller; without the caller it returns `otherwise`."""
    reference = weakref.ref(caller)

    def call(value: Any) -> Any:
        found = reference()
        return method(found, value) if found is not None else otherwise

    return call
