"""One caller of an upstream: a client of its own, the lists that the client was shown, and the calls that wait for an answer.

Law: nothing of one caller is ever another's. A key stands for a principal and a session; `shared=True` makes all callers one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Raw

from linkspan.client.callbacks import finished
from linkspan.core.call import Postponed, Readiness
from linkspan.core.flow import Flow
from linkspan.flows.client_errors import Change, ClientClosed, ClientError, Connected
from linkspan.flows.operations import list_all
from linkspan.flows.state import ClientState
from linkspan.flows.tool_results import read_head
from linkspan.revisions.agreement import ClientProfile
from linkspan.revisions.neutral import Peer, Request
from linkspan.runtime.deferred import Deferred, value_of
from linkspan.runtime.reactor import reactor
from linkspan.types.messages import LOG_LEVELS, LoggingLevel
from linkspan.types.methods import LISTS
from linkspan.upstreams.carrying import lists_of_extensions
from linkspan.upstreams.client import UpstreamClient, declared
from linkspan.upstreams.counting import UpstreamCounts
from linkspan.upstreams.states import LargeStates

if TYPE_CHECKING:
    from linkspan.core.extension import Extension, PassResult
    from linkspan.server.catalogue import AwaitedView, CallerView
    from linkspan.server.steps import Offloads
    from linkspan.stores.port import Store
    from linkspan.upstreams.relaying import RelayedRequest

MAX_PARKED: Final = 64
"""Calls of one caller that wait for an answer."""
_STALE: Final = 5.0
"""Seconds for which a list is kept at least."""

Lists = Mapping[str, Sequence[Any]]
"""The items of an upstream, by the methods of their lists."""


class Home(Protocol):
    """The upstream whose caller it is."""

    @property
    def name(self) -> str: ...
    @property
    def list_timeout(self) -> float: ...
    @property
    def is_required(self) -> bool: ...
    @property
    def asks_for_tokens(self) -> bool: ...
    @property
    def counts(self) -> UpstreamCounts: ...
    @property
    def system(self) -> Offloads: ...
    @property
    def extensions(self) -> Collection[Extension]:
        """Those of the server around."""
        ...

    @property
    def passed_results(self) -> Mapping[str, PassResult]:
        """What extensions make of results of their types, by type."""
        ...

    @property
    def keeps(self) -> tuple[Callable[[], Store], Callable[[], float]]:
        """What opens the store, and returns how many seconds the state of a round is kept."""
        ...

    def make_client(self, caller: UpstreamCaller) -> UpstreamClient:
        """Return a client for a caller, which declares what the caller does."""
        ...

    def make_view(self, caller: UpstreamCaller, lists: Lists) -> CallerView:
        """Return what a caller sees of what its client was shown."""
        ...

    def announce(self, caller: UpstreamCaller, before: CallerView | None, after: CallerView) -> None:
        """Notify a caller of what has changed."""
        ...

    def announce_resource(self, caller: UpstreamCaller, uri: str) -> None:
        """Notify a caller of a resource that has changed."""
        ...

    def explain(self, error: ClientError) -> str:
        """Return why lists did not come, and what is to be done about it."""
        ...

    def set_status(self, problem: str | None) -> None:
        """Receive why its lists did not come, or None once they have."""
        ...

    def received(self, caller: UpstreamCaller, lists: Lists) -> Lists:
        """Receive what the server offers a caller, and return what is to be shown of it."""
        ...

    def token_of(self, request: Request) -> object:
        """Return the token that a request has upstream, or an awaitable of it; None where requests have none of their own."""
        ...


class ViewOnItsWay:
    """A view on its way: what is postponed for it begins once it is there, or when its time is over."""

    refusal: str | None = None

    def __init__(self, *awaited: ViewOnItsWay) -> None:
        """Wait for others, or for `done`."""
        self._awaited = awaited
        self._deferred = Deferred()

    @property
    def entered(self) -> bool:
        """Whether what waits may go on."""
        return self.refusal is None and all(each.entered for each in self._awaited)

    def begin(self, user: object, loop: Callable[[], Any]) -> bool:
        """Return True: it has begun."""
        return True

    def done(self, refusal: str | None = None) -> None:
        """Let go on what waits; or refuse it, with the reason."""
        self.refusal = refusal
        self._deferred.put(None)

    def then(self, go: Callable[[], object]) -> None:
        """Call `go` once it is there, or its time is over."""
        if not self._awaited:
            self._deferred.then(lambda _: go())
            return
        left = set(self._awaited)

        def one(each: ViewOnItsWay) -> None:
            left.discard(each)
            if not left:
                go()

        for each in self._awaited:
            each.then(partial(one, each))

    def wait(self) -> None:
        """Wait here for the same."""
        there = threading.Event()
        self.then(there.set)
        there.wait()

    def value_of(self, postponed: Postponed) -> Awaitable[object]:
        """Run a call that was postponed, and give its value."""
        return value_of(self.then, postponed)

    def beside(self, others: Sequence[AwaitedView]) -> Readiness:
        """Return what waits for the others, too."""
        return _SeveralViews(self, *(each for each in others if isinstance(each, ViewOnItsWay))) if others else self


class _SeveralViews(ViewOnItsWay):
    """Several at once."""

    @property
    def refusal(self) -> str | None:  # type: ignore[override]
        """The first of their refusals."""
        return next((each.refusal for each in self._awaited if each.refusal is not None), None)


class Introduction(ViewOnItsWay):
    """The first lists of a server, whatever becomes of them."""

    @property
    def entered(self) -> bool:
        """Whether what waits may go on: in any case."""
        return True


class RefusedView(ViewOnItsWay):
    """Stands for the view of a caller that gets none, with the reason."""

    def __init__(self, reason: str) -> None:
        """Refuse with a sentence."""
        super().__init__()
        self.done(reason)


class UpstreamCaller:
    """One caller of an upstream."""

    def __init__(self, home: Home, key: Hashable, peer: Peer, known: Lists | None = None) -> None:
        """Open nothing yet; `peer` is who asked first, and `known` what the server offered before."""
        self.key = key
        self.asks_for_tokens = home.asks_for_tokens
        """Whether each of its requests has a token of its own."""
        self._passed_results = [(kind, kind.encode(), passed) for kind, passed in home.passed_results.items()]
        self.used = time.monotonic()
        self._home = home
        self._lock = threading.RLock()
        self.shown: CallerView | None = None
        """What the caller sees, once it is known."""
        self._lists: Lists = {}
        self._waiting: ViewOnItsWay | None = None
        self._is_late = False
        self._awaits_login = False
        """Whether a person has to log in before there are lists."""
        self._is_listing = self._lists_again = False
        self._awaits_token = False
        """Whether its lists are to be asked for as soon as a request brings a token."""
        self._listed_at = 0.0
        self._closed = False
        self._connections = 0
        self._parked: dict[str, tuple[float, RelayedRequest]] = {}
        self._envelopes: dict[LoggingLevel | None, tuple[Peer, bytes | None]] = {}
        self._level: LoggingLevel | None = None
        self.under_way: set[RelayedRequest] = set()
        """Requests that the server has not answered yet."""
        self._watched: set[str] = set()
        self.token: str | None = None
        """What requests bring upstream, where they bring something of their own."""
        self.declared = declared(peer, home.extensions)
        """What a handshake declares for it."""
        self.client = home.make_client(self)
        self.states = LargeStates(*home.keeps)
        self.counts = home.counts
        if known is not None:
            self._lists = known
            self.shown = home.make_view(self, known)
            self._list()

    @property
    def name(self) -> str:
        """What errors call the upstream."""
        return self._home.name

    @property
    def system(self) -> Offloads:
        """Has threads for functions that would block an event loop."""
        return self._home.system

    def token_for(self, request: Request) -> object:
        """Return the token of a request, or an awaitable of it. Raises: what the author's function raises."""
        return self._home.token_of(request)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the caller's is under way."""
        return not self._parked and not self._watched and self.client.is_idle

    # What it sees.

    def introduction(self, request: Request) -> ViewOnItsWay | None:
        """Return what has to be waited for before it is known what the server is."""
        found = self.view(request)
        return Introduction(found) if isinstance(found, ViewOnItsWay) else None

    def view(self, request: Request) -> CallerView | ViewOnItsWay | None:
        """Return what the caller sees, what has to be waited for, or None where it did not come in time, or awaits a login."""
        self.used = now = time.monotonic()
        if self.shown is not None:
            if self._awaits_token or (now - self._listed_at >= _STALE and self._is_stale()):
                self._list(request)
            return self.shown
        if self._awaits_login:
            return None
        with self._lock:
            waiting, is_late = self._waiting, self._is_late
            if waiting is None:
                self._waiting = waiting = ViewOnItsWay()
                reactor().call_later(self._home.list_timeout, partial(self._give_up, waiting))
        self._list(request)
        if self.shown is not None:
            return self.shown
        return None if is_late and not self._home.is_required else waiting

    def _is_stale(self) -> bool:
        """Whether lists that are old may have changed: the server has promised nothing about that."""
        agreement = self.client.state.agreement
        if agreement is None or not self.client.connected:
            return False  # they stay while the server is away
        offered = agreement.capabilities
        return any(
            each is not None and not each.list_changed for each in (offered.tools, offered.prompts, offered.resources)
        )

    def _give_up(self, waiting: ViewOnItsWay) -> None:
        """Let those who wait go on without the lists; they are shown when they come."""
        with self._lock:
            if self._waiting is not waiting or self.shown is not None:
                return
            self._waiting, self._is_late = None, True
        problem = f"{self.name}: its lists did not come within {self._home.list_timeout:g} s"
        self._home.set_status(problem)
        waiting.done(problem if self._home.is_required else None)

    def login_awaited(self) -> None:
        """Let those go on who wait for the lists, which are announced once a person has logged in."""
        with self._lock:
            if self.shown is not None or self._closed:
                return
            waiting, self._waiting = self._waiting, None
            self._is_late = self._awaits_login = True
        self._home.set_status(f"{self.name}: a person has to log in")
        if waiting is not None:
            waiting.done()

    def _list(self, request: Request | None = None) -> None:
        """Ask for all lists, unless that is under way; with the rights of a request, where requests have their own."""
        lacks_token = self._home.asks_for_tokens and self.token is None
        with self._lock:
            if self._closed or self._is_listing:
                return
            self._awaits_token = lacks_token and request is None
            if self._awaits_token:
                return
            self._is_listing = True
        if request is None or not lacks_token:
            self.client.connect(self._connected)
            return
        find = partial(self._list_with, request)
        threading.Thread(target=find, name="linkspan-token", daemon=True).start()

    def _list_with(self, request: Request) -> None:
        """Find the token of a request, which may take a while, and ask for all lists."""
        try:
            self.use(finished(self._home.token_of(request)))
        except Exception as error:  # the author's function, or a refusal of the authorization server
            self._listed(error)
        else:
            self.client.connect(self._connected)

    def use(self, token: object) -> None:
        """Bring a token upstream from now on. Raises: ValueError for anything but a text."""
        if not isinstance(token, str):
            raise ValueError(f"{self.name}: auth= of a mount returned {type(token).__name__}, not a token")
        self.token = token

    def _connected(self, found: object) -> None:
        if isinstance(found, ClientError):
            self._listed(found)
        else:
            self.client.start(_all_lists(self.client.state, self._home.extensions), self._listed)

    def _listed(self, found: Lists | Exception) -> None:
        with self._lock:
            self._is_listing = False
            again, self._lists_again = self._lists_again, False
            self._listed_at = time.monotonic()
            waiting, self._waiting = self._waiting, None
            is_late, self._awaits_login = self._is_late, False
            before = after = self.shown
            if not isinstance(found, Exception):
                self._lists = found = self._home.received(self, found)
                self.shown = after = self._home.make_view(self, found)
            self._is_late = after is None
        problem: str | None = None
        if isinstance(found, Exception):
            why = self._home.explain(found) if isinstance(found, ClientError) else "its lists are not valid"
            problem = f"{self.name}: {why}"
        if not isinstance(found, ClientClosed):
            self._home.set_status(problem)
        if after is not None and after is not before and (before is not None or is_late):
            self._home.announce(self, before, after)
        if waiting is not None:
            waiting.done(problem if self._home.is_required else None)
        if again:
            self._list()

    def show_again(self) -> None:
        """Make the view anew: switches, or the mounts beside it, are others."""
        with self._lock:
            if (before := self.shown) is None:
                return
            self.shown = after = self._home.make_view(self, self._lists)
        self._home.announce(self, before, after)

    def refresh(self) -> None:
        """Ask for all lists now."""
        with self._lock:
            if self._is_listing:
                self._lists_again = True
                return
        self._list()

    def changed(self, change: Change) -> None:
        """Receive a change that the server has announced."""
        if change.kind != "resource":
            self.refresh()
        elif change.uri is not None:
            self._home.announce_resource(self, change.uri)

    def happened(self, event: object) -> None:
        """Receive an event of the connection: a server that was started anew may offer something else."""
        if isinstance(event, Connected):
            self._connections += 1
            if self._connections > 1:
                self.refresh()

    def watch(self, uri: str) -> None:
        """Let the server report changes of a resource."""
        if uri in self._watched:
            return
        self._watched.add(uri)
        try:
            self.client.watch(uri, on=True)
        except ValueError:
            return  # it does not report them

    def unwatch(self, uri: str) -> None:
        """End that."""
        self._watched.discard(uri)
        try:
            self.client.watch(uri, on=False)
        except ValueError:
            return

    # Its requests.

    def envelope_of(self, request: Request) -> bytes | None:
        """Return the envelope of a request: a modern server hears what this caller can do, and which log it wants.

        None for that of the client.
        """
        self.used = time.monotonic()
        agreement, level = self.client.state.agreement, request.log_level
        if agreement is None:
            return None
        if not agreement.revision.log_level_in_envelope:
            self._ask_for_log(level, logs=agreement.capabilities.logging is not None)
            return None
        peer, envelope = self._envelopes.get(level, (None, None))
        if peer is not request.peer:
            profile = self.client.state.options.profile
            said = declared(request.peer, self._home.extensions)
            envelope = agreement.speaking(ClientProfile(profile.info, said), level)
            self._envelopes[level] = request.peer, envelope
        return envelope

    def _ask_for_log(self, level: LoggingLevel | None, *, logs: bool) -> None:
        """Let a handshake server send what the most talkative of the requests wants."""
        if not logs or level is None:
            return
        if self._level is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._level):
            self._level = level
            self.client.set_level(level)

    def passed(self, request: Request, raw: Raw) -> Raw | None:
        """Return what an extension makes of a result of its type; None for other results."""
        for kind, mark, pass_on in self._passed_results:
            if mark in bytes(raw) and read_head(raw).result_type == kind:
                return pass_on(request, self.name, raw)
        return None

    def is_cached(self, method: str) -> bool:
        """Return whether clients may keep the results of a method of an extension."""
        methods = [each.methods[method] for each in self._home.extensions if method in each.methods]
        return any(each.cached for each in methods)

    def park(self, relay: RelayedRequest) -> str | None:
        """Keep a call that waits for an answer; return what it is kept under, or None where too many wait."""
        import secrets

        patience = self.client.state.options.timeouts.input
        kept_under, now = secrets.token_hex(16), time.monotonic()
        with self._lock:
            if len(self._parked) >= MAX_PARKED:
                return None
            self._parked[kept_under] = now + patience, relay
        reactor().call_later(patience, partial(self._expire, kept_under))
        return kept_under

    def _expire(self, kept_under: str) -> None:
        with self._lock:
            found = self._parked.pop(kept_under, None)
        if found is not None:
            found[1].abandon("the question was not answered in time")

    def ask_to_log_in(self, url: str) -> bool:
        """Let a request that waits for a login ask the user to open its URL; return whether there is one that can."""
        return any(each.ask_to_log_in(url) for each in list(self.under_way))

    def call_of(self, kept_under: str) -> RelayedRequest | None:
        """Return the call that is parked under an id, once."""
        with self._lock:
            found = self._parked.pop(kept_under, None)
        return found[1] if found is not None else None

    def close(self) -> None:
        """End everything of the caller's. Blocks."""
        with self._lock:
            self._closed = True
        self.client.close_now()


def _all_lists(state: ClientState, extensions: Collection[Extension]) -> Flow[Lists]:
    """Return the items of all lists that a server offers, with those of these extensions. Raises: ClientError."""
    found: dict[str, Sequence[Any]] = {}
    for method, spec in LISTS.items():
        agreement = state.agreement
        if agreement is None or getattr(agreement.capabilities, spec.capability) is not None:
            state.cache.forget_list(method)
            found[method] = yield from list_all(state, spec)
    return found | (yield from lists_of_extensions(state, extensions)) if extensions else found
