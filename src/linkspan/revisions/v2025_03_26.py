"""2025-03-26: tool annotations, audio, batches, progress messages, a capability for completions.

Changelog: https://modelcontextprotocol.io/specification/2025-03-26/changelog
"""

from __future__ import annotations

from linkspan.revisions.v2024_11_05 import REVISION as PREDECESSOR
from linkspan.types.messages import ProgressParams, ServerCapabilities, Tool

REVISION = PREDECESSOR.evolve(
    "2025-03-26",
    new_content=("audio",),
    new_sampling_content=("audio",),
    new_fields={
        Tool: ("annotations",),
        ProgressParams: ("message",),
        ServerCapabilities: ("completions",),
    },
    batching=True,
)
