"""What a client and a server agreed on, and how that changes each request: the client's end of both eras.

Modern requests carry an envelope in `_meta`, made once; handshake requests carry only what the call itself needs.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from linkspan.errors import UNSUPPORTED_PROTOCOL_VERSION
from linkspan.revisions import LATEST, LATEST_LEGACY, LEGACY, MODERN, REVISIONS
from linkspan.revisions.modern import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SERVER_INFO
from linkspan.revisions.neutral import read_implementation
from linkspan.revisions.record import Era, Revision
from linkspan.revisions.stepdown import knows_field, step_down
from linkspan.types.base import JSON, Implementation, JSONObject, is_array, is_object, unknown_members
from linkspan.types.messages import (
    CreateMessageParams,
    DiscoverResult,
    ElicitParams,
    InitializeResult,
    LoggingLevel,
    ServerCapabilities,
)
from linkspan.wire.jsonrpc import ErrorResponse, RequestId, encode
from linkspan.wire.values import decode_open, to_builtins

_NO_CAPABILITIES = ServerCapabilities()


class ClientProfile(msgspec.Struct, frozen=True):
    """What a client says of itself. `capabilities` are in the newest vocabulary (CLI-3)."""

    info: Implementation
    capabilities: JSONObject = msgspec.field(default_factory=dict[str, JSON])
    undeclared_in_handshakes: frozenset[str] = frozenset()
    """The extensions that need an envelope."""


class Agreement(msgspec.Struct, frozen=True):
    """The revision that both sides speak, and what the server said of itself."""

    revision: Revision
    capabilities: ServerCapabilities = _NO_CAPABILITIES
    server_info: Implementation | None = None
    instructions: str | None = None
    envelope: bytes = b""
    """The members of `_meta` that every request carries, encoded; empty in the handshake era."""
    settled: bool = True
    """False for what a client only proposes so far."""

    def params(
        self, body: bytes, token: RequestId | None = None, meta: bytes = b"", envelope: bytes | None = None
    ) -> bytes | None:
        """Return the params of one request: `body` (an encoded object), its progress token and members of its own.

        `meta` are encoded members for `_meta`, without braces; `envelope` stands in the place of the one that was agreed on.
        None means that the request needs no params.
        """
        members = self.envelope if envelope is None else envelope
        if token is not None:
            token_member = b'"progressToken":%b' % (b"%d" % token if type(token) is int else encode(token))
            members = b"%b,%b" % (members, token_member) if members else token_member
        if meta:
            members = b"%b,%b" % (members, meta) if members else meta
        if not members:
            return body if body != b"{}" else None
        if body == b"{}":
            return b'{"_meta":{%b}}' % members
        return b'%b,"_meta":{%b}}' % (body[:-1], members)

    def speaking(self, profile: ClientProfile, level: LoggingLevel | None) -> bytes | None:
        """Return the envelope of a request for which the client declares other capabilities; None in the handshake era."""
        return None if self.revision.era == "legacy" else _envelope(self.revision, profile, level)

    def at_level(self, level: LoggingLevel | None, profile: ClientProfile) -> Agreement:
        """Return the same agreement with another least level of log messages, which only the envelope can say."""
        if self.revision.era == "legacy":
            return self
        return msgspec.structs.replace(self, envelope=_envelope(self.revision, profile, level))


class Opening(msgspec.Struct, frozen=True):
    """How to begin with a server."""

    revision: Revision
    handshake: bool
    """Begin with `initialize`; else with `server/discover`."""
    pinned: bool
    """The caller allows no other era."""
    certain: bool
    """The server must be of this era, or was before: neither silence nor its end shows another (ERA-7)."""


def opening(era: Era | None, revision: Revision | None, remembered: Era | None) -> Opening:
    """Return how to begin, from what the caller pinned and what the server was before; None where that is open."""
    pinned = era or (revision.era if revision is not None else None)
    handshake = (pinned or remembered) == "legacy"
    latest = LATEST_LEGACY if handshake else LATEST
    return Opening(revision or latest, handshake, pinned is not None, pinned is not None or remembered is not None)


def before_agreement(revision: Revision, profile: ClientProfile) -> Agreement:
    """Return how to speak to a server of which nothing is known yet."""
    envelope = _envelope(revision, profile) if revision.era == "modern" else b""
    return Agreement(revision, envelope=envelope, settled=False)


def _envelope(revision: Revision, profile: ClientProfile, level: LoggingLevel | None = None) -> bytes:
    members: JSONObject = {
        PROTOCOL_VERSION: revision.date,
        CAPABILITIES: profile.capabilities,
        CLIENT_INFO: to_builtins(profile.info),
    }
    if level is not None:
        members[LOG_LEVEL] = level
    return encode(members)[1:-1]


# The modern era.


def agree_modern(revision: Revision, result: Raw, profile: ClientProfile) -> tuple[Agreement, list[str]]:
    """Read a DiscoverResult; return the agreement on `revision` and the versions that the server lists.

    Raises: msgspec.DecodeError or msgspec.ValidationError for a result of another shape.
    """
    found = decode_open(result, DiscoverResult)
    info = (found.meta or {}).get(SERVER_INFO) or unknown_members(found).get(
        "serverInfo"
    )  # where drafts had it (META-6)
    agreement = Agreement(
        revision,
        found.capabilities,
        read_implementation(info),
        found.instructions,
        _envelope(revision, profile),
    )
    return agreement, found.supported_versions


def offered_versions(error: ErrorResponse) -> list[str] | None:
    """Return the versions that a server lists in its refusal of ours, or None for any other error (MSG-46)."""
    if error.code != UNSUPPORTED_PROTOCOL_VERSION or not is_object(error.data):
        return None
    supported = error.data.get("supported")
    if not is_array(supported):
        return None
    return [each for each in supported if isinstance(each, str)]


def choose(offered: list[str]) -> Revision | None:
    """Return the newest modern revision that we and the server both know, or None."""
    mutual = [date for date in MODERN if date in offered]
    return REVISIONS[mutual[-1]] if mutual else None


# The handshake.


def handshake_params(profile: ClientProfile, wanted: Revision | None = None) -> bytes:
    """Return the params of `initialize` (INI-1, INI-2). Nothing modern may leak into it."""
    revision = wanted or LATEST_LEGACY
    return encode(
        {
            "protocolVersion": revision.date,
            "capabilities": _handshake_capabilities(profile, revision),
            "clientInfo": to_builtins(step_down(revision, profile.info)),
        }
    )


def _handshake_capabilities(profile: ClientProfile, revision: Revision) -> JSONObject:
    kept: JSONObject = dict(profile.capabilities)
    extensions: JSONObject = {
        name: settings
        for name, settings in kept.pop("extensions", {}).items()
        if name not in profile.undeclared_in_handshakes
    }
    if extensions:
        kept["extensions"] = extensions
    if "elicitation" in kept and "elicitation/create" not in revision.server_requests:
        del kept["elicitation"]
    if not knows_field(revision, ElicitParams, "mode") and "elicitation" in kept:
        kept["elicitation"] = {}
    if not knows_field(revision, CreateMessageParams, "tools") and "sampling" in kept:
        kept["sampling"] = {}
    if "roots" in kept:
        kept["roots"] = {"listChanged": True}
    return kept


def agree_on_handshake(result: Raw) -> Agreement | str:
    """Read an InitializeResult; return the agreement, or the version of a server that speaks none of ours.

    Raises: msgspec.DecodeError or msgspec.ValidationError for a result of another shape.
    """
    found = decode_open(result, InitializeResult)
    if found.protocol_version not in LEGACY:
        return found.protocol_version
    return Agreement(REVISIONS[found.protocol_version], found.capabilities, found.server_info, found.instructions)
