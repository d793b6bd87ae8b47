"""A snapshot of a running server, taken by a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from linkspan.client.sync_client import SyncClient
from linkspan.contract.snapshot import KEYS, Snapshot, capability_names, collected
from linkspan.flows.client_errors import ServerError
from linkspan.types.base import is_array
from linkspan.types.messages import Tool
from linkspan.wire.values import to_builtins

_ASK: Final[dict[str, tuple[str, Callable[[SyncClient], Sequence[object]]]]] = {
    "tool": ("tools", SyncClient.list_tools),
    "prompt": ("prompts", SyncClient.list_prompts),
    "template": ("resources", SyncClient.list_resource_templates),
    "resource": ("resources", SyncClient.list_resources),
}
"""For each kind its capability, and the request for it."""


def take(client: SyncClient, *, resources: bool = False, caller: str | None = None) -> Snapshot:
    """Return what a server offers to this client; with `resources`, those that have a URI, too, which often come and go.

    Raises: ClientError, and ServerError if a list is refused that the server announces.
    """
    client.connect()
    offers = client.server_capabilities
    items = {
        kind: collected(kind, map(to_builtins, ask(client)))
        for kind, (capability, ask) in _ASK.items()
        if (offers is None or getattr(offers, capability) is not None) and (kind != "resource" or resources)
    }
    return Snapshot(
        server=client.server_info.name if client.server_info is not None else client.name,
        revisions=_revisions(client),
        capabilities=capability_names(to_builtins(offers)) if offers is not None else (),
        instructions=client.instructions,
        caller=caller,
        items={kind: items.get(kind, {}) for kind in KEYS},
    )


def of_tools(server: str, tools: Sequence[Tool]) -> Snapshot:
    """Return a snapshot of nothing but tools."""
    return Snapshot(server, items={"tool": collected("tool", map(to_builtins, tools))})


def _revisions(client: SyncClient) -> tuple[str, ...]:
    """Return the revisions that a server says it serves, the oldest first; of one that says none, the one in use."""
    with suppress(ServerError):
        found = client.request("server/discover", {}).get("supportedVersions")
        if is_array(found):
            return tuple(sorted(map(str, found)))
    return (client.protocol_version,) if client.protocol_version is not None else ()
