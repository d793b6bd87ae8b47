"""`linkspan dev TARGET`: a server in a browser while it is written. See `linkspan.workbench`."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkspan.cli.chat_session import chat_home
from linkspan.cli.options import CommandLine, Options, timeouts_of
from linkspan.cli.session import INTERRUPTED, UNREACHABLE, WRONG_USE
from linkspan.cli.terminal import Terminal
from linkspan.cli.unavailable import Unavailable
from linkspan.client.callback import open_browser
from linkspan.client.targets import Target, UnusableTarget, resolve
from linkspan.errors import LinkspanError
from linkspan.testing.recorder import TranscriptWriter
from linkspan.text import split_object
from linkspan.wire.redaction import neutral, one_line
from linkspan.workbench.address import BenchAddress, keep_address, read_address
from linkspan.workbench.bench import Bench, Setup
from linkspan.workbench.code import Subject, scheme_of
from linkspan.workbench.history import history_path
from linkspan.workbench.served import ServedFile
from linkspan.workbench.serving import PORT, BenchServer

_EXAMPLES: Final = """examples:
  linkspan dev server.py                       # a page for it, restarted at each save
  linkspan dev --watch templates server.py     # for these files, too
  linkspan dev https://example.com/mcp         # any server: also mcp.json:NAME
  linkspan dev -- npx -y some-server           # or a command
  linkspan dev                                 # the only server in this directory

The page is for this machine only, at 127.0.0.1, and its address holds a key. Type r and Enter to restart the
server, e to speak to it in the other era of the protocol, o to open the page again, q to quit."""
_SERVES: Final = re.compile(r"^\s*(?:from|import)\s+linkspan\b", re.MULTILINE)
_MAKES: Final = re.compile(r"\bServer\(")
_KEYS: Final = "r restart   e other era   o open   q quit   (then Enter)"
_PORTS: Final = 20
"""Ports that are tried for a file over HTTP."""


def main(arguments: Sequence[str]) -> int:
    """Serve the workbench until the person quits; return the exit status."""
    line = CommandLine("dev", arguments, "Show a server in a browser while you write it.", _EXAMPLES, finds_target=True)
    line.add("--port", type=int, help=f"port of the page (that of the last run, else {PORT} or the next that is free)")
    line.add("--no-open", action="store_true", help="do not open the page in the browser")
    line.add("--no-reload", action="store_true", help="do not restart the server when its source changes")
    line.add(
        "--watch", metavar="PATH", action="append", default=[], help="restart at changes to this, too (repeatable)"
    )
    line.add("--no-history", action="store_true", help="keep no calls for the next time")
    line.add("--http", action="store_true", help="serve the FILE over HTTP, and connect to that")
    line.add("--out", metavar="FILE", help="write the messages of both sides to a transcript, without secrets")
    line.add("--model", metavar="NAME", help="a model that can draft what the server wants a model to say")
    options = line.parse()
    if not options.target:
        found = _servers_here()
        if len(found) != 1:
            words = f"it has {', '.join(found)}" if found else "it has no file with a Server"
            print(f"linkspan dev: name a server in this directory: {words}", file=sys.stderr)
            return WRONG_USE
        options.target = found[0]
    terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
    try:
        target = resolve(options.target, cwd=options.cwd)
    except UnusableTarget as problem:
        terminal.fail(f"linkspan dev: {problem}")
        return WRONG_USE
    return _Dev(options, terminal, target).run()


def _servers_here() -> list[str]:
    """Return the Python files of this directory that make a server."""
    sources = {each.name: each.read_text("utf-8", "replace") for each in sorted(Path().glob("*.py"))}
    return [name for name, source in sources.items() if _SERVES.search(source) and _MAKES.search(source)]


def _source_of(target: Target) -> str:
    """Return the Python file that a command runs; empty if there is none."""
    if (command := target.command) is None:
        return ""
    for word in command.argv:
        path = Path(command.cwd or ".", split_object(word)[0] if not os.path.exists(word) else word)
        if path.suffix == ".py" and path.is_file():
            return os.fspath(path)
    return ""


class _Dev:
    """One run of the workbench, with its lines on the terminal."""

    def __init__(self, options: Options, terminal: Terminal, target: Target) -> None:
        self._options = options
        self._terminal = terminal
        self._target = target
        self._writing = threading.Lock()
        self._first: threading.Event = threading.Event()
        self._broken = False
        self._transcript: TranscriptWriter | None = None

    def run(self) -> int:
        """Serve until the person quits."""
        try:
            setup = self._setup()
            bench = Bench(setup, self._announce)
            where = setup.history.with_suffix(".address") if setup.history is not None else None
            kept, port = read_address(where), self._options.port
            server = BenchServer(bench, port if port is not None else kept.port if kept is not None else PORT, kept)
            keep_address(where, BenchAddress(server.port, server.token))
        except (OSError, ValueError) as problem:
            self._terminal.fail(f"linkspan dev: {getattr(problem, 'strerror', None) or problem}")
            return WRONG_USE
        try:
            bench.start()
            self._introduce(bench, server)
            return self._wait(bench, server)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            server.close()
            bench.close()
            if self._transcript is not None:
                self._transcript.close()

    def _setup(self) -> Setup:
        options, target = self._options, self._target
        words = (options.target,) if isinstance(options.target, str) else tuple(options.target)
        url = target.origin.url or ""
        connected: str | tuple[str, ...] = options.target
        kept = " ".join([os.getcwd(), *words])
        served = self._serve_over_http() if options.http else None
        if served is not None:
            url = connected = served.url
            words = (url,)
        model = None
        if options.model is not None:
            from linkspan.host.models import open_model

            model = open_model(options.model)
        if options.out:
            secrets = [value for _, value in (*options.header, *options.env)]
            self._transcript = TranscriptWriter(options.out, secrets=secrets)
        return Setup(
            target=connected,
            subject=Subject(
                words,
                url,
                self._kept_options(),
                [name for name, _ in options.header],
                {name: scheme_of(value) for name, value in options.header},
            ),
            file="" if options.no_reload else _source_of(target),
            served=served,
            watched=options.watch,
            env=dict(options.env) if not options.http else {},
            headers=dict(options.header),
            cwd=options.cwd,
            inherit_env=options.inherit_env,
            era=options.era,
            revision=options.protocol_version,
            timeouts=timeouts_of(options.timeout),
            roots=options.root,
            model=model,
            open_url=self._log_in if url else None,
            history=history_path(chat_home() / "dev", kept) if not options.no_history else None,
            transcript=self._transcript,
        )

    def _kept_options(self) -> list[str]:
        """Return options that a line in the shell needs, too; of variables only the names."""
        options = self._options
        kept = [word for name, _ in options.env for word in ("--env", name)] if not options.http else []
        return [
            *kept,
            *(("--cwd", options.cwd) if options.cwd else ()),
            *(word for each in options.root for word in ("--root", each)),
        ]

    def _introduce(self, bench: Bench, server: BenchServer) -> None:
        opened = not self._options.no_open and open_browser(server.url)
        self._say("open", server.url + (" (opened in your browser)" if opened else ""))
        if os.environ.get("SSH_CONNECTION"):
            self._say("", f"from your own machine first: ssh -L {server.port}:127.0.0.1:{server.port} THIS-MACHINE")
        if bench.served_at:
            self._say("serve", f"{bench.served_at} (for other clients, too)")
        if source := _source_of(self._target):
            self._say("watch", ", ".join([source, *self._options.watch]) if not self._options.no_reload else "nothing")
        if sys.stdin is not None and sys.stdin.isatty():
            self._say("keys", _KEYS)

    def _wait(self, bench: Bench, server: BenchServer) -> int:
        """Read the person's words until they quit. What cannot be reached at first ends it, unless a change may help."""
        if not _source_of(self._target):
            while not self._first.wait(1.0):
                pass  # Windows interrupts no wait without an end
            if self._broken:
                return UNREACHABLE
        while True:
            if sys.stdin is None or not sys.stdin.isatty():
                time.sleep(3600)
                continue
            match sys.stdin.readline().strip().casefold():
                case "q" | "quit" | "exit":
                    return 0
                case "r" | "restart":
                    bench.restart("you asked for it")
                case "e" | "era":
                    bench.switch_era()
                case "o" | "open":
                    open_browser(server.url)
                case "":
                    pass
                case _:
                    self._say("keys", _KEYS)

    def _announce(self, kind: str, text: str) -> None:
        """Write what has happened. In whatever thread it did."""
        if kind in ("ready", "broken", "waiting") and not self._first.is_set():
            self._broken = kind == "broken"
            self._first.set()
        self._say(kind, text)

    def _say(self, kind: str, text: str) -> None:
        style = self._terminal.err
        first, *rest = neutral(text).split("\n")
        shown = style.red(f"{kind:<8}") if kind in ("broken", "lost", "failing") else style.bold(f"{kind:<8}")
        at = time.strftime("%H:%M:%S") if kind not in ("", "open", "serve", "watch", "keys") else " "
        lines = "".join(f"\n           {each}" for each in rest)
        with self._writing:
            self._terminal.write_line(f"{at} {shown} {first}{style.dim(lines)}")

    def _log_in(self, url: str) -> None:
        opened = open_browser(url)
        self._say("login", "log in with the browser" if opened else f"open this URL to log in: {one_line(url)}")

    # A file over HTTP.

    def _serve_over_http(self) -> ServedFile:
        """Return the file, to be served at the port of `linkspan run --http`, or one of the next. Raises: ValueError."""
        if not isinstance(self._options.target, str) or not _source_of(self._target):
            raise ValueError("--http is for a .py file")
        return ServedFile(self._options.target, _free_socket(), dict(self._options.env), self._options.cwd, Unavailable)


def _free_socket() -> socket.socket:
    """Return a socket that listens where `linkspan run --http` does, or at one of the next ports. Raises: ValueError."""
    from linkspan.serve.http import PORT as FIRST
    from linkspan.serve.http import listen

    problem: LinkspanError | None = None
    for each in range(FIRST, FIRST + _PORTS):
        try:
            return listen("127.0.0.1", each)
        except LinkspanError as error:
            problem = problem or error
    raise ValueError(str(problem))
