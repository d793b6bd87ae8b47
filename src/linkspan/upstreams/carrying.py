"""The extensions that pass through a mount: those that are on in the server around it, as far as the other server has them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from linkspan.core.extension import Extension
from linkspan.core.flow import Flow
from linkspan.flows.client_errors import InvalidResponse, ServerError
from linkspan.flows.operations import list_all
from linkspan.flows.state import ClientState
from linkspan.revisions.agreement import Agreement
from linkspan.revisions.neutral import Peer
from linkspan.types.base import JSONObject, is_mapping, is_object
from linkspan.wire.values import to_builtins

_log = logging.getLogger("linkspan.client")


def declared_extensions(peer: Peer, extensions: Collection[Extension]) -> JSONObject:
    """Return what a caller declares of the extensions that clients have."""
    said = peer.capabilities.get("extensions")
    if not extensions or not is_mapping(said):
        return {}
    return {
        each.id: to_builtins(said[each.id])
        for each in extensions
        if each.client is not None and each.id in said and each.declared_by(peer)
    }


def announced(agreement: Agreement, extension: Extension) -> JSONObject | None:
    """Return what a server has announced of an extension, if anything; never in a revision that cannot have it."""
    if extension.needs_envelope and not agreement.revision.extends_by_request:
        return None
    settings = (agreement.capabilities.extensions or {}).get(extension.id)
    return settings if is_object(settings) else None


def lists_of_extensions(state: ClientState, extensions: Collection[Extension]) -> Flow[dict[str, Sequence[Any]]]:
    """Return the items of the lists that a server offers as parts of extensions, by method.

    One that is not as it should be is left out, with a warning: it costs none of the others. Raises: ClientError.
    """
    found: dict[str, Sequence[Any]] = {}
    for extension in extensions:
        agreement = state.agreement
        if agreement is None or announced(agreement, extension) is None:
            continue
        for spec in extension.lists:
            state.cache.forget_list(spec.method)
            try:
                found[spec.method] = yield from list_all(state, spec)
            except (ServerError, InvalidResponse) as error:
                _log.warning("%s: its list %s is left out: %s", state.origin.server, spec.method, error.problem)
    return found
