"""What sources of items offer to the caller of a request, which is found out before the request begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from linkspan.core.call import OWN_ANSWER, Call
from linkspan.revisions.neutral import NOTHING_SHOWN, Outcome, Request
from linkspan.server.catalogue import AwaitedView, Catalogue
from linkspan.server.features.method import Method
from linkspan.server.handlers import LISTENING, postpone

Begin: TypeAlias = Callable[[Request], Outcome | Call]

_INTRODUCING: Final = ("initialize", "server/discover")
"""The requests by which clients learn what a server is, which connections answer."""


class ItemViews:
    """Shows to each request what the sources of a catalogue offer to its caller, and lets it wait where that is not known."""

    def __init__(self, catalogue: Catalogue, methods: Mapping[str, Method[Any]]) -> None:
        """Ask the sources that `catalogue` has when a request comes, for requests of `methods`."""
        self._catalogue = catalogue
        self._methods = methods

    def begin(self, begin: Begin, request: Request) -> Outcome | Call:
        """Begin a request by `begin` once its views are known, if it may be about items of a source."""
        method = self._methods.get(request.method)
        request.shown = NOTHING_SHOWN  # also of a request that is issued again
        if method is None or (method.item(request.params, NOTHING_SHOWN) is not None):
            return begin(request)
        openings = self._show(request)
        if not openings or (request.shown and method.item(request.params, request.shown) is not None):
            return begin(request)
        return postpone(request, openings[0].beside(openings[1:]), partial(self._begin_shown, begin, request))

    def before(self, request: Request, others: Callable[[Request], Call | None]) -> Call | None:
        """Return what must run before a connection answers a request itself; `others` returns what comes after the views."""
        if request.method in _INTRODUCING:
            found = [each.introduction(request) for each in self._catalogue.item_sources]
            introductions = [each for each in found if each is not None]
            if not introductions:
                return others(request)
            awaited = introductions[0].beside(introductions[1:])
            return postpone(request, awaited, lambda: others(request) or OWN_ANSWER)
        if request.method not in LISTENING:
            return others(request)
        openings = self._show(request)
        if not openings:
            return self._before_listening(request, others)
        awaited = openings[0].beside(openings[1:])
        return postpone(request, awaited, lambda: self._before_listening(request, others) or OWN_ANSWER)

    def _before_listening(self, request: Request, others: Callable[[Request], Call | None]) -> Call | None:
        self._show(request)
        for each in self._catalogue.item_sources:
            each.listens(request)
        return others(request)

    def _begin_shown(self, begin: Begin, request: Request) -> Outcome | Call:
        """Begin a request with what sources offer by now."""
        self._show(request)
        return begin(request)

    def _show(self, request: Request) -> list[AwaitedView]:
        """Show to a request what sources offer to its caller; return what has to be waited for."""
        views, openings = self._catalogue.views_for(request)
        request.shown = frozenset([each for each in views if each.before is None])
        return openings
