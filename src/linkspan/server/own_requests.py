"""Requests that a handler makes of its own server: it reads a resource, gets a prompt or a list, as its caller would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Raw

from linkspan.core.call import Call
from linkspan.errors import LocalProtocolError, RemoteProtocolError
from linkspan.revisions.neutral import NOTHING_SHOWN, InputRequired, Outcome, Request
from linkspan.server.asking import InputNeeded, Round
from linkspan.server.judging import Judges
from linkspan.server.serving_inside import outcome_inside
from linkspan.server.steps import Steps
from linkspan.types.base import Wire
from linkspan.types.messages import ListParams
from linkspan.types.methods import ListSpec


def own_request(
    outer: Request, round: Round, method: str, params: object, views: frozenset[object] = NOTHING_SHOWN
) -> Request:
    """Return a request of the same caller, whose questions are those of `outer`, and whose notifications belong to that.

    `views` are those that the caller has.
    """
    return Request(
        outer.id,
        method,
        params,
        outer.peer,
        outer.meta,
        log_level=outer.log_level,
        facts=outer.facts,
        emit=partial(_emit_for, outer),
        session=outer.session,
        round=round,
        shown=views,
    )


def _emit_for(outer: Request, _: Request, method: str, params: Wire | Raw) -> None:
    outer.emit(outer, method, params)


def steps_of(
    request: Request,
    round: Round,
    serve: Callable[[Request], Outcome | Call],
    judges: Judges | None,
    *,
    as_server: bool,
) -> Steps:
    """Yield the steps of such a request, and return its result. `as_server`: nothing is hidden from it.

    Raises: RemoteProtocolError for what the caller does not see; InputNeeded; what the handler, or middleware, raises.
    """
    if judges is not None:
        request.shown |= judges.all_of(request) if as_server else (yield from judges.shown(request))
    step = serve(request)
    outcome = yield from outcome_inside(step)
    if isinstance(outcome, RemoteProtocolError):
        raise outcome
    if isinstance(outcome, InputRequired):
        if round.questions:
            raise InputNeeded(*round.questions)
        raise LocalProtocolError(
            f"{request.method} of the own server returned InputRequired: ask there with ctx.ask, or leave it to the client"
        )
    return outcome


def pages_of(
    outer: Request,
    round: Round,
    spec: ListSpec[Any, Any],
    serve: Callable[[Request], Outcome | Call],
    judges: Judges | None,
    views: frozenset[object],
) -> Steps:
    """Yield the steps of the requests for a list, page by page, and return its items. Raises: as `steps_of`."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        request = own_request(outer, round, spec.method, ListParams(cursor=cursor), views)
        page: Any = yield from steps_of(request, round, serve, judges, as_server=False)
        items += getattr(page, spec.items)
        cursor = page.next_cursor
        if cursor is None:
            return items
