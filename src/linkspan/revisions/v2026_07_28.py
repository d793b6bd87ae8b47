"""2026-07-28: stateless. No handshake; envelopes, discovery, subscriptions, multi-round requests, caching hints, extensions.

Changelog: https://modelcontextprotocol.io/specification/2026-07-28/changelog
"""

from __future__ import annotations

from linkspan.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from linkspan.revisions.v2025_11_25 import REVISION as PREDECESSOR
from linkspan.types.messages import (
    DiscoverResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
)

REVISION = PREDECESSOR.evolve(
    "2026-07-28",
    add=("server/discover", "subscriptions/listen"),
    remove=("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
    add_notifications=("notifications/subscriptions/acknowledged",),
    remove_notifications=(
        "notifications/initialized",
        "notifications/roots/list_changed",
        "notifications/elicitation/complete",
    ),
    remove_client_notifications=("notifications/progress",),
    new_fields={
        DiscoverResult: ("ttl_ms", "cache_scope"),
        ListToolsResult: ("ttl_ms", "cache_scope"),
        ListPromptsResult: ("ttl_ms", "cache_scope"),
        ListResourcesResult: ("ttl_ms", "cache_scope"),
        ListResourceTemplatesResult: ("ttl_ms", "cache_scope"),
        ReadResourceResult: ("ttl_ms", "cache_scope"),
    },
    era="modern",
    resource_not_found=INVALID_PARAMS,
    error_codes=frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION}),
    structured_content="any",
    version_header=True,
    asks_in_results=True,
    listens_by_request=True,
    log_level_in_envelope=True,
    caches_results=True,
    repeats_in_headers=True,
    cancels_by_closing=True,
    extends_by_request=True,
    keeps_sessions=False,
)
