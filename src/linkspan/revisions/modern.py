"""The modern era: no handshake, every request carries its envelope in `_meta`, every result ends with a suffix.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw

from linkspan.errors import INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION, LocalProtocolError, RemoteProtocolError
from linkspan.revisions import ALL, REVISIONS, Served
from linkspan.revisions.neutral import (
    NOTHING,
    Encoded,
    EncodedToolResult,
    InputRequest,
    InputRequired,
    Peer,
    Request,
    read_implementation,
    read_only,
)
from linkspan.revisions.stepdown import encode_as
from linkspan.types.base import ABSENT, JSON, META_PREFIX, Implementation, JSONObject, Wire, is_object
from linkspan.types.messages import LOG_LEVELS, CallToolResult, DiscoverResult, LoggingLevel
from linkspan.wire.jsonrpc import RequestId, encode, encode_response
from linkspan.wire.values import to_builtins

PROTOCOL_VERSION: Final = META_PREFIX + "protocolVersion"
CAPABILITIES: Final = META_PREFIX + "clientCapabilities"
CLIENT_INFO: Final = META_PREFIX + "clientInfo"
LOG_LEVEL: Final = META_PREFIX + "logLevel"
SERVER_INFO: Final = META_PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = META_PREFIX + "subscriptionId"


class Envelope(msgspec.Struct, frozen=True):
    """What the `_meta` of one request says. `peer` is None where no modern envelope was sent."""

    peer: Peer | None = None
    progress_token: RequestId | None = None
    log_level: LoggingLevel | None = None


NO_ENVELOPE: Final = Envelope()
_TYPE = b'"resultType":"complete"'
_STRUCTURED = b',"structuredContent":'
_CACHEABLE = 2048
_TOKEN = b'"progressToken"'


class _Members(msgspec.Struct):
    """The `_meta` of a request that wants progress: the token, which differs each time, and the rest, which does not."""

    token: RequestId | None = msgspec.field(default=None, name="progressToken")
    version: Raw = msgspec.field(default=ABSENT, name=PROTOCOL_VERSION)
    capabilities: Raw = msgspec.field(default=ABSENT, name=CAPABILITIES)
    info: Raw = msgspec.field(default=ABSENT, name=CLIENT_INFO)
    level: Raw = msgspec.field(default=ABSENT, name=LOG_LEVEL)


_members = msgspec.json.Decoder(_Members)


def read_envelope(meta: Raw, served: Served = ALL) -> Envelope:
    """Read the `_meta` of a request to a server that speaks `served`.

    Clients repeat theirs but for the progress token, so the last ones are remembered. Raises: RemoteProtocolError for an envelope
    that is claimed and incomplete, mistyped (-32602, META-3, META-7) or of a version that is not served (-32022, MSG-46).
    """
    if meta is ABSENT:
        return NO_ENVELOPE
    text = bytes(meta)
    if len(text) > _CACHEABLE:
        return _read(text, served)
    if _TOKEN not in text:
        return _read_remembered(text, served)
    try:
        members = _members.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _read(text, served)  # which raises the precise error
    if members.version is ABSENT or members.capabilities is ABSENT:
        return _read(text, served)
    version, capabilities = bytes(members.version), bytes(members.capabilities)
    peer, level = _facts(version, capabilities, bytes(members.info), bytes(members.level), served)
    return Envelope(peer, members.token, level)


@lru_cache(maxsize=256)
def _facts(
    version: bytes, capabilities: bytes, info: bytes, level: bytes, served: Served
) -> tuple[Peer, LoggingLevel | None]:
    given = {PROTOCOL_VERSION: version, CAPABILITIES: capabilities, CLIENT_INFO: info, LOG_LEVEL: level}
    members: dict[str, JSON] = {name: msgspec.json.decode(text) for name, text in given.items() if text}
    return _peer(members, served), _log_level(members)


def _read(text: bytes, served: Served) -> Envelope:
    if not text:
        return NO_ENVELOPE
    try:
        members: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # a number out of range, which was not parsed while it was raw
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: _meta is not readable") from None
    if members is None:
        return NO_ENVELOPE
    if not is_object(members):
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: _meta must be an object")
    token = members.get("progressToken")
    if token is not None and (isinstance(token, bool) or not isinstance(token, int | str)):
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: _meta.progressToken must be a string or an integer")
    if PROTOCOL_VERSION not in members and CAPABILITIES not in members:
        return Envelope(progress_token=token)
    return Envelope(_peer(members, served), token, _log_level(members))


_read_remembered = lru_cache(maxsize=256)(_read)


def _peer(members: dict[str, JSON], served: Served) -> Peer:
    missing = [key for key in (PROTOCOL_VERSION, CAPABILITIES) if key not in members]
    if missing:
        raise RemoteProtocolError(
            INVALID_PARAMS, f"Invalid params: _meta lacks {', '.join(missing)}", {"supported": served.versions}
        )
    version, capabilities = members[PROTOCOL_VERSION], members[CAPABILITIES]
    if not isinstance(version, str):
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: _meta {PROTOCOL_VERSION} must be a string")
    if not is_object(capabilities) or not all(is_object(value) for value in capabilities.values()):
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: _meta {CAPABILITIES} must be an object of objects")
    if version not in served.with_envelope:
        raise RemoteProtocolError(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"Unsupported protocol version: {version}",
            {"supported": served.versions, "requested": version},
        )
    declared: Mapping[str, JSON] = read_only(capabilities) if capabilities else NOTHING
    return Peer(REVISIONS[version], declared, read_implementation(members.get(CLIENT_INFO)))


def _log_level(members: dict[str, JSON]) -> LoggingLevel | None:
    level = members.get(LOG_LEVEL)
    if level is None:
        return None
    if level not in LOG_LEVELS:
        raise RemoteProtocolError(
            INVALID_PARAMS, f"Invalid params: _meta {LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}"
        )
    chosen: LoggingLevel = level
    return chosen


def result_suffix(implementation: Implementation) -> bytes:
    """Return the members that end every complete result: its type, and which server it is from (MSG-20, META-6)."""
    return b'%b,"_meta":{"%b":%b}}' % (_TYPE, SERVER_INFO.encode(), encode(to_builtins(implementation)))


def encode_answer(
    request: Request, outcome: Wire | Encoded | EncodedToolResult | Raw | InputRequired, suffix: bytes
) -> bytes:
    """Encode the response to a request in the revision of its peer; modern results end with `suffix`, see `result_suffix`.

    Raises: LocalProtocolError for a question to a client that is asked in another way; whatever encoding raises.
    """
    request_id = request.id
    if not isinstance(outcome, EncodedToolResult):
        return encode_response(request_id, _encode_outcome(request, outcome, suffix))
    revision, structured = request.peer.revision, outcome.structured
    parts = [
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":' % request_id
        if type(request_id) is int
        else b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":' % encode(request_id),
        outcome.text,
        b"}]",
    ]
    if structured is not None and revision.structured_content != "none":
        parts += (
            (b',"structuredContent":{"result":', structured, b"}") if outcome.wrapped else (_STRUCTURED, structured)
        )
    parts += (b"}}",) if revision.era == "legacy" else (b",", suffix, b"}")
    return b"".join(parts)


def encode_result(outcome: Wire | Encoded | EncodedToolResult | Raw) -> bytes:
    """Encode a tool's result as an object of the newest revision: with its type (MSG-20), without the server's name."""
    if isinstance(outcome, Raw):
        return encode({"resultType": "complete"} | msgspec.json.decode(outcome))
    if isinstance(outcome, EncodedToolResult):
        structured = b""
        if outcome.structured is not None:
            value = b'{"result":%b}' % outcome.structured if outcome.wrapped else outcome.structured
            structured = _STRUCTURED + value
        return b'{"content":[{"type":"text","text":%b}]%b,%b}' % (outcome.text, structured, _TYPE)
    body = outcome.body if isinstance(outcome, Encoded) else encode(to_builtins(outcome))
    return b"%b,%b}" % (body[:-1], _TYPE)  # never empty: `content` is always there


def _encode_outcome(request: Request, outcome: Wire | Encoded | Raw | InputRequired, suffix: bytes) -> bytes:
    if request.peer.revision.era == "legacy":
        if isinstance(outcome, InputRequired):
            raise LocalProtocolError("an interim result cannot be sent to a handshake client")
        if isinstance(outcome, Encoded):
            return outcome.body
        return bytes(outcome) if isinstance(outcome, Raw) else encode_as(request.peer.revision, outcome)
    if type(outcome) is CallToolResult and outcome.meta is None and not outcome.__dict__:
        return b"%b,%b" % (encode(outcome)[:-1], suffix)  # never empty: `content` is always there
    if isinstance(outcome, Raw):
        return _merged(outcome, suffix)
    if isinstance(outcome, InputRequired):
        return _merged(encode(_input_required(outcome)), suffix)
    if getattr(outcome, "meta", None) or (isinstance(outcome, Wire) and outcome.__dict__):
        return _merged(encode(to_builtins(outcome)), suffix)
    body = outcome.body if isinstance(outcome, Encoded) else encode(outcome)
    return b"{" + suffix if body == b"{}" else b"%b,%b" % (body[:-1], suffix)


def _merged(body: bytes | Raw, suffix: bytes) -> bytes:
    """Add the suffix to a result that may have `_meta` or a type of its own; those win. A bare scalar stays bare."""
    if isinstance(body, Raw) and _has_all(body):
        return bytes(body)
    members: JSON = msgspec.json.decode(body)
    if not is_object(members):
        return bytes(body)
    stamped: JSONObject = msgspec.json.decode(b"{" + suffix)
    meta: JSONObject = stamped["_meta"] | (members.get("_meta") or {})
    return encode(stamped | members | {"_meta": meta})


class _OwnMeta(msgspec.Struct):
    server: Raw = msgspec.field(default=ABSENT, name=SERVER_INFO)


class _OwnMembers(msgspec.Struct):
    result_type: str = msgspec.field(default="", name="resultType")
    meta: _OwnMeta | None = msgspec.field(default=None, name="_meta")


_own_members: Final = msgspec.json.Decoder(_OwnMembers)


def _has_all(body: Raw) -> bool:
    """Return whether a result that came from another server has all members that end ours: it is passed on as it came."""
    try:
        own = _own_members.decode(body)
    except msgspec.DecodeError:
        return False
    return own.result_type != "" and own.meta is not None and own.meta.server is not ABSENT


def _input_required(outcome: InputRequired) -> dict[str, JSON]:
    body: dict[str, JSON] = {"resultType": "input_required"}
    if outcome.requests:
        body["inputRequests"] = input_requests(outcome.requests)
    if outcome.state is not None:
        body["requestState"] = outcome.state
    return body


def input_requests(requests: Mapping[str, InputRequest]) -> dict[str, JSON]:
    """Return questions as they are sent, by key."""
    return {
        key: {"method": asked.method, "params": to_builtins(asked.params)}
        if asked.params is not None
        else {"method": asked.method}
        for key, asked in requests.items()
    }


def discover(
    capabilities: Wire, instructions: str | None, *, ttl_ms: int, cache_scope: str, served: Served = ALL
) -> DiscoverResult:
    """Describe the server to a client that has not met it yet (DISC-1)."""
    return DiscoverResult(
        supported_versions=served.versions,
        capabilities=to_builtins(capabilities),
        instructions=instructions,
        ttl_ms=ttl_ms,
        cache_scope=cache_scope,
    )
