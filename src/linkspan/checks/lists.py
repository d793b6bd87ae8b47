"""Requirements on what a server lists: its pages, and each tool, prompt and resource in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from linkspan.checks.findings import NotApplicable, expect, not_applicable
from linkspan.checks.peer import LISTS, CheckedPeer
from linkspan.checks.requirement import requirement
from linkspan.checks.shapes import expect_cacheable, expect_shape
from linkspan.errors import RegistrationError
from linkspan.schema.annotations import HEADER_KEYWORD
from linkspan.schema.validate import check_schema
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)

_PAGES: Final = "server/utilities/pagination"
_TOOLS: Final = "server/tools"
_RESOURCES: Final = "server/resources"
_PROMPTS: Final = "server/prompts"
_CACHING: Final = "server/utilities/caching"
_SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "tools/list": ListToolsResult,
    "prompts/list": ListPromptsResult,
    "resources/list": ListResourcesResult,
    "resources/templates/list": ListResourceTemplatesResult,
}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_EXPRESSION: Final = re.compile(r"\{[+#./;?&]?[A-Za-z0-9_.%]+(?:\*|:\d+)?(?:,[A-Za-z0-9_.%]+(?:\*|:\d+)?)*\}")


def _listed(peer: CheckedPeer) -> Iterator[tuple[str, list[JSONObject]]]:
    """Yield the pages of each list that the server has. Raises: NotApplicable if it has none."""
    found = False
    for method in LISTS:
        try:
            pages = peer.pages(method)
        except NotApplicable:
            continue
        found = True
        yield method, pages
    if not found:
        not_applicable("it has no list")


@requirement("PAG-1", "pages come to an end, and a cursor is a string", _PAGES)
def _cursors(peer: CheckedPeer) -> None:
    found = 0
    for method in LISTS:
        try:
            pages = peer.read_pages(method)
        except NotApplicable:
            continue
        for each in pages[:-1]:
            found += 1
            cursor = each.get("nextCursor")
            expect(isinstance(cursor, str), f"{method}: nextCursor is {cursor!r}")
    if not found:
        not_applicable("each list has one page")


@requirement("PAG-2", "an invalid cursor is refused with -32602", _PAGES, strength="should")
def _odd_cursor(peer: CheckedPeer) -> None:
    for method, _ in _listed(peer):
        peer.ask(method, {"cursor": "linkspan-no-such-cursor"}).expect_refused(-32602)


@requirement("LIST-5", "a list has the shape that its schema says", "schema")
def _shapes(peer: CheckedPeer) -> None:
    for method, pages in _listed(peer):
        for each in pages:
            expect_shape(each, _SHAPES[method], method)


@requirement("LIST-2", "a list that has not changed has the same order", _TOOLS, strength="should")
def _order(peer: CheckedPeer) -> None:
    for method, pages in _listed(peer):
        _, member = LISTS[method]
        again = peer.ask(method).result.get(member)
        expect(_names(again) == _names(pages[0].get(member)), f"two answers to {method} have another order")


@requirement("LIST-4", "no two tools or prompts have one name, and no two resources one URI", _TOOLS, strength="should")
def _unique(peer: CheckedPeer) -> None:
    for method, _ in _listed(peer):
        twice = [name for name, count in Counter(map(_name, peer.items(method))).items() if count > 1]
        expect(not twice, f"{method} has {', '.join(map(repr, twice[:3]))} more than once")


@requirement("TOOL-1", "the input schema of a tool is an object's", _TOOLS)
def _inputs(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        schema = tool.get("inputSchema")
        fine = is_object(schema) and schema.get("type") == "object"
        expect(
            fine,
            f"the inputSchema of {_name(tool)!r} has the type {schema.get('type') if is_object(schema) else schema!r}",
        )


@requirement(
    "TOOL-2", "the name of a tool has 1 to 128 letters, digits, `_`, `-`, `.` and `/`", _TOOLS, strength="should"
)
def _tool_names(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        expect(_TOOL_NAME.fullmatch(_name(tool)) is not None, f"a tool has the name {_name(tool)!r}")


@requirement("TOOL-11", "a tool has a description", _TOOLS, strength="should")
def _described(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        expect(bool(tool.get("description")), f"the tool {_name(tool)!r} has none")


@requirement("JS-2", "the schemas of tools are valid in their dialect", _TOOLS)
def _valid(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        for member in ("inputSchema", "outputSchema"):
            if is_object(schema := tool.get(member)) and not _refers_outside(schema):
                try:
                    check_schema(schema)
                except (RegistrationError, RecursionError) as problem:
                    expect(False, f"the {member} of {_name(tool)!r}: {problem}")


@requirement("JS-3", "a schema has no references to other documents", _TOOLS, strength="should")
def _references(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        for schema in (tool.get("inputSchema"), tool.get("outputSchema")):
            for each in _every(schema):
                target = each.get("$ref")
                expect(
                    not isinstance(target, str) or _SCHEME.match(target) is None,
                    f"{_name(tool)!r} refers to {target!r}",
                )


@requirement("JS-5", "the output schema of a tool is an object's", _TOOLS, eras=("legacy",))
def _outputs(peer: CheckedPeer) -> None:
    for tool in peer.items("tools/list"):
        schema = tool.get("outputSchema")
        fine = schema is None or (is_object(schema) and schema.get("type") == "object")
        expect(fine, f"the outputSchema of {_name(tool)!r} has another type at its root")


@requirement(
    "XH-2", "x-mcp-header is at a member of a simple type, and names each header once", _TOOLS, eras=("modern",)
)
def _headers(peer: CheckedPeer) -> None:
    marked = 0
    for tool in peer.items("tools/list"):
        schema = tool.get("inputSchema")
        reached = [*_reached(schema)]
        marks = [each for each in _every(schema) if HEADER_KEYWORD in each]
        marked += len(marks)
        expect(len(marks) == len(reached), f"{_name(tool)!r} has it where no argument is reached by properties alone")
        names = [str(each.get(HEADER_KEYWORD)).lower() for each in reached]
        expect(len(set(names)) == len(names), f"{_name(tool)!r} names one header twice")
        for each in reached:
            name = each[HEADER_KEYWORD]
            expect(isinstance(name, str) and _TOKEN.fullmatch(name) is not None, f"{_name(tool)!r} names {name!r}")
            expect(
                each.get("type") in ("integer", "string", "boolean"), f"{_name(tool)!r} has it at {each.get('type')!r}"
            )
    if not marked:
        not_applicable("no tool has it")


@requirement("RES-1", "the URI of a resource has a scheme", _RESOURCES)
def _uris(peer: CheckedPeer) -> None:
    for each in peer.items("resources/list"):
        uri = str(each.get("uri"))
        expect(_SCHEME.match(uri) is not None, f"a resource has the URI {uri!r}")


@requirement("RES-8", "a template is one of RFC 6570", _RESOURCES)
def _templates(peer: CheckedPeer) -> None:
    for each in peer.items("resources/templates/list"):
        template = str(each.get("uriTemplate"))
        rest = _EXPRESSION.sub("", template)
        expect("{" not in rest and "}" not in rest, f"a template is {template!r}")


@requirement("PR-1", "the arguments of a prompt have names, and no name twice", _PROMPTS)
def _arguments(peer: CheckedPeer) -> None:
    for prompt in peer.items("prompts/list"):
        arguments = prompt.get("arguments")
        names = [str(each.get("name")) for each in arguments if is_object(each)] if is_array(arguments) else []
        expect(len(set(names)) == len(names), f"the prompt {_name(prompt)!r} has an argument twice")
        expect("" not in names, f"the prompt {_name(prompt)!r} has an argument without a name")


@requirement("ICON-3", "an icon is at https: or in data:", "basic")
def _icons(peer: CheckedPeer) -> None:
    found = 0
    for method, _ in _listed(peer):
        for item in peer.items(method):
            icons = item.get("icons")
            for each in icons if is_array(icons) else ():
                found += 1
                source = str(each.get("src")) if is_object(each) else ""
                expect(urlsplit(source).scheme in ("https", "data"), f"{_name(item)!r} has an icon at {source[:80]!r}")
    if not found:
        not_applicable("there is no icon")


@requirement("ANN-1", "a priority is from 0 to 1, and an audience is of users and assistants", _RESOURCES)
def _annotations(peer: CheckedPeer) -> None:
    found = 0
    for method in ("resources/list", "resources/templates/list"):
        try:
            items = peer.items(method)
        except NotApplicable:
            continue
        for item in items:
            if not is_object(notes := item.get("annotations")):
                continue
            found += 1
            priority, audience = notes.get("priority", 0), notes.get("audience", [])
            fine = isinstance(priority, int | float) and 0 <= priority <= 1
            expect(fine, f"{_name(item)!r} has the priority {priority!r}")
            fine = is_array(audience) and all(each in ("user", "assistant") for each in audience)
            expect(fine, f"{_name(item)!r} has the audience {audience!r}")
    if not found:
        not_applicable("no resource has annotations")


@requirement("CACHE-S1", "a list says for how long and for whom it may be kept", _CACHING, eras=("modern",))
def _caching(peer: CheckedPeer) -> None:
    for method, pages in _listed(peer):
        for each in pages:
            expect_cacheable(each, method)


@requirement("CACHE-S2", "all pages of a list may be kept for the same callers", _CACHING, eras=("modern",))
def _scopes(peer: CheckedPeer) -> None:
    for method, pages in _listed(peer):
        scopes = {str(each.get("cacheScope")) for each in pages}
        expect(len(scopes) == 1, f"pages of {method} have the scopes {', '.join(sorted(scopes))}")


def _name(item: JSONObject) -> str:
    return str(item.get("uri", item.get("uriTemplate", item.get("name"))))


def _names(items: JSON) -> list[str]:
    return [_name(each) for each in items if is_object(each)] if is_array(items) else []


def _every(schema: JSON) -> Iterator[JSONObject]:
    """Yield each object within a schema, and itself."""
    waiting: list[JSON] = [schema]
    while waiting:
        found = waiting.pop()
        if is_object(found):
            yield found
            waiting += found.values()
        elif is_array(found):
            waiting += found


def _refers_outside(schema: JSON) -> str | None:
    """Return a reference of a schema to something outside itself."""
    for each in _every(schema):
        if isinstance(target := each.get("$ref"), str) and _SCHEME.match(target) is not None:
            return target
    return None


def _reached(schema: JSON) -> Iterator[JSONObject]:
    """Yield the marked schemas of arguments that are reached by `properties` alone."""
    waiting: list[JSON] = [schema]
    while waiting:
        found = waiting.pop()
        properties = found.get("properties") if is_object(found) else None
        if not is_object(properties):
            continue
        for each in properties.values():
            if is_object(each):
                waiting.append(each)
                if HEADER_KEYWORD in each:
                    yield each
