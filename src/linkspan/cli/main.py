"""`linkspan`: pick the verb, load it, run it. Exit status 2 means that the command line was wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from linkspan._version import __version__
from linkspan.loading import load

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["VERBS", "Described", "main", "parser_for"]

VERBS = {
    "init": ("init:main", "begin a project: a server with a test that runs"),
    "run": ("run:main", "serve a Python file over stdio or HTTP"),
    "list": ("verbs:list_", "show what a server offers"),
    "call": ("verbs:call", "call a tool"),
    "task": ("verbs:task", "show, watch or cancel a call that became a task"),
    "read": ("verbs:read", "read a resource"),
    "prompt": ("verbs:prompt", "get the messages of a prompt"),
    "ping": ("verbs:ping", "show a server's name, revision and response time"),
    "login": ("login:login", "log in to a server at a URL, and keep the login"),
    "logout": ("login:logout", "revoke and forget logins"),
    "whoami": ("login:whoami", "show the logins that are kept"),
    "client-metadata": ("login:client_metadata", "print the document that describes a client to authorization servers"),
    "chat": ("chat:main", "talk to a language model that may use the tools of servers"),
    "install": ("install:install", "add a server to the configuration of a host"),
    "uninstall": ("install:uninstall", "remove a server from the configuration of a host"),
    "trace": ("trace:main", "relay between a client and a server, and show their messages"),
    "worker": ("worker:main", "run the tasks of a server, beside the processes that serve"),
    "store": ("store:main", "rotate the keys that the processes of a server share, or print its tables"),
    "completions": ("completions:main", "print what completes this command line in a shell"),
}
"""Where each verb is implemented, and its line in --help."""

_FOR_A_CLIENT: Final = ("run", "trace")
"""Verbs whose stdout is read by a client, so that no report may go there."""

_EPILOG = """TARGET is a .py file (or FILE.py:OBJECT), a command in quotes, mcp.json:NAME or a URL.
A command can also follow at the end: linkspan call TOOL key=value -- COMMAND ARGS...
linkspan VERB --help explains a verb.

exit status of list, call, task, read, prompt, ping, login, logout and whoami:
  0    success
  1    the tool or the server answered with an error, or there is no login
  2    the command line is wrong, or names a tool or an argument that the server does not have
  3    the server could not be started or reached, or shares no revision with the client
  4    the server was lost, took too long, or sent an invalid response
  5    the server needs input, or a login, that is not available here
  130  Ctrl-C"""


class Described(SystemExit):
    """Instead of running, a verb shows its parser: what `completions` reads."""

    def __init__(self, parser: ArgumentParser) -> None:
        super().__init__(0)
        self.parser = parser


class WrongCommandLine(SystemExit):
    """A parser refuses a command line: what `main` reports."""

    def __init__(self, prog: str, usage: str, problem: str) -> None:
        super().__init__(2)
        self.prog = prog
        self.usage = usage
        self.problem = problem

    def report(self, *, as_json: bool) -> None:
        """Print a usage line and the problem on stderr, or the problem as JSON on stdout."""
        if as_json:
            from linkspan.cli.terminal import dump

            print(dump({"error": {"type": "WrongUse", "problem": self.problem}}))
            return
        from linkspan.wire.redaction import neutral

        sys.stderr.write(f"{self.usage}{self.prog}: error: {neutral(self.problem)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in VERBS:
            module, _, function = VERBS[given[0]][0].partition(":")
            status: int = getattr(load(f"linkspan.cli.{module}"), function)(given[1:])
            return status
        parser = parser_for("linkspan", "The Model Context Protocol for Python.", _EPILOG)
        parser.add_argument("--version", action="version", version=f"linkspan {__version__}")
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        for name, (_, summary) in VERBS.items():
            verbs.add_parser(name, help=summary, add_help=False)
        parser.parse_args(given)
        parser.print_help()
    except KeyboardInterrupt:
        return 130
    except WrongCommandLine as wrong:
        ours = given[: given.index("--")] if "--" in given else given
        wrong.report(as_json="--json" in ours and ours[0] not in _FOR_A_CLIENT)
        return 2
    return 0


def parser_for(prog: str, about: str, epilog: str, **more: Any) -> ArgumentParser:
    """Return a parser whose texts keep their lines, without what argparse loads to find out how wide a terminal is."""
    # Not before: a host waits for `linkspan run`.
    from argparse import SUPPRESS, Action, ArgumentParser, RawDescriptionHelpFormatter

    class Describe(Action):
        def __call__(self, parser: ArgumentParser, *_: object) -> None:
            raise Described(parser)

    class Parser(ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise WrongCommandLine(self.prog, self.format_usage(), message)

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    with suppress(OSError, ValueError):
        width = width or os.get_terminal_size().columns
    formatter = partial(RawDescriptionHelpFormatter, width=(width or 80) - 2)
    parser = Parser(prog=prog, description=about, epilog=epilog, formatter_class=formatter, **more)
    parser.add_argument("--describe", action=Describe, nargs=0, help=SUPPRESS)
    return parser
