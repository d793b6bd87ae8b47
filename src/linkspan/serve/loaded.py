"""What `Server.load` does: it runs the Python files below a folder, and registers what is decorated in them.

Laws: a file is registered whole or not at all; nothing outside the folder is run through its path.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from linkspan.errors import DuplicateNameError, RegistrationError
from linkspan.runtime.files import Directory
from linkspan.server.decorators import Offer, offers_in

if TYPE_CHECKING:
    from linkspan.server.catalogue import Catalogue, Registry
    from linkspan.server.registration import BaseServer

_LOGGER: Final = "linkspan.server"
_LEFT_OUT: Final = ("_", ".")


class _LoadedFile(NamedTuple):
    path: str
    parts: tuple[str, ...]
    """From the folder; the last one without its `.py`."""
    leads_out: bool


def load_folder(server: BaseServer, catalogue: Catalogue, folder: str, *, skip: bool) -> None:
    """Register what the files below a folder offer; `skip` logs what is wrong with a file and goes on without it.

    Raises: RegistrationError.
    """
    try:
        root = Directory(folder).root
    except OSError as error:
        raise RegistrationError(
            f"load({folder!r}): this is no folder that can be read: {error.strerror}{_where(folder)}"
        ) from None
    files = sorted(_files(root), key=lambda each: each.parts)
    log = logging.getLogger(_LOGGER)
    if not files:
        log.warning("load(%r): there is no file in this folder whose name ends with .py", folder)
    package = _package(root) if files else ""
    for each in files:
        loading = _Loading(server, catalogue, package, each, os.path.join(folder, *each.parts) + ".py")
        try:
            if not loading.register():
                log.warning(
                    "%s registers nothing: decorate its functions with linkspan.tool, or begin its name with _",
                    loading.shown,
                )
        except RegistrationError as problem:
            if not skip:
                raise
            log.warning("%s; the server does without this file", problem)


def _where(folder: str) -> str:
    if os.path.isabs(folder):
        return ""
    name = os.path.basename(os.path.normpath(folder))
    return f" (in {os.getcwd()}); from another directory, write load(Path(__file__).with_name({name!r}))"


def _files(folder: str, parts: tuple[str, ...] = (), root: str | None = None) -> Iterator[_LoadedFile]:
    """Yield the files to load. A link to a folder inside is left out: that folder is loaded where it is."""
    root = root or folder
    with os.scandir(folder) as entries:
        found = [each for each in entries if not each.name.startswith(_LEFT_OUT)]
    for each in found:
        stem, ending = os.path.splitext(each.name)
        is_python, outside = ending == ".py", each.is_symlink() and not _is_inside(each.path, root)
        if each.is_dir() and (outside or not each.is_symlink()):
            here = (*parts, each.name)
            if outside:
                yield _LoadedFile(each.path, here, leads_out=True)
            else:
                yield from _files(each.path, here, root)
        elif is_python and (outside or each.is_file()):
            yield _LoadedFile(each.path, (*parts, stem), leads_out=outside)


def _is_inside(path: str, root: str) -> bool:
    real = os.path.realpath(path)
    return os.path.exists(real) and (real == root or real.startswith(os.path.join(root, "")))


def _package(root: str) -> str:
    """Return the name of a new package whose modules are the files below a folder; they may import each other relatively."""
    stem = "".join(each if each.isalnum() else "_" for each in os.path.basename(root)) or "folder"
    name = next(name for number in count(1) if (name := f"{stem}_loaded_{number}") not in sys.modules)
    package = sys.modules[name] = ModuleType(name, f"What was loaded from {root}.")
    package.__path__ = [root]
    return name


@dataclass
class _Loading:
    """One file on its way into a server."""

    server: BaseServer
    catalogue: Catalogue
    package: str
    file: _LoadedFile
    shown: str
    """The path as the author would write it."""

    def register(self) -> bool:
        """Register what the file offers; return whether there was anything. Raises: RegistrationError."""
        if self.file.leads_out:
            raise RegistrationError(
                f"{self.file.path} is a link that leads out of the folder, or nowhere: put the file itself here"
            )
        before, offer = self._registered(), None
        try:
            for offer in offers_in(vars(self._run())):
                _register(self.server, offer)
        except (Exception, SystemExit) as error:
            self._take_back(before)
            problem = self._problem(error, offer)
            raise problem from (None if isinstance(error, RegistrationError) else error)
        return self._registered() != before

    def _run(self) -> ModuleType:
        """Return the module of the file, which another one may have imported already."""
        name = ".".join((self.package, *(each.replace(".", "%2E") for each in self.file.parts)))
        if (found := sys.modules.get(name)) is not None:
            return found
        spec = spec_from_file_location(name, self.file.path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _registered(self) -> set[tuple[str, str]]:
        """Return the kind and the key of all that the server has."""
        found = self.catalogue
        kinds: Sequence[tuple[str, Registry[Any]]] = (
            ("tool", found.tools),
            ("prompt", found.prompts),
            ("resource", found.resources),
            ("resource", found.templates),
        )
        return {(kind, registry.key_of(each)) for kind, registry in kinds for each in registry.all()}

    def _take_back(self, before: set[tuple[str, str]]) -> None:
        server = self.server
        remove = {"tool": server.remove_tool, "prompt": server.remove_prompt, "resource": server.remove_resource}
        for kind, key in self._registered() - before:
            remove[kind](key)

    def _problem(self, error: BaseException, offer: Offer | None) -> RegistrationError:
        line = offer.line if offer is not None else _line_of(error, self.file.path)
        place = self.shown if line is None else f"{self.shown}:{line}"
        if isinstance(error, RegistrationError):
            kind = DuplicateNameError if isinstance(error, DuplicateNameError) else RegistrationError
            return kind(f"{place}: {error}")
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return RegistrationError(f"{place}: {type(error).__name__}{f': {text}' * bool(text)}")


def _register(server: BaseServer, offer: Offer) -> None:
    register: Any = getattr(server, offer.kind)
    registered = register(**offer.described)
    if offer.function is not None:
        registered(offer.function)


def _line_of(error: BaseException, path: str) -> int | None:
    """Return the line of a file that raised an error; None if that is not known."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == path:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
