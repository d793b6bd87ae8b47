"""Transports of FastMCP's client: how a target is reached."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from linkspan_compat.client.memory import served
from linkspan_compat.errors import NotServed
from linkspan_compat.keywords import check

__all__ = [
    "ClientTransport",
    "FastMCPTransport",
    "MCPConfigTransport",
    "NodeStdioTransport",
    "NpxStdioTransport",
    "PythonStdioTransport",
    "SSETransport",
    "StdioTransport",
    "StreamableHttpTransport",
    "UvStdioTransport",
    "UvxStdioTransport",
    "infer_transport",
]


class ClientTransport:
    """A way to a server."""

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of Linkspan."""
        raise NotServed(f"{type(self).__name__} is not served by linkspan-compat; write for Linkspan: Client(target)")

    can_connect_again = False
    """Whether a second client reaches the same server, and not another process."""

    def connect_again(self, **callbacks: Any) -> Any:
        """Return a second client of Linkspan, while there is a first."""
        return self.connect(**callbacks)


class StdioTransport(ClientTransport):
    """A process."""

    def __init__(
        self,
        command: str,
        args: list[str],
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        keep_alive: bool | None = None,
        log_file: Any = None,
    ) -> None:
        check(type(self).__name__, {"keep_alive": keep_alive}, "keep_alive")
        self.command, self.args, self.env, self.cwd = command, list(args), env, cwd
        self.log_file = log_file

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of it."""
        from linkspan import Client

        def show(line: str) -> None:
            if self.log_file is None:
                sys.stderr.write(f"{line}\n")
            elif hasattr(self.log_file, "write"):
                self.log_file.write(f"{line}\n")
            else:
                with Path(self.log_file).open("a") as file:
                    file.write(f"{line}\n")

        return Client([self.command, *self.args], env=self.env, cwd=self.cwd, on_stderr=show, **callbacks)


class PythonStdioTransport(StdioTransport):
    """A Python file."""

    def __init__(
        self, script_path: Any, args: list[str] | None = None, python_cmd: str = sys.executable, **more: Any
    ) -> None:
        super().__init__(python_cmd, [str(script_path), *(args or ())], **more)


class NodeStdioTransport(StdioTransport):
    """A JavaScript file."""

    def __init__(self, script_path: Any, args: list[str] | None = None, node_cmd: str = "node", **more: Any) -> None:
        super().__init__(node_cmd, [str(script_path), *(args or ())], **more)


class UvStdioTransport(StdioTransport):
    """A command that uv runs."""

    def __init__(self, command: str, args: list[str] | None = None, module: bool = False, **more: Any) -> None:
        options = _of_uv(
            more, {"python_version": "--python", "with_packages": "--with", "project_directory": "--directory"}
        )
        if (file := more.pop("with_requirements", None)) is not None:
            options += ["--with-requirements", str(file)]
        words = ["run", *options, *(["--module"] if module else []), command, *(args or ())]
        super().__init__("uv", words, env=more.pop("env_vars", None), **more)


class UvxStdioTransport(StdioTransport):
    """A command of a package that uvx installs."""

    def __init__(
        self, tool_name: str, tool_args: list[str] | None = None, from_package: str | None = None, **more: Any
    ) -> None:
        options = _of_uv(more, {"python_version": "--python", "with_packages": "--with"})
        source = [*options, *(["--from", from_package] if from_package else [])]
        more["cwd"] = more.pop("project_directory", None)
        super().__init__("uvx", [*source, tool_name, *(tool_args or ())], env=more.pop("env_vars", None), **more)


class NpxStdioTransport(StdioTransport):
    """A package that npx installs."""

    def __init__(self, package: str, args: list[str] | None = None, **more: Any) -> None:
        more["cwd"] = more.pop("project_directory", None)
        lock = ["--prefer-offline"] if more.pop("use_package_lock", True) else []
        super().__init__("npx", [*lock, package, *(args or ())], env=more.pop("env_vars", None), **more)


def _of_uv(more: dict[str, Any], flags: Mapping[str, str]) -> list[str]:
    """Take keywords of uv, and return them as it has them on its command line."""
    found: list[str] = []
    for name, flag in flags.items():
        value = more.pop(name, None)
        for each in value if isinstance(value, list | tuple) else [value] if value is not None else []:
            found += [flag, str(each)]
    return found


class StreamableHttpTransport(ClientTransport):
    """A URL."""

    can_connect_again = True

    def __init__(
        self,
        url: Any,
        headers: dict[str, str] | None = None,
        auth: Any = None,
        sse_read_timeout: Any = None,
        httpx_client_factory: Any = None,
        verify: Any = None,
    ) -> None:
        check(type(self).__name__, {"sse_read_timeout": sse_read_timeout}, "sse_read_timeout")
        self.url, self.headers, self.auth = str(url), dict(headers or {}), auth
        self.factory, self.verify = httpx_client_factory, verify

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of it."""
        from linkspan_compat.client.http import connects_to, httpx_of

        more: dict[str, Any] = {"factory": self.factory}
        if self.verify is not None and self.factory is None:
            more = {"http_client": httpx_of().AsyncClient(verify=self.verify)}
        return connects_to(self.url, self.headers, self.auth, **more)(**callbacks)


class SSETransport(StreamableHttpTransport):
    """A URL of the transport of 2024."""

    can_connect_again = False

    def __init__(self, *args: Any, sse_read_timeout: Any = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.read_timeout = sse_read_timeout

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of it."""
        from linkspan_compat.client.http import over_sse

        made = over_sse(
            self.url,
            self.headers,
            self.auth,
            sse_read_timeout=self.read_timeout,
            factory=self.factory,
            verify=self.verify,
        )
        return made(**callbacks)


class FastMCPTransport(ClientTransport):
    """A server in this process."""

    can_connect_again = True

    def __init__(self, mcp: Any, raise_exceptions: bool = False) -> None:
        check("FastMCPTransport", {"raise_exceptions": raise_exceptions}, "raise_exceptions")
        self.server = mcp
        self._served: Any = None

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of it."""
        self._served = served(self.server)
        return self.connect_again(**callbacks)

    def connect_again(self, **callbacks: Any) -> Any:
        """Return a second client of the same server."""
        from linkspan import Client

        return Client(self._served, **callbacks)


class MCPConfigTransport(ClientTransport):
    """The servers of a configuration; several stand under their names."""

    def __init__(self, config: Any, name_as_prefix: bool = True) -> None:
        from linkspan_compat.fast.config import MCPConfig

        self.config = config if isinstance(config, MCPConfig) else MCPConfig.from_dict(config)
        transports = {name: _of_entry(entry) for name, entry in self.config.mcpServers.items()}
        if not transports:
            raise ValueError("No MCP servers defined in the config")
        if len(transports) == 1:
            (self.transport,) = transports.values()
        else:
            self.transport = FastMCPTransport(_together(transports, name_as_prefix))

    def connect(self, **callbacks: Any) -> Any:
        """Return a client of it."""
        return self.transport.connect(**callbacks)

    @property
    def can_connect_again(self) -> bool:  # type: ignore[override]
        """Whether a second client reaches the same server, and not another process."""
        return self.transport.can_connect_again

    def connect_again(self, **callbacks: Any) -> Any:
        """Return a second client of the same server."""
        return self.transport.connect_again(**callbacks)


def _together(transports: Mapping[str, ClientTransport], is_prefixed: bool) -> Any:
    """Return a server with all that several others have."""
    from linkspan_compat.fast.server import FastMCP, create_proxy

    made: FastMCP[Any] = FastMCP("MCPRouter")
    for name, transport in transports.items():
        made.mount(create_proxy(transport, name=f"Proxy-{name}"), name if is_prefixed else None)
    return made


def process_of(transport: ClientTransport) -> StdioTransport | None:
    """Return the process that a transport starts, if it starts one."""
    found = transport.transport if isinstance(transport, MCPConfigTransport) else transport
    return found if isinstance(found, StdioTransport) else None


def _of_entry(entry: dict[str, Any]) -> ClientTransport:
    if "url" in entry:
        return _of_url(entry["url"], entry.get("transport"))(entry["url"], entry.get("headers"), entry.get("auth"))
    return StdioTransport(entry["command"], list(entry.get("args") or ()), env=entry.get("env"), cwd=entry.get("cwd"))


def _of_url(url: str, named: str | None = None) -> type[StreamableHttpTransport]:
    """Return the transport that a configuration names, or that the path of a URL tells, as FastMCP does."""
    is_old = named == "sse" if named else re.search(r"/sse(/|\?|&|$)", urlsplit(url).path) is not None
    return SSETransport if is_old else StreamableHttpTransport


def infer_transport(transport: Any) -> ClientTransport:
    """Return how a target is reached. Raises: ValueError for what is no target."""
    if isinstance(transport, ClientTransport):
        return transport
    if hasattr(transport, "_mcp_server") or hasattr(transport, "methods"):
        return FastMCPTransport(transport)
    if isinstance(transport, dict) or hasattr(transport, "mcpServers"):
        return MCPConfigTransport(transport)
    text = str(transport)
    if text.startswith(("http://", "https://")):
        return _of_url(text)(text)
    if isinstance(transport, str | Path) and text.endswith((".py", ".js")):
        if not Path(text).exists():
            raise ValueError(f"Could not infer a valid transport from: {transport}")
        return PythonStdioTransport(text) if text.endswith(".py") else NodeStdioTransport(text)
    from linkspan import Server as LinkspanServer

    if isinstance(transport, LinkspanServer):
        return FastMCPTransport(transport)
    raise ValueError(f"Could not infer a valid transport from: {transport}")
