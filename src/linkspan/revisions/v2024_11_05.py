"""2024-11-05, the first revision: handshake, stdio, HTTP+SSE.

Spec: https://modelcontextprotocol.io/specification/2024-11-05
"""

from __future__ import annotations

from linkspan.revisions.record import Revision

REVISION = Revision(
    date="2024-11-05",
    era="legacy",
    requests=frozenset(
        {
            "initialize",
            "ping",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
        }
    ),
    server_requests=frozenset({"ping", "sampling/createMessage", "roots/list"}),
    client_notifications=frozenset(
        {
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/roots/list_changed",
        }
    ),
    server_notifications=frozenset(
        {
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        }
    ),
    content=frozenset({"text", "image", "resource"}),
    sampling_content=frozenset({"text", "image"}),
)
