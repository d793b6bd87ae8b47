"""`linkspan prompt TARGET NAME key=value ...`: the messages of a prompt, under their roles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from linkspan.cli.arguments import Typed, check_names, listed, near, parse, texts
from linkspan.cli.saving import saver
from linkspan.cli.session import Outcome, Session
from linkspan.cli.show import show_messages
from linkspan.cli.target import CommandLine, WrongUse
from linkspan.client.errors import ServerError
from linkspan.io.sync_client import SyncClient
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import Prompt
from linkspan.wire.plain import one_line
from linkspan.wire.values import to_builtins

__all__ = ["main"]

_EXAMPLES = """examples:
  linkspan prompt examples/dice.py game players=three
  linkspan prompt server.py review code=@main.py"""


def main(arguments: Sequence[str]) -> int:
    """Get one prompt."""
    line = CommandLine("prompt", arguments, "Get the messages of a prompt.", _EXAMPLES)
    line.add("name", metavar="NAME", help="the prompt's name; `linkspan list TARGET prompts` has them all")
    line.add("arguments", metavar="ARGUMENT", nargs="*", help="key=value, key=@file, or one JSON object of texts, or -")
    line.add("--save", metavar="DIR", help="write images, sounds and blobs to files in this directory")
    line.add("--unchecked", action="store_true", help="send it even if the server lists no such prompt or argument")
    options = line.parse()
    session = Session(options)
    try:
        typed = parse(options.own.arguments)
    except WrongUse as problem:
        return session.wrong(str(problem))
    return session.run(partial(_get, typed=typed))


def _get(session: Session, typed: Typed) -> Outcome:
    own = session.options.own
    client = session.connect()
    given = texts(typed)
    if not own.unchecked:
        check_names(f"the prompt {own.name!r}", given, _schema(client, own.name))
    words = [f"{one_line(key, 40)}={one_line(value, 60)}" for key, value in given.items()]
    found = session.timed(
        " ".join(["prompt", one_line(own.name, 60), *words]),
        lambda: client.get_prompt(own.name, given, on_progress=session.progressed, stopper=session.stopper),
    )
    return Outcome(to_builtins(found), partial(show_messages, save=saver(own.save, own.name)))


def _schema(client: SyncClient, name: str) -> JSON:
    """Return a prompt's parameters as a schema, None if they are not known. Raises: WrongUse for an unknown prompt."""
    known: dict[str, Prompt] = {}
    with suppress(ServerError):
        for prompt in client.iter_prompts():
            if prompt.name == name:
                parameters = prompt.arguments or []
                properties: JSONObject = dict.fromkeys((each.name for each in parameters), True)
                return {
                    "properties": properties,
                    "required": [each.name for each in parameters if each.required],
                    "additionalProperties": False,
                }
            known.setdefault(prompt.name, prompt)
    if known:
        raise WrongUse(f"{client.name} has no prompt {name!r}{near(name, known)}; it has {listed(list(known))}")
    return None
