"""`linkspan run FILE[:OBJECT]`: stdout belongs to the protocol before the author's module is even imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkspan.io.driver import Connectable
    from linkspan.server.server import Server

__all__ = ["load_server", "main"]

USAGE = """usage: linkspan run FILE[:OBJECT]

Serve the Server in a Python file over stdio. OBJECT is its name in the file; it may be left out if there is only one.
A FILE.transcript is played: a recorded server that answers what it was asked in the recording.
Whatever the file prints goes to stderr. Exit status: 0 after the client left, 1 if the file failed, 2 for a wrong command
line, 130 after Ctrl-C."""


class CannotLoad(Exception):
    """The message says what to change."""


def main(arguments: Sequence[str]) -> int:
    """Serve one file."""
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        helped = bool(arguments) and arguments[0] in ("-h", "--help")
        print(USAGE, file=sys.stdout if helped else sys.stderr)
        return 0 if helped else 2
    from linkspan.io.stdout import claim_stdout

    claim_stdout()
    try:
        server = _load(arguments[0])
    except CannotLoad as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    except Exception as error:
        _print_from_user_code(error)
        return 1
    from linkspan.io.stdio import StdioTransport

    return StdioTransport(server).open()


def _load(target: str) -> Connectable:
    if not target.endswith(".transcript"):
        return load_server(target)
    from linkspan.testing.player import Player

    try:
        return Player(target)
    except (OSError, ValueError) as problem:
        raise CannotLoad(str(problem)) from None


def load_server(target: str) -> Server:
    """Import a file and return its Server. Raises: CannotLoad, and whatever the file raises."""
    import os
    from importlib.util import module_from_spec, spec_from_file_location

    from linkspan.server.server import Server

    path, _, wanted = target.partition(":") if not os.path.exists(target) else (target, "", "")
    if not os.path.isfile(path):
        raise CannotLoad(f"there is no file {path!r}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{path!r} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if wanted:
        found = getattr(module, wanted, None)
        if not isinstance(found, Server):
            raise CannotLoad(f"{path} has no Server named {wanted!r}")
        return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    unique = {id(value): key for key, value in servers.items()}
    if not unique:
        raise CannotLoad(f"{path} has no Server: write `server = linkspan.Server(...)` at its top level")
    if len(unique) > 1:
        raise CannotLoad(
            f"{path} has several Servers ({', '.join(servers)}): say which, as in {path}:{next(iter(servers))}"
        )
    return next(iter(servers.values()))


def _print_from_user_code(error: Exception) -> None:
    """Print the traceback, beginning where the author's file begins."""
    import traceback

    frames = error.__traceback__
    while frames is not None and (
        "linkspan" in frames.tb_frame.f_code.co_filename or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)
