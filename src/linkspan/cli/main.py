"""`linkspan`: pick the verb, load it, run it. Exit status 2 means that the command line was wrong."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from linkspan._version import __version__
from linkspan.loading import load

if TYPE_CHECKING:
    from argparse import ArgumentParser

VERBS = {
    "init": ("init:main", "begin a project: a server with a test that runs"),
    "dev": ("dev:main", "show a server in a browser while you write it"),
    "run": ("run:main", "serve a Python file over stdio or HTTP"),
    "serve": ("run:serve", "serve a Python file over HTTP: the same as run --http"),
    "list": ("verbs:list_", "show what a server offers"),
    "inspect": ("verbs:inspect", "show all of a server: what list --long and ping show"),
    "call": ("verbs:call", "call a tool"),
    "task": ("verbs:task", "show, watch or cancel a call that became a task"),
    "read": ("verbs:read", "read a resource"),
    "prompt": ("verbs:prompt", "get the messages of a prompt"),
    "lock": ("contract:lock", "write what a server offers to a file"),
    "diff": ("contract:diff", "show what changed for the clients of a server"),
    "lint": ("contract:lint", "show what providers, hosts and models make of a server"),
    "stubs": ("contract:stubs", "write typed code that calls the tools of a server"),
    "openapi": ("openapi:main", "choose which operations of an OpenAPI document are tools"),
    "check": ("check:main", "check that a server does what the protocol requires"),
    "doctor": ("doctor:main", "find what keeps a server from working with the hosts that people use"),
    "ping": ("verbs:ping", "show a server's name, revision and response time"),
    "login": ("login:login", "log in to a server at a URL, and keep the login"),
    "logout": ("login:logout", "revoke and forget logins"),
    "whoami": ("login:whoami", "show the logins that are kept"),
    "client-metadata": ("login:client_metadata", "print the document that describes a client to authorization servers"),
    "chat": ("chat:main", "talk to a language model that may use the tools of servers"),
    "discover": ("discover:main", "list the servers that the hosts on this machine are configured with"),
    "install": ("install:install", "add a server to the configuration of a host"),
    "uninstall": ("install:uninstall", "remove a server from the configuration of a host"),
    "bridge": ("bridge:main", "offer other servers to any host, over stdio or HTTP"),
    "trace": ("trace:main", "relay between a client and a server, and show their messages"),
    "worker": ("worker:main", "run the tasks of a server, beside the processes that serve"),
    "store": ("store:main", "rotate the keys that the processes of a server share, or print its tables"),
    "completions": ("completions:main", "print what completes this command line in a shell"),
    "help": ("main:help_", "explain a verb: the same as VERB --help"),
    "version": ("main:version", "print the version: the same as --version"),
}
"""Where each verb is implemented, and its line in --help."""

_HABITS: Final = {
    **dict.fromkeys(("start", "mcp", "server"), "run"),
    **dict.fromkeys(("ls", "tools", "show"), "list"),
    **dict.fromkeys(("exec", "execute", "invoke", "tool"), "call"),
    **dict.fromkeys(("inspector", "debug", "playground", "watch", "bench"), "dev"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("add", "configure"), "install"),
    **dict.fromkeys(("remove", "rm"), "uninstall"),
    **dict.fromkeys(("proxy", "gateway"), "bridge"),
    "record": "trace",
    **dict.fromkeys(("get", "resource"), "read"),
    "hosts": "discover",
}
"""Words of other programs, and the verb that each means here."""
_FOR_A_TARGET: Final = ("dev", "list", "run")
_OF_TARGETS: Final = r"https?://|.*\.(?:py|json|toml|transcript)(?::[^/\\\\]*)?$"

_ELSEWHERE: Final = {"exec": "linkspan-compat", "run-as": "linkspan-compat"}
"""Verbs that a distribution of this project adds, and its name."""

_FOR_A_CLIENT: Final = ("run", "bridge", "trace")
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


class ParserShown(SystemExit):
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
        if given and given[0] in VERBS and not _is_run_as(given):
            module, _, function = VERBS[given[0]][0].partition(":")
            status: int = getattr(load(f"linkspan.cli.{module}"), function)(given[1:])
            return status
        if given and not given[0].startswith("-"):
            if (added := _added_verb(given)) is not None:
                return added(given[1:])
            raise WrongCommandLine("linkspan", "usage: linkspan [-h] [--version] VERB ...\n", _no_verb(given[0]))
        parser = _parser()
        parser.parse_args(given)
        parser.print_help()
    except KeyboardInterrupt:
        return 130
    except WrongCommandLine as wrong:
        ours = given[: given.index("--")] if "--" in given else given
        wrong.report(as_json="--json" in ours and ours[0] not in _FOR_A_CLIENT)
        return 2
    return 0


def _is_run_as(given: Sequence[str]) -> bool:
    """Return whether `linkspan run FILE --as FLAVOUR` is meant."""
    ours = given[: given.index("--")] if "--" in given else given
    return given[0] == "run" and any(each == "--as" or each.startswith("--as=") for each in ours)


def _added_verb(given: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """Return the verb that another distribution adds under this name; None if there is none.

    Raises: WrongCommandLine for a verb that cannot be loaded, or whose distribution is missing.
    """
    from linkspan.errors import LinkspanError
    from linkspan.plugins import VERBS as GROUP
    from linkspan.plugins import added

    name = "run-as" if _is_run_as(given) else given[0]
    shown = "run --as" if name == "run-as" else name
    usage = f"usage: linkspan {shown} ...\n"
    try:
        verb: Callable[[Sequence[str]], int] | None = added(GROUP, name)
    except LinkspanError as problem:
        raise WrongCommandLine("linkspan", usage, str(problem)) from problem
    if verb is None and name in _ELSEWHERE:
        raise WrongCommandLine("linkspan", usage, f"{shown} comes with {_ELSEWHERE[name]}: install it beside linkspan")
    return verb


def _parser() -> ArgumentParser:
    parser = parser_for("linkspan", "The Model Context Protocol for Python.", _EPILOG)
    parser.add_argument("--version", action="version", version=f"linkspan {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, (_, summary) in VERBS.items():
        verbs.add_parser(name, help=summary, add_help=False)
    return parser


def _no_verb(word: str) -> str:
    """Return what to write instead of a first word that is no verb."""
    if re.match(_OF_TARGETS, word):
        lines = [f"linkspan {verb} {word}" for verb in _FOR_A_TARGET if verb != "run" or "://" not in word]
        return f"the verb is missing; did you mean {' or '.join(filter(None, (', '.join(lines[:-1]), lines[-1])))}?"
    from linkspan.text import did_you_mean, nearest

    meant = _HABITS.get(word)
    guess = did_you_mean(word, VERBS) if meant is None or nearest(word, VERBS) else f"; did you mean {meant!r}?"
    return f"there is no verb {word[:60]!r}{guess or '; `linkspan help` lists them'}"


def help_(arguments: Sequence[str]) -> int:
    """`linkspan help [VERB]`: explain a verb, or list them."""
    parser = parser_for("linkspan help", "Explain a verb, or list them.", "")
    parser.add_argument("verb", metavar="VERB", nargs="?", help="the verb to explain")
    verb = parser.parse_args(list(arguments)).verb
    if verb is None:
        _parser().print_help()
    elif verb not in VERBS:
        parser.error(_no_verb(verb))
    else:
        with suppress(SystemExit):
            main([verb, "--help"])
    return 0


def version(arguments: Sequence[str]) -> int:
    """`linkspan version`: print the version."""
    parser_for("linkspan version", "Print the version.", "").parse_args(list(arguments))
    print(f"linkspan {__version__}")
    return 0


def parser_for(prog: str, about: str, epilog: str, **more: Any) -> ArgumentParser:
    """Return a parser whose texts keep their lines, without what argparse loads to find out how wide a terminal is."""
    # Not before: a host waits for `linkspan run`.
    from argparse import SUPPRESS, Action, ArgumentParser, RawDescriptionHelpFormatter

    class Describe(Action):
        def __call__(self, parser: ArgumentParser, *_: object) -> None:
            raise ParserShown(parser)

    class Parser(ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise WrongCommandLine(
                self.prog, self.format_usage(), message + _meant(message, self._option_string_actions)
            )

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    with suppress(OSError, ValueError):
        width = width or os.get_terminal_size().columns
    formatter = partial(RawDescriptionHelpFormatter, width=(width or 80) - 2)
    parser = Parser(prog=prog, description=about, epilog=epilog, formatter_class=formatter, **more)
    parser.add_argument("--describe", action=Describe, nargs=0, help=SUPPRESS)
    return parser


def _meant(message: str, known: Iterable[str]) -> str:
    """Return `; did you mean '--long'?` where argparse does not know an option that is near a known one."""
    unknown = re.match(r"unrecognized arguments: (?:[^-]\S* )*(--[\w-]+)", message)
    if unknown is None:
        return ""
    from linkspan.text import did_you_mean

    return did_you_mean(unknown[1], [each for each in known if each.startswith("--") and each != "--describe"])
