"""The tables of the reference pages, from the code: `python docs/tables.py` writes them, and a test compares.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. What the code does not know, as the reason of a fixed limit, is
written here.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from linkspan.checks.requirement import REQUIREMENTS
from linkspan.checks.running import REQUIRING
from linkspan.cli.main import VERBS, ParserShown
from linkspan.cli.main import main as command_line
from linkspan.contract.comparing import RULES
from linkspan.contract.linting import RULES as LINT_RULES
from linkspan.core.http_checks import HttpPolicy
from linkspan.doctor.verdicts import FAULTS
from linkspan.flows.state import CLIENT_LIMITS, Timeouts
from linkspan.host.conversation import TurnBounds
from linkspan.host.models import Backoff, ModelTimeouts
from linkspan.revisions import METHODS, REVISIONS
from linkspan.revisions.record import Revision
from linkspan.server.configuration import Profile
from linkspan.stores.port import Bounds
from linkspan.types.base import Implementation
from linkspan.wire.values import Limits

PAGES = Path(__file__).parent
PLACE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)


class Fixed(NamedTuple):
    """A limit that no setting changes."""

    module: str
    name: str
    unit: str
    bounds: str
    reason: str


FIXED = (
    Fixed(
        "serve.stdio",
        "GRACE",
        "s",
        "calls that run when stdin ends",
        "a client that left does not read their results",
    ),
    Fixed(
        "serve.stdio",
        "MAX_UNSENT",
        "bytes",
        "output that waits for the client",
        "a client that does not read must not fill memory",
    ),
    Fixed(
        "serve.http",
        "DRAIN",
        "s",
        "calls that run at a stop; `drain=` changes it",
        "supervisors kill after 10 s or less",
    ),
    Fixed(
        "runtime.workers",
        "MAX_WORKERS",
        "threads",
        "plain functions at the same time",
        "threads cost memory; more of them only wait",
    ),
    Fixed(
        "server.request_state",
        "MAX_BYTES",
        "bytes",
        "a sealed `requestState`",
        "it travels in each round, in both directions",
    ),
    Fixed(
        "server.large_results",
        "MAX_KEPT",
        "bytes",
        "results that `max_result=` keeps as links",
        "they are kept in memory",
    ),
    Fixed(
        "server.large_results",
        "TTL",
        "s",
        "how long such a link is valid",
        "a model reads it in the same turn",
    ),
    Fixed(
        "server.completion",
        "MAX_VALUES",
        "values",
        "suggestions of one completion",
        "the specification's own limit",
    ),
    Fixed(
        "server.uri_template",
        "MAX_URI",
        "characters",
        "a URI to read",
        "matching stays linear in its length",
    ),
    Fixed(
        "server.tools",
        "_LONGEST_NAME",
        "characters",
        "the name of a tool or prompt",
        "the specification's own limit",
    ),
    Fixed(
        "schema.document",
        "_DEEPEST",
        "levels",
        "nesting of an input schema",
        "recursion of readers",
    ),
    Fixed(
        "schema.document",
        "_MOST",
        "parts",
        "parts of an input schema",
        "checks take time in proportion",
    ),
    Fixed(
        "schema.problems",
        "_MOST_PROBLEMS",
        "problems",
        "mistakes that one refusal lists",
        "a model mends a few at a time",
    ),
    Fixed(
        "client.transports.http_connections",
        "LARGEST_HEAD",
        "bytes",
        "headers and trailers of one response; trailers are not read",
        "they are held in memory until the body comes",
    ),
    Fixed(
        "client.transports.http_connections",
        "MOST_LINES",
        "lines",
        "the same, by lines",
        "a line costs more than its bytes",
    ),
    Fixed(
        "wire.challenges",
        "LONGEST_CHALLENGES",
        "characters",
        "the `WWW-Authenticate` header of a response",
        "any server may send one, and reading it takes time",
    ),
    Fixed(
        "auth.verifying",
        "_LEEWAY",
        "s",
        "difference between two clocks",
        "clocks of servers differ",
    ),
    Fixed(
        "auth.verifying",
        "LONGEST",
        "s",
        "how long a verified token is remembered",
        "a revoked one goes on so long",
    ),
    Fixed(
        "serve.guarding",
        "_LOOK_AGAIN",
        "s",
        "until the token of a stream that only listens is verified again",
        "a revoked one is noticed within a minute",
    ),
    Fixed(
        "auth.proofs",
        "_WINDOW",
        "s",
        "age of a DPoP proof or nonce",
        "a captured proof must not stay valid",
    ),
    Fixed(
        "auth.proofs",
        "_MOST_OF_KEY",
        "proofs",
        "DPoP proofs of one key that are remembered",
        "a flood hurts its own key",
    ),
    Fixed(
        "auth.proofs",
        "_MOST",
        "proofs",
        "DPoP proofs of all keys that a process remembers; further ones are refused",
        "100 to 250 MB; one that is forgotten too early could be used again",
    ),
    Fixed(
        "auth.jwks",
        "_KEPT",
        "s",
        "how long metadata and keys are kept",
        "keys rotate; an unknown one is asked for earlier",
    ),
    Fixed(
        "auth.tokens",
        "_EARLY",
        "s",
        "before its end, a token is renewed",
        "it must outlast the request",
    ),
    Fixed(
        "openapi.reading",
        "MAX_BYTES",
        "bytes",
        "an OpenAPI document",
        "it is held in memory",
    ),
    Fixed(
        "openapi.reading",
        "MAX_OPERATIONS",
        "operations",
        "those of one document",
        "the largest public ones have 1,300",
    ),
    Fixed(
        "openapi.reading",
        "MAX_ARGUMENTS",
        "arguments",
        "those of one operation",
        "a model fills in a few",
    ),
    Fixed(
        "openapi.schemas",
        "MAX_NODES",
        "parts",
        "schemas of one operation",
        "references can multiply",
    ),
    Fixed(
        "openapi.schemas",
        "MAX_DEPTH",
        "levels",
        "the same, by nesting",
        "recursion of readers",
    ),
    Fixed(
        "openapi.curation",
        "MAX_TOOLS",
        "tools",
        "operations that are tools without a choice",
        "a model works with a few",
    ),
    Fixed(
        "openapi.curation",
        "MAX_TOKENS",
        "tokens",
        "the same, by tokens",
        "they are in each conversation",
    ),
    Fixed(
        "openapi.calling",
        "MAX_RESPONSE",
        "bytes",
        "a response of an API; `max_response=` changes it",
        "it is held in memory",
    ),
    Fixed(
        "openapi.calling",
        "TIMEOUT",
        "s",
        "a request to an API; `timeout=` changes it",
        "a call waits for it",
    ),
    Fixed(
        "openapi.calling",
        "CONCURRENCY",
        "requests",
        "those to one API at the same time; `concurrency=` changes it",
        "an API must not be flooded",
    ),
    Fixed(
        "openapi.calling",
        "MAX_WAITING",
        "calls",
        "calls that wait for their turn",
        "further ones are refused",
    ),
    Fixed(
        "openapi.answers",
        "MAX_ERROR",
        "characters",
        "what an API says of a failure",
        "a model reads it",
    ),
    Fixed(
        "openapi.in_process",
        "MAX_RUNNING",
        "calls",
        "calls of an application that have not ended, in the background included",
        "further ones are refused",
    ),
    Fixed(
        "cli.trace",
        "_MAX_LINE",
        "bytes",
        "a line that `trace` records",
        "the same as a client's messages",
    ),
)

SETTINGS: dict[str, object] = {
    "timeouts": Timeouts(),
    "limits": Limits(),
    "http": HttpPolicy(),
    "host": TurnBounds(),
    "models": ModelTimeouts(),
    "backoff": Backoff(),
    "logs": Bounds(),
}
"""The settings that are bounds, by the name of their table."""


def docstrings(owner: type) -> dict[str, str]:
    """Return the docstrings of fields."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(str(after.value.value))
        for field, after in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


_FEWEST_BYTES = 16 * 1024
"""A smaller number is not one of bytes."""


def amount(value: object) -> str:
    """Return a number as people write it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"`{value!r}`"
    for unit, size in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if (
            isinstance(value, int)
            and value >= max(size, _FEWEST_BYTES)
            and value % size == 0
        ):
            return f"{value // size:,} {unit}"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(
        f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines
    )


def settings(values: Any, only: str = "") -> str:
    """Return the bounds among some settings, with names that begin so: numbers above zero, and None where it means a bound."""
    about = docstrings(type(values))
    found: list[tuple[str, str, str]] = []
    for name, words in about.items():
        value: object = getattr(values, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name.startswith(only) and (
            is_number or (value is None and name.startswith("max_"))
        ):
            found.append(
                (
                    f"`{name}`",
                    amount(value) if value is not None else "none",
                    words.replace("|", "\\|"),
                )
            )
    return rows(("name", "default", "what it bounds"), found)


def fixed() -> str:
    """Return the limits that no setting changes."""
    lines: list[tuple[str, str, str]] = []
    for each in FIXED:
        value = getattr(import_module(f"linkspan.{each.module}"), each.name)
        shown = amount(value)
        lines.append(
            (
                each.bounds,
                shown if shown.endswith("iB") else f"{shown} {each.unit}",
                each.reason,
            )
        )
    return rows(("what", "limit", "reason"), lines)


def verb(name: str) -> str:
    """Return the arguments and options of one verb."""
    parser = parser_of(name)
    lines = [f"{parser.description}\n\n```\n{parser.prog} {usage(parser)}\n```\n"]
    shown = [
        each
        for each in parser._actions
        if each.help != "==SUPPRESS==" and each.dest != "help"
    ]
    cells = [
        (
            ", ".join(
                f"`{each}{f' {metavar(action)}' if metavar(action) else ''}`"
                for each in action.option_strings
            )
            or f"`{metavar(action)}`",
            (action.help or "").replace("|", "\\|").replace("%%", "%"),
        )
        for action in shown
    ]
    return "".join(lines) + (
        "\n" + rows(("argument", "meaning"), cells) if cells else ""
    )


def parser_of(name: str) -> ArgumentParser:
    """Return the parser of a verb."""
    try:
        command_line([name, "--describe"])
    except ParserShown as described:
        return described.parser
    raise AssertionError(f"{name} has no --describe")


def metavar(action: Any) -> str:
    """Return how the value of an argument is written; "" for a switch."""
    if action.nargs == 0:
        return ""
    if action.choices and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    found = action.metavar or (
        action.dest.upper() if action.option_strings else action.dest
    )
    return str(found if isinstance(found, str) else found[0])


def usage(parser: ArgumentParser) -> str:
    """Return the positional arguments of a verb in one line."""
    marks = {"?": "[{}]", "*": "[{} ...]", "+": "{} [{} ...]"}
    parts = ["[options]"]
    for action in parser._actions:
        if not action.option_strings and action.help != "==SUPPRESS==":
            form = marks.get(str(action.nargs), "{}")
            parts.append(form.replace("{}", metavar(action)))
    return " ".join(parts)


def commands() -> str:
    """Return all verbs."""
    return "\n\n".join(f"## linkspan {name}\n\n{verb(name)}" for name in VERBS)


def dates(name: Callable[[Revision], str]) -> list[str]:
    return [name(revision) for revision in REVISIONS.values()]


def has(method: str, revision: Revision) -> str:
    """Return who may send a method in a revision."""
    if method in revision.requests:
        return "client"
    return "server" if method in revision.server_requests else ""


def methods() -> str:
    """Return which revision has which request."""
    every = sorted(
        METHODS.union(*(each.server_requests for each in REVISIONS.values()))
    )
    return rows(
        ("request", *REVISIONS),
        ((f"`{each}`", *dates(partial(has, each))) for each in every),
    )


def notifications() -> str:
    """Return which revision has which notification."""

    def sender(name: str, revision: Revision) -> str:
        sides = {
            "client": revision.client_notifications,
            "server": revision.server_notifications,
        }
        return ", ".join(side for side, names in sides.items() if name in names)

    every = {
        name
        for each in REVISIONS.values()
        for name in each.client_notifications | each.server_notifications
    }
    return rows(
        ("notification", *REVISIONS),
        ((f"`{each}`", *dates(partial(sender, each))) for each in sorted(every)),
    )


def facts() -> str:
    """Return in which facts revisions differ."""
    about = docstrings(Revision)

    def shown(name: str, revision: Revision) -> str:
        value = getattr(revision, name)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return (
            ", ".join(sorted(map(str, value)))
            if isinstance(value, frozenset)
            else str(value)
        )

    names = [
        each for each in Revision.__struct_fields__ if each not in _SHOWN_ELSEWHERE
    ]
    return rows(
        ("what", *REVISIONS),
        (
            (about.get(each, each.replace("_", " ")), *dates(partial(shown, each)))
            for each in names
        ),
    )


_SHOWN_ELSEWHERE = frozenset(
    (
        "date",
        "requests",
        "server_requests",
        "client_notifications",
        "server_notifications",
        "new_fields",
    )
)


def fields() -> str:
    """Return which members came with which revision."""
    lines = [
        (
            date,
            f"`{shape.__name__}`",
            ", ".join(
                f"`{shape.__struct_encode_fields__[place(shape, each)]}`"
                for each in new
            ),
        )
        for date, revision in REVISIONS.items()
        for shape, new in sorted(
            revision.new_fields.items(), key=lambda each: each[0].__name__
        )
    ]
    return rows(("revision", "shape", "new members"), lines)


def place(shape: Any, name: str) -> int:
    return list(shape.__struct_fields__).index(name)


def changes() -> str:
    """Return the rules by which changes of a contract are judged."""
    return rows(
        ["rule", "level", "what changed"],
        ([code, level, what] for code, (level, what) in RULES.items()),
    )


def faults() -> str:
    """Return the faults that the doctor looks for."""
    return rows(["fault", "what it is"], FAULTS.items())


def requirements() -> str:
    """Return what `linkspan check` looks at."""
    assert REQUIRING
    eras = {("legacy",): "with a handshake", ("modern",): "without a handshake"}

    def where(eras_of: str, transports: tuple[str, ...]) -> str:
        return ", ".join(
            filter(None, [eras_of, transports[0] if len(transports) == 1 else ""])
        )

    return rows(
        ["requirement", "what a server does", "strength", "where"],
        (
            [
                each.id,
                each.words,
                each.strength,
                where(eras.get(each.eras, ""), each.transports),
            ]
            for each in sorted(REQUIREMENTS, key=lambda each: each.id)
        ),
    )


def lint_rules() -> str:
    """Return the rules that judge a server."""
    return rows(
        ["rule", "level", "demands that"],
        ([code, level, what] for code, (level, what) in LINT_RULES.items()),
    )


TABLES: dict[str, Callable[[], str]] = {
    **{name: partial(settings, values) for name, values in SETTINGS.items()},
    "tasks": partial(settings, Profile(Implementation("server", "1")), "max_task"),
    "client-limits": lambda: (
        f"`max_line_bytes` of a client is {amount(CLIENT_LIMITS.max_line_bytes)}."
    ),
    "fixed": fixed,
    "changes": changes,
    "faults": faults,
    "requirements": requirements,
    "lint": lint_rules,
    "commands": commands,
    "methods": methods,
    "notifications": notifications,
    "facts": facts,
    "fields": fields,
}


def filled(text: str) -> str:
    """Return a page with its tables."""
    return PLACE.sub(
        lambda found: (
            f"<!-- table: {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end -->"
        ),
        text,
    )


def with_tables() -> Iterator[Path]:
    """Yield the pages that have tables of the code."""
    yield from (
        page for page in sorted(PAGES.glob("*.md")) if PLACE.search(page.read_text())
    )


if __name__ == "__main__":
    for page in with_tables():
        page.write_text(filled(page.read_text()))
