"""Errors. The type names the side at fault, the message the remedy, the code is for the wire.

Codes: https://modelcontextprotocol.io/specification/2026-07-28/basic.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection
from typing import Any

from linkspan.text import clip

_LONGEST_ECHO = 200

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022


_INSTALL = "run pip install '.[{extra}]' in your clone of Linkspan [LS-601]"


def install_hint(extra: str) -> str:
    """Return the command that installs what an optional feature needs. The name is on no package index yet."""
    return _INSTALL.format(extra=extra)


def import_problem(need: str, extra: str, error: ImportError) -> str:
    """Return what to do about a failed import of what an optional feature needs; `need` names both, as in "X needs Y"."""
    hidden = hidden_module(error)
    return hidden.hint if hidden is not None else f"{need}: {import_hint(extra, error)}"


def import_hint(extra: str, error: ImportError) -> str:
    """Return what to do about a failed import: install the extra, or rename a file that hides a module."""
    if (hidden := hidden_module(error)) is not None:
        return hidden.hint
    return install_hint(extra) if isinstance(error, ModuleNotFoundError) else f"its import failed: {error}"


class HiddenModule:
    """A module that cannot be imported, because a file of the user's has its name."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.file = file

    @property
    def hint(self) -> str:
        """What to do."""
        return f"{self.file} hides the module {self.name!r}, which other modules need: rename the file [LS-608]"


def hidden_module(error: BaseException) -> HiddenModule | None:
    """Return the module that is hidden by a file of its name, if that may be what `error` comes from."""
    file: str | None = None
    if isinstance(error, ImportError):
        found, file = error.name or "", error.path
    elif isinstance(error, AttributeError):
        found = getattr(error.obj, "__name__", "")
    else:
        return None
    name = str(found).partition(".")[0]
    file = file or getattr(sys.modules.get(name), "__file__", None)
    return HiddenModule(name, file) if file is not None and _hides(file, name) else None


def _hides(file: str, name: str) -> bool:
    """Return whether a file with the name of a module is neither of Python nor installed."""
    folder, own = os.path.split(file)
    if own not in (f"{name}.py", f"{name}.pyc") and os.path.basename(folder) != name:
        return False
    parts = file.replace("\\", "/").split("/")
    return not {"site-packages", "dist-packages"} & {*parts} and not file.startswith(
        os.path.dirname(os.__file__) + os.sep
    )


def clipped(text: str) -> str:
    """Return a peer's text as an answer repeats it: bounded, since a name of a megabyte must not make such an answer."""
    return clip(text, _LONGEST_ECHO)


class LinkspanError(Exception):
    """The root of every error that Linkspan raises."""


class LocalProtocolError(LinkspanError):
    """Our caller broke the rules of a machine, for example by answering one request twice."""


class RemoteProtocolError(LinkspanError):
    """The peer asked for something that cannot be served; it is answered with this code, message and data.

    A handler may raise it to choose the JSON-RPC error of its own request; application codes lie outside
    -32768 ... -32000 (MSG-42). Raises: TypeError for a code that is not an integer or a message that is not a string.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if not _is_error(code, message):
            raise TypeError(f"a JSON-RPC error takes an integer and a string, not {code!r} and {message!r}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def _is_error(code: object, message: object) -> bool:
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(message, str)


class ResourceNotFoundError(RemoteProtocolError):
    """No resource has this URI. The code on the wire is the one of the peer's revision (RES-3)."""

    def __init__(self, uri: str) -> None:
        shown = clipped(uri)
        super().__init__(INVALID_PARAMS, f"Resource not found: {shown}", {"uri": shown})
        self.uri = uri


class Forbidden(RemoteProtocolError):
    """The token of the request lacks scopes: over HTTP the response is a 403 that asks for them, so that a client can step up.

    A handler may raise it too, before it has sent anything. `scopes` are all that the operation needs.
    """

    def __init__(self, scopes: Collection[str], description: str | None = None) -> None:
        self.scopes = tuple(scopes)
        self.description = description or f"this needs the scope {' '.join(self.scopes)}"
        super().__init__(INVALID_REQUEST, f"Forbidden: {self.description}", {"scopes": list(self.scopes)})


class ExchangeError(LinkspanError):
    """`ctx.token_for` got no token for another service. `error` is the code of the authorization server, if it gave one."""

    def __init__(self, message: str, *, error: str | None = None) -> None:
        super().__init__(message)
        self.error = error


class ToolError(LinkspanError):
    """A failure that the model should read: the call's result is `isError` with exactly this text.

    With `retry_after`, in seconds, the text ends with when to try again, and the result has it in its `_meta` too.
    """

    def __init__(self, *texts: object, retry_after: float | None = None) -> None:
        if retry_after is not None:
            texts = (f"{texts[0] if texts else 'Not now'} (try again in {math.ceil(retry_after)} s)",)
        super().__init__(*texts)
        self.retry_after = retry_after


class Declined(ToolError):
    """The user declined or cancelled a question. Unhandled, the model receives it.

    Attributes: `key` is the question's key, `action` is `"decline"` or `"cancel"`.
    """

    def __init__(self, key: str, action: str) -> None:
        verb = "declined" if action == "decline" else "dismissed"
        super().__init__(f"The user {verb} the question {key!r}")
        self.key = key
        self.action = action


class QuestionRefused(ToolError):
    """The client answered a question with an error: its model failed, or it cannot show the form.

    Only functions with `hold=True` can catch it. Uncaught, a tool answers it to the model, as `isError`.
    """

    def __init__(self, key: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"The client refused {key!r}: {message} ({code})")
        self.key = key
        self.code = code
        self.message = message
        self.data = data


class RequestCancelled(LinkspanError):
    """The client cancelled the request that a handler was working on; the reason is the client's own word."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "the client cancelled the request")
        self.reason = reason


class RegistrationError(LinkspanError, ValueError):
    """Something cannot be offered as it is written; the message names what to write instead."""


class DuplicateNameError(RegistrationError):
    """Two things of one kind bear one name; nothing was changed."""


class MethodAlreadyDefinedError(RegistrationError):
    """A custom method would replace a method that exists already, or has a name that is reserved."""

    def __init__(self, method_name: str, *, reserved: bool = False) -> None:
        problem = "is reserved: choose a name with a prefix of your own, such as 'acme/add'"
        super().__init__(f"Method {method_name} {problem if reserved else 'already defined'}")
        self.method_name = method_name


class UnsupportedProtocolVersion(LinkspanError, ValueError):
    """This release does not support the requested protocol version."""


class RequestHandlerError(LinkspanError):
    """A handler failed; `__cause__` is its exception. Peers see only that an internal error occurred."""

    def __init__(self, method: str) -> None:
        super().__init__(f"Internal error handling {method} request")
        self.method = method
