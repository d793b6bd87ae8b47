"""`fastmcp.settings`: what environment variables set."""

from __future__ import annotations

import os
from typing import Any, Final

from linkspan_compat.flavours import fast_version
from linkspan_compat.names import SDK_VERSIONS

__all__ = ["FastMCPDeprecationWarning", "Settings", "settings"]


class FastMCPDeprecationWarning(DeprecationWarning):
    """A name of FastMCP that will go."""


_USUAL: Final[dict[str, Any]] = {
    "host": "127.0.0.1",
    "port": 8000,
    "sse_path": "/sse",
    "message_path": "/messages/",
    "streamable_http_path": "/mcp",
    "debug": False,
    "log_level": "INFO",
    "log_enabled": True,
    "json_response": False,
    "stateless_http": False,
    "mask_error_details": False,
    "strict_input_validation": False,
    "show_server_banner": False,
    "enable_rich_tracebacks": False,
    "check_for_updates": "off",
}


class Settings:
    """The settings of this process, as `FASTMCP_NAME` says, and as a program sets them."""

    def __init__(self, **given: Any) -> None:
        for name, usual in _USUAL.items():
            text = os.environ.get(f"FASTMCP_{name.upper()}")
            value: Any = usual
            if text is not None:
                value = text.lower() in ("1", "true", "yes", "on") if isinstance(usual, bool) else type(usual)(text)
            setattr(self, name, value)
        vars(self).update(given)

    def get_setting(self, name: str) -> Any:
        """Return a setting; one of a group is called `group__name`."""
        return getattr(self, name)

    def set_setting(self, name: str, value: Any) -> None:
        """Set a setting."""
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


settings: Final = Settings()


def __getattr__(name: str) -> str:
    if name == "__version__":
        return SDK_VERSIONS[f"fastmcp {fast_version()}"]
    raise AttributeError(name)
