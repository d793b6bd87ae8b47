"""The manifest of a bundle (.mcpb): what hosts refuse of it. Spec: https://github.com/modelcontextprotocol/mcpb, manifest 0.3."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from linkspan.doctor.verdicts import Verdict, fault
from linkspan.types.base import JSON, JSONObject, is_object

_LARGEST: Final = 1_000_000
"""Bytes of a manifest that are read."""
_REQUIRED: Final = ("name", "version", "description", "author", "server")


def bundle(file: Path) -> Iterator[Verdict]:
    """Yield what is wrong with a bundle, or with its manifest.json alone."""
    try:
        text = _manifest(file)
        found: JSON = json.loads(text)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, RecursionError) as problem:
        yield fault("D51", f"{file.name} has no manifest.json that can be read: {problem}", "pack it anew")
        return
    problems = list(_problems(found)) if is_object(found) else [("it is not an object", "write an object")]
    yield from (fault("D51", *each, ("Claude Desktop",)) for each in problems)
    if not problems:
        yield Verdict("D51", "ok")


def _manifest(file: Path) -> str:
    if file.suffix == ".json":
        return file.read_text("utf-8")
    with zipfile.ZipFile(file) as packed:
        info = packed.getinfo("manifest.json")
        if info.file_size > _LARGEST:
            raise ValueError("it is too large")
        return packed.read(info).decode("utf-8")


def _problems(manifest: JSONObject) -> Iterator[tuple[str, str]]:
    missing = [each for each in _REQUIRED if not manifest.get(each)]
    if missing:
        yield f"{', '.join(missing)} is missing", "add it to manifest.json"
    runtimes: JSON = manifest.get("compatibility", {})
    runtimes = runtimes.get("runtimes") if is_object(runtimes) else None
    python: JSON = runtimes.get("python") if is_object(runtimes) else None
    if isinstance(python, str) and "," in python:
        yield (
            f"compatibility.runtimes.python is {python!r}",
            f"write {python.replace(',', ' ')!r}: versions are parted by spaces",
        )
    server: JSON = manifest.get("server")
    started: JSON = server.get("mcp_config") if is_object(server) else None
    command: JSON = started.get("command") if is_object(started) else None
    if is_object(server) and not isinstance(command, str):
        yield "server.mcp_config has no command", "name the command that starts the server"
    elif command in ("python", "python3") and is_object(server) and server.get("type") == "python":
        yield f"{command} is that of the system, with its packages", 'use "type": "uv", which brings an environment'
