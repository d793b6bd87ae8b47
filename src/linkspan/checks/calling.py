"""Requirements on what a server does: calls of tools that only read, resources, prompts, completions, logs, subscriptions."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Final

from linkspan.checks.findings import expect, not_applicable
from linkspan.checks.peer import CheckedPeer, PeerAnswer
from linkspan.checks.requirement import requirement
from linkspan.checks.shapes import expect_cacheable, expect_shape
from linkspan.errors import RegistrationError
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.schema.validate import compile_foreign
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import CompleteResult, GetPromptResult, ReadResourceResult

_TOOLS: Final = "server/tools"
_RESOURCES: Final = "server/resources"
_PROMPTS: Final = "server/prompts"
_NONE: Final = "linkspan-check-no-such-name"
_MOST_CALLED: Final = 5
"""Tools that are called, and resources and prompts that are read."""
_MEMBERS: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
}
"""What a content block of each type has."""


def _called(peer: CheckedPeer) -> Iterator[tuple[JSONObject, PeerAnswer]]:
    """Call tools with `readOnlyHint` that need no arguments, and those that may be called. Raises: NotApplicable."""
    count = 0
    slow = ""
    answered = False
    for tool in peer.items("tools/list"):
        name = str(tool.get("name"))
        notes, schema = tool.get("annotations"), tool.get("inputSchema")
        reads = is_object(notes) and notes.get("readOnlyHint") is True
        needs = schema.get("required") if is_object(schema) else None
        if name in peer.calls or (reads and not needs and count < _MOST_CALLED):
            count += 1
            answer = peer.ask("tools/call", {"name": name, "arguments": peer.calls.get(name, {})})
            if answer.message is None:
                slow = name  # it may take its time, which no requirement forbids
            else:
                yield tool, answer
                answered = True
    if slow and not answered:
        not_applicable(f"{slow} did not answer in time")
    if not count:
        not_applicable("no tool has readOnlyHint and needs no arguments; name one: --call NAME=JSON")


@requirement("TOOL-4", "the result of a tool has content, and each block what its type needs", _TOOLS)
def _content(peer: CheckedPeer) -> None:
    for tool, answer in _called(peer):
        if answer.result.get("resultType") not in (None, "complete"):
            continue
        content = answer.result.get("content")
        expect(is_array(content), f"{tool.get('name')}: content is {content!r}")
        for each in content if is_array(content) else ():
            _is_block(each, f"{tool.get('name')}")


@requirement("TOOL-5", "the structured content of a tool fits its output schema", _TOOLS)
def _structured(peer: CheckedPeer) -> None:
    if peer.revision.structured_content == "none":
        not_applicable("this revision has none")
    count = 0
    for tool, answer in _called(peer):
        schema, result = tool.get("outputSchema"), answer.result
        if not is_object(schema) or result.get("isError") or result.get("resultType") not in (None, "complete"):
            continue
        count += 1
        name = tool.get("name")
        expect("structuredContent" in result, f"{name} has an outputSchema, and its result no structuredContent")
        problem = _problem(schema, result.get("structuredContent"))
        expect(problem is None, f"{name}: {problem}")
    if not count:
        not_applicable("no tool with an output schema could be called")


@requirement("TOOL-6", "an unknown tool is refused with -32602", _TOOLS, strength="should")
def _unknown_tool(peer: CheckedPeer) -> None:
    peer.offers("tools")
    peer.ask("tools/call", {"name": _NONE, "arguments": {}}).expect_refused(-32602)


@requirement("TOOL-8", "a call without a name is refused", _TOOLS)
def _nameless(peer: CheckedPeer) -> None:
    peer.offers("tools")
    message = peer.message("tools/call", {"arguments": {}})
    headers = {"Mcp-Name": ""} if peer.revision.repeats_in_headers else {}
    answer = peer.exchange(message, headers=headers)
    wrong = answer.failed or (answer.message is not None and answer.result.get("isError") is True)
    expect(wrong or answer.web.status >= 400, f"{answer.asked}: {answer.words}")


@requirement("TOOL-12", "arguments that do not fit the schema of a tool do not pass", _TOOLS)
def _wrong_arguments(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        notes, schema = tool.get("annotations"), tool.get("inputSchema")
        reads = is_object(notes) and notes.get("readOnlyHint") is True
        needs = schema.get("required") if is_object(schema) else None
        if reads and is_array(needs) and needs:
            answer = peer.ask("tools/call", {"name": str(tool.get("name")), "arguments": {}})
            wrong = answer.failed or (answer.message is not None and answer.result.get("isError") is True)
            expect(wrong, f"{answer.asked}, which requires {', '.join(map(str, needs))}: {answer.words}")
            return
    not_applicable("no tool has readOnlyHint and requires an argument")


@requirement("RES-2", "the contents of a resource have its URI, and a text or bytes in base64", _RESOURCES)
def _contents(peer: CheckedPeer) -> None:
    listed = peer.items("resources/list")
    if not listed:
        not_applicable("it lists no resource")
    for each in listed[:_MOST_CALLED]:
        answer = peer.ask("resources/read", {"uri": str(each.get("uri"))})
        if answer.failed or answer.result.get("resultType") not in (None, "complete"):
            continue
        expect_shape(answer.result, ReadResourceResult, answer.asked)
        contents = answer.result.get("contents")
        for part in contents if is_array(contents) else ():
            _is_contents(part, answer.asked)
        if peer.revision.caches_results:
            expect_cacheable(answer.result, answer.asked)


@requirement("RES-3", "an unknown resource is an error, not a result without contents", _RESOURCES)
def _unknown_resource(peer: CheckedPeer) -> None:
    peer.offers("resources")
    answer = peer.ask("resources/read", {"uri": f"linkspan-check://{_NONE}"})
    expect(answer.failed, f"{answer.asked}: {answer.words}")


@requirement("RES-9", "the error for an unknown resource has the code of the revision", _RESOURCES, strength="should")
def _unknown_resource_code(peer: CheckedPeer) -> None:
    peer.offers("resources")
    answer = peer.ask("resources/read", {"uri": f"linkspan-check://{_NONE}"})
    if not answer.failed:
        not_applicable("it is no error")
    answer.expect_refused(peer.revision.resource_not_found)


@requirement("PR-2", "a prompt has messages with a role and one content block", _PROMPTS)
def _messages(peer: CheckedPeer) -> None:
    count = 0
    for prompt in peer.items("prompts/list"):
        if count < _MOST_CALLED and not _required(prompt):
            count += 1
            answer = peer.ask("prompts/get", {"name": str(prompt.get("name"))})
            if answer.result.get("resultType") not in (None, "complete"):
                continue
            expect_shape(answer.result, GetPromptResult, answer.asked)
            messages = answer.result.get("messages")
            for each in messages if is_array(messages) else ():
                role = each.get("role") if is_object(each) else None
                expect(role in ("user", "assistant"), f"{answer.asked}: a message has the role {role!r}")
                _is_block(each.get("content") if is_object(each) else None, answer.asked)
    if not count:
        not_applicable("it has no prompt without required arguments")


@requirement("PR-3", "an unknown prompt, and a missing argument, is refused with -32602", _PROMPTS, strength="should")
def _unknown_prompt(peer: CheckedPeer) -> None:
    peer.offers("prompts")
    peer.ask("prompts/get", {"name": _NONE}).expect_refused(-32602)
    for prompt in peer.items("prompts/list"):
        if _required(prompt):
            peer.ask("prompts/get", {"name": str(prompt.get("name")), "arguments": {}}).expect_refused(-32602)
            return


@requirement("CMP-2", "a completion has at most 100 values", "server/utilities/completion")
def _completions(peer: CheckedPeer) -> None:
    peer.offers("completions")
    count = 0
    for prompt in peer.items("prompts/list")[:_MOST_CALLED]:
        arguments = prompt.get("arguments")
        for each in arguments if is_array(arguments) else ():
            if not is_object(each):
                continue
            count += 1
            reference: JSONObject = {"type": "ref/prompt", "name": str(prompt.get("name"))}
            asked: JSONObject = {"ref": reference, "argument": {"name": str(each.get("name")), "value": ""}}
            answer = peer.ask("completion/complete", asked)
            expect_shape(answer.result, CompleteResult, answer.asked)
            found = answer.result.get("completion")
            values = found.get("values") if is_object(found) else None
            number = len(values) if is_array(values) else 0
            expect(number <= 100, f"{answer.asked}: {number} values")
    if not count:
        not_applicable("no prompt has an argument")


@requirement(
    "CMP-4",
    "a completion for an unknown prompt is refused with -32602",
    "server/utilities/completion",
    strength="should",
)
def _odd_completion(peer: CheckedPeer) -> None:
    peer.offers("completions")
    asked: JSONObject = {"ref": {"type": "ref/prompt", "name": _NONE}, "argument": {"name": "a", "value": ""}}
    peer.ask("completion/complete", asked).expect_refused(-32602)


@requirement(
    "LOG-2",
    "the level of logging can be set, and an unknown one is refused with -32602",
    "server/utilities/logging",
    eras=("legacy",),
    strength="should",
)
def _levels(peer: CheckedPeer) -> None:
    peer.offers("logging")
    peer.ask("logging/setLevel", {"level": "warning"}).expect_served()
    peer.ask("logging/setLevel", {"level": "loudest"}).expect_refused(-32602)


@requirement(
    "LOG-3", "no log message is sent to a request that asks for none", "server/utilities/logging", eras=("modern",)
)
def _unasked_logs(peer: CheckedPeer) -> None:
    for tool, answer in _called(peer):
        for each in answer.before:
            expect(each.get("method") != "notifications/message", f"{tool.get('name')} sent {json.dumps(each)[:120]}")


@requirement(
    "SUB-2",
    "a subscription is acknowledged before anything else, with its id",
    "basic/patterns/subscriptions",
    eras=("modern",),
)
def _subscriptions(peer: CheckedPeer) -> None:
    flags = {name: peer.capabilities.get(name) for name in ("tools", "prompts", "resources")}
    named = {
        f"{name}ListChanged": True
        for name, value in flags.items()
        if is_object(value) and value.get("listChanged") is True
    }
    if not named:
        not_applicable("it announces no changes")
    message = peer.message("subscriptions/listen", {"notifications": {**named}}, id="listening")
    answer = peer.exchange(message, until=(b"subscriptions/acknowledged", b'"error"'))
    first = next((each for each in (*answer.before, answer.message) if each is not None), None)
    expect(first is not None, f"subscriptions/listen: {answer.words}")
    method = first.get("method") if first is not None else None
    expect(method == "notifications/subscriptions/acknowledged", f"subscriptions/listen: the first message is {first}")
    params = first.get("params") if first is not None else None
    meta = params.get("_meta") if is_object(params) else None
    id = meta.get(SUBSCRIPTION_ID) if is_object(meta) else None
    expect(id == "listening", f"the acknowledgement has the {SUBSCRIPTION_ID} {id!r}")
    peer.notify("notifications/cancelled", {"requestId": "listening"})


def _required(prompt: JSONObject) -> bool:
    arguments = prompt.get("arguments")
    return is_array(arguments) and any(is_object(each) and each.get("required") is True for each in arguments)


def _is_block(block: JSON, where: str) -> None:
    """Look whether a content block has what its type needs. Raises: Unmet."""
    kind = block.get("type") if is_object(block) else None
    expect(isinstance(kind, str), f"{where}: a block has the type {kind!r}")
    if not is_object(block):
        return
    for member in _MEMBERS.get(str(kind), ()):
        expect(member in block, f"{where}: a block of the type {kind!r} has no {member}")
    if kind in ("image", "audio"):
        _is_base64(block.get("data"), where)
    if kind == "resource":
        _is_contents(block.get("resource"), where)


def _is_contents(part: JSON, where: str) -> None:
    expect(is_object(part) and isinstance(part.get("uri"), str), f"{where}: contents have no uri")
    if is_object(part):
        expect(("text" in part) != ("blob" in part), f"{where}: contents have {', '.join(sorted(part))}")
        if "blob" in part:
            _is_base64(part["blob"], where)


def _is_base64(data: JSON, where: str) -> None:
    try:
        base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError) as problem:
        expect(False, f"{where}: bytes are not in base64: {problem}")


def _problem(schema: JSONObject, value: JSON) -> str | None:
    """Return what is wrong with a value; None also for a schema that another requirement is about."""
    try:
        found = compile_foreign(schema).check(value)
    except (RegistrationError, RecursionError):
        return None
    return "; ".join(f"{each.path or 'structuredContent'} {each.message}" for each in found[:3]) or None
