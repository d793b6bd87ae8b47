"""What survives between two rounds of questions: sealed into `requestState`, so that the server need not remember (MRTR-S9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.server.asking import Closed, Round, may_ask, question_digest, read_responses, refuse_incapable
from linkspan.server.once import Chains
from linkspan.server.profile import Profile, System
from linkspan.types.base import ABSENT
from linkspan.wire.messages import encode

if TYPE_CHECKING:
    from linkspan.server.request_state import Binding, RequestStateKeys

__all__ = ["Rounds"]


class _Kept(msgspec.Struct, array_like=True):
    """What a state carries."""

    chain_id: str
    asked: dict[str, str]
    """The key of each open question, and the question's digest: answers to others are ignored."""
    answers: dict[str, tuple[str, Any]]
    """What was answered so far, each with the digest of its question."""
    state: str | None = None


class Rounds:
    """Opens and closes the rounds of one server's requests."""

    def __init__(self, profile: Profile, system: System) -> None:
        """Seal with the keys of `profile`."""
        self._profile = profile
        self._system = system
        self._made: dict[str, RequestStateKeys] = {}
        self._chains = Chains(profile, system)

    def open(self, request: Request, target: str) -> Round:
        """Return what is known when a request begins; where nobody can be asked, a round that says so.

        Only what the state says was asked can have been answered: without a state, nothing.
        Raises: RemoteProtocolError for a state that was changed, belongs elsewhere or has expired, and for malformed answers.
        """
        if not may_ask(request.method):
            return Closed(self._chains, request.method)
        if request.input_responses is ABSENT and request.request_state is None:
            return Round(self._chains)
        responses = read_responses(request.input_responses)
        if request.request_state is None:
            return Round(self._chains)
        from linkspan.server.request_state import unseal

        binding = self._binding(request, target)
        now, limit = self._system.wall_clock(), self._profile.limits.max_request_state_bytes
        kept = unseal(self.keys(), request.request_state, binding, now=now, limit=limit)
        earlier = _read(kept)
        known = earlier.answers | {
            key: (asked, responses[key]) for key, asked in earlier.asked.items() if key in responses
        }
        answers = {key: answer for key, (_, answer) in known.items()}
        digests = {key: asked for key, (asked, _) in known.items()}
        return Round(self._chains, answers, digests, earlier.state, earlier.chain_id)

    def close(self, request: Request, current: Round, outcome: InputRequired, target: str) -> Outcome:
        """Return the interim result, with all that this round knows sealed in; or why the client cannot be asked."""
        refusal = refuse_incapable(request, outcome)
        if refusal is not None:
            return refusal
        if not outcome.requests and outcome.state is None:
            return RemoteProtocolError(INTERNAL_ERROR, "Internal error: InputRequired needs requests or a state")
        from linkspan.server.request_state import seal

        try:
            state = seal(
                self.keys(),
                self._binding(request, target),
                encode(self._kept(current, outcome)),
                now=self._system.wall_clock(),
                ttl=self._profile.request_state_ttl,
                random=self._system.random,
                limit=self._profile.limits.max_request_state_bytes,
            )
        except RemoteProtocolError as error:
            return error
        return InputRequired(outcome.requests, state)

    def _kept(self, current: Round, outcome: InputRequired) -> _Kept:
        chain_id = current.chain_id or self._system.random(16).hex()
        if current.has_chain:
            self._chains.keep(chain_id, current.chain)
        return _Kept(
            chain_id,
            {key: question_digest(current.asked.get(key, question)) for key, question in outcome.requests.items()},
            {
                key: (current.digests[key], answer)
                for key, answer in current.answers.items()
                if key not in outcome.requests
            },
            outcome.state,
        )

    def share(self) -> None:
        """Make the keys now, and take note that other processes will serve the same clients with them."""
        self.keys()
        self._chains.shared_address = True

    def keys(self) -> RequestStateKeys:
        """Return the author's keys, or keys that live as long as this process."""
        given = self._profile.request_state_keys or self._made.get("keys")
        if given is not None:
            return given
        from linkspan.server.request_state import RequestStateKeys

        # One step, so that threads that come here at the same time get the same keys: what one seals, the other must open.
        return self._made.setdefault("keys", RequestStateKeys.ephemeral(self._system.random))

    def _binding(self, request: Request, target: str) -> Binding:
        from linkspan.server.request_state import Binding, digest

        arguments = getattr(request.params, "arguments", None)
        raw = bytes(memoryview(arguments)) if isinstance(arguments, Raw) else encode(arguments)
        return Binding(request.method, target, digest(raw), request.facts.principal, self._profile.name)


def _read(kept: bytes) -> _Kept:
    """Read what was sealed. Raises: RequestStateInvalid for a state of an older version that had the same keys."""
    try:
        return msgspec.json.decode(kept, type=_Kept)
    except msgspec.DecodeError:
        from linkspan.server.request_state import RequestStateInvalid

        raise RequestStateInvalid("it was sealed by another version") from None
