"""The effects of authorization: what its flows yield, besides `Sleep`, instead of doing it.

Apart from `core/flow.py`, because making these classes takes 2 ms, which only those who use authorization have to spend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from linkspan.core.flow import Sleep

if TYPE_CHECKING:
    from os import PathLike

ResultT = TypeVar("ResultT")
StoreKey: TypeAlias = tuple[str, ...]
"""Where something is in the store of credentials: what it is, then whose it is."""


class HttpUnavailable(Exception):
    """There is no response that a flow may use; the text is the reason, for people."""


class HttpResult(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case. A header that came more than once has its values joined by commas."""
    body: bytes


class Http(msgspec.Struct, frozen=True):
    """Send a request and read the response; the outcome is an `HttpResult`.

    Raises: HttpUnavailable if the server is not reached, its host may not be connected to, or the body is too large.
    """

    method: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    limit: int = 1 << 20
    """The largest body, in bytes."""
    redirects: bool = False
    """Whether to follow redirects within the origin; else one is returned as it is."""


class AwaitRedirect(msgspec.Struct, frozen=True):
    """Receive what a browser is redirected to, until the flow ends; the outcome is the redirect URI.

    Raises: HttpUnavailable if the port is taken.
    """

    port: int | None
    """On 127.0.0.1; None takes any that is free."""


class OpenUrl(msgspec.Struct, frozen=True):
    """Let a person visit a URL in a browser, and wait for the redirect.

    The outcome is the query of the redirect, or the whole URL that was redirected to; None after `seconds`.
    """

    url: str
    redirect_uri: str
    state: str
    """A redirect with another state is not ours: wait for the next one."""
    seconds: float
    doubt: str = ""
    """Why the page may be one of an error, for the person; empty if nothing speaks for that."""


class ShowCode(msgspec.Struct, frozen=True):
    """Show a person the code to enter at a URL (RFC 8628); do not wait."""

    url: str
    code: str
    complete_url: str | None
    """A URL that has the code in it already."""
    seconds: float
    """For how long the code is valid."""


class LoadLogin(msgspec.Struct, frozen=True):
    """Read from the store of credentials; the outcome is bytes, or None."""

    key: StoreKey


class SaveLogin(msgspec.Struct, frozen=True):
    """Write to the store of credentials, or delete with None; afterwards it is on disk."""

    key: StoreKey
    value: bytes | None


class Lock(msgspec.Struct, frozen=True):
    """Wait until no other flow, in any process, holds the lock of this name. Ending the flow unlocks it.

    `seconds` is how long a person may take to log in for another flow; None where no person logs in. Raises: TimeoutError.
    """

    key: StoreKey
    seconds: float | None = None


class Unlock(msgspec.Struct, frozen=True):
    """Give a lock back."""

    key: StoreKey


class LoginNote(msgspec.Struct, frozen=True):
    """Tell those who follow a login what was chosen. The text has no secret."""

    text: str


class Supply(msgspec.Struct, frozen=True):
    """Get a credential from where the application keeps it; the outcome is a text.

    Raises: what the function raises; OSError or LookupError for a file or a variable that is not there.
    """

    source: str | PathLike[str] | Callable[..., Any]
    """A function, which may be a coroutine function; the path of a file; or an environment variable's name, in capitals."""
    arguments: tuple[str, ...] = ()


AuthEffect: TypeAlias = (
    Http | AwaitRedirect | OpenUrl | ShowCode | LoadLogin | SaveLogin | Lock | Unlock | LoginNote | Supply | Sleep
)
AuthFlow: TypeAlias = Generator[AuthEffect, Any, ResultT]
