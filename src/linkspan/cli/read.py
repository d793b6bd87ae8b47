"""`linkspan read TARGET URI`: a resource's text to stdout; its bytes to a pipe or a file, never to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from linkspan.cli.saving import decoded, write_file
from linkspan.cli.session import Outcome, Session
from linkspan.cli.show import show_contents
from linkspan.cli.target import CommandLine, WrongUse
from linkspan.cli.terminal import Console
from linkspan.client.errors import ServerError
from linkspan.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.plain import one_line
from linkspan.wire.values import to_builtins

__all__ = ["main"]

_EXAMPLES = """examples:
  linkspan read examples/dice.py dice://odds/6
  linkspan read server.py image://logo --save logo.png
  linkspan read server.py image://logo | display"""


def main(arguments: Sequence[str]) -> int:
    """Read one resource."""
    line = CommandLine("read", arguments, "Read a resource of a server.", _EXAMPLES)
    line.add("uri", metavar="URI", help="the resource; `linkspan list TARGET resources templates` shows what there is")
    line.add("--save", metavar="FILE", help="write it to this file, byte for byte")
    return Session(line.parse()).run(_read)


def _read(session: Session) -> Outcome:
    own = session.options.own
    client = session.connect()
    try:
        found = session.timed(
            f"read {one_line(own.uri)}",
            lambda: client.read_resource(own.uri, on_progress=session.progressed, stopper=session.stopper),
        )
    except ServerError as error:
        if error.code in (INVALID_PARAMS, RESOURCE_NOT_FOUND) and error.hint is None:
            error.hint = "`linkspan list TARGET resources templates` shows what there is"
        raise
    document: JSON = to_builtins(found)
    contents: list[JSONObject] = document["contents"]
    instead: Callable[[Console], None] | None = None
    if own.save is not None:
        instead = _save(own.save, contents, session.options.target)
    elif len(contents) == 1 and "blob" in contents[0] and not sys.stdout.isatty():
        instead = partial(Console.emit_bytes, data=_bytes_of(contents[0]))
    return Outcome(document, show_contents, instead=instead)


def _save(path: str, contents: Sequence[JSONObject], target: object) -> Callable[[Console], None]:
    """Write the only contents to a file; return what says so."""
    if len(contents) != 1:
        raise WrongUse(f"the resource has {len(contents)} contents, which do not go into one file; --json has them all")
    data = _bytes_of(contents[0])
    write_file(Path(path), data)
    return lambda console: console.account(f"{len(data)} bytes saved as {path}")


def _bytes_of(contents: JSONObject) -> bytes:
    if "blob" not in contents:
        return str(contents.get("text", "")).encode("utf-8", "surrogatepass")
    data = decoded(contents["blob"])
    if data is None:
        raise WrongUse("the contents are no base64; --json shows them as they came")
    return data
