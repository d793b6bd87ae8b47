"""A program that uses clients and servers, forks while they are in use, and prints what came of it: `forked.py SCENARIO TARGET`.

TARGET is "stdio", "memory" or a URL. Each scenario has the shape of a way in which people fork: see `SCENARIOS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import multiprocessing
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from linkspan import Client, ClientError, ConnectionLost, Context, Server, SyncClient, SyncClientGroup, Timeouts
from linkspan.serve.memory import MemoryTransport

CHILDREN = 3
PATIENCE = 30.0
DEADLINE = 15.0
DEADLINES = Timeouts(connect=DEADLINE, list=DEADLINE, call=DEADLINE, total=DEADLINE)

server = Server("forked")


@server.tool
def pid() -> int:
    """Return the process that serves."""
    return os.getpid()


@server.tool
async def pid_later() -> int:
    """Return it from the loop."""
    await asyncio.sleep(0.001)
    return os.getpid()


cancelled_calls = 0


@server.tool
async def hang(ctx: Context) -> None:
    """Wait until this is cancelled."""
    global cancelled_calls
    ctx.progress(1)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled_calls += 1
        raise


@server.tool
def cancelled() -> int:
    """Return how many calls were cancelled."""
    return cancelled_calls


def target(name: str) -> Any:
    if name == "memory":
        return server
    return [sys.executable, __file__, "serve"] if name == "stdio" else name


def in_child(work: Callable[[], Any], *, finalize: bool = True) -> Callable[[], Any]:
    """Fork, and run `work` in the child; call what is returned to get what came of it. `finalize`: the child ends as
    programs do, rather than at once."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            found: Any = work()
        except BaseException:
            found = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(found).encode())
        os.close(writer)
        if finalize:
            sys.exit(0)
        os._exit(0)
    os.close(writer)

    def collect() -> Any:
        if not select.select([reader], [], [], PATIENCE)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
            os.waitpid(child, 0)
            return {"error": "it hangs"}
        data = b""
        while part := os.read(reader, 65536):
            data += part
        os.close(reader)
        _, status = os.waitpid(child, 0)
        return json.loads(data) if status == 0 else {"error": f"status {status}: {data!r}"}

    return collect


@contextlib.contextmanager
def busy(work: Callable[[], Any], threads: int = 4) -> Iterator[None]:
    """Have other threads do `work` all the time, so that a fork meets held locks."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            with contextlib.suppress(ClientError):
                work()

    running = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for each in running:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in running:
            each.join(PATIENCE)


def calls(client: Any) -> Any:
    """Call both kinds of tools; return who served, and how long it took."""
    began = time.monotonic()
    served = {client.call_tool("pid").decode(int), client.call_tool("pid_later").decode(int)}
    return {"served": sorted(served), "seconds": time.monotonic() - began}


# Scenarios.


def sync(where: Any) -> Any:
    """A client of the module, in use by threads while children are forked."""
    client = SyncClient(where, timeouts=DEADLINES, on_change=print)
    before = calls(client)
    with busy(lambda: calls(client)):
        children = [in_child(lambda: calls(client)) for _ in range(CHILDREN)]
        found = [each() for each in children]
    after = calls(client)
    client.close()
    return {"before": before, "children": found, "after": after}


def idle(where: Any) -> Any:
    """A client that rests while the children are forked, use it, close it, and end."""
    client = SyncClient(where, timeouts=DEADLINES)
    before = calls(client)

    def work() -> Any:
        with client:
            return calls(client)

    children = [in_child(work, finalize=bool(number % 2)) for number in range(CHILDREN)]
    found = [each() for each in children]
    after = calls(client)
    client.close()
    return {"before": before, "children": found, "after": after}


def unused(where: Any) -> Any:
    """Children that never use the client: nothing of it may be touched, not even when they end."""
    client = SyncClient(where, timeouts=DEADLINES)
    before = calls(client)
    found = [in_child(lambda: {"served": [], "seconds": 0.0})() for _ in range(CHILDREN)]
    after = calls(client)
    client.close()
    return {"before": before, "children": found, "after": after}


def async_face(where: Any) -> Any:
    """An async client, used in one loop before the fork, and in another after it."""
    client = Client(where, timeouts=DEADLINES)

    async def both() -> Any:
        began = time.monotonic()
        results = await asyncio.gather(client.call_tool("pid"), client.call_tool("pid_later"))
        return {"served": sorted({each.decode(int) for each in results}), "seconds": time.monotonic() - began}

    async def fork_and_call() -> Any:
        before = await both()
        others = [asyncio.create_task(both()) for _ in range(20)]
        await asyncio.sleep(0)
        children = [in_child(lambda: asyncio.run(both()), finalize=False) for _ in range(CHILDREN)]
        await asyncio.gather(*others)
        return {"before": before, "children": [await asyncio.to_thread(each) for each in children]}

    found = asyncio.run(fork_and_call())
    found["children"].append(in_child(lambda: asyncio.run(both()))())
    found["after"] = asyncio.run(both())
    client.close_now()
    return found


def group(where: Any) -> Any:
    """A group whose members were in use."""
    servers = SyncClientGroup({"one": where, "two": where}, timeouts=DEADLINES)

    def work() -> Any:
        began = time.monotonic()
        names = [entry.name for entry in servers.list_tools() if "pid" in entry.name]
        served = {servers.call_tool(name).decode(int) for name in names}
        assert len(names) == 4
        return {"served": sorted(served), "seconds": time.monotonic() - began}

    before = work()
    with busy(work, 2):
        children = [in_child(work) for _ in range(CHILDREN)]
        found = [each() for each in children]
    after = work()
    servers.close()
    return {"before": before, "children": found, "after": after}


def process_pool(where: Any) -> Any:
    """`multiprocessing` with the start method fork."""
    global module_client
    module_client = SyncClient(where, timeouts=DEADLINES)
    before = calls(module_client)
    with multiprocessing.get_context("fork").Pool(CHILDREN) as pool:
        found = pool.map_async(call_module_client, range(CHILDREN)).get(PATIENCE)
    after = calls(module_client)
    module_client.close()
    return {"before": before, "children": found, "after": after}


module_client: Any = None


def call_module_client(_: int) -> Any:
    return calls(module_client)


def prefork(where: Any) -> Any:
    """As Celery does it: workers are forked once, and get many tasks through pipes, while the parent goes on."""
    client = SyncClient(where, timeouts=DEADLINES)
    before = calls(client)
    pipes = [(os.pipe(), os.pipe()) for _ in range(CHILDREN)]

    def serve(tasks: int, answers: int) -> Any:
        found: Any = None
        while os.read(tasks, 1) == b"t":
            found = calls(client)
            os.write(answers, b".")
        return found

    children = [in_child(lambda tasks=tasks[0], answers=answers[1]: serve(tasks, answers)) for tasks, answers in pipes]
    for _ in range(5):
        for tasks, _answers in pipes:
            os.write(tasks[1], b"t")
        calls(client)
        for _tasks, answers in pipes:
            os.read(answers[0], 1)
    for tasks, _answers in pipes:
        os.write(tasks[1], b"e")
    found = [each() for each in children]
    after = calls(client)
    client.close()
    return {"before": before, "children": found, "after": after}


HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}


def call(name: str) -> bytes:
    """Return a call of a tool without arguments."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    meta |= {"io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}}  # type: ignore[dict-item]
    meta |= {"io.modelcontextprotocol/clientCapabilities": {}}  # type: ignore[dict-item]
    params = {"name": name, "arguments": {}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def asked(app: Callable[[bytes], bytes]) -> Any:
    """Call both tools through an app; return who served."""
    began = time.monotonic()
    served = {json.loads(app(call(name)))["result"]["structuredContent"]["result"] for name in ("pid", "pid_later")}
    return {"served": sorted(served), "seconds": time.monotonic() - began}


def poster(app: Callable[[Any, Any], Any]) -> Callable[[bytes], bytes]:
    """Return how to post a body to a WSGI app."""

    def post(body: bytes) -> bytes:
        headers = HEADERS | {"host": "localhost", "mcp-name": json.loads(body)["params"]["name"]}
        environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        environ |= {"CONTENT_TYPE": environ.pop("HTTP_CONTENT_TYPE"), "CONTENT_LENGTH": str(len(body))}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": io.BytesIO(body)}
        environ |= {"REMOTE_ADDR": "127.0.0.1", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80"}
        return b"".join(app(environ, lambda *_: None))

    return post


def wsgi(_: Any) -> Any:
    return serving(poster(server.wsgi()))


def asgi(_: Any) -> Any:
    app = server.asgi()

    def post(body: bytes) -> bytes:
        named = HEADERS | {"host": "localhost", "mcp-name": json.loads(body)["params"]["name"]}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}
        sent: list[Any] = []
        received = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if received:
                return received.pop()
            return await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        return b"".join(each.get("body", b"") for each in sent)

    return serving(post)


def pipe(_: Any) -> Any:
    transport = MemoryTransport(server)

    def post(body: bytes) -> bytes:
        transport.send(body + b"\n")
        return transport.receive(DEADLINE)

    found = serving(post, busily=False)
    transport.close()
    return found


def handle_json(_: Any) -> Any:
    return serving(lambda body: (server.handle_json(body) or "").encode())


def serving(post: Callable[[bytes], bytes], *, busily: bool = True) -> Any:
    """An app that served before the fork, serves while it happens, and serves after it."""
    before = asked(post)
    with busy(lambda: asked(post)) if busily else contextlib.nullcontext():
        children = [in_child(lambda: asked(post)) for _ in range(CHILDREN)]
        found = [each() for each in children]
    return {"before": before, "children": found, "after": asked(post)}


def listening(where: Any) -> Any:
    """What was listened to before the fork ends with an error, and can be listened to anew."""
    client = SyncClient(where, timeouts=DEADLINES)

    def work() -> Any:
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="parent process"):
            next(changes)
        with client.listen(tools=True):
            return {"served": [], "seconds": time.monotonic() - began}

    with client.listen(tools=True) as changes:
        found = [in_child(work)() for _ in range(CHILDREN)]
    client.close()
    return {"before": None, "children": found, "after": None}


def notifying(_: Any) -> Any:
    """Who listens in the parent does not hear from the child, and the child does not wait for the parent's locks."""
    logging.getLogger("linkspan").setLevel(logging.ERROR)  # that a child's notification reaches nobody is the point
    client = SyncClient(server, timeouts=DEADLINES)
    with client.listen(tools=True), busy(server.notify_tools_list_changed):
        found = [
            in_child(lambda: {"served": [server.notify_tools_list_changed()], "seconds": 0.0}) for _ in range(CHILDREN)
        ]
        told = [each() for each in found]
    client.close()
    return {"before": None, "children": told, "after": None}


def hanging_up(where: Any) -> Any:
    """The server of the parent sees that the parent hangs up, though a child lives on."""
    client = SyncClient(where, timeouts=Timeouts(close=30.0))
    served = calls(client)["served"]
    release = os.pipe()
    child = in_child(lambda: {"served": [], "seconds": float(len(os.read(release[0], 1)))})
    began = time.monotonic()
    client.close()
    closing = {"served": served, "seconds": time.monotonic() - began}
    os.write(release[1], b"!")
    return {"before": None, "children": [child()], "after": closing}


def cancelling(where: Any) -> Any:
    """A request is cancelled by closing its stream (CAN-3), which works though a child has a copy of the socket."""
    client = SyncClient(where, timeouts=DEADLINES)
    began = time.monotonic()
    release = os.pipe()
    children: list[Callable[[], Any]] = []

    def fork(_: object) -> None:
        children.append(in_child(lambda: {"served": [], "seconds": float(len(os.read(release[0], 1)))}))

    with contextlib.suppress(ClientError):
        client.call_tool("hang", total=1.0, on_progress=fork)
    assert children
    while client.call_tool("cancelled").decode(int) == 0:
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.02)
    os.write(release[1], b"!")
    found = {"served": [], "seconds": time.monotonic() - began}
    client.close()
    return {"before": None, "children": [each() for each in children], "after": found}


SCENARIOS: dict[str, Callable[[Any], Any]] = {
    each.__name__: each
    for each in (
        sync,
        idle,
        unused,
        async_face,
        group,
        process_pool,
        prefork,
        wsgi,
        asgi,
        pipe,
        handle_json,
        listening,
        notifying,
        hanging_up,
        cancelling,
    )
}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        server.run()
    else:
        print(json.dumps(SCENARIOS[sys.argv[1]](target(sys.argv[2]))), file=sys.__stdout__)
