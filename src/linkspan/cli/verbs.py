"""The verbs that ask a server for something and show the result: list, call, read, prompt and ping."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from linkspan.cli.options import CommandLine, Typed, WrongUse, check_names, listed, near, parse, texts, values
from linkspan.cli.session import REFUSED, WRONG_USE, Outcome, Session, describe
from linkspan.cli.show import (
    decoded,
    saver,
    show_contents,
    show_lists,
    show_messages,
    show_ping,
    show_result,
    show_task,
    write_file,
)
from linkspan.cli.terminal import Style, Terminal
from linkspan.client.base import CallKeywords
from linkspan.client.sync_client import SyncClient
from linkspan.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, LinkspanError
from linkspan.flows.client_errors import ServerError
from linkspan.flows.tool_results import ToolResult
from linkspan.revisions import REVISIONS
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import neutral, one_line
from linkspan.wire.values import to_builtins

if TYPE_CHECKING:
    from linkspan.flows.tasks import TaskStatus

_PINGS = 3

_LIST_EXAMPLES = """examples:
  linkspan list examples/dice.py
  linkspan list "npx -y some-server" tools --long
  linkspan list mcp.json:files tools --json | jq -r '.tools[].name'"""

_CALL_EXAMPLES = """arguments:
  sides=20              a string, or JSON where the tool takes another type
  text=@letter.txt      the contents of a file
  tags:='["a", "b"]'    always JSON
  '{"sides": 20}'       all arguments as one JSON object; - reads it from stdin

examples:
  linkspan call examples/dice.py roll sides=20 count=3
  linkspan call --json "npx -y some-server" search query=ferries
  linkspan call roll sides=20 -- python server.py --debug"""

_TASK_EXAMPLES = """examples:
  linkspan call --task https://example.com/mcp reindex
  linkspan task watch https://example.com/mcp 0d5cSPXhkVcAvT7y"""

_PROMPT_EXAMPLES = """examples:
  linkspan prompt examples/dice.py game players=three
  linkspan prompt server.py review code=@main.py"""

_READ_EXAMPLES = """examples:
  linkspan read examples/dice.py dice://odds/6
  linkspan read server.py image://logo --save logo.png
  linkspan read server.py image://logo | display"""

_INSPECT_EXAMPLES = """examples:
  linkspan inspect server.py
  linkspan inspect https://example.com/mcp --json | jq .capabilities"""

_PING_EXAMPLES = """examples:
  linkspan ping server.py
  linkspan ping --era legacy -- npx -y some-server"""


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_HasName)


def _run_with_arguments(line: CommandLine, work: Callable[[Session, Typed], Outcome]) -> int:
    """Run a verb that takes the arguments of a tool or a prompt."""
    line.add("--save", metavar="DIR", help="write images, sounds and blobs to files in this directory")
    session = Session(line.parse())
    try:
        typed = parse(session.options.arguments)
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
    if known and not session.options.unchecked:
        server = session.client.name
        raise WrongUse(f"{server} has no {kind} {name!r}{near(name, known)}; it has {listed(list(known))}")
    return None


def _summary(name: str, given: JSONObject) -> str:
    """Return a request on one line: `roll sides=20`."""
    pairs = [f"{one_line(key, 40)}={one_line(value, 60)}" for key, value in given.items()]
    return " ".join([one_line(name, 60), *pairs])


# list

_ASK: Final[dict[str, tuple[str, str, Callable[[SyncClient], Sequence[object]]]]] = {
    "tools": ("tools", "tools", SyncClient.list_tools),
    "resources": ("resources", "resources", SyncClient.list_resources),
    "templates": ("resources", "resourceTemplates", SyncClient.list_resource_templates),
    "prompts": ("prompts", "prompts", SyncClient.list_prompts),
}
"""For each kind its capability, its member of the document, and the request for it."""


def list_(arguments: Sequence[str]) -> int:
    """`linkspan list TARGET [KIND|NAME]...`: show what a server offers, and how to use it."""
    line = CommandLine("list", arguments, "Show what a server offers, and how to use it.", _LIST_EXAMPLES)
    kinds = "tools, resources, templates or prompts (default: all that the server declares), or the name of one item"
    line.add("kinds", metavar="KIND", nargs="*", default=[], help=kinds)
    line.add("--long", action="store_true", help="whole descriptions and schemas")
    line.add(
        "--skills", action="store_true", help="the skills of the server, with their files (needs the extra skills)"
    )

    def conversation(session: Session) -> Outcome:
        session.connect()
        if session.options.skills:
            return _skills(session)
        words: list[str] = list(dict.fromkeys(session.options.kinds))
        kinds, names = [each for each in words if each in _ASK], [each for each in words if each not in _ASK]
        document, errors = _lists(session, kinds)
        if names:
            document = _only(document, names, session.client.name)
        document |= {"errors": errors} if errors else {}
        show = partial(
            show_lists, server=session.client.name, asked=bool(words), long=session.options.long or bool(names)
        )
        return Outcome(document, show, REFUSED if errors else 0)

    return Session(line.parse()).run(conversation)


def _skills(session: Session) -> Outcome:
    """Return the skills that a server lists; none of their files is read. Raises: WrongUse where PyYAML is missing."""
    from linkspan.skills.reading import SyncClientSkills

    try:
        skills = SyncClientSkills(session.client)
    except LinkspanError as problem:
        raise WrongUse(str(problem)) from None
    found = skills.list()
    for said in skills.problems:
        session.warn(neutral(f"left out: {said}"))

    def show(_: JSON, style: Style) -> str:
        lines: list[str] = []
        for each in found:
            files = (
                "generated" if each.is_dynamic else f"{len(each.files)} {'file' if len(each.files) == 1 else 'files'}"
            )
            lines.append(f"{style.cyan(one_line(each.name, 100))}  {style.dim(one_line(f'{each.uri} ({files})', 200))}")
            lines.append(f"  {one_line(each.description, 300)}")
            lines += [f"    {one_line(path, 200)}" for path in each.files if session.options.long]
        return "\n".join(lines) or f"{session.client.name} lists no skills."

    return Outcome({"skills": [to_builtins(each.entry) for each in found]}, show)


def _lists(session: Session, asked: Sequence[str]) -> tuple[JSONObject, JSONObject]:
    """Return the lists of these kinds by their members, by default all that the server declares, and those that failed."""
    client = session.client
    offers = client.server_capabilities
    kinds = asked or [
        each for each, (name, _, _) in _ASK.items() if offers is None or getattr(offers, name) is not None
    ]
    document: JSONObject = {}
    errors: JSONObject = {}
    for _, member, ask in (_ASK[each] for each in kinds):
        try:
            document[member] = to_builtins(ask(client))
        except ServerError as error:
            if len(kinds) == 1:
                raise
            errors[member] = describe(error)
            session.warn(neutral(str(error)))
    return document, errors


def _only(document: JSONObject, names: Sequence[str], server: str) -> JSONObject:
    """Return the items of these names, in lists that have one. Raises: WrongUse for a name of none."""
    keys = ("name", "uri", "uriTemplate")
    items = [
        (member, each, [name for key in keys if (name := each.get(key)) is not None])
        for member in document
        for each in document[member]
    ]
    known = list(dict.fromkeys(name for _, _, named in items for name in named))
    for name in names:
        if name not in known:
            raise WrongUse(f"{server} has no {name!r}{near(name, [*_ASK, *known])}; it has {listed(known)}")
    found = {member: [each for of, each, named in items if of == member and {*named} & {*names}] for member in document}
    return {member: each for member, each in found.items() if each}


# inspect


def inspect(arguments: Sequence[str]) -> int:
    """`linkspan inspect TARGET`: show a server's name, revision, capabilities and instructions, and all that it offers."""
    about = "Show a server's name, revision, features and instructions, and all that it offers, with schemas."
    line = CommandLine("inspect", arguments, about, _INSPECT_EXAMPLES)

    def conversation(session: Session) -> Outcome:
        session.connect()
        server = _pinged(session)
        lists, errors = _lists(session, ())
        show_all = partial(show_lists, server=session.client.name, asked=False, long=True)
        document = {**server, **lists} | ({"errors": errors} if errors else {})
        return Outcome(
            document,
            lambda found, style: f"{show_ping(found, style)}\n\n{show_all(found, style)}",
            REFUSED if errors else 0,
        )

    return Session(line.parse()).run(conversation)


# call


def call(arguments: Sequence[str]) -> int:
    """`linkspan call TARGET TOOL key=value ...`: call one tool."""
    about = "Call a tool of a server. The result goes to stdout, everything else to stderr."
    line = CommandLine("call", arguments, about, _CALL_EXAMPLES)
    line.add("tool", metavar="TOOL", nargs="?", help="the tool's name; without one, the tools are listed")
    given = "key=value, key=@file, key:=json, one JSON object, or -"
    line.add("arguments", metavar="ARGUMENT", nargs="*", default=[], help=given)
    line.add("--unchecked", action="store_true", help="check neither names nor types nor output")
    begins = "print the id of the task that the server makes of the call, instead of waiting (see `linkspan task`)"
    line.add("--task", action="store_true", help=begins)

    def conversation(session: Session, typed: Typed) -> Outcome:
        client = session.connect()
        name, checked = session.options.tool, not session.options.unchecked
        if name is None:
            session.warn(f"{client.name}: name the tool to call; these are its tools")
            show = partial(show_lists, server=client.name, asked=True, long=False)
            return Outcome(_lists(session, ["tools"])[0], show, WRONG_USE)
        tool = _find(session, "tool", client.iter_tools(), name)
        schema = tool.input_schema if tool is not None else None
        given = values(typed, schema, checked=checked)
        if checked:
            check_names(f"the tool {name!r}", given, schema)
        summary = _summary(name, {key: json.dumps(value, ensure_ascii=False) for key, value in given.items()})
        keywords: CallKeywords = {"on_progress": session.progressed, "stopper": session.stopper}
        if session.options.task:
            task = session.timed(summary, lambda: client.start_tool(name, given, **keywords))
            if task.id is not None:
                if client.origin.url is None:
                    session.warn(
                        f"{client.name}: it ends with this command, and the task with it, unless it has a store"
                    )
                return task_outcome(task.status())
            result = task.result()
        else:
            result = session.timed(summary, lambda: client.call_tool(name, given, **keywords))
        if result.is_error:
            session.warn(f"{client.name}: the tool {name!r} answered with an error")
            session.explain(result.text)
        elif session.terminal.verbose and checked and tool is not None and tool.output_schema is not None:
            for each in _misfits(tool.output_schema, result):
                problem = f"the structured content does not fit the tool's schema: {one_line(each, 200)}"
                session.warn(f"{client.name}: {problem}")
        document: JSON = json.loads(bytes(result.raw))
        show = partial(show_result, save=saver(session.options.save, name))
        return Outcome(document, show, REFUSED if result.is_error else 0)

    return _run_with_arguments(line, conversation)


def _misfits(schema: JSONObject, result: ToolResult) -> list[str]:
    """Return where the structured content does not fit the tool's output schema. Imports the validator."""
    if not result.has_structured:
        return ["the result has no structured content"]
    from linkspan.errors import RegistrationError
    from linkspan.schema.validate import compile_foreign

    try:
        return [str(each) for each in compile_foreign(schema).check(result.structured)]
    except RegistrationError as problem:
        return [f"it cannot be checked: {problem}"]


# task


def task(arguments: Sequence[str]) -> int:
    """`linkspan task get|watch|cancel TARGET ID`: what has become of a call that is a task."""
    actions = {
        "get": "show its state",
        "watch": "wait for its result, and answer its questions",
        "cancel": "ask the server to end it",
    }
    about = "Show, watch or cancel a task that `linkspan call --task`, or another client, has begun."
    line = CommandLine("task", arguments, about, _TASK_EXAMPLES, actions)
    line.add("id", metavar="ID", help="the task's id")
    line.add("--save", metavar="DIR", help="write images, sounds and blobs to files in this directory")

    def conversation(session: Session) -> Outcome:
        found = session.connect().task(session.options.id)
        match session.options.action:
            case "get":
                return task_outcome(found.status())
            case "cancel":
                session.timed(f"cancel {one_line(session.options.id)}", found.cancel)
                return task_outcome(found.status())
            case _:
                result = found.result(session.options.timeout, session.task_changed)
                if result.is_error:
                    session.explain(result.text)
        document: JSON = json.loads(bytes(result.raw))
        show = partial(show_result, save=saver(session.options.save, "task"))
        return Outcome(document, show, REFUSED if result.is_error else 0)

    options = line.parse()
    options.task = True
    return Session(options).run(conversation)


def task_outcome(found: TaskStatus) -> Outcome:
    """Return the state of a task as the result of a verb."""
    return Outcome(json.loads(encode(found)), show_task)


# prompt


def prompt(arguments: Sequence[str]) -> int:
    """`linkspan prompt TARGET NAME key=value ...`: show the messages of a prompt, under their roles."""
    line = CommandLine("prompt", arguments, "Get the messages of a prompt.", _PROMPT_EXAMPLES)
    line.add("name", metavar="NAME", help="the prompt's name; `linkspan list TARGET prompts` lists them")
    given = "key=value, key=@file, or one JSON object of strings, or -"
    line.add("arguments", metavar="ARGUMENT", nargs="*", default=[], help=given)
    unchecked = "send the request even if the server does not list the prompt or an argument"
    line.add("--unchecked", action="store_true", help=unchecked)

    def conversation(session: Session, typed: Typed) -> Outcome:
        client = session.connect()
        name, given = session.options.name, texts(typed)
        known = None if session.options.unchecked else _find(session, "prompt", client.iter_prompts(), name)
        if known is not None:
            parameters = known.arguments or []
            schema: JSON = {
                "properties": dict.fromkeys((each.name for each in parameters), True),
                "required": [each.name for each in parameters if each.required],
                "additionalProperties": False,
            }
            check_names(f"the prompt {name!r}", given, schema)
        found = session.timed(
            f"prompt {_summary(name, given)}",
            lambda: client.get_prompt(name, given, on_progress=session.progressed, stopper=session.stopper),
        )
        return Outcome(to_builtins(found), partial(show_messages, save=saver(session.options.save, name)))

    return _run_with_arguments(line, conversation)


# read


def read(arguments: Sequence[str]) -> int:
    """`linkspan read TARGET URI`: write a resource's text to stdout; its bytes to a pipe or a file, never to a terminal."""
    line = CommandLine("read", arguments, "Read a resource of a server.", _READ_EXAMPLES)
    line.add("uri", metavar="URI", help="the resource; `linkspan list TARGET resources templates` lists them")
    line.add("--save", metavar="FILE", help="write it to this file, byte for byte")

    def conversation(session: Session) -> Outcome:
        uri, file = session.options.uri, session.options.save
        client = session.connect()
        try:
            found = session.timed(
                f"read {one_line(uri)}",
                lambda: client.read_resource(uri, on_progress=session.progressed, stopper=session.stopper),
            )
        except ServerError as error:
            if error.code in (INVALID_PARAMS, RESOURCE_NOT_FOUND) and error.hint is None:
                error.hint = "`linkspan list TARGET resources templates` lists the resources"
            raise
        document: JSON = to_builtins(found)
        contents: list[JSONObject] = document["contents"]
        instead: Callable[[Terminal], None] | None = None
        if file is not None:
            if len(contents) != 1:
                problem = f"the resource has {len(contents)} contents, and --save writes one file; use --json instead"
                raise WrongUse(problem)
            data = _bytes_of(contents[0])
            write_file(Path(file), data)
            instead = partial(Terminal.info, text=f"{len(data)} bytes saved as {file}")
        elif len(contents) == 1 and "blob" in contents[0] and not sys.stdout.isatty():
            instead = partial(Terminal.emit_bytes, data=_bytes_of(contents[0]))
        return Outcome(document, show_contents, instead=instead)

    return Session(line.parse()).run(conversation)


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
    line = CommandLine("ping", arguments, about, _PING_EXAMPLES)

    def conversation(session: Session) -> Outcome:
        session.connect()
        return Outcome(_pinged(session), show_ping)

    return Session(line.parse()).run(conversation)


def _pinged(session: Session) -> JSONObject:
    """Ping the server, and return what is known of it."""
    client = session.client
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
    return {name: value for name, value in document.items() if value is not None}
