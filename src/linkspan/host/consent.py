"""Who says that a tool may run: the policy, what the person allowed before, or the person now.

A server's hints ("I only read") are believed of servers that the policy trusts, and of no others. Spec (checklist 8): a
human can deny every call, and hints of servers that are not trusted decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from linkspan.host.attention import Attention
from linkspan.host.memory import Memory
from linkspan.types.base import JSONObject
from linkspan.types.tools import Tool

__all__ = ["Approval", "Approver", "Consent", "Decision", "Policy", "Verdict", "hints_of", "matches"]

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Verdict: TypeAlias = Literal["once", "session", "always", "no"]
_VERDICTS: Final[Sequence[object]] = get_args(Verdict)


class Approval(msgspec.Struct, frozen=True):
    """What a person is asked: may this tool be called with these arguments?"""

    server: str
    tool: Tool
    arguments: JSONObject
    """Exactly what will be sent."""
    change: str = ""
    """How the tool's definition changed since it was used; to be shown before anything else. `no` keeps the old one."""
    key: str = ""
    """For whose tool the answer holds, if it holds longer than once."""


Approver: TypeAlias = Callable[[Approval], Verdict | Awaitable[Verdict]]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What may run without a question. Patterns are `server/tool` with `*`, or the name of a server for all its tools.

    `deny` comes before `ask`, and that before `allow`; then come the tools that only read of servers in `trust`, and then
    `otherwise`.
    """

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    trust: Sequence[str] = ()
    """Servers whose hints are believed."""
    otherwise: Decision = "ask"

    def decide(self, server: str, tool: Tool) -> Decision:
        """Say what happens when a model wants this tool to be called."""
        order: tuple[tuple[Decision, Sequence[str]], ...] = (
            ("deny", self.deny),
            ("ask", self.ask),
            ("allow", self.allow),
        )
        for decision, patterns in order:
            if any(matches(pattern, server, tool.name) for pattern in patterns):
                return decision
        trusted = any(_fits(pattern, server) for pattern in self.trust)
        return "allow" if trusted and "only reads" in hints_of(tool) else self.otherwise


class Consent:
    """Asks, and remembers what was answered. One question at a time, however many calls wait."""

    def __init__(self, policy: Policy, memory: Memory, approve: Approver | None, attention: Attention) -> None:
        """Without `approve` nobody can be asked, and what would need it is refused. `attention` is the person's."""
        self.policy = policy
        self._memory = memory
        self._approve = approve
        self._attention = attention
        self._session: set[str] = set()

    async def refusal(self, approval: Approval) -> str | None:
        """Return None if the call may be made; otherwise why not, in words for the model."""
        decision = self.policy.decide(approval.server, approval.tool)
        if decision == "deny":
            return "This tool may not be used here: the user's policy denies it. Do not try again; go on without it."
        what = approval.key
        if not approval.change and (decision == "allow" or self._was_allowed(what)):
            return None
        if self._approve is None:
            return (
                "This call needs the user's consent, and nobody can be asked now. Do not try again; go on without it."
            )
        async with self._attention:
            if not approval.change and self._was_allowed(what):
                return None  # the answer to the question before was meant for this one too
            verdict = self._approve(approval)
            answer: Verdict = await verdict if isawaitable(verdict) else verdict
        if answer not in _VERDICTS:  # nothing that is not clearly a yes lets anything run
            raise TypeError(f'approve= must answer "once", "session", "always" or "no", not {answer!r}')
        if answer == "session":
            self._session.add(what)
        elif answer == "always":
            self._memory.allow(what)
        elif answer == "no":
            return "The user refused this call. Do not repeat it; ask the user what to do instead, or go on without it."
        return None

    def _was_allowed(self, what: str) -> bool:
        return what in self._session or self._memory.allows(what)


def hints_of(tool: Tool) -> list[str]:
    """Return what a tool's server says of it, in words. Hints, never promises."""
    hints = tool.annotations
    if hints is None:
        return []
    if hints.read_only_hint:
        said = ["only reads"]
    else:
        said = {True: ["may destroy"], False: ["destroys nothing"], None: []}[hints.destructive_hint]
        said += ["may be repeated"] if hints.idempotent_hint else []
    return (
        said + {True: ["reaches beyond this machine"], False: ["stays on its server"], None: []}[hints.open_world_hint]
    )


def matches(pattern: str, server: str, tool: str) -> bool:
    """Tell whether a pattern of a policy means this tool. Only `*` is special; both names may hold a slash themselves."""
    slashes = [place for place, letter in enumerate(pattern) if letter == "/"]
    if not slashes or pattern == server:
        return _fits(pattern, server)
    return any(_fits(pattern[:place], server) and _fits(pattern[place + 1 :], tool) for place in slashes)


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, re.split(r"\*+", pattern))), name, re.DOTALL) is not None
