"""`Host`: the program between a person, a model and many servers, without the model and without the person.

Usable piece by piece: `specs` returns the tools for a model, `call` runs one. Nothing that a server
does raises here: the model receives the error, and may try something else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, cast

from linkspan.client.client import Client
from linkspan.client.config import AskInput
from linkspan.client.targets import ServerTarget, UnusableTarget, read_config
from linkspan.core.extension import Extension, MakesExtension
from linkspan.flows.answers import ElicitationAnswer, SamplingAnswer
from linkspan.flows.client_errors import Change, ClientError, ClientEvent, Connected, ConnectError, ServerOrigin
from linkspan.host.consent import Approval, Approver, Consent, Policy, UserLock, hints_of, is_for_models, settled
from linkspan.host.dialects import Tools, answer_block, native_tools, provider_of, read_tool_use
from linkspan.host.group import ClientGroup, GroupEntry, ServerStatus, UnknownName, check_servers
from linkspan.host.memory import Memory, Pins, tool_key
from linkspan.host.messages import ToolAnswer, ToolSpec, ToolUse
from linkspan.host.results import (
    FIND,
    READ,
    SEARCH,
    Finder,
    ResultStore,
    UnknownResult,
    advice,
    failed,
    named,
    pictures,
    result_text,
)
from linkspan.host.toolsets import Toolset
from linkspan.schema.provider_schemas import Provider
from linkspan.text import clip
from linkspan.types.base import JSONObject
from linkspan.types.messages import CreateMessageParams, ElicitParams, ProgressParams, Tool
from linkspan.wire.redaction import neutral, neutral_json
from linkspan.wire.reports import Report

Elicitor: TypeAlias = Callable[[str, ElicitParams], ElicitationAnswer | Awaitable[ElicitationAnswer]]
Sampler: TypeAlias = Callable[[str, CreateMessageParams], SamplingAnswer | Awaitable[SamplingAnswer]]
ProgressListener: TypeAlias = Callable[[ProgressParams], object]

_OWN: Final = (READ, SEARCH, FIND)
_RETRY_AFTER: Final = 30.0
"""Seconds after which a server that failed is tried again, when the next message is written."""
_MAX_DESCRIPTION: Final = 4_000


class Host:
    """Several servers, their tools as one catalogue for a model, and the user's consent to calls.

        async with Host({"dice": "dice.py"}, approve=ask_me) as host:
            specs = await host.specs()
            answer = await host.call(ToolUse("1", "roll", {"sides": 20}))

    All methods belong to one event loop.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerTarget],
        *,
        policy: Policy | None = None,
        approve: Approver | None = None,
        memory: Memory | None = None,
        elicitation: Elicitor | None = None,
        sampling: Sampler | None = None,
        result_budget: int = 8_000,
        tool_budget: int = 20_000,
        on_event: Callable[[ClientEvent], object] | None = None,
        on_stderr: Callable[[str, str], object] | None = None,
        on_report: Callable[[str, Report], object] | None = None,
        extensions: Sequence[Extension | MakesExtension] = (),
        toolsets: Sequence[Toolset] = (),
        **options: Any,
    ) -> None:
        """Name the servers; each is anything that a client takes. One that is nothing of the kind has failed, like one that
        cannot be started.

        - `policy`: what may be called without a question; by default everything is asked for.
        - `approve`: asks the person; without it, what needs a question is refused.
        - `memory`: what is remembered from run to run; by default nothing is.
        - `elicitation`, `sampling`: answer a server; they are given its name and what it wants.
        - `result_budget`: tokens of one result that the model gets at once; the rest is kept for it.
        - `tool_budget`: tokens of all tools together; beyond, the model searches for the ones that it needs.
        - `on_event`: is called when a server connects or disconnects.
        - `on_stderr`: is given the name of a server and what it writes there.
        - `on_report`: is given the name of a server that is a .py file, and the records of its log, as a client's `on_report`.
        - `extensions`: those of all clients, such as `Tasks()`: a call that the server makes a task of is followed to its end.
        - `toolsets`: tools of the host itself, such as `HostSkills()`.
        - `options`: for all clients, such as `timeouts=`.
        """
        check_servers("Host", servers)
        memory = memory or Memory()
        self.user_lock = UserLock()
        """Held while the person is asked something: one question at a time."""
        self._consent = Consent(policy or Policy(), memory, approve, self.user_lock)
        self._pins = Pins(memory)
        self._store = ResultStore(result_budget)
        self._finder = Finder(tool_budget)
        self._on_event = on_event
        self._entries: dict[str, GroupEntry[Tool]] = {}
        self._reported: Sequence[ToolSpec] = ()
        self._changed = True
        self._refreshing = asyncio.Lock()
        self._retry_at = 0.0
        self._retry: asyncio.Task[None] | None = None
        self._elicitor = elicitation
        self._sampler = sampling
        self._on_stderr = on_stderr
        self._on_report = on_report
        self._unusable: list[ServerStatus] = []
        options["extensions"] = extensions
        clients = {name: self._client(name, target, options) for name, target in servers.items()}
        self.group = ClientGroup({name: client for name, client in clients.items() if client is not None})
        self._toolsets = {name: each for each in toolsets for name in each.names}
        self.group.reserve_tool_names([*_OWN, *self._toolsets])
        for toolset in toolsets:
            toolset.join(self.group, self._consent, memory)

    def __repr__(self) -> str:
        return f"<Host of {', '.join(self.group.clients) or 'no servers'}: {len(self._entries)} tools>"

    def _client(self, name: str, target: ServerTarget, options: Mapping[str, Any]) -> Client | None:
        ask, sample, on_stderr, on_report = self._elicitor, self._sampler, self._on_stderr, self._on_report

        async def elicit(params: ElicitParams) -> ElicitationAnswer:
            """Let the person answer a server, when nothing else is asked."""
            async with self.user_lock:
                return await settled(cast("Elicitor", ask)(name, params))

        def changed(change: Change) -> None:
            self._changed = self._changed or change.kind == "tools"

        def happened(event: ClientEvent) -> None:
            self._changed = self._changed or isinstance(event, Connected)
            if self._on_event is not None:
                self._on_event(event)

        try:
            return Client(
                target,
                name=name,
                elicitation=elicit if ask is not None else None,
                sampling=partial(sample, name) if sample is not None else None,
                on_change=changed,
                on_event=happened,
                on_stderr=partial(on_stderr, name) if on_stderr is not None else None,
                on_report=partial(on_report, name) if on_report is not None else None,
                **options,
            )
        except UnusableTarget as problem:
            error = ConnectError(str(problem), ServerOrigin(name), phase="spawn")
            self._unusable.append(ServerStatus(name, "failed", error=error))
            return None

    @classmethod
    def from_config(cls, path: str | Path, *, inputs: AskInput | None = None, **options: Any) -> Self:
        """Take the servers of an mcp.json, in any host's dialect; `inputs` is asked for what it leaves to the person.

        Raises: UnusableTarget, a ValueError.
        """
        return cls(read_config(path, inputs=inputs), **options)

    # Life.

    async def connect(self) -> Self:
        """Start all servers at once. One that fails raises nothing: see `status`; it is tried again later."""
        await self.group.connect()
        self._retry_at = time.monotonic() + _RETRY_AFTER
        return self

    async def close(self) -> None:
        """End all servers at once."""
        if self._retry is not None:
            self._retry.cancel()
        await self.group.close()

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def status(self) -> list[ServerStatus]:
        """Return the state of each server."""
        return [*self.group.status(), *self._unusable]

    @property
    def policy(self) -> Policy:
        """What may be called without a question; it can be replaced at any time."""
        return self._consent.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._consent.policy = policy

    def notes(self) -> str:
        """Return lines for the system prompt: how servers want to be used, and which ones are missing."""
        lines: list[str] = []
        for server, client in self.group.clients.items():
            if client.connected and client.instructions:
                lines.append(advice(client.instructions[:_MAX_DESCRIPTION], server))
        missing = [each.server for each in self.status() if each.state == "failed"]
        if missing:
            lines.append(f"These servers cannot be reached now, so their tools are missing: {', '.join(missing)}.")
        return "\n".join(lines)

    # What a model receives.

    async def specs(self) -> list[ToolSpec]:
        """Return the tools to show the model with its next message, always in the same order.

        A tool whose definition changed since it was used is shown as it was. Servers that failed are tried again in the
        background from time to time.
        """
        await self._refresh()
        more = [spec for each in dict.fromkeys(self._toolsets.values()) for spec in await each.specs()]
        return [*self._finder.shown(self._specs()), *more, *self._store.specs()]

    async def tools(self, provider: Provider) -> Tools:
        """Return `specs` in a provider's format, for a request of your own; its `losses` names what the format cannot express.

        Raises: ValueError for an unknown provider.
        """
        self._reported = await self.specs()
        return native_tools(self._reported, provider)

    async def catalogue(self) -> list[GroupEntry[Tool]]:
        """Return the tools of all servers that can be reached, as these define them now, in the order of `specs`."""
        await self._refresh()
        return list(self._entries.values())

    def tool(self, name: str) -> GroupEntry[Tool] | None:
        """Return the tool of this name in the catalogue, as its server defines it now; None for one of the host's own."""
        return self._entries.get(name)

    def reads_only(self, name: str) -> bool:
        """Return whether calls of a tool may run side by side: its server declares it read-only, or it is the host's own."""
        entry = self._entries.get(name)
        return entry is None or "only reads" in hints_of(entry.item)

    def _specs(self) -> list[ToolSpec]:
        specs: list[ToolSpec] = []
        for name, entry in self._entries.items():
            shown = self._pins.definition(self._key(entry), entry.item).tool
            about = clip(neutral(shown.description or shown.title or "").strip(), _MAX_DESCRIPTION, "...")
            specs.append(ToolSpec(name, about, neutral_json(shown.input_schema)))  # untrusted: bounded, nothing hidden
        return specs

    def _key(self, entry: GroupEntry[Tool]) -> str:
        client = self.group.client(entry.server)
        return tool_key(client.origin, client.directory, client.environment, entry.item.name)

    async def _refresh(self) -> None:
        """List the tools again if they may have changed. Known tools keep their places; new ones are added at the end."""
        self._retry_failed()
        async with self._refreshing:  # a caller that arrives meanwhile needs the result
            if not self._changed:
                return
            self._changed = False
            there = [each.server for each in self.group.status() if each.state != "failed"]
            try:
                tools = await self.group.list_tools(only=there)
                found = {entry.name: entry for entry in tools if is_for_models(entry.item)}
            except BaseException:  # the caller was cancelled
                self._changed = True
                raise
            self._entries = {name: found[name] for name in self._entries if name in found} | found

    def _retry_failed(self) -> None:
        """Try servers that failed again, without delaying the caller; their events show whether it worked."""
        missing = [self.group.client(each.server) for each in self.group.status() if each.state == "failed"]
        now = time.monotonic()
        if not missing or now < self._retry_at or (self._retry is not None and not self._retry.done()):
            return

        names = ", ".join(each.name for each in missing)
        logging.getLogger("linkspan.host").info("connecting again to servers that failed: %s", names)

        async def reconnect() -> None:
            await asyncio.gather(*(client.connect() for client in missing), return_exceptions=True)

        self._retry_at = now + _RETRY_AFTER
        self._retry = asyncio.create_task(reconnect())

    # What a model calls.

    async def call(
        self,
        use: ToolUse | object,
        *,
        on_start: Callable[[], object] | None = None,
        on_progress: ProgressListener | None = None,
    ) -> ToolAnswer:
        """Make a model's call, if the user consents, and return the answer for the model. Failures of a server raise nothing.

        `use` may be a provider's own, as it came: JSON or an SDK's object, of a model that was shown `tools`. `on_start`
        is called when the call is made, but not for a call that is refused or cannot be made.
        Raises: ValueError for a `use` that is not a tool use; whatever `approve` raises.
        """
        if not isinstance(use, ToolUse):
            use = read_tool_use(use, self._reported)
        if use.problem:
            return ToolAnswer(use.id, use.name, use.problem, is_error=True)
        started = on_start or (lambda: None)
        if use.name in _OWN:
            started()
            return self._call_own(use)
        if (toolset := self._toolsets.get(use.name)) is not None:
            return await toolset.call(use, started)
        await self._refresh()
        entry = self._entries.get(use.name)
        if entry is None:
            return ToolAnswer(use.id, use.name, self._unknown(use.name), is_error=True)
        client = self.group.client(entry.server)
        key = self._key(entry)
        definition = self._pins.definition(key, entry.item)
        caution = " ".join(filter(None, (each.caution(entry) for each in dict.fromkeys(self._toolsets.values()))))
        approval = Approval(entry.server, entry.item, use.arguments, definition.change, key, caution)
        refusal = await self._consent.refusal(approval)
        if refusal is not None:
            return ToolAnswer(use.id, use.name, refusal, is_error=True)
        self._pins.pin(key, entry.item)
        started()
        try:
            result = await client.call_tool(entry.item.name, use.arguments, on_progress=on_progress)
        except ClientError as error:
            self.group.note(entry.server, error)
            return ToolAnswer(use.id, use.name, failed(error, entry.item.name), is_error=True)
        self.group.note(entry.server, None)
        text = self._store.fit(result_text(result), entry.server, entry.item.name)
        return ToolAnswer(use.id, use.name, text, result.is_error, pictures(result))

    async def answer(self, use: object) -> JSONObject:
        """Do what a provider's tool use wants, as it came, and return what goes back to the provider. As `call`.

        That is a block of the next message for Anthropic, a message for OpenAI, and a part of the next content for Gemini.
        """
        provider = provider_of(use)
        return answer_block(await self.call(use), provider)

    def _call_own(self, use: ToolUse) -> ToolAnswer:
        if use.name == FIND:
            found = self._finder.search(use.arguments, self._specs(), lambda name: self._entries[name].server)
            return ToolAnswer(use.id, use.name, found)
        try:
            return ToolAnswer(use.id, use.name, self._store.call(use.name, use.arguments))
        except UnknownResult as problem:
            return ToolAnswer(use.id, use.name, str(problem), is_error=True)

    def _unknown(self, name: str) -> str:
        try:
            self.group.find_tool(name)
        except UnknownName as problem:
            missing = [each.server for each in self.status() if each.state == "failed"]
            away = f" (these servers cannot be reached now: {', '.join(missing)})" if missing else ""
            return f"There is no such tool: {named(str(problem), 500)}{away}"
        return f"The tool {name!r} is gone: its server does not offer it now."
