"""Which SDK a program was written for: decided by its imports and its words, or by hand.

Names that both versions of `mcp` have (such as `mcp.types.Tool`) differ between them. The first module that only one version has
decides; where a name that both have comes first, the sources of the package that imports it are read for words that only one
version has.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, Literal, TypeAlias

__all__ = ["ChosenFlavour", "FastVersion", "SdkVersion", "choose", "chosen", "fast_version", "sdk_version"]

SdkVersion: TypeAlias = Literal["1", "2"]
FastVersion: TypeAlias = Literal["2", "3", "4"]

_ONE: Final = re.compile(
    r"mcp\.server\.fastmcp|mcp\.shared\.context\b|\bMcpError\b|\bstreamablehttp_client\b|\b(?:inputSchema|isError|mimeType|"
    r"structuredContent|readOnlyHint|serverInfo)\b\s*=?|"
    r"\.(?:list_tools|call_tool|list_resources|list_prompts|read_resource)\(\)\s*\n\s*async def"
)
_TWO: Final = re.compile(
    r"mcp\.server\.mcpserver|\bMCPServer\b|\bMCPError\b|\bmcp_types\b|\bServerRequestContext\b|\bon_(?:list_tools|call_tool|"
    r"list_resources|list_prompts)\b|\b(?:input_schema|is_error|structured_content|read_only_hint|server_info)\b\s*="
)
_MAX_FILES: Final = 400
_MAX_BYTES: Final = 4 * 1024 * 1024
_NEWEST: Final[FastVersion] = "4"


class ChosenFlavour:
    """What was chosen for this process so far."""

    def __init__(self) -> None:
        self.sdk: SdkVersion | None = None
        self.fast: FastVersion | None = None
        self.by_hand = False


chosen: Final = ChosenFlavour()


def choose(name: str) -> None:
    """Take a flavour by hand, as `--as` and the environment variable do: mcp1, mcp2, mcp, fastmcp2, fastmcp3, fastmcp4, fastmcp.

    Raises: ValueError for any other.
    """
    found = re.fullmatch(r"(mcp|fastmcp)([0-9]?)", name)
    if found is None or found[2] not in (("", "1", "2") if found[1] == "mcp" else ("", "2", "3", "4")):
        raise ValueError(f"there is no flavour {name!r}: use mcp, mcp1, mcp2, fastmcp, fastmcp2, fastmcp3 or fastmcp4")
    number = found[2]
    chosen.by_hand = bool(number)
    if found[1] == "mcp":
        chosen.sdk = "1" if number == "1" else "2" if number == "2" else None
    elif number:
        chosen.fast = "2" if number == "2" else "3" if number == "3" else "4"
        chosen.sdk = "2" if number == "4" else "1"


def decided_by(module_version: str) -> None:
    """Note that a module was imported that only one version has."""
    if chosen.sdk is None and module_version in ("1", "2"):
        chosen.sdk = "1" if module_version == "1" else "2"


def sdk_version() -> SdkVersion:
    """Return the version of `mcp` that this process has."""
    if chosen.sdk is None:
        chosen.sdk = _of_sources() or ("1" if chosen.fast in ("2", "3") else "2")
    return chosen.sdk


def fast_version() -> FastVersion:
    """Return the version of FastMCP that this process has."""
    if chosen.fast is None:
        chosen.fast = _fast_of_requirement() or _NEWEST
    return chosen.fast


def _of_sources() -> SdkVersion | None:
    """Read the sources of whoever imports: None if they do not say."""
    importer = _importer()
    if importer is None:
        return None
    ones, twos = set[str](), set[str]()
    for text in _sources(importer):
        ones.update(_ONE.findall(text))
        twos.update(_TWO.findall(text))
    if len(ones) == len(twos):
        return None
    return "1" if len(ones) > len(twos) else "2"


def _importer() -> Path | None:
    """Return the file that asks for a name of ours."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        file = frame.f_code.co_filename
        if not name.startswith(("linkspan", "importlib", "_frozen_importlib")) and not file.startswith("<"):
            return Path(file)
        frame = frame.f_back
    return None


def _package_of(file: Path) -> Path:
    """Return the outermost package that a file is in, or the file itself."""
    top = file
    while (top.parent / "__init__.py").exists():
        top = top.parent
    return top


def _sources(file: Path) -> Iterator[str]:
    top = _package_of(file)
    files = [file] if top == file else sorted(top.rglob("*.py"))
    left = _MAX_BYTES
    for each in files[:_MAX_FILES]:
        try:
            text = each.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        left -= len(text)
        if left < 0:
            return
        yield text


def _fast_of_requirement() -> FastVersion | None:
    """Return the newest version that the distribution of whoever imports allows, None where it does not say."""
    importer = _importer()
    if importer is None:
        return None
    top = _package_of(importer)
    site = top.parent
    words = {re.sub(r"[-_.]+", "_", top.stem).lower()}
    infos = sorted(site.glob("*.dist-info"), key=lambda each: not words & {each.name.split("-")[0].lower()})
    for info in infos:
        try:
            if not any(line.startswith(f"{top.name}/") for line in (info / "RECORD").read_text().splitlines()):
                continue
            return _newest_allowed((info / "METADATA").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return None


def _newest_allowed(metadata: str) -> FastVersion | None:
    for line in metadata.splitlines():
        found = re.match(r"Requires-Dist: fastmcp\b(?:\[.*?\])?\s*(.*)", line)
        if found is None:
            continue
        bounds = re.findall(r"(<=?|==|~=)\s*([0-9]+)(?:\.([0-9]+))?", found[1].partition(";")[0])
        for sign, major, minor in bounds:
            number = int(major) - (sign == "<" and not int(minor or 0))
            return "2" if number <= 2 else "3" if number == 3 else "4"
        return None
    return None


def of_environment() -> None:
    """Take what `LINKSPAN_COMPAT_AS` says. Raises: ValueError."""
    if name := os.environ.get("LINKSPAN_COMPAT_AS"):
        choose(name)
