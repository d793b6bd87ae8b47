"""The server of a bridge: what is mounted in it, who may call what, and how much of a result is shown at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.apps.passing import PassedApps
from linkspan.bridge.remembering import Companion, file_for
from linkspan.bridge.rules import Rules
from linkspan.bridge.tasks import PassedTasks
from linkspan.client.targets import resolve
from linkspan.errors import ToolError
from linkspan.flows.client_errors import ClientError
from linkspan.host.memory import Memory, Pins, tool_key
from linkspan.serve.server import Server
from linkspan.server.context import Context
from linkspan.server.middleware import Call
from linkspan.server.mounting import MountOptions
from linkspan.skills.passing import PassedSkills
from linkspan.skills.shapes import SKILLS
from linkspan.types.base import UNSET, Implementation, TextContent
from linkspan.types.messages import CallToolResult
from linkspan.types.methods import LISTS
from linkspan.upstreams.mounting import Upstream, mount_target

if TYPE_CHECKING:
    from linkspan.bridge.results import CallerResults, SharedResults

_LISTS: Final = {**LISTS, SKILLS.method: SKILLS}
_NAME: Final = "linkspan-bridge"
_LONGEST_CHANGE: Final = 4000
"""Characters of a change that a question shows."""
STATUS: Final = "linkspan://servers"
"""The resource with the state of each server."""
_JSON: Final = "application/json"


class BridgedServer(msgspec.Struct, frozen=True):
    """One server behind a bridge."""

    name: str
    target: Any
    """What a client can be opened with."""
    options: Mapping[str, Any] = {}
    """The options of its clients."""


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge does."""

    rules: Rules
    only: Sequence[str] = ()
    """Patterns `server/tool`: nothing else exists."""
    is_shared: bool = False
    pin: Path | None = None
    """The file of the pinned definitions; None pins nothing."""
    asks_to_accept: bool = False
    """The user is asked to accept a definition that has changed: they are the only caller."""
    remembers: bool = False
    """Answers with what a server offered last until it has started."""
    budget: int | None = None
    """Tokens of a result that are shown at once."""
    shows_status: bool = False
    """There is a resource with the state of each server."""
    list_timeout: float = 3.0
    has_workers: bool = False
    """Several processes serve: none of them keeps the session of a handshake."""


class Gateway:
    """The servers of a bridge, and the server that it is for its hosts."""

    def __init__(self, servers: Sequence[BridgedServer], options: BridgeOptions, auth: Any = None) -> None:
        """Mount them; nothing is started yet. Raises: RegistrationError."""
        self._options = options
        self.companions: dict[str, Companion] = {}
        self.upstreams: dict[str, Upstream] = {}
        self._alone = servers[0] if len(servers) == 1 else None
        is_alone = self._alone is not None
        self._apps = PassedApps()
        tasks = PassedTasks(self.upstreams)
        self.server = Server(_NAME, auth=auth, extensions=[PassedSkills(), self._apps, tasks])
        self.server.site.dispatcher.profile.shared_as = _NAME  # of one server, it takes the name of that
        for each in servers:
            self._mount(each, is_alone=is_alone)
        if options.rules.are_there or options.pin is not None or options.budget is not None:
            self.server.middleware(only=["tools/call"], blocking=True)(self._surround)
        self._large: SharedResults | None = None
        if options.budget is not None:
            from linkspan.bridge.results import SharedResults

            self._large = SharedResults(options.budget, self.server.sharing.opened)
            self._add_reading()
        if options.shows_status:
            self._add_status()

    def _mount(self, each: BridgedServer, *, is_alone: bool) -> None:
        options, rules = self._options, self._options.rules
        named = {name: each.options[name] for name in ("env", "cwd") if name in each.options}
        target = resolve(each.target, name=each.name, **named)
        origin, environment = target.origin, target.environment
        key = tool_key(origin, None, environment, "").rstrip("/")
        pins = Pins(Memory(options.pin)) if options.pin is not None else None
        path = file_for(target.url, key, str(options.is_shared)) if options.remembers else None
        introduce = self._introduce if is_alone else None
        receive, several = self._apps.received, options.has_workers
        companion = Companion(path, introduce, pins, key, _LISTS, receive, has_workers=several)
        given = dict(each.options)
        if rules.with_tokens(each.name):
            given["auth"] = self._token_function(each.name)
        self.companions[each.name] = companion
        mount = MountOptions(
            None if is_alone else each.name,
            each.name,
            _patterns_for(options.only, each.name) or (["-"] if options.only else []),
            _patterns_for(rules.deny, each.name),
            {},
            None,
            (),
            (),
            {},
        )
        self.upstreams[each.name] = mount_target(
            self.server.site,
            self.server.sharing.opened,
            each.target,
            mount,
            given
            | {
                "shared": options.is_shared,
                "required": is_alone,
                "list_timeout": options.list_timeout,
                "attendant": companion,
            },
        )

    def _introduce(self, info: Implementation | None, instructions: str | None) -> None:
        """Be the only server that there is, for hosts."""
        if info is not None:
            self.server.name, self.server.version = info.name, info.version
        self.server.instructions = instructions

    def get_acquainted(self, seconds: float) -> None:
        """Ask the only server who it is, with a client that ends at once, and wait some seconds for that.

        Over HTTP no handshake can wait for it, since its response begins a session.
        """
        server = self._alone
        if server is None or self._options.rules.with_tokens(server.name):
            return
        if self.companions[server.name].offers("tools") is not None:
            return  # it is remembered
        from linkspan.upstreams.client import UpstreamClient

        known, given = threading.Event(), dict(server.options)
        shared = self._options.is_shared
        client = UpstreamClient(
            server.target, {}, stored_login=shared, extensions=(), on_login=known.set, name=server.name, **given
        )

        def connected(found: object) -> None:
            agreement = client.state.agreement
            if agreement is not None and not isinstance(found, ClientError):
                self._introduce(agreement.server_info, agreement.instructions)
            known.set()

        client.connect(connected)
        known.wait(seconds)
        client.close_now()

    def _token_function(self, server: str) -> Callable[[Context], str]:
        rules = self._options.rules

        def token(ctx: Context) -> str:
            found = rules.token(_name_of(ctx), server)
            if found is None:
                raise ToolError(
                    f"{server}: {_name_of(ctx) or 'this caller'} has no token there: see tokens= of the policy"
                )
            return found

        return token

    def close(self) -> None:
        """End the servers, and wait until they are gone."""
        for each in self.upstreams.values():
            each.close()

    # Around calls.

    def _surround(self, call: Call) -> Generator[None, Any, Any]:
        tool, server = call.tool, call.server
        if tool is None or server is None:
            return (yield)
        own = tool.name if len(self.upstreams) == 1 else tool.name.removeprefix(f"{server}_")
        ctx = call.context
        scopes = ctx.grant.scopes if ctx.grant is not None else frozenset[str]()
        decision = self._options.rules.decide(_name_of(ctx), scopes, server, own)
        if decision == "deny":
            raise ToolError(f"The policy of this bridge denies {server}/{own}. Do not try again.")
        self._check_definition(ctx, server, own)
        if decision == "ask" and not ctx.peer.supports("elicitation", "form"):
            raise ToolError(f"The user has to be asked before {server}/{own} is called, and this host cannot ask.")
        if decision == "ask" and not ctx.ask(
            "bridge-allow", bool, f"May {server}/{own} be called with {_shown(call.arguments)}?"
        ):
            raise ToolError(f"The user refused {server}/{own}. Do not repeat it.")
        outcome = yield
        if self._options.budget is None or not isinstance(outcome, CallToolResult):
            return outcome
        return self._fitted(outcome, ctx, server, own)

    def _check_definition(self, ctx: Context, server: str, tool: str) -> None:
        """Let the user accept how a pinned tool is defined now. Raises: ToolError where it stays as it was."""
        companion = self.companions[server]
        if self._options.pin is not None and not companion.compared(self._options.list_timeout):
            why = self.upstreams[server].status
            raise ToolError(
                f"{server} has not said yet how it defines {tool!r} now, so it is not called ({why}). Try again."
            )
        changed = companion.changes.get(tool)
        if changed is None:
            return
        if not self._options.asks_to_accept or not ctx.peer.supports("elicitation", "form"):
            raise ToolError(
                f"{server} has changed the definition of {tool!r}, and the change was not accepted. A person accepts it "
                f"with `linkspan bridge --accept {tool} ...`:\n{changed}"
            )
        if not ctx.ask(
            "bridge-accept", bool, f"{server} has changed the tool {tool!r}. Accept it?\n{_clipped(changed)}"
        ):
            raise ToolError(f"The user did not accept how {server} defines {tool!r} now. Do not repeat the call.")
        companion.accept(tool, changed)
        self.upstreams[server].refresh()

    # Large results.

    def _results(self, ctx: Context) -> CallerResults:
        """Return the large results of a caller: of a principal, or of a session without one."""
        assert self._large is not None
        known = ctx.principal is not None
        return self._large.of(repr((known, ctx.principal if known else ctx.session_id)))

    def _fitted(self, result: CallToolResult, ctx: Context, server: str, tool: str) -> CallToolResult:
        text = "\n\n".join(each.text for each in result.content if isinstance(each, TextContent))
        fitted = self._results(ctx).fit(text, server, tool)
        if text in fitted:
            return result
        others = [each for each in result.content if not isinstance(each, TextContent)]
        return msgspec.structs.replace(
            result, content=[TextContent(fitted), *others], structured_content=UNSET, is_error=result.is_error
        )

    def _add_reading(self) -> None:
        from linkspan.host.results import READ, SEARCH

        @self.server.tool(name=READ, annotations={"readOnlyHint": True})
        def read_result(handle: str, ctx: Context, offset: int = 0) -> str:
            """Read on in a tool result that was too large to show at once.

            Args:
                handle: The handle that the result's note names, such as r1.
                offset: The character to begin at; the note has the last character that was shown.
            """
            return self._read(ctx, READ, {"handle": handle, "offset": offset})

        @self.server.tool(name=SEARCH, annotations={"readOnlyHint": True})
        def search_result(handle: str, text: str, ctx: Context) -> str:
            """Find a text in a tool result that was too large to show at once.

            Args:
                handle: The handle that the result's note names, such as r1.
                text: What to look for: plain text, in upper or lower case.
            """
            return self._read(ctx, SEARCH, {"handle": handle, "text": text})

    def _add_status(self) -> None:
        @self.server.resource(
            STATUS, name="servers", description="The servers behind this bridge, and how they are.", mime_type=_JSON
        )
        def servers() -> dict[str, dict[str, str | int]]:
            return {name: self._status_of(each) for name, each in self.upstreams.items()}

    def _status_of(self, upstream: Upstream) -> dict[str, str | int]:
        """Return how one server is; why it is not well only where all callers have the same rights there."""
        is_known = upstream.is_shared or upstream.status in ("connected", "not asked yet")
        callers = upstream.callers
        return {
            "status": upstream.status if is_known else "failed for a caller",
            "callers": len(callers),
            "in_flight": sum(len(each.under_way) for each in callers),
            "requests": upstream.counts.requests,
            "failed": upstream.counts.failed,
        }

    def _read(self, ctx: Context, name: str, arguments: dict[str, Any]) -> str:
        from linkspan.host.results import UnknownResult

        try:
            return self._results(ctx).call(name, arguments)
        except UnknownResult as problem:
            raise ToolError(str(problem)) from None


def _name_of(ctx: Context) -> str | None:
    """Return what a policy calls a caller: the subject of their token, or the client."""
    grant = ctx.grant
    return (grant.subject or grant.client_id) if grant is not None else ctx.principal


def _patterns_for(patterns: Sequence[str], server: str) -> list[str]:
    """Return the patterns of `server/tool` that are about a server, as patterns of its own names."""
    found: list[str] = []
    for each in patterns:
        name, slash, tool = each.partition("/")
        if not slash:
            found += ["*"] if fnmatchcase(server, name) else []
        elif fnmatchcase(server, name):
            found.append(tool)
    return found


def _shown(arguments: Mapping[str, Any]) -> str:
    from linkspan.wire.redaction import neutral

    text = neutral(msgspec.json.encode(dict(arguments)).decode())
    return text if len(text) <= 500 else text[:500] + "..."


def _clipped(changed: str) -> str:
    """Return the lines of a change as far as a question can show them."""
    return changed if len(changed) <= _LONGEST_CHANGE else changed[:_LONGEST_CHANGE] + "\n... and more"
