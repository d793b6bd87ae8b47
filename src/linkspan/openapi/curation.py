"""Which operations of a document are tools, and how callers see them: a TOML file, which is an allow-list.

    [tools.list_issues]
    operation = "issues/list-for-repo"
    on = true
    hash = "0f3a..."             # of what it was when this was written
    description = "{description} Newest first."
    fix = {owner = "acme"}
    rename = {per_page = "limit"}
    keep = "/*/number,title"

What is not in it, or not on, is not offered; nor is an operation that has changed since.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.contract.tokens import token_words, tokens_of
from linkspan.errors import RegistrationError
from linkspan.openapi.reading import ApiDocument, ApiOperation
from linkspan.openapi.schemas import UnreadableOperation
from linkspan.server.editing import Edit
from linkspan.text import clip, counted, did_you_mean
from linkspan.types.base import JSON

__all__ = ["CuratedTool", "Curation", "CurationChange", "compare_curation", "read_curation", "write_curation"]

MAX_TOOLS: Final = 40
"""Without a curation."""
MAX_TOKENS: Final = 20_000
MAX_BYTES: Final = 4 * 1024 * 1024

CurationSource: TypeAlias = "str | PathLike[str] | Mapping[str, JSON]"
"""The path of a TOML file, or what is in it."""


class CuratedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool of a curation."""

    operation: str
    """Its operationId, or method and path, such as "GET /pets"."""
    on: bool = True
    hash: str | None = None
    """The mark of what the operation was; None accepts what it is."""
    title: str | None = None
    description: str | None = None
    """`{description}` stands for that of the document."""
    fix: dict[str, JSON] = {}
    hide: list[str] = []
    rename: dict[str, str] = {}
    default: dict[str, JSON] = {}
    describe: dict[str, str] = {}
    keep: str | list[str] = []
    tags: list[str] = []
    scopes: list[str] = []

    def edit(self) -> Edit | None:
        """Return what it changes of the tool of its operation, if anything."""
        edit = Edit(
            title=self.title,
            description=self.description,
            fix=self.fix,
            hide=self.hide,
            rename=self.rename,
            default=self.default,
            describe=self.describe,
            keep=self.keep,
        )
        return edit if edit != Edit() else None


class Curation(msgspec.Struct, frozen=True):
    """A file, read: its tools by their names."""

    tools: dict[str, CuratedTool]
    name: str = "the curation"


class CurationChange(msgspec.Struct, frozen=True):
    """One difference between a document and its curation."""

    kind: Literal["changed", "gone", "new", "unreadable"]
    name: str
    """Of the tool, or of the operation that is in no curation."""
    is_on: bool
    detail: str


def read_curation(source: CurationSource) -> Curation:
    """Return a curation. Raises: RegistrationError, which names what is wrong; OSError."""
    if isinstance(source, Mapping):
        return _read(dict(source), "the curation")
    shown = fspath(source)
    path = Path(shown)
    if path.stat().st_size > MAX_BYTES:
        raise RegistrationError(f"{shown} has more than {MAX_BYTES} bytes")
    try:
        return _read(tomllib.loads(path.read_text("utf-8")), shown)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RegistrationError(f"{shown} is not valid TOML: {clip(str(problem), 200)}") from None


def _read(found: Mapping[str, JSON], name: str) -> Curation:
    if extra := [each for each in found if each != "tools"]:
        raise RegistrationError(f"{name} has {extra[0]!r}: a curation has tables [tools.NAME] only")
    try:
        tools = msgspec.convert(found.get("tools", {}), dict[str, CuratedTool])
    except msgspec.ValidationError as problem:
        raise RegistrationError(f"{name}: {problem}") from None
    return Curation(tools, name)


def curated(document: ApiDocument, curation: Curation) -> tuple[list[tuple[str, CuratedTool, ApiOperation]], list[str]]:
    """Return the tools that are on, with their operations, and why others are off."""
    found: list[tuple[str, CuratedTool, ApiOperation]] = []
    off: list[str] = []
    for name, tool in curation.tools.items():
        if not tool.on:
            continue
        own = document.named(tool.operation)
        if own is None:
            near = did_you_mean(tool.operation, list(document.keys)[:2_000])
            off.append(f"{name}: the document has no operation {tool.operation!r}{near}")
            continue
        try:
            operation = document.operation(own)
        except UnreadableOperation as problem:
            off.append(f"{name}: {problem}")
            continue
        if tool.hash is not None and tool.hash != operation.mark:
            off.append(
                f"{name}: {tool.operation!r} has changed since it was chosen; look at it, and write hash = {operation.mark!r}"
            )
        else:
            found.append((name, tool, operation))
    return found, off


def chosen(document: ApiDocument, shown: str) -> list[ApiOperation]:
    """Return the operations that are tools without a curation: those that read. Raises: RegistrationError for too many."""
    reading = [name for name in document.keys if document.facts(name)[0] in ("GET", "HEAD")]
    found = document.readable(reading) if len(reading) <= MAX_TOOLS else []
    tokens = sum(tokens_of(each.shown) for each in found)
    if len(reading) > MAX_TOOLS or tokens > MAX_TOKENS:
        many = f"{len(reading)} operations that read" if len(reading) > MAX_TOOLS else f"tools of ~{tokens:,} tokens"
        raise RegistrationError(
            f"{document.title} has {many}, and a model works with {MAX_TOOLS} tools and {MAX_TOKENS:,} tokens at most: choose, "
            f"with `linkspan openapi init {shown} -o api.toml`, and pass curation='api.toml'"
        )
    return found


def write_curation(document: ApiDocument, shown: str) -> str:
    """Return a curation that lists all operations of a document with what each costs: those that read are on."""
    lines: list[str] = []
    on = tokens = 0
    for each in document.readable(document.keys):
        cost = tokens_of(each.shown)
        if each.reads:
            on, tokens = on + 1, tokens + cost
        lines += [
            "",
            f"[tools.{_toml_key(each.name)}]  # {each.method} {_comment(each.path)}, ~{cost:,} tokens",
            f"# {_comment(each.title or each.description.partition(chr(10))[0])}",
            f"operation = {_toml_text(each.key)}",
            f"on = {'true' if each.reads else 'false'}",
            f"hash = {_toml_text(each.mark)}",
        ]
    head = [
        f"# Tools of {_comment(document.title)} {_comment(document.version)}, from {_comment(shown)}.",
        f"# On: {counted(on, 'tool')}, {token_words(tokens)} in each conversation. Off is what does not say `on = true`.",
        "# Each table may have title, description, fix, hide, rename, default, describe, keep, tags and scopes.",
    ]
    head += [f"# Left out: {_comment(each)}" for each in document.left_out]
    return "\n".join([*head, *lines]) + "\n"


def _comment(text: str) -> str:
    return clip(" ".join(text.split()), 110)


def _toml_key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _toml_text(text)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def compare_curation(document: ApiDocument, curation: Curation) -> Sequence[CurationChange]:
    """Return what changed in a document since its curation was written."""
    found: list[CurationChange] = []
    known: set[str] = set()
    for name, tool in curation.tools.items():
        own = document.named(tool.operation)
        if own is None:
            found.append(CurationChange("gone", name, tool.on, f"there is no operation {tool.operation!r} any more"))
            continue
        known.add(own)
        try:
            mark = document.operation(own).mark
        except UnreadableOperation as problem:
            found.append(CurationChange("unreadable", name, tool.on, str(problem)))
            continue
        if tool.hash is not None and tool.hash != mark:
            found.append(
                CurationChange("changed", name, tool.on, f"write hash = {_toml_text(mark)} if it is still right")
            )
    for name, (method, path) in document.keys.items():
        if name not in known:
            found.append(CurationChange("new", name, False, f"{method} {clip(path, 100)}"))
    return found
