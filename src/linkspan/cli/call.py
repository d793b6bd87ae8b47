"""The verbs that ask a server for one thing and show the result: call, read, prompt and ping."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from linkspan.cli.options import CommandLine, Typed, WrongUse, check_names, listed, near, parse, texts, values
from linkspan.cli.session import Outcome, Session
from linkspan.cli.show import (
    decoded,
    milliseconds,
    saver,
    show_contents,
    show_messages,
    show_result,
    write_file,
)
from linkspan.cli.terminal import Style, Terminal
from linkspan.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from linkspan.flows.client_errors import ServerError
from linkspan.revisions import REVISIONS
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.redaction import one_line
from linkspan.wire.values import to_builtins

if TYPE_CHECKING:
    from linkspan.flows.tool_results import ToolResult
    from linkspan.types.messages import Tool

__all__ = ["call", "ping", "prompt", "read"]

_PINGS = 3

_CALL_EXAMPLES = """arguments:
  sides=20              a string, or JSON where the tool takes another type
  text=@letter.txt      the contents of a file
  tags:='["a", "b"]'    always JSON
  '{"sides": 20}'       all arguments as one JSON object; - reads it from stdin

examples:
  linkspan call examples/dice.py roll sides=20 count=3
  linkspan call --json "npx -y some-server" search query=ferries
  linkspan call roll sides=20 -- python server.py --debug"""

_PROMPT_EXAMPLES = """examples:
  linkspan prompt examples/dice.py game players=three
  linkspan prompt server.py review code=@main.py"""

_READ_EXAMPLES = """examples:
  linkspan read examples/dice.py dice://odds/6
  linkspan read server.py image://logo --save logo.png
  linkspan read server.py image://logo | display"""

_PING_EXAMPLES = """examples:
  linkspan ping server.py
  linkspan ping --era legacy -- npx -y some-server"""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _run_with_arguments(line: CommandLine, work: Callable[[Session, Typed], Outcome]) -> int:
    """Run a verb that takes the arguments of a tool or a prompt."""
    line.add("--save", metavar="DIR", help="write images, sounds and blobs to files in this directory")
    session = Session(line.parse())
    try:
        typed = parse(session.options.own.arguments)
    except WrongUse as problem:
        return session.wrong(str(problem))
    return session.run(lambda session: work(session, typed))


def _find(session: Session, kind: str, items: Iterable[N], name: str) -> N | None:
    """Return the item of this name; None if the server does not list such items. Raises: WrongUse for an unlisted one."""
    known: dict[str, N] = {}
    with suppress(ServerError):
        for item in items:
            if item.name == name:
                return item
            known.setdefault(item.name, item)
    if known and not session.options.own.unchecked:
        server = session.client.name
        raise WrongUse(f"{server} has no {kind} {name!r}{near(name, known)}; it has {listed(list(known))}")
    return None


def _summary(name: str, given: JSONObject) -> str:
    """Return a request on one line: `roll sides=20`."""
    pairs = [f"{one_line(key, 40)}={one_line(value, 60)}" for key, value in given.items()]
    return " ".join([one_line(name, 60), *pairs])


# call


def call(arguments: Sequence[str]) -> int:
    """`linkspan call TARGET TOOL key=value ...`: call one tool."""
    line = CommandLine(
        "call",
        arguments,
        "Call a tool of a server. The result goes to stdout, everything else to stderr.",
        _CALL_EXAMPLES,
    )
    line.add("tool", metavar="TOOL", help="the tool's name; `linkspan list TARGET tools` lists them")
    line.add("arguments", metavar="ARGUMENT", nargs="*", help="key=value, key=@file, key:=json, one JSON object, or -")
    line.add("--unchecked", action="store_true", help="check neither names nor types nor output")
    return _run_with_arguments(line, _call)


def _call(session: Session, typed: Typed) -> Outcome:
    own = session.options.own
    name: str = own.tool
    client = session.connect()
    tool = _find(session, "tool", client.iter_tools(), name)
    schema = tool.input_schema if tool is not None else None
    given = values(typed, schema, checked=not own.unchecked)
    if not own.unchecked:
        check_names(f"the tool {name!r}", given, schema)
    result = session.timed(
        _summary(name, {key: json.dumps(value, ensure_ascii=False) for key, value in given.items()}),
        lambda: client.call_tool(name, given, on_progress=session.progressed, stopper=session.stopper),
    )
    if result.is_error:
        session.warn(f"{client.name}: the tool {name!r} answered with an error")
    for problem in _misfits(tool, result) if session.terminal.verbose and not own.unchecked else ():
        session.warn(f"{client.name}: the structured content does not fit the tool's schema: {one_line(problem, 200)}")
    document: JSON = json.loads(bytes(result.raw))
    return Outcome(document, partial(show_result, save=saver(own.save, name)), 1 if result.is_error else 0)


def _misfits(tool: Tool | None, result: ToolResult) -> list[str]:
    """Return where the structured content does not fit the tool's output schema. Imports the validator."""
    if tool is None or tool.output_schema is None or result.is_error:
        return []
    if not result.has_structured:
        return ["the result has no structured content"]
    from linkspan.errors import RegistrationError
    from linkspan.schema.validate import compile_foreign

    try:
        return [str(each) for each in compile_foreign(tool.output_schema).check(result.structured)]
    except RegistrationError as problem:
        return [f"it cannot be checked: {problem}"]


# prompt


def prompt(arguments: Sequence[str]) -> int:
    """`linkspan prompt TARGET NAME key=value ...`: show the messages of a prompt, under their roles."""
    line = CommandLine("prompt", arguments, "Get the messages of a prompt.", _PROMPT_EXAMPLES)
    line.add("name", metavar="NAME", help="the prompt's name; `linkspan list TARGET prompts` lists them")
    line.add(
        "arguments", metavar="ARGUMENT", nargs="*", help="key=value, key=@file, or one JSON object of strings, or -"
    )
    line.add(
        "--unchecked",
        action="store_true",
        help="send the request even if the server does not list the prompt or an argument",
    )
    return _run_with_arguments(line, _prompt)


def _prompt(session: Session, typed: Typed) -> Outcome:
    own = session.options.own
    client = session.connect()
    given = texts(typed)
    if not own.unchecked:
        known = _find(session, "prompt", client.iter_prompts(), own.name)
        if known is not None:
            parameters = known.arguments or []
            schema: JSON = {
                "properties": dict.fromkeys((each.name for each in parameters), True),
                "required": [each.name for each in parameters if each.required],
                "additionalProperties": False,
            }
            check_names(f"the prompt {own.name!r}", given, schema)
    found = session.timed(
        f"prompt {_summary(own.name, given)}",
        lambda: client.get_prompt(own.name, given, on_progress=session.progressed, stopper=session.stopper),
    )
    return Outcome(to_builtins(found), partial(show_messages, save=saver(own.save, own.name)))


# read


def read(arguments: Sequence[str]) -> int:
    """`linkspan read TARGET URI`: write a resource's text to stdout; its bytes to a pipe or a file, never to a terminal."""
    line = CommandLine("read", arguments, "Read a resource of a server.", _READ_EXAMPLES)
    line.add("uri", metavar="URI", help="the resource; `linkspan list TARGET resources templates` lists them")
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
            error.hint = "`linkspan list TARGET resources templates` lists the resources"
        raise
    document: JSON = to_builtins(found)
    contents: list[JSONObject] = document["contents"]
    instead: Callable[[Terminal], None] | None = None
    if own.save is not None:
        if len(contents) != 1:
            problem = f"the resource has {len(contents)} contents, and --save writes one file; use --json instead"
            raise WrongUse(problem)
        data = _bytes_of(contents[0])
        write_file(Path(own.save), data)
        instead = partial(Terminal.info, text=f"{len(data)} bytes saved as {own.save}")
    elif len(contents) == 1 and "blob" in contents[0] and not sys.stdout.isatty():
        instead = partial(Terminal.emit_bytes, data=_bytes_of(contents[0]))
    return Outcome(document, show_contents, instead=instead)


def _bytes_of(contents: JSONObject) -> bytes:
    if "blob" not in contents:
        return str(contents.get("text", "")).encode("utf-8", "surrogatepass")
    data = decoded(contents["blob"])
    if data is None:
        raise WrongUse("the contents are not valid base64; --json shows them unchanged")
    return data


# ping


def ping(arguments: Sequence[str]) -> int:
    """`linkspan ping TARGET`: show whether a server can be reached, its revision, its features, and its round trips."""
    about = "Connect to a server, show its name, revision and features, and measure its response time."
    return Session(CommandLine("ping", arguments, about, _PING_EXAMPLES).parse()).run(_ping)


def _ping(session: Session) -> Outcome:
    client = session.connect()
    seconds: list[float] = []
    for _ in range(_PINGS):
        began = time.monotonic()
        client.ping()
        seconds.append(time.monotonic() - began)
    version = client.protocol_version or ""
    document: JSONObject = {
        "protocolVersion": version,
        "era": REVISIONS[version].era,
        "serverInfo": to_builtins(client.server_info) if client.server_info is not None else None,
        "capabilities": to_builtins(client.server_capabilities),
        "instructions": client.instructions,
        "connectSeconds": session.connect_seconds,
        "pingSeconds": seconds,
    }
    return Outcome({name: value for name, value in document.items() if value is not None}, _show_ping)


def _show_ping(found: JSONObject, style: Style) -> str:
    info: JSONObject = found.get("serverInfo") or {}
    name = f"{info.get('name', 'a server without a name')} {info.get('version', '')}".strip()
    title = f" ({info['title']})" if info.get("title") else ""
    rows = {
        "protocol": f"{found['protocolVersion']} ({found['era']})",
        "offers": _offers(found["capabilities"]),
        "instructions": str(found.get("instructions") or "").replace("\n", "\n" + " " * 16),
        "connected in": milliseconds(found["connectSeconds"]),
        "round trips": ", ".join(milliseconds(each) for each in found["pingSeconds"]),
    }
    lines = [f"  {style.dim(f'{label:<12}')}  {value}" for label, value in rows.items() if value]
    return "\n".join([style.bold(name) + title, *lines])


def _offers(capabilities: JSON) -> str:
    """Return the names of the capabilities that a server declares, each with its members."""
    offers: list[str] = []
    for name, about in capabilities.items() if is_object(capabilities) else ():
        details = [key for key, value in about.items() if value is not False] if is_object(about) else []
        offers.append(f"{name} ({', '.join(details)})" if details else name)
    return ", ".join(offers) or "nothing"
