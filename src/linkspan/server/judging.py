"""Asks the conditions of items (`when=`) for the callers of requests, and for the clients that listen for changes.

No lock is held meanwhile: conditions are the author's code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from linkspan.core.call import Call
from linkspan.errors import Forbidden
from linkspan.revisions.neutral import NO_FACTS, NOTHING_SHOWN, Outcome, Request
from linkspan.schema.annotations import name_of
from linkspan.server.asking import Round, Rounds
from linkspan.server.catalogue import Catalogue, views_in
from linkspan.server.configuration import Profile, Settings
from linkspan.server.context import Context
from linkspan.server.features.method import Method, Serve
from linkspan.server.handlers import Handler, Later, Preparation
from linkspan.server.observation import Failures, Observation
from linkspan.server.steps import Step, Steps, driven
from linkspan.server.visibility import Condition, judge
from linkspan.types.messages import CallToolParams, ListenParams, SubscribeParams

if TYPE_CHECKING:
    from linkspan.server.ports import System


class Judges:
    """Finds out what exists for whom, on one server."""

    def __init__(
        self,
        methods: Mapping[str, Method[Any]],
        catalogue: Catalogue,
        profile: Profile,
        rounds: Rounds,
        failures: Failures,
        system: System,
        make_context: Callable[[Request, Round], Context],
    ) -> None:
        """Ask the conditions of the items in `catalogue`."""
        self._make_context = make_context
        self._methods = methods
        self._catalogue = catalogue
        self._profile = profile
        self._rounds = rounds
        self._failures = failures
        self._system = system

    def before(
        self, request: Request, begin: Callable[[], Outcome | Call], handler: Handler | None = None
    ) -> Call | None:
        """Return a call that asks what a request depends on, and then begins it; None if it depends on nothing.

        The call runs where `handler` does. `begin` does not raise.
        """
        request.shown = frozenset(views_in(request.shown))  # also of a request that is issued again
        if request.is_run:  # without headers a condition may not hold that held for the call
            request.shown |= self._own(request)
            return None
        wanted, others = self._concerned(request)
        if not wanted:
            return None
        preparation = Preparation(begin)
        steps = self._first(request, wanted, others, preparation)
        is_async = (handler is not None and handler.is_async) or any(each.is_async for each in wanted)
        run = driven(steps, self._system, is_async=is_async)
        inline = handler is not None and handler.inline
        return Later(request, run, is_async, inline, preparation=preparation)

    def _first(
        self, request: Request, wanted: Sequence[Condition], others: Sequence[Condition], preparation: Preparation
    ) -> Steps:
        held = yield from self.judge(request, wanted, others)
        request.shown |= held
        step = preparation.step()
        if not isinstance(step, Call):
            return None
        return (yield Step(step.run, blocking=not (step.is_async or step.inline)))

    def shown(self, request: Request) -> Generator[Step, Any, frozenset[Condition]]:
        """Yield the steps that ask what a request depends on; return the conditions that hold."""
        return (yield from self.judge(request, *self._concerned(request)))

    def all_of(self, request: Request) -> frozenset[Condition]:
        """Return all that a request depends on, as if it held."""
        wanted, others = self._concerned(request)
        return frozenset((*wanted, *others))

    def judge(
        self, request: Request, wanted: Iterable[Condition], others: Iterable[Condition] = ()
    ) -> Generator[Step, Any, frozenset[Condition]]:
        """Yield the steps that ask conditions for the caller of `request`; return those that hold."""
        round = self._rounds.closed("when=")
        make_context = cache(lambda: self._make_context(request, round))

        def ask(condition: Condition) -> object:
            run = partial(condition.holds, make_context, request)
            return run() if Context.ambient is None else Context.ambient(make_context, run)

        def report(condition: Condition, error: Exception) -> None:
            self._failures.report(request, error, f"when={name_of(condition.function)}")

        return judge(tuple(wanted), tuple(others), ask, report)

    def _concerned(self, request: Request) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the conditions that a request depends on, and those that matter too if one of these does not hold."""
        views = self._conditional_views(request)
        if (method := self._methods.get(request.method)) is not None:
            concerned, others = method.concerned(request.params)
            return (*concerned, *views), others
        match request.params:
            case SubscribeParams(uri=uri):
                return (*self._catalogue.conditions_of(uri), *views), ()
            case ListenParams(notifications=wanted):
                uris = wanted.resource_subscriptions or []
                most = self._profile.limits.max_subscriptions
                return (*self._catalogue.conditions_of(*uris[:most]), *views), ()
            case _:
                return (), ()

    def _conditional_views(self, request: Request) -> list[Condition]:
        """Return the views of a caller that exist only if another condition holds: that of `mount(when=)`."""
        if not self._catalogue.item_sources:
            return []
        views, _ = self._catalogue.views_for(request)
        return [each for each in views if each.before is not None]

    def _own(self, request: Request) -> frozenset[object]:
        """Return the condition of the tool that a request calls, if it has one."""
        name = request.params.name if isinstance(request.params, CallToolParams) else ""
        own = self._catalogue.tools.conditions.get(name)
        return NOTHING_SHOWN if own is None else frozenset((own,))


def serve_permitted(
    method: Method[Any] | None,
    serve: Serve,
    request: Request,
    settings: Settings,
    observation: Observation | None,
) -> Outcome | Call:
    """Serve a request if its token has the scopes of what it asks for. Raises: Forbidden.

    Where the transport has no tokens, as stdio and memory, all scopes are granted. Over HTTP none is without `auth=`.
    """
    facts = request.facts
    item = method.item(request.params, request.shown) if method is not None else None
    if facts is not NO_FACTS and item is not None and item.scopes:
        if facts.grant is None:
            raise Forbidden(item.scopes, "this server verifies no tokens over HTTP: scopes= needs auth=Protected(...)")
        if not facts.grant.scopes.issuperset(item.scopes):
            raise Forbidden(item.scopes)
    return serve(request, settings, observation)
