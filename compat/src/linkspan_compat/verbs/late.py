"""OpenSSL with its first use: a server on stdio never needs it, and it takes 5 MB of memory, and 10 ms at the start.

asyncio imports `ssl`; pydantic imports `secrets`, which loads the hashes of OpenSSL.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

__all__ = ["load_late"]

_LOCK: Final = threading.RLock()
"""Held while a module is loaded: the other threads that want something of it wait."""


class LateModule(ModuleType):
    """A module that is loaded in place with the first of its names. It is an ordinary one from then on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name, name=name, obj=self)
        _load(self)
        return ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        _load(self)
        return list(vars(self))


def _load(module: ModuleType) -> None:
    with _LOCK:
        spec: ModuleSpec = vars(module)["__spec__"]
        if spec.loader_state is not None:  # another thread, or this one, has begun
            return
        spec.loader_state = "begun"
        assert spec.loader is not None
        spec.loader.exec_module(module)
        module.__class__ = ModuleType


def load_late() -> None:
    """Import asyncio without OpenSSL, and have what else needs it load it with its first use; what is imported stays."""
    if "secrets" not in sys.modules:
        _late("secrets", PathFinder.find_spec("secrets"))
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    package = find_spec("asyncio")
    folders = package.submodule_search_locations if package is not None else None
    protocol = _late("asyncio.sslproto", PathFinder.find_spec("asyncio.sslproto", folders))
    _late("ssl", PathFinder.find_spec("ssl"))
    import asyncio

    if protocol is not None:
        asyncio.sslproto = protocol  # type: ignore[attr-defined]


def _late(name: str, spec: ModuleSpec | None) -> ModuleType | None:
    if spec is None or spec.loader is None:  # a Python that keeps its library elsewhere loads it as ever
        return None
    module = module_from_spec(spec)
    module.__class__ = LateModule
    sys.modules[name] = module
    return module
