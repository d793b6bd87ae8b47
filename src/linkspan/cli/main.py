"""`linkspan`: pick the verb, load it, run it. Exit status 2 means that the command line was wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from linkspan._version import __version__

__all__ = ["main"]

VERBS = {
    "run": ("run:main", "serve a server from a Python file over stdio"),
    "list": ("list:main", "show what a server offers"),
    "call": ("call:call", "call a tool"),
    "read": ("call:read", "read a resource"),
    "prompt": ("call:prompt", "get the messages of a prompt"),
    "ping": ("call:ping", "show what a server is, and how fast it answers"),
    "chat": ("chat:main", "talk to a language model that may use the tools of servers"),
    "trace": ("trace:main", "relay between a client and a server, and show what passes"),
}
"""Where each verb is implemented, and its line in --help."""

_EPILOG = """TARGET is a .py file (perhaps FILE.py:OBJECT), a command in quotes, mcp.json:NAME or a URL;
or the command stands at the end: linkspan call TOOL key=value -- COMMAND ARGS...
linkspan VERB --help explains a verb.

exit status of list, call, read, prompt and ping:
  0    there is a result
  1    the tool answered with an error, or the server refused
  2    the command line is wrong, or names a tool or an argument that the server does not have
  3    the server could not be started, reached or agreed with
  4    the server was lost, took too long, or answered something invalid
  5    the server needs input that cannot be given here
  130  Ctrl-C"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in VERBS:
        module, _, function = VERBS[given[0]][0].partition(":")
        try:
            status: int = getattr(import_module(f"linkspan.cli.{module}"), function)(given[1:])
        except KeyboardInterrupt:
            return 130
        return status
    import argparse  # not before: a host waits for `linkspan run`

    parser = argparse.ArgumentParser(
        prog="linkspan",
        description="The Model Context Protocol for Python.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"linkspan {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (_, summary) in VERBS.items():
        verbs.add_parser(name, help=summary, add_help=False)
    parser.parse_args(given)
    return 2
