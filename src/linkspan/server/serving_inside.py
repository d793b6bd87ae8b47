"""Serving a request inside the call of another one: in middleware, in a mounted server, for an edit, for a handler of its own.

What is inside is begun and run in steps, and its outcome is read. The call that the connection runs is the outermost one: that
alone closes the round of questions, and reports the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Raw

from linkspan.core.call import Call
from linkspan.revisions.neutral import EncodedToolResult, InputRequired, Outcome, Request
from linkspan.server.asking import NO_QUESTIONS, InputNeeded, Round, Rounds
from linkspan.server.configuration import Settings
from linkspan.server.handlers import Run
from linkspan.server.observation import Around, Failures, Observation
from linkspan.server.steps import Step, Steps
from linkspan.types.base import UNSET, TextContent
from linkspan.types.messages import CallToolResult

Begun: TypeAlias = Outcome | Call
"""What beginning a request returns: its outcome, or the call that must run for it."""


_decode: Final = msgspec.json.Decoder().decode
_decode_text: Final = msgspec.json.Decoder(str).decode


class OutcomeRun(Run, kw_only=True):
    """The call of a request that is served inside it: the value of its function is the outcome already."""

    params: object
    """As they came; those inside may have replaced them since."""

    def finish(self, value: object) -> Outcome:
        """Conclude from the outcome."""
        self._restore()
        return super().finish(value)

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from what was raised, or let through."""
        self._restore()
        return super().fail(error)

    def asked(self, outcome: Outcome) -> Outcome:
        """Return the outcome: a middleware may have answered in place of a function that asked."""
        return outcome

    def _restore(self) -> None:
        """Leave the request as it came: the state of a question belongs to its own arguments, and it may be issued again."""
        self.request.params = self.params
        if self.current is NO_QUESTIONS and isinstance(self.request.round, Round):
            self.current = self.request.round  # it was opened on the way
        self.request.round = None


def call_around(
    run: Callable[[], object],
    request: Request,
    *,
    is_async: bool,
    inline: bool,
    rounds: Rounds,
    failures: Failures,
    current: Round = NO_QUESTIONS,
    target: str,
    observation: Observation | None,
    settings: Settings | None = None,
) -> OutcomeRun:
    """Return the call of a request that `run` serves inside it, which returns the outcome.

    `current` is its round of questions; without one, that which is opened for the request on the way.
    With `settings` the author's context manager is around it: nothing inside has that of this server.
    """
    around: Around | None = None
    if settings is not None and settings.around_request is not None and observation is not None:
        run = around = Around(run, settings.around_request, observation.data)
    return OutcomeRun(
        request,
        run,
        is_async,
        inline,
        rounds=rounds,
        failures=failures,
        current=current,
        conclude=_as_outcome,
        target=target,
        observation=observation,
        around=around,
        params=request.params,
    )


def outcome_inside(step: Begun) -> Steps:
    """Yield the step of what was begun, if it has a function to run, and return its outcome.

    Raises: what the function raises, other than its questions.
    """
    if not isinstance(step, Run):
        return step
    try:
        value = yield Step(step.run, blocking=not (step.is_async or step.inline))
        if step.around is not None:
            step.around.leave(None)
        outcome = readable(step.conclude(value))
    except GeneratorExit:
        raise
    except BaseException as error:
        if step.around is not None:
            error = step.around.left(error, step.report)
        if not step.current.questions and not isinstance(error, InputNeeded):
            raise error
        return InputRequired(step.current.questions)
    return step.asked(outcome) if step.current.questions else outcome


def readable(outcome: Outcome) -> Outcome:
    """Return a result as values: what was encoded on the way is decoded for middleware to read."""
    if isinstance(outcome, EncodedToolResult):
        structured = UNSET if outcome.structured is None else _decode(outcome.structured)
        structured = {"result": structured} if outcome.wrapped else structured
        return CallToolResult(content=[TextContent(_decode_text(outcome.text))], structured_content=structured)
    if isinstance(outcome, CallToolResult) and isinstance(outcome.structured_content, Raw):
        return msgspec.structs.replace(outcome, structured_content=_decode(outcome.structured_content))
    return outcome


def _as_outcome(value: object) -> Outcome:
    return cast("Outcome", value)
