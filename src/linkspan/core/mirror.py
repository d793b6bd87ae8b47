"""A modern request over HTTP repeats itself in headers, for those who route by them. Here both are held to say the same.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (checklist 2.4.2, H5-8).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkspan.core.call import HeaderPlan
from linkspan.core.params import HasMeta
from linkspan.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    RemoteProtocolError,
)
from linkspan.revisions import supported_versions
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from linkspan.revisions.neutral import Peer
from linkspan.types.base import ABSENT, JSON, is_object
from linkspan.types.messages import CallToolParams, GetPromptParams, ReadResourceParams
from linkspan.wire.headers import BadEncoding, agrees, decode_value, value_at
from linkspan.wire.messages import RpcRequest

__all__ = ["Mirror"]


class Mirror:
    """The headers of one request. The order of the checks is that of the checklist, which all probes agree with."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Hold requests to `headers`, names in lower case."""
        self._headers = headers

    def check(
        self,
        rpc: RpcRequest,
        params: HasMeta | None,
        peer: Peer | None,
        error: RemoteProtocolError | None,
        header_plan: HeaderPlan,
    ) -> RemoteProtocolError | None:
        """Return what is wrong; None to go on (or to keep `error`, which was found already)."""
        version = self._headers.get("mcp-protocol-version")
        if error is not None:
            return self._before(rpc, peer, error, version)
        if peer is None:
            missing = f"Invalid params: _meta lacks {PROTOCOL_VERSION}, {CAPABILITIES}"
            return RemoteProtocolError(INVALID_PARAMS, missing, {"supported": supported_versions()})
        return self._wrong_version(version, peer.revision.date) or self._wrong_names(rpc, params, header_plan)

    def _before(
        self, rpc: RpcRequest, peer: Peer | None, error: RemoteProtocolError, version: str | None
    ) -> RemoteProtocolError | None:
        """Return what counts more than an error that was found in the body."""
        if version is None:
            return _mismatch("MCP-Protocol-Version is missing")
        if peer is not None:
            return self._wrong_version(version, peer.revision.date) or self._wrong_method(rpc)
        if error.code == UNSUPPORTED_PROTOCOL_VERSION and is_object(error.data):
            return self._wrong_version(version, str(error.data.get("requested")))
        return None

    def _wrong_version(self, version: str | None, claimed: str) -> RemoteProtocolError | None:
        if version is None:
            return _mismatch("MCP-Protocol-Version is missing")
        if version != claimed:
            return _mismatch(f"MCP-Protocol-Version is {version[:40]!r}, but _meta says {claimed[:40]!r}")
        return None

    def _wrong_method(self, rpc: RpcRequest) -> RemoteProtocolError | None:
        method = self._headers.get("mcp-method")
        if method == rpc.method:
            return None
        return _mismatch("Mcp-Method is missing" if method is None else "Mcp-Method is not the method of the body")

    def _wrong_names(
        self, rpc: RpcRequest, params: HasMeta | None, header_plan: HeaderPlan
    ) -> RemoteProtocolError | None:
        if (problem := self._wrong_method(rpc)) is not None:
            return problem
        match params:
            case CallToolParams():
                return self._wrong_name(params.name) or self._wrong_parameters(params, header_plan(params.name))
            case GetPromptParams():
                return self._wrong_name(params.name)
            case ReadResourceParams():
                return self._wrong_name(params.uri)
            case _:
                return None

    def _wrong_name(self, name: str) -> RemoteProtocolError | None:
        found = self._headers.get("mcp-name")
        if found == name:
            return None
        if found is None:
            return _mismatch("Mcp-Name is missing")
        try:
            return None if decode_value(found) == name else _mismatch("Mcp-Name is not the name in the body")
        except BadEncoding as problem:
            return _mismatch(f"Mcp-Name {problem}")

    def _wrong_parameters(
        self, params: CallToolParams, plan: Mapping[tuple[str, ...], str]
    ) -> RemoteProtocolError | None:
        if not plan:
            return None
        try:
            arguments: JSON = msgspec.json.decode(params.arguments) if params.arguments is not ABSENT else {}
        except (msgspec.DecodeError, RecursionError):
            return None  # the schema will have its say
        for path, name in plan.items():
            if (problem := self._wrong_parameter(f"Mcp-Param-{name}", value_at(arguments, path))) is not None:
                return problem
        return None

    def _wrong_parameter(self, name: str, value: JSON) -> RemoteProtocolError | None:
        header = self._headers.get(name.lower())
        if header is None:
            return None if value is None else _mismatch(f"{name} is missing, but the body has a value")
        if value is None:
            return _mismatch(f"{name} is there, but the body has no value")
        try:
            return None if agrees(decode_value(header), value) else _mismatch(f"{name} is not the value in the body")
        except BadEncoding as problem:
            return _mismatch(f"{name} {problem}")


def _mismatch(problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(HEADER_MISMATCH, f"Header mismatch: {problem}")
