"""`InitializationOptions`: what a server says of itself when a client connects."""

from __future__ import annotations

from typing import Any

__all__ = ["InitializationOptions"]


class InitializationOptions:
    """The name, the version and the capabilities of a server, for `server.run`."""

    def __init__(
        self,
        server_name: str,
        server_version: str,
        capabilities: Any,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        title: str | None = None,
        description: str | None = None,
    ) -> None:
        self.server_name = server_name
        self.server_version = server_version
        self.capabilities = capabilities
        self.instructions = instructions
        self.website_url = website_url
        self.icons = icons
        self.title = title
        self.description = description

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the members."""
        return dict(vars(self))
