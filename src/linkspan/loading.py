"""How the modules of this package are loaded, so that a server starts fast. Law: afterwards all is as it was."""

from __future__ import annotations

import gc
import sys
from _thread import get_ident
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from logging import Logger
    from types import ModuleType


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that loads its names when they are first used.

    `homes` maps a module, named from `package` on, to the names that are loaded from it.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def getattr_(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            from linkspan.habits import missing_import

            raise missing_import(package, name)
        value: object = getattr(load(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return getattr_, dir_


def load(home: str) -> ModuleType:
    """Import a module of this package with the collector off: it would look at all that is made, and find no garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        _import_msgspec()
        return import_module(home)
    finally:
        if collects:
            gc.enable()


def logger(name: str) -> Logger:
    """Return a logger of the standard library, whose module few clients need, and which costs 5 % of their start."""
    import logging

    return logging.getLogger(name)


def _import_msgspec() -> None:
    """Import msgspec without `typing_extensions`, from which it takes only what `typing` has, too, and which costs 10 ms."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    hiding = _Hiding(get_ident())
    sys.meta_path.insert(0, hiding)
    try:
        import msgspec  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        sys.meta_path.remove(hiding)


class _Hiding:
    """A finder of modules that hides `typing_extensions` from one thread."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(self, name: str, *_: object) -> None:
        if name == "typing_extensions" and get_ident() == self._thread:
            raise ModuleNotFoundError("not needed", name=name)
