"""`linkspan run FILE[:OBJECT]`: stdout belongs to the protocol before the author's module is even imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from linkspan.text import split_object

if TYPE_CHECKING:
    from linkspan.runtime.calls import Connectable
    from linkspan.serve.server import Server

_DESCRIPTION = """Serve the Server in a Python file over stdio, or with --http over HTTP. OBJECT is its name in the file,
needed only if there are several and none is called server, mcp or app. A FILE.transcript is played: a recorded server
that answers the requests of the recording. Arguments after `--` go to the file, which finds them in sys.argv."""

_EPILOG = """Output of the file goes to stderr. Exit status: 0 after the client disconnected or a signal to stop, 1 if the file
failed, 2 for a wrong command line, 130 after Ctrl-C."""


_USUAL_NAMES = ("server", "mcp", "app")
"""Of several servers in a file, for instance imported ones, the one of such a name is served."""


class CannotLoad(Exception):
    """The file cannot be served; the message states what to change."""


class _Broken(Exception):
    """The author's file raised an exception, the cause of this one."""


def main(arguments: Sequence[str]) -> int:
    """Serve one file."""
    if os.environ.pop("LINKSPAN_REPORT", None):  # set by a client that reads what we report: see wire/reports.py
        _report()
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours, sys.argv[1:] = arguments[:end], arguments[end + 1 :]
    try:
        match ours:
            case [target] if not target.startswith("-"):
                return _serve(target)  # what hosts start, and wait for: no parser
            case _:
                return _serve_as_asked(ours, arguments[end:])
    except CannotLoad as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    except _Broken as broken:
        from linkspan.runtime.tracebacks import author_frames

        error = broken.__cause__ or broken
        sys.stderr.write(author_frames(error))
        _explain(error, sys.stdlib_module_names)
        return 1
    except (ImportError, AttributeError) as error:
        if not _explain(error):
            raise
        return 2


_while_loading: Callable[[], AbstractContextManager[object]] = nullcontext
"""What surrounds the import of the file."""


def _report() -> None:
    """Write the log to stderr as reports, and where the import of the file stands if that takes long."""
    global _while_loading
    from functools import partial

    from linkspan.runtime.reporting import report_loading, report_log

    report_log(sys.stderr)
    _while_loading = partial(report_loading, sys.stderr)


def serve(arguments: Sequence[str]) -> int:
    """`linkspan serve FILE`: the same as `linkspan run --http FILE`."""
    return main(["--http", *arguments])


def _explain(error: BaseException, names: Collection[str] | None = None) -> bool:
    """Print which file hides a module, one of `names`, if that is why an import failed; return whether it is."""
    from linkspan.errors import hidden_module

    found = hidden_module(error)
    if found is None or (names is not None and found.name not in names):
        return False
    print(f"linkspan run: {found.hint}", file=sys.stderr)
    return True


def _serve_as_asked(arguments: Sequence[str], of_the_file: Sequence[str]) -> int:
    from linkspan.cli.main import parser_for

    parser = parser_for("linkspan run", _DESCRIPTION, _EPILOG)
    parser.add_argument("target", metavar="FILE[:OBJECT]", help="what to serve")
    reload = "restart the server when its source changes; the client stays connected"
    parser.add_argument("--reload", action="store_true", help=reload)
    add: Any = parser.add_argument_group("over HTTP").add_argument
    add("--http", action="store_true", help="serve over HTTP; the first line on stdout is the URL")
    names = "the same by name: http, streamable-http, or stdio, which is what happens without it"
    add("-t", "--transport", choices=_TRANSPORTS, metavar="NAME", help=names)
    for name, more in _HTTP_OPTIONS.items():
        add(f"--{name}", **more)
    options = vars(parser.parse_args(list(arguments)))
    target, http, reloads, transport = (options.pop(name) for name in ("target", "http", "reload", "transport"))
    http = http or transport in _TRANSPORTS[1:]
    given = {name: value for name, value in options.items() if value is not None}
    if given and not http:
        parser.error(f"--{next(iter(given)).replace('_', '-')} goes with --http")
    if not reloads:
        return _serve_http(target, **given) if http else _serve(target)
    from linkspan.cli.reload import serve_reloading, serve_reloading_http

    path, _ = _split(target)
    if http:
        return serve_reloading_http(path, arguments, of_the_file, **given)
    return serve_reloading(path, [target, *of_the_file])


_TRANSPORTS: Final = ("stdio", "http", "streamable-http")

_HTTP_OPTIONS: dict[str, dict[str, Any]] = {
    "host": {"help": "address to listen on (127.0.0.1); 0.0.0.0 for all interfaces"},
    "port": {"type": int, "help": "port to listen on (8000); 0 for any free one"},
    "path": {"help": "path of the endpoint (/mcp)"},
    "workers": {"type": int, "metavar": "N", "help": "number of processes that share the port (1)"},
    "drain": {"type": float, "metavar": "SECONDS", "help": "time for running calls to end at a stop (1)"},
    "fd": {"type": int, "metavar": "N", "help": "serve on the listening socket with this descriptor"},
    "allow-host": {
        "action": "append",
        "metavar": "NAME[:PORT]",
        "help": "a Host that requests may name (repeatable)",
    },
    "cors": {"action": "append", "metavar": "ORIGIN", "help": "an origin whose pages may call (repeatable)"},
    "metrics": {
        "action": "store_const",
        "const": "/metrics",
        "help": "serve numbers for Prometheus at /metrics",
    },
    "calls": {
        "action": "store_const",
        "const": True,
        "help": "write a line for each call to stderr (default: if that is a terminal)",
    },
    "no-calls": {"action": "store_const", "const": False, "dest": "calls", "help": "write no such lines"},
    "page": {
        "action": "store_const",
        "const": True,
        "help": "serve the page for browsers at any address, and through a proxy",
    },
    "no-page": {"action": "store_const", "const": False, "dest": "page", "help": "do not serve that page"},
}


def _serve(target: str) -> int:
    from linkspan.runtime.stdout import claim_stdout

    claim_stdout()
    server = _load(target)
    from linkspan.serve.stdio import StdioTransport

    return StdioTransport(server).open()


def _serve_http(
    target: str,
    allow_host: Sequence[str] | None = None,
    cors: Sequence[str] | None = None,
    page: bool | None = None,
    calls: bool | None = None,
    fd: int | None = None,
    **options: Any,
) -> int:
    from linkspan.core.http_checks import LOOPBACK, HttpPolicy
    from linkspan.errors import LinkspanError
    from linkspan.serve.http import serve_http
    from linkspan.serve.server import Server

    if options.get("metrics") and options.get("workers", 1) > 1:
        from linkspan.serve.metrics import count_together

        count_together()  # before the file imports prometheus_client
    if fd is not None:
        from linkspan.runtime.process import passed_socket

        options["fd"] = passed_socket(fd)
    announce = keep_stdout()
    server = _load(target)
    if not isinstance(server, Server):
        raise CannotLoad("a recorded server is played over stdio only")
    if calls or (calls is None and os.isatty(2)):
        from linkspan.cli.call_lines import CallLines

        server.watch(CallLines())
    hosts = [*LOOPBACK, *allow_host] if allow_host else None
    policy = HttpPolicy(allowed_hosts=hosts, cors=cors or False, page=page)
    try:
        return serve_http(server, announce=announce, policy=policy, **options)
    except LinkspanError as problem:
        raise CannotLoad(str(problem)) from None


def keep_stdout() -> Callable[[str], object]:
    """Keep stdout for the URL, and return what writes it there; everything else that is printed goes to stderr."""
    import os

    try:
        stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
    except OSError:  # closed, as for a daemon
        return str

    seen_already = stdout.isatty() and os.isatty(2)  # a person reads "Serving MCP at ..."

    def announce(url: str) -> None:
        with suppress(OSError):  # nothing reads it
            if not seen_already:
                print(url, file=stdout, flush=True)

    return announce


def _load(target: str) -> Connectable:
    try:
        if not target.endswith(".transcript"):
            with _while_loading():
                server = load_server(target)
            _make_old()
            return server
    except CannotLoad:
        raise
    except Exception as error:
        raise _Broken from error
    from linkspan.testing.player import Player

    try:
        return Player(target)
    except (OSError, ValueError) as problem:
        raise CannotLoad(str(problem)) from None


def _make_old() -> None:
    """Keep the next collection from looking at all that was loaded: this process is ours, and its first answer is waited for."""
    import gc

    if not gc.get_freeze_count():
        gc.freeze()  # both together move what there is to the oldest generation
        gc.unfreeze()


def load_server(target: str) -> Server:
    """Import a file and return its Server. Raises: CannotLoad, and any exception of the file."""
    from importlib.util import module_from_spec, spec_from_file_location

    from linkspan.serve.server import Server

    path, wanted = _split(target)
    sys.argv[0] = path
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{path!r} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if wanted:
        found = getattr(module, wanted, None)
        if not isinstance(found, Server):
            raise CannotLoad(f"{path} has no Server named {wanted!r}")
        return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    unique = {id(value): key for key, value in servers.items()}
    if not unique:
        raise CannotLoad(f"{path} has no Server: write `server = linkspan.Server(...)` at its top level")
    usual = next((name for name in _USUAL_NAMES if name in servers), None)
    if usual is not None:
        return servers[usual]
    if len(unique) > 1:
        raise CannotLoad(
            f"{path} has several Servers ({', '.join(servers)}): name one, as in {path}:{next(iter(servers))}"
        )
    return next(iter(servers.values()))


def _split(target: str) -> tuple[str, str]:
    """Return the path of an existing file, and the name of an object in it."""
    path, wanted = split_object(target) if not os.path.exists(target) else (target, "")
    if not os.path.isfile(path):
        raise CannotLoad(f"there is no file {path!r}")
    return path, wanted
