"""What an application sets once for all its servers, and what one server sets for itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict, get_args

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
    """What is told of one request. Names and URIs are there only if something was found under them."""

    method: Required[str]
    tool_name: NotRequired[str]
    prompt_name: NotRequired[str]
    resource_uri: NotRequired[str]
    error: NotRequired[str]
    duration: NotRequired[float]
    """Seconds, by a clock that never goes back."""
    server_context: NotRequired[Mapping[str, Any]]
    """Only with `instrument_server_context`: it may hold secrets."""


ExceptionReporter: TypeAlias = Callable[[BaseException, Mapping[str, Any]], object]
InstrumentationCallback: TypeAlias = Callable[[InstrumentationData], object]
AroundRequest: TypeAlias = Callable[[InstrumentationData], AbstractContextManager[object]]
ToolErrorMode: TypeAlias = Literal["generic", "message", "protocol"]


class Settings(msgspec.Struct, frozen=True):
    """A configuration with every question answered."""

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

    @property
    def observed(self) -> bool:
        """Whether anybody wants to hear of requests."""
        return self.instrumentation_callback is not None or self.around_request is not None


SETTINGS = Settings.__struct_fields__


class Configuration:
    """What a server does around its requests. What is not set is inherited, from the global configuration in the end.

    - `exception_reporter(exception, context)` hears of every exception that was the author's fault. It may be a coroutine
      function, which runs on a background loop: nobody waits for it.
    - `instrumentation_callback(data)` hears of every request when it has ended.
    - `around_request(data)` gives a context manager that is open while the author's function runs.
    - `protocol_version` is what is proposed to a client that asks for no revision spoken here; one that asks for another gets
      it. What the proposed revision cannot say is refused when it is registered. None proposes the newest.
    - `validate_tool_call_arguments`: check arguments against schemas that authors wrote by hand. Hints are always checked.
    - `validate_tool_call_results`: check structured results against output schemas that authors wrote by hand.
    - `instrument_server_context`: tell the callback the server context too.
    - `tool_error_mode`: answer an exception of a tool with a fixed sentence ("generic"), with its own text ("message"), or as
      a JSON-RPC error ("protocol").
    - `repair_arguments`: decode a JSON string where the schema wants an array or an object.
    - `portable_schemas`: write schemas that every model provider accepts.

    Raises: UnsupportedProtocolVersion for a protocol version that is not spoken here; ValueError, TypeError for a mode or a hook
    that is none.
    """

    exception_reporter: ExceptionReporter | UnsetType | None
    instrumentation_callback: InstrumentationCallback | UnsetType | None
    around_request: AroundRequest | UnsetType | None
    protocol_version: str | UnsetType | None
    validate_tool_call_arguments: bool | UnsetType
    validate_tool_call_results: bool | UnsetType
    instrument_server_context: bool | UnsetType
    tool_error_mode: ToolErrorMode | UnsetType
    repair_arguments: bool | UnsetType
    portable_schemas: bool | UnsetType

    def __init__(
        self,
        *,
        exception_reporter: ExceptionReporter | UnsetType | None = UNSET,
        instrumentation_callback: InstrumentationCallback | UnsetType | None = UNSET,
        around_request: AroundRequest | UnsetType | None = UNSET,
        protocol_version: str | UnsetType | None = UNSET,
        validate_tool_call_arguments: bool | UnsetType = UNSET,
        validate_tool_call_results: bool | UnsetType = UNSET,
        instrument_server_context: bool | UnsetType = UNSET,
        tool_error_mode: ToolErrorMode | UnsetType = UNSET,
        repair_arguments: bool | UnsetType = UNSET,
        portable_schemas: bool | UnsetType = UNSET,
    ) -> None:
        """Set what is given, and inherit the rest."""
        self.exception_reporter = exception_reporter
        self.instrumentation_callback = instrumentation_callback
        self.around_request = around_request
        self.protocol_version = protocol_version
        self.validate_tool_call_arguments = validate_tool_call_arguments
        self.validate_tool_call_results = validate_tool_call_results
        self.instrument_server_context = instrument_server_context
        self.tool_error_mode = tool_error_mode
        self.repair_arguments = repair_arguments
        self.portable_schemas = portable_schemas

    def __setattr__(self, name: str, value: object) -> None:
        if name not in SETTINGS:
            raise AttributeError(f"Configuration has no setting {name!r}; there are {', '.join(SETTINGS)}")
        if value is not UNSET and name in _CHECKS:
            _CHECKS[name](value)
        object.__setattr__(self, name, value)
        _changes.count += 1

    def merge(self, other: Configuration | None) -> Configuration:
        """Return a new configuration: what `other` sets, and what this one sets where `other` is silent."""
        merged = Configuration()
        for name in SETTINGS:
            theirs = getattr(other, name) if other is not None else UNSET
            setattr(merged, name, getattr(self, name) if theirs is UNSET else theirs)
        return merged


class _Changes:
    """Counts every change of every configuration, so that settings need to be merged only after one."""

    count = 0


_changes = _Changes()
_global = Configuration()


def check_protocol_version(version: object) -> None:
    """Raise UnsupportedProtocolVersion unless `version` is None or a revision that is spoken here."""
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


_CHECKS: Mapping[str, Callable[[object], None]] = {
    "exception_reporter": lambda hook: _check_hook("exception_reporter", hook, may_be_async=True),
    "instrumentation_callback": lambda hook: _check_hook("instrumentation_callback", hook),
    "around_request": lambda hook: _check_hook("around_request", hook),
    "protocol_version": check_protocol_version,
    "tool_error_mode": _check_mode,
}
"""What is wrong with a setting is said where it is set, not when the first request needs it."""


def configuration() -> Configuration:
    """Return the global configuration. Servers follow its changes at once."""
    return _global


@contextmanager
def _configuring() -> Generator[Configuration, None, None]:
    yield _global


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
    return _configuring()


def reset_configuration() -> None:
    """Forget every global setting (for tests)."""
    for name in SETTINGS:
        setattr(_global, name, UNSET)


class SettingsSource:
    """Resolves one configuration against the global one, again only after either has changed."""

    __slots__ = ("_configuration", "_seen", "_settings")

    def __init__(self, configuration: Configuration | None) -> None:
        """Follow `configuration`, or the global one alone."""
        self._configuration = configuration
        self._seen = -1
        self._settings = Settings()

    def current(self) -> Settings:
        """Return the settings as they are now."""
        if self._seen != _changes.count:
            merged = _global.merge(self._configuration)
            chosen = {name: getattr(merged, name) for name in SETTINGS}
            self._settings = Settings(**{name: value for name, value in chosen.items() if value is not UNSET})
            self._seen = _changes.count
        return self._settings
