"""Tools of the host itself, beside those of the servers: a door for what adds some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from linkspan.host.consent import Consent
    from linkspan.host.group import ClientGroup, GroupEntry
    from linkspan.host.memory import Memory
    from linkspan.host.messages import ToolAnswer, ToolSpec, ToolUse
    from linkspan.types.messages import Tool


class Toolset(Protocol):
    """Some tools of the host. A server that has one of the same name gets its own name in front."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the tools."""
        ...

    def join(self, group: ClientGroup, consent: Consent, memory: Memory) -> None:
        """Begin to work for a host with these servers; what the user is asked, and what is remembered, goes through these."""
        ...

    async def specs(self) -> Sequence[ToolSpec]:
        """Return the tools to show the model with its next message."""
        ...

    async def call(self, use: ToolUse, started: Callable[[], object]) -> ToolAnswer:
        """Make a call of one of its tools; `started` is called once it is made."""
        ...

    def caution(self, entry: GroupEntry[Tool]) -> str:
        """Return why the user is to be asked before a tool of a server runs, also one that runs without a question else."""
        ...
