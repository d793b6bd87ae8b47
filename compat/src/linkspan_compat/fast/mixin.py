"""`MCPMixin`: methods of a class as tools, resources and prompts."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["MCPMixin", "mcp_prompt", "mcp_resource", "mcp_tool"]


def _marked(kind: str, described: dict[str, Any]) -> Any:
    def mark(function: Any) -> Any:
        function.__mcp_mixin__ = (kind, {key: value for key, value in described.items() if value is not None})
        return function

    return mark


def mcp_tool(name: str | None = None, **described: Any) -> Any:
    """Mark a method as a tool."""
    return _marked("tool", {"name": name, **described})


def mcp_resource(uri: str, *, name: str | None = None, **described: Any) -> Any:
    """Mark a method as a resource."""
    return _marked("resource", {"uri": uri, "name": name, **described})


def mcp_prompt(name: str | None = None, **described: Any) -> Any:
    """Mark a method as a prompt."""
    return _marked("prompt", {"name": name, **described})


class MCPMixin:
    """Base of classes with marked methods: `register_all(server)` offers them."""

    def _register(self, kind: str, server: Any, prefix: str | None, separator: str) -> None:
        for name in dir(self):
            static = inspect.getattr_static(self, name, None)  # properties are not evaluated
            found = getattr(getattr(static, "__func__", static), "__mcp_mixin__", None)
            if found is None or found[0] != kind:
                continue
            method, described = getattr(self, name), dict(found[1])
            if described.pop("enabled", True) is False:
                continue
            described["name"] = self._named(described.get("name") or name, prefix, separator)
            uri = described.pop("uri", None)
            if kind == "resource":
                server.resource(f"{prefix}{separator}{uri}" if prefix else uri, **described)(method)
            else:
                getattr(server, kind)(**described)(method)

    @staticmethod
    def _named(name: str, prefix: str | None, separator: str) -> str:
        return f"{prefix}{separator}{name}" if prefix else name

    def register_tools(self, mcp_server: Any, prefix: str | None = None, separator: str = "_") -> None:
        """Offer the tools."""
        self._register("tool", mcp_server, prefix, separator)

    def register_resources(self, mcp_server: Any, prefix: str | None = None, separator: str = "+") -> None:
        """Offer the resources."""
        self._register("resource", mcp_server, prefix, separator)

    def register_prompts(self, mcp_server: Any, prefix: str | None = None, separator: str = "_") -> None:
        """Offer the prompts."""
        self._register("prompt", mcp_server, prefix, separator)

    def register_all(
        self,
        mcp_server: Any,
        prefix: str | None = None,
        tools_separator: str = "_",
        resources_separator: str = "+",
        prompts_separator: str = "_",
    ) -> None:
        """Offer all."""
        self.register_tools(mcp_server, prefix, tools_separator)
        self.register_resources(mcp_server, prefix, resources_separator)
        self.register_prompts(mcp_server, prefix, prompts_separator)
