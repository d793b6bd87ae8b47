"""What a server does for a method: the questions that the dispatcher asks of it, and what it may ask of the dispatcher."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from linkspan.core.call import Call
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError, clipped
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.asking import Rounds
from linkspan.server.catalogue import Catalogue, Listed, Registry
from linkspan.server.configuration import Profile, Settings
from linkspan.server.handlers import Handler
from linkspan.server.observation import Failures, Observation
from linkspan.server.visibility import Condition
from linkspan.text import did_you_mean
from linkspan.types.base import JSONObject
from linkspan.types.messages import ListParams, Params
from linkspan.types.methods import MethodSpec

if TYPE_CHECKING:
    from linkspan.server.context import Context
    from linkspan.server.dependencies import Needs

ParamsT = TypeVar("ParamsT", bound=Params)

Serve: TypeAlias = Callable[[Request, Settings, Observation | None], Outcome | Call]
"""Answers a request, or returns the function that must run for it. May raise RemoteProtocolError."""

Shortcut: TypeAlias = Callable[[Request, Settings], Call | None]
"""Begins a request in one step; None for one that needs another way."""


class MethodHost(Protocol):
    """What methods need of the dispatcher."""

    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def rounds(self) -> Rounds: ...
    @property
    def failures(self) -> Failures: ...
    @property
    def makes_values_plainly(self) -> bool:
        """Whether dependencies without a context make their values as they were registered, and nothing comes before."""
        ...

    def bind_needs(
        self, handler: Handler, needs: Needs, run: Callable[..., object], request: Request, context: Context | None
    ) -> Callable[[], object]:
        """Return a function, bound to its arguments, that is called with what its dependencies make."""
        ...

    def count_repairs(self, request: Request, repairs: Sequence[str]) -> None:
        """Count, and log, what was repaired in the arguments of a call of a tool."""
        ...

    def run(
        self,
        request: Request,
        settings: Settings,
        observation: Observation | None,
        handler: Handler,
        arguments: JSONObject,
        conclude: Callable[[object], Outcome],
        target: str,
    ) -> Outcome | Call:
        """Return the call of a handler that is bound to its arguments, or the questions that come before it."""
        ...


class Method(ABC, Generic[ParamsT]):
    """A method of one server. The params that its questions get are those that its spec names."""

    def __init__(self, spec: MethodSpec, host: MethodHost) -> None:
        """Serve `spec` for `host`."""
        self.spec = spec
        self.host = host

    @abstractmethod
    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Answer a request, or return the function that must run for it. Raises: RemoteProtocolError."""

    def handler(self, params: ParamsT) -> Handler | None:
        """Return the function that will run for a request with `params`, hidden or not."""

    def item(self, params: ParamsT, shown: Collection[object]) -> Listed | None:
        """Return what a request is about, if that exists for its caller: its scopes count."""

    def concerned(self, params: ParamsT) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the conditions that a request depends on, and those that matter too if one of these does not hold."""
        return (), ()

    def shortcut(self) -> Shortcut | None:
        """Return what begins the commonest of its requests, where nothing of the author's runs before their function."""
        return None


class ItemMethod(Method[ParamsT]):
    """A method about one item of a list, which its params name by its key."""

    def __init__(self, spec: MethodSpec, host: MethodHost, registry: Registry[Any]) -> None:
        """Serve requests about the items of `registry`."""
        super().__init__(spec, host)
        self.registry = registry

    def handler(self, params: ParamsT) -> Handler | None:
        """Return the function of the item."""
        item = self.registry.registered(params.target or "")
        return item.handler if item is not None else None

    def item(self, params: ParamsT, shown: Collection[object]) -> Listed | None:
        """Return the item."""
        found: Listed | None = self.registry.get(params.target or "", shown)
        return found

    def concerned(self, params: ParamsT) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the condition of the item.

        An unknown name depends on all of its kind, which the error may suggest; and a hidden one must not differ from it.
        """
        key, conditions = params.target or "", self.registry.conditions
        if self.registry.get(key) is not None:
            return (), ()
        every, own = tuple(conditions.values()), conditions.get(key)
        return (every, ()) if own is None else ((own,), every)

    def unknown(self, request: Request, key: str, observation: Observation | None) -> RemoteProtocolError:
        """Return the error for an unknown key; where nothing of its kind is offered, the method is unknown too (SRV-2)."""
        spec = self.registry.spec
        if not self.host.catalogue.offers(spec.capability):
            return method_not_found(request)
        if observation is not None:
            observation.record_error(f"{spec.noun}_not_found")
        suggested = did_you_mean(key, self.registry.keys(request.shown))
        return RemoteProtocolError(INVALID_PARAMS, f"Unknown {spec.words}: {clipped(key)}{suggested}")


class ListMethod(Method[ListParams]):
    """A list in pages."""

    def __init__(self, spec: MethodSpec, host: MethodHost, registry: Registry[Any]) -> None:
        """Serve the pages of `registry`."""
        super().__init__(spec, host)
        self.registry = registry

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome:
        """Return a page, encoded once for all who see the same."""
        return self._page(request, partial(self.registry.page, request.peer.revision))

    def serve_result(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome:
        """Return a page as a result that middleware can read and change."""
        page = self.registry.result
        if not request.peer.revision.caches_results:  # shapes of extensions are not stepped down
            page = partial(page, caches=False)
        return self._page(request, page)

    def _page(self, request: Request, page: Callable[..., Outcome]) -> Outcome:
        if not self.host.catalogue.offers(self.registry.spec.capability):
            return method_not_found(request)
        assert isinstance(request.params, ListParams)
        cursor, profile, scope = request.params.cursor, self.host.profile, self.host.profile.cache_scope
        return page(cursor, profile.page_size, ttl_ms=profile.ttl_ms, cache_scope=scope, shown=request.shown)

    def concerned(self, params: ListParams) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return all conditions: a page shows what holds."""
        return tuple(self.registry.conditions.values()), ()


def method_not_found(request: Request) -> RemoteProtocolError:
    """Return the error for a method that this server does not have."""
    return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.method)
