"""What HTTP adds to a request and to a failed response: headers that repeat the body, and errors with advice.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http (HDR-1 to HDR-9).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from linkspan.errors import PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION
from linkspan.flows.client_errors import HttpError, ServerOrigin
from linkspan.flows.state import NO_NAMES
from linkspan.revisions.agreement import Agreement
from linkspan.revisions.record import Revision
from linkspan.text import clip
from linkspan.types.base import ABSENT, JSON
from linkspan.types.methods import NAMED
from linkspan.wire.challenges import is_scope, read_challenges, read_scopes
from linkspan.wire.headers import encode_value, value_at
from linkspan.wire.jsonrpc import Batch, ErrorResponse, Malformed, Message, RequestId, Response, decode
from linkspan.wire.redaction import REDACTED, is_secret_name, redact
from linkspan.wire.values import Limits

BUSY: Final = (429, 502, 503, 504)
"""Statuses that say "not now": what was asked may work in a moment."""
SPEAKS_FOR_ITSELF: Final = frozenset({401, 403, *BUSY})
"""Statuses that count whatever message of the protocol comes with them: their sender did not look at the request."""

_NOTHING_DONE: Final = (429, 503)
_SHOWN: Final = 120
_LONGEST_WAIT: Final = 86400.0
_PATH: Final = "check the path of the URL; it often ends with /mcp [LS-211]"
_HINTS: Final = {
    401: "it requires credentials, and none were sent: pass headers={'Authorization': ...} [LS-212]",
    403: "the credentials do not permit it, or the server does not allow this Host or Origin [LS-213]",
    404: _PATH,
    405: _PATH,
    406: f"it does not accept requests of MCP clients: {_PATH}",
    413: "the request is too large for the server or its proxy: send less [LS-214]",
    415: f"it does not accept requests of MCP clients: {_PATH}",
    421: "the server does not serve this host name: see its allowed_hosts [LS-215]",
    429: "it receives too many requests: send fewer, or wait between them [LS-216]",
    431: "the headers are too large for the server: send fewer, or shorter ones [LS-214]",
    500: "the server failed: see its log [LS-217]",
    502: "the proxy in front of the server cannot reach it [LS-218]",
    503: "the server is starting, stopping or too busy: try again in a moment [LS-219]",
    504: "the proxy in front of the server timed out [LS-218]",
}
_WITHOUT_A_SESSION: Final = re.compile(r"\bsession|not (?:been )?initiali[sz]ed", re.IGNORECASE)
_ABOUT_A_SESSION: Final = (None, -32600, -32000, -32001)
"""Codes with which servers report an unknown or a missing session; None where there was no code."""


class HttpHop(msgspec.Struct, frozen=True):
    """One request over HTTP and the head of its response, for people: without secrets."""

    method: str
    url: str
    sent: Mapping[str, str]
    """The headers of the request, names in lower case."""
    status: int = 0
    """0 where no response came."""
    received: Mapping[str, str] = {}
    """The headers of the response, names in lower case."""
    seconds: float = 0.0
    """Until the head of the response came, or the failure."""
    problem: str = ""
    """Why no response came."""


def shown_headers(headers: Mapping[str, str], hidden: Collection[str], secrets: Iterable[str]) -> dict[str, str]:
    """Return headers for people, names in lower case. The values of the `hidden` ones and of secret names are left out."""
    secrets = tuple(secrets)
    return {name.lower(): _shown_value(name.lower(), str(value), hidden, secrets) for name, value in headers.items()}


def _shown_value(name: str, value: str, hidden: Collection[str], secrets: Iterable[str]) -> str:
    if name not in hidden and name not in _SECRET_HEADERS and not is_secret_name(name):
        return redact(value, secrets)
    scheme, space, rest = value.partition(" ")
    return f"{scheme} {REDACTED}" if space and rest and name.endswith("authorization") else REDACTED


_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "dpop"})


def http_error(
    origin: ServerOrigin,
    method: str,
    status: int,
    data: bytes,
    *,
    error: ErrorResponse | None = None,
    wait: float | None = None,
    hint: str | None = None,
    secrets: Collection[str] = (),
) -> HttpError:
    """Return the error for an answer with a status that is one; `error` is what its body says, if that is a message.

    `secrets` are our own, in case the answer repeats them.
    """
    said = excerpt(data, secrets)
    if error is not None:
        said = f"{excerpt(error.message.encode(), secrets)} ({error.code})"
    found = HttpError(
        f"{method} was answered with status {status}{f': {said}' if said else ''}",
        origin,
        delivery="not_sent" if status in _NOTHING_DONE else "answered" if status < 500 else "maybe_sent",
        hint=hint or _HINTS.get(status),
        code=error.code if error is not None else None,
        message=error.message if error is not None else redact(data[:500].decode("utf-8", "replace"), secrets) or None,
        data=error.data if error is not None else None,
    )
    found.status = status
    found.retry_after = wait
    return found


def refused_token_hint(status: int, challenge: str) -> str | None:
    """Return the hint at why a request with a token was refused; None for a status that is not about the token.

    `challenge` is the WWW-Authenticate header of the answer. Only the log of the server has the reason (RFC 6750, section 3.1).
    """
    if status == 401:
        return (
            "it refused the token or password that was sent, which may have expired, or be for another server; the log of the "
            "server has the reason (of a Linkspan server, under linkspan.http) [LS-221]"
        )
    if status == 403:
        for each in read_challenges(challenge):
            if each.parameters.get("error") == "insufficient_scope":
                scopes = [name for name in read_scopes(each.parameters.get("scope", "")) if is_scope(name)]
                needed = f"of {clip(' '.join(scopes), _SHOWN, '...')}" if scopes else "that this needs"
                return f"the token that was sent is valid, but not for all {needed}: get one with more scopes [LS-222]"
    return None


def retry_after(value: str, now: float) -> float | None:
    """Return how many seconds a Retry-After header asks for, `now` being seconds since 1970; None if it is unusable."""
    value = value.strip()
    if value.isdigit() and value.isascii() and len(value) < 8:
        return min(float(value), _LONGEST_WAIT)
    if not value:
        return None
    from email.utils import parsedate_to_datetime

    try:
        at = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, at - now), _LONGEST_WAIT)


def excerpt(data: bytes, secrets: Collection[str] = ()) -> str:
    """Return the beginning of an answer in one line, without its secrets; of a page, the title."""
    text = redact(data[:2000].decode("utf-8", "replace"), secrets)
    title = re.search(r"<title[^>]{0,100}>([^<]{1,200})", text, re.IGNORECASE)
    if title is not None:
        text = title[1]
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return clip(line, _SHOWN, "...")


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """Return what must not be shown of headers that a caller gave: their values, and the credentials after a scheme."""
    values = [str(each) for each in headers.values()]
    return [*values, *(each.partition(" ")[2] for each in values if " " in each)]


def shown_url(url: str) -> str:
    """Return a URL without its credentials, query and fragment."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "<invalid URL>"
    return f"{parts.scheme}://{host}{port}{parts.path}"[:200]


def verdict(
    status: int, message: Message | Batch | None, data: bytes, revision: Revision, *, in_session: bool
) -> Literal["session gone", "other era"] | None:
    """Return what was agreed and no longer holds, according to an answer, or None.

    If it is not None, the server did nothing, whatever the request was (HL-7).
    """
    code = message.code if isinstance(message, ErrorResponse) else None
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return "other era"
    gone: Literal["session gone", "other era"] = "session gone" if revision.keeps_sessions else "other era"
    if status == 404 and in_session and revision.keeps_sessions:
        return gone
    if status != 400 or code not in _ABOUT_A_SESSION or isinstance(message, Response):
        return None
    text = message.message if isinstance(message, ErrorResponse) else data[:500].decode("utf-8", "replace")
    return gone if _WITHOUT_A_SESSION.search(text) else None


def what_came(data: bytes, request_id: RequestId | None, limits: Limits, secrets: Collection[str] = ()) -> str:
    """Describe why a body does not answer a request."""
    if not data.strip():
        return "it is empty"
    match decode(data, limits):
        case Response() | ErrorResponse() as other:
            return f"it has the id {str(other.id)[:40]!r} instead of {str(request_id)!r}"
        case Batch():
            return "it is a batch without a response to this request"
        case Malformed() as problem:
            kind = "no JSON" if problem.code == PARSE_ERROR else "not a message of the protocol"
            return f"it is {kind} ({problem.message.partition(': ')[2]}): {excerpt(data, secrets)}"
        case _:
            return f"it is a message, but not a response: {excerpt(data, secrets)}"


class _NamedParams(msgspec.Struct):
    name: str | None = None
    uri: str | None = None
    arguments: Raw = ABSENT


_named = msgspec.json.Decoder(_NamedParams)


def mirrored(
    agreement: Agreement,
    method: str,
    params: bytes,
    plan: Mapping[tuple[str, ...], str] | None = None,
    named_by: Mapping[str, str] = NO_NAMES,
) -> dict[str, str]:
    """Return the headers of one request, as they follow from its body (HDR-1, HDR-2).

    `plan` is its tool's, `named_by` the members that name what methods of extensions are about.
    """
    headers = {"mcp-protocol-version": agreement.revision.date, "mcp-method": method}
    member = NAMED.get(method)
    if member is None:
        if method in named_by:
            headers["mcp-name"] = encode_value(msgspec.json.decode(params).get(named_by[method]) or "")
        return headers
    named = _named.decode(params)
    name: str = getattr(named, member) or ""
    headers["mcp-name"] = encode_value(name)
    if plan:
        arguments: JSON = msgspec.json.decode(named.arguments) if named.arguments is not ABSENT else {}
        for path, part in plan.items():
            if (value := value_at(arguments, path)) is not None:
                headers[f"mcp-param-{part.lower()}"] = encode_value(value)
    return headers
