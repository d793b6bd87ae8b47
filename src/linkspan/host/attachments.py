"""What a user adds to a conversation: the messages of a prompt, and the contents of resources.

Laws: the contents of a resource are data of its server, marked as such, with nothing hidden in them; pictures pass only if every
provider takes them. A prompt was chosen by the user, and speaks with the user's voice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkspan.host.messages import AssistantMessage, Message, Picture, Text, UserMessage
from linkspan.host.results import can_be_shown, marked_resource
from linkspan.types.base import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from linkspan.types.messages import GetPromptResult, ReadResourceResult
from linkspan.wire.redaction import neutral


def prompt_messages(result: GetPromptResult, server: str) -> list[Message]:
    """Return the messages of a prompt as a conversation takes them: the roles alternate, and the user begins and ends."""
    messages: list[Message] = []
    for each in result.messages:
        parts = [*_parts(each.content, server)]
        last = messages[-1] if messages else None
        if each.role == "assistant":
            if last is None:
                continue  # providers want the user to begin
            text = "".join(part.text for part in parts if isinstance(part, Text))
            before = last.text if isinstance(last, AssistantMessage) else None
            message = AssistantMessage([Text(text if before is None else f"{before}\n{text}")])
            messages[len(messages) - (before is not None) :] = [message]
        elif isinstance(last, UserMessage):
            messages[-1] = UserMessage([*last.parts, *parts])
        else:
            messages.append(UserMessage(parts))
    if messages and isinstance(messages[-1], AssistantMessage):
        messages.append(UserMessage([Text("Go on.")]))
    return messages


def resource_parts(result: ReadResourceResult, server: str) -> Sequence[Text | Picture]:
    """Return the contents of a resource for a message of the user."""
    return [part for each in result.contents for part in _contents(each, server)]


def _parts(content: object, server: str) -> Iterable[Text | Picture]:
    match content:
        case TextContent():
            yield Text(neutral(content.text))
        case ImageContent():
            image = Picture(content.data, content.mime_type)
            yield image if can_be_shown(image) else Text(f"[a picture of type {neutral(content.mime_type)}]")
        case EmbeddedResource():
            yield from _contents(content.resource, server)
        case ResourceLink():
            yield Text(neutral(f"[resource {content.uri}: {content.title or content.name}]"))
        case _:
            yield Text("[content that is not text]")


def _contents(contents: object, server: str) -> Iterable[Text | Picture]:
    match contents:
        case TextResourceContents():
            yield Text(marked_resource(contents.text, server, contents.uri))
        case BlobResourceContents():
            image = Picture(contents.blob, contents.mime_type or "")
            if can_be_shown(image):
                yield Text(marked_resource("(a picture follows)", server, contents.uri))
                yield image
            else:
                kind = contents.mime_type or "an unknown type"
                yield Text(marked_resource(f"(data of type {kind} that cannot be shown)", server, contents.uri))
        case _:
            yield Text("[content that is not text]")
