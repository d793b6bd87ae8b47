"""`linkspan call TARGET TOOL key=value ...`: start a server as a client would, call a tool, show the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from linkspan.cli.arguments import Typed, check_names, listed, near, parse, values
from linkspan.cli.saving import saver
from linkspan.cli.session import Outcome, Session
from linkspan.cli.show import show_result
from linkspan.cli.target import CommandLine, WrongUse
from linkspan.client.errors import ServerError
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.plain import one_line

if TYPE_CHECKING:
    from linkspan.client.results import ToolResult
    from linkspan.io.sync_client import SyncClient
    from linkspan.types.messages import Tool

__all__ = ["main"]

_EXAMPLES = """arguments:
  sides=20              a text, or JSON where the tool takes another type
  text=@letter.txt      what is in a file
  tags:='["a", "b"]'    JSON in any case
  '{"sides": 20}'       all arguments as one JSON object; - reads it from stdin

examples:
  linkspan call examples/dice.py roll sides=20 count=3
  linkspan call --json "npx -y some-server" search query=ferries
  linkspan call roll sides=20 -- python server.py --debug"""


def main(arguments: Sequence[str]) -> int:
    """Call one tool."""
    line = CommandLine(
        "call", arguments, "Call a tool of a server. The result goes to stdout, the rest to stderr.", _EXAMPLES
    )
    line.add("tool", metavar="TOOL", help="the tool's name; `linkspan list TARGET tools` has them all")
    line.add("arguments", metavar="ARGUMENT", nargs="*", help="key=value, key=@file, key:=json, one JSON object, or -")
    line.add("--save", metavar="DIR", help="write images, sounds and blobs to files in this directory")
    line.add("--unchecked", action="store_true", help="check nothing: no names, no types, no output")
    options = line.parse()
    session = Session(options)
    try:
        typed = parse(options.own.arguments)
    except WrongUse as problem:
        return session.wrong(str(problem))
    return session.run(partial(_call, typed=typed))


def _call(session: Session, typed: Typed) -> Outcome:
    own = session.options.own
    name: str = own.tool
    client = session.connect()
    tool = _find(client, name, checked=not own.unchecked)
    schema = tool.input_schema if tool is not None else None
    given = values(typed, schema, checked=not own.unchecked)
    if not own.unchecked:
        check_names(f"the tool {name!r}", given, schema)
    result = session.timed(
        _words(name, given),
        lambda: client.call_tool(name, given, on_progress=session.progressed, stopper=session.stopper),
    )
    if result.is_error:
        session.note(f"{client.name}: the tool {name!r} answered with an error")
    for problem in _misfits(tool, result) if session.console.verbose and not own.unchecked else ():
        session.note(f"{client.name}: the structured content does not fit the tool's schema: {one_line(problem, 200)}")
    document: JSON = json.loads(bytes(result.raw))
    return Outcome(document, partial(show_result, save=saver(own.save, name)), 1 if result.is_error else 0)


def _find(client: SyncClient, name: str, *, checked: bool) -> Tool | None:
    """Return a tool; None if the server does not list its tools. Raises: WrongUse for one that it does not list."""
    known: dict[str, Tool] = {}
    with suppress(ServerError):
        for tool in client.iter_tools():
            if tool.name == name:
                return tool
            known.setdefault(tool.name, tool)
    if checked and known:
        raise WrongUse(f"{client.name} has no tool {name!r}{near(name, known)}; it has {listed(list(known))}")
    return None


def _misfits(tool: Tool | None, result: ToolResult) -> list[str]:
    """Return what in the structured content does not fit the tool's own schema. Loads much, so it must be wanted."""
    if tool is None or tool.output_schema is None or result.is_error:
        return []
    if not result.has_structured:
        return ["there is none"]
    from linkspan.errors import RegistrationError
    from linkspan.schema.validate import compile_foreign

    try:
        return [str(each) for each in compile_foreign(tool.output_schema).check(result.structured)]
    except RegistrationError as problem:
        return [f"it cannot be checked: {problem}"]


def _words(name: str, given: JSONObject) -> str:
    shown = [
        f"{one_line(key, 40)}={one_line(json.dumps(value, ensure_ascii=False), 60)}" for key, value in given.items()
    ]
    return " ".join([one_line(name, 60), *shown])
