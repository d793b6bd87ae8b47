"""What a client knows: its options, which never change, and what it has learned of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from linkspan.client.authorizing import Principal
from linkspan.client.caching import ResponseCache
from linkspan.client.errors import Origin
from linkspan.client.timeouts import CLIENT_LIMITS, DEFAULT_TIMEOUTS, Timeouts
from linkspan.revisions.agreement import Agreement, ClientProfile
from linkspan.revisions.record import Era, Revision
from linkspan.types.base import JSON
from linkspan.types.messages import Tool
from linkspan.wire.limits import Limits

__all__ = ["Catalogue", "ClientOptions", "ClientState", "OutputCheck", "OutputPolicy", "Retry"]

Retry: TypeAlias = Literal["never", "safe", "always"]
"""When a call is repeated by itself after its server was lost: never; where it cannot do harm (it was not sent, it only
reads, or its tool is marked read-only or idempotent); always."""
OutputPolicy: TypeAlias = Literal["strict", "lenient", "off"]
"""What to do with structured output that does not fit the tool's schema: raise, note it in `result.problems`, nothing."""


OutputCheck: TypeAlias = Callable[[JSON], Sequence[object]]
"""Returns what is wrong with a tool's structured output."""


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller wants."""

    profile: ClientProfile
    era: Era | None = None
    """None: find out."""
    revision: Revision | None = None
    """The only revision to speak; None: the newest that both know."""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    limits: Limits = CLIENT_LIMITS
    retry: Retry = "safe"
    attempts: int = 3
    """How often a request is sent at most."""
    max_pages: int = 1000
    check_output: OutputPolicy = "lenient"
    trace_context: Callable[[], Mapping[str, str]] | None = None
    """Returns what goes into each request's `_meta` to join our trace with the server's."""


class Catalogue(msgspec.Struct, eq=False):
    """The tools that one principal was shown: a server may show others to the next one."""

    tools: dict[str, Tool] = msgspec.field(default_factory=dict[str, Tool])
    """The tools that were listed, by name, until the server says that they changed."""
    tools_are_complete: bool = False
    header_plans: dict[str, Mapping[tuple[str, ...], str]] = msgspec.field(
        default_factory=dict[str, Mapping[tuple[str, ...], str]]
    )
    """Over HTTP, which arguments of each listed tool go into which headers. Survives `forget` (HDR-7)."""
    dropped_tools: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Tools that were left out of a list because they break the rules for headers, and why (HDR-5)."""
    output_checks: dict[str, OutputCheck] = msgspec.field(default_factory=dict[str, OutputCheck])

    def forget(self) -> None:
        """Drop what was listed."""
        self.tools = {}
        self.output_checks = {}
        self.tools_are_complete = False


class ClientState(msgspec.Struct):
    """One client's memory; it outlives the connections."""

    origin: Origin
    options: ClientOptions
    random: Callable[[], float]
    """A number from 0 to 1, for jitter."""
    cache: ResponseCache
    clock: Callable[[], float]
    """Seconds that never go back: a request that is sent again has no more time than one that is sent once."""
    who_asks: Callable[[], Mapping[str, str]] | None = None
    """Returns the header that says who asks, where that may be somebody else at the next request."""
    agreement: Agreement | None = None
    """What was agreed last; it may be of a connection that is gone."""
    era: Era | None = None
    """The server's era, remembered for the next connection (ERA-2)."""
    principal: Principal = ()
    """Whose connection this is, if a call has named another principal than the client itself."""
    own: Catalogue = msgspec.field(default_factory=Catalogue)
    """What the client itself was shown."""
    others: dict[Principal, Catalogue] = msgspec.field(default_factory=dict[Principal, Catalogue])
    """What was shown to others in whose name it has called; `limits.max_principals` of them, the oldest go first."""

    def catalogue(self, principal: Principal) -> Catalogue:
        """Return what a principal was shown."""
        if not principal or self.origin.url is None:
            return self.own
        found = self.others.get(principal)
        if found is None:
            for oldest in list(self.others)[: len(self.others) - self.options.limits.max_principals + 1]:
                self.others.pop(oldest, None)
            found = self.others.setdefault(principal, Catalogue())
        return found

    def forget_tools(self) -> None:
        """Drop what was listed on this connection: of its principal, or of all."""
        for each in [self.catalogue(self.principal)] if self.principal else [self.own, *list(self.others.values())]:
            each.forget()
