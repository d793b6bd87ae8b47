"""Exceptions of the SDKs, under the names that programs raise and catch."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FastMCPError",
    "InvalidSignature",
    "MCPDeprecationWarning",
    "MCPError",
    "MCPServerError",
    "McpError",
    "ResourceError",
    "ResourceNotFoundError",
    "ToolError",
    "UnexpectedResourceError",
    "UnexpectedToolError",
    "UrlElicitationRequiredError",
    "ValidationError",
]


class MCPDeprecationWarning(DeprecationWarning):
    """A name of the SDK that will go."""


class MCPError(Exception):
    """The answer is a JSON-RPC error: `MCPError(code, message, data)`, or `McpError(ErrorData(...))` of version 1."""

    def __init__(self, code: Any = None, message: str | None = None, data: Any = None, *, error: Any = None) -> None:
        given = error if error is not None else code
        if given is not None and not isinstance(given, int):
            self._error: Any = given
            code, message, data = given.code, given.message, given.data
        else:
            self._error = None
        self.code: int = code
        self.message: str = message or ""
        self.data: Any = data
        super().__init__(self.message)

    @property
    def error(self) -> Any:
        """The same as an `ErrorData`."""
        if self._error is None:
            from linkspan_compat.protocol.current import TYPES

            self._error = TYPES["ErrorData"](code=self.code, message=self.message, data=self.data)
        return self._error

    @classmethod
    def from_error_data(cls, error: Any) -> MCPError:
        """Make one of an `ErrorData`."""
        return cls(error.code, error.message, error.data)

    def __str__(self) -> str:
        return self.message


McpError = MCPError


class UrlElicitationRequiredError(MCPError):
    """The user has to open pages first."""

    def __init__(self, elicitations: list[Any], message: str | None = None) -> None:
        self.elicitations = list(elicitations)
        text = message or ("URL elicitation required" if len(elicitations) == 1 else "URL elicitations required")
        listed = [each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in elicitations]
        super().__init__(-32042, text, {"elicitations": listed})


class MCPServerError(Exception):
    """Base of what servers raise."""

    log_level = 40

    def __init__(self, *args: object, log_level: int | None = None) -> None:
        super().__init__(*args)
        if log_level is not None:
            self.log_level = log_level


FastMCPError = MCPServerError


class ValidationError(MCPServerError):
    """Arguments or results are not what they should be."""


class ToolError(MCPServerError):
    """A tool failed, with a text for the model."""


class UnexpectedToolError(ToolError):
    """A tool crashed: its exception is the cause, and its text stays here."""


class ResourceError(MCPServerError):
    """A resource cannot be read."""


class ResourceNotFoundError(ResourceError):
    """There is no such resource."""


class UnexpectedResourceError(ResourceError):
    """A resource crashed."""


class PromptError(MCPServerError):
    """A prompt failed."""


class InvalidSignature(Exception):
    """A function cannot be offered."""


class NotFoundError(Exception):
    """There is no such component."""


class DisabledError(Exception):
    """A component is switched off."""


class ClientError(Exception):
    """A client failed."""


class AuthorizationError(MCPServerError):
    """The caller may not do this."""


class StreamableHTTPError(Exception):
    """A transport failed."""


class NotServed(ImportError):
    """A name of an SDK that is known, and not served: the text says what to write instead."""
