"""Configuration files of hosts: where they lie, and which servers they name. docs/configuration.md tells of each dialect."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.io.entries import AskInput, ConfigEntry, Context, InputWanted, UnusableTarget, why_left_out
from linkspan.types.base import JSON, is_array, is_object

__all__ = ["Configuration", "KnownConfig", "known_configs", "read_config", "read_mapping"]

_SECTIONS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers", "amp.mcpServers")
_OF_AN_ENTRY: Final = frozenset({"command", "cmd", "path", "source", "transport", "url", "httpUrl", "serverUrl", "uri"})
_STRING_OR_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')


class Configuration(dict[str, Mapping[str, Any]]):
    """The servers of a file by name, each of them something that a client takes; and those that were left out, with why."""

    def __init__(self) -> None:
        super().__init__()
        self.left_out: dict[str, str] = {}


class KnownConfig(msgspec.Struct, frozen=True):
    """A configuration file that is there."""

    host: str
    path: Path


def read_config(path: str | Path, *, inputs: AskInput | None = None) -> Configuration:
    """Return the servers of a host's configuration by name: JSON, with comments or without, or Codex's TOML.

    `inputs` is asked for each `${input:ID}` once, when a server is opened that wants it. What is wrong with one entry is
    told when that server is opened. Raises: UnusableTarget for a file that cannot be read or names no servers.
    """
    file = Path(path)
    return _read(file, _toml(file) if file.suffix == ".toml" else _json(file), inputs)


def read_mapping(document: Mapping[str, Any]) -> Configuration | None:
    """Return the servers of a configuration that was read already, or None for what is not a whole one."""
    if isinstance(document, ConfigEntry) or not _OF_AN_ENTRY.isdisjoint(document) or not [*_sections(document)]:
        return None
    return _read(Path("this configuration"), document, None)


def _read(file: Path, document: Mapping[str, JSON], inputs: AskInput | None) -> Configuration:
    context = Context(file, dict(_inputs(document)), inputs)
    found = Configuration()
    for name, entry in _named(file, document):
        why = why_left_out(entry)
        if why is None:
            found[name] = ConfigEntry(entry, name, context)
            found.left_out.pop(name, None)
        elif name not in found:
            found.left_out[name] = why
    return found


def known_configs(
    *, home: Path | None = None, workspace: Path | None = None, platform: str = sys.platform
) -> list[KnownConfig]:
    """Return the configuration files of hosts that are there, those of the workspace first."""
    home = home if home is not None else Path.home()
    workspace = workspace if workspace is not None else Path.cwd()
    places = [(host, workspace / each) for host, each in _IN_WORKSPACE] + list(_at_home(home, platform))
    found: dict[Path, KnownConfig] = {}
    for host, path in places:
        if path.is_file():
            found.setdefault(path, KnownConfig(host, path))
    return list(found.values())


_IN_WORKSPACE: Final = (
    ("Claude Code", ".mcp.json"),
    ("VS Code", ".vscode/mcp.json"),
    ("Cursor", ".cursor/mcp.json"),
    ("Roo Code", ".roo/mcp.json"),
    ("Gemini CLI", ".gemini/settings.json"),
    ("Zed", ".zed/settings.json"),
    ("Codex", ".codex/config.toml"),
    ("this directory", "mcp.json"),
)


def _at_home(home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    data = home / ".config"
    if platform == "darwin":
        data = home / "Library" / "Application Support"
    elif platform == "win32":
        data = home / "AppData" / "Roaming"
    storage = data / "Code" / "User" / "globalStorage"
    yield "Claude Desktop", data / "Claude" / "claude_desktop_config.json"
    yield "Claude Code", home / ".claude.json"
    yield "Cursor", home / ".cursor" / "mcp.json"
    yield "VS Code", data / "Code" / "User" / "mcp.json"
    yield "Cline", storage / "saoudrizwan.claude-dev" / "settings" / "cline_mcp_settings.json"
    yield "Roo Code", storage / "rooveterinaryinc.roo-cline" / "settings" / "mcp_settings.json"
    yield "Windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"
    yield "Gemini CLI", home / ".gemini" / "settings.json"
    yield (
        "Zed",
        (data if platform == "win32" else home / ".config")
        / ("Zed" if platform == "win32" else "zed")
        / "settings.json",
    )
    yield "Codex", home / ".codex" / "config.toml"


# Files.


def _toml(file: Path) -> Mapping[str, JSON]:
    import tomllib

    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} is not valid TOML: {error}") from None


def _json(file: Path) -> Mapping[str, JSON]:
    text = _text(file)
    try:
        found: JSON = json.loads(text)
    except ValueError:
        found = _json_with_comments(file, text)
    except RecursionError:
        raise UnusableTarget(f"{os.fspath(file)!r} is nested too deeply") from None
    if not is_object(found):
        raise UnusableTarget(f"{os.fspath(file)!r} is not a JSON object")
    return found


def _json_with_comments(file: Path, text: str) -> JSON:
    """Read JSON as editors do: comments count as space, and so does a comma before a closing bracket."""
    text = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else _blank(found[0]), text)
    text = _STRING_OR_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} is not valid JSON: {error}") from None


def _blank(text: str) -> str:
    """Keep the lines of what is taken out, so that an error names the right one."""
    return re.sub(r"[^\n]", " ", text)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except OSError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnusableTarget(f"{os.fspath(file)!r} is not UTF-8 text") from None


# Sections.


def _named(file: Path, document: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """Yield the entries of each section that a host would read; a later one replaces an earlier one of its name."""
    sections: list[JSON] = list(_sections(document))
    if (
        not sections
        and document
        and all(is_object(each) and ({"command", "url"} & each.keys()) for each in document.values())
    ):
        sections = [document]
    if not sections:
        raise UnusableTarget(f'{os.fspath(file)!r} has no "mcpServers" (or "servers") object')
    for section in sections:
        if is_object(section):
            yield from section.items()
            continue
        items: list[JSON] = section
        for at, each in enumerate(items):
            name: JSON = each.get("name", each.get("id")) if is_object(each) else None
            yield name if isinstance(name, str) else f"server-{at + 1}", each


def _sections(document: Mapping[str, JSON]) -> Iterator[JSON]:
    for key in _SECTIONS:
        if is_object(document.get(key)) or is_array(document.get(key)):
            yield document[key]
    mcp: JSON = document.get("mcp")
    if is_object(mcp):
        yield mcp["servers"] if is_object(mcp.get("servers")) else mcp
    projects: JSON = document.get("projects")
    here: JSON = projects.get(os.getcwd()) if is_object(projects) else None
    if is_object(here) and is_object(here.get("mcpServers")):
        yield here["mcpServers"]


def _inputs(document: Mapping[str, JSON]) -> Iterator[tuple[str, InputWanted]]:
    mcp: JSON = document.get("mcp")
    listed: JSON = document.get("inputs", mcp.get("inputs") if is_object(mcp) else None)
    for each in listed if is_array(listed) else ():
        if not is_object(each) or not isinstance(each.get("id"), str):
            continue
        options: JSON = each.get("options")
        yield (
            each["id"],
            InputWanted(
                each["id"],
                str(each.get("description") or ""),
                each.get("password") is True,
                tuple(str(one) for one in options) if is_array(options) else (),
                each["default"] if isinstance(each.get("default"), str) else None,
            ),
        )
