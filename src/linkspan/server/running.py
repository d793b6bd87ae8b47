"""One run of a handler: what its value or its exception means for the request."""

from __future__ import annotations

from collections.abc import Callable

from linkspan.core.call import Call
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.server.asking import InputNeeded, Round
from linkspan.server.failures import Failures
from linkspan.server.observation import Around, Observation
from linkspan.server.rounds import Rounds

__all__ = ["Later", "Run"]


class Later:
    """A request whose preparation is the author's code too: it is begun where functions run, and ends as they end."""

    __slots__ = ("_begin", "_step")

    def __init__(self, begin: Callable[[], Outcome | Call]) -> None:
        """`begin` does not raise."""
        self._begin = begin
        self._step: Outcome | Call | None = None

    def run(self) -> object:
        """Begin the request, and run what it asks for."""
        step = self._begun()
        return step.run() if isinstance(step, Call) else None

    def _begun(self) -> Outcome | Call:
        """Return what the request has come to so far: a driver may have a value without running anything."""
        if self._step is None:
            self._step = self._begin()
        return self._step

    def finish(self, call: Call, value: object) -> Outcome:
        """Conclude from the function's value, if a function ran."""
        step = self._begun()
        return step.finish(value) if isinstance(step, Call) else step

    def fail(self, call: Call, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        step = self._begun()
        return step.fail(error) if isinstance(step, Call) else step


class Run:
    """Ends a call: concludes from its value, or from its exception, and tells the observation."""

    __slots__ = ("_around", "_conclude", "_failures", "_observation", "_round", "_rounds", "_target")

    def __init__(
        self,
        rounds: Rounds,
        failures: Failures,
        current: Round,
        conclude: Callable[[object], Outcome],
        target: str,
        observation: Observation | None,
        around: Around | None = None,
    ) -> None:
        """`conclude` turns a value into an outcome; `target` is what was called: a name or a URI."""
        self._around = around
        self._rounds = rounds
        self._failures = failures
        self._round = current
        self._conclude = conclude
        self._target = target
        self._observation = observation

    def finish(self, call: Call, value: object) -> Outcome:
        """Conclude from the function's value."""
        try:
            if self._around is not None:
                self._around.leave(None)
            outcome = self._conclude(value)
        except BaseException as error:  # a generator may ask, or end the process, only now
            return self.fail(call, error)
        if self._round.questions:  # a question went unanswered, whatever the function made of that
            outcome = InputRequired(self._round.questions)
        return self._ended(call, outcome)

    def fail(self, call: Call, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        if self._around is not None:
            error = self._around.left(error)
        if self._round.questions or isinstance(error, InputNeeded):
            return self._ended(call, InputRequired(self._round.questions))
        return self._ended(call, self._failures.outcome(call.request, self._observation, error))

    def _ended(self, call: Call, outcome: Outcome) -> Outcome:
        if type(outcome) is InputRequired:
            try:
                outcome = self._rounds.close(call.request, self._round, outcome, self._target)
            except Exception as error:
                outcome = self._failures.outcome(call.request, self._observation, error)
        if self._observation is not None:
            self._observation.end(call.request, outcome)
        return outcome
