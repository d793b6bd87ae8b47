"""What an application sets once for all its servers, and what one server sets for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict, get_args
from weakref import WeakKeyDictionary

import msgspec

from linkspan.errors import UnsupportedProtocolVersion
from linkspan.revisions import supported_versions
from linkspan.schema.annotations import is_coroutine_function
from linkspan.types.base import UNSET, UnsetType

__all__ = [
    "AroundRequest",
    "Configuration",
    "ExceptionReporter",
    "InstrumentationCallback",
    "InstrumentationData",
    "Settings",
    "SettingsSource",
    "ToolErrorMode",
    "check_protocol_version",
    "configuration",
    "configure",
    "reset_configuration",
]


class InstrumentationData(TypedDict, total=False):
    """The instrumentation of one request. Names and URIs are present only if something was found under them."""

    method: Required[str]
    tool_name: NotRequired[str]
    prompt_name: NotRequired[str]
    resource_uri: NotRequired[str]
    error: NotRequired[str]
    duration: NotRequired[float]
    """Seconds, by a monotonic clock."""
    server_context: NotRequired[Mapping[str, Any]]
    """Only with `instrument_server_context`: it may hold secrets."""


ExceptionReporter: TypeAlias = Callable[[BaseException, Mapping[str, Any]], object]
InstrumentationCallback: TypeAlias = Callable[[InstrumentationData], object]
AroundRequest: TypeAlias = Callable[[InstrumentationData], AbstractContextManager[object]]
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
