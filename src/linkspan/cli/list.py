"""`linkspan list TARGET [tools|resources|templates|prompts]...`: show what a server offers, and how to use it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

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
_CAPABILITY: Final = {"templates": "resources"}
_HINTS: Final = {"readOnlyHint": "read-only", "destructiveHint": "destructive", "idempotentHint": "idempotent"}


def main(arguments: Sequence[str]) -> int:
    """List what a server offers."""
    line = CommandLine("list", arguments, "Show what a server offers, and how to use it.", _EXAMPLES)
    line.add(
        "kinds",
        metavar="KIND",
        nargs="*",
        help="tools, resources, templates or prompts (default: all that the server declares)",
    )
    line.add("--long", action="store_true", help="whole descriptions and schemas")
    options = line.parse()
    session = Session(options)
    if unknown := [each for each in options.own.kinds if each not in _ASK]:
        return session.wrong(f"unknown kind {unknown[0]!r}: choose from {', '.join(_ASK)}")
    return session.run(_list)


def _list(session: Session) -> Outcome:
    client = session.connect()
    own = session.options.own
    offers = client.server_capabilities
    kinds: list[str] = list(dict.fromkeys(own.kinds)) or [
        kind for kind in _ASK if offers is None or getattr(offers, _CAPABILITY.get(kind, kind)) is not None
    ]
    document: JSONObject = {}
    errors: JSONObject = {}
    for kind in kinds:
        try:
            document[_MEMBER.get(kind, kind)] = to_builtins(_ASK[kind](client))
        except ServerError as error:
            if len(kinds) == 1:
                raise
            errors[_MEMBER.get(kind, kind)] = describe(error)
            session.warn(neutral(str(error)))
    document |= {"errors": errors} if errors else {}
    show = partial(_show, server=session.client.name, asked=bool(own.kinds), long=own.long)
    return Outcome(document, show, REFUSED if errors else 0)


def _show(found: JSONObject, style: Style, *, server: str, asked: bool, long: bool) -> str:
    parts: list[str] = []
    for kind, show in _SHOW.items():
        items: JSON = found.get(_MEMBER.get(kind, kind))
        if items:
            blocks = [textwrap.indent("\n".join(show(each, style, long)), "  ", lambda _: True) for each in items]
            parts.append("\n\n".join([style.cyan(f"{kind} ({len(items)})"), *blocks]))
        elif asked and items is not None:
            parts.append(f"{style.cyan(kind)}: none")
    return "\n\n".join(parts) or f"{server} offers no tools, resources or prompts"


# One of each kind: a list of lines.


def _tool(tool: JSONObject, style: Style, long: bool) -> Iterator[str]:
    annotations: JSON = tool.get("annotations") or {}
    hints = [word for name, word in _HINTS.items() if annotations.get(name) is True]
    yield _head(tool["name"], tool.get("title") or annotations.get("title"), hints, style)
    yield from _description(tool, long)
    schema: JSON = tool.get("inputSchema")
    if long:
        yield from _json("input", schema, style)
        yield from _json("output", tool.get("outputSchema"), style)
        return
    needed = required_of(schema)
    rows: list[tuple[str, str, str]] = []
    for name, each in properties_of(schema).items():
        words = f"{type_words(each, schema)}{default_words(each)}"
        facts = ", ".join(filter(None, (words, "required" if name in needed else "", size_words(each))))
        about: JSON = each.get("description") if is_object(each) else None
        rows.append((name, one_line(facts), one_line(str(about or ""))))
    yield from _aligned(rows, style)
    if "outputSchema" in tool:
        output: JSON = tool["outputSchema"]
        members = properties_of(output)
        inner = members["result"] if list(members) == ["result"] else output  # wrapped, since a result is an object
        yield f"  {style.dim('returns')} {one_line(type_words(inner, output), 120)}"


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


def _description(item: JSONObject, long: bool) -> Iterator[str]:
    """Return the first line of a description, or all of it."""
    lines = str(item.get("description") or "").strip().split("\n")
    for line in lines if long else lines[:1]:
        if line or long:
            yield f"  {line}".rstrip()


def _aligned(rows: Sequence[tuple[str, str, str]], style: Style) -> Iterator[str]:
    """Return rows in columns; a cell that is too wide pushes the next ones to the right."""
    first = min(max((len(name) for name, _, _ in rows), default=0), 24)
    second = min(max((len(facts) for _, facts, _ in rows), default=0), 36)
    for name, facts, about in rows:
        yield f"  {one_line(name):<{first}}  {style.dim(f'{facts:<{second}}')}  {about}".rstrip()


def _json(label: str, schema: JSON, style: Style) -> Iterator[str]:
    if schema is not None:
        yield f"  {style.dim(f'{label}:')}"
        yield textwrap.indent(json.dumps(schema, indent=2, ensure_ascii=False), "    ")
