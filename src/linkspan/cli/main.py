"""`linkspan`: pick the verb, load it, run it. Exit status 2 means that the command line was wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from linkspan._version import __version__

__all__ = ["main"]

VERBS = {
    "run": "serve a server from a Python file over stdio",
    "call": "start a server, call one of its tools, and show the exchange",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in VERBS:
        status: int = import_module(f"linkspan.cli.{given[0]}").main(given[1:])
        return status
    parser = argparse.ArgumentParser(
        prog="linkspan",
        description="The Model Context Protocol for Python.",
        epilog="linkspan VERB --help says more about a verb.",
    )
    parser.add_argument("--version", action="version", version=f"linkspan {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        verbs.add_parser(name, help=summary, add_help=False)
    parser.parse_args(given)
    return 2
