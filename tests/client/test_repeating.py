"""When a request is sent again, and what its error says of all attempts. A flow, so that no server and no second is needed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from test_negotiation import state

from linkspan import CallStopped, CallTimeout, ClientError, ConnectError, ConnectionLost
from linkspan.core.flow import RequestSpec, Send, Sleep
from linkspan.flows.client_errors import HttpError, ServerOrigin
from linkspan.flows.operations import call_tool, list_page
from linkspan.flows.requesting import request
from linkspan.revisions import LATEST_LEGACY
from linkspan.revisions.agreement import Agreement
from linkspan.types.methods import TOOL_LIST
from linkspan.wire.jsonrpc import Response

ORIGIN = ServerOrigin("there", command="there")
GOOD = Response(1, Raw(b"{}"))


def lost(delivery: Any = "maybe_sent") -> ConnectionLost:
    return ConnectionLost("lost", ORIGIN, delivery=delivery)


def unreachable() -> ConnectError:
    return ConnectError("unreachable", ORIGIN)


def busy(retry_after: float | None, delivery: Any = "not_sent") -> HttpError:
    error = HttpError("busy", ORIGIN, delivery=delivery)
    error.retry_after = retry_after
    return error


def drive(flow: Any, outcomes: list[Any]) -> tuple[list[str], list[float], Any]:
    """Return what was sent, how long was waited, and what came of it: a value, or an error's type and delivery."""
    sent: list[str] = []
    waited: list[float] = []
    left = iter(outcomes)
    try:
        effect = next(flow)
        while True:
            if isinstance(effect, Sleep):
                waited.append(effect.seconds)
                effect = flow.send(None)
                continue
            assert isinstance(effect, Send)
            sent.append(effect.spec.method)
            outcome = next(left)
            effect = flow.throw(outcome) if isinstance(outcome, ClientError) else flow.send(outcome)
    except StopIteration as stop:
        return sent, waited, stop.value
    except ClientError as error:
        return sent, waited, (type(error).__name__, error.delivery)


def connected(retry: Any = "safe") -> Any:
    found = state()
    found.options = msgspec.structs.replace(found.options, retry=retry)
    found.agreement = Agreement(LATEST_LEGACY)
    return found


READ = RequestSpec("resources/read")


@pytest.mark.parametrize(
    ("outcomes", "attempts", "expected"),
    [
        ([GOOD], 1, GOOD),
        ([lost(), GOOD], 2, GOOD),
        ([lost(), lost(), lost()], 3, ("ConnectionLost", "maybe_sent")),
        ([lost("not_sent")] * 6, 6, ("ConnectionLost", "not_sent")),
        ([unreachable()] * 6, 6, ("ConnectError", "not_sent")),
        # Once one of them may have been sent, no later one makes it unsent.
        ([lost(), *[unreachable()] * 5], 6, ("ConnectError", "maybe_sent")),
        ([lost(), CallStopped("stopped", ORIGIN)], 2, ("CallStopped", "maybe_sent")),
        ([lost("not_sent"), CallStopped("stopped", ORIGIN)], 2, ("CallStopped", "not_sent")),
        ([CallTimeout("late", ORIGIN, delivery="maybe_sent")], 1, ("CallTimeout", "maybe_sent")),
        ([busy(31.0)], 1, ("HttpError", "not_sent")),
    ],
)
def test_a_request_that_reads_is_repeated_and_its_error_tells_of_every_attempt(
    outcomes: list[Any], attempts: int, expected: Any
) -> None:
    sent, waited, came = drive(request(connected(), READ), outcomes)
    assert (len(sent), came) == (attempts, expected)
    assert len(waited) == attempts - 1
    assert all(0 < seconds <= 5 for seconds in waited)


def test_a_server_that_asks_for_time_gets_it() -> None:
    _, waited, came = drive(request(connected(), READ), [busy(7.0), GOOD])
    assert (waited, came) == ([7.0], GOOD)


@pytest.mark.parametrize(
    ("retry", "outcomes", "sent", "delivery"),
    [
        ("never", [lost("not_sent")], ["tools/call"], "not_sent"),
        ("safe", [lost(), Response(1, Raw(b'{"tools":[]}'))], ["tools/call", "tools/list"], "maybe_sent"),
        ("safe", [lost(), lost(), lost(), lost()], ["tools/call", *["tools/list"] * 3], "maybe_sent"),
        ("always", [lost(), lost(), lost()], ["tools/call"] * 3, "maybe_sent"),
        ("always", [lost(), *[unreachable()] * 5], ["tools/call"] * 6, "maybe_sent"),
    ],
)
def test_a_tool_that_is_not_marked_safe_is_repeated_only_if_the_caller_always_wants_it(
    retry: Any, outcomes: list[Any], sent: list[str], delivery: str
) -> None:
    methods, _, came = drive(call_tool(connected(retry), "act"), outcomes)
    assert (methods, came[1]) == (sent, delivery)


def test_a_server_that_never_worked_is_not_tried_again_by_itself() -> None:
    fresh = connected()
    fresh.agreement = None
    assert drive(list_page(fresh, TOOL_LIST), [unreachable()])[0] == ["tools/list"]
