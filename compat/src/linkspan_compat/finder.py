"""Serves the modules `mcp` and `fastmcp` when they are imported: a meta path finder before all others.

No folder of these names exists. A module is empty until a name of it is asked for, and has all of its names where somebody looks
into it with `vars()`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from linkspan_compat import flavours
from linkspan_compat.names import SourceModule, modules

__all__ = ["install", "uninstall", "without"]

logger = logging.getLogger("linkspan.compat")

TOP: Final = ("mcp", "mcp_types", "fastmcp", "fastmcp_tasks")
"""The packages that are served; the types of `mcp` 2, and the tasks of FastMCP 4, are packages beside them."""


_DICT: Final[Any] = vars(ModuleType)["__dict__"]
"""What gives the names that a module has already."""


class ServedModule(ModuleType):
    """A module of an SDK, whose names are made when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        table: SourceModule = modules()[self.__name__]
        value = _value(table, name)
        if not isinstance(value, type) or "_where" not in vars(value):  # a placeholder knows who imported it
            setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep a function that has the name of a module in this one, such as `fastmcp.prompts.prompt`."""
        served = modules()[self.__name__].names.get(name)
        if isinstance(value, ServedModule) and served is not None and served.kind == "served":
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*_DICT.__get__(self), *_public(modules()[self.__name__])})

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """All names: whoever looks here looks for what there is."""
        own: dict[str, Any] = _DICT.__get__(self)
        table = modules().get(own.get("__name__", ""))
        if table is not None:
            for name in _public(table):
                if name not in own:
                    own[name] = _value(table, name)
        return own


def _public(table: SourceModule) -> list[str]:
    found = [*table.names]
    if table.has_all_types:
        found += _types(table)
    return found


def _types(table: SourceModule) -> Mapping[str, Any]:
    from linkspan_compat.protocol.current import TYPES, TYPES_OF_2

    return TYPES_OF_2 if table.name.startswith("mcp_types") else TYPES


def _value(table: SourceModule, name: str) -> Any:
    """Return the value of a name. Raises: AttributeError for one that does not exist."""
    if name == "__all__":
        return sorted(_public(table))
    found = table.names.get(name)
    if found is None:
        if table.has_all_types and name in _types(table):
            return _types(table)[name]
        if f"{table.name}.{name}" in modules():
            return importlib.import_module(f"{table.name}.{name}")
        if table.is_open and not name.startswith("_"):
            from linkspan_compat.placeholders import placeholder

            return placeholder(table.name, name)
        raise AttributeError(f"module {table.name!r} has no attribute {name!r}", name=name)
    match found.kind:
        case "types":
            return _types(table)[found.attribute]
        case "module":
            return importlib.import_module(f"{table.name}.{found.attribute}")
        case "placeholder":
            from linkspan_compat.placeholders import placeholder

            return placeholder(found.home, found.attribute)
        case "refused":
            from linkspan_compat.placeholders import refused

            return refused(found.home, found.attribute)
        case _:
            return getattr(importlib.import_module(f"linkspan_compat.{found.home}"), found.attribute)


class _Loader(Loader):
    """Makes an empty module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make it."""
        return ServedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Note which version it says that the program was written for."""
        flavours.decided_by(modules()[module.__name__].version)


class CompatFinder(MetaPathFinder):
    """Finds modules of the SDKs in the table."""

    def __init__(self, tops: Sequence[str]) -> None:
        """Serve the packages `tops` and what is in them."""
        self.tops = frozenset(tops)
        self._loader = _Loader()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how a module is made; None for any that is not in the table, also of the real packages."""
        top = fullname.partition(".")[0]
        if top not in self.tops:
            return None
        if fullname not in modules():
            above = fullname.rpartition(".")[0]
            while above and above not in modules():
                above = above.rpartition(".")[0]
            if not above or not modules()[above].is_open:
                return None
            modules()[fullname] = SourceModule(fullname, is_open=True)  # type: ignore[index]
        spec = ModuleSpec(fullname, self._loader, origin="linkspan-compat", is_package=True)
        spec.submodule_search_locations = []
        return spec


def without(kept: Sequence[str]) -> list[str]:
    """Return the packages to serve where some of the installed ones are wanted; the types of `mcp` go with it."""
    return [top for top in TOP if top.partition("_")[0] not in kept]


def install(tops: Sequence[str] = TOP) -> None:
    """Serve `mcp`, `mcp_types` and `fastmcp` from now on, or some of them. Once in a process; log what was chosen.

    Raises: RuntimeError if the real package has been imported already.
    """
    if any(isinstance(each, CompatFinder) for each in sys.meta_path):
        return
    flavours.of_environment()
    for top in tops:
        if top in sys.modules and not isinstance(sys.modules[top], ServedModule):
            raise RuntimeError(
                f"{top} has been imported already: import linkspan_compat.install before it, as the first line"
            )
    sys.meta_path.insert(0, CompatFinder(tops))
    logger.info("%s: served by linkspan-compat", ", ".join(tops))


def uninstall() -> None:
    """Serve them no more, and forget what was imported: for tests."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, CompatFinder)]
    for name, module in list(sys.modules.items()):
        if isinstance(module, ServedModule):
            del sys.modules[name]
