"""How a client finds out what its server speaks: ask in the modern era, fall back to the handshake.

Law: silence, any unknown error and even death mean "a handshake server"; only what a modern server must say means modern.
A server that was modern before is not demoted because it is slow, or dies, this time (ERA-7).
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning (ERA-1 to ERA-9).
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from linkspan.core.flow import FallBack, Flow, Notify, Reopen, RequestSpec, Send
from linkspan.errors import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY
from linkspan.flows.client_errors import (
    CallTimeout,
    ClientError,
    ConnectError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    is_unreadable,
)
from linkspan.flows.state import ClientState
from linkspan.revisions import LATEST, LATEST_LEGACY, LEGACY, REVISIONS, supported_versions
from linkspan.revisions.agreement import (
    Agreement,
    agree_modern,
    agree_on_handshake,
    before_agreement,
    choose,
    handshake_params,
    offered_versions,
    opening,
)
from linkspan.revisions.record import Revision
from linkspan.types.base import is_array, is_object
from linkspan.wire.jsonrpc import ErrorResponse, Response

_NOT_MODERN = (400, 404, 405, 406, 415, 422)
"""Statuses that a server of the handshake era answers to a modern request (ERA-3)."""
_OLD_TRANSPORT = (400, 404, 405)
"""Statuses that a server of the first HTTP transport answers to a handshake of the second."""


def negotiate(state: ClientState) -> Flow[Agreement]:
    """Agree with a server that has just been opened. Raises: ConnectError."""
    first = opening(state.options.era, state.options.revision, state.era)
    try:
        if not first.handshake:
            return (yield from _probe(state, first.revision, only_modern=first.pinned, certain=first.certain))
        if first.pinned:
            return (yield from _shake_hands(state, first.revision))
        return (yield from _as_remembered(state))
    except (ConnectError, HttpError):
        raise
    except ClientError as error:
        if error.phase == "authorize":
            raise
        raise _as_connect_error(state, error) from None


def _as_remembered(state: ClientState) -> Flow[Agreement]:
    """Greet a server that has wanted a handshake before; if it does not any more, find out anew."""
    try:
        return (yield from _shake_hands(state, LATEST_LEGACY))
    except (ConnectError, HttpError) as error:
        state.era = None
        if isinstance(error, HttpError) and error.status not in _NOT_MODERN:
            raise  # it says nothing about the era
        if state.origin.url is None or error.phase != "negotiate":
            raise
    return (yield from _probe(state, LATEST, only_modern=True))


def _probe(
    state: ClientState, revision: Revision, *, only_modern: bool, certain: bool = True, repeated: bool = False
) -> Flow[Agreement]:
    """Ask for `server/discover` in `revision`, and read from the answer which era this is."""
    patient = certain or state.origin.url is not None
    timeouts = state.options.timeouts
    question = RequestSpec(
        "server/discover",
        phase="negotiate",
        timeout=timeouts.connect if patient else timeouts.probe,
        agreement=before_agreement(revision, state.options.profile),
        cancellable=certain,
    )
    try:
        if certain or not patient:
            answer = yield Send(question)
        else:  # a slow URL may be of either era: ask in both ways, and believe what answers first
            answer = yield Send(question, beside=_greeting(state, LATEST_LEGACY), after=timeouts.probe)
    except HttpError as error:
        if only_modern or error.status not in _NOT_MODERN:
            raise  # 401, 403 and 5xx say nothing about the era
        answer = None
    except (ConnectionLost, CallTimeout) as error:
        if patient or is_unreadable(error.ending):
            raise
        if isinstance(error, ConnectionLost):
            yield Reopen()
        answer = None
    except InvalidResponse:
        if certain:
            raise
        answer = None
    if answer is None:
        return (yield from _shake_hands(state, LATEST_LEGACY))
    offered: list[str] | None = None
    if isinstance(answer, ErrorResponse):
        if answer.code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY):
            raise _refused(state, "server/discover", answer)
        offered = offered_versions(answer)
    else:
        with suppress(msgspec.DecodeError, RecursionError):
            agreement, offered = agree_modern(revision, answer.result, state.options.profile)
            if revision.date in offered:
                return agreement
    return (yield from _after_refusal(state, answer, offered, only_modern=only_modern, repeated=repeated))


def _after_refusal(
    state: ClientState,
    answer: Response | ErrorResponse,
    offered: list[str] | None,
    *,
    only_modern: bool,
    repeated: bool,
) -> Flow[Agreement]:
    """Go on after a probe that did not agree: with another version that the server lists, or with the handshake."""
    mutual = choose(offered) if offered else None
    if state.options.revision is not None and mutual is not state.options.revision:
        mutual = None
    if mutual is not None and not repeated:
        return (yield from _probe(state, mutual, only_modern=True, repeated=True))
    if offered is None or any(each in LEGACY for each in offered):
        if not only_modern:
            return (yield from _shake_hands(state, LATEST_LEGACY))
        if isinstance(answer, ErrorResponse):
            raise _refused(state, "server/discover", answer)
        raise _disagreed(state, "no stateless revision that this client allows")
    raise _disagreed(state, ", ".join(offered) or "no version at all")


def _shake_hands(state: ClientState, revision: Revision, *, repeated: bool = False) -> Flow[Agreement]:
    """Send `initialize` and read what the server proposes (INI-1)."""
    handshake = Send(_greeting(state, revision))
    try:
        answer = yield handshake
    except HttpError as error:
        if error.status not in _OLD_TRANSPORT:
            raise
        yield FallBack(error)
        answer = yield handshake
    if isinstance(answer, ErrorResponse):
        offered = _listed(answer)
        mutual = choose(offered)
        if mutual is not None and not repeated and state.options.era is None and state.options.revision is None:
            return (yield from _probe(state, mutual, only_modern=True, repeated=True))
        older = [REVISIONS[each] for each in LEGACY if each in offered]
        if older and not repeated and state.options.revision is None:
            return (yield from _shake_hands(state, older[-1], repeated=True))
        raise _refused(state, "initialize", answer)
    try:
        agreement = agree_on_handshake(answer.result)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ConnectError(f"invalid response to initialize: {problem}", state.origin, phase="negotiate") from None
    if isinstance(agreement, str):
        raise _disagreed(state, agreement)
    if state.options.revision not in (None, agreement.revision):
        raise _disagreed(state, agreement.revision.date)
    yield Notify("notifications/initialized", agreement=agreement)
    return agreement


def _greeting(state: ClientState, revision: Revision) -> RequestSpec:
    """Return the request that begins a handshake."""
    return RequestSpec(
        "initialize",
        handshake_params(state.options.profile, revision),
        phase="negotiate",
        timeout=state.options.timeouts.connect,
        agreement=before_agreement(LATEST_LEGACY, state.options.profile),
        cancellable=False,
    )


def _listed(error: ErrorResponse) -> list[str]:
    """Return the versions that a refusal lists; modern-only servers name theirs (ERA-3)."""
    supported = error.data.get("supported") if is_object(error.data) else None
    return [each for each in supported if isinstance(each, str)] if is_array(supported) else []


def _refused(state: ClientState, method: str, error: ErrorResponse) -> ConnectError:
    return ConnectError(
        f"it refused {method}: {error.message} ({error.code})",
        state.origin,
        phase="negotiate",
        code=error.code,
        message=error.message,
        data=error.data,
    )


def _disagreed(state: ClientState, theirs: str) -> ConnectError:
    wanted = state.options.revision
    ours = wanted.date if wanted is not None else ", ".join(supported_versions())
    return ConnectError(
        f"no protocol version in common: the server supports {theirs}, this client {ours}",
        state.origin,
        phase="negotiate",
        hint="do not pin protocol_version or era, or update one of the two sides [LS-305]",
    )


def _as_connect_error(state: ClientState, error: ClientError) -> ConnectError:
    """Return an error of the negotiation as what it is to the caller: there is no connection, and nothing was sent."""
    problem, seconds = error.problem, error.seconds
    if isinstance(error, CallTimeout):
        seconds = state.options.timeouts.connect
        problem = f"the server answered neither a probe nor a handshake within {seconds:g} s (timeouts.connect)"
    return ConnectError(
        problem,
        error.origin,
        phase=error.phase,
        ending=error.ending,
        hint=error.hint,
        seconds=seconds,
        code=error.code,
        message=error.message,
        data=error.data,
    )
