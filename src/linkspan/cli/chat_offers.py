"""What servers offer to the user of a chat: prompts as `/name key=value`, resources as `@uri`, and how both are completed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from linkspan.cli.options import WrongUse, near
from linkspan.host.attachments import prompt_messages, resource_parts
from linkspan.host.group import GroupEntry
from linkspan.host.host import Host
from linkspan.host.messages import Message, Picture, Text, UserMessage
from linkspan.naming import prefixed
from linkspan.types.messages import Prompt, PromptReference, Resource, ResourceTemplate, ResourceTemplateReference
from linkspan.wire.redaction import one_line, revealed_line

_MENTION: Final = re.compile(r"(?:^|(?<=\s))@(\S+)")


class Offers:
    """The prompts and resources of the servers of a chat, under the names that the user types."""

    def __init__(self, host: Host, commands: Collection[str]) -> None:
        """A prompt with the name of one of the `commands` gets its server's name in front."""
        self.prompts: dict[str, GroupEntry[Prompt]] = {}
        self.resources: dict[str, GroupEntry[Resource]] = {}
        self.templates: list[GroupEntry[ResourceTemplate]] = []
        self._group = host.group
        self._commands = commands

    async def refresh(self) -> None:
        """List them again, of the servers that are connected."""
        there = [each.server for each in self._group.status() if each.state == "connected"]
        prompts = await self._group.list_prompts(only=there)
        self.prompts = {
            prefixed(each.server, each.item.name) if each.name.casefold() in self._commands else each.name: each
            for each in prompts
        }
        self.resources = {each.name: each for each in await self._group.list_resources(only=there)}
        self.templates = await self._group.list_resource_templates(only=there)

    async def use_prompt(self, name: str, arguments: Mapping[str, str]) -> list[Message]:
        """Return the messages of a prompt. Raises: ClientError."""
        entry = self.prompts[name]
        result = await self._group.client(entry.server).get_prompt(entry.item.name, arguments)
        return prompt_messages(result, entry.server)

    async def with_resources(self, text: str) -> UserMessage:
        """Return a message with the contents of the resources that it mentions. Raises: ClientError, WrongUse."""
        parts: list[Text | Picture] = [Text(text)]
        for uri in dict.fromkeys(found[1].rstrip(".,;:!?)") for found in _MENTION.finditer(text)):
            if "://" in uri or uri in self.resources:
                server = self._server_of(uri)
                parts += resource_parts(await self._group.read_resource(uri, server=server), server)
        return UserMessage(parts)

    def _server_of(self, uri: str) -> str:
        """Return the server that lists a resource, or has a template for it. Raises: WrongUse."""
        if uri in self.resources:
            return self.resources[uri].server
        for each in self.templates:
            if uri.startswith(each.name.partition("{")[0]):
                return each.server
        raise WrongUse(
            f"no server has the resource {one_line(uri, 200)}{near(uri, self.resources)}; /resources lists them"
        )

    # Completion.

    async def suggest(self, line: str) -> Sequence[str]:
        """Return what the last word of a line may become: words that can be typed, with nothing hidden in them."""
        return [each for each in await self._found(line) if revealed_line(each) == each and " " not in each]

    async def _found(self, line: str) -> Sequence[str]:
        words = line.split(" ")
        word = words[-1]
        if word.startswith("@"):
            return [f"@{each}" for each in await self._uris(word[1:])]
        if not line.startswith("/"):
            return []
        if len(words) == 1:
            return [name for each in (*self._commands, *self.prompts) if (name := f"/{each}").startswith(line)]
        entry = self.prompts.get(words[0][1:])
        if entry is None:
            return []
        name, equals, value = word.partition("=")
        known = [each.name for each in entry.item.arguments or ()]
        if not equals:
            return [f"{each}=" for each in known if each.startswith(name) and f" {each}=" not in line]
        given = dict(each.split("=", 1) for each in words[1:-1] if "=" in each)
        client = self._group.client(entry.server)
        found = await client.complete(PromptReference(entry.item.name), name, value, given)
        return [f"{name}={each}" for each in found.values]

    async def _uris(self, typed: str) -> list[str]:
        found = [each for each in self.resources if each.startswith(typed)]
        for each in self.templates:
            before, _, rest = each.name.partition("{")
            variable, _, after = rest.partition("}")
            if before.startswith(typed):
                found.append(before)
            elif not after and typed.startswith(before):
                client = self._group.client(each.server)
                reference = ResourceTemplateReference(each.name)
                values = (await client.complete(reference, variable, typed.removeprefix(before))).values
                found += [f"{before}{value}" for value in values]
        return found


def read_arguments(prompt: Prompt, text: str) -> dict[str, str]:
    """Return the arguments of a prompt as typed: key=value, or one text for its first argument. Raises: WrongUse."""
    known = [each.name for each in prompt.arguments or ()]
    if not text:
        return {}
    if known and not any(text.startswith(f"{each}=") for each in known):
        return {known[0]: text}
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise WrongUse(f"/{prompt.name}: {problem}; quotes go in pairs") from None
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            takes = ", ".join(known) or "none"
            raise WrongUse(f"/{prompt.name} has no argument {one_line(key, 60)!r}{near(key, known)}; it takes {takes}")
        given[key] = value
    return given
