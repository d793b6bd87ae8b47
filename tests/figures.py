"""What the structure of the sources costs a reader and a call, in numbers that are the same on every machine.

`tests/test_architecture.py` holds calls, garbage, cycles and decisions by era to a bound; sizes are printed only.
`python tests/figures.py` prints them all.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import gc
import io
import itertools
import json
import os
import socket
import sys
import tempfile
import threading
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import linkspan
from linkspan import Context
from linkspan.types import methods
from linkspan.types.methods import MethodSpec

SOURCE = Path(__file__).parent.parent / "src" / "linkspan"
KERNEL_LEAVES_OUT = {"host", "cli", "testing"}
CALLS = 50
"""Calls that are counted, after as many that are not."""


@functools.cache
def sources() -> dict[str, str]:
    """Return the text of each module, by its path below `linkspan`."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


@functools.cache
def nodes(name: str) -> list[ast.AST]:
    """Return all parts of a module's syntax tree, the module first."""
    return list(ast.walk(ast.parse(sources()[name])))


def package(name: str) -> str:
    """Return the first part of a module's path; modules beside the packages are in "linkspan"."""
    return name.split("/")[0] if "/" in name else "linkspan"


# What is written.


def files() -> Counter[str]:
    """Count the modules of each package."""
    return Counter(map(package, sources()))


def largest() -> tuple[int, str]:
    """Return the lines and the name of the longest module."""
    return max((text.count("\n"), name) for name, text in sources().items())


@functools.cache
def code_lines() -> Counter[str]:
    """Count the lines of each package that are code: no blank line, comment, docstring or import."""
    found: Counter[str] = Counter()
    for name, text in sources().items():
        found[package(name)] += len(_lines_of_code(text, nodes(name)))
    return found


def _lines_of_code(text: str, tree: list[ast.AST]) -> set[int]:
    left_out: set[int] = set()
    for node in tree:
        doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if doc or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - left_out


def foreign_attributes(where: str) -> list[str]:
    """Return each place below `where` that assigns an attribute of an object other than `self`."""
    found: list[str] = []
    for name in sources():
        if not name.startswith(where):
            continue
        for node in nodes(name):
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and not (
                    isinstance(target.value, ast.Name) and target.value.id == "self"
                ):
                    found.append(f"{name}:{target.lineno} {ast.unparse(target)}")
    return found


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target


def era_decisions(*packages: str) -> list[str]:
    """Return each comparison with the name of an era, and each look at an attribute called `modern`."""
    found: list[str] = []
    for name in sources():
        if package(name) not in packages:
            continue
        for node in nodes(name):
            compares = isinstance(node, ast.Compare) and any(
                isinstance(side, ast.Constant) and side.value in ("modern", "legacy")
                for side in (node.left, *node.comparators)
            )
            looks = isinstance(node, ast.Attribute) and node.attr == "modern" and isinstance(node.ctx, ast.Load)
            if compares or looks:
                found.append(f"{name}:{node.lineno} {ast.unparse(node)}")  # type: ignore[attr-defined]
    return found


def private_with_one_caller() -> tuple[int, int]:
    """Return how many functions have a name with `_` in front that their module uses once, and how many there are at all."""
    private = functions = 0
    for name in sources():
        defined: list[str] = []
        used: Counter[str] = Counter()
        for node in nodes(name):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined.append(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                used[node.id if isinstance(node, ast.Name) else node.attr] += 1
        functions += len(defined)
        private += sum(each.startswith("_") and not each.startswith("__") and used[each] == 1 for each in defined)
    return private, functions


def import_cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, lazily and for type checkers alike."""
    texts = sources()
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in texts}
    graph: dict[str, set[str]] = defaultdict(set)
    for module, name in modules.items():
        for node in nodes(name):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("linkspan."):
                base = node.module.removeprefix("linkspan.")
                for alias in node.names:
                    target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                    if target in modules and target != module:
                        graph[module].add(target)
    return [group for group in _components(graph, modules) if len(group) > 1]


def method_counts() -> dict[str, int]:
    """Return how many methods each class has of its own; a getter and a setter are one."""
    found: dict[str, int] = {}
    for name in sources():
        for node in nodes(name):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                found[node.name] = max(found.get(node.name, 0), len(methods))
    return found


def class_names() -> dict[str, list[str]]:
    """Return the modules that define each class, by its name without `_` in front."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sources():
        for node in nodes(name):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(name)
    return found


def files_naming(method: str) -> list[str]:
    """Return the modules and assets that name a method of the protocol, as text or by its constant; docstrings apart."""
    constants = {name for name, spec in vars(methods).items() if isinstance(spec, MethodSpec) and spec.name == method}
    found = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.js") if method in path.read_text()]
    for name in sources():
        docs = {id(node.value) for node in nodes(name) if isinstance(node, ast.Expr)}
        for node in nodes(name):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
            named = text.decode("latin-1") if isinstance(text, bytes) else text
            if (isinstance(named, str) and method in named) or (isinstance(node, ast.Name) and node.id in constants):
                found.append(name)
                break
    return sorted(found)


def _components(graph: dict[str, set[str]], nodes: dict[str, str]) -> Iterator[list[str]]:
    """Yield the strongly connected components (Kosaraju): few nodes, so two plain searches will do."""
    order: list[str] = []
    seen: set[str] = set()
    for node in nodes:
        _visit(node, graph, seen, order)
    reverse: dict[str, set[str]] = defaultdict(set)
    for source, targets in graph.items():
        for target in targets:
            reverse[target].add(source)
    seen = set()
    for node in reversed(order):
        if node not in seen:
            group: list[str] = []
            _visit(node, reverse, seen, group)
            yield sorted(group)


def _visit(node: str, graph: dict[str, set[str]], seen: set[str], order: list[str]) -> None:
    if node in seen:
        return
    seen.add(node)
    for target in sorted(graph[node]):
        _visit(target, graph, seen, order)
    order.append(node)


# What runs.

_OURS = f"{Path(linkspan.__file__).parent}{os.sep}"
_A_MATTER_OF_TIME = {"WakePipe.wake", "WakePipe.drain"}
"""Functions that are not counted: whether another thread sleeps and must be woken differs from call to call."""


class Counting:
    """Counts the calls of functions of ours, in the thread that enters it, or with `everywhere` in those that start later."""

    def __init__(self, everywhere: bool = False) -> None:
        self.calls = 0
        self.path: list[str] = []
        self._everywhere = everywhere

    def __enter__(self) -> Counting:
        if self._everywhere:
            threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_OURS) and code.co_qualname not in _A_MATTER_OF_TIME:
            self.calls += 1
            self.path.append(f"{code.co_filename.removeprefix(_OURS)}:{frame.f_lineno} {code.co_qualname}")


def _server() -> Any:
    from linkspan import Server

    server = Server("figures")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(inline=True)
    def report(steps: int, ctx: Context) -> int:
        for step in range(steps):
            ctx.progress(step, total=steps)
        return steps

    @server.resource("note://one")
    def one() -> str:
        return "1"

    return server


_PREFIX = "io.modelcontextprotocol"
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "figures", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _request(number: int, name: str = "add", arguments: Any = None, **meta: Any) -> bytes:
    params = {"name": name, "arguments": arguments or {"a": 1, "b": 2}, "_meta": _META | meta}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def per_call(run: Callable[[int], object], counting: Counting) -> int:
    """Return how many functions one call runs: `run(n)` makes a number of calls."""
    run(CALLS)
    before = counting.calls
    run(CALLS)
    counted = counting.calls - before
    return round(counted / CALLS)


def calls_over_handle_json() -> int:
    """Count for one message handed to `Server.handle_json`."""
    server = _server()
    with Counting() as counting:
        return per_call(lambda n: [server.handle_json(_request(each)) for each in range(n)], counting)


def calls_over_stdio(request: Callable[[int], bytes] = _request, answers: int = 1) -> int:
    """Count for one line on standard input, up to the line on standard output; inline, one at a time."""
    from linkspan.serve.stdio import serve_stdio

    server = _server()
    ours, theirs = os.pipe(), os.pipe()
    result: list[int] = []

    def drive() -> None:
        out = os.fdopen(theirs[0], "rb", closefd=False)

        def run(count: int) -> None:
            for each in range(count):
                os.write(ours[1], request(each) + b"\n")
                for _ in range(answers):
                    out.readline()

        result.append(per_call(run, counting))
        os.close(ours[1])

    with Counting() as counting:
        feeder = threading.Thread(target=drive)
        feeder.start()
        serve_stdio(server.connect, input_fd=ours[0], output_fd=theirs[1], watch_parent=False)
    feeder.join()
    for descriptor in (ours[0], *theirs):
        os.close(descriptor)
    return result[0]


def calls_for_progress() -> int:
    """Count for one `ctx.progress` of a running tool over stdio, up to the line on standard output."""
    token = {"progressToken": 1}
    few, many = 2, 12
    each = [
        calls_over_stdio(lambda n, steps=steps: _request(n, "report", {"steps": steps}, **token), answers=steps + 1)
        for steps in (few, many)
    ]
    return round((each[1] - each[0]) / (many - few))


_HEADERS = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"add"),
]


async def _post(app: Any, number: int) -> bytes:
    sent: list[Any] = []
    messages = iter([{"type": "http.request", "body": _request(number), "more_body": False}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": _HEADERS,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 5),
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    return b"".join(message.get("body", b"") for message in sent)


def calls_over_asgi() -> int:
    """Count for one POST of the newest revision to `Server.asgi()`; inline, answered as JSON."""

    async def main() -> int:
        app = _server().asgi()

        async def run(count: int) -> None:
            for each in range(count):
                assert b'"result"' in await _post(app, each)

        with Counting() as counting:
            await run(CALLS)
            before = counting.calls
            await run(CALLS)
            return round((counting.calls - before) / CALLS)

    return asyncio.run(main())


def calls_of_a_client() -> int:
    """Count for one `call_tool` of an asyncio client of a server in the same process, both sides together."""
    from linkspan.client import Client

    async def main() -> int:
        with Counting(everywhere=True) as counting:
            async with Client(_server()) as client:
                await client.list_tools()
                for _ in range(CALLS):
                    await client.call_tool("add", {"a": 1, "b": 2})
                found: list[int] = []
                for _ in range(4 * CALLS):  # a wake-up more or less is a matter of time: the least is what a call takes
                    before = counting.calls
                    await client.call_tool("add", {"a": 1, "b": 2})
                    found.append(counting.calls - before)
                return min(found)

    return asyncio.run(main())


class _Socket(asyncio.Transport):
    """What is below a connection of `run("http")`: keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        pass


def _bytes_of(body: bytes, **headers: str) -> bytes:
    """Return a POST as clients send it."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    common = ["host: localhost", "content-type: application/json", "accept: application/json, text/event-stream"]
    head = "\r\n".join(["POST /mcp HTTP/1.1", *common, f"content-length: {len(body)}", *lines])
    return f"{head}\r\n\r\n".encode() + body


def _message(method: str, number: int | None = None, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else {**message, "id": number}).encode()


def calls_over_http(*, handshake: bool = False) -> int:
    """Count for one POST to `run("http")`, from the bytes that come from the socket to those for it; inline, answered as JSON."""
    import uvicorn
    from uvicorn.server import ServerState

    from linkspan.core.http_checks import HttpPolicy
    from linkspan.serve.http import make_endpoint
    from linkspan.serve.http_protocol import DirectApp, EndpointProtocol

    async def main() -> int:
        app, config = (
            DirectApp(make_endpoint(_server(), HttpPolicy())),
            uvicorn.Config(_post, ws="none", log_config=None, access_log=False),
        )
        config.load()
        protocol, wire = EndpointProtocol(app, config, ServerState(), {}, asyncio.get_running_loop()), _Socket()
        protocol.connection_made(wire)

        def post(body: bytes, **headers: str) -> bytes:
            wire.written = b""
            protocol.data_received(_bytes_of(body, **headers))
            return wire.written

        if handshake:
            client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            opened = post(_message("initialize", 0, **client)).decode()
            session = next(line for line in opened.split("\r\n") if line.lower().startswith("mcp-session-id"))
            ours = {"mcp_session_id": session.partition(": ")[2], "mcp_protocol_version": "2025-06-18"}
            post(_message("notifications/initialized"), **ours)
        else:
            ours = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "add"}

        def run(count: int) -> None:
            for each in range(1, count + 1):
                body = (
                    _message("tools/call", each, name="add", arguments={"a": 1, "b": 2})
                    if handshake
                    else _request(each)
                )
                assert b'"result"' in post(body, **ours)

        with Counting() as counting:
            counted = per_call(run, counting)
        protocol.connection_lost(None)
        return counted

    return asyncio.run(main())


def _answer_over_http(connection: socket.socket, server: Any) -> None:
    """Answer the requests of one connection, through `handle_json`."""
    with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
        while head := list(iter(stream.readline, b"\r\n")):
            if not head[-1]:
                break
            (size,) = (int(each.split(b":")[1]) for each in head if each.lower().startswith(b"content-length"))
            answer = (server.handle_json(stream.read(size)) or "").encode()
            begin = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(begin % len(answer) + answer)


def _accept(listener: socket.socket, server: Any) -> None:
    """Answer each connection in a thread of its own."""
    with contextlib.suppress(OSError):
        while True:
            arguments = listener.accept()[0], server
            threading.Thread(target=_answer_over_http, args=arguments, daemon=True).start()


def calls_of_an_http_client() -> int:
    """Count for one `call_tool` of an asyncio client over HTTP, on its side of the connection."""
    from linkspan.client import Client

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, _server()), daemon=True).start()

    async def main() -> int:
        async with Client(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp") as client:
            await client.list_tools()
            with Counting() as counting:
                found: list[int] = []
                for _ in range(2 * CALLS):  # an answer may come in two reads
                    before = counting.calls
                    await client.call_tool("add", {"a": 1, "b": 2})
                    found.append(counting.calls - before)
                return min(found)

    with listener:
        return asyncio.run(main())


def calls_for_a_task() -> int:
    """Count for one task in a store of SQLite, in all threads: from its call to its end, and one poll that returns it."""
    from linkspan import Server

    with tempfile.TemporaryDirectory() as directory:
        server = Server("figures", store=f"sqlite://{directory}/store.db")

        @server.tool(task=True)
        def add(a: int, b: int) -> int:
            return a + b

        meta = _META | {f"{_PREFIX}/clientCapabilities": {"extensions": {f"{_PREFIX}/tasks": {}}}}

        def send(method: str, **params: Any) -> Any:
            line = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
            return server.handle(line)["result"]  # type: ignore[index]

        found: list[int] = []
        with Counting(everywhere=True) as counting:
            runner = server.tasks.runner
            runner.attach(server, lambda: None)
            for _ in range(CALLS):
                before = counting.calls
                task = send("tools/call", name="add", arguments={"a": 1, "b": 2})["taskId"]
                while runner.runs.by_id:
                    time.sleep(0.001)
                assert send("tasks/get", taskId=task)["status"] == "completed"
                found.append(counting.calls - before)  # the thread of the tasks takes a turn more or less
        runner.leave(server, 1.0)
        server.store.close()
        return sorted(found)[len(found) // 10]


def calls_for_a_change() -> int:
    """Count for one `notify_resource_updated` that one subscriber hears of."""
    from linkspan.serve.memory import MemoryTransport

    server = _server()
    listen = {"notifications": {"resourceSubscriptions": ["note://one"]}, "_meta": _META}
    line = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen}
    with MemoryTransport(server) as transport:
        transport.send(json.dumps(line).encode() + b"\n")
        assert b"note://one" in transport.receive()
        with Counting() as counting:
            return per_call(lambda n: [server.notify_resource_updated("note://one") for _ in range(n)], counting)


def garbage_over_asgi() -> float:
    """Return how many objects one POST leaves to the cycle collector."""

    async def main() -> float:
        app = _server().asgi()
        for each in range(CALLS):
            await _post(app, each)
        gc.collect()
        gc.disable()
        try:
            for each in range(CALLS):
                await _post(app, each)
            return gc.collect() / CALLS
        finally:
            gc.enable()

    return asyncio.run(main())


def garbage_of_a_connection() -> float:
    """Return how many objects one call on a byte stream leaves to the cycle collector."""
    from linkspan.serve.memory import MemoryTransport

    with MemoryTransport(_server()) as transport:

        def run() -> None:
            for each in range(CALLS):
                transport.send(_request(each) + b"\n")
                assert b"result" in transport.receive()

        run()
        gc.collect()
        gc.disable()
        try:
            run()
            return gc.collect() / CALLS
        finally:
            gc.enable()


@contextlib.contextmanager
def without_current_context() -> Iterator[None]:
    """Measure as where `current_context` is not used: another test may have loaded it, after which calls take more steps."""
    ambient, Context.ambient = Context.ambient, None
    try:
        yield
    finally:
        Context.ambient = ambient


@without_current_context()
def measure() -> dict[str, float]:
    """Return every figure that is one number, by its name."""
    return {
        "attributes of other objects assigned in core": len(foreign_attributes("core/")),
        "decisions by era in server and core": len(era_decisions("server", "core")),
        "decisions by era elsewhere": len(era_decisions("client", "flows", "serve", "runtime")),
        "modules in import cycles": sum(map(len, import_cycles())),
        "calls over stdio": calls_over_stdio(),
        "calls over ASGI": calls_over_asgi(),
        "calls of a client in memory": calls_of_a_client(),
        "calls over handle_json": calls_over_handle_json(),
        'calls over run("http")': calls_over_http(),
        'calls over run("http") in a session': calls_over_http(handshake=True),
        "calls of an HTTP client": calls_of_an_http_client(),
        "calls for a task on SQLite": calls_for_a_task(),
        "calls for a progress notification": calls_for_progress(),
        "calls for a change": calls_for_a_change(),
        "objects a call on a byte stream leaves to the collector": garbage_of_a_connection(),
        "objects a call over ASGI leaves to the collector": garbage_over_asgi(),
    }


# The walk: the functions that one call runs, in their order, for docs/architecture.md.

WALKS: dict[str, tuple[Callable[[], object], str]] = {
    "stdio": (calls_over_stdio, "ServerConnection.receive_data"),
    "asgi": (calls_over_asgi, "AsgiApp.__call__"),
    "client": (calls_of_a_client, "call_options"),
    "progress": (calls_for_progress, "Context.progress"),
}
"""Each route that is walked: what measures it, and a function that each call runs once, with which its walk begins."""
PICTURE = SOURCE.parent.parent / "docs" / "architecture.md"


def walk(route: str) -> list[tuple[str, list[str]]]:
    """Return the modules that a call passes through on a route, each with its functions there, in order."""
    run, start = WALKS[route]
    path = _paths_of(run)
    marks = [at for at, step in enumerate(path) if step.split()[-1] == start]
    ways = Counter(tuple(path[a:b]) for a, b in itertools.pairwise(marks))
    steps = min(
        (way for way, times in ways.items() if times > 2), key=len
    )  # the others woke a thread, which is a matter of time
    found: list[tuple[str, list[str]]] = []
    for step in steps:
        module, function = step.split(":")[0], step.split()[-1]
        if function.endswith(">"):  # a comprehension: a call of its own in some versions of Python
            continue
        if not found or found[-1][0] != module:
            found.append((module, []))
        found[-1][1].append(function)
    return found


def _paths_of(run: Callable[[], object]) -> list[str]:
    """Return what a measurement recorded: the measurements make their own `Counting`."""
    made: list[Counting] = []
    original = Counting.__init__

    def remember(self: Counting, everywhere: bool = False) -> None:
        original(self, everywhere)
        made.append(self)

    Counting.__init__ = remember  # type: ignore[method-assign]
    try:
        run()
    finally:
        Counting.__init__ = original  # type: ignore[method-assign]
    return made[-1].path


def walk_as_table(route: str) -> str:
    """Return the walk of a route as a Markdown table."""
    rows = [
        f"| {number} | `{module}` | {', '.join(f'`{each}`' for each in functions)} |"
        for number, (module, functions) in enumerate(walk(route), 1)
    ]
    return "\n".join(["| step | module | functions |", "|---|---|---|", *rows])


@without_current_context()
def picture() -> str:
    """Return docs/architecture.md with the walks as they are measured now, between `<!-- walk: ROUTE -->` and `<!-- end -->`."""
    text = PICTURE.read_text()
    for route in WALKS:
        begin = f"<!-- walk: {route} -->\n"
        before, _, rest = text.partition(begin)
        text = before + begin + walk_as_table(route) + "\n" + rest[rest.index("<!-- end -->") :]
    return text


def main() -> None:
    """Print every figure; with "walk", write the walks into docs/architecture.md; with "json", print what is held to a bound."""
    if sys.argv[1:] == ["walk"]:
        PICTURE.write_text(picture())
        return
    if sys.argv[1:] == ["json"]:
        print(json.dumps(measure()))
        return
    for name, figure in measure().items():
        print(f"{figure:8} {name}")
    found, lines = files(), code_lines()
    print(f"{sum(found.values()):8} files: {dict(found)}")
    print(f"{sum(lines.values()):8} lines of code: {dict(lines)}")
    kernel = sum(count for name, count in lines.items() if name not in KERNEL_LEAVES_OUT)
    print(f"{kernel:8} of them outside {', '.join(sorted(KERNEL_LEAVES_OUT))}")
    twice = {name: modules for name, modules in class_names().items() if len(modules) > 1}
    print(f"{len(twice):8} names of classes that stand for several, for {sum(map(len, twice.values()))}")
    print(f"{sum(count > 30 for count in method_counts().values()):8} classes with more than 30 methods")
    private, functions = private_with_one_caller()
    print(f"{round(1000 * private / functions):8} private functions with one caller, per thousand")
    for each in (f"longest: {largest()[1]}", *import_cycles()):
        print(f"         {each}")


if __name__ == "__main__":
    main()
