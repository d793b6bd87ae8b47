"""`linkspan run FILE[:OBJECT]`: stdout belongs to the protocol before the author's module is even imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkspan.io.driver import Connectable
    from linkspan.server.server import Server

__all__ = ["load_server", "main"]

_DESCRIPTION = """Serve the Server in a Python file over stdio. OBJECT is its name in the file; it may be left out if
there is only one. A FILE.transcript is played: a recorded server that answers what it was asked in the recording."""

_EPILOG = """Whatever the file prints goes to stderr. Exit status: 0 after the client left, 1 if the file failed,
2 for a wrong command line, 130 after Ctrl-C."""


class CannotLoad(Exception):
    """The message says what to change."""


def main(arguments: Sequence[str]) -> int:
    """Serve one file."""
    match arguments:
        case [target] if not target.startswith("-"):
            return _serve(target)  # what hosts start, and wait for: no parser
        case _:
            return _serve_as_asked(arguments)


def _serve_as_asked(arguments: Sequence[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog="linkspan run",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="FILE[:OBJECT]", help="what to serve")
    parser.add_argument(
        "--reload",
        action="store_true",
        help="start the server anew when its source changes; the client stays connected",
    )
    options = parser.parse_args(list(arguments))
    return _serve_reloading(options.target) if options.reload else _serve(options.target)


def _serve(target: str) -> int:
    from linkspan.io.stdout import claim_stdout

    claim_stdout()
    try:
        server = _load(target)
    except CannotLoad as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    except Exception as error:
        _print_from_user_code(error)
        return 1
    from linkspan.io.stdio import StdioTransport

    return StdioTransport(server).open()


def _serve_reloading(target: str) -> int:
    try:
        path, _ = _split(target)
    except CannotLoad as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    from linkspan.cli.reload import serve_reloading

    return serve_reloading(target, path)


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

    path, wanted = _split(target)
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


def _split(target: str) -> tuple[str, str]:
    """Return the path of a file that is there, and the name of an object in it."""
    import os

    path, _, wanted = target.partition(":") if not os.path.exists(target) else (target, "", "")
    if not os.path.isfile(path):
        raise CannotLoad(f"there is no file {path!r}")
    return path, wanted


def _print_from_user_code(error: Exception) -> None:
    """Print the traceback, beginning where the author's file begins."""
    import traceback

    frames = error.__traceback__
    while frames is not None and (
        "linkspan" in frames.tb_frame.f_code.co_filename or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)
