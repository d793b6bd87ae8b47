"""The negotiation as a flow, without a server: what is asked after each answer, and what is agreed (ERA-1 to ERA-8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

from linkspan import CallTimeout, ConnectError, ConnectionLost, InvalidResponse, Timeouts
from linkspan.core.flow import FallBack, Notify, Reopen, Send
from linkspan.flows.client_errors import ClientError, HttpError, ProcessEnd, ServerOrigin
from linkspan.flows.negotiation import negotiate
from linkspan.flows.state import ClientOptions, ClientState, ResponseCache
from linkspan.revisions import REVISIONS, supported_versions
from linkspan.revisions.agreement import ClientProfile
from linkspan.types.base import Implementation
from linkspan.wire.jsonrpc import ErrorResponse, Response

NEW, OLD, OLDER = "2026-07-28", "2025-11-25", "2025-06-18"
ORIGIN = ServerOrigin("there", command="there")
WEB = ServerOrigin("there", url="https://there/mcp")
TIMEOUTS = Timeouts(connect=30, probe=5)


def state(
    *, version: str | None = None, era: Any = None, known: Any = None, origin: ServerOrigin = ORIGIN
) -> ClientState:
    profile = ClientProfile(Implementation("c", "1"), {})
    revision = REVISIONS[version] if version is not None else None
    options = ClientOptions(profile=profile, era=era, revision=revision, timeouts=TIMEOUTS)
    return ClientState(origin, options, lambda: 0.5, ResponseCache(lambda: 0.0, max_bytes=0), lambda: 0.0, era=known)


def result(value: Any) -> Response:
    return Response(1, Raw(json.dumps(value).encode()))


def discovered(*versions: str) -> Response:
    return result({"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}})


def greeted(version: str = OLD) -> Response:
    return result({"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}})


def refusal(code: int, *versions: str) -> ErrorResponse:
    return ErrorResponse(1, code, "no", {"supported": list(versions)} if versions else None)


SILENCE = CallTimeout("silence", ORIGIN, seconds=5.0)
DEATH = ConnectionLost("dead", ORIGIN, delivery="maybe_sent")
UNREADABLE = ProcessEnd(exit_code=1, stderr="Traceback\nModuleNotFoundError: No module named 'ferry'\n")
NO_START = ConnectionLost("dead", ORIGIN, phase="negotiate", ending=UNREADABLE)
NONSENSE = InvalidResponse("nonsense", ORIGIN)
NOT_FOUND = refusal(-32601)


def http(status: int) -> HttpError:
    error = HttpError(f"HTTP {status}", WEB)
    error.status = status
    return error


def drive(flow: Any, answers: Sequence[Any]) -> tuple[list[str], str]:
    """Give the flow its answers; return what it did, and what came of it."""
    done: list[str] = []
    left = iter(answers)
    try:
        effect = next(flow)
        while True:
            match effect:
                case Send():
                    outgoing = effect.spec
                    version = json.loads(outgoing.params).get("protocolVersion") or outgoing.agreement.revision.date
                    done.append(f"{outgoing.method} {version}")
                    answer = next(left)
                case Notify():
                    done.append(effect.method)
                    answer = None
                case Reopen() | FallBack():
                    done.append(type(effect).__name__)
                    answer = None
                case _:
                    raise AssertionError(effect)
            effect = flow.throw(answer) if isinstance(answer, ClientError) else flow.send(answer)
    except StopIteration as stop:
        return done, stop.value.revision.date
    except ConnectError as error:
        return done, f"{error.phase}: {error.problem}"
    except ClientError as error:
        return done, f"{type(error).__name__}: {error.problem}"
    finally:
        assert next(left, None) is None, "the flow did not want all its answers"


PROBE = f"server/discover {NEW}"
SHAKE = f"initialize {OLD}"
INITIALIZED = "notifications/initialized"


def ours(theirs: str) -> str:

    both = f"the server supports {theirs}, this client {', '.join(supported_versions())}"
    return f"negotiate: no protocol version in common: {both}"


LEGACY_AFTER_PROBE = ([PROBE, SHAKE, INITIALIZED], OLD)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([discovered(NEW)], ([PROBE], NEW)),
        ([discovered(NEW, OLD)], ([PROBE], NEW)),
        ([NOT_FOUND, greeted()], LEGACY_AFTER_PROBE),
        ([refusal(-32602), greeted()], LEGACY_AFTER_PROBE),
        ([refusal(-32000), greeted()], LEGACY_AFTER_PROBE),
        ([refusal(-32022), greeted()], LEGACY_AFTER_PROBE),  # says no versions: nothing that a modern server says
        ([SILENCE, greeted()], LEGACY_AFTER_PROBE),
        ([NONSENSE, greeted()], LEGACY_AFTER_PROBE),
        ([result([]), greeted()], LEGACY_AFTER_PROBE),
        ([DEATH, greeted()], ([PROBE, "Reopen", SHAKE, INITIALIZED], OLD)),
        ([NO_START], ([PROBE], "negotiate: dead")),  # it is not started again
        ([refusal(-32022, OLD, OLDER), greeted()], LEGACY_AFTER_PROBE),  # ERA-6
        ([discovered(OLD), greeted()], LEGACY_AFTER_PROBE),
        ([refusal(-32022, NEW), discovered(NEW)], ([PROBE, PROBE], NEW)),  # retry rather than fall back (ERA-6)
        ([refusal(-32022, NEW), refusal(-32022, NEW)], ([PROBE, PROBE], ours(NEW))),  # but once
        ([refusal(-32022, "2031-01-01")], ([PROBE], ours("2031-01-01"))),  # ERA-8: no comparison by <
        ([discovered("2031-01-01")], ([PROBE], ours("2031-01-01"))),
        ([refusal(-32020)], ([PROBE], "negotiate: it refused server/discover: no (-32020)")),
        ([refusal(-32021)], ([PROBE], "negotiate: it refused server/discover: no (-32021)")),
        ([NOT_FOUND, greeted(OLDER)], ([PROBE, SHAKE, INITIALIZED], OLDER)),  # INI-1: another version that we speak
        ([NOT_FOUND, greeted("2023-01-01")], ([PROBE, SHAKE], ours("2023-01-01"))),
        ([NOT_FOUND, greeted(NEW)], ([PROBE, SHAKE], ours(NEW))),  # ERA-5: a handshake never agrees on it
        ([NOT_FOUND, refusal(-32601)], ([PROBE, SHAKE], "negotiate: it refused initialize: no (-32601)")),
        ([NOT_FOUND, DEATH], ([PROBE, SHAKE], "call: dead")),
        (
            [SILENCE, SILENCE],
            (
                [PROBE, SHAKE],
                "call: the server answered neither a probe nor a handshake within 30 s (timeouts.connect)",
            ),
        ),
        (
            [NOT_FOUND, refusal(-32602, OLDER), greeted(OLDER)],  # INI-5
            ([PROBE, SHAKE, f"initialize {OLDER}", INITIALIZED], OLDER),
        ),
        ([NOT_FOUND, refusal(-32022, NEW), discovered(NEW)], ([PROBE, SHAKE, PROBE], NEW)),  # ERA-3
    ],
)
def test_what_follows_each_answer(answers: list[Any], expected: Any) -> None:
    assert drive(negotiate(state()), answers) == expected


@pytest.mark.parametrize(
    ("options", "answers", "expected"),
    [
        ({"era": "legacy"}, [greeted()], ([SHAKE, INITIALIZED], OLD)),
        ({"known": "legacy"}, [greeted()], ([SHAKE, INITIALIZED], OLD)),  # ERA-2
        (
            {"known": "legacy"},
            [refusal(-32022, NEW), discovered(NEW)],
            ([SHAKE, PROBE], NEW),  # the assumption failed (ERA-2)
        ),
        ({"era": "legacy"}, [refusal(-32022, NEW)], ([SHAKE], "negotiate: it refused initialize: no (-32022)")),
        ({"version": OLDER}, [greeted(OLDER)], ([f"initialize {OLDER}", INITIALIZED], OLDER)),
        (
            {"version": OLDER},
            [greeted(OLD)],
            (
                [f"initialize {OLDER}"],
                f"negotiate: no protocol version in common: the server supports {OLD}, this client {OLDER}",
            ),
        ),
        ({"version": NEW}, [discovered(NEW)], ([PROBE], NEW)),
        ({"version": NEW}, [NOT_FOUND], ([PROBE], "negotiate: it refused server/discover: no (-32601)")),
        ({"era": "modern"}, [NOT_FOUND], ([PROBE], "negotiate: it refused server/discover: no (-32601)")),
        ({"era": "modern"}, [DEATH], ([PROBE], "call: dead")),
        ({"era": "modern"}, [NONSENSE], ([PROBE], "call: nonsense")),
        (
            {"era": "modern"},
            [SILENCE],
            ([PROBE], "call: the server answered neither a probe nor a handshake within 30 s (timeouts.connect)"),
        ),
        # ERA-7: what was modern is not demoted because it died or was slow this time.
        ({"known": "modern"}, [DEATH], ([PROBE], "call: dead")),
        (
            {"known": "modern"},
            [SILENCE],
            ([PROBE], "call: the server answered neither a probe nor a handshake within 30 s (timeouts.connect)"),
        ),
        ({"known": "modern"}, [discovered(NEW)], ([PROBE], NEW)),
        ({"known": "modern"}, [NOT_FOUND, greeted()], LEGACY_AFTER_PROBE),  # another server: it says so itself
        # Over HTTP a status may say it, and silence says nothing (2.5.1).
        ({"origin": WEB}, [http(404), greeted()], LEGACY_AFTER_PROBE),
        ({"origin": WEB}, [http(401)], ([PROBE], "HttpError: HTTP 401")),
        ({"origin": WEB}, [http(503)], ([PROBE], "HttpError: HTTP 503")),
        (
            {"origin": WEB},
            [SILENCE],
            ([PROBE], "call: the server answered neither a probe nor a handshake within 30 s (timeouts.connect)"),
        ),
        ({"origin": WEB}, [None, greeted()], LEGACY_AFTER_PROBE),  # the handshake beside the probe was answered first
        ({"origin": WEB}, [http(405), http(405), greeted()], ([PROBE, SHAKE, "FallBack", SHAKE, INITIALIZED], OLD)),
    ],
)
def test_what_is_known_or_pinned_changes_it(options: dict[str, Any], answers: list[Any], expected: Any) -> None:
    assert drive(negotiate(state(**options)), answers) == expected


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 5.0), ({"known": "modern"}, 30.0), ({"era": "modern"}, 30.0), ({"known": None}, 5.0)]
)
def test_only_a_server_that_may_be_legacy_is_probed_in_haste(options: Any, seconds: float) -> None:
    effect = next(negotiate(state(**options)))
    assert isinstance(effect, Send)
    assert effect.spec.timeout == seconds
    assert effect.beside is None


@pytest.mark.parametrize(
    ("options", "beside"), [({}, "initialize"), ({"known": "modern"}, None), ({"era": "modern"}, None)]
)
def test_a_url_that_may_be_slow_is_greeted_beside_the_probe(options: Any, beside: str | None) -> None:
    """ERA-7: what was modern, or must be, gets no handshake beside it."""
    effect = next(negotiate(state(origin=WEB, **options)))
    assert isinstance(effect, Send)
    assert effect.spec.timeout == 30.0
    assert (effect.beside.method if effect.beside else None) == beside
    assert beside is None or effect.after == 5.0


def test_the_handshake_is_never_cancelled_and_carries_nothing_modern() -> None:
    """CAN-2, INI-4; no envelope may leak into `initialize`."""
    effect = next(negotiate(state(era="legacy")))
    assert isinstance(effect, Send)
    assert not effect.spec.cancellable
    assert effect.spec.agreement is not None
    assert effect.spec.agreement.envelope == b""
    assert set(json.loads(effect.spec.params)) == {"protocolVersion", "capabilities", "clientInfo"}  # INI-2
