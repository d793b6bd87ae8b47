"""The configuration files of hosts, read and not run: what keeps an entry from working there.

Nothing is started. Values of variables never get into a verdict.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from linkspan.client.config import plain_json
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict, fault, skipped, warning
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object

OF_FILES: Final = ("D26", "D27", "D32", "D33", "D35", "D36", "D37", "D38", "D39")
"""The faults that this module looks for."""

SMALL_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""What a program that was not started by a shell has as PATH, on macOS and on Linux."""
_SECTIONS: Final = ("mcpServers", "servers", "mcp_servers", "context_servers")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(:-[^}]*)?\}")
_SCRIPTS: Final = ("npx", "npm", "uvx", "pnpm", "yarn", "bunx")
_PATH_LIKE: Final = re.compile(r"\.{1,2}[/\\]\S*|[^-\s][^\s:]*\.(?:py|js|mjs|ts|sh|json)")


def config(
    file: Path, host: DoctorProfile, *, windows: bool = os.name == "nt", path: str | None = None
) -> Iterator[Verdict]:
    """Yield what a host makes of a file of its own. `path` is the PATH of the person, else that of this process."""
    try:
        data = file.read_bytes()
    except OSError as problem:
        yield fault(
            "D39",
            f"{file.name} cannot be read: {problem.strerror or problem}",
            "let the user who starts the host read it",
        )
        return
    yield from _bytes(data, file, host)
    document = _document(data)
    if document is None:
        yield from (skipped(id, "the file cannot be read") for id in OF_FILES if id not in ("D37", "D38"))
        return
    entries = list(_entries(document, file, host))
    yield from (each for each in entries if isinstance(each, Verdict))
    for each in entries:
        if not isinstance(each, Verdict):
            yield from entry(*each, host, windows=windows, path=path)


def _bytes(data: bytes, file: Path, host: DoctorProfile) -> Iterator[Verdict]:
    whom = (host.title,)
    if data.startswith(b"\xef\xbb\xbf"):
        yield fault("D38", f"{file.name} begins with EF BB BF", "save it as UTF-8 without a BOM", whom)
    else:
        yield Verdict("D38", "ok")
    text = data.decode("utf-8-sig", "replace")
    try:
        json.loads(text)
        yield Verdict("D37", "ok")
    except (ValueError, RecursionError) as problem:
        readable = _document(data) is not None
        if readable and host.json == "comments":
            yield Verdict("D37", "ok")
            return
        what = "comments, or a comma before a closing bracket" if readable else clip(str(problem), 200)
        yield fault("D37", f"{file.name}: {what}", "take them out" if readable else "mend the JSON at that place", whom)


def _document(data: bytes) -> JSONObject | None:
    """Return a file as JSON, with comments or without; None if it is neither."""
    text = data.decode("utf-8-sig", "replace")
    for each in (text, plain_json(text)):
        try:
            found: JSON = json.loads(each)
        except (ValueError, RecursionError):
            continue
        return found if is_object(found) else None
    return None


def _entries(document: JSONObject, file: Path, host: DoctorProfile) -> Iterator[Verdict | tuple[str, JSONObject]]:
    section: JSON = document.get(host.section)
    others = [each for each in _SECTIONS if each != host.section and is_object(document.get(each))]
    if others and not is_object(section):
        cure = f'call the section "{host.section}"'
        yield fault(
            "D36", f'{file.name} has "{others[0]}", and {host.title} reads "{host.section}"', cure, (host.title,)
        )
        section = document[others[0]]
    elif not is_object(section):
        yield fault(
            "D36", f'{file.name} has no "{host.section}"', f'write the entries into "{host.section}"', (host.title,)
        )
        return
    else:
        yield Verdict("D36", "ok")
    for name, each in section.items():
        if is_object(each):
            yield name, each
        else:
            yield fault(
                "D36", f"the entry {name!r} is not an object", "write an object with command or url", (host.title,)
            )


def entry(
    name: str, found: JSONObject, host: DoctorProfile, *, windows: bool, path: str | None = None
) -> Iterator[Verdict]:
    """Yield what a host makes of an entry of its configuration."""
    command, url = found.get("command"), found.get("url", found.get("serverUrl", found.get("httpUrl")))
    yield from _variables(name, found, host)
    if not isinstance(command, str):
        if not isinstance(url, str):
            yield fault("D35", f"the entry {name!r} has neither command nor url", "write one of them", (host.title,))
        elif "url" not in host.reaches:
            cure = "add the server as a connector, or put a bridge in between"
            yield fault(
                "D35", f"the entry {name!r} has a url, and {host.title} starts commands only", cure, (host.title,)
            )
        else:
            yield Verdict("D35", "ok")
        return
    if command.startswith(("http://", "https://")):
        yield fault("D35", f"the command of {name!r} is a URL", 'write it as "url"', (host.title,))
        return
    yield from _transport(name, found, host)
    yield from _program(name, command, host, windows=windows, path=path)
    yield from _paths(name, found, host)


def _transport(name: str, found: JSONObject, host: DoctorProfile) -> Iterator[Verdict]:
    if str(found.get("type", "stdio")) in ("http", "sse", "streamable-http", "streamableHttp"):
        cure = 'leave out "type", or write "url" in the place of "command"'
        yield fault("D35", f"the entry {name!r} has a command and the type {found['type']!r}", cure, (host.title,))
    else:
        yield Verdict("D35", "ok")


def _program(name: str, command: str, host: DoctorProfile, *, windows: bool, path: str | None) -> Iterator[Verdict]:
    if windows and Path(command).stem.lower() in _SCRIPTS and not command.lower().endswith((".cmd", ".exe", ".bat")):
        cure = f'"command": "cmd", "args": ["/c", "{command}", ...]'
        yield fault("D27", f"{name!r} starts {command!r}, which is a script for cmd", cure, (host.title,))
    else:
        yield Verdict("D27", "ok")
    if host.path != "small" or windows or "/" in command:
        missing = shutil.which(command, path=path) is None
        cure = "install it, or write its full path"
        yield (
            fault("D26", f"{name!r}: there is no {command!r}", cure, (host.title,)) if missing else Verdict("D26", "ok")
        )
        return
    if shutil.which(command, path=SMALL_PATH) is not None:
        yield Verdict("D26", "ok")
        return
    full = shutil.which(command, path=path)
    evidence = f"{name!r}: {command!r} is {'on the PATH of your shell only' if full else 'nowhere'}"
    yield fault("D26", evidence, f"write {full}" if full else f"install {command}", (host.title,))


def _paths(name: str, found: JSONObject, host: DoctorProfile) -> Iterator[Verdict]:
    arguments: JSON = found.get("args")
    given = [each for each in arguments if isinstance(each, str)] if is_array(arguments) else []
    relative = [
        each
        for each in given
        if _PATH_LIKE.fullmatch(each) and not Path(each).is_absolute() and not each.startswith("@")
    ]
    if not relative or found.get("cwd"):
        yield Verdict("D32", "ok")
        return
    words = f"{name!r} is given {clip(relative[0], 80)!r}, and {host.title} starts it in another directory"
    yield fault("D32", words, "write the full path", (host.title,))


def _variables(name: str, found: JSONObject, host: DoctorProfile) -> Iterator[Verdict]:
    for where, text in _texts(found, ""):
        for match in _VARIABLE.finditer(text):
            variable, default = match.groups()
            if not host.expands:
                cure = f"write the value, or start the server by a script that sets {variable}"
                yield fault(
                    "D33", f"{name!r}: {host.title} passes {match[0]} in {where} on as it stands", cure, (host.title,)
                )
                return
            if default is None and variable not in os.environ:
                cure = f"set it where {host.title} is started, or write ${{{variable}:-...}}"
                yield warning("D33", f"{name!r}: {where} needs {variable}, which is not set here", cure, (host.title,))
                return
    yield Verdict("D33", "ok")


def _texts(value: JSON, where: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of an entry with the names of the members that have them."""
    if isinstance(value, str):
        yield where, value
    elif is_array(value):
        for each in value:
            yield from _texts(each, where)
    elif is_object(value):
        members: Mapping[str, JSON] = value
        for key, each in members.items():
            yield from _texts(each, key if not where else f"{where}.{key}")


def unread(host: str, home: Path, workspace: Path) -> Iterator[Verdict]:
    """Yield the files that look like those of a host, and that it does not read."""
    elsewhere: Mapping[str, tuple[tuple[Path, str], ...]] = {
        "claude-code": (
            (home / ".claude" / "mcp.json", "write the entries into ~/.claude.json, or .mcp.json of the project"),
            (home / ".claude" / "claude_desktop_config.json", "write the entries into ~/.claude.json"),
            (workspace / ".claude" / "mcp.json", "call it .mcp.json, in the folder of the project"),
        ),
        "cursor": ((workspace / ".cursor" / "settings.json", "write the entries into .cursor/mcp.json"),),
        "vscode": ((workspace / "mcp.json", "put it into the folder .vscode"),),
        "claude-desktop": (
            (home / "claude_desktop_config.json", "move it to the folder that Settings, Developer opens"),
        ),
    }
    found = [(file, cure) for file, cure in elsewhere.get(host, ()) if file.is_file()]
    if not found:
        yield Verdict("D39", "ok")
    for file, cure in found:
        yield fault("D39", f"{file} is there, and not read", cure)
