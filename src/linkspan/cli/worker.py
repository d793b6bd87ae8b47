"""`linkspan worker FILE[:OBJECT]`: a process that runs the tasks of a server, and serves nothing."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkspan.cli.main import parser_for
from linkspan.cli.run import CannotLoad, load_server
from linkspan.errors import LinkspanError

if TYPE_CHECKING:
    from linkspan.serve.server import Server

_DESCRIPTION = """Run the tasks of the Server in a Python file: with its engine, Server(tasks=...), the engine's own worker;
without one, tasks for which the processes that serve have no room, and those of processes that are gone."""
_EPILOG = """examples:
  linkspan worker server.py --store sqlite:///var/lib/app/linkspan.db
  linkspan worker server.py:indexer

Exit status: 0 after a signal to stop, 2 for a wrong command line, or a server whose tasks other processes cannot see."""


def main(arguments: Sequence[str]) -> int:
    """Run the tasks of one server."""
    parser = parser_for("linkspan worker", _DESCRIPTION, _EPILOG)
    parser.add_argument("target", metavar="FILE[:OBJECT]", help="the server")
    parser.add_argument("--store", metavar="URL", help="its store, instead of Server(store=...)")
    drain = "time for running tasks to end at a stop (10); then another process may run them again"
    parser.add_argument("--drain", type=float, default=10.0, metavar="SECONDS", help=drain)
    options = parser.parse_args(list(arguments))
    try:
        server = load_server(options.target)
        if options.store:
            server.sharing.use(options.store)
        if not server.is_shared:
            raise CannotLoad("a worker needs the store of the processes that serve: --store URL, or Server(store=...)")
        server.sharing.open()
    except (CannotLoad, LinkspanError) as problem:
        print(f"linkspan worker: {problem}", file=sys.stderr)
        return 2
    work(server, options.drain)
    return 0


def work(server: Server, drain: float) -> None:
    """Run tasks until the process is asked to stop; then those that run have `drain` seconds."""
    from linkspan.extensions.engine import WorkerEngine

    engine, runner, stopped = server.tasks.engine, server.tasks.runner, threading.Event()
    by = f", in {type(engine).__name__}" if engine is not None else ""
    print(f"Running the tasks of {server.name}{by}", file=sys.stderr, flush=True)
    if isinstance(engine, WorkerEngine):
        engine.work(server.tasks.max_tasks, drain)
        runner.leave(stopped, 0.0)
        return

    def stop(_: int, __: object) -> None:
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    runner.attach(stopped, lambda: None)
    stopped.wait()
    runner.drain(stopped)
    runner.leave(stopped, drain)
