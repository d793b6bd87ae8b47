"""`linkspan list TARGET [tools|resources|templates|prompts]...`: what a server offers, for people who want to use it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from linkspan.cli.options import CommandLine
from linkspan.cli.session import REFUSED, Outcome, Session, describe
from linkspan.cli.terminal import Style
from linkspan.client.sync_client import SyncClient
from linkspan.flows.client_errors import ServerError
from linkspan.schema.summary import default_words, properties_of, required_of, size_words, type_words
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.redaction import neutral, one_line
from linkspan.wire.values import to_builtins

__all__ = ["main"]

_EXAMPLES = """examples:
  linkspan list examples/dice.py
  linkspan list "npx -y some-server" tools --long
  linkspan list mcp.json:files tools --json | jq -r '.tools[].name'"""

_ASK: Final[dict[str, Callable[[SyncClient], Sequence[object]]]] = {
    "tools": SyncClient.list_tools,
    "resources": SyncClient.list_resources,
    "templates": SyncClient.list_resource_templates,
    "prompts": SyncClient.list_prompts,
}
_MEMBER: Final = {"templates": "resourceTemplates"}


def main(arguments: Sequence[str]) -> int:
    """List what a server offers."""
    line = CommandLine("list", arguments, "Show what a server offers, and how to use it.", _EXAMPLES)
    line.add(
        "kinds",
        metavar="KIND",
        nargs="*",
        help="tools, resources, templates or prompts; all that the server has if none is named",
    )
    line.add("--long", action="store_true", help="whole descriptions and schemas")
    options = line.parse()
    session = Session(options)
    if unknown := [each for each in options.own.kinds if each not in _ASK]:
        return session.wrong(f"there is no list of {unknown[0]!r}: choose from {', '.join(_ASK)}")
    return session.run(_list)


def _list(session: Session) -> Outcome:
    client = session.connect()
    own = session.options.own
    kinds: list[str] = list(dict.fromkeys(own.kinds)) or _declared(client)
    document: JSONObject = {}
    errors: JSONObject = {}
    for kind in kinds:
        try:
            document[_MEMBER.get(kind, kind)] = to_builtins(_ASK[kind](client))
        except ServerError as error:
            if len(kinds) == 1:
                raise
            errors[_MEMBER.get(kind, kind)] = describe(error)
            session.note(neutral(str(error)))
    document |= {"errors": errors} if errors else {}
    show = partial(_show, server=session.client.name, asked=bool(own.kinds), long=own.long)
    return Outcome(document, show, REFUSED if errors else 0)


def _declared(client: SyncClient) -> list[str]:
    offers = client.server_capabilities
    if offers is None:
        return list(_ASK)
    has = {
        "tools": offers.tools,
        "resources": offers.resources,
        "templates": offers.resources,
        "prompts": offers.prompts,
    }
    return [kind for kind, offer in has.items() if offer is not None]


def _show(found: JSONObject, style: Style, *, server: str, asked: bool, long: bool) -> str:
    parts: list[str] = []
    for kind, show in _SHOW.items():
        items: JSON = found.get(_MEMBER.get(kind, kind))
        if items:
            parts.append(
                "\n\n".join([style.cyan(f"{kind} ({len(items)})"), *(_item(show, each, style, long) for each in items)])
            )
        elif asked and items is not None:
            parts.append(f"{style.cyan(kind)}: none")
    return "\n\n".join(parts) or f"{server} offers no tools, resources or prompts"


def _item(show: Any, item: JSONObject, style: Style, long: bool) -> str:
    return "\n".join(f"  {line}" for line in show(item, style, long))


# One of each kind: a list of lines.


def _tool(tool: JSONObject, style: Style, long: bool) -> Iterator[str]:
    hints: JSON = tool.get("annotations") or {}
    yield _head(tool["name"], tool.get("title") or hints.get("title"), _hints(hints), style)
    yield from _description(tool, long)
    schema: JSON = tool.get("inputSchema")
    if long:
        yield from _json("input", schema, style)
        yield from _json("output", tool.get("outputSchema"), style)
        return
    needed = required_of(schema)
    rows = [_parameter(name, each, schema, needed=name in needed) for name, each in properties_of(schema).items()]
    yield from _aligned(rows, style)
    if "outputSchema" in tool:
        yield f"  {style.dim('returns')} {_returned(tool['outputSchema'])}"


def _resource(resource: JSONObject, style: Style, long: bool) -> Iterator[str]:
    size: JSON = resource.get("size")
    facts = [str(each) for each in (resource.get("mimeType"), f"{size} bytes" if size is not None else None) if each]
    yield _head(
        resource.get("uri") or resource.get("uriTemplate"), resource.get("title") or resource.get("name"), facts, style
    )
    yield from _description(resource, long)


def _prompt(prompt: JSONObject, style: Style, long: bool) -> Iterator[str]:
    yield _head(prompt["name"], prompt.get("title"), [], style)
    yield from _description(prompt, long)
    parameters: list[JSONObject] = prompt.get("arguments") or []
    rows = [
        (
            each["name"],
            "required" if each.get("required") else "",
            one_line(each.get("description") or each.get("title") or ""),
        )
        for each in parameters
    ]
    yield from _aligned(rows, style)


_SHOW: Final = {"tools": _tool, "resources": _resource, "templates": _resource, "prompts": _prompt}


# Their parts.


def _head(name: JSON, title: JSON, facts: Sequence[str], style: Style) -> str:
    words = [style.bold(one_line(str(name)))]
    if title and title != name:
        words.append(f"- {one_line(str(title))}")
    if facts:
        words.append(style.dim(f"[{one_line(', '.join(facts))}]"))
    return " ".join(words)


def _hints(hints: JSONObject) -> list[str]:
    words = {"readOnlyHint": "read-only", "destructiveHint": "destructive", "idempotentHint": "idempotent"}
    return [word for name, word in words.items() if hints.get(name) is True]


def _description(item: JSONObject, long: bool) -> Iterator[str]:
    """The first line is what it is about; the rest is for those who ask for it."""
    lines = str(item.get("description") or "").strip().split("\n")
    for line in lines if long else lines[:1]:
        if line or long:
            yield f"  {line}".rstrip()


def _parameter(name: str, schema: JSON, root: JSON, *, needed: bool) -> tuple[str, str, str]:
    words = f"{type_words(schema, root)}{default_words(schema)}"
    size = size_words(schema)
    about: JSON = schema.get("description") if is_object(schema) else None
    facts = ", ".join(each for each in (words, "required" if needed else "", size) if each)
    return name, one_line(facts), one_line(str(about or ""))


def _aligned(rows: Sequence[tuple[str, str, str]], style: Style) -> Iterator[str]:
    """Return rows in columns, as far as they are not too wide for that."""
    first = min(max((len(name) for name, _, _ in rows), default=0), 24)
    second = min(max((len(facts) for _, facts, _ in rows), default=0), 36)
    for name, facts, about in rows:
        yield f"  {one_line(name):<{first}}  {style.dim(f'{facts:<{second}}')}  {about}".rstrip()


def _returned(schema: JSON) -> str:
    """A value that had to be wrapped into an object is shown as it was."""
    members = properties_of(schema)
    inner = members["result"] if list(members) == ["result"] else schema
    return one_line(type_words(inner, schema), 120)


def _json(label: str, schema: JSON, style: Style) -> Iterator[str]:
    if schema is not None:
        yield f"  {style.dim(f'{label}:')}"
        yield textwrap.indent(json.dumps(schema, indent=2, ensure_ascii=False), "    ").replace("\n", "\n  ")
