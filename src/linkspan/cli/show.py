"""How a server is shown to people: results and progress as text, events as lines for stderr, and bytes as files.

Laws: results are JSON that is neutralised already, and become text for stdout; a server chooses neither the directory of a file
nor a name that points outside it.
"""

from __future__ import annotations

import binascii
import json
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from linkspan.cli.options import WrongUse
from linkspan.cli.terminal import Style, dump, milliseconds
from linkspan.client.sync_client import SyncClient
from linkspan.flows.client_errors import ClientEvent, Connected, Disconnected, StreamRestored
from linkspan.flows.saving import suffix_of
from linkspan.revisions import REVISIONS
from linkspan.schema.summary import default_words, properties_of, required_of, size_words, type_words
from linkspan.types.base import JSON, Implementation, JSONObject, is_array, is_object
from linkspan.types.messages import LoggingMessageParams, ProgressParams
from linkspan.wire.redaction import neutral, one_line

if TYPE_CHECKING:
    from linkspan.flows.http_messages import HttpHop

Saver = Callable[[JSONObject], str]
"""Stores a block's bytes; returns the words about that."""

_WIDE: Final = 100


def show_result(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return a tool's result: its content, and its structured content if there is no text."""
    blocks: JSON = result.get("content")
    shown = [show_block(each, style, save) for each in (blocks if is_array(blocks) else [])]
    has_text = any(is_object(each) and each.get("type") == "text" for each in (blocks if is_array(blocks) else []))
    if not has_text and "structuredContent" in result:
        shown.append(show_json(result["structuredContent"]))
    return "\n".join(shown)


def show_messages(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return a prompt's messages, each under its role."""
    messages: JSON = result.get("messages")
    parts: list[str] = []
    for each in messages if is_array(messages) else []:
        if is_object(each):
            block = textwrap.indent(show_block(each.get("content"), style, save), "  ")
            parts.append(style.cyan(f"{each.get('role')}:") + f"\n{block}")
    return "\n\n".join(parts)


def show_contents(result: JSON, style: Style, save: Saver | None = None) -> str:
    """Return a resource's contents; of more than one each with its URI."""
    contents: JSON = result.get("contents")
    found = [each for each in (contents if is_array(contents) else []) if is_object(each)]
    if len(found) == 1:
        return _content(found[0], style, save)
    return "\n\n".join(f"{style.cyan(str(each.get('uri')))}\n{_content(each, style, save)}" for each in found)


def show_block(block: JSON, style: Style, save: Saver | None = None) -> str:
    """Return one content block."""
    if not is_object(block):
        return show_json(block)
    match block.get("type"):
        case "text":
            return str(block.get("text"))
        case "image" | "audio":
            return _described(block, style, save)
        case "resource" if is_object(block.get("resource")):
            inner: JSONObject = block["resource"]
            head = style.dim(f"[resource {inner.get('uri')}{_kind(inner)}]")
            return f"{head}\n{_content(inner, style, save)}" if "text" in inner else _content(inner, style, save)
        case "resource_link":
            words = [str(block.get("title") or block.get("name")), str(block.get("mimeType") or "")]
            return style.dim(f"[link {block.get('uri')}: {', '.join(each for each in words if each)}]")
        case _:
            return show_json(block)


def show_json(value: JSON) -> str:
    """Return JSON on one line if it fits there."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _WIDE else json.dumps(value, ensure_ascii=False, indent=2)


def _content(contents: JSONObject, style: Style, save: Saver | None) -> str:
    text: JSON = contents.get("text")
    return text if isinstance(text, str) else _described(contents, style, save)


def _described(block: JSONObject, style: Style, save: Saver | None) -> str:
    """Describe bytes: they are for files, not for terminals."""
    what = block.get("type") or f"blob {block.get('uri')}"
    data: JSON = block.get("data", block.get("blob"))
    size = len(data.rstrip("=")) * 3 // 4 if isinstance(data, str) else 0
    kept = f", {save(block)}" if save is not None else ""
    return style.dim(f"[{one_line(str(what))}{_kind(block)}, {size} byte{'s' * (size != 1)}{kept}]")


def _kind(block: JSONObject) -> str:
    found: JSON = block.get("mimeType")
    return f": {one_line(found)}" if isinstance(found, str) else ""


def saver(directory: str | None, stem: str) -> Saver | None:
    """Return what writes a block's bytes to a new file in `directory`, made when needed; None without a directory.

    A block without a name of its own is called `stem`. Nothing is overwritten. The function raises WrongUse.
    """
    if directory is None:
        return None
    folder, fallback = Path(directory), _safe(stem)

    def save(block: JSONObject) -> str:
        data = decoded(block.get("data", block.get("blob")))
        if data is None:
            return "not saved: the data is not valid base64"
        uri: JSON = block.get("uri")
        mime: JSON = block.get("mimeType")
        name = Path(_safe(uri.rstrip("/").rpartition("/")[2]) if isinstance(uri, str) else fallback)
        suffix = name.suffix or suffix_of(mime if isinstance(mime, str) else None)
        for number in range(1, 10_000):
            path = folder / f"{name.stem or fallback}-{number}{suffix}"
            if not path.exists():
                write_file(path, data)
                return f"saved as {path}"
        raise WrongUse(f"{folder} has too many files with this name; choose another directory")

    return save


def decoded(text: JSON) -> bytes | None:
    """Return the bytes of a base64 text, or None if it is invalid."""
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def write_file(path: Path, data: bytes) -> None:
    """Write a file and the directories it needs. Raises: WrongUse."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as problem:
        raise WrongUse(f"{path} cannot be written: {problem.strerror or problem}") from None


def _safe(name: str) -> str:
    """Return a name of letters, digits, dots, dashes and underscores: not hidden, without a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-") or "file"


_BAR: Final = 20


def progress_line(found: ProgressParams, columns: int) -> str:
    """Return the line for a terminal of this width; it never wraps."""
    if not found.total or found.total < 0:
        return cut(f"... {progress_words(found)}", columns - 1)
    share = min(max(found.progress / found.total, 0.0), 1.0)
    filled = round(share * _BAR)
    return cut(f"[{'#' * filled}{'-' * (_BAR - filled)}] {share:4.0%}  {progress_words(found)}", columns - 1)


def progress_words(found: ProgressParams) -> str:
    """Return the progress in words: `2/5  packing`."""
    count = _number(found.progress) + (f"/{_number(found.total)}" if found.total is not None else "")
    message = one_line(found.message or "")
    return f"{count}  {message}" if message else count


def cut(text: str, cells: int) -> str:
    """Return as much of a text as fits into this many cells of a terminal."""
    used = 0
    for at, each in enumerate(text):
        used += 0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if used > cells:
            return text[:at]
    return text


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


# What a server offers.


_LISTS: Final = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
_HINTS: Final = {"readOnlyHint": "read-only", "destructiveHint": "destructive", "idempotentHint": "idempotent"}


def show_lists(found: JSON, style: Style, *, server: str, asked: bool, long: bool) -> str:
    """Return the tools, resources, templates and prompts of a server. `asked`: an empty list is shown too."""
    parts: list[str] = []
    for kind, member in _LISTS.items():
        items: JSON = found.get(member)
        if items:
            blocks = [textwrap.indent("\n".join(_item(each, style, long)), "  ", lambda _: True) for each in items]
            parts.append("\n\n".join([style.cyan(f"{kind} ({len(items)})"), *blocks]))
        elif asked and items is not None:
            parts.append(f"{style.cyan(kind)}: none")
    return "\n\n".join(parts) or f"{server} offers no tools, resources or prompts"


def _item(item: JSONObject, style: Style, long: bool) -> Iterator[str]:
    """Return the lines for a tool, a resource, a template or a prompt; of its description the first, or all."""
    hints: JSON = item.get("annotations") or {}
    size: JSON = item.get("size")
    name: str = item.get("uri") or item.get("uriTemplate") or item["name"]
    title: JSON = item.get("title") or hints.get("title") or item["name"]
    facts = [word for hint, word in _HINTS.items() if hints.get(hint) is True]
    facts += [str(each) for each in (item.get("mimeType"), f"{size} bytes" if size is not None else None) if each]
    note = style.dim(f"[{one_line(', '.join(facts))}]") if facts else ""
    yield (
        style.bold(one_line(name))
        + (f" - {one_line(str(title))}" if title != name else "")
        + (f" {note}" if note else "")
    )
    description = str(item.get("description") or "").strip().split("\n")
    yield from (f"  {line}".rstrip() for line in (description if long else description[:1]) if line or long)
    for label, schema in (("input", item.get("inputSchema")), ("output", item.get("outputSchema"))) if long else ():
        if schema is not None:
            yield f"  {style.dim(f'{label}:')}"
            yield textwrap.indent(json.dumps(schema, indent=2, ensure_ascii=False), "    ")
    rows = _parameters(item, long)
    first = min(max((len(name) for name, _, _ in rows), default=0), 24)
    second = min(max((len(facts) for _, facts, _ in rows), default=0), 36)
    for name, shown, about in rows:  # a cell that is too wide pushes the next ones to the right
        yield f"  {one_line(name):<{first}}  {style.dim(f'{shown:<{second}}')}  {one_line(about)}".rstrip()
    output: JSON = item.get("outputSchema")
    if output is not None and not long:
        members = properties_of(output)
        inner = members["result"] if list(members) == ["result"] else output  # wrapped, since a result is an object
        yield f"  {style.dim('returns')} {one_line(type_words(inner, output), 120)}"


def _parameters(item: JSONObject, long: bool) -> list[tuple[str, str, str]]:
    """Return the arguments of a tool or a prompt: the name, what may be given, and what it is for."""
    if "inputSchema" not in item:
        given: list[JSONObject] = item.get("arguments") or []
        about = (each.get("description") or each.get("title") or "" for each in given)
        return [(each["name"], "required" if each.get("required") else "", next(about)) for each in given]
    schema: JSON = item["inputSchema"]
    rows: list[tuple[str, str, str]] = []
    for name, each in properties_of(schema).items() if not long else ():
        needed = "required" if name in required_of(schema) else ""
        words = (f"{type_words(each, schema)}{default_words(each)}", needed, size_words(each))
        rows.append(
            (name, one_line(", ".join(filter(None, words))), str((is_object(each) and each.get("description")) or ""))
        )
    return rows


def show_ping(found: JSON, style: Style) -> str:
    """Return what a server is, and how long its answers took."""
    info: JSONObject = found.get("serverInfo") or {}
    name = f"{info.get('name', 'a server without a name')} {info.get('version', '')}".strip()
    title = f" ({info['title']})" if info.get("title") else ""
    offers: list[str] = []
    for capability, about in found["capabilities"].items():
        details = [key for key, value in about.items() if value is not False] if is_object(about) else []
        offers.append(f"{capability} ({', '.join(details)})" if details else capability)
    rows = {
        "protocol": f"{found['protocolVersion']} ({found['era']})",
        "offers": ", ".join(offers) or "nothing",
        "instructions": str(found.get("instructions") or "").replace("\n", "\n" + " " * 16),
        "connected in": milliseconds(found["connectSeconds"]),
        "round trips": ", ".join(milliseconds(each) for each in found["pingSeconds"]),
    }
    lines = [f"  {style.dim(f'{label:<12}')}  {value}" for label, value in rows.items() if value]
    return "\n".join([style.bold(name) + title, *lines])


def show_task(found: JSON, style: Style) -> str:
    """Return the state of a task."""
    seconds = {
        name: found[f"{name}Ms"] / 1000 for name in ("ttl", "pollInterval") if found.get(f"{name}Ms") is not None
    }
    error: JSONObject = found.get("error") or {}
    rows = {
        "message": found.get("statusMessage"),
        "error": f"{error['message']} ({error['code']})" if error else None,
        "asks for": ", ".join(found.get("inputRequests") or ()),
        "created": found.get("createdAt"),
        "changed": found.get("lastUpdatedAt"),
        "kept for": f"{seconds['ttl']:g} s" if "ttl" in seconds else None,
        "poll every": f"{seconds['pollInterval']:g} s" if "pollInterval" in seconds else None,
    }
    lines = [f"  {style.dim(f'{label:<12}')}  {value}" for label, value in rows.items() if value]
    return "\n".join([f"{style.bold(str(found['taskId']))} {found['status']}", *lines])


class Lines:
    """Joins pieces of text and passes on whole lines."""

    def __init__(self, receive_line: Callable[[str], object]) -> None:
        self._receive_line = receive_line
        self._pieces: list[str] = []
        """The line that is not complete. It is joined once, since a piece may be a single character."""

    def add(self, text: str) -> None:
        """Take a piece."""
        first, *others = text.split("\n")
        self._pieces.append(first)
        for each in others:
            self._receive_line(self._taken().removesuffix("\r"))
            self._pieces.append(each)

    def end(self) -> None:
        """Pass on the rest without an end of line."""
        if rest := self._taken():
            self._receive_line(rest)

    def _taken(self) -> str:
        line = "".join(self._pieces)
        self._pieces.clear()
        return line


def called(name: str, info: Implementation | None) -> str:
    """Return the names of a server for its user: the configured one, and the one it declares (ELI-8)."""
    own = one_line(info.title or info.name, 60) if info is not None else ""
    return name if own in ("", name) else f"{name} ({own})"


def introduction(client: SyncClient, seconds: float) -> str:
    """Return which server was started, how long that took, and the agreed revision."""
    info = client.server_info
    name = one_line(f"{info.name} {info.version}" if info is not None else client.name, 80)
    version = client.protocol_version or ""
    return f"{name}: started in {milliseconds(seconds)}, speaks {version} ({REVISIONS[version].era})"


def hop_words(hop: HttpHop) -> str:
    """Return a request over HTTP with the headers of both sides, each on a line of its own."""
    ended = str(hop.status) if hop.status else f"no response: {one_line(hop.problem, 200)}"
    lines = [f"{hop.method} {one_line(hop.url)} {ended}, {milliseconds(hop.seconds)}"]
    for arrow, headers in ((">", hop.sent), ("<", hop.received)):
        lines += [f"  {arrow} {one_line(name)}: {one_line(value, 200)}" for name, value in headers.items()]
    return "\n".join(lines)


def log_words(server: str, message: LoggingMessageParams) -> str:
    """Return a log message of the server with its level."""
    data = message.data if isinstance(message.data, str) else dump(message.data, None)
    logger = f" {one_line(message.logger)}" if message.logger else ""
    return f"{server}: log {message.level}{logger}: {neutral(data)}"


def event_words(event: ClientEvent) -> str:
    """Return the line for a server that connected, disconnected or came back."""
    match event:
        case Connected():
            words = f"connected, {event.revision}"
        case Disconnected():
            words = f"disconnected: {one_line(event.error.problem)}"
        case StreamRestored():
            words = f"listening again, after the stream was lost: {one_line(event.error.problem)}"
        case _:
            words = "connected again; its state in memory is lost"
    return f"{event.server}: {words}"
