"""The official JSON Schemas, and the table of members that is kept of them beside the tests.

The schemas are looked for in `LINKSPAN_SCHEMA_DIR`, else in `shared/schema` beside the repository. Run this file to write
the table anew after a schema has changed: `PYTHONPATH=src python tests/revisions/official_schemas.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from linkspan.revisions import REVISIONS
from linkspan.types import base, messages
from linkspan.types import base as content

REPOSITORY = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LINKSPAN_SCHEMA_DIR", REPOSITORY.parent / "shared" / "schema"))
TABLE = Path(__file__).with_name("fields.json")
IS_PRESENT = all((FOLDER / date / "schema.json").is_file() for date in REVISIONS)

DEFINITIONS: dict[type[Any], tuple[str, ...]] = {
    base.Annotations: ("Annotations", "TextContent/annotations"),
    base.Icon: ("Icon",),
    base.Implementation: ("Implementation",),
    content.TextContent: ("TextContent",),
    content.ImageContent: ("ImageContent",),
    content.AudioContent: ("AudioContent",),
    content.EmbeddedResource: ("EmbeddedResource",),
    content.ResourceLink: ("ResourceLink",),
    content.ToolUseContent: ("ToolUseContent",),
    content.ToolResultContent: ("ToolResultContent",),
    content.TextResourceContents: ("TextResourceContents",),
    content.BlobResourceContents: ("BlobResourceContents",),
    messages.Tool: ("Tool",),
    messages.ToolAnnotations: ("ToolAnnotations",),
    messages.ListToolsResult: ("ListToolsResult",),
    messages.CallToolResult: ("CallToolResult",),
    messages.Prompt: ("Prompt",),
    messages.PromptArgument: ("PromptArgument",),
    messages.PromptMessage: ("PromptMessage",),
    messages.ListPromptsResult: ("ListPromptsResult",),
    messages.GetPromptResult: ("GetPromptResult",),
    messages.Resource: ("Resource",),
    messages.ResourceTemplate: ("ResourceTemplate",),
    messages.ListResourcesResult: ("ListResourcesResult",),
    messages.ListResourceTemplatesResult: ("ListResourceTemplatesResult",),
    messages.ReadResourceResult: ("ReadResourceResult",),
    messages.PromptReference: ("PromptReference",),
    messages.ResourceTemplateReference: ("ResourceTemplateReference", "ResourceReference"),
    messages.CompletionArgument: ("CompleteRequestParams/argument", "CompleteRequest/params/argument"),
    messages.CompletionContext: ("CompleteRequestParams/context", "CompleteRequest/params/context"),
    messages.Completion: ("CompleteResult/completion",),
    messages.CompleteResult: ("CompleteResult",),
    messages.ElicitParams: ("ElicitRequestFormParams+ElicitRequestURLParams", "ElicitRequest/params"),
    messages.ElicitResult: ("ElicitResult",),
    messages.ModelHint: ("ModelHint",),
    messages.ModelPreferences: ("ModelPreferences",),
    messages.SamplingMessage: ("SamplingMessage",),
    messages.ToolChoice: ("ToolChoice",),
    messages.CreateMessageParams: ("CreateMessageRequestParams", "CreateMessageRequest/params"),
    messages.CreateMessageResult: ("CreateMessageResult",),
    messages.Root: ("Root",),
    messages.ListRootsResult: ("ListRootsResult",),
    messages.LoggingMessageParams: ("LoggingMessageNotificationParams", "LoggingMessageNotification/params"),
    messages.ProgressParams: ("ProgressNotificationParams", "ProgressNotification/params"),
    messages.ServerCapabilities: ("ServerCapabilities",),
    messages.ListChangedCapability: ("ServerCapabilities/tools",),
    messages.ResourcesCapability: ("ServerCapabilities/resources",),
    messages.InitializeResult: ("InitializeResult",),
    messages.DiscoverResult: ("DiscoverResult",),
    messages.InitializeParams: ("InitializeRequestParams", "InitializeRequest/params"),
    messages.ListParams: ("PaginatedRequestParams", "PaginatedRequest/params"),
    messages.CallToolParams: ("CallToolRequestParams", "CallToolRequest/params"),
    messages.GetPromptParams: ("GetPromptRequestParams", "GetPromptRequest/params"),
    messages.ReadResourceParams: ("ReadResourceRequestParams", "ReadResourceRequest/params"),
    messages.SubscribeParams: ("SubscribeRequestParams", "SubscribeRequest/params"),
    messages.CompleteParams: ("CompleteRequestParams", "CompleteRequest/params"),
    messages.SetLevelParams: ("SetLevelRequestParams", "SetLevelRequest/params"),
    messages.SubscriptionFilter: ("SubscriptionFilter",),
    messages.ListenParams: ("SubscriptionsListenRequestParams",),
    messages.CancelledParams: ("CancelledNotificationParams", "CancelledNotification/params"),
}
"""Where each of our shapes stands in the schemas: the first place that a revision has. `+` means either of two."""


def read_schema(date: str) -> dict[str, Any]:
    """Return the schema of a revision."""
    return json.loads((FOLDER / date / "schema.json").read_text())


def find(schema: dict[str, Any], kind: type[Any]) -> list[dict[str, Any]]:
    """Return the definition of a shape, two for alternatives, none where the revision does not have it."""
    for place in DEFINITIONS[kind]:
        found = [_walk(schema, each) for each in place.split("+")]
        if None not in found:
            return [each for each in found if each is not None]
    return []


def _walk(schema: dict[str, Any], place: str) -> dict[str, Any] | None:
    definitions = schema.get("$defs") or schema["definitions"]
    name, *path = place.split("/")
    found = definitions.get(name)
    for step in path:
        found = (found or {}).get("properties", {}).get(step)
        if found and "$ref" in found:
            found = definitions[found["$ref"].rpartition("/")[2]]
    return found


def members_of(found: list[dict[str, Any]]) -> list[str]:
    """Return the names of the members, each required one with a mark, in the alphabet's order."""
    every = {name for each in found for name in each.get("properties", {})}
    required = set.intersection(*(set(each.get("required", ())) for each in found))
    return sorted(f"{name}!" if name in required else name for name in every)


def read_table() -> dict[str, dict[str, list[str]]]:
    """Return the members of every shape by revision, read from the official schemas."""
    table: dict[str, dict[str, list[str]]] = {}
    for date in REVISIONS:
        schema = read_schema(date)
        shapes = {kind.__name__: find(schema, kind) for kind in DEFINITIONS}
        table[date] = {name: members_of(found) for name, found in shapes.items() if found}
    return table


def written_table() -> dict[str, dict[str, list[str]]]:
    """Return the table that is kept beside the tests."""
    return {
        date: {name: members.split() for name, members in shapes.items()}
        for date, shapes in json.loads(TABLE.read_text()).items()
    }


def write_table() -> None:
    """Write the table anew."""
    lines = {
        date: {name: " ".join(members) for name, members in shapes.items()} for date, shapes in read_table().items()
    }
    TABLE.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    write_table()
