"""What a server states about itself, where its time and randomness come from, and the settings that it and its process have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

import msgspec
from msgspec import structs

from linkspan.errors import UnsupportedProtocolVersion
from linkspan.revisions import ALL, REVISIONS, Served, supported_versions
from linkspan.revisions.modern import result_suffix
from linkspan.revisions.neutral import CREDENTIALS, NO_FACTS, NOTHING, Request, log_facts
from linkspan.revisions.record import Revision
from linkspan.schema.annotations import is_coroutine_function
from linkspan.text import clip
from linkspan.types.base import UNSET, Implementation, UnsetType
from linkspan.wire.values import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from linkspan.server.ports import DescribedMount, InstrumentationData, SharedState, Sharing
    from linkspan.server.request_state import RequestStateKeys
    from linkspan.server.task_settings import TaskEngine


ExceptionReporter: TypeAlias = Callable[[BaseException, Mapping[str, Any]], object]
InstrumentationCallback: TypeAlias = "Callable[[InstrumentationData], object]"
AroundRequest: TypeAlias = "Callable[[InstrumentationData], AbstractContextManager[object]]"
ToolErrorMode: TypeAlias = Literal["generic", "message", "protocol"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to one server: its configuration over the global one over these defaults."""

    exception_reporter: ExceptionReporter | None = None
    instrumentation_callback: InstrumentationCallback | None = None
    around_request: AroundRequest | None = None
    protocol_version: str | None = None
    validate_tool_call_arguments: bool = True
    validate_tool_call_results: bool = False
    instrument_server_context: bool = False
    tool_error_mode: ToolErrorMode = "generic"
    unknown_tools_as_results: bool = False
    logs_undeclared: bool = False
    repair_arguments: bool = True
    portable_schemas: bool = True
    observed: bool
    """Whether requests are instrumented at all."""


class Configuration(msgspec.Struct, kw_only=True, eq=False):
    """What a server does around its requests. What is not set is inherited, in the end from the global configuration.

    - `exception_reporter(exception, context)` receives every exception that was the author's fault. It may be a coroutine
      function, which runs on a background loop; no request waits for it.
    - `instrumentation_callback(data)` is called for every request when it has ended.
    - `around_request(data)` returns a context manager that is open while the author's function runs.
    - `protocol_version` is proposed to a client that asks for a revision which is not served here; one that asks for a served
      revision gets it. What the proposed revision cannot express is refused at registration. None proposes the newest.
    - `validate_tool_call_arguments`: check arguments against hand-written schemas. Hints are always checked.
    - `validate_tool_call_results`: check structured results against hand-written output schemas.
    - `instrument_server_context`: pass the server context to the callback too.
    - `tool_error_mode`: answer an exception of a tool with a fixed sentence ("generic"), with its own text ("message"), or as
      a JSON-RPC error ("protocol").
    - `logs_undeclared`: send log messages also from a server whose `capabilities` leave logging out, as other SDKs do.
    - `unknown_tools_as_results`: answer a call of a tool that does not exist with a result for the model (`isError`), as other
      SDKs do, and not with the protocol's error -32602.
    - `repair_arguments`: decode a JSON string where the schema wants an array or an object.
    - `portable_schemas`: write schemas that every model provider accepts.

    Raises: UnsupportedProtocolVersion for a protocol version that is not served here; ValueError, TypeError for an invalid mode
    or hook.
    """

    exception_reporter: ExceptionReporter | UnsetType | None = UNSET
    instrumentation_callback: InstrumentationCallback | UnsetType | None = UNSET
    around_request: AroundRequest | UnsetType | None = UNSET
    protocol_version: str | UnsetType | None = UNSET
    validate_tool_call_arguments: bool | UnsetType = UNSET
    validate_tool_call_results: bool | UnsetType = UNSET
    instrument_server_context: bool | UnsetType = UNSET
    tool_error_mode: ToolErrorMode | UnsetType = UNSET
    unknown_tools_as_results: bool | UnsetType = UNSET
    logs_undeclared: bool | UnsetType = UNSET
    repair_arguments: bool | UnsetType = UNSET
    portable_schemas: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        for name, value in self.chosen().items():
            _check(name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in SETTINGS:
            raise AttributeError(f"Configuration has no setting {name!r}; there are {', '.join(SETTINGS)}")
        _check(name, value)
        super().__setattr__(name, value)
        for reference in _sources.keyrefs():
            if (source := reference()) is not None:
                source.refresh()

    def chosen(self) -> dict[str, Any]:
        """Return the settings that are set here."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not UNSET}

    def merge(self, other: Configuration | None) -> Configuration:
        """Return a new configuration: what `other` sets, and what this one sets where `other` sets nothing."""
        return msgspec.structs.replace(self, **(other.chosen() if other is not None else {}))


SETTINGS = Configuration.__struct_fields__


class SettingsSource:
    """The settings of one server. `current` is replaced when its configuration or the global one changes."""

    __slots__ = ("__weakref__", "_configuration", "current")

    def __init__(self, configuration: Configuration | None) -> None:
        """Follow `configuration`, or the global one alone."""
        self._configuration = configuration
        self.current = Settings(observed=False)
        _sources[self] = None
        self.refresh()

    def refresh(self) -> None:
        """Merge again what applies now."""
        chosen = _global.merge(self._configuration).chosen()
        observed = any(chosen.get(hook) is not None for hook in ("instrumentation_callback", "around_request"))
        self.current = Settings(**chosen, observed=observed)


_sources = WeakKeyDictionary[SettingsSource, None]()
_global = Configuration()


def check_protocol_version(version: object) -> None:
    """Raise UnsupportedProtocolVersion unless `version` is None or a revision that is served here."""
    known = supported_versions()
    if version is not None and version not in known:
        listed = f"{', '.join(known[:-1])}, or {known[-1]}"
        raise UnsupportedProtocolVersion(f"protocol_version must be {listed}; got {version!r}")


def _check_mode(mode: object) -> None:
    modes = get_args(ToolErrorMode)
    if mode not in modes:
        raise ValueError(f"tool_error_mode must be {', '.join(modes[:-1])}, or {modes[-1]}; got {mode!r}")


def _check_hook(name: str, hook: object, *, may_be_async: bool = False) -> None:
    if hook is None:
        return
    if not callable(hook):
        raise TypeError(f"{name} must be a function, not {type(hook).__name__}")
    called = getattr(hook, "__call__", None)  # noqa: B004
    if not may_be_async and (is_coroutine_function(hook) or is_coroutine_function(called)):
        raise TypeError(f"{name} must be a plain function: a coroutine function is never awaited here")


def _check(name: str, value: object) -> None:
    if value is not UNSET and name in _CHECKS:
        _CHECKS[name](value)


_CHECKS: Mapping[str, Callable[[object], None]] = {
    "exception_reporter": lambda hook: _check_hook("exception_reporter", hook, may_be_async=True),
    "instrumentation_callback": lambda hook: _check_hook("instrumentation_callback", hook),
    "around_request": lambda hook: _check_hook("around_request", hook),
    "protocol_version": check_protocol_version,
    "tool_error_mode": _check_mode,
}
"""An invalid setting is refused where it is set, not when the first request needs it."""


def with_hooks(
    given: Configuration | None, reporter: ExceptionReporter | None, callback: InstrumentationCallback | None
) -> Configuration | None:
    """Return a configuration with hooks that were passed besides it (C18)."""
    hooks: dict[str, Any] = {"exception_reporter": reporter, "instrumentation_callback": callback}
    passed = Configuration(**{name: hook for name, hook in hooks.items() if hook is not None})
    if not passed.chosen():
        return given
    return given.merge(passed) if given is not None else passed


def key_ring(secrets: Sequence[bytes | str] | None) -> RequestStateKeys | None:
    """Return what seals `requestState` with secrets; None where each process makes its own. Raises: RegistrationError."""
    if not secrets:
        return None
    from linkspan.server.request_state import RequestStateKeys

    return RequestStateKeys(*secrets)


class ProposesRevision(type):
    """Gives the class `Server` a setting of its own: `Server.protocol_version`, for servers made from now on (H12).

    It is proposed to clients that ask for no revision spoken here; one that asks for another gets that.
    """

    _pinned: str | None = None

    @property
    def protocol_version(cls) -> str | None:
        """The revision that new servers propose, or None for the newest."""
        return cls._pinned

    @protocol_version.setter
    def protocol_version(cls, version: str | None) -> None:
        check_protocol_version(version)
        cls._pinned = version

    def revision_for(cls, own: Configuration | None) -> Revision | None:
        """Return the revision that is set: by the server's own configuration, then here, then by the global one (C7)."""
        chosen = UNSET if own is None else own.protocol_version
        if chosen is UNSET:
            chosen = cls._pinned or _global.protocol_version
        return REVISIONS[chosen] if isinstance(chosen, str) else None


def configuration() -> Configuration:
    """Return the global configuration. Servers follow its changes at once."""
    return _global


def configure(
    function: Callable[[Configuration], object] | None = None, /, **settings: Any
) -> AbstractContextManager[Configuration]:
    """Change the global configuration, in whichever way reads best.

    >>> configure(validate_tool_call_results=True)          # doctest: +SKIP
    >>> with configure() as config:                         # doctest: +SKIP
    ...     config.exception_reporter = report
    >>> @configure                                          # doctest: +SKIP
    ... def _(config): config.exception_reporter = report

    Raises: AttributeError for a setting that does not exist.
    """
    for name, value in settings.items():
        setattr(_global, name, value)
    if function is not None:
        function(_global)
    return nullcontext(_global)


def reset_configuration() -> None:
    """Forget every global setting (for tests)."""
    for name in SETTINGS:
        setattr(_global, name, UNSET)


SECRET_HEADERS: Final = (
    *CREDENTIALS,
    "x-forwarded-access-token",
    "cf-access-jwt-assertion",
    "x-amzn-oidc-*",
    "x-goog-iap-jwt-assertion",
)
"""What `Server(secret_headers=...)` replaces: credentials of the caller, and what proxies make of them."""


class SecretHeaders:
    """Which headers are left out: names in any case, and beginnings of names with a `*` behind them."""

    __slots__ = ("_beginnings", "_names", "_noted", "sealed")

    def __init__(self, patterns: Sequence[str] = SECRET_HEADERS, sealed: Sequence[str] = ()) -> None:
        """Take names and patterns; those that are `sealed` are left out whatever the others are.

        Raises: TypeError for anything else than a list of names and patterns, ValueError for a `*` elsewhere.
        """
        if isinstance(patterns, str) or not all(isinstance(each, str) for each in patterns):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"secret_headers must be a list of names, such as ['authorization'], got {patterns!r}")
        lowered = [each.lower() for each in patterns]
        if wrong := [each for each in lowered if "*" in each[:-1]]:
            raise ValueError(f"secret_headers takes names, and a * at the end of one only; got {wrong[0]!r}")
        self.sealed = frozenset(sealed)
        self._names = self.sealed.union(each for each in lowered if not each.endswith("*"))
        self._beginnings = tuple(each[:-1] for each in lowered if each.endswith("*"))
        self._noted = False

    def __contains__(self, name: str) -> bool:
        lowered = name.lower()
        return lowered in self._names or lowered.startswith(self._beginnings)

    def note(self, problem: str) -> None:
        """Log, once, that a handler asked for a secret header: `get` silently returns the default."""
        if not self._noted:
            from logging import getLogger

            self._noted = True
            getLogger("linkspan.server").warning("%s", problem, extra=log_facts())

    def hide(self, request: Request) -> None:
        """Leave secret headers out of what is known of a request, for all of the author's code that sees it."""
        facts = request.facts
        if facts is not NO_FACTS and type(facts.headers) is not VisibleHeaders:
            request.facts = structs.replace(facts, headers=VisibleHeaders(facts.headers, self))


class VisibleHeaders(Mapping[str, str]):
    """Headers without the secret ones. Raises: KeyError, which names the setting, for one that was sent and left out."""

    __slots__ = ("_headers", "_secret")

    def __init__(self, headers: Mapping[str, str], secret: SecretHeaders) -> None:
        """Show `headers` without those in `secret`."""
        self._headers = headers
        self._secret = secret

    def __getitem__(self, name: str) -> str:
        if name in self._secret:
            if name.lower() not in self._headers:
                raise KeyError(name)
            remedy = "to read it, pass Server(secret_headers=[...]) a list without it"
            if name.lower() in self._secret.sealed:
                remedy = "use ctx.grant, and ctx.token_for(...) for a token for another service"
            problem = f"{name} is left out of the headers that handlers see; {remedy}"
            self._secret.note(problem)
            raise KeyError(problem)
        return self._headers[name]

    def passed_on(self, name: str) -> str | None:
        """Return a header that its author has named to be passed on to an application of this process, secret or not."""
        return self._headers.get(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._headers if name not in self._secret)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"VisibleHeaders({dict(self)!r})"


ServerContext: TypeAlias = Mapping[str, Any] | Callable[[Request], Mapping[str, Any]] | None
"""What handlers get as their context: a mapping, or a function that makes one for each request."""


_MAX_INSTRUCTIONS: Final = 4000
"""Characters of the instructions of a mounted server."""
_TASK_BOUNDS: Final = ("max_tasks", "max_tasks_per_principal", "max_task_bytes", "max_task_bytes_per_principal")


class MountedProfile(msgspec.Struct, frozen=True):
    """A mounted server, as the instructions of the server around it describe it."""

    name: str
    profile: Profile

    def section(self) -> str | None:
        """Return its instructions below its name; a part of them where they are long."""
        said = self.profile.instructions
        return f"## {self.name}\n\n{clip(said, _MAX_INSTRUCTIONS)}" if said else None


class Profile(msgspec.Struct):
    """One server's facts. They may change while it serves; the next request sees the change."""

    implementation: Implementation
    own_instructions: str | None = None
    pinned: Revision | None = None
    served: Served = ALL
    server_context: ServerContext = None
    page_size: int | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    require_initialized: bool = False
    limits: Limits = DEFAULT_LIMITS
    request_state_keys: RequestStateKeys | None = None
    request_state_ttl: float = 3600.0
    """Seconds that a user may take to answer."""
    secret_headers: SecretHeaders = SecretHeaders()
    """HTTP headers that the author's code does not see."""
    store: str | SharedState | None = None
    """What is shared with other processes: the URL of a store, or a store."""
    store_key: bytes | str | None = None
    """Seals what is in the store."""
    sharing: Sharing | None = None
    """What other processes serve the same clients with, if there are any."""
    tasks: TaskEngine | None = None
    """What runs tasks; None runs them in the processes that serve."""
    max_tasks: int = 16
    """Tasks that run at the same time in each process; more wait in the store. One principal gets three quarters at most."""
    max_tasks_per_principal: int = 100
    """Unfinished tasks of one principal in all processes together. Beyond that, its calls that could become tasks are refused."""
    max_task_bytes: int = 256 * 1024 * 1024
    """Bytes of ended tasks that all processes keep, arguments and results. Beyond, calls that could become tasks are refused."""
    max_task_bytes_per_principal: int = 64 * 1024 * 1024
    """Of these, for one principal. Beyond, its own oldest go until an eighth is free; a task with a larger result fails."""
    result_suffix: bytes = b""
    """What ends every complete result of the newest revision."""
    mounted: tuple[DescribedMount, ...] = ()
    """Those of the servers that are mounted in this one, whose instructions follow its own."""
    shared_as: str | None = None
    """The name under which processes share, if it is not that of the server, which may change while it serves."""

    def __post_init__(self) -> None:
        if self.pinned is not None and self.pinned.date not in self.served.versions:
            raise UnsupportedProtocolVersion(
                f"protocol_version {self.pinned.date} is proposed, but revisions= leaves it out: change one of them"
            )
        if self.cache_scope not in ("public", "private"):
            raise ValueError(f"cache_scope must be 'public' or 'private', got {self.cache_scope!r}")
        if self.page_size is not None and self.page_size < 1:
            raise ValueError(f"page_size must be at least 1, or None for all; got {self.page_size!r}")
        for bound in _TASK_BOUNDS:
            if (value := getattr(self, bound)) < 1:
                raise ValueError(f"{bound} must be at least 1; got {value!r}")
        self.result_suffix = result_suffix(self.implementation)

    @property
    def instructions(self) -> str | None:
        """How a model should use the server, and the servers that are mounted in it."""
        if not self.mounted:
            return self.own_instructions
        said = [each.section() for each in self.mounted]
        return "\n\n".join(each for each in (self.own_instructions, *said) if each) or None

    @property
    def shared_name(self) -> str:
        """The name under which processes share: in a store, in its channels, and in what seals `requestState`."""
        return self.shared_as or self.implementation.name

    def rename(self, **changes: str) -> None:
        """Change the `name` or the `version`."""
        self.implementation = structs.replace(self.implementation, **changes)
        self.result_suffix = result_suffix(self.implementation)

    def context_of(self, request: Request) -> Mapping[str, Any]:
        """Return the server context for a request, and hide secret headers: the author's code sees both from now on.

        Raises whatever the author's function raises.
        """
        self.secret_headers.hide(request)
        source = self.server_context
        if source is None:
            return NOTHING
        return source(request) if callable(source) else source
