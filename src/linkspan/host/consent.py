"""Whether a tool may run: the policy, what the user allowed before, or the user's answer now.

A server's hints ("I only read") count for servers that the policy trusts, and for no others. Spec:
https://modelcontextprotocol.io/specification/2026-07-28/server/tools: a human can deny every call, and hints of servers that are
not trusted decide nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from linkspan.host.memory import Memory
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import Tool

T = TypeVar("T")


async def settled(given: T | Awaitable[T]) -> T:
    """Return what a callback of the application returned, awaited if it is a coroutine."""
    return await cast("Awaitable[T]", given) if isawaitable(given) else given


class UserLock:
    """Held, with `async with`, while the user is asked: one question at a time, and the time they take. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from asyncio import Lock  # only those who ask wait: the rest of this module is read by programs without a loop

        self._clock = clock
        self._lock = Lock()
        self._before = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """How long the user was being asked so far; it does not count against a deadline of a turn."""
        return self._before + (self._clock() - self._since if self._since is not None else 0.0)

    async def __aenter__(self) -> None:
        """Wait for the questions before this one."""
        await self._lock.acquire()
        self._since = self._clock()

    async def __aexit__(self, *_: object) -> None:
        """Let the next question be asked."""
        self._before, self._since = self.seconds, None
        self._lock.release()


Decision: TypeAlias = Literal["allow", "ask", "deny"]
Verdict: TypeAlias = Literal["once", "session", "always", "no"]
"""The answer of a user who is asked whether a call may run."""
_VERDICTS: Final[Sequence[object]] = get_args(Verdict)


class Approval(msgspec.Struct, frozen=True):
    """The question to the user: may this tool be called with these arguments?"""

    server: str
    tool: Tool
    arguments: JSONObject
    """Exactly what will be sent."""
    change: str = ""
    """How the tool's definition changed since it was used; to be shown before anything else. `no` keeps the old one."""
    key: str = ""
    """Identifies the tool for an answer that holds longer than once; empty where none may."""
    caution: str = ""
    """Why the user is asked although the tool may run by an earlier answer; to be shown."""
    kind: Literal["tool", "skill"] = "tool"
    """What may be used: for a skill, `tool` is the one that loads it, and `arguments` name what is approved."""


Approver: TypeAlias = Callable[[Approval], Verdict | Awaitable[Verdict]]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What may run without asking the user. Patterns are `server/tool` with `*`, or the name of a server for all its tools.

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
        """Return what happens when a model calls this tool."""
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
    """Asks the user, and remembers the answers. One question at a time, however many calls wait."""

    def __init__(self, policy: Policy, memory: Memory, approve: Approver | None, user_lock: UserLock) -> None:
        """Without `approve`, a call that needs consent is refused."""
        self.policy = policy
        self._memory = memory
        self._approve = approve
        self._user_lock = user_lock
        self._session: set[str] = set()

    async def refusal(self, approval: Approval) -> str | None:
        """Return None if the call may be made; otherwise the reason against it, for the model."""
        decision = self.policy.decide(approval.server, approval.tool)
        if decision == "deny":
            return "This tool may not be used here: the user's policy denies it. Do not try again; go on without it."
        what = approval.key
        is_plain = not approval.change and not approval.caution
        if is_plain and (decision == "allow" or self._was_allowed(what)):
            return None
        if self._approve is None:
            return (
                "This call needs the user's consent, and no user can be asked now. Do not try again; go on without it."
            )
        async with self._user_lock:
            if is_plain and self._was_allowed(what):
                return None  # the answer to the question before was meant for this one too
            answer = await settled(self._approve(approval))
        if answer not in _VERDICTS:  # nothing that is not clearly a yes lets anything run
            raise TypeError(f'approve= must return "once", "session", "always" or "no", not {answer!r}')
        if answer == "session" and what:
            self._session.add(what)
        elif answer == "always" and what:
            self._memory.allow(what)
        elif answer == "no":
            return "The user refused this call. Do not repeat it; ask the user what to do instead, or go on without it."
        return None

    def _was_allowed(self, what: str) -> bool:
        return bool(what) and (what in self._session or self._memory.allows(what))


def is_for_models(tool: Tool) -> bool:
    """Return whether a model may know and call a tool: not one that only the views of its server call (MCP Apps)."""
    ui: JSON = (tool.meta or {}).get("ui")
    visibility: JSON = ui.get("visibility") if is_object(ui) else None
    return not is_array(visibility) or "model" in visibility


def hints_of(tool: Tool) -> list[str]:
    """Return the hints of a tool's server about it, in words. They are no guarantees."""
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
    """Return whether a pattern of a policy matches this tool. Only `*` is special; both names may hold a slash themselves."""
    slashes = [place for place, letter in enumerate(pattern) if letter == "/"]
    if not slashes or pattern == server:
        return _fits(pattern, server)
    return any(_fits(pattern[:place], server) and _fits(pattern[place + 1 :], tool) for place in slashes)


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, re.split(r"\*+", pattern))), name, re.DOTALL) is not None
