"""`stdio_client`: a server that is a process."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from pydantic import BaseModel, Field

from linkspan import Client
from linkspan_compat.client.ends import ends

__all__ = ["DEFAULT_INHERITED_ENV_VARS", "StdioServerParameters", "get_default_environment", "stdio_client"]

DEFAULT_INHERITED_ENV_VARS: Final = (
    ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]
    if sys.platform != "win32"
    else [
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
    ]
)


def get_default_environment() -> dict[str, str]:
    """Return the variables that a server gets by itself."""
    found = {name: os.environ[name] for name in DEFAULT_INHERITED_ENV_VARS if name in os.environ}
    return {name: value for name, value in found.items() if not value.startswith("()")}


class StdioServerParameters(BaseModel):
    """A command, its arguments, and what it gets."""

    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] | None = None
    cwd: str | Path | None = None
    encoding: str = "utf-8"
    encoding_error_handler: Literal["strict", "ignore", "replace"] = "strict"


@asynccontextmanager
async def stdio_client(server: StdioServerParameters, errlog: TextIO | None = None) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a process, which starts with its session. What it prints to stderr goes to `errlog`."""

    def connect(**callbacks: Any) -> Client:
        shown = errlog if errlog is not None else sys.stderr
        environment = server.env if server.env is not None else {}
        return Client(
            [server.command, *server.args],
            env={**get_default_environment(), **environment},
            cwd=server.cwd,
            on_stderr=lambda line: print(line, file=shown),
            **callbacks,
        )

    yield ends(connect, "stdio_client")
