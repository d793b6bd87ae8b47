"""2025-06-18: no more batches; structured output, elicitation, resource links, titles, `_meta` on the nouns.

Changelog: https://modelcontextprotocol.io/specification/2025-06-18/changelog
"""

from __future__ import annotations

from linkspan.revisions.v2025_03_26 import REVISION as PREDECESSOR
from linkspan.types.base import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    Implementation,
    TextContent,
    TextResourceContents,
)
from linkspan.types.messages import (
    CallToolResult,
    Prompt,
    PromptArgument,
    PromptReference,
    Resource,
    ResourceTemplate,
    Root,
    Tool,
)

REVISION = PREDECESSOR.evolve(
    "2025-06-18",
    add=("elicitation/create",),
    new_content=("resource_link",),
    new_fields={
        Implementation: ("title",),
        Tool: ("title", "output_schema", "meta"),
        CallToolResult: ("structured_content",),
        Prompt: ("title", "meta"),
        PromptArgument: ("title",),
        PromptReference: ("title",),
        Resource: ("title", "meta"),
        ResourceTemplate: ("title", "meta"),
        Root: ("meta",),
        Annotations: ("last_modified",),
        TextContent: ("meta",),
        ImageContent: ("meta",),
        AudioContent: ("meta",),
        EmbeddedResource: ("meta",),
        TextResourceContents: ("meta",),
        BlobResourceContents: ("meta",),
    },
    batching=False,
    version_header=True,
    structured_content="object",
)
