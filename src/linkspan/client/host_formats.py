"""Where hosts keep the servers that they know, and how they write them: one value for each host.

Another distribution adds its own as entry points of the group "linkspan.hosts", by the name that `linkspan install` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from linkspan.errors import LinkspanError
from linkspan.loading import logger
from linkspan.plugins import HOSTS, added, names_added

__all__ = ["HOST_FORMATS", "HostFormat", "all_formats", "host_format"]


class HostFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its files, and how it names servers in them. The members of an entry are each host's own."""

    title: str
    path: str | None = None
    """The user's own file. It begins with "~" for the home directory, or with "data" for the directory of applications'
    data: ~/.config, or what macOS and Windows have in its place."""
    windows_path: str | None = None
    """The same on Windows, where it differs."""
    workspace: str | None = None
    """The file below a workspace."""
    section: str = "mcpServers"
    """The member of the file that has the servers."""
    url: str | None = "url"
    """The member for a URL; None where the file has only servers that the host starts."""
    headers: str = "headers"
    types: bool = False
    """Whether an entry has a `type`."""
    oauth: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The members of an entry's `oauth`, by the options for logins that they hold; none where the host has no such member."""
    secret_command: str = ""
    """The host's own command that takes the secret of a client."""
    is_written: bool = True
    """Whether `linkspan install` writes to it; its servers are read all the same."""

    def at_home(self, home: Path, platform: str) -> Path | None:
        """Return the user's own file, there or not; `platform` is as in `sys.platform`."""
        written = self.windows_path if platform == "win32" and self.windows_path is not None else self.path
        if written is None:
            return None
        first, *rest = written.split("/")
        return (home if first == "~" else home.joinpath(*_DATA.get(platform, (".config",)))).joinpath(*rest)


_DATA: Final[Mapping[str, tuple[str, ...]]] = {
    "darwin": ("Library", "Application Support"),
    "win32": ("AppData", "Roaming"),
}
_EXTENSIONS: Final = "data/Code/User/globalStorage"

HOST_FORMATS: Final[Mapping[str, HostFormat]] = {
    "claude-desktop": HostFormat(title="Claude Desktop", path="data/Claude/claude_desktop_config.json", url=None),
    "claude-code": HostFormat(
        title="Claude Code",
        path="~/.claude.json",
        workspace=".mcp.json",
        types=True,
        oauth={"client_id": "clientId", "redirect_port": "callbackPort"},
        secret_command="claude mcp add --client-secret",
    ),
    "cursor": HostFormat(title="Cursor", path="~/.cursor/mcp.json", workspace=".cursor/mcp.json"),
    "vscode": HostFormat(
        title="VS Code", path="data/Code/User/mcp.json", workspace=".vscode/mcp.json", section="servers", types=True
    ),
    "cline": HostFormat(
        title="Cline",
        path=f"{_EXTENSIONS}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        is_written=False,
    ),
    "roo-code": HostFormat(
        title="Roo Code",
        path=f"{_EXTENSIONS}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        workspace=".roo/mcp.json",
        is_written=False,
    ),
    "codex": HostFormat(
        title="Codex",
        path="~/.codex/config.toml",
        workspace=".codex/config.toml",
        section="mcp_servers",
        headers="http_headers",
    ),
    "gemini-cli": HostFormat(
        title="Gemini CLI", path="~/.gemini/settings.json", workspace=".gemini/settings.json", url="httpUrl"
    ),
    "zed": HostFormat(
        title="Zed",
        path="~/.config/zed/settings.json",
        windows_path="data/Zed/settings.json",
        workspace=".zed/settings.json",
        section="context_servers",
    ),
    "windsurf": HostFormat(title="Windsurf", path="~/.codeium/windsurf/mcp_config.json", url="serverUrl"),
    "directory": HostFormat(title="this directory", workspace="mcp.json", is_written=False),
}
"""Those that are built in, by name, in the order in which people see them."""


def host_format(name: str) -> HostFormat | None:
    """Return a host that is built in, or that a distribution has added; None for an unknown one. Raises: LinkspanError."""
    if name in HOST_FORMATS:
        return HOST_FORMATS[name]
    found = added(HOSTS, name)
    if found is not None and not isinstance(found, HostFormat):
        raise LinkspanError(f"what is added to {HOSTS} as {name!r} is {type(found).__name__}, not a HostFormat")
    return found


def all_formats() -> Iterator[tuple[str, HostFormat]]:
    """Yield all hosts by name, those that are built in first. One that cannot be loaded is left out, with a warning."""
    for name in dict.fromkeys((*HOST_FORMATS, *names_added(HOSTS))):
        try:
            found = host_format(name)
        except LinkspanError as problem:
            logger("linkspan").warning("%s", problem)
            continue
        if found is not None:
            yield name, found
