"""Configurations with servers, as FastMCP reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from linkspan_compat.keywords import check

__all__ = ["MCPConfig", "RemoteMCPServer", "StdioMCPServer"]


_CHANGING = ("tools", "include_tags", "exclude_tags")
"""Members of an entry that change what a server offers."""


class _Entry:
    def __init__(self, **members: Any) -> None:
        vars(self).update(members)

    def entry(self) -> dict[str, Any]:
        """Return it as it stands in a file."""
        return {name: value for name, value in vars(self).items() if value is not None}


class StdioMCPServer(_Entry):
    """A command."""


class RemoteMCPServer(_Entry):
    """A URL."""


class MCPConfig:
    """`{"mcpServers": {...}}`."""

    def __init__(self, mcpServers: dict[str, Any] | None = None, **more: Any) -> None:
        self.more = more
        """What else stands in the file."""
        found = mcpServers or {}
        self.mcpServers = {
            name: each.entry() if isinstance(each, _Entry) else dict(each) for name, each in found.items()
        }
        for each in self.mcpServers.values():
            check("MCPConfig", {name: each[name] for name in _CHANGING if name in each}, " ".join(_CHANGING))

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> MCPConfig:
        """Read a mapping, with or without `mcpServers` around it."""
        return cls(**config) if "mcpServers" in config else cls(config)

    model_validate = from_dict

    @classmethod
    def from_file(cls, path: str | Path) -> MCPConfig:
        """Read a file."""
        return cls.from_dict(json.loads(Path(path).read_text()))
