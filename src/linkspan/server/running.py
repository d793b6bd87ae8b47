"""One run of a handler: what its value or its exception means for the request."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from linkspan.core.call import Call
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.server.asking import InputNeeded, Round
from linkspan.server.failures import Failures
from linkspan.server.observation import Around, Observation
from linkspan.server.rounds import Rounds

__all__ = ["Later", "Preparation", "Run"]


class Preparation(msgspec.Struct, eq=False):
    """How a request is begun: where functions run, for its preparation is the author's code too."""

    begin: Callable[[], Outcome | Call]
    """Does not raise."""
    _step: Outcome | Call | None = None

    def step(self) -> Outcome | Call:
        """Return what the request has come to so far: a driver may have a value without running anything."""
        if self._step is None:
            self._step = self.begin()
        return self._step

    def run(self) -> object:
        """Begin the request, and run what it asks for."""
        step = self.step()
        return step.run() if isinstance(step, Call) else None


class Later(Call, kw_only=True):
    """A call that begins its request when it runs, and ends as what it has begun ends."""

    preparation: Preparation

    def finish(self, value: object) -> Outcome:
        """Conclude from the function's value, if a function ran."""
        self.end()
        step = self.preparation.step()
        return step.finish(value) if isinstance(step, Call) else step

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        self.end()
        step = self.preparation.step()
        return step.fail(error) if isinstance(step, Call) else step


class Run(Call, kw_only=True):
    """A call of a handler: concludes from its value, or from its exception, and reports the end to the observation."""

    rounds: Rounds
    failures: Failures
    current: Round
    conclude: Callable[[object], Outcome]
    """Turns a value into an outcome."""
    target: str
    """What was called: a name or a URI."""
    observation: Observation | None = None
    around: Around | None = None

    def finish(self, value: object) -> Outcome:
        """Conclude from the function's value."""
        if self.ended:
            self.end()
        self.ended = True
        try:
            if self.around is not None:
                self.around.leave(None)
            outcome = self.conclude(value)
        except BaseException as error:  # a generator may ask, or end the process, only now
            return self._failed(error)
        if self.current.questions:  # a question went unanswered, whatever the function made of that
            outcome = InputRequired(self.current.questions)
        if type(outcome) is InputRequired or self.observation is not None:
            return self._ended(outcome)
        return outcome

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        self.end()
        return self._failed(error)

    def _failed(self, error: BaseException) -> Outcome:
        if self.around is not None:
            error = self.around.left(error)
        if self.current.questions or isinstance(error, InputNeeded):
            return self._ended(InputRequired(self.current.questions))
        return self._ended(self.failures.outcome(self.request, self.observation, error))

    def _ended(self, outcome: Outcome) -> Outcome:
        if type(outcome) is InputRequired:
            try:
                outcome = self.rounds.close(self.request, self.current, outcome, self.target)
            except Exception as error:
                outcome = self.failures.outcome(self.request, self.observation, error)
        if self.observation is not None:
            self.observation.end(self.request, outcome)
        return outcome
