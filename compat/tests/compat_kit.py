"""Serves `mcp` and `fastmcp` in this process for a while, in place of the SDKs that other tests may have imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from linkspan import SyncClient
from linkspan_compat import finder, flavours


@contextmanager
def served(flavour: str = "mcp") -> Iterator[None]:
    """Serve the names in a flavour until the block ends."""
    real = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in finder.TOP}
    for name in real:
        del sys.modules[name]
    before = vars(flavours.chosen).copy()
    vars(flavours.chosen).update(sdk=None, fast=None, by_hand=False)
    finder.install()
    flavours.choose(flavour)
    try:
        yield
    finally:
        finder.uninstall()
        vars(flavours.chosen).update(before)
        sys.modules.update(real)


def under(server: Any) -> Any:
    """Return a server of an SDK as one of Linkspan."""
    from linkspan_compat.server.serving import Served

    return Served(getattr(server, "_mcp_server", server), lifespan=True).under


@contextmanager
def client_of(server: Any, **options: Any) -> Iterator[SyncClient]:
    """Call a server of an SDK in this process."""
    with SyncClient(under(server), era="legacy", **options) as client:
        yield client


def module(name: str, code: str) -> ModuleType:
    """Return a module that is made of code, so that hints and imports in it are those of a program."""
    made = ModuleType(name)
    sys.modules[name] = made
    exec(compile(code, f"{name}.py", "exec"), vars(made))
    return made
