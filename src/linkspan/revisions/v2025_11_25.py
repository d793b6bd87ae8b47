"""2025-11-25: icons, descriptions of implementations, elicitation by URL and rich choices, tools in sampling.

Its experimental tasks are not served. Changelog: https://modelcontextprotocol.io/specification/2025-11-25/changelog
"""

from __future__ import annotations

from linkspan.errors import URL_ELICITATION_REQUIRED
from linkspan.revisions.v2025_06_18 import REVISION as PREDECESSOR
from linkspan.types.base import Implementation, ResourceLink
from linkspan.types.messages import (
    CreateMessageParams,
    ElicitParams,
    Prompt,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    Tool,
)

REVISION = PREDECESSOR.evolve(
    "2025-11-25",
    add_notifications=("notifications/elicitation/complete",),
    new_sampling_content=("tool_use", "tool_result"),
    new_fields={
        Implementation: ("icons", "description", "website_url"),
        Tool: ("icons",),
        Prompt: ("icons",),
        Resource: ("icons",),
        ResourceTemplate: ("icons",),
        ResourceLink: ("icons",),
        ElicitParams: ("mode", "url"),
        CreateMessageParams: ("tools", "tool_choice"),
        SamplingMessage: ("meta",),
    },
    error_id_required=False,
    error_codes=PREDECESSOR.error_codes | {URL_ELICITATION_REQUIRED},
    sampling_lists=True,
    rich_forms=True,
)
